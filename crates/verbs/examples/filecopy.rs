//! Copies a file by RDMA READ: the owner announces chunks in registered memory, the copier reads
//! them, several at a time, and says when a place is free again. Files of any size pass through a
//! few megabytes of memory; a checksum over the whole is compared in the end.
//!
//! ```text
//! cargo run --release --example filecopy -- SOURCE COPY            # both ends here, on loopback
//! cargo run --release --example filecopy -- serve SOURCE           # one end, here ...
//! cargo run --release --example filecopy -- fetch 192.0.2.1 COPY   # ... the other end, there
//! ```

use std::collections::VecDeque;
use std::error::Error;
use std::fs::File;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use crocevia::{
    Access, Completion, ConnectOptions, Context, Cq, Endpoint, Mr, Qp, QpOptions, RKey,
    RecvRequest, Remote, SendData, SendFlags, SendOp, SendRequest, WcOpcode, WcStatus,
};

type Result<T> = std::result::Result<T, Box<dyn Error + Send + Sync>>;

const USAGE: &str = "\
usage: filecopy [SOURCE COPY | serve SOURCE | fetch HOST COPY] [options]
  --addr A     address or interface of this end's RoCE device (default: the first device;
               in one process 127.0.0.82 and 127.0.0.83)
  --port P     TCP port on which the two ends get to know each other (default 18516)
  --chunk N    bytes of a READ (default 1048576)
  --depth N    READs outstanding (default 8)";

/// Bytes of the messages between the two ends.
const MESSAGE: usize = 32;
/// How long an end waits for the other.
const PATIENCE: Duration = Duration::from_secs(30);

#[derive(Clone)]
struct Options {
    addr: Option<String>,
    port: u16,
    chunk: usize,
    depth: usize,
}

/// What the owner tells the copier.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Announcement {
    /// A chunk lies here.
    Chunk { remote: Remote, length: u32 },
    /// That was all: bytes and checksum.
    End { bytes: u64, checksum: u32 },
}

impl Announcement {
    fn to_bytes(self) -> [u8; MESSAGE] {
        let (kind, a, b) = match self {
            Self::Chunk { remote, length } => (remote.rkey.get(), remote.addr, length),
            Self::End { bytes, checksum } => (checksum, bytes, 0),
        };
        let mut out = [0; MESSAGE];
        out[0] = u8::from(matches!(self, Self::End { .. }));
        out[8..16].copy_from_slice(&a.to_be_bytes());
        out[16..20].copy_from_slice(&kind.to_be_bytes());
        out[20..24].copy_from_slice(&b.to_be_bytes());
        out
    }

    fn from_bytes(bytes: &[u8; MESSAGE]) -> Self {
        let word = |at: usize| u32::from_be_bytes(bytes[at..at + 4].try_into().unwrap_or_default());
        let long = u64::from_be_bytes(bytes[8..16].try_into().unwrap_or_default());
        if bytes[0] == 0 {
            let remote = Remote { addr: long, rkey: RKey::new(word(16)) };
            Self::Chunk { remote, length: word(20) }
        } else {
            Self::End { bytes: long, checksum: word(16) }
        }
    }
}

fn main() -> Result<()> {
    let (words, options) = arguments(std::env::args().skip(1))?;
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    match words[..] {
        ["serve", source] => {
            let listener = TcpListener::bind(("0.0.0.0", options.port))?;
            eprintln!("waiting for a copier on TCP port {}", options.port);
            serve(&listener.accept()?.0, Path::new(source), &options)
        }
        ["fetch", host, copy] => {
            fetch(&TcpStream::connect((host, options.port))?, Path::new(copy), &options)
        }
        [source, copy] => {
            let listener = TcpListener::bind("127.0.0.1:0")?;
            let stream = TcpStream::connect(listener.local_addr()?)?;
            let at = |addr: &str| Options { addr: Some(addr.to_owned()), ..options.clone() };
            let (here, there) = (at("127.0.0.82"), at("127.0.0.83"));
            let source = PathBuf::from(source);
            let owner = std::thread::spawn(move || serve(&listener.accept()?.0, &source, &here));
            let fetched = fetch(&stream, Path::new(copy), &there);
            let served = owner.join().map_err(|_| "the owner's thread panicked")?;
            // Whichever failed first closed its connection and made the other fail: show both.
            match (fetched, served) {
                (Err(copier), Err(owner)) => {
                    Err(format!("owner: {owner}; copier: {copier}").into())
                }
                (fetched, served) => fetched.and(served),
            }
        }
        _ => Err(USAGE.into()),
    }
}

/// One end: a connected queue pair and the memory for messages and chunks.
struct End {
    qp: Qp,
    cq: Cq,
    /// Places for messages that come.
    inbox: Mr,
    /// Places for chunks.
    chunks: Mr,
    options: Options,
    /// Receive completions that came while something else was waited for.
    arrived: VecDeque<Completion>,
}

