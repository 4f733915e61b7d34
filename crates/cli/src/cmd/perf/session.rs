//! One end of a measurement, ready to run: the device, queue pairs connected to the peer's, memory,
//! and the control connection. What is sent over them is `bw` and `lat`.

use std::net::IpAddr;

use crocevia::{
    Access, AddressVector, Completion, ConnectOptions, Context, Cq, Datagram, Endpoint, Gid, Mr,
    Mtu, PostError, Psn, QKey, Qp, QpCap, QpOptions, QpType, Qpn, RKey, RecvRequest, Region,
    Remote, Sge, WcStatus,
};

use super::exchange::{Control, Ends, Message, QpEnd, VERSION};
use super::pair;
use super::plan::{Agreed, Ask, Connection, Op, Plan};
use crate::error::{Failure, Result};

/// Bytes before a received datagram.
const GRH: usize = 40;
/// Q_Key of the datagram queue pairs.
const QKEY: QKey = QKey::new(0x1111_1111);
/// Memory in which a checked round keeps its messages.
const CHECK_BYTES: usize = 32 << 20;
/// Messages of a checked round, at most.
const CHECK_MESSAGES: usize = 4096;
/// Receive requests kept posted, at least.
const RECEIVES: u32 = 512;
/// Longest message that is posted inline.
pub(crate) const INLINE: u32 = 220;

/// Who talks to whom.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Identity {
    pub(crate) device: String,
    pub(crate) gid_index: u8,
    pub(crate) local_gid: Gid,
    pub(crate) remote_gid: Gid,
    pub(crate) local_qps: Vec<QpEnd>,
    pub(crate) remote_qps: Vec<QpEnd>,
}

/// Where the messages of one size lie. Sources come first, then targets, of equal number.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Layout {
    /// Bytes of a message.
    pub(crate) size: usize,
    /// Messages that have a place of their own; message k lies in place k modulo this.
    pub(crate) slots: usize,
    stride: usize,
    headroom: usize,
}

impl Layout {
    /// The layout for messages of `size` bytes.
    pub(crate) fn new(agreed: &Agreed, size: u32) -> Self {
        let headroom = if agreed.connection == Connection::Ud { GRH } else { 0 };
        // Sources and targets are as far apart as a received datagram needs, on 64-byte lines.
        let stride = (size as usize + headroom).next_multiple_of(64);
        let qps = agreed.qps as usize;
        let slots = match (agreed.test.is_latency(), agreed.check) {
            (true, _) => 2,
            (false, false) => qps,
            // Whole turns over the queue pairs, so that a place belongs to one of them.
            (false, true) => {
                (CHECK_BYTES / stride).clamp(qps, CHECK_MESSAGES.max(qps)).next_multiple_of(qps)
            }
        };
        Self { size: size as usize, slots, stride, headroom }
    }

    fn bytes(self) -> usize {
        2 * self.slots * self.stride
    }

    /// Where message `number` is sent from (or read from, by the peer).
    pub(crate) fn source(self, number: u64) -> usize {
        (number % self.slots as u64) as usize * self.stride
    }

    /// Where message `number` arrives; a datagram with its 40 bytes in front.
    pub(crate) fn target(self, number: u64) -> usize {
        self.slots * self.stride + self.source(number)
    }

    /// Where the data of message `number` are once it has arrived.
    pub(crate) fn arrived(self, number: u64) -> usize {
        self.target(number) + self.headroom
    }

    /// Bytes that a receive request offers: the place is large enough for any of its messages.
    pub(crate) fn receive_len(self) -> usize {
        self.stride
    }
}

/// One end, connected.
pub(crate) struct Session {
    pub(crate) control: Control,
    pub(crate) agreed: Agreed,
    pub(crate) send_cq: Cq,
    pub(crate) recv_cq: Cq,
    pub(crate) qps: Vec<Qp>,
    pub(crate) identity: Identity,
    /// Receive requests that fit on each queue pair.
    pub(crate) receives: u32,
    pub(crate) ring: Ring,
    /// Whether the bandwidth tests' receive requests stand; they are kept up once they do.
    pub(crate) stocked: bool,
    mr: Mr,
    remote: (u64, RKey),
    datagrams: Vec<Datagram>,
}

