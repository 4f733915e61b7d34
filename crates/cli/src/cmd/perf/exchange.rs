//! The TCP connection over which the two ends of a measurement agree, exchange queue pair numbers
//! and keys, and tell each other where they are. JSON, one message a line. Each end says at least
//! every [`BEAT`] that it lives; one that says nothing for [`SILENCE`] is given up.

use std::collections::VecDeque;
use std::io::{ErrorKind, Read, Write};
use std::net::{TcpListener, TcpStream, ToSocketAddrs};
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};

use super::plan::Ask;
use super::report::Row;
use super::rival::Bout;
use super::versus::{Figure, Table};
use crate::error::{Failure, Result};

/// Version of the messages.
pub(crate) const VERSION: u32 = 1;
/// An end that has nothing to say says so this often.
const BEAT: Duration = Duration::from_millis(500);
/// An end that says nothing for this long is taken for dead.
pub(crate) const SILENCE: Duration = Duration::from_secs(8);
/// How often [`Control::tick`] looks at the connection.
const LOOK: Duration = Duration::from_millis(10);
/// How long a client tries to connect.
const CONNECT: Duration = Duration::from_secs(5);
/// How long the other end of `--pair` waits to be connected to.
const ACCEPT: Duration = Duration::from_secs(20);
/// Longest message; 1024 queue pairs take 60 kB.
const LONGEST: usize = 1 << 20;

/// A queue pair as its peer has to know it.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(crate) struct QpEnd {
    pub(crate) qpn: u32,
    pub(crate) psn: u32,
}

/// One end's queue pairs and memory.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(crate) struct Ends {
    pub(crate) gid: [u8; 16],
    pub(crate) qps: Vec<QpEnd>,
    pub(crate) addr: u64,
    pub(crate) rkey: u32,
}

/// A stretch of messages after which both ends meet again.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(crate) struct Round {
    /// Bytes of a message.
    pub(crate) size: u32,
    /// Number of the first message, counted over all rounds of this size.
    pub(crate) first: u64,
    /// Messages, if that is known beforehand.
    pub(crate) count: Option<u64>,
}

/// What the server found after a round.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub(crate) struct Verdict {
    /// Messages that arrived, where the server sees that.
    pub(crate) received: Option<u64>,
    /// Bytes that were looked at.
    pub(crate) checked: u64,
    /// The first byte that was not what it had to be.
    pub(crate) wrong: Option<String>,
}

/// What the two ends say.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub(crate) enum Message {
    /// First word of each end. `vs`: it knows `--vs`; ends of before that do not say so.
    Hello {
        version: u32,
        ask: Ask,
        mtu: u32,
        gid: [u8; 16],
        #[serde(default)]
        vs: bool,
    },
    /// Second word of each end.
    Ends(Ends),
    /// The end can be sent to.
    Ready,
    /// Client: this is next.
    Begin(Round),
    /// Client: so many messages were sent.
    End { sent: u64 },
    /// Server: this came of it.
    Verdict(Verdict),
    /// Client: a result.
    Row(Row),
    /// Client: a rival is next.
    Bout(Bout),
    /// Server: where the rival finds it.
    Port(u16),
    /// Server: what it has measured of the rival; of a ping-pong over TCP, that it has ended.
    Figure(Figure),
    /// Client: what all rivals gave.
    Table(Table),
    /// Client: that was all.
    Finished,
    /// The end lives.
    Beat,
    /// The end stops, for this reason.
    Failed(String),
}

/// The connection, and what has been heard on it.
pub(crate) struct Control {
    stream: TcpStream,
    peer: String,
    bytes: Vec<u8>,
    inbox: VecDeque<Message>,
    heard: Instant,
    spoke: Instant,
    looked: Instant,
    urgent: bool,
}

/// Where a server waits for its client.
pub(crate) fn listen(addr: Option<std::net::IpAddr>, port: u16) -> Result<TcpListener> {
    let wildcard = std::net::IpAddr::from([0u16; 8]);
    let bound = match addr {
        Some(addr) => TcpListener::bind((addr, port)),
        // Both families; hosts without IPv6 refuse the first.
        None => TcpListener::bind((wildcard, port))
            .or_else(|_| TcpListener::bind((std::net::Ipv4Addr::UNSPECIFIED, port))),
    };
    bound.map_err(|error| {
        let hint = match error.kind() {
            ErrorKind::AddrInUse => "; is another server running? Give another -p to both ends",
            _ => "",
        };
        Failure::failed(format!("TCP port {port} cannot be listened on: {error}{hint}"))
    })
}

