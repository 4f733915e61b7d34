//! A run: the hosts of a scenario are built, work is posted and completions are taken between the
//! wake-ups of the world, until everything is done; then everything is looked at once more.

use std::collections::{BTreeMap, VecDeque};
use std::fmt;

use engine::{Access, CqId, FaultCounts, FaultSpec, PdId, QpType, SrqId, WcOpcode};
use wire::Span;

use crate::atomics::Words;
use crate::end::{Area, End, Slot};
use crate::pair::dice::Dice;
use crate::pair::memory::TestMemory;
use crate::pair::witness::{self, Witness};
use crate::pair::world::World;
use crate::scenario::Scenario;

/// After healing, everything is done within this time.
const RECOVERY: Span = Span::from_ms(60_000);
/// Bytes of read-only memory that messages are made of, beside one message of the longest kind.
const SOURCE: u64 = 64 << 10;
/// The longest message of the big kind.
pub(crate) const BIG: u32 = 1 << 20;
/// Words that atomics of a host's peers work on.
const WORDS: u64 = 8;

/// A host as the application sees it.
pub(crate) struct Site {
    pub(crate) pd: PdId,
    /// What its memory must hold.
    pub(crate) shadow: Vec<u8>,
    pub(crate) base: u64,
    pub(crate) cqs: Vec<CqId>,
    pub(crate) armed: bool,
    pub(crate) source: Area,
    pub(crate) words: Words,
    pub(crate) srq: Option<SrqId>,
    /// Receive requests in its shared receive queue.
    pub(crate) srq_posted: u32,
    /// Receive requests that are posted, by `wr_id`.
    pub(crate) slots: BTreeMap<u64, Slot>,
    pub(crate) next_wr: u64,
    /// First byte not yet given to an area.
    pub(crate) free: u64,
}

/// Everything of a run.
pub(crate) struct Run {
    pub(crate) dice: Dice,
    pub(crate) world: World,
    pub(crate) sites: Vec<Site>,
    pub(crate) ends: Vec<End>,
    pub(crate) plan: Scenario,
    pub(crate) report: Report,
}

/// What a run did.
#[derive(Clone, Debug, Default)]
pub(crate) struct Report {
    pub(crate) hash: u64,
    pub(crate) packets: u64,
    pub(crate) bytes: u64,
    pub(crate) sends: u64,
    pub(crate) writes: u64,
    pub(crate) reads: u64,
    pub(crate) atomics: u64,
    pub(crate) local: u64,
    pub(crate) datagrams: u64,
    pub(crate) lost_messages: u64,
    pub(crate) retransmitted: u64,
    pub(crate) bad_icrc: u64,
    pub(crate) faults: FaultCounts,
}

impl Report {
    pub(crate) fn add(&mut self, other: &Self) {
        self.packets += other.packets;
        self.bytes += other.bytes;
        self.sends += other.sends;
        self.writes += other.writes;
        self.reads += other.reads;
        self.atomics += other.atomics;
        self.local += other.local;
        self.datagrams += other.datagrams;
        self.lost_messages += other.lost_messages;
        self.retransmitted += other.retransmitted;
        self.bad_icrc += other.bad_icrc;
        self.faults += other.faults;
    }

    pub(crate) fn count(&mut self, service: QpType, opcode: WcOpcode, bytes: usize) {
        self.bytes += bytes as u64;
        *match opcode {
            WcOpcode::Send if service == QpType::Ud => &mut self.datagrams,
            WcOpcode::Send => &mut self.sends,
            WcOpcode::RdmaWrite => &mut self.writes,
            WcOpcode::RdmaRead => &mut self.reads,
            WcOpcode::CompSwap | WcOpcode::FetchAdd => &mut self.atomics,
            _ => &mut self.local,
        } += 1;
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let operations =
            self.sends + self.writes + self.reads + self.atomics + self.local + self.datagrams;
        write!(
            f,
            "{operations} operations ({} SEND, {} WRITE, {} READ, {} atomic, {} local, {} \
             datagram), {} bytes in {} packets ({} sent again); {} faults: {} lost, {} duplicated, \
             {} reordered, {} corrupted ({} found by the ICRC), {} dropped by a full queue, {} \
             marked; {} messages of unreliable services lost",
            self.sends,
            self.writes,
            self.reads,
            self.atomics,
            self.local,
            self.datagrams,
            self.bytes,
            self.packets,
            self.retransmitted,
            self.faults.total(),
            self.faults.lost,
            self.faults.duplicated,
            self.faults.reordered,
            self.faults.corrupted,
            self.bad_icrc,
            self.faults.overflowed,
            self.faults.marked,
            self.lost_messages,
        )
    }
}

