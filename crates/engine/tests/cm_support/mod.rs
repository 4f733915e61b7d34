//! Two connection managers and a wire that loses, duplicates and reorders; all of it from a seed.
#![allow(dead_code)] // Each test file uses its own part.

use engine::AddressVector;
use engine::cm::{
    Accept, Cm, CmConfig, CmEvent, ConnId, ConnectRequest, Incoming, Listen, MadFrom, OutgoingMad,
    QpPlan,
};
use rand_core::{Rng, SeedableRng};
use rand_pcg::Pcg64;
use wire::mad::{CmMessage, Mad, PortSpace, ServiceId};
use wire::{Gid, Instant, Mtu, Qpn, Span};

/// The service that the tests listen on.
pub(crate) const SERVICE: ServiceId = ServiceId::rdma_cm(PortSpace::Tcp, 7174);

/// GID of a node.
pub(crate) fn gid(node: usize) -> Gid {
    Gid::from_ip([10, 0, 0, node as u8 + 1].into())
}

/// How a node is addressed.
pub(crate) fn av(node: usize) -> AddressVector {
    AddressVector {
        is_global: true,
        dgid: gid(node),
        sgid_index: 0,
        traffic_class: 0,
        hop_limit: 0,
        flow_label: 0,
        sl: 0,
    }
}

/// A connection manager for a node.
pub(crate) fn cm(node: usize, seed: u64) -> Cm {
    let mut bytes = [node as u8; 32];
    bytes[..8].copy_from_slice(&seed.to_le_bytes());
    Cm::new(CmConfig { seed: bytes, slot: 0, guid: 0x1000 + node as u64, mtu: Mtu::B4096 })
}

/// A request of node 0 to node 1.
pub(crate) fn request(qpn: u32) -> ConnectRequest<'static> {
    ConnectRequest::new(SERVICE, av(1), gid(0), Qpn::new(qpn), Mtu::B1024)
}

/// What the wire does to datagrams, in 1/1000.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Faults {
    pub(crate) loss: u32,
    pub(crate) duplicate: u32,
    /// Delays are between 1 ms and this.
    pub(crate) delay_ms: u32,
}

/// Two nodes, a wire, a clock.
pub(crate) struct World {
    pub(crate) now: Instant,
    pub(crate) cms: [Cm; 2],
    pub(crate) events: [Vec<CmEvent>; 2],
    /// What was sent: the sender, and the message's name.
    pub(crate) sent: Vec<(usize, Mad)>,
    pub(crate) faults: Faults,
    pub(crate) rng: Pcg64,
    flying: Vec<(u64, u64, usize, OutgoingMad)>,
    order: u64,
}

impl World {
    pub(crate) fn new(seed: u64, faults: Faults) -> Self {
        let mut rng = Pcg64::seed_from_u64(seed);
        // Somewhere on the circle of instants, near the seam for some seeds.
        let start = match seed % 4 {
            0 => 0,
            1 => u64::MAX - 1_000_000_000_000,
            _ => rng.next_u64(),
        };
        Self {
            now: Instant::from_ps(start),
            cms: [cm(0, seed), cm(1, seed)],
            events: [Vec::new(), Vec::new()],
            sent: Vec::new(),
            faults,
            rng,
            flying: Vec::new(),
            order: 0,
        }
    }

    pub(crate) fn listening(seed: u64, faults: Faults) -> Self {
        let mut world = Self::new(seed, faults);
        let listen = Listen { service: SERVICE, address: None, backlog: 16 };
        world.cms[1].listen(listen).unwrap();
        world
    }

    fn chance(&mut self, permille: u32) -> bool {
        self.rng.next_u32() % 1000 < permille
    }

    /// Takes what the nodes have to say: datagrams onto the wire, events into `events`.
    pub(crate) fn drain(&mut self) {
        for node in 0..2 {
            while let Some(event) = self.cms[node].poll_event() {
                self.events[node].push(event);
            }
            while let Some(mad) = self.cms[node].poll_mad() {
                self.sent.push((node, Mad::parse(&mad.payload).unwrap()));
                let copies = 1 + u32::from(self.chance(self.faults.duplicate));
                for _ in 0..copies {
                    if self.chance(self.faults.loss) {
                        continue;
                    }
                    let spread = u64::from(self.faults.delay_ms.max(1));
                    let delay = Span::from_us(1000 + self.rng.next_u64() % (spread * 1000));
                    self.order += 1;
                    let at = (self.now + delay).as_ps();
                    self.flying.push((at, self.order, node, mad));
                }
            }
        }
    }

