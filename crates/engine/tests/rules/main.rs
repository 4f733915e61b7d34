//! The transport rules one by one, each as an exact exchange of packets with a hand-made peer.

#[path = "../pair/mod.rs"]
mod pair;

mod asking;
mod completion;
mod congestion;
mod counting;
mod datagram;
mod departed;
mod flow;
mod gone;
mod hostile;
mod known_faults;
mod memory;
mod mw;
mod queues;
mod regressions;
mod requester_errors;
mod requester_loss;
mod requester_psn;
mod requester_reads;
mod responder_answers;
mod responder_checks;
mod responder_order;
mod sched;
mod state;
mod strikes;
mod uc;
mod window;
mod xrc;
