//! Two devices and their connection managers: management datagrams travel through QP1, queue pairs
//! are moved by the plans, data flows, and everything ends.

use std::sync::Arc;

use engine::cm::{Accept, Cm, CmConfig, CmEvent, ConnId, ConnectRequest, Listen, Port, QpPlan};
use engine::memory::{HostMemory, MemoryFault};
use engine::{
    Access, AddressVector, AsyncEvent, AtomicOp, Completion, Cq, Device, DeviceConfig, Event,
    Fragment, GidEntry, Payload, PdId, Priorities, QpCap, QpInit, QpState, QpType, RecvRequest,
    RegionAttr, SendData, SendFlags, SendOp, SendRequest, Sge, Train, TrainLimits, WcOpcode,
    WcStatus,
};
use wire::mad::{PortSpace, ServiceId};
use wire::{Encapsulation, Gid, Instant, LKey, Mtu, Opcode, Packet, Qpn, Span};

const SERVICE: ServiceId = ServiceId::rdma_cm(PortSpace::Tcp, 7174);
const BASE: u64 = 0x10_0000;
const SLOTS: u16 = 8;
/// Where the application's memory begins, behind the port's.
const DATA: u64 = BASE + Port::memory_needed(SLOTS);

struct Ram(Vec<u8>);

impl Ram {
    fn read(&self, addr: u64, out: &mut [u8]) {
        let at = (addr - BASE) as usize;
        out.copy_from_slice(&self.0[at..at + out.len()]);
    }
}

impl HostMemory for Ram {
    fn write(&mut self, addr: u64, data: Payload<'_>) -> Result<(), MemoryFault> {
        let at = (addr - BASE) as usize;
        match data {
            Payload::Bytes(bytes) => self.0[at..at + bytes.len()].copy_from_slice(bytes),
            Payload::Length(_) => return Err(MemoryFault),
        }
        Ok(())
    }

    fn atomic(&mut self, _: u64, _: AtomicOp) -> Result<u64, MemoryFault> {
        Err(MemoryFault)
    }
}

/// A host: a device, a connection manager and their driver.
struct Host {
    device: Device<Ram>,
    cm: Cm,
    port: Port,
    pd: PdId,
    lkey: LKey,
    cq: (engine::CqId, Arc<Cq>),
    events: Vec<CmEvent>,
    /// The driver passes `COMM_EST` on.
    established_by_data: Vec<Qpn>,
}

fn gid(host: u8, v6: bool) -> Gid {
    match v6 {
        false => Gid::from_ip([10, 0, 0, host + 1].into()),
        true => Gid::from_ip([0xFD77, 1, 0, 0, 0, 0, 0, u16::from(host) + 1].into()),
    }
}

impl Host {
    fn new(host: u8) -> Self {
        let entry = |gid| GidEntry { gid, encapsulation: Encapsulation::RoceV2 };
        let config = DeviceConfig {
            seed: [host; 32],
            slots: vec![host],
            gids: vec![entry(gid(host, false)), entry(gid(host, true))],
            mtu: Mtu::B1024,
            receive_buffer: 1 << 20,
            ack_delay: Span::ZERO,
            credits: true,
        };
        let mut device = Device::new(config, Ram(vec![0; 1 << 16]));
        let port = Port::open(&mut device, Instant::ZERO, BASE, SLOTS).unwrap();
        let pd = device.alloc_pd().unwrap();
        let region =
            RegionAttr { pd, addr: DATA, length: 4096, iova: DATA, access: Access::LOCAL_WRITE };
        let lkey = device.reg_mr(&region).unwrap().lkey;
        let cq = device.create_cq(64).unwrap();
        let cm = Cm::new(CmConfig {
            seed: [host + 100; 32],
            slot: host,
            guid: u64::from(host),
            mtu: Mtu::B1024,
        });
        Self { device, cm, port, pd, lkey, cq, events: Vec::new(), established_by_data: Vec::new() }
    }

    fn create_qp(&mut self) -> Qpn {
        let cap = QpCap {
            max_send_wr: 8,
            max_recv_wr: 8,
            max_send_sge: 1,
            max_recv_sge: 1,
            max_inline_data: 64,
        };
        let init = QpInit {
            qp_type: QpType::Rc,
            pd: self.pd,
            send_cq: self.cq.0,
            recv_cq: self.cq.0,
            srq: None,
            cap,
            sq_sig_all: true,
        };
        self.device.create_qp(&init).unwrap().0
    }