/// Receive requests of the latency tests, counted over all sizes.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Ring {
    pub(crate) posted: u64,
    pub(crate) received: u64,
}

/// Which end this is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Side {
    Server,
    Client,
}

impl Session {
    /// Agrees with the peer on the other side of `control` and connects. A failure is told there.
    pub(crate) fn open(mut control: Control, plan: &Plan, side: Side) -> Result<Self> {
        let mut prepare = || {
            let (context, ask, gid) = greet(&mut control, plan, side)?;
            let (theirs, their_mtu, their_gid, knows_vs) = hear(&mut control)?;
            let own_mtu = context.port().active_mtu;
            let agreed = match side {
                Side::Server => Ask::agree(&ask, &theirs, [own_mtu, their_mtu]),
                Side::Client => Ask::agree(&theirs, &ask, [their_mtu, own_mtu]),
            }?;
            same_family(gid, their_gid, side)?;
            if agreed.vs.is_some() && !knows_vs {
                return Err(no_vs());
            }
            Parts::new(context, agreed, gid, plan.gid_index)
        };
        match prepare() {
            Ok(parts) => parts.connect(control),
            Err(failure) => {
                // The peer comes to the same by itself, or hears it here.
                let _ = control.send(&Message::Failed(failure.to_string()));
                Err(failure)
            }
        }
    }

    /// The memory.
    pub(crate) fn region(&self) -> &Region {
        self.mr.region()
    }

    /// `len` bytes of the memory from `at`, for a request.
    pub(crate) fn sge(&self, at: usize, len: usize) -> Sge {
        self.mr.sge(at..at + len)
    }

    /// The peer's memory at `at`; both ends have the same layout.
    pub(crate) fn remote(&self, at: usize) -> Remote {
        Remote { addr: self.remote.0 + at as u64, rkey: self.remote.1 }
    }

    /// Where queue pair `qp` sends datagrams.
    pub(crate) fn datagram(&self, qp: usize) -> Option<Datagram> {
        self.datagrams.get(qp).copied()
    }

    /// The queue pair and its index that message `number` belongs to.
    pub(crate) fn lane(&self, number: u64) -> usize {
        (number % self.qps.len() as u64) as usize
    }

    /// Whether messages may be lost.
    pub(crate) fn unreliable(&self) -> bool {
        self.agreed.connection != Connection::Rc
    }

    /// Posts receive requests for messages `first .. first + count` in the order of their numbers;
    /// `wr_id` is the number.
    pub(crate) fn post_receives(&self, layout: Layout, first: u64, count: u64) -> Result<()> {
        for (lane, qp) in self.qps.iter().enumerate() {
            qp.recv_batch(|batch| {
                (first..first + count).filter(|&n| self.lane(n) == lane).try_for_each(|n| {
                    let sges = [self.sge(layout.target(n), layout.receive_len())];
                    batch.push(&RecvRequest { wr_id: n, sges: &sges })
                })
            })
            .map_err(post_failure)?;
        }
        Ok(())
    }

    /// Posts the receive requests of these completions again, as they were.
    pub(crate) fn repost(&self, layout: Layout, completions: &[Completion]) -> Result<()> {
        for run in completions.chunk_by(|a, b| self.lane(a.wr_id) == self.lane(b.wr_id)) {
            let lane = run.first().map_or(0, |first| self.lane(first.wr_id));
            self.qps[lane]
                .recv_batch(|batch| {
                    run.iter().try_for_each(|completion| {
                        let number = completion.wr_id;
                        let sges = [self.sge(layout.target(number), layout.receive_len())];
                        batch.push(&RecvRequest { wr_id: number, sges: &sges })
                    })
                })
                .map_err(post_failure)?;
        }
        Ok(())
    }

