//! Traffic that checks every byte: all operations of a reliable connection, messages of an
//! unreliable one, and datagrams, between two NICs of this process on two addresses, until it is
//! told to stop. The unreliable services may lose messages; nothing may come that was not sent.
//!
//! Prints what was moved in every tenth of a second, and the sums at the end, as JSON. A wrong
//! byte, a completion in error or a standstill ends it with status 1.

use std::error::Error;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use bench_programs::report;
use clap::Parser;
use crocevia::{
    Access, AddressVector, Completion, ConnectOptions, Context, Cq, Mr, Pd, QKey, Qp, QpCap,
    QpOptions, QpType, RecvRequest, Remote, SendData, SendFlags, SendOp, SendRequest, Sge, WcData,
    WcStatus, WindowType,
};

type Result<T> = std::result::Result<T, Box<dyn Error + Send + Sync>>;

#[derive(Parser)]
#[command(about = "Traffic that checks every byte; prints what was moved, by tenths of a second")]
struct Args {
    /// Addresses of the two ends.
    #[arg(long, default_value = "127.0.0.2")]
    here: String,
    #[arg(long, default_value = "127.0.0.3")]
    there: String,
    /// How long to go on.
    #[arg(short = 'D', long, default_value_t = 5.0)]
    seconds: f64,
    /// Stop when this file exists; the devices stay open as long as it does, to be asked what they
    /// have counted.
    #[arg(long)]
    until: Option<PathBuf>,
}

const PATIENCE: Duration = Duration::from_secs(20);
const TENTH: Duration = Duration::from_millis(100);
const ALL: Access = Access::LOCAL_WRITE
    .union(Access::REMOTE_WRITE)
    .union(Access::REMOTE_READ)
    .union(Access::REMOTE_ATOMIC)
    .union(Access::MW_BIND);
/// Bytes of the long messages, of the short ones, and of a datagram.
const LONG: usize = 150_001;
const SHORT: usize = 3000;
const GRH: usize = 40;
/// Messages of the unreliable services under way.
const DEPTH: usize = 16;
const Q_KEY: QKey = QKey::new(0x1BAD_CAFE);

/// What each service has moved, in bytes that were checked.
#[derive(Default)]
struct Moved {
    reliable: AtomicU64,
    unreliable: AtomicU64,
    datagrams: AtomicU64,
    lost: AtomicU64,
}

/// One end of a connection.
struct End {
    qp: Qp,
    cq: Cq,
    pd: Pd,
}

impl End {
    fn new(context: &Context, kind: QpType) -> Result<Self> {
        let (pd, cq) = (context.alloc_pd()?, context.create_cq(256, None)?);
        let cap = QpCap {
            max_send_wr: 64,
            max_recv_wr: 64,
            max_send_sge: 2,
            max_recv_sge: 2,
            max_inline_data: 64,
        };
        let qp = pd.create_qp(&QpOptions { cap, ..QpOptions::new(kind, &cq) })?;
        Ok(Self { qp, cq, pd })
    }

    fn success(&self) -> Result<Completion> {
        let done = self.cq.wait(Some(PATIENCE)).ok_or("no completion for 20 s")?;
        match done.status {
            WcStatus::Success => Ok(done),
            status => Err(format!("a completion in error: {status:?}: {done:?}").into()),
        }
    }

    fn post(&self, wr_id: u64, op: SendOp, sges: &[Sge]) -> Result<()> {
        let (flags, data) = (SendFlags::SIGNALED, SendData::Sges(sges));
        Ok(self.qp.post_send(&SendRequest { wr_id, op, flags, data, datagram: None })?)
    }

    fn receive(&self, wr_id: u64, sges: &[Sge]) -> Result<()> {
        Ok(self.qp.post_recv(&RecvRequest { wr_id, sges })?)
    }
}

/// Bytes that depend on a number and on their place.
fn pattern(number: u64, len: usize) -> Vec<u8> {
    let words = (0..len.div_ceil(8) as u64).map(|i| {
        (number.wrapping_mul(0x9E37_79B9_7F4A_7C15) ^ i).wrapping_mul(0xBF58_476D_1CE4_E5B9)
    });
    let mut bytes: Vec<u8> = words.flat_map(u64::to_le_bytes).collect();
    bytes.truncate(len);
    bytes
}

fn check(what: &str, memory: &Mr, at: usize, expected: &[u8]) -> Result<()> {
    let mut got = vec![0; expected.len()];
    memory.region().read(at, &mut got);
    match got.iter().zip(expected).position(|(a, b)| a != b) {
        None => Ok(()),
        Some(place) => Err(format!("{what}: byte {place} of {} is wrong", got.len()).into()),
    }
}

