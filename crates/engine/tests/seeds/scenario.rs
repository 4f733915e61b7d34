//! What a seed draws before anything happens: hosts, connections, depths, timeouts, faults.

use engine::{DeviceConfig, FaultSpec, QpType, TrainLimits};
use wire::{Mtu, Span};

use crate::pair::dice::Dice;
use crate::pair::setup;

/// The plan of a run.
#[derive(Debug)]
pub(crate) struct Scenario {
    pub(crate) hosts: Vec<HostPlan>,
    pub(crate) links: Vec<Link>,
    pub(crate) faults: FaultSpec,
    /// Packets travel as bytes with an ICRC.
    pub(crate) as_bytes: bool,
    /// Packets that arrive on a cable before hosts transmit again.
    pub(crate) batch: usize,
    /// When the faults end.
    pub(crate) heal_after: Span,
}

/// A host.
#[derive(Debug)]
pub(crate) struct HostPlan {
    pub(crate) config: DeviceConfig,
    pub(crate) limits: TrainLimits,
    /// Receive requests of all its queue pairs come from one queue.
    pub(crate) srq: bool,
    /// Completion queues.
    pub(crate) cqs: usize,
    /// Completion queues are polled only after their event.
    pub(crate) armed: bool,
}

/// A connection between two ends, or two datagram queue pairs.
#[derive(Debug)]
pub(crate) struct Link {
    pub(crate) service: QpType,
    /// The host of each end.
    pub(crate) host: [usize; 2],
    pub(crate) gid_index: u8,
    pub(crate) mtu: Mtu,
    /// Messages of 1 MiB occur.
    pub(crate) big: bool,
    pub(crate) side: [Side; 2],
}

/// One end of a connection.
#[derive(Debug)]
pub(crate) struct Side {
    /// Requests that it makes.
    pub(crate) budget: u32,
    pub(crate) max_send_wr: u32,
    pub(crate) max_send_sge: u32,
    pub(crate) receives: u32,
    pub(crate) rd_atomic: u8,
    pub(crate) timeout: u8,
    pub(crate) min_rnr_timer: u8,
    pub(crate) first_psn: u32,
    /// Percent of requests that are signaled.
    pub(crate) signaled: u64,
    pub(crate) sq_sig_all: bool,
    pub(crate) inline: u32,
    pub(crate) windows: usize,
}

impl Scenario {
    pub(crate) fn draw(seed: u64) -> Self {
        let dice = &mut Dice::new(seed, 1);
        let n = dice.pick(&[1, 2, 2, 2, 2, 2, 2, 3]);
        let hosts: Vec<_> = (0..n).map(|index| HostPlan::draw(dice, index, seed)).collect();
        let links = (0..dice.pick(&[1, 1, 1, 2, 2, 3, 5, 8]))
            .map(|_| Link::draw(dice, &hosts))
            .collect::<Vec<_>>();
        let big = links.iter().any(|link| link.big);
        Self {
            faults: faults(dice, seed, big),
            as_bytes: dice.percent(25),
            batch: dice.pick(&[1, 2, 8, usize::MAX]),
            heal_after: Span::from_us(dice.pick(&[500, 5_000, 50_000, 1_000_000])),
            hosts,
            links,
        }
    }
}

impl HostPlan {
    fn draw(dice: &mut Dice, index: usize, seed: u64) -> Self {
        let config = DeviceConfig {
            mtu: dice.pick(&[Mtu::B1024, Mtu::B4096, Mtu::B4096]),
            receive_buffer: dice.pick(&[65_536, 212_992, 212_992, 4 << 20]),
            ack_delay: dice.pick(&[Span::ZERO, Span::from_us(20)]),
            credits: dice.percent(50),
            ..setup::config(index, seed)
        };
        let limits = dice.pick(&[
            TrainLimits::SINGLE,
            TrainLimits { segments: 4, bytes: 9000 },
            TrainLimits { segments: 64, bytes: 65_000 },
        ]);
        Self {
            config,
            limits,
            srq: dice.percent(30),
            cqs: dice.pick(&[1, 2, 3]),
            armed: dice.percent(30),
        }
    }
}

