//! Management datagrams of the connection manager: a line, or every field.

use core::fmt::{self, Formatter, Write};

use super::tree::Lines;
use crate::ids::Mtu;
use crate::mad::{CmMessage, CmPath, IpCmHeader, Lap, Mad, Rep, Req, timeout_span};

/// The message in a few words.
pub(super) fn line(mad: &Mad, f: &mut Formatter<'_>) -> fmt::Result {
    write!(f, "CM {}", mad.message.name())?;
    match &mad.message {
        CmMessage::Req(m) => {
            write!(f, " service {} from qp {} psn {:?}", m.service, m.qpn, m.psn)?;
            if let Some(mtu) = m.mtu {
                write!(f, " mtu {}", mtu.bytes())?;
            }
            write!(f, " id {:#x}", m.local_id)
        }
        CmMessage::Rep(m) => {
            let (qp, psn) = (m.qpn, m.psn);
            write!(f, " from qp {qp} psn {psn:?} id {:#x} to {:#x}", m.local_id, m.remote_id)
        }
        CmMessage::Rej(m) => {
            write!(f, " of {:?}, reason {}", m.subject, m.reason)?;
            write!(f, " id {:#x} to {:#x}", m.local_id, m.remote_id)
        }
        CmMessage::Mra(m) => write!(f, " id {:#x} to {:#x}", m.local_id, m.remote_id),
        CmMessage::Rtu(m) => write!(f, " id {:#x} to {:#x}", m.local_id, m.remote_id),
        CmMessage::Dreq(m) => write!(f, " id {:#x} to {:#x}", m.local_id, m.remote_id),
        CmMessage::Drep(m) => write!(f, " id {:#x} to {:#x}", m.local_id, m.remote_id),
        CmMessage::SidrReq(m) => write!(f, " service {} id {:#x}", m.service, m.request_id),
        CmMessage::SidrRep(m) => {
            write!(f, " status {} qp {} id {:#x}", m.status, m.qpn, m.request_id)
        }
        CmMessage::Lap(m) => write!(f, " id {:#x} to {:#x}", m.local_id, m.remote_id),
        CmMessage::Apr(m) => write!(f, " id {:#x} to {:#x}", m.local_id, m.remote_id),
    }
}

/// The datagram with every field.
pub(super) fn tree(mad: &Mad, lines: &mut Lines<'_, '_>) -> fmt::Result {
    let (header, message) = (&mad.header, &mad.message);
    lines.header(format_args!("Management datagram, {}", message.name()))?;
    lines.field("Base version", 1)?;
    lines.field("Management class", "0x07 (communication management)")?;
    lines.field("Class version", 2)?;
    lines.field("Method", "0x03 (Send)")?;
    lines.field("Status", header.status)?;
    lines.odd("Class specific", header.class_specific.into())?;
    lines.field("Transaction", format_args!("{:#018x}", header.transaction))?;
    lines.field("Attribute", format_args!("{:#06x}", message.attribute()))?;
    lines.odd("Attribute modifier", header.modifier)?;
    lines.header(format_args!("Communication management, {}", message.name()))?;
    match message {
        CmMessage::Req(m) => request(m, lines),
        CmMessage::Rep(m) => reply(m, lines),
        CmMessage::Rtu(m) => ended(m.local_id, m.remote_id, &m.private, lines),
        CmMessage::Drep(m) => ended(m.local_id, m.remote_id, &m.private, lines),
        CmMessage::Dreq(m) => {
            lines.field("Remote queue pair", m.remote_qpn)?;
            ended(m.local_id, m.remote_id, &m.private, lines)
        }
        CmMessage::Mra(m) => {
            lines.field("Message received", format_args!("{:?}", m.subject))?;
            timeout("Service timeout", m.service_timeout, lines)?;
            ended(m.local_id, m.remote_id, &m.private, lines)
        }
        CmMessage::Rej(m) => {
            lines.field("Message rejected", format_args!("{:?}", m.subject))?;
            lines.field("Reason", m.reason)?;
            lines.field("Length of the detail", m.info_len)?;
            lines.bytes("Detail", m.info())?;
            ended(m.local_id, m.remote_id, &m.private, lines)
        }
        CmMessage::SidrReq(m) => {
            lines.field("Request id", format_args!("{:#010x}", m.request_id))?;
            lines.field("Partition key", m.pkey)?;
            lines.field("Service", m.service)?;
            private(&m.private, lines)
        }
        CmMessage::SidrRep(m) => {
            lines.field("Request id", format_args!("{:#010x}", m.request_id))?;
            lines.field("Status", m.status)?;
            lines.field("Queue pair", m.qpn)?;
            lines.field("Service", m.service)?;
            lines.field("Queue key", m.qkey)?;
            lines.field("Length of the detail", m.info_len)?;
            lines.bytes("Private data", filled(&m.private))
        }
        CmMessage::Lap(m) => alternate(m, lines),
        CmMessage::Apr(m) => {
            lines.field("Status", m.status)?;
            lines.field("Length of the detail", m.info_len)?;
            ended(m.local_id, m.remote_id, &m.private, lines)
        }
    }
}

