//! What was seen: one RoCE packet, pause, LLDP frame or damage, as a plain value that borrows
//! nothing, so that it can cross threads. Made by `peel`, read by the judges.

use wire::mac_control::MacControl;
use wire::mad::Mad;
use wire::packet::{Bth, Encapsulation, Extensions};
use wire::{DropReason, Gid, Mac};

use crate::record::{At, Direction, Point};

/// Something seen at a point of capture.
#[derive(Clone, Debug)]
pub struct Event {
    /// Where and when.
    pub at: At,
    /// The packet's place in its frame: not 0 only in a train, a frame that was captured before it
    /// was cut into packets.
    pub part: u16,
    /// At which interface.
    pub point: Point,
    /// Which way, if the capture says so.
    pub direction: Option<Direction>,
    /// Bytes of the packet on its link, without the frame check sequence.
    pub len: u32,
    /// The innermost frame's source and destination, if it has any.
    pub macs: Option<(Mac, Mac)>,
    /// Outermost tag of the innermost frame: priority code point and VLAN.
    pub tag: Option<(u8, u16)>,
    /// Tunnels and mirror headers that were taken off.
    pub tunnels: u8,
    /// What it was.
    pub what: What,
}

/// What was seen.
#[derive(Clone, Debug)]
pub enum What {
    /// A RoCE or InfiniBand packet whose headers make sense.
    Packet(Packet),
    /// A RoCE packet whose transport headers a receiver refuses.
    Refused {
        /// Who to whom.
        path: Path,
        /// Why.
        reason: DropReason,
        /// Opcode and destination queue pair, where enough bytes are there.
        head: Option<(u8, u32)>,
        /// Verdict on its ICRC.
        icrc: Icrc,
    },
    /// A pause of the link or of priorities.
    Pause(MacControl),
    /// An LLDP frame: its bytes behind the EtherType.
    Lldp(Box<[u8]>),
    /// RoCE by its port or type, but damaged or unusual below the transport.
    Damaged {
        /// Who to whom, where it could be read.
        path: Option<Path>,
        /// What is wrong.
        reason: DropReason,
    },
    /// Nothing of RDMA: TCP, ARP and the like.
    Other,
    /// A record that cannot be read: its link type is unknown or it is cut before the transport.
    Unread,
}

/// The network layer of a packet as captured.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Path {
    /// How the transport was carried.
    pub encapsulation: Encapsulation,
    /// Source: GID, or IP address as a GID; InfiniBand without GRH: the LID in the last two bytes.
    pub source: Gid,
    /// Destination likewise.
    pub destination: Gid,
    /// TOS or traffic class: DSCP in the upper six bits, ECN in the lower two.
    pub traffic_class: u8,
    /// TTL or hop limit.
    pub hop_limit: u8,
    /// IPv6 or GRH flow label.
    pub flow_label: u32,
    /// UDP source port; 0 where there is no UDP.
    pub source_port: u16,
    /// IPv4 identification; 0 where there is none.
    pub ident: u16,
    /// Whether IPv4 has DF set, or needs none.
    pub dont_fragment: bool,
    /// Whether the UDP checksum is absent or right; `None` if it cannot be told (cut, trains).
    pub udp_checksum: Option<bool>,
}

/// A packet with its headers.
#[derive(Clone, Debug)]
pub struct Packet {
    /// The network layer.
    pub path: Path,
    /// Base transport header.
    pub bth: Bth,
    /// Extension headers.
    pub ext: Extensions,
    /// Bytes of payload, without pad.
    pub payload_len: u32,
    /// Verdict on the ICRC.
    pub icrc: Icrc,
    /// The management datagram in a packet to queue pair 1, if it makes sense.
    pub mad: Option<Box<Mad>>,
}

/// The verdict on an ICRC.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Icrc {
    /// It is what the packet's bytes give.
    Right,
    /// It is not.
    Wrong(WrongIcrc),
    /// It cannot be told: the capture cut the packet.
    Cut,
}

/// A wrong ICRC and what would have made it right.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct WrongIcrc {
    /// Right value exclusive-or the stored one. The same for packets of one length whose headers
    /// were changed alike behind the sender's back: CRC is linear.
    pub difference: u32,
    /// What explains the stored value.
    pub cause: IcrcCause,
}

/// What explains a wrong ICRC.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum IcrcCause {
    /// Nothing that was tried.
    Unknown,
    /// The sender did not set a field to ones before computing: its name.
    Unmasked(&'static str),
    /// The sender left the eight bytes of ones before the header out.
    NoLrhBytes,
    /// Right, but stored most significant byte first.
    ByteOrder,
    /// The four bytes are 0: captured before the adapter filled them in.
    Zero,
}
