//! The transport rules one by one, each as an exact exchange of packets with a hand-made peer.

#[path = "../pair/mod.rs"]
mod pair;

mod psn;
