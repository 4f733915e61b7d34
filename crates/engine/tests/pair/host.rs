//! One device with its memory, drained as its contract says: trains become packets (memory is read
//! exactly then), events are collected.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use engine::{
    Access, AsyncEvent, Completion, Cq, CqId, Device, DeviceConfig, Event, Fragment, Priorities,
    RegionAttr, RegionKeys, Train, TrainLimits, TxPacket,
};
use wire::{Gid, Instant, Packet, Path};

use super::inspect;
use super::memory::TestMemory;

/// Trains that one drain may give before the test calls it endless.
const ENDLESS: usize = 1 << 20;

/// A device and what it said.
pub struct Host {
    /// The device.
    pub device: Device<TestMemory>,
    /// Its first GID.
    pub gid: Gid,
    /// Asynchronous events not yet looked at.
    pub events: Vec<AsyncEvent>,
    /// Armed queues that raised their event.
    pub ready: BTreeSet<CqId>,
    /// Its completion queues.
    pub cqs: BTreeMap<CqId, Arc<Cq>>,
    /// Limits of the link.
    pub limits: TrainLimits,
    /// Priorities that may transmit.
    pub allowed: Priorities,
    train: Train,
    port_mtu: u32,
}

impl Host {
    /// A device with its memory.
    pub fn new(config: DeviceConfig, memory: TestMemory, limits: TrainLimits) -> Self {
        Self {
            gid: config.gids[0].gid,
            port_mtu: config.mtu.bytes(),
            device: Device::new(config, memory),
            events: Vec::new(),
            ready: BTreeSet::new(),
            cqs: BTreeMap::new(),
            limits,
            allowed: Priorities::ALL,
            train: Train::default(),
        }
    }

    /// Hands every packet that may leave now to `send`; the number of packets.
    pub fn drain(&mut self, now: Instant, mut send: impl FnMut(Packet<Vec<u8>>)) -> usize {
        let mut packets = 0;
        for _ in 0..ENDLESS {
            if !self.device.poll_transmit(now, self.limits, self.allowed, &mut self.train) {
                assert!(self.train.packets.is_empty(), "packets in a train that was not given");
                self.drain_events();
                return packets;
            }
            packets += self.train.packets.len();
            self.materialize(now, &mut send);
        }
        panic!("poll_transmit does not end");
    }

    /// Hands out the packets of at most one train; whether there was one.
    pub fn drain_one(&mut self, now: Instant, mut send: impl FnMut(Packet<Vec<u8>>)) -> bool {
        let more = self.device.poll_transmit(now, self.limits, self.allowed, &mut self.train);
        if more {
            self.materialize(now, &mut send);
        }
        more
    }

    /// Copies a train out of memory, up to the first packet whose memory has gone.
    fn materialize(&mut self, now: Instant, send: &mut impl FnMut(Packet<Vec<u8>>)) {
        inspect::train(&self.train, self.limits);
        let path: Path = self.train.path.expect("inspected");
        for (at, tx) in self.train.packets.iter().enumerate() {
            let Some(payload) = payload(&self.train, tx, self.device.memory()) else {
                self.device.handle_unreadable(now, &self.train, at);
                return;
            };
            let packet = Packet { path, bth: tx.bth, ext: tx.ext, payload };
            inspect::packet(&packet, self.port_mtu);
            send(packet);
        }
    }

    /// Collects what the device has to say besides packets.
    pub fn drain_events(&mut self) {
        while let Some(event) = self.device.poll_event() {
            match event {
                Event::Completion(cq) => {
                    self.ready.insert(cq);
                }
                Event::Async(event) => self.events.push(event),
            }
        }
    }

    /// A completion queue.
    pub fn create_cq(&mut self, capacity: u32) -> CqId {
        let (id, cq) = self.device.create_cq(capacity).expect("a completion queue");
        self.cqs.insert(id, cq);
        id
    }

    /// Takes all completions of a queue.
    pub fn poll_all(&mut self, cq: CqId) -> Vec<Completion> {
        let cq = &self.cqs[&cq];
        std::iter::from_fn(|| cq.poll_one()).collect()
    }

    /// Registers `length` bytes at host address `addr` under the same address.
    pub fn register(
        &mut self,
        pd: engine::PdId,
        addr: u64,
        length: u64,
        access: Access,
    ) -> RegionKeys {
        let attr = RegionAttr { pd, addr, length, iova: addr, access };
        let keys = self.device.reg_mr(&attr).expect("a registration");
        self.device.memory().permit(addr..addr + length, access.contains(Access::LOCAL_WRITE));
        keys
    }
}

/// The bytes that a packet carries; `None` if their memory has gone.
fn payload(train: &Train, tx: &TxPacket, memory: &TestMemory) -> Option<Vec<u8>> {
    let mut payload = Vec::with_capacity(tx.length as usize);
    for fragment in train.payload(tx) {
        match *fragment {
            Fragment::Memory { addr, length } => {
                payload.extend_from_slice(memory.read_by_device(addr, length as usize)?);
            }
            Fragment::Inline { start, length } => {
                payload.extend_from_slice(&train.inline[start as usize..(start + length) as usize])
            }
        }
    }
    Some(payload)
}
