//! The API over loopback addresses, two devices in one process. One program, so that no two
//! processes want one address; each module has addresses of its own.

mod support;

mod connected;
mod datagrams;
mod errors;
mod events;
mod faults;
mod lifetime;
mod multicast;
mod one_sided;
mod shared_receive;
mod waiting;
mod windows;
mod xrc;
