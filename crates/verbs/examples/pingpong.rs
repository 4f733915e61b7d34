//! Ping-pong: a message goes to the peer and comes back, again and again; the time of one way is
//! printed. Shows the two-sided operations, and how two programs get to know each other.
//!
//! ```text
//! cargo run --release --example pingpong                       # both ends here, on loopback
//! cargo run --release --example pingpong -- server             # one end, here ...
//! cargo run --release --example pingpong -- client 192.0.2.1   # ... the other end, there
//! ```

use std::error::Error;
use std::io::{BufRead, BufReader, Write};
use std::net::{TcpListener, TcpStream};
use std::time::{Duration, Instant};

use crocevia::{
    Access, ConnectOptions, Context, Cq, Endpoint, Mr, Qp, QpOptions, RecvRequest, SendData,
    SendFlags, SendOp, SendRequest, WcOpcode, WcStatus,
};

type Result<T> = std::result::Result<T, Box<dyn Error + Send + Sync>>;

const USAGE: &str = "\
usage: pingpong [--pair | server | client HOST] [options]
  --addr A     address or interface of this end's RoCE device (default: the first device;
               with --pair 127.0.0.80 and 127.0.0.81)
  --port P     TCP port on which the two ends get to know each other (default 18515)
  --size N     bytes of a message (default 64)
  --iters N    round trips (default 20000)
  --wait       sleep for completions instead of polling";

#[derive(Clone)]
struct Options {
    addr: Option<String>,
    port: u16,
    size: usize,
    iters: u64,
    wait: bool,
}

enum Role {
    Pair,
    Server,
    Client(String),
}

fn main() -> Result<()> {
    let (role, options) = arguments(std::env::args().skip(1))?;
    match role {
        Role::Server => {
            let listener = TcpListener::bind(("0.0.0.0", options.port))?;
            eprintln!("waiting for a client on TCP port {}", options.port);
            serve(&listener, &options)
        }
        Role::Client(host) => client(TcpStream::connect((host.as_str(), options.port))?, &options),
        Role::Pair => {
            let listener = TcpListener::bind("127.0.0.1:0")?;
            let stream = TcpStream::connect(listener.local_addr()?)?;
            let at = |addr: &str| Options { addr: Some(addr.to_owned()), ..options.clone() };
            let (server, client_options) = (at("127.0.0.80"), at("127.0.0.81"));
            let server = std::thread::spawn(move || serve(&listener, &server));
            client(stream, &client_options)?;
            server.join().map_err(|_| "the server's thread panicked")?
        }
    }
}

/// One end: a connected queue pair, with a buffer to send from and one to receive into.
struct End {
    qp: Qp,
    cq: Cq,
    out: Mr,
    into: Mr,
    wait: bool,
}

impl End {
    /// Makes the queue pair, posts the first receive, and connects: each end writes its endpoint as
    /// a line of text to the other.
    fn connect(stream: &TcpStream, options: &Options) -> Result<Self> {
        let context = match &options.addr {
            Some(addr) => Context::open_addr(addr)?,
            None => Context::open_default()?,
        };
        let pd = context.alloc_pd()?;
        let cq = context.create_cq(16, None)?;
        let qp = pd.create_qp(&QpOptions::rc(&cq))?;
        let out = pd.alloc(options.size, Access::empty())?;
        let into = pd.alloc(options.size, Access::empty())?;
        let end = Self { qp, cq, out, into, wait: options.wait };

        // The receive is there before the peer can send: it is posted before connecting.
        end.qp.init(Access::empty())?;
        end.post_recv()?;
        let mine = end.qp.endpoint()?;
        writeln!(&*stream, "{mine}")?;
        let (mut lines, mut line) = (BufReader::new(stream), String::new());
        lines.read_line(&mut line)?;
        let peer: Endpoint = line.parse()?;
        eprintln!("{} at {mine} connects to {peer}", context.device().name);
        end.qp.connect(&peer, &ConnectOptions { access: Access::empty(), ..Default::default() })?;
        // A peer that is not ready yet would drop what comes: wait until both have connected.
        writeln!(&*stream, "ready")?;
        lines.read_line(&mut line)?;
        Ok(end)
    }

