//! Packets as text: one line, or a tree with every field. The captures' bytes have their way in
//! here too ([`describe`]): whatever they are, a text comes out. The text is for people and not
//! stable.

use core::fmt::{self, Display, Formatter, Write};

use crate::checksum::Check;
use crate::content::Content;
use crate::error::DropReason;
use crate::ethernet::TYPE_LLDP;
use crate::frame::{Body, Frame, Network, Roce, parse_frame};
use crate::infiniband::{self, LinkBody, LinkPacket};
use crate::ip::Ip;
use crate::mac_control::MacControl;
use crate::mad::Mad;
use crate::packet::{Bth, Extensions, Path};
use crate::transport::pad_len;
use crate::vxlan;

mod links;
mod lldp;
mod mad;
mod other;
mod tree;

pub use lldp::Lldp;
pub use tree::Tree;

use links::{Depth, Next};
use other::Other;
use tree::Behind;

/// What bytes begin with.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Start {
    /// An Ethernet header.
    Ethernet,
    /// An InfiniBand local route header.
    Infiniband,
    /// An IPv4 or IPv6 header.
    RawIp,
    /// The Linux cooked header, version 1.
    Cooked,
    /// The Linux cooked header, version 2.
    Cooked2,
    /// An ERF record header.
    Erf,
}

/// How deep a frame in a tunnel in a tunnel is followed.
const TUNNELS: usize = 4;

/// Describes any bytes with all their fields, or says why a receiver drops them. A frame inside a
/// tunnel (VXLAN, GRE, ERSPAN) follows the frame that carries it.
pub fn describe(start: Start, bytes: &[u8]) -> String {
    let mut text = String::new();
    // Writing into a String cannot fail.
    let _ = described(start, bytes, &mut text);
    text
}

fn described(start: Start, bytes: &[u8], text: &mut String) -> fmt::Result {
    let next = match start {
        Start::Ethernet => Next::Ethernet(bytes),
        Start::Infiniband => Next::Infiniband(bytes),
        Start::RawIp => links::raw_ip(bytes),
        Start::Cooked => links::cooked(bytes, text)?,
        Start::Cooked2 => links::cooked2(bytes, text)?,
        Start::Erf => links::erf(bytes, text)?,
    };
    follow(next, Depth::new(), text)
}

/// Describes what comes next, and what that carries.
fn follow(next: Next<'_>, depth: Depth, text: &mut String) -> fmt::Result {
    match next {
        Next::Opaque => Ok(()),
        Next::Infiniband(bytes) => match infiniband::parse(bytes) {
            Ok(packet) => write!(text, "{}", Tree(&packet)),
            Err(reason) => dropped(reason, bytes, text),
        },
        Next::Ethernet(bytes) => describe_frame(bytes, true, depth, text),
        Next::Network(kind, bytes) => {
            // Without an Ethernet header, as it were behind one.
            let mut frame = vec![0; 12];
            frame.extend(kind.to_be_bytes());
            frame.extend(bytes);
            describe_frame(&frame, false, depth, text)
        }
    }
}

fn dropped(reason: DropReason, bytes: &[u8], text: &mut String) -> fmt::Result {
    writeln!(text, "Dropped: {reason} ({} bytes)", bytes.len())
}

fn describe_frame(bytes: &[u8], whole: bool, depth: Depth, text: &mut String) -> fmt::Result {
    match parse_frame(bytes) {
        Ok(frame) if whole => write!(text, "{}", Tree(&frame))?,
        Ok(frame) => write!(text, "{}", Behind(&frame))?,
        Err(reason) => return dropped(reason, bytes, text),
    }
    let next = match vxlan::decapsulate(bytes) {
        Ok(Some(tunnelled)) => {
            let (source, destination) = (tunnelled.source, tunnelled.destination);
            writeln!(text, "VXLAN, {source} to {destination}")?;
            writeln!(text, "    Source port: {}", tunnelled.source_port)?;
            writeln!(text, "    Network identifier: {}", tunnelled.network)?;
            Next::Ethernet(tunnelled.frame)
        }
        Ok(None) => match links::gre(bytes, text)? {
            Some(next) => next,
            None => return Ok(()),
        },
        Err(reason) => return writeln!(text, "Tunnel dropped: {reason}"),
    };
    match depth.deeper() {
        Some(depth) => follow(next, depth, text),
        None => writeln!(text, "More tunnels are not followed"),
    }
}

