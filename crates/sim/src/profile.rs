//! Ready-made NICs and switches, and how thresholds follow from cables.

use engine::{Congestion, Control, Dcqcn, Notification};
use switch::{
    Alpha, Balance, Bandwidth, Buffer, EcnAt, EcnProfile, Options, PfcPriority, PortConfig,
    Scheduling, SwitchConfig, Trust,
};
use wire::{Mac, Mtu, Rate, Span};

use crate::network::{NicSpec, SwitchSpec};
use crate::topology::Wire;

/// How much headroom a lossless priority has.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Headroom {
    /// So many bytes.
    Bytes(u64),
    /// What arrives in a round trip at the cable's rate, while the peer reacts, and two of the
    /// largest frames with a pause between (802.1Qbb, annex O in short): `rate × (2 × delay +
    /// reaction) + 2 × frame + 64`.
    Cable {
        /// The largest frame, in bytes.
        frame: u64,
        /// How long the peer takes to obey.
        reaction: Span,
    },
    /// As the HPCC simulator has it: `rate × delay × 3`.
    Hpcc,
}

/// What a lossless priority is given.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Lossless {
    /// Its headroom.
    pub headroom: Headroom,
    /// A static threshold of shared bytes; none: the dynamic one.
    pub xoff: Option<u64>,
    /// The pause ends so far below the threshold.
    pub xon_offset: u64,
    /// Quanta of a pause.
    pub quanta: u16,
}

/// Marking as it depends on a port's rate.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Marking {
    /// The same at all ports.
    Same(EcnRule),
    /// Kmin and Kmax for each Gb/s of the port, in bytes.
    PerGbps(EcnRule),
}

/// Thresholds of marking.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct EcnRule {
    /// Bytes up to which nothing is marked.
    pub kmin: u64,
    /// Bytes above which everything is.
    pub kmax: u64,
    /// Chance at `kmax`, in parts of 10^9.
    pub pmax_ppb: u32,
    /// When it is decided.
    pub at: EcnAt,
}

/// What switches of a network are made of.
#[derive(Clone, PartialEq, Debug)]
pub struct SwitchProfile {
    /// Buffer.
    pub buffer: Buffer,
    /// Lossless priorities.
    pub lossless: [Option<Lossless>; 8],
    /// Marking of each queue.
    pub marking: [Option<Marking>; 8],
    /// How queues take turns.
    pub scheduling: [Scheduling; 8],
    /// Where priorities come from.
    pub trust: Trust,
    /// Priority of each DSCP.
    pub dscp_map: [u8; 64],
    /// How flows are spread.
    pub balance: Balance,
    /// The buffer's alpha halves its denominator with each doubling of the port's rate above this
    /// one, as in the HPCC simulator.
    pub alpha_rate: Option<Rate>,
    /// Pauses last until they are taken back.
    pub endless_pauses: bool,
    /// Seed of hashes and marks; each switch adds its number.
    pub seed: u64,
}

impl SwitchProfile {
    /// A buffer of `total` bytes under a dynamic threshold of an eighth, priority 3 lossless, CNPs
    /// first, and marks from 5 to 200 KB at 1 % as in the DCQCN paper.
    pub fn shared(total: u64) -> Self {
        let mut lossless = [None; 8];
        lossless[3] = Some(Lossless {
            headroom: Headroom::Cable { frame: 1522, reaction: Span::from_ns(500) },
            xoff: None,
            xon_offset: 3 * 1024,
            quanta: 0xFFFF,
        });
        let mut marking = [None; 8];
        let rule = EcnRule { kmin: 5_000, kmax: 200_000, pmax_ppb: 10_000_000, at: EcnAt::Enqueue };
        marking[3] = Some(Marking::Same(rule));
        let mut scheduling = [Scheduling::Weighted(Bandwidth(10)); 8];
        scheduling[6] = Scheduling::Strict;
        Self {
            buffer: Buffer {
                total,
                reserve: 4096,
                alpha: Alpha { numerator: 1, denominator: 8 },
                egress_alpha: None,
                cell: 0,
            },
            lossless,
            marking,
            scheduling,
            trust: Trust::Dscp,
            dscp_map: SwitchConfig::DSCP_MAP,
            balance: Balance::Flow,
            alpha_rate: None,
            endless_pauses: false,
            seed: 1,
        }
    }

