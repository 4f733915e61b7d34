//! Why a request of the peer's is not executed, and what the device has to do about it. Which check
//! gives which is in `responder`.

use crate::event::AsyncEvent;

/// A request that cannot be executed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Fault {
    /// No receive request.
    NotReady,
    /// Invalid request.
    Invalid,
    /// Key, range or right.
    Access,
    /// Longer than the receive request.
    TooLong,
    /// The receive request's memory cannot be used.
    Receive,
    /// The host's memory failed.
    Operational,
}

/// What the device has to do about a request's failure.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Broken {
    /// Event to raise after the NAK.
    pub(crate) event: Option<AsyncEvent>,
}
