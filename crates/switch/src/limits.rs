//! How much a switch keeps, whatever its neighbours send.

/// Destinations whose way is remembered.
pub(crate) const CACHED: usize = 256;
/// Flows whose bursts are told apart.
pub(crate) const FLOWLETS: usize = 1 << 12;
/// Addresses learned; further ones are flooded.
pub(crate) const LEARNED: usize = 1 << 17;
/// Boxes of pause frames received that are kept for those to send.
pub(crate) const SPARE: usize = 64;
/// Events that nobody has asked for; later ones are lost.
pub(crate) const EVENTS: usize = 1 << 12;