/// One line for a frame or a link's packet.
#[derive(Clone, Copy, Debug)]
pub struct Line<'a, T>(pub &'a T);

impl Display for Line<'_, Frame<'_>> {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let frame = self.0;
        for tag in frame.ethernet.tags.iter().flatten() {
            write!(f, "vlan {} prio {} ", tag.vlan(), tag.priority())?;
        }
        match &frame.body {
            Body::Roce(roce) => roce_line(frame, roce, f),
            Body::MacControl(control) => {
                write!(f, "{} {}", frame.ethernet.source, PauseText(control))
            }
            Body::Opaque { ether_type: TYPE_LLDP, bytes } => {
                write!(f, "{} {}", frame.ethernet.source, Lldp(bytes))
            }
            Body::Opaque { ether_type, bytes } => {
                let (from, to) = (frame.ethernet.source, frame.ethernet.destination);
                match Other::parse(*ether_type, bytes) {
                    Some(other) => other.line(f),
                    None => write!(f, "{from} > {to} type {ether_type:#06x} len {}", bytes.len()),
                }
            }
        }
    }
}

fn roce_line(frame: &Frame<'_>, roce: &Roce<'_>, f: &mut Formatter<'_>) -> fmt::Result {
    write!(f, "{} ", PathText(&roce.network.path(&frame.ethernet)))?;
    if let Network::Udp { ip: Ip::V4(ip), .. } = &roce.network {
        write!(f, "id {} ", ip.ident)?;
    }
    content_line(&roce.content, roce.icrc, f)
}

impl Display for Line<'_, LinkPacket<'_>> {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let lrh = &self.0.lrh;
        write!(
            f,
            "lid {} > {} vl {} sl {} ",
            lrh.source, lrh.destination, lrh.virtual_lane, lrh.service_level
        )?;
        match &self.0.body {
            LinkBody::Raw { next, bytes } => write!(f, "raw {next} len {}", bytes.len())?,
            LinkBody::Transport { grh, content, icrc } => {
                if let Some(grh) = grh {
                    write!(f, "{} > {} ", grh.source, grh.destination)?;
                }
                content_line(content, *icrc, f)?;
            }
        }
        write!(f, " vcrc {}", verdict(self.0.vcrc.is_right()))
    }
}

fn content_line(content: &Content<'_>, icrc: Check<u32>, f: &mut Formatter<'_>) -> fmt::Result {
    match content {
        Content::Transport { bth, ext, payload, .. } => {
            write!(f, "{}", headers(bth, ext, payload.len()))?;
        }
        Content::Refused { reason, bytes } => write!(f, "refused: {reason}, len {}", bytes.len())?,
    }
    write!(f, " icrc {}", verdict(icrc.is_right()))
}

fn verdict(right: bool) -> &'static str {
    if right { "ok" } else { "BAD" }
}

/// The network layer of a packet in a line: addresses, traffic class, and what is not usual.
#[derive(Clone, Copy, Debug)]
pub struct PathText<'a>(pub &'a Path);

impl Display for PathText<'_> {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let path = self.0;
        let (source, destination) = (path.source.to_ip(), path.destination.to_ip());
        match path.source_port {
            0 => write!(f, "{source} > {destination}")?,
            port if source.is_ipv6() => write!(f, "[{source}]:{port} > {destination}")?,
            port => write!(f, "{source}:{port} > {destination}")?,
        }
        write!(f, " tc {:#04x}", path.traffic_class)?;
        if path.hop_limit != 64 {
            write!(f, " hops {}", path.hop_limit)?;
        }
        if path.flow_label != 0 {
            write!(f, " flow {:#07x}", path.flow_label)?;
        }
        Ok(())
    }
}

