//! What the device has to say to its driver besides packets.

use wire::Qpn;

use crate::cq::CqId;
use crate::srq::SrqId;

/// An event for the driver, taken with [`Device::poll_event`](crate::Device::poll_event).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Event {
    /// An armed completion queue has something; it must be armed again for the next one.
    Completion(CqId),
    /// Something that `ibv_get_async_event(3)` reports.
    Async(AsyncEvent),
}

/// Asynchronous events; meanings as in `ibv_get_async_event(3)`.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[allow(missing_docs)] // The names are those of the man page.
pub enum AsyncEvent {
    CommEst(Qpn),
    SqDrained(Qpn),
    QpFatal(Qpn),
    QpReqErr(Qpn),
    QpAccessErr(Qpn),
    QpLastWqeReached(Qpn),
    SrqLimitReached(SrqId),
    SrqErr(SrqId),
    CqErr(CqId),
    PortActive,
    PortErr,
    GidChange,
    DeviceFatal,
}