    /// Posts one more receive request for message `number`.
    pub(crate) fn post_receive(&self, layout: Layout, number: u64) -> Result<()> {
        let sges = [self.sge(layout.target(number), layout.receive_len())];
        let request = RecvRequest { wr_id: number, sges: &sges };
        self.qps[self.lane(number)].post_recv(&request).map_err(post_failure)
    }

    /// The layout for messages of `size` bytes. Where receive requests are left over from one size
    /// to the next, all sizes share the places of the largest.
    pub(crate) fn layout(&self, size: u32) -> Layout {
        if self.unreliable() || self.agreed.test.is_latency() {
            Layout { size: size as usize, ..Layout::new(&self.agreed, self.agreed.max_size()) }
        } else {
            Layout::new(&self.agreed, size)
        }
    }

    /// The failure that a completion in error means. One that was only flushed gives way to the one
    /// that failed first, if that is a send request.
    pub(crate) fn failure(&self, completion: &Completion) -> Option<Failure> {
        let failure = completion_failure(completion)?;
        if completion.status != WcStatus::WrFlushErr {
            return Some(failure);
        }
        let mut others = [Completion::default(); 64];
        let n = self.send_cq.poll(&mut others);
        let first = others[..n].iter().find(|other| other.status != WcStatus::WrFlushErr);
        Some(first.and_then(completion_failure).unwrap_or(failure))
    }

    /// What the device has counted so far, without what is zero.
    pub(crate) fn counters(&self) -> Option<String> {
        let counters = self.qps.first()?.context().counters();
        let counted: Vec<String> = counters
            .iter()
            .filter(|(_, value)| *value > 0)
            .map(|(name, value)| format!("{name} {value}"))
            .collect();
        (!counted.is_empty()).then(|| counted.join(", "))
    }

    /// Expects the peer's `Ready`.
    pub(crate) fn await_ready(&mut self) -> Result<()> {
        match self.control.recv()? {
            Message::Ready => Ok(()),
            other => Err(self.control.unexpected(&other, "Ready")),
        }
    }
}

/// Opens the device and says hello.
fn greet(control: &mut Control, plan: &Plan, side: Side) -> Result<(Context, Ask, Gid)> {
    let context = open_context(control, plan, side)?;
    let gid = context
        .gid(plan.gid_index)
        .map_err(|error| Failure::failed(format!("-x {}: {error}", plan.gid_index)))?;
    let ask = plan.ask.clone();
    let mtu = context.port().active_mtu.bytes();
    control.send(&Message::Hello {
        version: VERSION,
        ask: ask.clone(),
        mtu,
        gid: gid.0,
        vs: true,
    })?;
    Ok((context, ask, gid))
}

/// The device that was asked for.
pub(crate) fn chosen(plan: &Plan) -> Result<Option<Context>> {
    Ok(match &plan.addr {
        Some(addr) => Some(Context::open_addr(addr)?),
        None if std::env::var_os("CROCEVIA_ADDR").is_some() => Some(Context::open_default()?),
        None => None,
    })
}

/// The device that was asked for; else the one that the TCP connection came or went through.
fn open_context(control: &Control, plan: &Plan, side: Side) -> Result<Context> {
    if let Some(context) = chosen(plan)? {
        return Ok(context);
    }
    match control.local_ip() {
        // On one machine and one address both ends would want the same port of it.
        Some(IpAddr::V4(ip))
            if side == Side::Client && ip.is_loopback() && control.peer_ip() == Some(ip.into()) =>
        {
            let free = pair::addresses()?;
            Ok(Context::open_addr(&free.client.to_string())?)
        }
        Some(ip) => Ok(Context::open_addr(&ip.to_string())?),
        None => Ok(Context::open_default()?),
    }
}