/// Transport headers in a line, also for packets that were never bytes.
pub fn headers<'a>(bth: &'a Bth, ext: &'a Extensions, payload_len: usize) -> Headers<'a> {
    Headers { bth, ext, payload_len }
}

/// See [`headers`].
#[derive(Clone, Copy, Debug)]
pub struct Headers<'a> {
    bth: &'a Bth,
    ext: &'a Extensions,
    payload_len: usize,
}

impl Display for Headers<'_> {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let Self { bth, ext, payload_len } = self;
        write!(f, "{} qp {} psn {:?}", bth.opcode, bth.dest_qp, bth.psn)?;
        let flags = [
            (bth.ack_request, " ackreq"),
            (bth.solicited, " solicited"),
            (bth.fecn, " fecn"),
            (bth.becn, " becn"),
        ];
        for (_, name) in flags.iter().filter(|(set, _)| *set) {
            f.write_str(name)?;
        }
        if bth.pkey != crate::PKey::DEFAULT {
            write!(f, " pkey {}", bth.pkey)?;
        }
        extensions_line(ext, f)?;
        write!(f, " len {payload_len}")?;
        match pad_len(*payload_len) {
            0 => Ok(()),
            pad => write!(f, "+{pad}"),
        }
    }
}

fn extensions_line(ext: &Extensions, f: &mut Formatter<'_>) -> fmt::Result {
    if let Some(deth) = ext.deth {
        write!(f, " from qp {} qkey {}", deth.source_qp, deth.qkey)?;
    }
    if let Some(srq) = ext.xrc_srq {
        write!(f, " srq {srq}")?;
    }
    if let Some(feth) = ext.feth {
        write!(f, " selectivity {} placement {:#x}", feth.selectivity, feth.placement)?;
    }
    if let Some(reth) = ext.reth {
        write!(f, " va {:#x} rkey {} dmalen {}", reth.va, reth.rkey, reth.length)?;
    }
    if let Some(atomic) = ext.atomic {
        write!(f, " va {:#x} rkey {}", atomic.va, atomic.rkey)?;
        write!(f, " swap/add {:#x} compare {:#x}", atomic.swap_add, atomic.compare)?;
    }
    if let Some(aeth) = ext.aeth {
        write!(f, " {} msn {}", aeth.syndrome, aeth.msn.get())?;
    }
    if let Some(original) = ext.atomic_ack {
        write!(f, " original {original:#x}")?;
    }
    if let Some(imm) = ext.imm {
        write!(f, " imm {:#010x}", u32::from_be_bytes(imm))?;
    }
    if let Some(rkey) = ext.invalidate {
        write!(f, " invalidate {rkey}")?;
    }
    Ok(())
}

/// A pause in a line: `PFC prio 3 pause 65535 quanta`.
#[derive(Clone, Copy, Debug)]
pub struct PauseText<'a>(pub &'a MacControl);

impl Display for PauseText<'_> {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self.0 {
            MacControl::Pause { quanta } => write!(f, "PAUSE {quanta} quanta"),
            MacControl::Pfc(pfc) => {
                write!(f, "PFC")?;
                for priority in 0..8 {
                    match pfc.get(priority) {
                        Some(0) => write!(f, " prio {priority} resume")?,
                        Some(quanta) => write!(f, " prio {priority} pause {quanta} quanta")?,
                        None => {}
                    }
                }
                Ok(())
            }
        }
    }
}

/// A management datagram in a line: `CM REQ service Tcp:7471 from qp 0x000012 ...`.
#[derive(Clone, Copy, Debug)]
pub struct MadText<'a>(pub &'a Mad);

impl Display for MadText<'_> {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        mad::line(self.0, f)
    }
}
