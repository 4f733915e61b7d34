//! What a switch is made of: ports, buffer, classes, thresholds. Validation of whole configurations
//! and the calculators that give sensible ones are elsewhere.

use wire::{Mac, Rate, Span};

/// A switch.
#[derive(Clone, PartialEq, Debug)]
pub struct SwitchConfig {
    /// Seed of the flow hash and of marking.
    pub seed: u64,
    /// The switch's own address; port `i` sends pauses with its last two bytes increased by `i`.
    pub mac: Mac,
    /// Its ports.
    pub ports: Vec<PortConfig>,
    /// The memory that all ports share.
    pub buffer: Buffer,
    /// Whether a frame's priority comes from its DSCP or its tag.
    pub trust: Trust,
    /// Priority of each DSCP; default: the upper three bits.
    pub dscp_map: [u8; 64],
    /// Traffic class (queue) of each priority; default: its own.
    pub class_of: [u8; 8],
}

/// A port.
#[derive(Clone, PartialEq, Debug)]
pub struct PortConfig {
    /// Rate of the link.
    pub rate: Rate,
    /// Lossless priorities, and how.
    pub pfc: [Option<PfcPriority>; 8],
    /// Obeys and sends pauses of the whole link (802.3x) in place of PFC.
    pub link_pause: bool,
    /// Marking of each queue.
    pub ecn: [Option<EcnProfile>; 8],
    /// How queues take turns.
    pub scheduling: [Scheduling; 8],
}

/// A lossless priority at a port.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PfcPriority {
    /// Bytes kept for what arrives after a pause has been sent.
    pub headroom: u64,
    /// A static XOFF threshold in bytes of shared buffer; none: the pool's dynamic threshold.
    pub xoff: Option<u64>,
    /// The pause ends when the ingress count is this far below the threshold.
    pub xon_offset: u64,
    /// Quanta asked for in a pause; refreshed at half the time while the pause lasts.
    pub quanta: u16,
}

/// The buffer.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Buffer {
    /// All bytes.
    pub total: u64,
    /// Bytes kept for each port and lossless priority.
    pub reserve: u64,
    /// What an ingress port and priority may take of the free shared pool.
    pub alpha: Alpha,
    /// What a lossy egress queue may take of it; none: only the pool's end stops it.
    pub egress_alpha: Option<Alpha>,
    /// Space is counted in cells of so many bytes (0 and 1: in bytes).
    pub cell: u32,
}

/// A dynamic threshold: `free shared bytes × numerator / denominator`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Alpha {
    /// Numerator.
    pub numerator: u32,
    /// Denominator, not 0.
    pub denominator: u32,
}

/// When a queue is marked.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum EcnAt {
    /// When a packet enters the queue, by the length before it.
    Enqueue,
    /// When it leaves, by the length left behind it.
    Dequeue,
}

/// RED marking of a queue (DCQCN paper, section 3.1).
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct EcnProfile {
    /// Bytes up to which nothing is marked.
    pub kmin: u64,
    /// Bytes above which everything is.
    pub kmax: u64,
    /// Chance at `kmax`, in parts of 10^9.
    pub pmax_ppb: u32,
    /// Which length counts.
    pub at: EcnAt,
    /// Weight of a new sample of the length as a power of two (0: the instantaneous length).
    pub average_shift: u8,
}

/// How a queue is served.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Scheduling {
    /// Before all lower queues.
    Strict,
    /// In turn by weight (ETS by deficit round robin), behind the strict ones.
    Weighted(Bandwidth),
}

/// A weight of ETS, in per cent or any other common unit; not 0.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Bandwidth(pub u8);

/// Where a frame's priority comes from.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Trust {
    /// The DSCP of an IP packet (tag or 0 otherwise).
    Dscp,
    /// The tag's priority code point (0 without a tag).
    Pcp,
}

impl SwitchConfig {
    /// The usual map: the upper three bits of the DSCP.
    pub const DSCP_MAP: [u8; 64] = {
        let mut map = [0; 64];
        let mut i = 0;
        while i < 64 {
            map[i] = (i >> 3) as u8;
            i += 1;
        }
        map
    };
    /// Every priority has a queue of its own.
    pub const CLASS_OF: [u8; 8] = [0, 1, 2, 3, 4, 5, 6, 7];
    /// How long a learned address is kept without a sign of it.
    pub const AGEING: Span = Span::from_ms(300_000);
}