    fn follow(&mut self, now: Instant, qp: Qpn, plan: &QpPlan) {
        for step in plan.steps() {
            self.device.modify_qp(now, qp, &step.attr, step.mask).unwrap();
        }
    }

    fn post_recv(&mut self, now: Instant, qp: Qpn) {
        let sge = Sge { addr: DATA, length: 64, lkey: self.lkey };
        self.device.post_recv(now, qp, &RecvRequest { wr_id: 77, sges: &[sge] }).unwrap();
    }

    fn send(&mut self, now: Instant, qp: Qpn, text: &[u8]) {
        let request = SendRequest {
            wr_id: 5,
            op: SendOp::Send,
            flags: SendFlags::SIGNALED,
            data: SendData::Inline(text),
            datagram: None,
        };
        self.device.post_send(now, qp, &request).unwrap();
    }

    fn completion(&mut self) -> Completion {
        self.cq.1.poll_one().expect("nothing has completed")
    }

    fn text(&mut self) -> Vec<u8> {
        let mut out = vec![0; 5];
        self.device.memory().read(DATA, &mut out);
        out
    }

    fn state(&self, qp: Qpn) -> QpState {
        self.device.query_qp(qp).unwrap().0.state
    }
}

/// Two hosts and a cable that loses what the test says.
struct Net {
    hosts: [Host; 2],
    now: Instant,
    v6: bool,
    /// Loses packets: called with the sender and the packet's opcode.
    loses: fn(usize, Opcode) -> bool,
    /// UDP source ports seen on connected queue pairs' packets.
    ports: Vec<u16>,
}

impl Net {
    fn new(v6: bool) -> Self {
        Self {
            hosts: [Host::new(0), Host::new(1)],
            now: Instant::ZERO,
            v6,
            loses: |_, _| false,
            ports: Vec::new(),
        }
    }

    /// The driver's loop: until neither device nor connection manager has anything to do.
    fn settle(&mut self) {
        let mut busy = true;
        while busy {
            self.now = self.now + Span::from_us(1);
            busy = false;
            for at in 0..2 {
                busy |= self.pump(at) | self.carry(at);
            }
        }
    }

    fn pump(&mut self, at: usize) -> bool {
        let host = &mut self.hosts[at];
        // The ring's slot is read before the next datagram can come: nobody writes meanwhile.
        let Host { device, cm, port, .. } = host;
        let ram = device.memory().0.clone();
        let read = |addr: u64, out: &mut [u8]| Ram(ram.clone()).read(addr, out);
        let mut worked = port.pump(device, cm, self.now, read);
        while let Some(event) = host.device.poll_event() {
            worked = true;
            if let Event::Async(AsyncEvent::CommEst(qpn)) = event {
                host.established_by_data.push(qpn);
                host.cm.handle_comm_est(self.now, qpn);
            }
        }
        while let Some(event) = host.cm.poll_event() {
            worked = true;
            host.events.push(event);
        }
        worked
    }

    /// Takes trains from a device and brings their packets to the other.
    fn carry(&mut self, from: usize) -> bool {
        let mut train = Train::default();
        let mut worked = false;
        while self.hosts[from].device.poll_transmit(
            self.now,
            TrainLimits::SINGLE,
            Priorities::ALL,
            &mut train,
        ) {
            worked = true;
            let path = train.path.unwrap();
            for packet in &train.packets {
                let mut bytes = Vec::new();
                for fragment in train.payload(packet) {
                    match *fragment {
                        Fragment::Inline { start, length } => bytes.extend_from_slice(
                            &train.inline[start as usize..(start + length) as usize],
                        ),
                        Fragment::Memory { addr, length } => {
                            let mut piece = vec![0; length as usize];
                            self.hosts[from].device.memory().read(addr, &mut piece);
                            bytes.extend(piece);
                        }
                    }
                }
                if (self.loses)(from, packet.bth.opcode) {
                    continue;
                }
                if packet.ext.deth.is_none() {
                    self.ports.push(path.source_port);
                }
                let payload = Payload::Bytes(&bytes);
                let packet = Packet { path, bth: packet.bth, ext: packet.ext, payload };
                self.hosts[1 - from].device.receive(self.now, &packet);
            }
        }
        worked
    }

