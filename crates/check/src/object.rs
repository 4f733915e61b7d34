//! What a program creates, as the checker knows it: facts given at creation, no state.

use crate::finding::Call;

/// Names an object: the address that the program holds.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Handle(pub u64);

/// The service of a queue pair.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Service {
    /// Reliable connection.
    Rc,
    /// Unreliable connection.
    Uc,
    /// Unreliable datagram.
    Ud,
}

impl Service {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Rc => "RC",
            Self::Uc => "UC",
            Self::Ud => "UD",
        }
    }
}

/// Sizes of a queue pair as granted.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Caps {
    /// Send requests.
    pub sends: u32,
    /// Receive requests.
    pub receives: u32,
    /// Entries of a send request.
    pub send_pieces: u32,
    /// Entries of a receive request.
    pub receive_pieces: u32,
    /// Inline bytes.
    pub inline: u32,
}

/// A queue pair.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Qp {
    /// Its device.
    pub context: Handle,
    /// Its number.
    pub number: u32,
    /// Its domain.
    pub pd: Handle,
    /// Where sends complete.
    pub send_cq: Handle,
    /// Where receives complete.
    pub receive_cq: Handle,
    /// A shared receive queue.
    pub srq: Option<Handle>,
    /// Service.
    pub service: Service,
    /// Sizes.
    pub caps: Caps,
    /// Every send is signaled.
    pub signal_all: bool,
}

/// A completion queue.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Cq {
    /// Its device.
    pub context: Handle,
    /// Its number.
    pub number: u32,
    /// Entries that fit.
    pub depth: u32,
    /// Where its events arrive.
    pub channel: Option<Handle>,
}

/// A shared receive queue.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Srq {
    /// Its device.
    pub context: Handle,
    /// Its number.
    pub number: u32,
    /// Its domain.
    pub pd: Handle,
    /// Receives that fit.
    pub depth: u32,
    /// Entries of a receive.
    pub pieces: u32,
}

/// A memory region.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Mr {
    /// Its device.
    pub context: Handle,
    /// Its domain.
    pub pd: Handle,
    /// Where it lies in the process.
    pub addr: u64,
    /// Bytes.
    pub length: u64,
    /// How requests name its first byte.
    pub iova: u64,
    /// Local key.
    pub lkey: u32,
    /// Whether the device may write.
    pub local_write: bool,
}

/// An object and what is known of it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Object {
    /// An open device.
    Context,
    /// A domain, by number.
    Pd(u32),
    /// A thread domain.
    Td,
    /// A region.
    Mr(Mr),
    /// A window, by number.
    Mw(u32),
    /// An address handle.
    Ah,
    /// A completion channel, by descriptor.
    Channel(i32),
    /// A completion queue.
    Cq(Cq),
    /// A shared receive queue.
    Srq(Srq),
    /// A queue pair.
    Qp(Qp),
    /// An XRC domain.
    Xrcd,
}

/// The kinds of object.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
#[allow(missing_docs)] // As the variants of `Object`.
pub enum Kind {
    Context,
    Pd,
    Td,
    Mr,
    Mw,
    Ah,
    Channel,
    Cq,
    Srq,
    Qp,
    Xrcd,
}

impl Object {
    /// Its kind.
    pub fn kind(&self) -> Kind {
        match self {
            Self::Context => Kind::Context,
            Self::Pd(_) => Kind::Pd,
            Self::Td => Kind::Td,
            Self::Mr(_) => Kind::Mr,
            Self::Mw(_) => Kind::Mw,
            Self::Ah => Kind::Ah,
            Self::Channel(_) => Kind::Channel,
            Self::Cq(_) => Kind::Cq,
            Self::Srq(_) => Kind::Srq,
            Self::Qp(_) => Kind::Qp,
            Self::Xrcd => Kind::Xrcd,
        }
    }

    /// Its name for people.
    pub fn name(&self) -> String {
        match self {
            Self::Context => "device context".to_owned(),
            Self::Pd(n) => format!("PD {n}"),
            Self::Td => "thread domain".to_owned(),
            Self::Mr(mr) => format!("MR lkey {:#x}", mr.lkey),
            Self::Mw(n) => format!("MW {n}"),
            Self::Ah => "AH".to_owned(),
            Self::Channel(fd) => format!("completion channel fd {fd}"),
            Self::Cq(cq) => format!("CQ {}", cq.number),
            Self::Srq(srq) => format!("SRQ {}", srq.number),
            Self::Qp(qp) => format!("QP {}", qp.number),
            Self::Xrcd => "XRC domain".to_owned(),
        }
    }
}

/// A tracked object.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Tracked {
    pub(crate) object: Object,
    pub(crate) made: Call,
    /// In the order of creation.
    pub(crate) serial: u64,
}

/// An object that is no more.
#[derive(Clone, Debug)]
pub(crate) struct Gone {
    pub(crate) kind: Kind,
    pub(crate) name: String,
    pub(crate) ended: Call,
}
