//! Several hosts and the cables between them, driven from wake-up to wake-up. Everything that
//! happens goes into a hash, so that two runs can be compared.

use std::hash::{DefaultHasher, Hash, Hasher};

use engine::{DeviceConfig, FaultCounts, FaultSpec, FaultStage, TrainLimits};
use wire::{Instant, Span};

use super::cable::Flying;
use super::host::Host;
use super::inspect;
use super::memory::TestMemory;
use super::witness::Witness;

/// Wake-ups without the clock moving before the test calls it a standstill.
const STANDSTILL: usize = 200_000;

/// Hosts, cables, clock.
pub struct World {
    /// Virtual time.
    pub now: Instant,
    /// The hosts.
    pub hosts: Vec<Host>,
    /// One cable for each ordered pair of hosts.
    cables: Vec<FaultStage<Flying>>,
    /// The auditor at the port of the first host.
    pub witness: Option<Witness>,
    /// Packets travel as bytes with an ICRC.
    pub as_bytes: bool,
    /// Print each packet.
    pub verbose: bool,
    /// Packets sent, of all hosts.
    pub packets: u64,
    /// Damaged packets that the ICRC found.
    pub bad_icrc: u64,
    /// The run must not go on beyond this time.
    pub deadline: Option<Instant>,
    /// The last line per packet, for a failure's report.
    recent: std::collections::VecDeque<String>,
    /// How many of them to keep.
    pub keep_recent: usize,
    hash: DefaultHasher,
    at_this_time: usize,
}

impl World {
    /// A world of hosts with the same faults on all cables. Time starts at one second, so that
    /// arithmetic before the origin would show.
    pub fn new(hosts: Vec<(DeviceConfig, TestMemory, TrainLimits)>, faults: FaultSpec) -> Self {
        let hosts: Vec<Host> = hosts
            .into_iter()
            .map(|(config, memory, limits)| Host::new(config, memory, limits))
            .collect();
        let n = hosts.len() as u64;
        Self {
            now: Instant::ZERO + Span::from_ms(1000),
            cables: (0..n * n).map(|stream| FaultStage::new(faults, stream)).collect(),
            hosts,
            witness: None,
            as_bytes: false,
            verbose: false,
            packets: 0,
            bad_icrc: 0,
            deadline: None,
            recent: std::collections::VecDeque::new(),
            keep_recent: 0,
            hash: DefaultHasher::new(),
            at_this_time: 0,
        }
    }

    /// The cable from one host to another.
    pub fn cable(&mut self, from: usize, to: usize) -> &mut FaultStage<Flying> {
        let n = self.hosts.len();
        &mut self.cables[from * n + to]
    }

    /// Changes what all cables do; the delay stays.
    pub fn set_faults(&mut self, spec: FaultSpec) {
        self.cables.iter_mut().for_each(|cable| cable.set_spec(spec));
    }

    /// What the cables have done.
    pub fn fault_counts(&self) -> FaultCounts {
        let mut sum = FaultCounts::default();
        self.cables.iter().for_each(|cable| sum += cable.counts());
        sum
    }

    /// Adds to the hash of the run.
    pub fn note(&mut self, what: impl Hash) {
        what.hash(&mut self.hash);
    }

    /// The hash of everything so far.
    pub fn hash(&self) -> u64 {
        self.hash.finish()
    }

    /// Lets every host transmit what it has, and collects events.
    pub fn drain(&mut self) {
        for from in 0..self.hosts.len() {
            self.drain_host(from);
        }
    }

