//! Judges of the network between the ends: ECN, paths, pauses, DCBX.

pub mod dcbx;
pub mod ecn;
mod lldp;
pub mod path;
pub mod pause;
mod stream;