/// Rounds of all operations of a reliable connection, those of a round under way together.
fn reliable(from: &End, to: &End, stop: &AtomicBool, moved: &Moved) -> Result<()> {
    let mine = from.pd.alloc(LONG, ALL)?;
    let (copy, old) = (from.pd.alloc(LONG, ALL)?, from.pd.alloc(16, ALL)?);
    let (theirs, beside) = (to.pd.alloc(LONG, ALL)?, to.pd.alloc(LONG, ALL)?);
    let (long, short) = (to.pd.alloc(LONG, ALL)?, to.pd.alloc(SHORT, ALL)?);
    let word = to.pd.alloc(8, ALL)?;
    word.region().write(0, &0_u64.to_ne_bytes());
    let mut number = 0_u64;
    while !stop.load(Ordering::Relaxed) {
        let data = pattern(number, LONG);
        mine.region().write(0, &data);
        to.receive(0, &[])?;
        to.receive(1, &[long.sge(..)])?;
        to.receive(2, &[short.sge(..)])?;
        let all = [mine.sge(..)];
        from.post(0, SendOp::Write(theirs.remote(0)), &all)?;
        from.post(1, SendOp::WriteImm(beside.remote(0), *b"done"), &all)?;
        from.post(2, SendOp::Send, &all)?;
        from.post(3, SendOp::SendImm(*b"more"), &[mine.sge(7..SHORT + 7)])?;
        from.post(4, SendOp::Read(theirs.remote(0)), &[copy.sge(..)])?;
        let remote = word.remote(0);
        from.post(5, SendOp::FetchAdd { remote, add: 3 }, &[old.sge(..8)])?;
        let (compare, swap) = (4 * number + 3, 4 * number + 4);
        from.post(6, SendOp::CompareSwap { remote, compare, swap }, &[old.sge(8..)])?;
        for wr_id in 0..7 {
            if from.success()?.wr_id != wr_id {
                return Err("completions out of order".into());
            }
        }
        let expected = [(0, LONG, WcData::Imm(*b"done")), (1, LONG, WcData::None)];
        for (wr_id, len, data) in expected.into_iter().chain([(2, SHORT, WcData::Imm(*b"more"))]) {
            let got = to.success()?;
            if (got.wr_id, got.byte_len as usize, got.data) != (wr_id, len, data) {
                return Err(format!("another message than was sent: {got:?}").into());
            }
        }
        for (what, memory) in [
            ("WRITE", &theirs),
            ("WRITE with immediate", &beside),
            ("SEND", &long),
            ("READ", &copy),
        ] {
            check(what, memory, 0, &data)?;
        }
        check("SEND with immediate", &short, 0, &data[7..SHORT + 7])?;
        check("fetch-and-add", &old, 0, &(4 * number).to_ne_bytes())?;
        check("compare-and-swap", &old, 8, &compare.to_ne_bytes())?;
        check("atomics", &word, 0, &swap.to_ne_bytes())?;
        if number.is_multiple_of(16) {
            window((from, to), &theirs, &mine)?;
        }
        number += 1;
        moved.reliable.fetch_add((4 * LONG + SHORT + 16) as u64, Ordering::Relaxed);
    }
    Ok(())
}

/// A window is bound, written through, and ended by a SEND with invalidate.
fn window((from, to): (&End, &End), theirs: &Mr, mine: &Mr) -> Result<()> {
    let window = to.pd.alloc_mw(WindowType::Type2)?;
    let key = window.rkey();
    let bind = window.binding(theirs, 100..200, key, Access::REMOTE_WRITE);
    to.post(9, SendOp::BindWindow(bind), &[])?;
    to.success()?;
    let remote = Remote { addr: theirs.remote(100).addr, rkey: key };
    from.post(9, SendOp::Write(remote), &[mine.sge(..100)])?;
    to.receive(9, &[])?;
    from.post(9, SendOp::SendInvalidate(key), &[])?;
    from.success()?;
    from.success()?;
    match to.success()?.data {
        WcData::Invalidated(dead) if dead == key => Ok(()),
        other => Err(format!("the window was not invalidated: {other:?}").into()),
    }
}

