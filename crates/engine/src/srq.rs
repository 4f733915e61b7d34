//! Shared receive queues and their limit event.

/// Names a shared receive queue of a device.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct SrqId(pub u32);

/// Attributes of a shared receive queue.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct SrqAttr {
    /// Receive requests that fit.
    pub max_wr: u32,
    /// Scatter-gather entries of a request.
    pub max_sge: u32,
    /// Raise `SRQ_LIMIT_REACHED` once when fewer requests than this are left; 0 is off.
    pub limit: u32,
}