impl Control {
    /// Waits for a client; with `hurry`, not for ever.
    pub(crate) fn accept(listener: &TcpListener, hurry: bool) -> Result<Self> {
        let failed =
            |error: std::io::Error| Failure::failed(format!("no client could connect: {error}"));
        if !hurry {
            return Self::new(listener.accept().map_err(failed)?.0);
        }
        listener.set_nonblocking(true).map_err(failed)?;
        let start = Instant::now();
        loop {
            match listener.accept() {
                Ok((stream, _)) => return Self::new(stream),
                Err(error) if error.kind() == ErrorKind::WouldBlock => {}
                Err(error) => return Err(failed(error)),
            }
            if start.elapsed() > ACCEPT {
                return Err(Failure::failed(format!("no client came within {ACCEPT:?}")));
            }
            std::thread::sleep(Duration::from_millis(2));
        }
    }

    /// Connects to a server.
    pub(crate) fn connect(peer: &str, port: u16) -> Result<Self> {
        let addresses = (peer, port).to_socket_addrs().map_err(|error| {
            Failure::failed(format!("{peer} is neither an address nor a known name: {error}"))
        })?;
        let mut last = None;
        for address in addresses {
            match TcpStream::connect_timeout(&address, CONNECT) {
                Ok(stream) => return Self::new(stream),
                Err(error) => last = Some(error),
            }
        }
        let (reason, hint) = match last {
            Some(error) if error.kind() == ErrorKind::ConnectionRefused => (
                "nobody listens there".to_owned(),
                "start the server first: the same command without PEER, with the same -p",
            ),
            Some(error) => (error.to_string(), "is the address right, and a firewall in between?"),
            None => ("the name has no address".to_owned(), "give an address"),
        };
        Err(Failure::failed(format!("no connection to {peer} port {port}: {reason}; {hint}")))
    }

    fn new(stream: TcpStream) -> Result<Self> {
        let setup = |stream: &TcpStream| {
            stream.set_nonblocking(false)?;
            stream.set_nodelay(true)?;
            stream.set_read_timeout(Some(BEAT / 2))?;
            stream.set_write_timeout(Some(SILENCE))?;
            stream.peer_addr()
        };
        let peer = setup(&stream)
            .map_err(|error| Failure::failed(format!("the TCP connection broke: {error}")))?;
        let now = Instant::now();
        Ok(Self {
            stream,
            peer: peer.to_string(),
            bytes: Vec::new(),
            inbox: VecDeque::new(),
            heard: now,
            spoke: now,
            looked: now,
            urgent: false,
        })
    }

    /// The own address of the connection.
    pub(crate) fn local_ip(&self) -> Option<std::net::IpAddr> {
        self.stream.local_addr().ok().map(|address| address.ip().to_canonical())
    }

    /// The peer's address of the connection.
    pub(crate) fn peer_ip(&self) -> Option<std::net::IpAddr> {
        self.stream.peer_addr().ok().map(|address| address.ip().to_canonical())
    }

    /// The interface that an IPv6 address of the link is on; 0 if the connection does not tell.
    pub(crate) fn scope(&self) -> u32 {
        match self.stream.local_addr() {
            Ok(std::net::SocketAddr::V6(address)) => address.scope_id(),
            _ => 0,
        }
    }

    /// Says something.
    pub(crate) fn send(&mut self, message: &Message) -> Result<()> {
        let mut line = serde_json::to_vec(message)
            .map_err(|error| Failure::failed(format!("a message has no JSON form: {error}")))?;
        line.push(b'\n');
        self.spoke = Instant::now();
        if let Err(error) = self.stream.write_all(&line) {
            // The peer may have said why before it went.
            let _ = self.look(false);
            if let Some(failed) = self.failed() {
                return Err(failed);
            }
            return Err(self.gone(&error.to_string()));
        }
        Ok(())
    }

