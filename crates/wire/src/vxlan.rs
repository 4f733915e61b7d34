//! VXLAN: a whole Ethernet frame inside a UDP datagram. Only the way out of it; a RoCE packet and
//! its ICRC know nothing of the tunnel.

use core::net::IpAddr;

use crate::error::{DropReason, Layer};
use crate::ethernet::{self, Ethernet};
use crate::ip;

/// UDP destination port of VXLAN.
pub const VXLAN_PORT: u16 = 4789;
/// Bytes of a VXLAN header.
pub const VXLAN_LEN: usize = 8;
/// The flag that says that the network identifier counts.
const FLAG_VNI: u8 = 0x08;

/// A frame with the tunnel that it came through.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Tunnelled<'a> {
    /// The tunnel's own Ethernet header.
    pub ethernet: Ethernet,
    /// The tunnel's end that sent it.
    pub source: IpAddr,
    /// The tunnel's end that it is for.
    pub destination: IpAddr,
    /// Entropy of the inner flow.
    pub source_port: u16,
    /// VXLAN network identifier, 24 bits.
    pub network: u32,
    /// The inner frame, to be read by [`crate::frame::parse_frame`].
    pub frame: &'a [u8],
}

/// Takes a frame out of its tunnel; `None` if there is no tunnel.
///
/// # Errors
/// What is wrong with the outer headers.
pub fn decapsulate(frame: &[u8]) -> Result<Option<Tunnelled<'_>>, DropReason> {
    let (ethernet, ether_type, bytes) = Ethernet::parse(frame)?;
    let datagram = match ether_type {
        ethernet::TYPE_IPV4 => ip::parse_ipv4(bytes, VXLAN_PORT)?,
        ethernet::TYPE_IPV6 => ip::parse_ipv6(bytes, VXLAN_PORT)?,
        _ => None,
    };
    let Some(datagram) = datagram else { return Ok(None) };
    let (head, frame) = datagram
        .payload()
        .split_first_chunk::<VXLAN_LEN>()
        .ok_or(DropReason::Truncated(Layer::Vxlan))?;
    if head[0] & FLAG_VNI == 0 {
        return Err(DropReason::Version(Layer::Vxlan));
    }
    Ok(Some(Tunnelled {
        ethernet,
        source: datagram.ip.source(),
        destination: datagram.ip.destination(),
        source_port: datagram.udp.source_port,
        network: u32::from_be_bytes([0, head[4], head[5], head[6]]),
        frame,
    }))
}
