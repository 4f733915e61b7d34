//! The bounds of everything that grows with a capture: memory stays flat however long it is.

/// Halves of conversations (source, destination, destination queue pair) that are remembered; the
/// one that was quiet longest makes room.
pub const HALVES: usize = 65_536;
/// Frames that a finding names.
pub const SAMPLE: usize = 8;
/// Findings of one rule with different subjects; further ones are summed up under one.
pub const SUBJECTS: usize = 256;
/// Numbers that a finding carries.
pub const NUMBERS: usize = 8;
/// Requests of one direction that are remembered while nobody has acknowledged them.
pub const OUTSTANDING: usize = 4096;