/// Messages with their numbers; what arrives is whole, and of a connection in order.
fn unreliable(
    (from, to): (&End, &End),
    datagram: Option<crocevia::Datagram>,
    stop: &AtomicBool,
    (moved, lost): (&AtomicU64, &AtomicU64),
) -> Result<()> {
    let head = if datagram.is_some() { GRH } else { 0 };
    let size = if datagram.is_some() { 2001 } else { 9001 };
    let mine = from.pd.alloc(size * DEPTH, ALL)?;
    let theirs = to.pd.alloc((size + head) * DEPTH, ALL)?;
    let place = |slot: usize| theirs.sge(slot * (size + head)..(slot + 1) * (size + head));
    for slot in 0..DEPTH {
        to.receive(slot as u64, &[place(slot)])?;
    }
    let (mut number, mut got, mut last) = (0_u32, 0, None);
    while !stop.load(Ordering::Relaxed) {
        for slot in 0..DEPTH / 2 {
            let at = slot * size;
            mine.region().write(at, &pattern(number.into(), size));
            let sges = [mine.sge(at..at + size)];
            from.qp.post_send(&SendRequest {
                wr_id: number.into(),
                op: SendOp::SendImm(number.to_be_bytes()),
                flags: SendFlags::SIGNALED,
                data: SendData::Sges(&sges),
                datagram,
            })?;
            number += 1;
        }
        for _ in 0..DEPTH / 2 {
            from.success()?;
        }
        while let Some(done) = to.cq.wait(Some(Duration::from_micros(500))) {
            if done.status != WcStatus::Success {
                return Err(format!("a receive in error: {done:?}").into());
            }
            let WcData::Imm(sent) = done.data else { return Err("a stranger's message".into()) };
            let sent = u32::from_be_bytes(sent);
            if sent >= number || last.is_some_and(|last| last >= sent && datagram.is_none()) {
                return Err(format!("message {sent} after {last:?}, of {number}").into());
            }
            let slot = done.wr_id as usize;
            let at = slot * (size + head) + head;
            check("a message", &theirs, at, &pattern(sent.into(), size))?;
            to.receive(done.wr_id, &[place(slot)])?;
            (last, got) = (Some(sent), got + 1);
            moved.fetch_add(size as u64, Ordering::Relaxed);
            if got >= number {
                break;
            }
        }
    }
    lost.fetch_add(u64::from(number.saturating_sub(got)), Ordering::Relaxed);
    Ok(())
}

fn slice(at: f64, moved: &Moved, before: &mut [u64; 3]) {
    let now = [&moved.reliable, &moved.unreliable, &moved.datagrams];
    let now = now.map(|bytes| bytes.load(Ordering::Relaxed));
    let mib = |i: usize| (now[i] - before[i]) as f64 / (1 << 20) as f64 / TENTH.as_secs_f64();
    let figures = [("at", at), ("rc", mib(0)), ("uc", mib(1)), ("ud", mib(2))];
    report("slice", &figures);
    *before = now;
}

fn main() -> Result<()> {
    let args = Args::parse();
    let (here, there) = (Context::open_addr(&args.here)?, Context::open_addr(&args.there)?);
    let ends =
        |kind| -> Result<(End, End)> { Ok((End::new(&here, kind)?, End::new(&there, kind)?)) };
    let (rc, uc, ud) = (ends(QpType::Rc)?, ends(QpType::Uc)?, ends(QpType::Ud)?);
    for pair in [&rc, &uc] {
        Qp::pair(&pair.0.qp, &pair.1.qp, &ConnectOptions::default())?;
    }
    for end in [&ud.0, &ud.1] {
        end.qp.activate_datagram(Q_KEY)?;
    }
    let av = AddressVector {
        is_global: true,
        dgid: there.gid(0)?,
        sgid_index: 0,
        traffic_class: 0,
        hop_limit: 0,
        flow_label: 0,
        sl: 0,
    };
    let to = ud.0.pd.create_ah(&av)?.to(ud.1.qp.qpn(), Q_KEY);
    let (stop, moved) = (&AtomicBool::new(false), &Moved::default());
    let start = Instant::now();
    thread::scope(|scope| -> Result<()> {
        let lost = &moved.lost;
        let threads = [
            scope.spawn(|| reliable(&rc.0, &rc.1, stop, moved)),
            scope.spawn(|| unreliable((&uc.0, &uc.1), None, stop, (&moved.unreliable, lost))),
            scope.spawn(|| unreliable((&ud.0, &ud.1), Some(to), stop, (&moved.datagrams, lost))),
        ];
        let mut before = [0; 3];
        let wanted = || match &args.until {
            Some(file) => !file.exists(),
            None => start.elapsed().as_secs_f64() < args.seconds,
        };
        while wanted() && !threads.iter().any(|thread| thread.is_finished()) {
            thread::sleep(TENTH);
            slice(start.elapsed().as_secs_f64(), moved, &mut before);
        }
        stop.store(true, Ordering::Relaxed);
        for thread in threads {
            thread.join().map_err(|_| "a thread panicked")??;
        }
        Ok(())
    })?;
    let sum = |bytes: &AtomicU64| bytes.load(Ordering::Relaxed) as f64 / (1 << 20) as f64;
    report(
        "checked_traffic",
        &[
            ("rc_mib", sum(&moved.reliable)),
            ("uc_mib", sum(&moved.unreliable)),
            ("ud_mib", sum(&moved.datagrams)),
            ("messages_lost", moved.lost.load(Ordering::Relaxed) as f64),
            ("seconds", start.elapsed().as_secs_f64()),
        ],
    );
    let end = Instant::now();
    while args.until.as_ref().is_some_and(|file| file.exists()) && end.elapsed() < 3 * PATIENCE {
        thread::sleep(TENTH / 10);
    }
    Ok(())
}
