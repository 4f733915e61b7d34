//! The verbs checker: what a program does with verbs comes in, call by call and in the program's
//! own order; what is wrong with it comes out as numbered findings. Nothing here knows a NIC, a C
//! structure, a file or a clock, and the program's memory is read through a trait.
//!
//! # The contract
//!
//! * **Only the program's order counts.** A request is in flight from the call that posts it until
//!   the call that polls its completion (or one that implies it), not until the NIC is done. So
//!   what is found does not depend on speed, load or loss.
//! * **A finding is a breach of a rule**, not a suspicion. What deliberate programs do (every
//!   receive into one buffer, as benchmarks do) is found only when asked for ([`Checker::new`] with
//!   `strict`); such rules are numbered from C101.
//! * **The caller keeps the order**: it holds one lock from before a request is handed to the
//!   device until [`Checker::posted`] has been told what became of it, and tells of completions
//!   after they were polled, before the program sees them.
//! * **Bounded**: a request costs its own record; digests of its bytes cost two reads of them.
//!   Records are bounded by the depths of the queues that they stand in.
#![forbid(unsafe_code)]

mod checker;
mod digest;
mod events;
mod finding;
mod mode;
mod modify;
mod object;
mod poll;
mod post;
mod queue;
mod ranges;
mod rule;
mod work;

pub use checker::{Checker, Watched};
pub use digest::Memory;
pub use finding::{Call, Finding, Site};
pub use mode::Mode;
pub use modify::{Address, Move, Port, State, attribute};
pub use object::{Caps, Cq, Handle, Kind, Mr, Object, Qp, Service, Srq};
pub use poll::{Done, Status};
pub use post::Pending;
pub use rule::Rule;
pub use work::{Operation, Piece, ReceiveWork, SendWork};
