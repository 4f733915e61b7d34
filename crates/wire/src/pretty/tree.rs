//! The tree: a line for each header, an indented one for each field.

use core::fmt::{self, Arguments, Display, Formatter};

use super::other::Other;
use super::{Lldp, PauseText, mad, verdict};
use crate::checksum::Check;
use crate::content::Content;
use crate::ethernet::{Ethernet, TYPE_LLDP, TYPE_SERVICE_TAG};
use crate::frame::{Body, Frame, Network, Roce};
use crate::ids::Qpn;
use crate::infiniband::{GRH_NEXT_HEADER, Grh, LinkBody, LinkPacket, Lrh};

use crate::ip::{IPV4_LEN, Ip, Ipv4, Ipv6, UDP_LEN, Udp};
use crate::mac_control::MacControl;
use crate::mad::Mad;
use crate::packet::{AtomicEth, Bth, Extensions, Reth};
use crate::transport::{ROCE_PORT, Reserved, pad_len};

/// Payload bytes that are shown.
const SHOWN: usize = 32;

/// A frame or a link's packet with every field, several lines.
#[derive(Clone, Copy, Debug)]
pub struct Tree<'a, T>(pub &'a T);

/// Writes the lines.
pub(super) struct Lines<'f, 'g>(pub(super) &'f mut Formatter<'g>);

impl Lines<'_, '_> {
    pub(super) fn header(&mut self, text: Arguments<'_>) -> fmt::Result {
        writeln!(self.0, "{text}")
    }

    pub(super) fn field(&mut self, name: &str, value: impl Display) -> fmt::Result {
        writeln!(self.0, "    {name}: {value}")
    }

    /// A field that is shown only where it is not zero.
    pub(super) fn odd(&mut self, name: &str, value: u32) -> fmt::Result {
        if value == 0 { Ok(()) } else { self.field(name, format_args!("{value:#x}")) }
    }

    fn check<T: fmt::LowerHex + Copy>(&mut self, name: &str, check: Check<T>) -> fmt::Result {
        match check {
            Check::Right => self.field(name, verdict(true)),
            Check::Stored(value) => {
                self.field(name, format_args!("{} ({value:#x} stored)", verdict(false)))
            }
        }
    }

    pub(super) fn bytes(&mut self, name: &str, bytes: &[u8]) -> fmt::Result {
        if bytes.is_empty() {
            return Ok(());
        }
        write!(self.0, "    {name}: {} bytes:", bytes.len())?;
        for byte in bytes.iter().take(SHOWN) {
            write!(self.0, " {byte:02x}")?;
        }
        writeln!(self.0, "{}", if bytes.len() > SHOWN { " ..." } else { "" })
    }
}

/// A frame without its Ethernet header.
pub(super) struct Behind<'a, 'b>(pub(super) &'a Frame<'b>);

impl Display for Tree<'_, Frame<'_>> {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        ethernet(&self.0.ethernet, &mut Lines(f))?;
        write!(f, "{}", Behind(self.0))
    }
}

impl Display for Behind<'_, '_> {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let mut lines = Lines(f);
        match &self.0.body {
            Body::Roce(packet) => roce(packet, &mut lines)?,
            Body::MacControl(control) => pause(control, &mut lines)?,
            Body::Opaque { ether_type: TYPE_LLDP, bytes } => write!(lines.0, "{:#}", Lldp(bytes))?,
            Body::Opaque { ether_type, bytes } => {
                lines.header(format_args!("Not RoCE, EtherType {ether_type:#06x}"))?;
                if let Some(other) = Other::parse(*ether_type, bytes) {
                    return other.tree(&mut lines);
                }
                lines.bytes("Content", bytes)?;
            }
        }
        lines.bytes("Behind the packet", self.0.trailer)
    }
}

fn ethernet(ethernet: &Ethernet, lines: &mut Lines<'_, '_>) -> fmt::Result {
    let (from, to) = (ethernet.source, ethernet.destination);
    lines.header(format_args!("Ethernet, {from} to {to}"))?;
    for tag in ethernet.tags.iter().flatten() {
        let name = if tag.kind == TYPE_SERVICE_TAG { "802.1ad tag" } else { "802.1Q tag" };
        let drop = if tag.drop_eligible() { ", drop eligible" } else { "" };
        let value = format_args!("VLAN {}, priority {}{drop}", tag.vlan(), tag.priority());
        writeln!(lines.0, "    {name}: {value}")?;
    }
    Ok(())
}

fn roce(roce: &Roce<'_>, lines: &mut Lines<'_, '_>) -> fmt::Result {
    match &roce.network {
        Network::Grh(header) => grh(header, roce.content.wire_len(), lines)?,
        Network::Udp { ip, udp } => {
            let len = UDP_LEN + roce.content.wire_len();
            match ip {
                Ip::V4(ip) => ipv4(ip, len, lines)?,
                Ip::V6(ip) => ipv6(ip, len, lines)?,
            }
            datagram(udp, len, lines)?;
        }
    }
    content(&roce.content, roce.icrc, lines)
}

