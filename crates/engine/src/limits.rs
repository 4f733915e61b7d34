//! Every bound and default of the device, named.

use wire::Span;

/// Scatter-gather entries of a work request.
pub const MAX_SGE: u32 = 32;
/// Work requests in a queue.
pub const MAX_QP_WR: u32 = 1 << 15;
/// Work requests in a shared receive queue.
pub const MAX_SRQ_WR: u32 = 1 << 15;
/// Entries of a completion queue.
pub const MAX_CQE: u32 = 1 << 22;
/// Bytes of an inline send request.
pub const MAX_INLINE: u32 = 1024;
/// Bytes of a message.
pub const MAX_MESSAGE: u32 = 1 << 31;
/// READs and atomics outstanding, either way.
pub const MAX_RD_ATOMIC: u8 = 128;
/// Queue pairs of a device.
pub const MAX_QP: u32 = 1 << 14;
/// Completion queues of a device.
pub const MAX_CQ: u32 = 1 << 16;
/// Shared receive queues of a device.
pub const MAX_SRQ: u32 = 1 << 14;
/// Protection domains of a device.
pub const MAX_PD: u32 = 1 << 15;
/// Memory regions of a device.
pub const MAX_MR: u32 = 1 << 20;
/// Memory windows of a device.
pub const MAX_MW: u32 = 1 << 20;
/// Multicast attachments of a device.
pub const MAX_MCAST: u32 = 1 << 13;
/// GIDs of a port.
pub const MAX_GIDS: usize = 256;
/// An owed ACK may wait this long to leave behind the queue pair's own next packet.
pub const ACK_DELAY: Span = Span::from_us(20);
/// Hop limit where the application gives none.
pub const DEFAULT_HOP_LIMIT: u8 = 64;
/// Packets that may be in flight unacknowledged on a queue pair (fewer than 2^23, transport rules).
pub const MAX_PSN_OUTSTANDING: u64 = 1 << 22;
