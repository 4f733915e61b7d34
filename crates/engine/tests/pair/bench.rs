//! One device with one queue pair, and a peer that is the test itself: packets are made by hand,
//! and each packet that the device sends is looked at. Requester PSNs start at 100, responder PSNs
//! at 200.

use engine::{
    Access, AsyncEvent, Completion, CqId, DeviceConfig, PdId, PostError, QpAttr, QpCap, QpInit,
    QpState, QpType, RecvRequest, RegionKeys, Remote, SendData, SendFlags, SendOp, SendRequest,
    Sge, SrqAttr, SrqId, TrainLimits, WcData, WcStatus,
};
use wire::{
    Aeth, AtomicEth, Bth, Deth, Encapsulation, Extensions, Gid, Instant, Msn, NakCode, Opcode,
    Operation, PKey, Packet, Path, Psn, QKey, Qpn, RKey, Reth, Service, Span, Syndrome,
};

use super::cable::Flying;
use super::host::Host;
use super::memory::TestMemory;
use super::{inspect, setup};

/// Address of the registered region.
pub const REGION: u64 = 0x1000_1000;
/// Its length.
pub const REGION_LEN: u64 = 0x20_0000;
/// Within it, where local data of requests stand.
pub const LOCAL: u64 = REGION + 0x10_0000;
/// Within it, where receive buffers stand.
pub const BUFFERS: u64 = REGION + 0x18_0000;
/// Bytes from one receive buffer to the next.
pub const BUFFER_STRIDE: u64 = 0x2000;
/// The hand-made peer's queue pair.
pub const PEER_QP: Qpn = Qpn::new(0x77_7777);
/// The peer's memory, as named in requests of the device.
pub const THERE: Remote = Remote { addr: 0xAA_0000, rkey: RKey::new(0x7777) };

/// What a bench is made of.
pub struct Options {
    /// Service of the queue pair.
    pub service: QpType,
    /// Its attributes.
    pub attr: QpAttr,
    /// Its sizes.
    pub cap: QpCap,
    /// Its shared receive queue.
    pub srq: Option<SrqAttr>,
    /// State to raise it to.
    pub state: QpState,
    /// The device.
    pub config: DeviceConfig,
    /// Limits of the link.
    pub limits: TrainLimits,
    /// Rights of the region.
    pub access: Access,
    /// Entries of each completion queue.
    pub cqe: u32,
    /// Every send request is signaled.
    pub sq_sig_all: bool,
}

/// The device, and what stands around it.
pub struct Bench {
    /// The device.
    pub host: Host,
    /// Virtual time.
    pub now: Instant,
    /// Protection domain of everything.
    pub pd: PdId,
    /// Where sends complete.
    pub send_cq: CqId,
    /// Where receives complete.
    pub recv_cq: CqId,
    /// The queue pair.
    pub qp: Qpn,
    /// What it was made of.
    pub init: QpInit,
    /// Its attributes.
    pub attr: QpAttr,
    /// The region.
    pub region: RegionKeys,
    /// GID of the peer.
    pub peer: Gid,
    /// Shared receive queue.
    pub srq: Option<SrqId>,
    /// Packets sent while time passed.
    pub log: Vec<(Instant, Packet<Vec<u8>>)>,
    receives: u64,
}

impl Bench {
    /// A bench with a reliable connection in RTS.
    pub fn rc() -> Self {
        Self::with(|_| {})
    }

    /// A bench with another service, in RTS.
    pub fn of(service: QpType) -> Self {
        Self::with(|o| o.service = service)
    }

