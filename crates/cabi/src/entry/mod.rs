//! The exported functions, by object. Each is a thin shell: check the arguments, call the layer
//! below, turn the result into what C expects.

mod ah;
mod cq;
mod cq_ex;
mod device;
mod event;
mod failed;
#[cfg(not(test))]
mod leave;
mod misc;
mod mw;
mod pd_mr;
mod port;
mod qp;
pub(crate) mod qp_ex;
#[cfg(not(test))]
mod signals;
mod srq;
mod strings;
mod xrc;

pub(crate) use ah::*;
pub(crate) use cq::*;
pub(crate) use cq_ex::*;
pub(crate) use device::*;
pub(crate) use event::*;
pub(crate) use misc::*;
pub(crate) use mw::*;
pub(crate) use pd_mr::*;
pub(crate) use port::*;
pub(crate) use qp::*;
pub(crate) use qp_ex::*;
pub(crate) use srq::*;
pub(crate) use strings::*;
pub(crate) use xrc::*;