    /// A switch of this profile with ports for these cables. `node` is its number in the network.
    pub fn switch(&self, name: String, node: u32, wires: &[Wire]) -> SwitchSpec {
        let ports = wires.iter().map(|wire| self.port(wire)).collect();
        let [a, b, c, d] = node.to_be_bytes();
        let config = SwitchConfig {
            seed: self.seed.wrapping_add(u64::from(node)),
            mac: Mac([0x02 | (a << 2), b, c, d, 0, 0]),
            ports,
            buffer: self.buffer,
            trust: self.trust,
            dscp_map: self.dscp_map,
            class_of: SwitchConfig::CLASS_OF,
        };
        let options = Options {
            endless_pauses: self.endless_pauses,
            port_alpha: wires.iter().map(|wire| self.alpha(wire.rate)).collect(),
            ..Options::default()
        };
        SwitchSpec { name, config, balance: self.balance, options }
    }

    fn alpha(&self, rate: Rate) -> Option<Alpha> {
        let base = self.alpha_rate?.as_bps().max(1);
        let doublings = (rate.as_bps() / base).max(1).ilog2();
        let Alpha { numerator, denominator } = self.buffer.alpha;
        Some(Alpha { numerator, denominator: (denominator >> doublings).max(1) })
    }

    /// The HPCC simulator's switch: a reserve of 4 KiB, headroom of three delays, resume 3 KiB
    /// below a threshold of an eighth of what is free (a quarter, a half … at faster ports than
    /// `nic`), endless pauses, marks at dequeue by the port's rate, one flow hash.
    pub fn hpcc(total: u64, nic: Rate, marking: Marking) -> Self {
        let mut profile = Self::shared(total);
        let lossless =
            Lossless { headroom: Headroom::Hpcc, xoff: None, xon_offset: 3 * 1024, quanta: 0xFFFF };
        // It keeps reserve and headroom once for a port: one priority is used.
        profile.lossless[3] = Some(lossless);
        profile.marking[3] = Some(marking);
        profile.alpha_rate = Some(nic);
        profile.endless_pauses = true;
        profile
    }

    fn port(&self, wire: &Wire) -> PortConfig {
        let pfc = self.lossless.map(|lossless| {
            lossless.map(|l| PfcPriority {
                headroom: l.headroom.bytes(wire),
                xoff: l.xoff,
                xon_offset: l.xon_offset,
                quanta: l.quanta,
            })
        });
        PortConfig {
            rate: wire.rate,
            pfc,
            link_pause: false,
            ecn: self.marking.map(|marking| marking.map(|m| m.at(wire.rate))),
            scheduling: self.scheduling,
        }
    }
}

impl Headroom {
    /// The bytes for a cable.
    pub fn bytes(self, wire: &Wire) -> u64 {
        let bits = |span: u128| u128::from(wire.rate.as_bps()) * span / 8_000_000_000_000;
        let delay = u128::from(wire.delay.as_ps());
        match self {
            Self::Bytes(bytes) => bytes,
            Self::Cable { frame, reaction } => {
                let span = 2 * delay + u128::from(reaction.as_ps());
                bits(span) as u64 + 2 * frame + 64
            }
            Self::Hpcc => bits(3 * delay) as u64,
        }
    }
}

impl Marking {
    fn at(self, rate: Rate) -> EcnProfile {
        let (rule, times) = match self {
            Self::Same(rule) => (rule, 1),
            Self::PerGbps(rule) => (rule, rate.as_bps() / 1_000_000_000),
        };
        EcnProfile {
            kmin: rule.kmin * times,
            kmax: rule.kmax * times,
            pmax_ppb: rule.pmax_ppb,
            at: rule.at,
            average_shift: 0,
        }
    }
}

/// A NIC of 25 Gb/s or 100 Gb/s as they come: MTU 1024, DCQCN as adapters have it.
pub fn connectx(line: Rate) -> NicSpec {
    let control = Control::Dcqcn(Dcqcn::VENDOR);
    NicSpec {
        mtu: Mtu::B1024,
        ack_delay: Span::ZERO,
        segment: None,
        ack_interval: engine::limits::ACK_INTERVAL,
        acks_apart: false,
        congestion: Congestion {
            control,
            line,
            notification: Notification::VENDOR,
            overhead: None,
        },
    }
}