fn ipv4(ip: &Ipv4<'_>, len: usize, lines: &mut Lines<'_, '_>) -> fmt::Result {
    lines.header(format_args!("IPv4, {} to {}", ip.source, ip.destination))?;
    let header_len = IPV4_LEN + ip.options.len();
    lines.field("Version", 4)?;
    lines.field("Header length", header_len)?;
    traffic_class("Type of service", ip.tos, lines)?;
    lines.field("Total length", header_len + len)?;
    lines.field("Identification", format_args!("{:#06x} ({})", ip.ident, ip.ident))?;
    lines.field("Don't fragment", ip.dont_fragment)?;
    lines.odd("Reserved flag", ip.reserved_flag.into())?;
    lines.field("Time to live", ip.ttl)?;
    lines.field("Protocol", "17 (UDP)")?;
    lines.bytes("Options", ip.options)?;
    lines.check("Header checksum", ip.checksum)
}

fn ipv6(ip: &Ipv6, len: usize, lines: &mut Lines<'_, '_>) -> fmt::Result {
    lines.header(format_args!("IPv6, {} to {}", ip.source, ip.destination))?;
    lines.field("Version", 6)?;
    traffic_class("Traffic class", ip.traffic_class, lines)?;
    lines.field("Flow label", format_args!("{:#07x}", ip.flow_label))?;
    lines.field("Payload length", len)?;
    lines.field("Next header", "17 (UDP)")?;
    lines.field("Hop limit", ip.hop_limit)
}

fn grh(grh: &Grh, len: usize, lines: &mut Lines<'_, '_>) -> fmt::Result {
    lines.header(format_args!("Global route header, {} to {}", grh.source, grh.destination))?;
    lines.field("Version", 6)?;
    traffic_class("Traffic class", grh.traffic_class, lines)?;
    lines.field("Flow label", format_args!("{:#07x}", grh.flow_label))?;
    lines.field("Payload length", len)?;
    lines.field("Next header", format_args!("{GRH_NEXT_HEADER:#04x} (BTH)"))?;
    lines.field("Hop limit", grh.hop_limit)
}

pub(super) fn traffic_class(name: &str, byte: u8, lines: &mut Lines<'_, '_>) -> fmt::Result {
    let ecn = ["not ECT", "ECT(1)", "ECT(0)", "CE"][usize::from(byte & 3)];
    lines.field(name, format_args!("{byte:#04x} (DSCP {}, {ecn})", byte >> 2))
}

fn datagram(udp: &Udp, len: usize, lines: &mut Lines<'_, '_>) -> fmt::Result {
    lines.header(format_args!("UDP, port {} to {ROCE_PORT}", udp.source_port))?;
    lines.field("Length", len)?;
    match udp.checksum {
        None => lines.field("Checksum", "none"),
        Some(check) => lines.check("Checksum", check),
    }
}

fn content(content: &Content<'_>, icrc: Check<u32>, lines: &mut Lines<'_, '_>) -> fmt::Result {
    match content {
        Content::Refused { reason, bytes } => {
            lines.header(format_args!("Transport, refused: {reason}"))?;
            lines.bytes("Content", bytes)?;
        }
        Content::Transport { bth, ext, reserved, payload } => {
            base(bth, reserved, lines)?;
            lines.field("Pad count", pad_len(payload.len()))?;
            lines.odd(
                "Pad",
                u32::from_be_bytes([0, reserved.pad[0], reserved.pad[1], reserved.pad[2]]),
            )?;
            extensions(ext, reserved, lines)?;
            payload_lines(bth, payload, lines)?;
        }
    }
    lines.header(format_args!("Invariant CRC"))?;
    lines.check("ICRC", icrc)
}

fn base(bth: &Bth, reserved: &Reserved, lines: &mut Lines<'_, '_>) -> fmt::Result {
    lines.header(format_args!("Base transport header"))?;
    lines.field("Opcode", format_args!("{} ({:#04x})", bth.opcode, bth.opcode.0))?;
    lines.field("Solicited event", bth.solicited)?;
    lines.field("Migration request", bth.migration)?;
    lines.field("Transport version", 0)?;
    lines.field("Partition key", bth.pkey)?;
    lines.field("FECN", bth.fecn)?;
    lines.field("BECN", bth.becn)?;
    lines.field("Destination queue pair", bth.dest_qp)?;
    lines.field("Acknowledge request", bth.ack_request)?;
    lines.field("Packet sequence number", format_args!("{:?} ({})", bth.psn, bth.psn.get()))?;
    lines.odd("Reserved bits of byte 4", reserved.bth_4.into())?;
    lines.odd("Reserved bits of byte 8", reserved.bth_8.into())
}