    /// A bench with changed options.
    pub fn with(change: impl FnOnce(&mut Options)) -> Self {
        let peer = setup::gid(9);
        let mut o = Options {
            service: QpType::Rc,
            attr: setup::attr(peer, PEER_QP),
            cap: setup::CAP,
            srq: None,
            state: QpState::Rts,
            config: setup::config(0, 1),
            limits: TrainLimits { segments: 64, bytes: 60_000 },
            access: Access::LOCAL_WRITE | setup::REMOTE | Access::MW_BIND,
            cqe: 1024,
            sq_sig_all: false,
        };
        change(&mut o);
        let memory = TestMemory::new(REGION - 0x1000, REGION_LEN as usize + 0x2000);
        let mut host = Host::new(o.config, memory, o.limits);
        let pd = host.device.alloc_pd().expect("a domain");
        let (send_cq, recv_cq) = (host.create_cq(o.cqe), host.create_cq(o.cqe));
        let region = host.register(pd, REGION, REGION_LEN, o.access);
        let srq = o.srq.map(|attr| host.device.create_srq(pd, &attr).expect("an SRQ"));
        let init = QpInit {
            qp_type: o.service,
            pd,
            send_cq,
            recv_cq,
            srq,
            cap: o.cap,
            sq_sig_all: o.sq_sig_all,
        };
        let (qp, _) = host.device.create_qp(&init).expect("a queue pair");
        let mut bench = Self {
            host,
            now: Instant::ZERO + Span::from_ms(1000),
            pd,
            send_cq,
            recv_cq,
            qp,
            init,
            attr: o.attr,
            region,
            peer,
            srq,
            log: Vec::new(),
            receives: 0,
        };
        if o.state != QpState::Reset {
            let now = bench.now;
            setup::raise(&mut bench.host.device, now, qp, &bench.init, &bench.attr, o.state);
        }
        bench
    }

    /// A further queue pair beside the first, to another queue pair of the peer.
    pub fn another(&mut self, dest_qp: Qpn, change: impl FnOnce(&mut QpInit, &mut QpAttr)) -> Qpn {
        let (mut init, mut attr) = (self.init, QpAttr { dest_qp, ..self.attr });
        change(&mut init, &mut attr);
        let (qp, _) = self.host.device.create_qp(&init).expect("a queue pair");
        setup::raise(&mut self.host.device, self.now, qp, &init, &attr, QpState::Rts);
        qp
    }

    /// A packet of the peer's for the queue pair.
    pub fn packet(&self, operation: Operation, psn: u32) -> Made {
        let service = match self.init.qp_type {
            QpType::Rc => Service::Rc,
            QpType::Uc => Service::Uc,
            QpType::XrcSend | QpType::XrcRecv => Service::Xrc,
            QpType::Ud | QpType::Gsi => Service::Ud,
        };
        let mut made = Made(Packet {
            path: Path {
                encapsulation: Encapsulation::RoceV2,
                source: self.peer,
                destination: self.host.gid,
                traffic_class: 0,
                hop_limit: 64,
                flow_label: 0,
                source_port: 0xC000,
                priority: 0,
            },
            bth: Bth {
                opcode: Opcode::new(service, operation),
                solicited: false,
                migration: true,
                pkey: PKey::DEFAULT,
                fecn: false,
                becn: false,
                dest_qp: self.qp,
                ack_request: false,
                psn: Psn::new(psn),
            },
            ext: Extensions::default(),
            payload: Vec::new(),
        });
        if service == Service::Ud {
            made.0.ext.deth = Some(Deth { qkey: setup::QKEY, source_qp: PEER_QP });
        }
        made
    }

    /// A WRITE, READ or other request with a RETH, under the region's key.
    pub fn rdma(&self, operation: Operation, psn: u32, va: u64, length: u32) -> Made {
        self.packet(operation, psn).reth(va, self.region.rkey, length)
    }

    /// An atomic under the region's key.
    pub fn atomic(&self, operation: Operation, psn: u32, va: u64, swap_add: u64, cmp: u64) -> Made {
        let mut made = self.packet(operation, psn).ack();
        let rkey = self.region.rkey;
        made.0.ext.atomic = Some(AtomicEth { va, rkey, swap_add, compare: cmp });
        made
    }

    /// A positive acknowledgement without credits.
    pub fn acknowledge(&self, psn: u32, msn: u32) -> Made {
        self.packet(Operation::Acknowledge, psn).aeth(Syndrome::Ack(31), msn)
    }

    /// A NAK.
    pub fn nak(&self, psn: u32, code: NakCode) -> Made {
        self.packet(Operation::Acknowledge, psn).aeth(Syndrome::Nak(code), 0)
    }

    /// The packet arrives.
    pub fn inject(&mut self, made: Made) {
        let (now, device) = (self.now, &mut self.host.device);
        Flying::Meaning(made.0).arrive(|packet| device.receive(now, packet));
        self.host.drain_events();
    }

    /// The packet arrives; what the device sends then, in lines.
    pub fn answer(&mut self, made: Made) -> Vec<String> {
        self.inject(made);
        self.lines()
    }

