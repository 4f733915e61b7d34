//! The transport rules one by one, each as an exact exchange of packets with a hand-made peer.

#[path = "../pair/mod.rs"]
mod pair;

mod completion;
mod datagram;
mod memory;
mod mw;
mod psn;
mod queues;
mod sched;
mod state;
mod uc;
