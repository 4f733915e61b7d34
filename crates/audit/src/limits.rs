//! The bounds of everything that grows with a capture: memory stays flat however long it is.

/// Halves of conversations (source, destination, destination queue pair) that are remembered; the
/// one that was quiet longest makes room.
pub const HALVES: usize = 32_768;
/// Frames that a finding names.
pub const SAMPLE: usize = 8;
/// Findings of one rule with different subjects; further ones are summed up under one.
pub const SUBJECTS: usize = 256;
/// Numbers that a finding carries.
pub const NUMBERS: usize = 8;
/// Requests of one direction that are remembered while nobody has acknowledged them.
pub const OUTSTANDING: usize = 65_536;
/// Request packets that are remembered while nobody has acknowledged them, over all conversations.
pub const SENT: usize = 512 * 1024;
/// WRITEs, READs and atomics of one direction that are remembered with their keys.
pub const TARGETS: usize = 1024;
/// Gaps of one direction that are remembered.
pub const HOLES: usize = 16;
/// Packets of one direction that others have overtaken, the newest ones.
pub const LATES: usize = 8;
/// Damaged packets of one direction that are remembered until they are sent again.
pub const DAMAGED: usize = 64;
/// Answers of atomics of one direction that are remembered.
pub const ATOMICS: usize = 32;
/// A PSN farther than this from the expected one begins a new connection.
pub const NEW_EPOCH: u64 = 1 << 20;
/// Links (points of capture) on which pauses are judged.
pub const LINKS: usize = 256;
/// Senders of pauses or LLDP at one point that are told apart; a link has two.
pub const ENDS: usize = 8;
/// MAC addresses of a link's packets that are remembered.
pub const NAMED: usize = 16;
/// Addresses behind an end of a link that are remembered, by priority.
pub const ADDRESSES_BEHIND: usize = 32;
/// Paused links among which rings are looked for.
pub const RING_EDGES: usize = 32;
/// Rings of pauses that are told apart.
pub const RINGS: usize = 64;
/// LLDP agents of one point that are told apart; a link has two.
pub const AGENTS: usize = 8;
/// Handshakes of the connection manager that are remembered; the oldest makes room.
pub const HANDSHAKES: usize = 16_384;
/// Frames of a handshake that are remembered.
pub const HANDSHAKE_FRAMES: usize = 12;
/// Repetitions of a connection manager's message that are remembered while nobody answers: as many
/// as a REQ can ask for.
pub const CM_RETRIES: usize = 15;
/// Agreements of the connection manager that wait for the first packet of a half.
pub const ANNOUNCED: usize = 16_384;
/// Stretches of time of a plotted series.
pub const BUCKETS: usize = 512;
/// Points of a plotted series.
pub const POINTS: usize = 1024;
/// Conversations whose series are kept: the busiest. One that becomes busy later takes the place of
/// the least busy, and its series begins there. As many others are counted.
pub const PLOTTED: usize = 256;
/// Requests of one direction whose answers are timed for the plots.
pub const ROUND_TRIPS: usize = 128;
/// Packets that are remembered to be compared with their copies at other points of capture.
pub const COPIES: usize = 32_768;
/// Ports whose pauses are remembered as a sign of queues.
pub const PAUSERS: usize = 64;
/// Flows with wrong ICRCs that are looked at for what their packets have in common.
pub const WRONG_FLOWS: usize = 4096;
/// Wrong packets of a flow that are remembered until that is clear.
pub const WRONG_OPEN: usize = 8;
/// Truncated packets that are remembered until it is clear that the capture was not cut.
pub const SHORT_OPEN: usize = 64;
/// Requests for a part of one READ's responses that are remembered.
pub const ASKS: usize = 64;
/// Pairs of ends that are remembered of halves that were forgotten.
pub const ENDS_OF_FORGOTTEN: usize = 4096;
/// Source ports between two ends that are told apart; with as many there is entropy.
pub const PORTS: usize = 1024;