    /// The packets that the device sends now.
    pub fn sent(&mut self) -> Vec<Packet<Vec<u8>>> {
        let mut out = Vec::new();
        self.host.drain(self.now, |packet| out.push(packet));
        out
    }

    /// The same, in lines.
    pub fn lines(&mut self) -> Vec<String> {
        self.sent().iter().map(inspect::line).collect()
    }

    /// Time passes; timers run and packets leave when they are due, into the log.
    pub fn advance(&mut self, span: Span) {
        let end = self.now + span;
        for _ in 0..100_000 {
            let now = self.now;
            self.host.drain(now, |packet| self.log.push((now, packet)));
            let due = self.host.device.poll_timeout(now).filter(|at| at.is_due(end));
            if let Some(at) = due.filter(|at| now.is_before(*at)) {
                self.now = at;
            }
            if due.is_none() {
                self.now = end;
                return;
            }
            self.host.device.handle_timeout(self.now);
        }
        panic!("timers without end at {:?}", self.now);
    }

    /// Time passes; the lines of what was sent meanwhile.
    pub fn after(&mut self, span: Span) -> Vec<String> {
        self.log.clear();
        self.advance(span);
        self.log.iter().map(|(_, packet)| inspect::line(packet)).collect()
    }

    /// Time passes until something is sent; how long that took, and the lines.
    pub fn until_sent(&mut self, limit: Span) -> (Span, Vec<String>) {
        let (start, end) = (self.now, self.now + limit);
        loop {
            let lines = self.lines();
            if !lines.is_empty() {
                return (self.now.since(start), lines);
            }
            match self.host.device.poll_timeout(self.now) {
                Some(at) if at.is_due(end) => {
                    if self.now.is_before(at) {
                        self.now = at;
                    }
                    self.host.device.handle_timeout(self.now);
                }
                _ => panic!("nothing was sent within {limit:?}"),
            }
        }
    }

    /// Posts a signaled request with `length` bytes of local data.
    pub fn post(&mut self, wr_id: u64, op: SendOp, length: u32) {
        self.post_with(wr_id, op, length, SendFlags::SIGNALED).expect("a good request");
    }

    /// Posts a request.
    pub fn post_with(
        &mut self,
        wr_id: u64,
        op: SendOp,
        length: u32,
        flags: SendFlags,
    ) -> Result<(), PostError> {
        let sge = Sge { addr: LOCAL, length, lkey: self.region.lkey };
        let sges = [sge];
        let data = SendData::Sges(if length == 0 { &[] } else { &sges });
        self.post_raw(&SendRequest { wr_id, op, flags, data, datagram: None })
    }

    /// Posts a request as it stands.
    pub fn post_raw(&mut self, wr: &SendRequest<'_>) -> Result<(), PostError> {
        self.host.device.post_send(self.now, self.qp, wr)
    }

    /// Posts a receive request with a buffer of its own; the buffer's address.
    pub fn recv(&mut self, wr_id: u64, length: u32) -> u64 {
        let addr = BUFFERS + (self.receives % 64) * BUFFER_STRIDE;
        self.receives += 1;
        let sges = [Sge { addr, length, lkey: self.region.lkey }];
        let wr = RecvRequest { wr_id, sges: &sges };
        match self.srq {
            Some(srq) => self.host.device.post_srq_recv(srq, &wr),
            None => self.host.device.post_recv(self.now, self.qp, &wr),
        }
        .expect("a good receive request");
        addr
    }

    /// Takes the completions of sends, in lines.
    pub fn sends(&mut self) -> Vec<String> {
        self.host.poll_all(self.send_cq).iter().map(completion_line).collect()
    }

    /// Takes the completions of receives, in lines.
    pub fn receives(&mut self) -> Vec<String> {
        self.host.poll_all(self.recv_cq).iter().map(completion_line).collect()
    }

    /// Takes the asynchronous events.
    pub fn events(&mut self) -> Vec<AsyncEvent> {
        self.host.drain_events();
        std::mem::take(&mut self.host.events)
    }

    /// State of the queue pair.
    pub fn state(&self) -> QpState {
        self.host.device.query_qp(self.qp).expect("a queue pair").0.state
    }

    /// Bytes of the region.
    pub fn bytes(&mut self, addr: u64, length: usize) -> Vec<u8> {
        self.host.device.memory().slice(addr, length).to_vec()
    }