    /// Brings the next thing to happen about: a datagram arrives or a timer fires, but not after
    /// `until`. False if nothing happens by then.
    pub(crate) fn step(&mut self, until: Instant) -> bool {
        self.drain();
        let now = self.now;
        let distance = |at: u64| Instant::from_ps(at).since(now);
        let arrival = self.flying.iter().map(|f| (distance(f.0), f.1)).min();
        let timer = self.cms.iter().filter_map(|cm| cm.poll_timeout()).map(|t| t.since(now)).min();
        let next = match (arrival, timer) {
            (Some((a, _)), Some(t)) => a.min(t),
            (Some((a, _)), None) => a,
            (None, Some(t)) => t,
            (None, None) => return false,
        };
        if until.since(now) < next {
            self.now = until;
            return false;
        }
        self.now = now + next;
        match arrival {
            Some((at, order)) if at == next => {
                let i = self.flying.iter().position(|f| f.1 == order).unwrap();
                let (_, _, from, mad) = self.flying.swap_remove(i);
                self.deliver(from, &mad);
            }
            _ => self.cms.iter_mut().for_each(|cm| cm.handle_timeout(self.now)),
        }
        self.drain();
        true
    }

    /// A datagram of node `from` arrives at the other.
    pub(crate) fn deliver(&mut self, from: usize, mad: &OutgoingMad) {
        let to = 1 - from;
        assert_eq!(mad.av.dgid, gid(to), "a datagram leaves for the wrong place");
        let answer = AddressVector { traffic_class: mad.av.traffic_class, ..av(from) };
        let origin = MadFrom { av: answer, local: gid(to) };
        self.cms[to].handle_mad(self.now, &origin, &mad.payload);
    }

    /// Lets everything happen for a while.
    pub(crate) fn run(&mut self, span: Span) {
        let until = self.now + span;
        while self.step(until) {}
        self.now = until;
    }

    /// The names of what was sent, with the senders, since the last call.
    pub(crate) fn transcript(&mut self) -> Vec<String> {
        let sent = std::mem::take(&mut self.sent);
        sent.iter().map(|(node, mad)| format!("{node} {}", describe(&mad.message))).collect()
    }

    /// Takes the events of a node.
    pub(crate) fn take_events(&mut self, node: usize) -> Vec<CmEvent> {
        self.drain();
        std::mem::take(&mut self.events[node])
    }

    /// Takes the only event of a node.
    pub(crate) fn event(&mut self, node: usize) -> CmEvent {
        let mut events = self.take_events(node);
        assert_eq!(events.len(), 1, "{events:?}");
        events.remove(0)
    }

    /// Takes the request that waits at node 1.
    pub(crate) fn incoming(&mut self) -> Incoming {
        match self.event(1) {
            CmEvent::Incoming(incoming) => *incoming,
            other => panic!("{other:?}"),
        }
    }

    /// Connects over a good wire; the ids at node 0 and node 1.
    pub(crate) fn connected(&mut self, qpns: (u32, u32)) -> (ConnId, ConnId) {
        let active = self.cms[0].connect(self.now, &request(qpns.0)).unwrap();
        self.run(Span::from_ms(10));
        let passive = self.incoming().id;
        self.cms[1].accept(self.now, passive, &Accept::new(Qpn::new(qpns.1))).unwrap();
        self.run(Span::from_ms(10));
        self.response();
        self.cms[0].establish(self.now, active).unwrap();
        self.run(Span::from_ms(10));
        assert_eq!(self.event(0), CmEvent::Established(active));
        assert_eq!(self.event(1), CmEvent::Established(passive));
        self.sent.clear();
        (active, passive)
    }

    /// Takes the response at node 0; its plan.
    pub(crate) fn response(&mut self) -> QpPlan {
        match self.event(0) {
            CmEvent::Response(response) => response.plan,
            other => panic!("{other:?}"),
        }
    }
}

fn describe(message: &CmMessage) -> String {
    match message {
        CmMessage::Rej(rej) => format!("REJ {} of {:?}", rej.reason.0, rej.subject),
        CmMessage::SidrRep(rep) => format!("SIDR_REP {}", rep.status.0),
        other => other.name().to_owned(),
    }
}
