//! Both ends at once: the server as a second process of this program, each on a loopback address of
//! its own. The child is found again, and ended, by its handle alone.

use std::ffi::OsString;
use std::io::{BufRead, BufReader, Read};
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener, UdpSocket};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

use super::plan::{Amount, Ask, Plan, Role, Sizes};
use crate::error::{Failure, Result};

/// What stands before the address in a server's announcement.
pub(crate) const ANNOUNCEMENT: &str = "listening on ";
/// RoCE's UDP port.
const ROCE_PORT: u16 = 4791;
/// Pairs of addresses that are tried.
const PAIRS: u8 = 60;
/// A child that has been told to end, or whose work is done, gets this long.
const FAREWELL: Duration = Duration::from_secs(2);

/// Runs the plan with the server in a second process.
pub(crate) fn run(plan: &Plan) -> Result<()> {
    let pair = addresses()?;
    let (server_addr, client_addr) = (pair.server, pair.client);
    let mut server = Server::start(server_addr, &arguments(&plan.ask, plan.gid_index), &[])?;
    let client = Plan {
        role: Role::Client(server_addr.to_string()),
        addr: Some(client_addr.to_string()),
        ..plan.clone()
    };
    let result = super::client(&client, &server_addr.to_string(), server.address.port());
    server.finish(result)
}

/// Two neighbouring loopback addresses that no RoCE device has.
pub(crate) struct Addresses {
    pub(crate) server: IpAddr,
    pub(crate) client: IpAddr,
    /// What keeps others who look for a pair at the same time from finding this one: RoCE's port
    /// number of TCP, which nothing uses.
    _held: [TcpListener; 2],
}

/// A free pair, the first one if possible.
pub(crate) fn addresses() -> Result<Addresses> {
    let take = |address: IpAddr| {
        let held = TcpListener::bind((address, ROCE_PORT)).ok()?;
        UdpSocket::bind((address, ROCE_PORT)).is_ok().then_some(held)
    };
    let pair = |n: u8| {
        let [server, client] = [n, n + 1].map(|last| IpAddr::V4(Ipv4Addr::new(127, 0, 0, last)));
        Some(Addresses { server, client, _held: [take(server)?, take(client)?] })
    };
    (0..PAIRS).find_map(|i| pair(2 + 2 * i)).ok_or_else(|| {
        Failure::failed(format!(
            "no two free loopback addresses: UDP port {ROCE_PORT} was tried on 127.0.0.2 to \
             127.0.0.{}. Is the loopback interface up (ip link set lo up)?",
            2 * PAIRS + 1
        ))
    })
}

/// The command line that makes a server ask for the same.
pub(crate) fn arguments(ask: &Ask, gid_index: u8) -> Vec<OsString> {
    let mut line = vec!["perf".to_owned(), ask.test.name().to_owned()];
    let mut option = |name: &str, value: Option<String>| {
        line.extend(value.into_iter().flat_map(|value| [name.to_owned(), value]));
    };
    match ask.sizes {
        Some(Sizes::One(size)) => option("-s", Some(size.to_string())),
        Some(Sizes::All) | None => {}
    }
    match ask.amount {
        Some(Amount::Iterations(n)) => option("-n", Some(n.to_string())),
        Some(Amount::Seconds(s)) => option("-D", Some(s.to_string())),
        None => {}
    }
    option("-q", ask.qps.map(|qps| qps.to_string()));
    option("-t", ask.depth.map(|depth| depth.to_string()));
    option("-m", ask.mtu.map(|mtu| mtu.to_string()));
    option("-c", ask.connection.map(|connection| connection.to_string()));
    option("-x", Some(gid_index.to_string()));
    let flags = [("-a", ask.sizes == Some(Sizes::All)), ("--check", ask.check == Some(true))];
    line.extend(flags.into_iter().filter(|flag| flag.1).map(|flag| flag.0.to_owned()));
    line.into_iter().map(OsString::from).collect()
}

/// A server in a process of its own; it ends with this value.
pub(crate) struct Server {
    child: Child,
    /// Where it listens for the exchange.
    pub(crate) address: SocketAddr,
    _stdout: BufReader<ChildStdout>,
}

impl Server {
    /// Starts a server on `addr` with a free TCP port.
    pub(crate) fn start(
        addr: IpAddr,
        arguments: &[OsString],
        environment: &[(&str, &str)],
    ) -> Result<Self> {
        let mut command = own_program()?;
        command.args(arguments).args(["-p", "0", "--announce", "--addr"]).arg(addr.to_string());
        command.envs(environment.iter().copied());
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command
            .spawn()
            .map_err(|error| Failure::failed(format!("the server could not start: {error}")))?;
        let stdout = child.stdout.take().map(BufReader::new);
        let Some(mut stdout) = stdout else {
            return Err(Failure::failed("the server has no standard output"));
        };
        let mut line = String::new();
        let heard = stdout.read_line(&mut line);
        let address =
            line.strip_prefix(ANNOUNCEMENT).and_then(|address| address.trim_end().parse().ok());
        match (heard, address) {
            (Ok(_), Some(address)) => Ok(Self { child, address, _stdout: stdout }),
            _ => {
                let reason = parting_words(&mut child);
                Err(Failure::failed(format!("the server did not start: {reason}")))
            }
        }
    }

    /// Ends the server. If the client failed because the server did, the server's reason counts.
    pub(crate) fn finish(&mut self, client: Result<()>) -> Result<()> {
        if client.is_ok() {
            return match wait(&mut self.child, FAREWELL) {
                Some(true) => Ok(()),
                Some(false) => {
                    let reason = parting_words(&mut self.child);
                    Err(Failure::failed(format!("the server failed: {reason}")))
                }
                None => Err(Failure::failed(format!(
                    "the server did not end within {FAREWELL:?} after the last result"
                ))),
            };
        }
        client
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        if wait(&mut self.child, Duration::ZERO).is_none() {
            let _ = self.child.kill();
            let _ = self.child.wait();
        }
    }
}

/// This program again.
pub(crate) fn own_program() -> Result<Command> {
    let exe = std::env::current_exe()
        .map_err(|error| Failure::failed(format!("the own program's path is unknown: {error}")))?;
    Ok(Command::new(exe))
}

/// Waits for the child's end; whether it succeeded, `None` if it still runs.
pub(crate) fn wait(child: &mut Child, limit: Duration) -> Option<bool> {
    let start = Instant::now();
    loop {
        match child.try_wait() {
            Ok(Some(status)) => return Some(status.success()),
            Err(_) => return Some(false),
            Ok(None) if start.elapsed() >= limit => return None,
            Ok(None) => std::thread::sleep(Duration::from_millis(2)),
        }
    }
}

/// What a child that has failed said last; ends it if need be.
pub(crate) fn parting_words(child: &mut Child) -> String {
    if wait(child, FAREWELL).is_none() {
        let _ = child.kill();
        let _ = child.wait();
    }
    let mut words = String::new();
    if let Some(stderr) = &mut child.stderr {
        let _ = stderr.take(1 << 16).read_to_string(&mut words);
    }
    match words.trim().strip_prefix("crocevia: error: ") {
        Some(reason) => reason.to_owned(),
        None if words.trim().is_empty() => "it said nothing".to_owned(),
        None => words.trim().to_owned(),
    }
}
