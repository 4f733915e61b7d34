//! A ping-pong of 8-byte WRITEs whose ends spin on their memory and are not in the library while
//! they wait: the fall-back of `ib_write_lat`, which polls its completion queue meanwhile.
//!
//! Only the NIC's own threads can receive then, and on a machine with two processors they have to
//! take them from the two ends that spin. Completions are taken between rounds, never waited for.

use bench_programs::{quantile, report};
use clap::Parser;
use crocevia::{
    Access, Completion, ConnectOptions, Context, Cq, Mr, Qp, QpOptions, Remote, SendData,
    SendFlags, SendOp, SendRequest,
};
use std::error::Error;
use std::hint::spin_loop;
use std::net::Ipv4Addr;
use std::thread;
use std::time::{Duration, Instant};

type Result<T> = std::result::Result<T, Box<dyn Error + Send + Sync>>;

#[derive(Parser)]
#[command(about = "WRITE ping-pong that spins on memory; half round trips in microseconds as JSON")]
struct Args {
    /// Round trips that are measured.
    #[arg(short = 'n', long, default_value_t = 5_000)]
    count: u64,
}

const ENDS: [Ipv4Addr; 2] = [Ipv4Addr::new(127, 0, 0, 2), Ipv4Addr::new(127, 0, 0, 3)];
const PATIENCE: Duration = Duration::from_secs(10);
/// Completions are taken every so many rounds; the queues hold a few times that.
const REAP_EVERY: u64 = 16;
/// Where an end's counter comes in, and where it keeps what it sends.
const IN: usize = 0;
const OUT: usize = 64;

struct End {
    qp: Qp,
    cq: Cq,
    memory: Mr,
}

impl End {
    fn new(context: &Context) -> Result<Self> {
        let pd = context.alloc_pd()?;
        let cq = context.create_cq(16 * REAP_EVERY as u32, None)?;
        let qp = pd.create_qp(&QpOptions::rc(&cq))?;
        let memory = pd.alloc(128, Access::LOCAL_WRITE | Access::REMOTE_WRITE)?;
        Ok(Self { qp, cq, memory })
    }

    /// Writes `round` into the other end's memory.
    fn send(&self, to: Remote, round: u64) -> Result<()> {
        if round.is_multiple_of(REAP_EVERY) {
            self.cq.poll(&mut [Completion::default(); 2 * REAP_EVERY as usize]);
        }
        self.memory.region().store_u64(OUT, round);
        self.qp.post_send(&SendRequest {
            wr_id: round,
            op: SendOp::Write(to),
            flags: SendFlags::SIGNALED,
            data: SendData::Sges(&[self.memory.sge(OUT..OUT + 8)]),
            datagram: None,
        })?;
        Ok(())
    }

    /// Spins until `round` is there.
    fn receive(&self, round: u64) -> Result<()> {
        let start = Instant::now();
        while self.memory.region().load_u64(IN) != round {
            spin_loop();
            if start.elapsed() > PATIENCE {
                return Err(format!("round {round} did not come").into());
            }
        }
        Ok(())
    }
}

fn main() -> Result<()> {
    let args = Args::parse();
    let rounds = args.count / 10 + 1 + args.count;
    let contexts = ENDS.map(|address| Context::open_addr(&address.to_string()));
    let [here, there] = contexts;
    let (here, there) = (End::new(&here?)?, End::new(&there?)?);
    Qp::pair(&here.qp, &there.qp, &ConnectOptions::default())?;
    let (to_here, to_there) = (here.memory.remote(IN), there.memory.remote(IN));
    let answers = thread::spawn(move || -> Result<()> {
        for round in 1..=rounds {
            there.receive(round)?;
            there.send(to_here, round)?;
        }
        Ok(())
    });
    let mut half_trips = Vec::new();
    for round in 1..=rounds {
        let start = Instant::now();
        here.send(to_there, round)?;
        here.receive(round)?;
        if round > rounds - args.count {
            half_trips.push(start.elapsed().as_nanos() as u64 / 2);
        }
    }
    answers.join().map_err(|_| "the answering thread panicked")??;
    half_trips.sort_unstable();
    let us = |share| quantile(&half_trips, share) as f64 / 1e3;
    report("memory_pingpong", &[("p50_us", us(0.5)), ("p99_us", us(0.99)), ("min_us", us(0.0))]);
    Ok(())
}