/// The peer's hello, and whether it knows `--vs`.
fn hear(control: &mut Control) -> Result<(Ask, Mtu, Gid, bool)> {
    match control.recv()? {
        Message::Hello { version, .. } if version != VERSION => Err(Failure::failed(format!(
            "the other end speaks version {version} of the exchange, this one {VERSION}: use the \
             same crocevia on both"
        ))),
        Message::Hello { ask, mtu, gid, vs, .. } => {
            let mtu = Mtu::from_bytes(mtu).ok_or_else(|| {
                Failure::failed(format!("the other end's port has an MTU of {mtu} bytes"))
            })?;
            Ok((ask, mtu, Gid(gid), vs))
        }
        other => Err(control.unexpected(&other, "Hello")),
    }
}

fn no_vs() -> Failure {
    Failure::failed(
        "the other end's crocevia is older and cannot take part in --vs: use the same on both, or \
         leave out --vs",
    )
}

fn same_family(own: Gid, theirs: Gid, side: Side) -> Result<()> {
    if own.is_ipv4() == theirs.is_ipv4() {
        return Ok(());
    }
    let (server, client) = if side == Side::Server { (own, theirs) } else { (theirs, own) };
    Err(Failure::failed(format!(
        "the server's GID {server} and the client's GID {client} are of different address \
         families: choose others with -x (see `crocevia gids`), or give --addr to both"
    )))
}

/// What an end has before it knows its peer's numbers.
struct Parts {
    context: Context,
    agreed: Agreed,
    send_cq: Cq,
    recv_cq: Cq,
    qps: Vec<Qp>,
    mr: Mr,
    gid: Gid,
    gid_index: u8,
    receives: u32,
    rights: Access,
}

impl Parts {
    fn new(context: Context, agreed: Agreed, gid: Gid, gid_index: u8) -> Result<Self> {
        let rights = Access::LOCAL_WRITE
            | Access::REMOTE_WRITE
            | Access::REMOTE_READ
            | Access::REMOTE_ATOMIC;
        let pd = context.alloc_pd()?;
        let bytes = agreed.sizes.iter().map(|&size| Layout::new(&agreed, size).bytes()).max();
        let mr = pd.alloc(bytes.unwrap_or(1), rights)?;
        let depth = if agreed.test.is_latency() { 64 } else { agreed.depth };
        let receives = receives(&agreed);
        let send_cq = context.create_cq(depth * agreed.qps + 1, None)?;
        let recv_cq = context.create_cq(receives * agreed.qps + 1, None)?;
        let options = QpOptions {
            qp_type: match agreed.connection {
                Connection::Rc => QpType::Rc,
                Connection::Uc => QpType::Uc,
                Connection::Ud => QpType::Ud,
            },
            send_cq: &send_cq,
            recv_cq: &recv_cq,
            srq: None,
            cap: QpCap {
                max_send_wr: depth,
                max_recv_wr: receives,
                max_send_sge: 1,
                max_recv_sge: 1,
                max_inline_data: INLINE,
            },
            sq_sig_all: false,
        };
        let qps =
            (0..agreed.qps).map(|_| Ok(pd.create_qp(&options)?)).collect::<Result<Vec<Qp>>>()?;
        Ok(Self { context, agreed, send_cq, recv_cq, qps, mr, gid, gid_index, receives, rights })
    }