    /// Lets time pass, timers of both sides included.
    fn wait(&mut self, span: Span) {
        let end = self.now + span;
        while self.now.is_before(end) {
            self.settle();
            let mut next = end;
            for host in &mut self.hosts {
                for at in [host.device.poll_timeout(self.now), host.cm.poll_timeout()] {
                    next = next.earlier(at.unwrap_or(end));
                }
            }
            if self.now.is_before(next) {
                self.now = next;
            }
            for host in &mut self.hosts {
                host.device.handle_timeout(self.now);
                host.cm.handle_timeout(self.now);
            }
        }
        self.settle();
    }

    fn event(&mut self, at: usize) -> CmEvent {
        let events = std::mem::take(&mut self.hosts[at].events);
        assert_eq!(events.len(), 1, "{events:?}");
        events[0].clone()
    }

    fn listen(&mut self) {
        let listen = Listen { service: SERVICE, address: None, backlog: 4 };
        self.hosts[1].cm.listen(listen).unwrap();
    }

    fn connect(&mut self) -> (ConnId, Qpn) {
        let qpn = self.hosts[0].create_qp();
        let av = AddressVector {
            is_global: true,
            dgid: gid(1, self.v6),
            sgid_index: u8::from(self.v6),
            traffic_class: 0x68,
            hop_limit: 0,
            flow_label: 0,
            sl: 0,
        };
        let request = ConnectRequest::new(SERVICE, av, gid(0, self.v6), qpn, Mtu::B1024);
        let id = self.hosts[0].cm.connect(self.now, &request).unwrap();
        self.settle();
        (id, qpn)
    }

    /// Host 1 accepts as a driver does: queue pair first, REP afterwards.
    fn accept(&mut self) -> (ConnId, Qpn) {
        let CmEvent::Incoming(incoming) = self.event(1) else { panic!("no request") };
        assert_eq!(incoming.av.traffic_class, 0x68);
        let host = &mut self.hosts[1];
        let qpn = host.create_qp();
        let accept = Accept::new(qpn);
        let plan = host.cm.accept_plan(incoming.id, &accept).unwrap();
        host.follow(self.now, qpn, &plan);
        host.device.expect_peer(qpn).unwrap();
        host.post_recv(self.now, qpn);
        host.cm.accept(self.now, incoming.id, &accept).unwrap();
        self.settle();
        (incoming.id, qpn)
    }

    fn establish(&mut self, id: ConnId, qpn: Qpn) {
        let CmEvent::Response(response) = self.event(0) else { panic!("no response") };
        assert_eq!(response.id, id);
        self.hosts[0].follow(self.now, qpn, &response.plan);
        self.hosts[0].cm.establish(self.now, id).unwrap();
    }
}

fn connect_send_disconnect(v6: bool) {
    let mut net = Net::new(v6);
    net.listen();
    let (active, a) = net.connect();
    let (passive, b) = net.accept();
    net.establish(active, a);
    net.settle();
    assert_eq!(net.event(0), CmEvent::Established(active));
    assert_eq!(net.event(1), CmEvent::Established(passive));
    assert!(net.hosts[1].established_by_data.is_empty(), "the RTU came first");

    net.hosts[0].send(net.now, a, b"hello");
    net.settle();
    let sent = net.hosts[0].completion();
    assert_eq!((sent.wr_id, sent.status), (5, WcStatus::Success));
    let received = net.hosts[1].completion();
    assert_eq!((received.wr_id, received.status), (77, WcStatus::Success));
    assert_eq!((received.opcode, received.byte_len), (WcOpcode::Recv, 5));
    assert_eq!(net.hosts[1].text(), b"hello");
    net.ports.dedup();
    assert_eq!(net.ports.len(), 1, "the flow label gives both directions one port");

    net.hosts[1].cm.disconnect(net.now, passive).unwrap();
    net.settle();
    assert_eq!(net.event(0), CmEvent::Disconnected(active));
    assert_eq!(net.event(1), CmEvent::Disconnected(passive));
    assert!(net.hosts[0].cm.in_time_wait(a) && net.hosts[1].cm.in_time_wait(b));
    net.wait(Span::from_ms(10_000));
    assert_eq!(net.event(0), CmEvent::TimeWaitExit(active, a));
    assert_eq!(net.event(1), CmEvent::TimeWaitExit(passive, b));
}

#[test]
fn two_devices_connect_send_and_disconnect() {
    connect_send_disconnect(false);
}