/// Runs a seed to its end; panics if a promise is broken.
pub(crate) fn run(seed: u64, verbose: bool) -> Report {
    let plan = Scenario::draw(seed);
    if verbose {
        eprintln!("seed {seed}: {plan:#?}");
    }
    let mut run = Run::build(plan, seed, verbose);
    run.work();
    run.judge();
    run.finish()
}

impl Run {
    fn build(plan: Scenario, seed: u64, verbose: bool) -> Self {
        let mut dice = Dice::new(seed, 2);
        let big = plan.links.iter().any(|link| link.big);
        let longest = if big { u64::from(BIG) } else { 0 };
        let mut hosts = Vec::new();
        for (index, host) in plan.hosts.iter().enumerate() {
            let size: u64 = SOURCE
                + longest
                + 8192
                + plan.links.iter().map(|link| 2 * End::footprint(link)).sum::<u64>();
            let base = 0x7000_0000_0000 + ((index as u64 + 1) << 32);
            let mut memory = TestMemory::new(base, size as usize);
            dice.fill(memory.slice_mut(base, size as usize));
            hosts.push((host.config.clone(), memory, host.limits));
        }
        let mut world = World::new(hosts, plan.faults);
        world.as_bytes = plan.as_bytes;
        world.witness = Some(Witness::default());
        world.verbose = verbose && std::env::var_os("CROCEVIA_PACKETS").is_some();
        let sites = Vec::new();
        let report = Report::default();
        let mut run = Self { dice, world, sites, ends: Vec::new(), plan, report };
        let least = run.dice.pick(&[None, Some(engine::limits::PROBE)]);
        for index in 0..run.plan.hosts.len() {
            run.world.hosts[index].device.set_probe(least);
            run.build_site(index, SOURCE + longest);
        }
        for index in 0..run.plan.links.len() {
            run.build_link(index);
        }
        run
    }

    fn build_site(&mut self, index: usize, source: u64) {
        let plan = &self.plan.hosts[index];
        let host = &mut self.world.hosts[index];
        let pd = host.device.alloc_pd().expect("a domain");
        let cqs: Vec<CqId> = (0..plan.cqs).map(|_| host.create_cq(16_384)).collect();
        let armed = plan.armed;
        let srq = plan.srq.then(|| {
            let attr = engine::SrqAttr { max_wr: 64, max_sge: 4, limit: 0 };
            host.device.create_srq(pd, &attr).expect("a shared receive queue")
        });
        let memory = host.device.memory();
        let (base, size) = (memory.base(), memory.all().len() as u64);
        let mut site = Site {
            pd,
            shadow: memory.all().to_vec(),
            base,
            cqs,
            armed,
            source: Area::default(),
            words: Words::default(),
            srq,
            srq_posted: 0,
            slots: BTreeMap::new(),
            next_wr: 1 << 63,
            free: base + 4096,
        };
        assert!(size > source, "memory for the source");
        self.sites.push({
            site.words.count = WORDS;
            site
        });
        let access = Access::LOCAL_WRITE | Access::REMOTE_ATOMIC | Access::REMOTE_READ;
        self.sites[index].source = self.area(index, source, Access::empty());
        self.sites[index].words.area = self.area(index, 8 * WORDS, access);
        let site = &mut self.sites[index];
        let (at, count) = (site.words.area.addr, site.words.count);
        site.words.initial = (0..count).map(|i| site.word(at + 8 * i)).collect();
        if site.armed {
            self.world.hosts[index].cqs.values().for_each(|cq| cq.req_notify(false));
        }
    }

    /// A registered area of a host, under an address of its own at times.
    pub(crate) fn area(&mut self, host: usize, length: u64, access: Access) -> Area {
        let site = &mut self.sites[host];
        let addr = site.free;
        site.free = (addr + length + 256).next_multiple_of(256);
        assert!(
            site.free <= site.base + site.shadow.len() as u64,
            "the host's memory is too small"
        );
        let iova = self.dice.pick(&[addr, addr, 0x1000, addr ^ 0x5555_0000_0000_0000]);
        let attr = engine::RegionAttr { pd: site.pd, addr, length, iova, access };
        let device = &mut self.world.hosts[host].device;
        let keys = device.reg_mr(&attr).expect("a registration");
        device.memory().permit(addr..addr + length, access.contains(Access::LOCAL_WRITE));
        Area { addr, length, iova, lkey: keys.lkey, rkey: keys.rkey }
    }