    /// Exchanges numbers and connects.
    fn connect(self, mut control: Control) -> Result<Session> {
        let ends: Vec<QpEnd> =
            self.qps.iter().map(|qp| QpEnd { qpn: qp.qpn().get(), psn: qp.psn().get() }).collect();
        let remote = self.mr.remote(0);
        control.send(&Message::Ends(Ends {
            gid: self.gid.0,
            qps: ends.clone(),
            addr: remote.addr,
            rkey: remote.rkey.get(),
        }))?;
        let theirs = match control.recv()? {
            Message::Ends(theirs) if theirs.qps.len() == self.qps.len() => theirs,
            other => return Err(control.unexpected(&other, "the queue pairs")),
        };
        let mut datagrams = Vec::new();
        for (qp, end) in self.qps.iter().zip(&theirs.qps) {
            let linked = self.link(qp, Gid(theirs.gid), *end);
            match linked {
                Ok(datagram) => datagrams.extend(datagram),
                Err(failure) => {
                    let _ = control.send(&Message::Failed(failure.to_string()));
                    return Err(failure);
                }
            }
        }
        let mut session = Session {
            identity: Identity {
                device: self.context.device().name.clone(),
                gid_index: self.gid_index,
                local_gid: self.gid,
                remote_gid: Gid(theirs.gid),
                local_qps: ends,
                remote_qps: theirs.qps,
            },
            control,
            agreed: self.agreed,
            send_cq: self.send_cq,
            recv_cq: self.recv_cq,
            qps: self.qps,
            receives: self.receives,
            ring: Ring::default(),
            stocked: false,
            mr: self.mr,
            remote: (theirs.addr, RKey::new(theirs.rkey)),
            datagrams,
        };
        session.control.send(&Message::Ready)?;
        session.await_ready()?;
        Ok(session)
    }

    /// Connects one queue pair, or finds out how to reach its peer by datagrams.
    fn link(&self, qp: &Qp, gid: Gid, end: QpEnd) -> Result<Option<Datagram>> {
        if self.agreed.connection == Connection::Ud {
            qp.activate_datagram(QKEY)?;
            let av = AddressVector {
                is_global: true,
                dgid: gid,
                sgid_index: self.gid_index,
                traffic_class: 0,
                hop_limit: 0,
                flow_label: 0,
                sl: 0,
            };
            return Ok(Some(Datagram { av, dest_qp: Qpn::new(end.qpn), qkey: QKEY }));
        }
        let peer =
            Endpoint { gid, qpn: Qpn::new(end.qpn), psn: Psn::new(end.psn), mtu: self.agreed.mtu };
        let options = ConnectOptions {
            gid_index: Some(self.gid_index),
            mtu: Some(self.agreed.mtu),
            access: self.rights,
            ..ConnectOptions::default()
        };
        qp.connect(&peer, &options)?;
        Ok(None)
    }
}

/// Receive requests of a queue pair.
fn receives(agreed: &Agreed) -> u32 {
    let wanted = match (agreed.test.op(), agreed.check) {
        (Op::Send, false) => RECEIVES.max(2 * agreed.depth),
        // A checked round has a receive request for each message (UC writes carry an immediate).
        (Op::Send | Op::Write, true) => {
            let slots = agreed.sizes.iter().map(|&size| Layout::new(agreed, size).slots).max();
            RECEIVES.max(slots.unwrap_or(0) as u32 / agreed.qps)
        }
        _ => 16,
    };
    wanted.min(engine::limits::MAX_QP_WR)
}

/// The failure that a refused post means.
pub(crate) fn post_failure(error: PostError) -> Failure {
    Failure::failed(format!("a work request was refused: {error}"))
}

/// The failure that a completion in error means; `None` for a good one.
fn completion_failure(completion: &Completion) -> Option<Failure> {
    let meaning = match completion.status {
        WcStatus::Success => return None,
        WcStatus::RetryExcErr => {
            "the peer's NIC did not answer, however often it was asked: the peer has died, or UDP \
             port 4791 does not pass between the two addresses"
        }
        WcStatus::RnrRetryExcErr => "the peer posts no receive requests",
        WcStatus::RemAccessErr => "the peer's NIC refused the access to its memory",
        WcStatus::RemInvReqErr => "the peer's NIC found the request invalid",
        WcStatus::RemOpErr => "the peer's NIC could not carry out the request",
        WcStatus::LocProtErr => "the own memory is not registered for this",
        WcStatus::LocLenErr => "the message is longer than its buffer or the port",
        WcStatus::WrFlushErr => "the queue pair is in error; the request was not carried out",
        _ => "see ibv_poll_cq(3)",
    };
    Some(Failure::failed(format!(
        "a work request of queue pair {} failed with {:?} (status {}, vendor error {:#x}): \
         {meaning}",
        completion.qp, completion.status, completion.status as u32, completion.vendor_err
    )))
}
