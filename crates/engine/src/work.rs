//! The nouns of verbs: scatter-gather entries, work requests, completions. Values as an application
//! gives them; nothing here is state.

use bitflags::bitflags;
use wire::{Gid, LKey, QKey, Qpn, RKey};

use crate::memory::MwId;

/// One piece of registered memory.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Sge {
    /// Address within the region (its virtual address, or the offset of a zero-based region).
    pub addr: u64,
    /// Bytes.
    pub length: u32,
    /// Local key of the region.
    pub lkey: LKey,
}

/// A place in the peer's memory.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Remote {
    /// Address within the peer's region.
    pub addr: u64,
    /// Remote key of that region or window.
    pub rkey: RKey,
}

bitflags! {
    /// Flags of a send request; the values are those of `ibv_send_flags` (ibv_post_send(3)).
    #[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
    pub struct SendFlags: u32 {
        /// Wait for all earlier READs and atomics of the queue pair.
        const FENCE = 1;
        /// Give a completion when done.
        const SIGNALED = 2;
        /// Raise a solicited event at the receiver.
        const SOLICITED = 4;
    }
}

bitflags! {
    /// Access rights; the values are those of `ibv_access_flags` (ibv_reg_mr(3)).
    #[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
    pub struct Access: u32 {
        /// The own device may write (receive, READ results, atomic results).
        const LOCAL_WRITE = 1;
        /// Peers may write.
        const REMOTE_WRITE = 1 << 1;
        /// Peers may read.
        const REMOTE_READ = 1 << 2;
        /// Peers may execute atomics.
        const REMOTE_ATOMIC = 1 << 3;
        /// Memory windows may be bound to the region.
        const MW_BIND = 1 << 4;
        /// Addresses count from zero.
        const ZERO_BASED = 1 << 5;
        /// On-demand paging; accepted, a CPU takes page faults by itself.
        const ON_DEMAND = 1 << 6;
        /// Huge pages; accepted.
        const HUGETLB = 1 << 7;
    }
}

/// A window to be bound over a region.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct BindWindow {
    /// The window.
    pub mw: MwId,
    /// The key that the window shall have (type 2: the upper 24 bits are the window's own).
    pub rkey: RKey,
    /// Local key of the region beneath.
    pub lkey: LKey,
    /// First address, within the region.
    pub addr: u64,
    /// Bytes; 0 unbinds a type 1 window.
    pub length: u64,
    /// What peers may do through the window.
    pub access: Access,
}

/// What a send request does.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum SendOp {
    /// Deliver a message into a receive request of the peer.
    Send,
    /// The same, with four bytes for the peer's completion.
    SendImm([u8; 4]),
    /// The same, killing a key of the peer's.
    SendInvalidate(RKey),
    /// Write into the peer's memory.
    Write(Remote),
    /// The same, with four bytes that consume a receive request of the peer.
    WriteImm(Remote, [u8; 4]),
    /// Read the peer's memory.
    Read(Remote),
    /// If the peer's 8 bytes equal `compare`, replace them by `swap`; the old value comes back.
    CompareSwap {
        /// The peer's 8 bytes.
        remote: Remote,
        /// Value to compare with.
        compare: u64,
        /// Value to store.
        swap: u64,
    },
    /// Add to the peer's 8 bytes; the old value comes back.
    FetchAdd {
        /// The peer's 8 bytes.
        remote: Remote,
        /// Value to add, modulo 2^64.
        add: u64,
    },
    /// Kill a key of this device.
    LocalInvalidate(RKey),
    /// Bind a memory window.
    BindWindow(BindWindow),
}

/// The bytes of a send request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum SendData<'a> {
    /// Registered memory, read when the packets leave (or written, for READ and atomics).
    Sges(&'a [Sge]),
    /// Bytes that are copied now.
    Inline(&'a [u8]),
}

/// How to reach a peer; what an address handle holds.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct AddressVector {
    /// Whether a GRH is asked for. RoCE always needs it.
    pub is_global: bool,
    /// The peer's GID.
    pub dgid: Gid,
    /// Index of the own GID to send from.
    pub sgid_index: u8,
    /// TOS or traffic class byte.
    pub traffic_class: u8,
    /// TTL or hop limit; 0 means the default of 64.
    pub hop_limit: u8,
    /// Flow label, 20 bits: entropy for ECMP.
    pub flow_label: u32,
    /// Service level; its low three bits are the Ethernet priority.
    pub sl: u8,
}