    /// Fills `length` bytes at `addr` with the pattern of [`pattern`].
    pub fn fill(&mut self, addr: u64, length: usize) {
        self.host.device.memory().slice_mut(addr, length).copy_from_slice(&pattern(length));
    }

    /// A counter.
    pub fn counter(&self, name: &str) -> u64 {
        let found = self.host.device.counters().iter().find(|(n, _)| *n == name);
        found.unwrap_or_else(|| panic!("no counter {name}")).1
    }

    /// Moves the queue pair to a state, with what that requires.
    pub fn modify(&mut self, state: QpState) {
        let attr = QpAttr { state, ..self.attr };
        let mask = match (self.state(), state) {
            (QpState::Sqd | QpState::Sqe | QpState::Rts, QpState::Rts)
            | (_, QpState::Reset | QpState::Err) => engine::AttrMask::STATE,
            _ => setup::required(self.init.qp_type, state),
        };
        self.host.device.modify_qp(self.now, self.qp, &attr, mask).expect("a legal move");
        self.host.drain_events();
    }
}

/// `length` bytes that differ from place to place.
pub fn pattern(length: usize) -> Vec<u8> {
    (0..length).map(|i| (i * 7 + i / 256 * 13 + 1) as u8).collect()
}

/// A completion in one line: `wr_id`, then the status if it is an error, else opcode and the rest.
pub fn completion_line(wc: &Completion) -> String {
    if wc.status != WcStatus::Success {
        return format!("{} {:?}", wc.wr_id, wc.status);
    }
    let mut line = format!("{} {:?} {}B", wc.wr_id, wc.opcode, wc.byte_len);
    match wc.data {
        WcData::None => {}
        WcData::Imm(imm) => line += &format!(" imm={}", u32::from_be_bytes(imm)),
        WcData::Invalidated(rkey) => line += &format!(" inv={rkey}"),
    }
    if wc.solicited {
        line += " S";
    }
    line
}

/// A packet made by hand.
#[derive(Clone)]
pub struct Made(pub Packet<Vec<u8>>);

impl Made {
    /// Asks for an acknowledgement.
    pub fn ack(mut self) -> Self {
        self.0.bth.ack_request = true;
        self
    }

    /// With the solicited bit.
    pub fn solicited(mut self) -> Self {
        self.0.bth.solicited = true;
        self
    }

    /// With a payload of `length` bytes of the pattern.
    pub fn data(self, length: usize) -> Self {
        self.bytes(&pattern(length))
    }

    /// With these bytes as payload.
    pub fn bytes(mut self, bytes: &[u8]) -> Self {
        self.0.payload = bytes.to_vec();
        self
    }

    /// With a RETH.
    pub fn reth(mut self, va: u64, rkey: RKey, length: u32) -> Self {
        self.0.ext.reth = Some(Reth { va, rkey, length });
        self
    }

    /// Under another remote key.
    pub fn rkey(mut self, rkey: RKey) -> Self {
        if let Some(reth) = &mut self.0.ext.reth {
            reth.rkey = rkey;
        }
        if let Some(atomic) = &mut self.0.ext.atomic {
            atomic.rkey = rkey;
        }
        self
    }

    /// With immediate data.
    pub fn imm(mut self, imm: u32) -> Self {
        self.0.ext.imm = Some(imm.to_be_bytes());
        self
    }

    /// With a key to invalidate.
    pub fn invalidate(mut self, rkey: RKey) -> Self {
        self.0.ext.invalidate = Some(rkey);
        self
    }

    /// With an AETH.
    pub fn aeth(mut self, syndrome: Syndrome, msn: u32) -> Self {
        self.0.ext.aeth = Some(Aeth { syndrome, msn: Msn::new(msn) });
        self
    }

    /// With the original value of an atomic.
    pub fn original(mut self, value: u64) -> Self {
        self.0.ext.atomic_ack = Some(value);
        self
    }

    /// To another queue pair.
    pub fn to(mut self, qp: Qpn) -> Self {
        self.0.bth.dest_qp = qp;
        self
    }

    /// With another Q_Key.
    pub fn qkey(mut self, qkey: QKey) -> Self {
        if let Some(deth) = &mut self.0.ext.deth {
            deth.qkey = qkey;
        }
        self
    }
}
