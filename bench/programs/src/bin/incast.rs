//! Incast: several senders, each a NIC on an address of its own, WRITE into the memory of one
//! receiver at once.
//!
//! All buffers of the receiver are one socket's, so this shows whether the packets in flight of
//! many peers still fit it. CROCEVIA_RCVBUF sets its size, for the senders' estimate of it too.
//! Prints what arrived, as JSON.

use bench_programs::report;
use clap::Parser;
use crocevia::{
    Access, ConnectOptions, Context, Counters, Cq, Mr, Qp, QpOptions, Remote, SendData, SendFlags,
    SendOp, SendRequest, WcStatus,
};
use std::error::Error;
use std::net::Ipv4Addr;
use std::sync::Barrier;
use std::thread;
use std::time::{Duration, Instant};

type Result<T> = std::result::Result<T, Box<dyn Error + Send + Sync>>;

#[derive(Parser)]
#[command(about = "Many senders WRITE to one receiver; prints the goodput in Gbit/s as JSON")]
struct Args {
    /// Sending NICs.
    #[arg(long, default_value_t = 8)]
    senders: u8,
    /// Bytes of a WRITE.
    #[arg(short, long, default_value_t = 1 << 20)]
    size: usize,
    /// WRITEs outstanding of each sender.
    #[arg(short = 't', long, default_value_t = 4)]
    depth: usize,
    /// How long to send.
    #[arg(short = 'D', long, default_value_t = 2.0)]
    seconds: f64,
}

const RECEIVER: Ipv4Addr = Ipv4Addr::new(127, 0, 0, 2);
const PATIENCE: Duration = Duration::from_secs(10);

/// One sending NIC, connected.
struct Sender {
    qp: Qp,
    cq: Cq,
    memory: Mr,
    remote: Remote,
}

impl Sender {
    fn post(&self) -> Result<()> {
        let sges = [self.memory.sge(..)];
        self.qp.post_send(&SendRequest {
            wr_id: 0,
            op: SendOp::Write(self.remote),
            flags: SendFlags::SIGNALED,
            data: SendData::Sges(&sges),
            datagram: None,
        })?;
        Ok(())
    }

    /// Bytes of the WRITEs that completed within the time.
    fn run(&self, args: &Args) -> Result<u64> {
        let length = Duration::from_secs_f64(args.seconds);
        let start = Instant::now();
        let (mut outstanding, mut bytes) = (0, 0);
        for _ in 0..args.depth {
            self.post()?;
            outstanding += 1;
        }
        while outstanding > 0 {
            let done = self.cq.wait(Some(PATIENCE)).ok_or("no completion for 10 s")?;
            if done.status != WcStatus::Success {
                return Err(format!("a WRITE ended with {:?}", done.status).into());
            }
            outstanding -= 1;
            if start.elapsed() < length {
                bytes += args.size as u64;
                self.post()?;
                outstanding += 1;
            }
        }
        Ok(bytes)
    }
}

fn main() -> Result<()> {
    let args = Args::parse();
    let receiver = Context::open_addr(&RECEIVER.to_string())?;
    let domain = receiver.alloc_pd()?;
    let queue = receiver.create_cq(16, None)?;
    let access = Access::LOCAL_WRITE | Access::REMOTE_WRITE;
    let target = domain.alloc(args.size * usize::from(args.senders), access)?;
    let (mut senders, mut ends, mut contexts) = (Vec::new(), Vec::new(), Vec::new());
    for number in 0..args.senders {
        let context = Context::open_addr(&Ipv4Addr::new(127, 0, 1, number + 1).to_string())?;
        let pd = context.alloc_pd()?;
        let cq = context.create_cq(args.depth as u32 + 1, None)?;
        let qp = pd.create_qp(&QpOptions::rc(&cq))?;
        let memory = pd.alloc(args.size, Access::empty())?;
        memory.region().write(0, &vec![number + 1; args.size]);
        let end = domain.create_qp(&QpOptions::rc(&queue))?;
        Qp::pair(&qp, &end, &ConnectOptions::default())?;
        ends.push(end);
        contexts.push(context);
        let remote = target.remote(args.size * usize::from(number));
        senders.push(Sender { qp, cq, memory, remote });
    }
    let (barrier, args) = (&Barrier::new(senders.len()), &args);
    let bytes: Vec<u64> = thread::scope(|scope| {
        let run = |sender| {
            scope.spawn(move || {
                barrier.wait();
                Sender::run(sender, args)
            })
        };
        let threads: Vec<_> = senders.iter().map(run).collect();
        let results = threads.into_iter().map(|t| t.join().map_err(|_| "a sender panicked")?);
        results.collect::<Result<_>>()
    })?;
    for number in 0..args.senders {
        let mut slice = vec![0; args.size];
        target.region().read(args.size * usize::from(number), &mut slice);
        if slice.iter().any(|b| *b != number + 1) {
            return Err(format!("sender {number}'s memory did not arrive").into());
        }
    }
    let gbit = |b: u64| b as f64 * 8.0 / args.seconds / 1e9;
    let least = bytes.iter().copied().min().unwrap_or(0);
    let sum = |of: fn(&Counters) -> u64| contexts.iter().map(|c| of(&c.counters())).sum::<u64>();
    let (sent, again) = (sum(|c| c.tx_packets), sum(|c| c.retransmitted_packets));
    report(
        "incast",
        &[
            ("gbit", gbit(bytes.iter().sum())),
            ("slowest_gbit", gbit(least)),
            ("sent_again", again as f64 / sent as f64),
            ("timeouts", sum(|c| c.local_ack_timeout_err) as f64),
        ],
    );
    Ok(())
}