impl End {
    fn connect(stream: &TcpStream, access: Access, options: &Options) -> Result<Self> {
        let context = match &options.addr {
            Some(addr) => Context::open_addr(addr)?,
            None => Context::open_default()?,
        };
        let pd = context.alloc_pd()?;
        let cq = context.create_cq(4 * options.depth as u32 + 4, None)?;
        let qp = pd.create_qp(&QpOptions::rc(&cq))?;
        let inbox = pd.alloc(MESSAGE * (options.depth + 1), Access::empty())?;
        let chunks = pd.alloc(options.chunk * options.depth, access)?;
        let options = options.clone();
        let end = Self { qp, cq, inbox, chunks, options, arrived: VecDeque::new() };
        end.qp.init(access)?;
        for place in 0..=end.options.depth {
            end.post_recv(place as u64)?;
        }
        let depth = end.options.depth;
        writeln!(&*stream, "{} {} {}", end.qp.endpoint()?, end.options.chunk, depth)?;
        let (mut lines, mut line) = (BufReader::new(stream), String::new());
        lines.read_line(&mut line)?;
        let mut words = line.split_whitespace();
        let peer: Endpoint = words.next().ok_or("the peer closed the connection")?.parse()?;
        let theirs: Vec<usize> = words.map(str::parse).collect::<std::result::Result<_, _>>()?;
        if theirs != [end.options.chunk, depth] {
            return Err(format!(
                "this end was started with --chunk {} --depth {depth}, the other with {theirs:?}: \
                 start both with the same",
                end.options.chunk
            )
            .into());
        }
        let reads = depth.min(16) as u8;
        let connect = ConnectOptions {
            access,
            max_rd_atomic: reads,
            max_dest_rd_atomic: reads,
            ..Default::default()
        };
        end.qp.connect(&peer, &connect)?;
        writeln!(&*stream, "ready")?;
        lines.read_line(&mut line)?;
        Ok(end)
    }

    fn post_recv(&self, place: u64) -> Result<()> {
        let start = place as usize * MESSAGE;
        let sges = [self.inbox.sge(start..start + MESSAGE)];
        Ok(self.qp.post_recv(&RecvRequest { wr_id: place, sges: &sges })?)
    }

    /// Sends a message. It is inline, so nothing has to be kept; it gives no completion unless it
    /// fails.
    fn send(&self, message: &[u8; MESSAGE], flags: SendFlags) -> Result<()> {
        self.qp.post_send(&SendRequest {
            wr_id: 0,
            op: SendOp::Send,
            flags,
            data: SendData::Inline(message),
            datagram: None,
        })?;
        Ok(())
    }

    fn completion(&self) -> Result<Completion> {
        let completion = self.cq.wait(Some(PATIENCE)).ok_or("the other end is silent")?;
        if completion.status != WcStatus::Success {
            return Err(format!("{:?}: {:?}", completion.opcode, completion.status).into());
        }
        Ok(completion)
    }

    /// The next message; what completes meanwhile and is no message is dropped.
    fn receive(&mut self) -> Result<[u8; MESSAGE]> {
        let completion = loop {
            match self.arrived.pop_front() {
                Some(completion) => break completion,
                None => self.take()?,
            };
        };
        let mut message = [0; MESSAGE];
        self.inbox.region().read(completion.wr_id as usize * MESSAGE, &mut message);
        self.post_recv(completion.wr_id)?;
        Ok(message)
    }

    /// Takes one completion: messages are kept for [`receive`](Self::receive), the rest handed out.
    fn take(&mut self) -> Result<Option<Completion>> {
        let completion = self.completion()?;
        if completion.opcode == WcOpcode::Recv {
            self.arrived.push_back(completion);
            return Ok(None);
        }
        Ok(Some(completion))
    }
}

/// The owner: fills places and announces them, in order; a place is filled again when the copier
/// has said that it is read.
fn serve(stream: &TcpStream, source: &Path, options: &Options) -> Result<()> {
    let mut file = File::open(source).map_err(|e| format!("{}: {e}", source.display()))?;
    let mut end = End::connect(stream, Access::REMOTE_READ, options)?;
    let mut hasher = crc32fast::Hasher::new();
    let mut buffer = vec![0; options.chunk];
    let (mut bytes, mut outstanding, mut index) = (0u64, 0, 0usize);
    loop {
        let length = fill(&mut file, &mut buffer)?;
        if length == 0 {
            break;
        }
        if outstanding == options.depth {
            end.receive()?;
            outstanding -= 1;
        }
        let start = index % options.depth * options.chunk;
        hasher.update(&buffer[..length]);
        end.chunks.region().write(start, &buffer[..length]);
        let remote = end.chunks.remote(start);
        let announcement = Announcement::Chunk { remote, length: length as u32 };
        // One signaled request now and then lets the send queue's places be used again.
        let signal = index % options.depth == options.depth - 1;
        let flags = if signal { SendFlags::SIGNALED } else { SendFlags::empty() };
        end.send(&announcement.to_bytes(), flags)?;
        (bytes, outstanding, index) = (bytes + length as u64, outstanding + 1, index + 1);
    }
    while outstanding > 0 {
        end.receive()?;
        outstanding -= 1;
    }
    let checksum = hasher.finalize();
    end.send(&Announcement::End { bytes, checksum }.to_bytes(), SendFlags::SIGNALED)?;
    // The copier says that it has verified everything.
    end.receive()?;
    Ok(())
}