impl Link {
    fn draw(dice: &mut Dice, hosts: &[HostPlan]) -> Self {
        let n = hosts.len() as u64;
        let a = dice.below(n) as usize;
        // Two hosts mostly talk to each other, sometimes to themselves.
        let b = if dice.percent(90) { (a + 1) % hosts.len() } else { a };
        let port = hosts[a].config.mtu.min(hosts[b].config.mtu);
        let mtus = [Mtu::B256, Mtu::B512, Mtu::B1024, Mtu::B2048, Mtu::B4096];
        let mtus: Vec<Mtu> = mtus.into_iter().filter(|mtu| *mtu <= port).collect();
        let service =
            dice.pick(&[QpType::Rc, QpType::Rc, QpType::Rc, QpType::Rc, QpType::Uc, QpType::Ud]);
        let big = service != QpType::Ud && dice.percent(8);
        Self {
            service,
            host: [a, b],
            gid_index: dice.below(2) as u8,
            mtu: dice.pick(&mtus),
            big,
            side: [Side::draw(dice, big), Side::draw(dice, big)],
        }
    }
}

impl Side {
    fn draw(dice: &mut Dice, big: bool) -> Self {
        Self {
            budget: dice.range(0..=if big { 8 } else { 40 }) as u32,
            max_send_wr: dice.pick(&[1, 2, 5, 16, 64]),
            max_send_sge: dice.pick(&[1, 2, 4, 32]),
            receives: dice.pick(&[1, 2, 8, 32]),
            rd_atomic: dice.pick(&[1, 2, 4, 16, 128]),
            timeout: dice.pick(&[8, 10, 12]),
            min_rnr_timer: dice.pick(&[1, 4, 8, 12]),
            first_psn: dice.pick(&[0, 1, 0xFF_FFFF, 0xFF_FFF0, 0x7F_FFF8, 0x12_3456]),
            signaled: dice.pick(&[100, 60, 20, 0]),
            sq_sig_all: dice.percent(10),
            inline: dice.pick(&[0, 64, 1024]),
            windows: dice.pick(&[0, 0, 1, 2]),
        }
    }
}

fn faults(dice: &mut Dice, seed: u64, big: bool) -> FaultSpec {
    let mut rate = || {
        // With packets by the ten thousand, a rate is given in smaller numbers.
        let most = if big { 10 } else { 50 };
        engine::Chance::from_ppb(dice.pick(&[0, 0, 1, 3, most / 2, most]) * 1_000_000)
    };
    FaultSpec {
        loss: rate(),
        dup: rate(),
        reorder: rate(),
        corrupt: rate(),
        delay: Span::from_us(dice.pick(&[0, 1, 5, 20, 200])),
        jitter: Span::from_us(dice.pick(&[0, 0, 3, 30])),
        rate: dice.pick(&[
            None,
            None,
            Some(wire::Rate::from_gbps(10)),
            Some(wire::Rate::from_gbps(1)),
        ]),
        queue: None,
        ecn: None,
        seed,
    }
    .with_queue(dice)
}

trait WithQueue {
    fn with_queue(self, dice: &mut Dice) -> Self;
}

impl WithQueue for FaultSpec {
    /// A limited link has a short queue at times, and marks at times.
    fn with_queue(mut self, dice: &mut Dice) -> Self {
        if self.rate.is_some() {
            self.queue = Some(dice.pick(&[32 << 10, 64 << 10]));
            let ecn = engine::EcnSpec {
                kmin: 5_000,
                kmax: 50_000,
                pmax: engine::Chance::from_percent(20),
            };
            self.ecn = dice.pick(&[None, Some(ecn)]);
        }
        self
    }
}
