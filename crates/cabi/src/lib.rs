//! `libibverbs.so.1` on the crocevia NIC: the C structures, the handles behind them and the
//! exported names. What a queue pair or a region *does* lives below, in the `crocevia` crate;
//! nothing here knows the protocol.
//!
//! Loading the library does nothing but look up names: no thread, no socket, no file before the
//! first `ibv_open_device`, because a preloaded library is in every child process too.
#![allow(unsafe_code)]
// C callers hand in addresses; each block says why it may follow them.
// The exports, which use everything, are not in the unit tests.
#![cfg_attr(test, allow(dead_code, unused_imports))]

mod abi;
mod convert;
mod entry;
mod errno;
mod export;
mod handle;
mod log;
mod mapped;
mod ops;
mod watch;