/// Reads until the buffer is full or the file is over.
fn fill(file: &mut File, buffer: &mut [u8]) -> Result<usize> {
    let mut filled = 0;
    while filled < buffer.len() {
        match file.read(&mut buffer[filled..])? {
            0 => break,
            n => filled += n,
        }
    }
    Ok(filled)
}

/// The copier: READs what is announced into its own places; READs complete in order, so the file is
/// written from front to back.
fn fetch(stream: &TcpStream, copy: &Path, options: &Options) -> Result<()> {
    let mut end = End::connect(stream, Access::empty(), options)?;
    let mut file = File::create(copy).map_err(|e| format!("{}: {e}", copy.display()))?;
    let mut hasher = crc32fast::Hasher::new();
    let mut buffer = vec![0; options.chunk];
    let mut reading: VecDeque<(usize, usize)> = VecDeque::new();
    let (mut written, mut index, mut last) = (0u64, 0usize, None);
    let (start, mut shown) = (Instant::now(), Instant::now());
    while last.is_none() || !reading.is_empty() {
        if let Some(completion) = end.take()? {
            if completion.opcode != WcOpcode::RdmaRead {
                continue;
            }
            let (place, length) = reading.pop_front().ok_or("a READ too many")?;
            end.chunks.region().read(place, &mut buffer[..length]);
            // The place at the owner is free: it may be filled while this is written.
            end.send(&[0; MESSAGE], SendFlags::empty())?;
            hasher.update(&buffer[..length]);
            file.write_all(&buffer[..length])?;
            written += length as u64;
        }
        while !end.arrived.is_empty() {
            match Announcement::from_bytes(&end.receive()?) {
                Announcement::End { bytes, checksum } => last = Some((bytes, checksum)),
                Announcement::Chunk { remote, length } => {
                    let place = index % options.depth * options.chunk;
                    let sges = [end.chunks.sge(place..place + length as usize)];
                    end.qp.post_send(&SendRequest {
                        wr_id: index as u64,
                        op: SendOp::Read(remote),
                        flags: SendFlags::SIGNALED,
                        data: SendData::Sges(&sges),
                        datagram: None,
                    })?;
                    reading.push_back((place, length as usize));
                    index += 1;
                }
            }
        }
        if shown.elapsed() > Duration::from_secs(1) {
            shown = Instant::now();
            eprintln!("{written} bytes");
        }
    }
    let (found, checksum) = (hasher.finalize(), last.unwrap_or_default());
    if (written, found) != checksum {
        let (bytes, sum) = checksum;
        return Err(format!(
            "the copy has {written} bytes and checksum {found:#010x}, the source {bytes} bytes and \
             {sum:#010x}"
        )
        .into());
    }
    file.sync_all()?;
    end.send(&[1; MESSAGE], SendFlags::SIGNALED)?;
    while end.take()?.is_none_or(|completion| completion.opcode != WcOpcode::Send) {}
    let rate = written as f64 / start.elapsed().as_secs_f64() / 1e6;
    writeln!(
        std::io::stdout(),
        "{written} bytes, checksum {found:#010x}, {index} READs, {rate:.0} MB/s"
    )?;
    Ok(())
}

fn arguments(mut args: impl Iterator<Item = String>) -> Result<(Vec<String>, Options)> {
    let mut words = Vec::new();
    let mut options = Options { addr: None, port: 18516, chunk: 1 << 20, depth: 8 };
    while let Some(arg) = args.next() {
        let mut value = || args.next().ok_or_else(|| format!("{arg} needs a value\n{USAGE}"));
        match arg.as_str() {
            "--addr" => options.addr = Some(value()?),
            "--port" => options.port = value()?.parse()?,
            "--chunk" => options.chunk = value()?.parse::<usize>()?.clamp(1, 1 << 30),
            "--depth" => options.depth = value()?.parse::<usize>()?.clamp(1, 32),
            _ if arg.starts_with("--") => {
                return Err(format!("unknown option {arg}\n{USAGE}").into());
            }
            _ => words.push(arg),
        }
    }
    Ok((words, options))
}
