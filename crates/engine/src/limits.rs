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
/// XRC domains of a device.
pub const MAX_XRCD: u32 = 1 << 14;
/// Multicast groups of a device.
pub const MAX_GROUPS: u32 = 256;
/// Queue pairs attached to a multicast group.
pub const MAX_MEMBERS: u32 = 1 << 10;
/// GIDs of a port.
pub const MAX_GIDS: usize = 256;
/// Most packets between two that ask for an acknowledgement.
pub const ACK_INTERVAL: u64 = 64;
/// An owed ACK may wait this long to leave behind the queue pair's own next packet.
pub const ACK_DELAY: Span = Span::from_us(20);
/// Least time without a sign of a peer before a live device probes for a lost tail.
pub const PROBE: Span = Span::from_us(500);
/// The same while nothing tells that packets get lost: peers in software answer late now and then,
/// by a time slice or two of the system's scheduler.
pub const PROBE_CALM: Span = Span::from_us(8000);
/// A live device does not wait less than this for an acknowledgement, whatever the timeout: peers
/// in software need the processor to answer. Adapters have such a bound too. Code 12: 16.8 ms.
pub const LEAST_TIMEOUT: Span = Span::from_ns((4096 << LEAST_TIMEOUT_CODE) as u64);
/// Its code.
pub const LEAST_TIMEOUT_CODE: u8 = 12;
/// When the last acknowledgement of a queue pair that has gone is repeated, counted from then.
pub const LAST_WORDS: [Span; 3] = [Span::from_us(1000), Span::from_us(3000), Span::from_us(7000)];
/// It is repeated if the peer asked for something within this time before: a peer that tries again
/// after 268 ms (timeout code 16; 14, 67 ms, is usual) has not had time to.
pub const LAST_WORDS_WITHIN: Span = Span::from_ms(300);
/// For so long a queue pair that has gone acknowledges what it had executed: timeouts up to code
/// 20.
pub const DEPARTED: Span = Span::from_ms(4500);
/// Queue pairs that have gone and are remembered.
pub const MAX_DEPARTED: usize = 1 << 12;
/// Questions and answers of flow control that wait to leave; further ones are as if lost.
pub const MAX_NOTES: usize = 1 << 12;
/// Datagram peers that were given up and are remembered.
pub const MAX_GONE: usize = 64;
/// Hop limit where the application gives none.
pub const DEFAULT_HOP_LIMIT: u8 = 64;
/// Packets that may be in flight unacknowledged on a queue pair (fewer than 2^23, transport rules).
pub const MAX_PSN_OUTSTANDING: u64 = 1 << 22;
/// Connections that a connection manager knows, those in time-wait included.
pub const MAX_CONNECTIONS: usize = 1 << 16;
/// Services that a connection manager listens on.
pub const MAX_LISTENERS: usize = 1 << 12;
/// Service resolutions under way, each direction.
pub const MAX_RESOLUTIONS: usize = 1 << 14;
/// Events of the connection manager that wait for the driver before new requests are not taken.
pub const MAX_CM_EVENTS: usize = 1 << 16;
/// Management datagrams that wait for the driver; more are lost, as on the wire.
pub const MAX_CM_OUTGOING: usize = 1 << 12;
/// Response timeout code asked of peers: 4.096 µs × 2^20 = 4.3 s.
pub const CM_RESPONSE_TIMEOUT: u8 = 20;
/// Least and greatest response timeout code that is taken from a peer: 67 ms, 17 s.
pub const CM_RESPONSE_TIMEOUTS: (u8, u8) = (14, 22);
/// Times that a management message is repeated at the full timeout.
pub const CM_RETRIES: u8 = 15;
/// Repeats before those, at 1/16, 1/8, 1/4 and 1/2 of the timeout: a lost message costs little.
pub const CM_QUICK_RETRIES: u8 = 4;
/// Service timeout code of an MRA, given and honoured at most: 69 s.
pub const CM_SERVICE_TIMEOUT: u8 = 24;
/// ACK timeout code that a connection gets where the application names none: 268 ms.
pub const CM_ACK_TIMEOUT: u8 = 16;
/// RNR timer code that a connection gets where the application names none: 0.64 ms.
pub const CM_MIN_RNR_TIMER: u8 = 12;
/// Target ACK delay code reported to peers: 4.096 µs × 2^15 = 134 ms.
pub const CM_ACK_DELAY: u8 = 15;
/// Least and greatest ACK timeout code from which the time-wait is reckoned (twice the time).
pub const CM_TIME_WAIT: (u8, u8) = (14, 20);
/// A request that the application does not answer is kept this long after the peer's last sign.
pub const CM_REQUEST_LIFETIME: Span = Span::from_ms(120_000);
/// How long a queue pair with nothing in flight waits for room in the peer's window, which other
/// queue pairs may hold, before it sends one packet nevertheless.
pub const WINDOW_PATIENCE: Span = Span::from_us(5000);