/// Where a datagram goes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Datagram {
    /// The peer's address.
    pub av: AddressVector,
    /// The peer's queue pair.
    pub dest_qp: Qpn,
    /// Its Q_Key; with the top bit set, the sending queue pair's own is used.
    pub qkey: QKey,
}

/// A send work request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SendRequest<'a> {
    /// The caller's name for it, handed back in the completion.
    pub wr_id: u64,
    /// What to do.
    pub op: SendOp,
    /// Flags.
    pub flags: SendFlags,
    /// The bytes.
    pub data: SendData<'a>,
    /// Destination; for UD and GSI queue pairs only.
    pub datagram: Option<Datagram>,
}

/// A receive work request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RecvRequest<'a> {
    /// The caller's name for it, handed back in the completion.
    pub wr_id: u64,
    /// Where the message goes.
    pub sges: &'a [Sge],
}

/// How a work request ended; values and names are those of `ibv_wc_status`.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
#[repr(u32)]
#[allow(missing_docs)] // The names are those of ibv_poll_cq(3).
pub enum WcStatus {
    #[default]
    Success = 0,
    LocLenErr = 1,
    LocQpOpErr = 2,
    LocEecOpErr = 3,
    LocProtErr = 4,
    WrFlushErr = 5,
    MwBindErr = 6,
    BadRespErr = 7,
    LocAccessErr = 8,
    RemInvReqErr = 9,
    RemAccessErr = 10,
    RemOpErr = 11,
    RetryExcErr = 12,
    RnrRetryExcErr = 13,
    LocRddViolErr = 14,
    RemInvRdReqErr = 15,
    RemAbortErr = 16,
    InvEecnErr = 17,
    InvEecStateErr = 18,
    FatalErr = 19,
    RespTimeoutErr = 20,
    GeneralErr = 21,
}

/// What kind of request completed; values are those of `ibv_wc_opcode`.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
#[repr(u32)]
#[allow(missing_docs)] // The names are those of ibv_poll_cq(3).
pub enum WcOpcode {
    #[default]
    Send = 0,
    RdmaWrite = 1,
    RdmaRead = 2,
    CompSwap = 3,
    FetchAdd = 4,
    BindMw = 5,
    LocalInv = 6,
    Recv = 128,
    RecvRdmaWithImm = 129,
}

/// The four bytes that may come with a receive completion.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub enum WcData {
    /// None.
    #[default]
    None,
    /// Immediate data.
    Imm([u8; 4]),
    /// The key that the peer's SEND with invalidate killed.
    Invalidated(RKey),
}

/// The header in the 40 bytes before a received datagram.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub enum NetworkHeader {
    /// A GRH (RoCE v1, InfiniBand).
    #[default]
    Grh,
    /// An IPv6 header, which has the GRH's layout.
    Ipv6,
    /// An IPv4 header, in the last 20 bytes.
    Ipv4,
}

/// One entry of a completion queue.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Completion {
    /// The request's `wr_id`.
    pub wr_id: u64,
    /// How it ended. Unless this is `Success`, only `wr_id`, `qp` and `vendor_err` count.
    pub status: WcStatus,
    /// What it was.
    pub opcode: WcOpcode,
    /// Detail of an error, for support.
    pub vendor_err: u32,
    /// Bytes received; for READ and atomics the bytes that came back.
    pub byte_len: u32,
    /// Immediate data or invalidated key.
    pub data: WcData,
    /// The own queue pair.
    pub qp: Qpn,
    /// The sender's queue pair (datagrams).
    pub src_qp: Qpn,
    /// Whether the first 40 bytes of the buffer are the GRH area (datagrams).
    pub grh: bool,
    /// What these bytes hold.
    pub network: NetworkHeader,
    /// Whether the message asked for a solicited event.
    pub solicited: bool,
    /// Service level of a received datagram.
    pub sl: u8,
    /// When it was put into the queue, in picoseconds of the device's clock.
    pub timestamp: u64,
}
