//! Management datagrams that a Linux kernel sent: each parses and is emitted again byte for byte,
//! and its fields are what the kernel meant.

use std::net::{IpAddr, Ipv4Addr};

use wire::mad::{CmMessage, IpCmHeader, Mad, PortSpace, RejectReason, ServiceType, Subject};
use wire::{Gid, Mtu, PKey, Psn, Qpn};

const CLIENT: IpAddr = IpAddr::V4(Ipv4Addr::new(10, 77, 1, 1));
const SERVER: IpAddr = IpAddr::V4(Ipv4Addr::new(10, 77, 1, 2));

/// The management datagrams of a capture (Ethernet, IPv4, UDP), each with its source address.
fn mads(capture: &str) -> Vec<(Ipv4Addr, Vec<u8>)> {
    const BTH: usize = 14 + 20 + 8;
    const PAYLOAD: usize = BTH + 12 + 8;
    let path = format!("{}/tests/captures/{capture}", env!("CARGO_MANIFEST_DIR"));
    let file = std::fs::read(&path).unwrap_or_else(|e| panic!("{path}: {e}"));
    let mut found = Vec::new();
    let mut at = 24;
    while at < file.len() {
        let length = u32::from_le_bytes(file[at + 8..at + 12].try_into().unwrap()) as usize;
        let frame = &file[at + 16..at + 16 + length];
        at += 16 + length;
        if frame[BTH] == 0x64 {
            let source: [u8; 4] = frame[26..30].try_into().unwrap();
            found.push((source.into(), frame[PAYLOAD..frame.len() - 4].to_vec()));
        }
    }
    found
}

fn parsed(capture: &str) -> Vec<(Ipv4Addr, Mad)> {
    let parse = |(source, bytes): (Ipv4Addr, Vec<u8>)| (source, Mad::parse(&bytes).unwrap());
    mads(capture).into_iter().map(parse).collect()
}

fn names(mads: &[(Ipv4Addr, Mad)]) -> Vec<String> {
    mads.iter().map(|(from, mad)| format!("{} {}", from.octets()[3], mad.message.name())).collect()
}

#[test]
fn what_a_kernel_sent_is_emitted_again_byte_for_byte() {
    let mut count = 0;
    for capture in ["cm-rping", "cm-req-retry", "cm-reject-closed-port", "cm-ucmatose-tos"] {
        for (_, bytes) in mads(&format!("{capture}.pcap")) {
            let mad = Mad::parse(&bytes).unwrap();
            assert_eq!(mad.emit()[..], bytes[..], "{capture}: {mad:?}");
            count += 1;
        }
    }
    assert_eq!(count, 5 + 7 + 2 + 10);
}

#[test]
fn rping_connects_and_disconnects() {
    let mads = parsed("cm-rping.pcap");
    assert_eq!(names(&mads), ["1 REQ", "2 REP", "1 RTU", "1 DREQ", "2 DREP"]);
    let (CmMessage::Req(req), CmMessage::Rep(rep), CmMessage::Rtu(rtu), CmMessage::Dreq(dreq)) =
        (mads[0].1.message, mads[1].1.message, mads[2].1.message, mads[3].1.message)
    else {
        panic!("other messages")
    };
    for (_, mad) in &mads {
        assert_eq!(mad.header.transaction, 0x0000_0002_d623_da66, "all of one transaction");
    }

    assert_eq!(req.local_id, 0x66da_23d6);
    assert_eq!(req.service.to_rdma_cm(), Some((PortSpace::Tcp, 7174)));
    assert_eq!(req.guid, 0x0077_00ff_fe00_000a);
    assert_eq!((req.qpn, req.psn), (Qpn::new(0x70), Psn::new(0x4a_d7d2)));
    assert_eq!((req.responder_resources, req.initiator_depth), (1, 1));
    assert_eq!((req.remote_response_timeout, req.local_response_timeout), (20, 20));
    assert_eq!((req.service_type, req.flow_control, req.srq), (ServiceType::Rc, false, false));
    assert_eq!((req.retry_count, req.rnr_retry, req.max_cm_retries), (7, 7, 15));
    assert_eq!((req.pkey, req.mtu), (PKey::DEFAULT, Some(Mtu::B4096)));
    assert_eq!((req.primary.local_lid, req.primary.remote_lid), (0xFFFF, 0xFFFF));
    assert_eq!(req.primary.local_gid, Gid::from_ip(CLIENT));
    assert_eq!(req.primary.remote_gid, Gid::from_ip(SERVER));
    assert_eq!((req.primary.flow_label, req.primary.hop_limit), (0x6dc83, 64));
    assert_eq!((req.primary.traffic_class, req.primary.ack_timeout), (0, 19));
    assert_eq!(req.alternate, Default::default());
    assert_eq!(
        IpCmHeader::parse(&req.private),
        Some(IpCmHeader { source_port: 0xbbe3, source: CLIENT, destination: SERVER })
    );

    assert_eq!((rep.local_id, rep.remote_id), (0x65da_23d6, req.local_id));
    assert_eq!((rep.qpn, rep.psn), (Qpn::new(0x70), Psn::new(0xd2_d159)));
    assert_eq!((rep.responder_resources, rep.initiator_depth), (1, 1));
    assert_eq!((rep.ack_delay, rep.failover, rep.rnr_retry, rep.srq), (15, 0, 7, false));
    assert_eq!(rep.guid, 0x0077_00ff_fe00_000b);
    assert_eq!((rtu.local_id, rtu.remote_id), (req.local_id, rep.local_id));
    assert_eq!((dreq.local_id, dreq.remote_id), (req.local_id, rep.local_id));
    assert_eq!(dreq.remote_qpn, rep.qpn);
}

#[test]
fn a_port_nobody_listens_on_is_refused_with_reason_8() {
    let mads = parsed("cm-reject-closed-port.pcap");
    assert_eq!(names(&mads), ["1 REQ", "2 REJ"]);
    let (CmMessage::Req(req), CmMessage::Rej(rej)) = (mads[0].1.message, mads[1].1.message) else {
        panic!("other messages")
    };
    assert_eq!((rej.local_id, rej.remote_id), (0, req.local_id));
    assert_eq!((rej.subject, rej.reason), (Subject::Req, RejectReason::INVALID_SERVICE_ID));
    assert_eq!(rej.info(), []);
}

#[test]
fn a_repeated_request_is_the_same_request() {
    let mads = parsed("cm-req-retry.pcap");
    let expected = ["1 REQ", "1 REQ", "1 REQ", "2 REP", "1 RTU", "1 DREQ", "2 DREP"];
    assert_eq!(names(&mads), expected);
    assert_eq!(mads[0].1, mads[1].1);
    assert_eq!(mads[0].1, mads[2].1);
}

#[test]
fn the_type_of_service_travels_in_the_path() {
    let mads = parsed("cm-ucmatose-tos.pcap");
    let paths = mads.iter().filter_map(|(_, mad)| match mad.message {
        CmMessage::Req(req) => Some((req.primary.traffic_class, req.rnr_retry)),
        _ => None,
    });
    assert_eq!(paths.collect::<Vec<_>>(), [(104, 0), (104, 0)]);
    // The server disconnects: its requests open transactions of its own.
    let dreq = mads.iter().find(|(_, mad)| matches!(mad.message, CmMessage::Dreq(_))).unwrap();
    assert_eq!(dreq.0.octets()[3], 2);
    assert_eq!(dreq.1.header.transaction, 0x0000_0004_d623_da6a);
}