    /// The same for one host.
    pub fn drain_host(&mut self, from: usize) {
        let mut out = Vec::new();
        self.hosts[from].drain(self.now, |packet| out.push(packet));
        for packet in out {
            self.packets += 1;
            (self.now.as_ps(), from, &packet).hash(&mut self.hash);
            if self.verbose || self.keep_recent > 0 {
                self.tell(from, &packet);
            }
            if let Some(witness) = self.witness.as_mut().filter(|_| from == 0) {
                let payload = packet.payload.len();
                witness.see(self.now, &packet.path, &packet.bth, &packet.ext, payload);
            }
            let to = packet.path.destination;
            let flying =
                if self.as_bytes { Flying::emit(&packet) } else { Flying::Meaning(packet) };
            let n = self.hosts.len();
            for (index, host) in self.hosts.iter().enumerate() {
                let own = host.device.gids().iter().any(|entry| entry.gid == to);
                if own || (to.is_multicast() && index != from) {
                    self.cables[from * n + index].push(self.now, flying.clone());
                }
            }
        }
    }

    fn tell(&mut self, from: usize, packet: &wire::Packet<Vec<u8>>) {
        let line = format!(
            "{:>12} ns  host {from} -> qp {}  {}",
            self.now.as_ps() / 1000,
            packet.bth.dest_qp,
            inspect::line(packet)
        );
        if self.verbose {
            eprintln!("{line}");
        }
        if self.keep_recent > 0 {
            self.recent.push_back(line);
            if self.recent.len() > self.keep_recent {
                self.recent.pop_front();
            }
        }
    }

    /// The last packets, oldest first.
    pub fn recent(&self) -> impl Iterator<Item = &str> {
        self.recent.iter().map(String::as_str)
    }

    /// When something happens next.
    pub fn next_wake(&mut self) -> Option<Instant> {
        let now = self.now;
        let devices = self.hosts.iter_mut().filter_map(|host| host.device.poll_timeout(now));
        let cables = self.cables.iter().filter_map(FaultStage::next_due);
        devices.chain(cables).reduce(Instant::earlier)
    }

    /// Drains, moves the clock to the next wake-up and lets it happen: up to `batch` packets arrive
    /// on each cable before hosts transmit again. False if nothing will ever happen by itself.
    pub fn turn(&mut self, batch: usize) -> bool {
        self.drain();
        let Some(wake) = self.next_wake() else { return false };
        if self.now.is_before(wake) {
            self.now = wake;
            self.at_this_time = 0;
        }
        self.at_this_time += 1;
        assert!(
            self.at_this_time < STANDSTILL,
            "the clock stands at {:?}: a wake-up is due and nothing comes of it",
            self.now
        );
        self.check_progress();
        let (now, n) = (self.now, self.hosts.len());
        for index in 0..n * n {
            for _ in 0..batch {
                let Some(arrived) = self.cables[index].pop(now) else { break };
                self.deliver(index % n, &arrived.item);
            }
        }
        for host in &mut self.hosts {
            if host.device.poll_timeout(now).is_some_and(|at| at.is_due(now)) {
                host.device.handle_timeout(now);
            }
        }
        self.drain();
        true
    }

    fn deliver(&mut self, to: usize, item: &Flying) {
        let (now, host) = (self.now, &mut self.hosts[to]);
        let mut witness = self.witness.as_mut().filter(|_| to == 0);
        let arrived = item.arrive(|packet| {
            // What a host sends to itself was seen when it left.
            let passes = packet.path.source != packet.path.destination;
            if let Some(witness) = witness.as_mut().filter(|_| passes) {
                let payload = packet.payload.len();
                witness.see(now, &packet.path, &packet.bth, &packet.ext, payload);
            }
            host.device.receive(now, packet);
        });
        if arrived.is_none() {
            self.bad_icrc += 1;
        }
    }

    /// Panics if the run takes longer than it may, in virtual time.
    pub fn check_progress(&self) {
        if let Some(deadline) = self.deadline {
            assert!(self.now.is_before(deadline), "no completion by {deadline:?}: no progress");
        }
    }

    /// Turns until nothing happens by itself any more, or `span` has passed.
    pub fn settle(&mut self, span: Span) {
        let end = self.now + span;
        loop {
            self.drain();
            match self.next_wake() {
                Some(wake) if wake.is_before(end) => {
                    self.turn(usize::MAX);
                }
                _ => break,
            }
        }
        self.now = end;
    }
}
