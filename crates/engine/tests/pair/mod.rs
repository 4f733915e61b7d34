//! Engines in a world of their own: host memory that guards itself, cables with faults, a clock
//! that jumps to the next wake-up, and a bench where a hand-made peer faces one device. What is
//! claimed about the engine stands in the tests that use it.
#![allow(dead_code, unreachable_pub)] // Each test binary uses its part of the harness.

pub mod bench;
pub mod cable;
pub mod counting;
pub mod dice;
pub mod host;
pub mod inspect;
pub mod memory;
pub mod setup;
pub mod witness;
pub mod world;