fn request(m: &Req, lines: &mut Lines<'_, '_>) -> fmt::Result {
    ids(m.local_id, None, lines)?;
    lines.field("Service", m.service)?;
    lines.field("Adapter GUID", format_args!("{:#018x}", m.guid))?;
    lines.field("Queue key", m.qkey)?;
    lines.field("Queue pair", m.qpn)?;
    lines.field("Responder resources", m.responder_resources)?;
    lines.field("Initiator depth", m.initiator_depth)?;
    lines.odd("Local EECN", m.eecn)?;
    lines.odd("Remote EECN", m.remote_eecn)?;
    timeout("Remote response timeout", m.remote_response_timeout, lines)?;
    lines.field("Transport service", format_args!("{:?}", m.service_type))?;
    lines.field("End-to-end flow control", m.flow_control)?;
    lines.field("Starting PSN", format_args!("{:?} ({})", m.psn, m.psn.get()))?;
    timeout("Local response timeout", m.local_response_timeout, lines)?;
    lines.field("Retry count", m.retry_count)?;
    lines.field("Partition key", m.pkey)?;
    mtu(m.mtu, lines)?;
    lines.field("RDC exists", m.rdc_exists)?;
    lines.field("RNR retry count", m.rnr_retry)?;
    lines.field("Max CM retries", m.max_cm_retries)?;
    lines.field("Shared receive queue", m.srq)?;
    lines.field("Extended transport type", m.extended_type)?;
    path("Primary path", &m.primary, lines)?;
    if m.alternate != CmPath::default() {
        path("Alternate path", &m.alternate, lines)?;
    }
    private(&m.private, lines)
}

fn reply(m: &Rep, lines: &mut Lines<'_, '_>) -> fmt::Result {
    ids(m.local_id, Some(m.remote_id), lines)?;
    lines.field("Queue key", m.qkey)?;
    lines.field("Queue pair", m.qpn)?;
    lines.odd("Local EECN", m.eecn)?;
    lines.field("Starting PSN", format_args!("{:?} ({})", m.psn, m.psn.get()))?;
    lines.field("Responder resources", m.responder_resources)?;
    lines.field("Initiator depth", m.initiator_depth)?;
    timeout("Target ACK delay", m.ack_delay, lines)?;
    lines.field("Failover accepted", m.failover)?;
    lines.field("End-to-end flow control", m.flow_control)?;
    lines.field("RNR retry count", m.rnr_retry)?;
    lines.field("Shared receive queue", m.srq)?;
    lines.field("Adapter GUID", format_args!("{:#018x}", m.guid))?;
    lines.bytes("Private data", filled(&m.private))
}

fn alternate(m: &Lap, lines: &mut Lines<'_, '_>) -> fmt::Result {
    lines.field("Remote queue pair", m.remote_qpn)?;
    timeout("Remote response timeout", m.remote_response_timeout, lines)?;
    let path_of = CmPath {
        local_lid: m.local_lid,
        remote_lid: m.remote_lid,
        local_gid: m.local_gid,
        remote_gid: m.remote_gid,
        flow_label: m.flow_label,
        rate: m.rate,
        traffic_class: m.traffic_class,
        hop_limit: m.hop_limit,
        sl: m.sl,
        subnet_local: m.subnet_local,
        ack_timeout: m.ack_timeout,
    };
    path("Alternate path", &path_of, lines)?;
    ended(m.local_id, m.remote_id, &m.private, lines)
}

fn ids(local: u32, remote: Option<u32>, lines: &mut Lines<'_, '_>) -> fmt::Result {
    lines.field("Local communication id", format_args!("{local:#010x}"))?;
    match remote {
        Some(remote) => lines.field("Remote communication id", format_args!("{remote:#010x}")),
        None => Ok(()),
    }
}

/// The fields that most messages have.
fn ended(local: u32, remote: u32, private: &[u8], lines: &mut Lines<'_, '_>) -> fmt::Result {
    ids(local, Some(remote), lines)?;
    lines.bytes("Private data", filled(private))
}

/// Private data, of which an RDMA-CM address header may be the front.
fn private(bytes: &[u8], lines: &mut Lines<'_, '_>) -> fmt::Result {
    let Some(header) = IpCmHeader::parse(bytes) else {
        return lines.bytes("Private data", filled(bytes));
    };
    let (source, port, destination) = (header.source, header.source_port, header.destination);
    lines.field("RDMA-CM address header", format_args!("{source} port {port} to {destination}"))?;
    lines.bytes("Private data", filled(bytes.get(IpCmHeader::LEN..).unwrap_or_default()))
}

/// Bytes without the zeros that fill them up.
fn filled(bytes: &[u8]) -> &[u8] {
    let end = bytes.iter().rposition(|byte| *byte != 0).map_or(0, |last| last + 1);
    &bytes[..end]
}

fn path(name: &str, path: &CmPath, lines: &mut Lines<'_, '_>) -> fmt::Result {
    let (from, to) = (path.local_gid.to_ip(), path.remote_gid.to_ip());
    lines.field(name, format_args!("{from} to {to}"))?;
    let lids = format_args!("{:#06x} to {:#06x}", path.local_lid, path.remote_lid);
    lines.field("  LIDs", lids)?;
    lines.field("  Flow label", format_args!("{:#07x}", path.flow_label))?;
    lines.field("  Packet rate", path.rate)?;
    lines.field("  Traffic class", format_args!("{:#04x}", path.traffic_class))?;
    lines.field("  Hop limit", path.hop_limit)?;
    lines.field("  Service level", path.sl)?;
    lines.field("  Subnet local", path.subnet_local)?;
    timeout("  ACK timeout", path.ack_timeout, lines)
}

fn timeout(name: &str, code: u8, lines: &mut Lines<'_, '_>) -> fmt::Result {
    let mut text = String::new();
    let us = timeout_span(code).as_ps() / 1_000_000;
    write!(text, "{code} ({}.{:03} ms)", us / 1000, us % 1000)?;
    lines.field(name, text)
}

fn mtu(mtu: Option<Mtu>, lines: &mut Lines<'_, '_>) -> fmt::Result {
    match mtu {
        Some(mtu) => lines.field("Path MTU", mtu.bytes()),
        None => lines.field("Path MTU", "a code that means nothing"),
    }
}