    fn work(&mut self) {
        let heal_at = self.world.now + self.plan.heal_after;
        let mut healed = false;
        loop {
            self.application(false);
            if self.is_done() {
                return;
            }
            if !self.world.turn(self.plan.batch) {
                assert!(
                    self.application(true),
                    "standstill at {:?}: nothing is due and nothing can be done\n{}",
                    self.world.now,
                    self.describe()
                );
            }
            if !healed && heal_at.is_due(self.world.now) {
                healed = true;
                self.world.set_faults(FaultSpec::NONE);
                self.world.deadline = Some(self.world.now + RECOVERY);
            }
        }
    }

    /// What applications do between two wake-ups; whether anything was done. With `all`, everything
    /// that can be done is.
    fn application(&mut self, all: bool) -> bool {
        let mut done = false;
        for host in 0..self.sites.len() {
            done |= self.take_completions(host, all);
        }
        for end in 0..self.ends.len() {
            if all || self.dice.percent(30) {
                done |= self.post_receives(end);
            }
            if all || self.dice.percent(30) {
                for _ in 0..self.dice.range(1..=8) {
                    if !self.post_request(end) {
                        break;
                    }
                    done = true;
                }
            }
            done |= self.tend_windows(end);
        }
        done
    }

    fn take_completions(&mut self, host: usize, all: bool) -> bool {
        let mut any = false;
        for cq in self.sites[host].cqs.clone() {
            if self.sites[host].armed {
                if self.world.hosts[host].ready.remove(&cq) {
                    // Take, arm, take again: no completion may slip through between.
                    any |= self.take(host, cq, u64::MAX);
                    self.world.hosts[host].cqs[&cq].req_notify(false);
                    any |= self.take(host, cq, u64::MAX);
                }
            } else if all || self.dice.percent(60) {
                let most = if all { u64::MAX } else { self.dice.range(1..=16) };
                any |= self.take(host, cq, most);
            }
        }
        any
    }

    fn take(&mut self, host: usize, cq: CqId, most: u64) -> bool {
        let mut taken = 0;
        while taken < most {
            let Some(wc) = self.world.hosts[host].cqs[&cq].poll_one() else { break };
            taken += 1;
            self.completion(host, cq, &wc);
        }
        taken > 0
    }

    /// What the auditor says: that packets were lost, and no end broke a rule.
    fn judge(&mut self) {
        let Some(witness) = self.world.witness.take() else { return };
        let report = witness.finish();
        let blamed = witness::codes(&report);
        let faulty = |code: &&str| !witness::OF_THE_NETWORK.contains(code);
        assert!(!blamed.iter().any(faulty), "{}", witness::tell(&report));
    }

    fn is_done(&self) -> bool {
        self.ends.iter().all(|end| {
            end.left == 0
                && end.posted.is_empty()
                && (end.service != QpType::Rc || end.incoming.is_empty())
        })
    }

    pub(crate) fn describe(&self) -> String {
        let mut out = String::new();
        for (index, end) in self.ends.iter().enumerate() {
            out += &format!(
                "end {index} (host {}, {:?} {}): {} to post, {} unfinished (oldest {:?}), {} \
                 messages to come, {} receives posted\n",
                end.host,
                end.service,
                end.qpn,
                end.left,
                end.posted.len(),
                end.posted.front().map(|p| (p.wr_id, p.opcode)),
                end.incoming.len(),
                end.receives_posted.len(),
            );
        }
        if std::env::var_os("CROCEVIA_STATE").is_some() {
            for (index, host) in self.world.hosts.iter().enumerate() {
                out += &format!("host {index}: {:#?}\n", host.device);
            }
        }
        out
    }

    fn finish(mut self) -> Report {
        // Stray packets and late timers must not change anything any more.
        self.world.set_faults(FaultSpec::NONE);
        self.world.deadline = None;
        self.world.settle(Span::from_ms(100));
        self.check_end();
        let mut report = self.report;
        report.hash = self.world.hash();
        report.packets = self.world.packets;
        report.bad_icrc = self.world.bad_icrc;
        report.faults = self.world.fault_counts();
        for host in &self.world.hosts {
            report.retransmitted += host.device.counters().retransmitted_packets;
        }
        report
    }
}

impl Site {
    pub(crate) fn at(&self, addr: u64, length: usize) -> std::ops::Range<usize> {
        let start = (addr - self.base) as usize;
        start..start + length
    }

    /// What a word of memory must hold.
    pub(crate) fn word(&self, addr: u64) -> u64 {
        u64::from_ne_bytes(self.shadow[self.at(addr, 8)].try_into().expect("eight bytes"))
    }
}

/// What a requester has posted and not yet seen done, oldest first.
pub(crate) type Unfinished = VecDeque<crate::end::Posted>;
