//! Words for what the connection manager's datagrams say in numbers: services, reasons, states of a
//! resolution. InfiniBand architecture 1.4, chapter 12, tables of REJ reasons and SIDR_REP states.

use wire::mad::{IpCmHeader, PortSpace, ServiceId, ServiceType};

/// REJ reason: the sender waited for an answer in vain and gives its request up.
pub(super) const TIMEOUT: u16 = 4;
/// REJ reasons that send the requester elsewhere: no refusal.
pub(super) const REDIRECTIONS: [u16; 2] = [24, 25];

/// A REJ reason in words.
pub(super) const fn rejection(reason: u16) -> &'static str {
    match reason {
        1 => "no queue pair available",
        2 => "no end-to-end context available",
        3 => "no resources",
        TIMEOUT => "timed out waiting for the answer",
        5 => "request not supported",
        6 => "no such communication id",
        7 => "communication ids do not belong together",
        8 => "nobody listens on this service",
        9 => "transport service not offered",
        10 => "stale connection: the queue pair is still in use there",
        11 => "no such reliable domain",
        12 => "GID of the path not accepted",
        13 => "LID of the path not accepted",
        14 => "service level not accepted",
        15 => "traffic class not accepted",
        16 => "hop limit not accepted",
        17 => "packet rate not accepted",
        18 => "GID of the alternate path not accepted",
        19 => "LID of the alternate path not accepted",
        20 => "service level of the alternate path not accepted",
        21 => "traffic class of the alternate path not accepted",
        22 => "hop limit of the alternate path not accepted",
        23 => "packet rate of the alternate path not accepted",
        24 => "redirected to another port and connection manager",
        25 => "redirected to another port",
        26 => "path MTU not supported",
        27 => "too few responder resources",
        28 => "rejected by the application",
        29 => "RNR retry count not supported",
        30 => "communication id in use already",
        31 => "version of connection management not supported",
        32 => "flow label not accepted",
        33 => "flow label of the alternate path not accepted",
        35 => "option of the vendor not supported",
        _ => "unknown reason",
    }
}

/// What to do about a REJ reason, where more can be said than the rule says.
pub(super) const fn advice(reason: u16) -> &'static str {
    match reason {
        3 | 1 => "look for exhausted queue pairs or memory on the rejecting host",
        8 => "start the server, or see its port and the address that it is bound to",
        10 => "the other end has not noticed that the old queue pair is gone; try again later",
        26 => "the rejecting port's MTU is smaller: set the same MTU on both",
        27 => "ask for fewer READs in flight (responder_resources, initiator_depth)",
        28 => "see the server's own log: its limits, its authentication",
        12 => "the GID asked for is not the port's: see the address, VLAN and RoCE version",
        _ => "",
    }
}

/// The number of a rejection, by reason; several reasons between two hosts are counted apart.
pub(super) const fn counter(reason: u16) -> &'static str {
    match reason {
        3 => "no_resources",
        8 => "nobody_listens",
        10 => "stale_connection",
        12 => "invalid_gid",
        26 => "invalid_mtu",
        28 => "by_the_application",
        _ => "other_reasons",
    }
}

/// A state of SIDR_REP as the REJ reason that means the same.
pub(super) const fn resolution(status: u8) -> u16 {
    match status {
        1 => 8,
        2 => 28,
        3 => 1,
        4 => 25,
        5 => 31,
        _ => u16::MAX,
    }
}

/// A service id in words: `TCP port 7471`.
pub(super) fn service(id: ServiceId) -> String {
    match id.to_rdma_cm() {
        Some((space, port)) => {
            let space = match space {
                PortSpace::Tcp => "TCP",
                PortSpace::Udp => "UDP",
                PortSpace::Ib => "IB",
                PortSpace::IpoIb => "IPoIB",
            };
            format!("{space} port {port}")
        }
        None => format!("service {:#018x}", id.0),
    }
}

/// A type of service in words.
pub(super) const fn transport(service: ServiceType, extended: u8) -> &'static str {
    match (service, extended) {
        (ServiceType::Rc, _) => "RC",
        (ServiceType::Uc, _) => "UC",
        (ServiceType::Rd, _) => "RD",
        (ServiceType::Extended, 1) => "XRC",
        (ServiceType::Extended, _) => "extended",
    }
}

/// Private data as hexadecimal without the zeros that fill it up: its length is not on the wire.
pub(super) fn hex(bytes: &[u8]) -> String {
    let filled = bytes.iter().rposition(|byte| *byte != 0).map_or(0, |last| last + 1);
    bytes.iter().take(filled).map(|byte| format!("{byte:02x}")).collect()
}

/// The RDMA-CM header in front of a request's private data, if its service has one, and the rest.
pub(super) fn split_private(id: ServiceId, private: &[u8]) -> (Option<IpCmHeader>, &[u8]) {
    let header = id.to_rdma_cm().and_then(|_| IpCmHeader::parse(private));
    match header {
        Some(header) => (Some(header), private.get(IpCmHeader::LEN..).unwrap_or_default()),
        None => (None, private),
    }
}