    fn post_recv(&self) -> Result<()> {
        Ok(self.qp.post_recv(&RecvRequest { wr_id: 1, sges: &[self.into.sge(..)] })?)
    }

    fn send(&self) -> Result<()> {
        let sges = [self.out.sge(..)];
        self.qp.post_send(&SendRequest {
            wr_id: 2,
            op: SendOp::Send,
            flags: SendFlags::SIGNALED,
            data: SendData::Sges(&sges),
            datagram: None,
        })?;
        Ok(())
    }

    /// Takes completions until a message has come and, if one was sent, the sending is complete.
    fn finish(&self, mut sending: bool) -> Result<()> {
        let mut receiving = true;
        while receiving || sending {
            let completion = if self.wait {
                self.cq.wait(Some(Duration::from_secs(10))).ok_or("nothing came for 10 s")?
            } else {
                loop {
                    if let Some(completion) = self.cq.poll_one() {
                        break completion;
                    }
                }
            };
            if completion.status != WcStatus::Success {
                return Err(format!("{:?}: {:?}", completion.opcode, completion.status).into());
            }
            match completion.opcode {
                WcOpcode::Recv => receiving = false,
                _ => sending = false,
            }
        }
        Ok(())
    }
}

fn serve(listener: &TcpListener, options: &Options) -> Result<()> {
    let (stream, _) = listener.accept()?;
    let end = End::connect(&stream, options)?;
    let mut message = vec![0; options.size];
    for round in 0..options.iters {
        // The send of the round before is complete before its buffer is written again.
        end.finish(round > 0)?;
        end.into.region().read(0, &mut message);
        end.out.region().write(0, &message);
        end.post_recv()?;
        end.send()?;
    }
    // The last answer is out when its completion is here.
    while end.cq.wait(None).is_some_and(|completion| completion.opcode != WcOpcode::Send) {}
    Ok(())
}

fn client(stream: TcpStream, options: &Options) -> Result<()> {
    let end = End::connect(&stream, options)?;
    let mut back = vec![0; options.size];
    let mut times = Vec::with_capacity(options.iters as usize);
    for round in 0..options.iters {
        let message: Vec<u8> = (0..options.size).map(|i| (round as usize + i) as u8).collect();
        end.out.region().write(0, &message);
        let start = Instant::now();
        end.send()?;
        end.finish(true)?;
        times.push(start.elapsed() / 2);
        end.into.region().read(0, &mut back);
        if back != message {
            return Err(format!("round {round}: the message came back changed").into());
        }
        if round + 1 < options.iters {
            end.post_recv()?;
        }
    }
    times.sort_unstable();
    let at = |percent: usize| times[(times.len() - 1) * percent / 100].as_secs_f64() * 1e6;
    let out = &mut std::io::stdout();
    writeln!(out, " #bytes #iterations  t_min[usec]  t_typical[usec]  t_99%[usec]  t_max[usec]")?;
    writeln!(
        out,
        " {:<6} {:<12} {:<12.2} {:<16.2} {:<12.2} {:.2}",
        options.size,
        options.iters,
        at(0),
        at(50),
        at(99),
        at(100)
    )?;
    Ok(())
}

fn arguments(args: impl Iterator<Item = String>) -> Result<(Role, Options)> {
    let mut role = Role::Pair;
    let mut options = Options { addr: None, port: 18515, size: 64, iters: 20_000, wait: false };
    let mut args = args;
    while let Some(arg) = args.next() {
        let mut value = || args.next().ok_or_else(|| format!("{arg} needs a value\n{USAGE}"));
        match arg.as_str() {
            "--pair" => role = Role::Pair,
            "server" => role = Role::Server,
            "client" => role = Role::Client(value()?),
            "--addr" => options.addr = Some(value()?),
            "--port" => options.port = value()?.parse()?,
            "--size" => options.size = value()?.parse()?,
            "--iters" => options.iters = value()?.parse::<u64>()?.max(1),
            "--wait" => options.wait = true,
            _ => return Err(format!("unknown argument {arg}\n{USAGE}").into()),
        }
    }
    Ok((role, options))
}
