//! Why bytes are no packet ([`DropReason`]) and why a packet cannot become bytes ([`EmitError`]).
//! Whose fault a well-formed packet is (a key, a range, a state) is for the engine to say.

use core::fmt;

/// The layer that a reason speaks of.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Layer {
    /// Ethernet header and its tags.
    Ethernet,
    /// IPv4 header with options.
    Ipv4,
    /// IPv6 header.
    Ipv6,
    /// UDP header.
    Udp,
    /// VXLAN header.
    Vxlan,
    /// InfiniBand local route header.
    Lrh,
    /// Global route header.
    Grh,
    /// Base transport header and what follows it.
    Transport,
    /// MAC control: PFC and pause frames.
    MacControl,
}

impl fmt::Display for Layer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Ethernet => "Ethernet",
            Self::Ipv4 => "IPv4",
            Self::Ipv6 => "IPv6",
            Self::Udp => "UDP",
            Self::Vxlan => "VXLAN",
            Self::Lrh => "LRH",
            Self::Grh => "GRH",
            Self::Transport => "transport",
            Self::MacControl => "MAC control",
        })
    }
}

/// Why received bytes were dropped. A value to count, not a fault of this program.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum DropReason {
    /// Fewer bytes than the layer's headers need or promise.
    Truncated(Layer),
    /// A length field that contradicts the layer around it.
    Length(Layer),
    /// A version number that is not the one this layer has.
    Version(Layer),
    /// An IPv4 header checksum that is wrong.
    Ipv4Checksum,
    /// A piece of a fragmented IP datagram; RoCE is never fragmented.
    Fragment,
    /// An opcode that no service defines.
    UnknownOpcode(u8),
    /// A pad count that does not fit the length.
    Pad,
    /// A wrong invariant CRC.
    Icrc,
    /// A wrong variant CRC (InfiniBand only).
    Vcrc,
    /// A next-header value that this layer cannot carry.
    NextHeader(Layer),
    /// A MAC control opcode other than pause and PFC.
    UnknownMacControl(u16),
}

impl fmt::Display for DropReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Truncated(layer) => write!(f, "{layer}: truncated"),
            Self::Length(layer) => write!(f, "{layer}: contradictory length"),
            Self::Version(layer) => write!(f, "{layer}: unknown version"),
            Self::Ipv4Checksum => f.write_str("IPv4: wrong header checksum"),
            Self::Fragment => f.write_str("IP fragment"),
            Self::UnknownOpcode(op) => write!(f, "unknown opcode {op:#04x}"),
            Self::Pad => f.write_str("pad count does not fit the length"),
            Self::Icrc => f.write_str("wrong ICRC"),
            Self::Vcrc => f.write_str("wrong VCRC"),
            Self::NextHeader(layer) => write!(f, "{layer}: unexpected next header"),
            Self::UnknownMacControl(op) => write!(f, "unknown MAC control opcode {op:#06x}"),
        }
    }
}

impl core::error::Error for DropReason {}

/// Why a packet cannot be written as bytes.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum EmitError {
    /// The output buffer is too small; the bytes needed.
    NoRoom(usize),
    /// No service defines the opcode, so its headers are not known.
    UnknownOpcode(u8),
    /// The extension headers that are present are not those of the opcode.
    WrongHeaders,
    /// A value does not fit the bits of its field; the field's name.
    Field(&'static str),
    /// More bytes than the length field of the layer can say.
    TooLong(Layer),
    /// The network layer cannot carry these addresses or this encapsulation.
    Path(&'static str),
}

impl fmt::Display for EmitError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoRoom(need) => write!(f, "the buffer is too small: {need} bytes are needed"),
            Self::UnknownOpcode(op) => write!(f, "unknown opcode {op:#04x}"),
            Self::WrongHeaders => f.write_str("extension headers do not match the opcode"),
            Self::Field(name) => write!(f, "value too large for its field: {name}"),
            Self::TooLong(layer) => write!(f, "{layer}: too long"),
            Self::Path(why) => write!(f, "path: {why}"),
        }
    }
}

impl core::error::Error for EmitError {}