fn extensions(ext: &Extensions, reserved: &Reserved, lines: &mut Lines<'_, '_>) -> fmt::Result {
    if let Some(deth) = ext.deth {
        lines.header(format_args!("Datagram header"))?;
        lines.field("Queue key", deth.qkey)?;
        lines.field("Source queue pair", deth.source_qp)?;
        lines.odd("Reserved byte", reserved.deth.into())?;
    }
    if let Some(srq) = ext.xrc_srq {
        lines.header(format_args!("XRC header"))?;
        lines.field("Shared receive queue", srq)?;
        lines.odd("Reserved byte", reserved.xrceth.into())?;
    }
    if let Some(feth) = ext.feth {
        lines.header(format_args!("Flush header"))?;
        lines.field("Selectivity", feth.selectivity)?;
        lines.field("Placement", format_args!("{:#x}", feth.placement))?;
        lines.odd("Reserved bits", reserved.feth)?;
    }
    if let Some(Reth { va, rkey, length }) = ext.reth {
        lines.header(format_args!("RDMA header"))?;
        lines.field("Virtual address", format_args!("{va:#018x}"))?;
        lines.field("Remote key", rkey)?;
        lines.field("DMA length", length)?;
    }
    if let Some(AtomicEth { va, rkey, swap_add, compare }) = ext.atomic {
        lines.header(format_args!("Atomic header"))?;
        lines.field("Virtual address", format_args!("{va:#018x}"))?;
        lines.field("Remote key", rkey)?;
        lines.field("Swap or add", format_args!("{swap_add:#018x}"))?;
        lines.field("Compare", format_args!("{compare:#018x}"))?;
    }
    answers(ext, lines)
}

fn answers(ext: &Extensions, lines: &mut Lines<'_, '_>) -> fmt::Result {
    if let Some(aeth) = ext.aeth {
        lines.header(format_args!("Acknowledgement header"))?;
        let byte = aeth.syndrome.to_byte();
        lines.field("Syndrome", format_args!("{byte:#04x} ({})", aeth.syndrome))?;
        lines.field("Message sequence number", aeth.msn.get())?;
    }
    if let Some(original) = ext.atomic_ack {
        lines.header(format_args!("Atomic acknowledgement header"))?;
        lines.field("Original value", format_args!("{original:#018x}"))?;
    }
    if let Some(imm) = ext.imm {
        lines.header(format_args!("Immediate data"))?;
        lines.field("Value", format_args!("{:#010x}", u32::from_be_bytes(imm)))?;
    }
    if let Some(rkey) = ext.invalidate {
        lines.header(format_args!("Invalidate header"))?;
        lines.field("Remote key", rkey)?;
    }
    Ok(())
}

fn payload_lines(bth: &Bth, payload: &[u8], lines: &mut Lines<'_, '_>) -> fmt::Result {
    let to_management = bth.dest_qp == Qpn::GSI && bth.opcode.0 == 0x64;
    match Mad::parse(payload) {
        Ok(mad) if to_management => mad::tree(&mad, lines),
        _ if payload.is_empty() => Ok(()),
        _ => {
            lines.header(format_args!("Payload"))?;
            lines.bytes("Data", payload)
        }
    }
}

fn pause(control: &MacControl, lines: &mut Lines<'_, '_>) -> fmt::Result {
    lines.header(format_args!("MAC control, {}", PauseText(control)))?;
    match control {
        MacControl::Pause { quanta } => {
            lines.field("Opcode", "0x0001 (pause)")?;
            lines.field("Quanta", quanta)
        }
        MacControl::Pfc(pfc) => {
            lines.field("Opcode", "0x0101 (priority-based flow control)")?;
            lines.field("Classes", format_args!("{:#06x}", pfc.classes))?;
            lines.field("Quanta", format_args!("{:?}", pfc.quanta))
        }
    }
}

impl Display for Tree<'_, LinkPacket<'_>> {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let mut lines = Lines(f);
        let Lrh { virtual_lane, service_level, destination, source, reserved } = self.0.lrh;
        lines.header(format_args!("Local route header, LID {source} to {destination}"))?;
        lines.field("Virtual lane", virtual_lane)?;
        lines.field("Version", 0)?;
        lines.field("Service level", service_level)?;
        lines.odd("Reserved bits before the next header", reserved.0.into())?;
        lines.odd("Reserved bits before the length", reserved.1.into())?;
        let next = match &self.0.body {
            LinkBody::Raw { next: 0, .. } => "0 (raw)",
            LinkBody::Raw { .. } => "1 (IPv6)",
            LinkBody::Transport { grh: None, .. } => "2 (BTH)",
            LinkBody::Transport { grh: Some(_), .. } => "3 (GRH)",
        };
        lines.field("Next header", next)?;
        lines.field("Length", format_args!("{} words", self.0.covered_len() / 4))?;
        match &self.0.body {
            LinkBody::Raw { next, bytes } => {
                lines.header(format_args!("Raw packet, next header {next}"))?;
                lines.bytes("Content", bytes)?;
            }
            LinkBody::Transport { grh: header, content: inside, icrc } => {
                if let Some(header) = header {
                    grh(header, inside.wire_len(), &mut lines)?;
                }
                content(inside, *icrc, &mut lines)?;
            }
        }
        lines.check("VCRC", self.0.vcrc)?;
        lines.bytes("Behind the packet", self.0.trailer)
    }
}
