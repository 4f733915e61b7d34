//! Errors of the caller: whose fault it is, what was expected, what was found, what to do. Faults
//! of a peer are not errors of a call; they become NAKs and completions (see `qp`).

use std::fmt;

/// Why a call was refused: a kind that maps to an errno, and a sentence for the person.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Error {
    kind: ErrorKind,
    message: String,
}

/// The kind of an [`Error`], each with the errno that C callers see.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum ErrorKind {
    /// EINVAL: an argument, attribute, state or key is wrong.
    Invalid,
    /// ENOMEM: a queue or a table is full.
    Full,
    /// EBUSY: something still uses the object.
    Busy,
    /// EOPNOTSUPP: not offered.
    Unsupported,
    /// ENOENT: no such object.
    NotFound,
    /// EACCES or EPERM: the system refused.
    Denied,
    /// EADDRINUSE: somebody else holds the address.
    AddressInUse,
    /// ENODEV: no such device or interface.
    NoDevice,
    /// EIO: the system failed in another way.
    System,
}

impl Error {
    /// An error of `kind` with a sentence that says what was expected, found, and what to do.
    pub fn new(kind: ErrorKind, message: impl Into<String>) -> Self {
        Self { kind, message: message.into() }
    }

    /// An argument is wrong.
    pub fn invalid(message: impl Into<String>) -> Self {
        Self::new(ErrorKind::Invalid, message)
    }

    /// The kind.
    pub fn kind(&self) -> ErrorKind {
        self.kind
    }

    /// The errno that C callers get (Linux numbers).
    pub fn errno(&self) -> i32 {
        match self.kind {
            ErrorKind::Invalid => 22,
            ErrorKind::Full => 12,
            ErrorKind::Busy => 16,
            ErrorKind::Unsupported => 95,
            ErrorKind::NotFound => 2,
            ErrorKind::Denied => 13,
            ErrorKind::AddressInUse => 98,
            ErrorKind::NoDevice => 19,
            ErrorKind::System => 5,
        }
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for Error {}

/// The result of an engine call.
pub type Result<T> = std::result::Result<T, Error>;

/// Why a work request was refused at post time.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum PostError {
    /// No such queue pair.
    NoQueuePair,
    /// The queue pair's state does not take this request.
    State(crate::attr::QpState),
    /// The service does not have this operation.
    Operation,
    /// The queue is full.
    QueueFull,
    /// More scatter-gather entries than the queue takes.
    TooManySges,
    /// Longer than `max_inline_data`, or inline on an operation that has none.
    Inline,
    /// The message is longer than the port takes.
    TooLong,
    /// Atomics take one entry of 8 bytes, 8-byte aligned.
    Atomic,
    /// A datagram without destination, or a destination on a connected service.
    Destination,
    /// The GID index of the address vector names no entry.
    GidIndex,
    /// A receive request on a queue pair that has a shared receive queue.
    SharedReceive,
}

impl PostError {
    /// The errno that C callers get (Linux numbers).
    pub fn errno(self) -> i32 {
        match self {
            Self::QueueFull => 12,
            _ => 22,
        }
    }
}

impl fmt::Display for PostError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::NoQueuePair => "no such queue pair",
            Self::State(state) => {
                return write!(
                    f,
                    "the queue pair is in state {state:?}: receives are taken from INIT on, sends \
                     from RTS on"
                );
            }
            Self::Operation => "the queue pair's service does not have this operation",
            Self::QueueFull => "the queue is full: poll completions before posting more",
            Self::TooManySges => "more scatter-gather entries than the queue pair was made for",
            Self::Inline => {
                "inline data longer than max_inline_data, or not possible with this operation"
            }
            Self::TooLong => "the message is longer than the port's max_msg_sz",
            Self::Atomic => {
                "an atomic takes one entry of 8 bytes, and a remote address divisible by 8"
            }
            Self::Destination => {
                "a datagram needs an address handle, a connected queue pair takes none"
            }
            Self::GidIndex => "the address handle's GID index names no entry of the GID table",
            Self::SharedReceive => {
                "the queue pair receives from a shared receive queue: post there"
            }
        })
    }
}

impl std::error::Error for PostError {}
