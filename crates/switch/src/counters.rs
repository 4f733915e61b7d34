//! What a switch counts, under the names that adapters and switches use (`ethtool -S`, SONiC).

/// Why a frame did not leave.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum DropCause {
    /// Headroom of a lossless priority was full: a misconfigured fabric.
    Headroom,
    /// The pool or the queue's share of it was full.
    Buffer,
    /// No route, no member of the VLAN.
    NoRoute,
    /// The hop limit ran out.
    HopLimit,
    /// The egress link is down.
    LinkDown,
    /// The watchdog empties the queue.
    Watchdog,
    /// It would leave where it came in.
    Reflection,
    /// A copy for a mirror found no room.
    Mirror,
}

/// Counters of a priority at a port.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct PriorityCounters {
    /// Frames and bytes received.
    pub rx_frames: u64,
    /// Bytes received.
    pub rx_bytes: u64,
    /// Frames sent.
    pub tx_frames: u64,
    /// Bytes sent.
    pub tx_bytes: u64,
    /// Pause frames received that stop the priority (`rx_prioN_pause`).
    pub rx_pause: u64,
    /// Pause frames sent (`tx_prioN_pause`), refreshes included, resumes not.
    pub tx_pause: u64,
    /// Times that the priority went from running to stopped.
    pub rx_pause_transition: u64,
    /// Picoseconds that the priority was stopped.
    pub rx_pause_duration: u64,
    /// Packets marked CE.
    pub ecn_marked: u64,
    /// Frames dropped at this ingress for want of headroom (`rx_prioN_buf_discard`).
    pub rx_buf_discard: u64,
    /// Frames dropped for want of shared buffer (`rx_prioN_cong_discard`).
    pub rx_cong_discard: u64,
    /// The most bytes that the ingress count has held.
    pub ingress_watermark: u64,
    /// The most bytes that the egress queue has held.
    pub egress_watermark: u64,
}

/// Counters of a port.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct PortCounters {
    /// Each priority (ingress) or queue (egress).
    pub priorities: [PriorityCounters; 8],
    /// Frames not sent on, by cause, for which this port was the ingress.
    pub dropped: std::collections::BTreeMap<DropCause, u64>,
    /// LLDP frames that were not understood.
    pub lldp_discards: u64,
    /// Watchdog: storms detected and ended.
    pub storms: (u64, u64),
}