    /// Waits for the next message.
    pub(crate) fn recv(&mut self) -> Result<Message> {
        loop {
            if let Some(message) = self.next()? {
                return Ok(message);
            }
            self.beat()?;
            self.look(true)?;
        }
    }

    /// The next message if one has come; looks at most every [`LOOK`], so that it may be called in
    /// the tightest loop. Says that this end lives when it is time to.
    pub(crate) fn tick(&mut self) -> Result<Option<Message>> {
        if self.inbox.is_empty() && (self.urgent || self.looked.elapsed() >= LOOK) {
            self.beat()?;
            self.look(false)?;
        }
        self.next()
    }

    /// The next [`tick`](Self::tick) looks, however short ago the last look was.
    pub(crate) fn hurry(&mut self) {
        self.urgent = true;
    }

    /// As [`tick`](Self::tick), where no message is expected.
    pub(crate) fn alive(&mut self) -> Result<()> {
        match self.tick()? {
            None => Ok(()),
            Some(message) => Err(self.unexpected(&message, "nothing")),
        }
    }

    /// The failure of hearing something else than `expected`.
    pub(crate) fn unexpected(&self, message: &Message, expected: &str) -> Failure {
        let found = serde_json::to_string(message).unwrap_or_default();
        let found: String = found.chars().take(80).collect();
        Failure::failed(format!("{}: expected {expected}, found {found}", self.peer))
    }

    fn next(&mut self) -> Result<Option<Message>> {
        if let Some(failed) = self.failed() {
            return Err(failed);
        }
        Ok(self.inbox.pop_front())
    }

    /// What the peer stopped for, if it has said so.
    fn failed(&self) -> Option<Failure> {
        self.inbox.iter().find_map(|message| match message {
            Message::Failed(reason) => {
                Some(Failure::failed(format!("the other end ({}) stopped: {reason}", self.peer)))
            }
            _ => None,
        })
    }

    fn beat(&mut self) -> Result<()> {
        if self.spoke.elapsed() >= BEAT { self.send(&Message::Beat) } else { Ok(()) }
    }

    /// Reads what has come, waiting a little if `wait`.
    fn look(&mut self, wait: bool) -> Result<()> {
        (self.looked, self.urgent) = (Instant::now(), false);
        let mut chunk = [0; 16384];
        let outcome = if wait {
            self.stream.read(&mut chunk)
        } else {
            self.stream.set_nonblocking(true).and_then(|()| {
                let outcome = self.stream.read(&mut chunk);
                self.stream.set_nonblocking(false)?;
                outcome
            })
        };
        match outcome {
            Ok(0) => Err(self.gone("it closed the connection")),
            Ok(n) => {
                self.heard = Instant::now();
                self.bytes.extend_from_slice(&chunk[..n]);
                self.parse()
            }
            Err(error)
                if matches!(
                    error.kind(),
                    ErrorKind::WouldBlock | ErrorKind::TimedOut | ErrorKind::Interrupted
                ) =>
            {
                if self.heard.elapsed() > SILENCE {
                    return Err(self.gone(&format!("it said nothing for {SILENCE:?}")));
                }
                Ok(())
            }
            Err(error) => Err(self.gone(&error.to_string())),
        }
    }

    fn parse(&mut self) -> Result<()> {
        while let Some(end) = self.bytes.iter().position(|&byte| byte == b'\n') {
            let line: Vec<u8> = self.bytes.drain(..=end).collect();
            match serde_json::from_slice(&line) {
                Ok(Message::Beat) => {}
                Ok(message) => self.inbox.push_back(message),
                Err(_) => return Err(self.stranger(&line)),
            }
        }
        if self.bytes.len() > LONGEST { Err(self.stranger(&self.bytes)) } else { Ok(()) }
    }

    fn stranger(&self, found: &[u8]) -> Failure {
        let found: String = String::from_utf8_lossy(found).chars().take(40).collect();
        Failure::failed(format!(
            "{} does not speak this version of crocevia perf (found {:?}): both ends must be \
             `crocevia perf` of one version; perftest's tools talk to each other under \
             `crocevia run`",
            self.peer,
            found.trim_end()
        ))
    }

    fn gone(&self, reason: &str) -> Failure {
        Failure::failed(format!(
            "the other end ({}) is gone: {reason}; its own output says more",
            self.peer
        ))
    }
}