#[test]
fn over_ipv6_too() {
    connect_send_disconnect(true);
}

#[test]
fn data_that_comes_before_the_rtu_is_taken_and_establishes() {
    let mut net = Net::new(false);
    net.listen();
    let (active, a) = net.connect();
    let (passive, b) = net.accept();
    assert_eq!(net.hosts[1].state(b), QpState::Rts, "ready before the REP left");
    // Every datagram of host 0 is lost from here on: the RTU, and all its repeats.
    net.loses = |from, opcode| from == 0 && opcode.0 == 0x64;
    net.establish(active, a);
    net.hosts[0].send(net.now, a, b"early");
    net.settle();
    assert_eq!(net.hosts[1].completion().status, WcStatus::Success);
    assert_eq!(net.hosts[1].text(), b"early");
    assert_eq!(net.hosts[1].established_by_data, [b]);
    assert_eq!(net.event(1), CmEvent::Established(passive));
    net.wait(Span::from_ms(20_000));
    assert!(net.hosts[1].events.is_empty(), "once only, and no timeout");
    assert_eq!(net.hosts[1].cm.counters().tx_retries, 0);
}

#[test]
fn a_lost_rtu_without_data_is_repeated() {
    let mut net = Net::new(false);
    net.listen();
    let (active, a) = net.connect();
    let (passive, _) = net.accept();
    net.loses = |from, opcode| from == 0 && opcode.0 == 0x64;
    net.establish(active, a);
    net.settle();
    assert!(net.hosts[1].events.is_empty());
    net.loses = |_, _| false;
    net.wait(Span::from_ms(1000));
    assert_eq!(net.event(1), CmEvent::Established(passive));
    assert_eq!(net.hosts[1].cm.counters().tx_retries, 1);
}

#[test]
fn many_connections_through_few_slots() {
    let mut net = Net::new(false);
    let listen = Listen { service: SERVICE, address: Some(gid(1, false)), backlog: 64 };
    net.hosts[1].cm.listen(listen).unwrap();
    // Far more requests at once than QP1 has receive requests: what is lost is repeated.
    let ids: Vec<_> = (0..40).map(|_| net.connect_only()).collect();
    let mut established = 0;
    for _ in 0..60 {
        net.wait(Span::from_ms(300));
        for event in std::mem::take(&mut net.hosts[1].events) {
            if let CmEvent::Incoming(incoming) = event {
                let host = &mut net.hosts[1];
                let qpn = host.create_qp();
                let accept = Accept::new(qpn);
                let plan = host.cm.accept_plan(incoming.id, &accept).unwrap();
                host.follow(net.now, qpn, &plan);
                host.cm.accept(net.now, incoming.id, &accept).unwrap();
            }
        }
        for event in std::mem::take(&mut net.hosts[0].events) {
            match event {
                CmEvent::Response(response) => {
                    let (_, qpn) = *ids.iter().find(|(id, _)| *id == response.id).unwrap();
                    net.hosts[0].follow(net.now, qpn, &response.plan);
                    net.hosts[0].cm.establish(net.now, response.id).unwrap();
                }
                CmEvent::Established(_) => established += 1,
                other => panic!("{other:?}"),
            }
        }
    }
    assert_eq!(established, ids.len());
}

impl Net {
    /// Asks without letting anything happen.
    fn connect_only(&mut self) -> (ConnId, Qpn) {
        let qpn = self.hosts[0].create_qp();
        let av = AddressVector {
            is_global: true,
            dgid: gid(1, false),
            sgid_index: 0,
            traffic_class: 0,
            hop_limit: 0,
            flow_label: 0,
            sl: 0,
        };
        let request = ConnectRequest::new(SERVICE, av, gid(0, false), qpn, Mtu::B1024);
        (self.hosts[0].cm.connect(self.now, &request).unwrap(), qpn)
    }
}

#[test]
fn a_port_gives_everything_back() {
    let mut host = Host::new(0);
    host.port.close(&mut host.device);
    let again = Port::open(&mut host.device, Instant::ZERO, BASE, SLOTS).unwrap();
    assert_eq!(again.cq().1.len(), 0);
    let twice = Port::open(&mut host.device, Instant::ZERO, BASE, SLOTS).unwrap_err();
    assert_eq!(twice.kind(), engine::ErrorKind::Busy, "there is one QP1");
}
