//! A Linux kernel's connection management, out of captures, against this one: its messages are
//! understood, and this side's are the kernel's own, but for what is drawn.

mod cm_support;

use engine::AddressVector;
use engine::cm::{
    Accept, Cm, CmConfig, CmEvent, ConnId, ConnState, ConnectRequest, Incoming, Listen, MadFrom,
};
use wire::mad::{CmMessage, IpCmHeader, Mad, PortSpace, RejectReason, ServiceId};
use wire::{Gid, Instant, Mtu, Qpn, Span};

/// The messages of a capture: the last byte of the sender's address, the TOS of its packet, and
/// the message.
fn capture(name: &str) -> Vec<(u8, u8, Mad)> {
    let path = format!("{}/../wire/tests/captures/{name}.pcap", env!("CARGO_MANIFEST_DIR"));
    let file = std::fs::read(&path).unwrap_or_else(|e| panic!("{path}: {e}"));
    let mut found = Vec::new();
    let mut at = 24;
    while at < file.len() {
        let length = u32::from_le_bytes(file[at + 8..at + 12].try_into().unwrap()) as usize;
        let frame = &file[at + 16..at + 16 + length];
        at += 16 + length;
        if frame[42] == 0x64 {
            found.push((frame[29], frame[15], Mad::parse(&frame[62..62 + 256]).unwrap()));
        }
    }
    found
}

fn gid(host: u8) -> Gid {
    Gid::from_ip([10, 77, 1, host].into())
}

fn av(host: u8, traffic_class: u8) -> AddressVector {
    AddressVector { dgid: gid(host), traffic_class, ..cm_support::av(0) }
}

fn from(host: u8, traffic_class: u8) -> MadFrom {
    MadFrom { av: av(host, traffic_class), local: gid(3 - host) }
}

fn cm(guid: u64) -> Cm {
    Cm::new(CmConfig { seed: [9; 32], slot: 0, guid, mtu: Mtu::B4096 })
}

fn next(cm: &mut Cm) -> (AddressVector, Mad) {
    let out = cm.poll_mad().expect("nothing to send");
    (out.av, Mad::parse(&out.payload).unwrap())
}

fn incoming(cm: &mut Cm) -> Incoming {
    match cm.poll_event() {
        Some(CmEvent::Incoming(incoming)) => *incoming,
        other => panic!("{other:?}"),
    }
}

const NOW: Instant = Instant::ZERO;

/// This side in the place of the kernel that listened.
fn as_the_server(name: &str, port: u16, retries: (u8, u8), tos: u8) {
    let mads = capture(name);
    let mut cm = cm(0x0077_00ff_fe00_000b);
    let service = ServiceId::rdma_cm(PortSpace::Tcp, port);
    cm.listen(Listen { service, address: Some(gid(2)), backlog: 8 }).unwrap();
    let (_, _, first) = mads[0];
    let CmMessage::Req(req) = first.message else { panic!("not a request") };

    cm.handle_mad(NOW, &from(1, tos), &first.emit());
    let incoming = incoming(&mut cm);
    assert_eq!(incoming.ip.unwrap().source, gid(1).to_ip());
    assert_eq!((incoming.retry_count, incoming.rnr_retry), retries);
    assert_eq!((incoming.responder_resources, incoming.initiator_depth), (1, 1));
    assert_eq!((incoming.mtu, incoming.private), (Mtu::B4096, vec![0; 56]));
    assert_eq!(
        incoming.av,
        AddressVector {
            is_global: true,
            dgid: gid(1),
            sgid_index: 0,
            traffic_class: tos,
            hop_limit: 64,
            flow_label: req.primary.flow_label,
            sl: 0
        }
    );

    // The reply is the kernel's, but for the id and the PSN.
    let theirs = mads.iter().find(|m| m.2.message.name() == "REP").unwrap().2;
    let CmMessage::Rep(rep) = theirs.message else { unreachable!() };
    let plan = cm.accept(NOW, incoming.id, &Accept::new(rep.qpn)).unwrap();
    let rts = plan.rts.attr;
    assert_eq!((rts.timeout, rts.retry_cnt, rts.rnr_retry), (19, retries.0, retries.1));
    let (to, mut ours) = next(&mut cm);
    assert_eq!((to.dgid, to.traffic_class), (gid(1), tos));
    let CmMessage::Rep(mine) = &mut ours.message else { panic!("{ours:?}") };
    assert_eq!((mine.local_id, mine.psn), (incoming.id.0, plan.rtr.attr.rq_psn));
    assert_eq!(plan.rts.attr.sq_psn, req.psn);
    (mine.local_id, mine.psn) = (rep.local_id, rep.psn);
    assert_eq!(ours.emit(), theirs.emit());

    // The kernel's RTU and DREQ, to this side's id; the DREP is the kernel's again.
    for (_, _, mut mad) in mads.iter().copied().filter(|m| m.0 == 1) {
        match &mut mad.message {
            CmMessage::Rtu(rtu) if rtu.local_id == req.local_id => rtu.remote_id = incoming.id.0,
            CmMessage::Dreq(dreq) if dreq.local_id == req.local_id => {
                dreq.remote_id = incoming.id.0;
            }
            _ => continue,
        }
        cm.handle_mad(NOW, &from(1, tos), &mad.emit());
    }
    assert_eq!(cm.poll_event(), Some(CmEvent::Established(incoming.id)));
    if mads.iter().any(|m| m.0 == 1 && m.2.message.name() == "DREQ") {
        assert_eq!(cm.poll_event(), Some(CmEvent::Disconnected(incoming.id)));
        let theirs = mads.iter().find(|m| m.2.message.name() == "DREP").unwrap().2;
        let (_, mut ours) = next(&mut cm);
        let CmMessage::Drep(drep) = &mut ours.message else { panic!("{ours:?}") };
        assert_eq!(drep.local_id, incoming.id.0);
        drep.local_id = rep.local_id;
        assert_eq!(ours.emit(), theirs.emit());
    }
}

/// This side in the place of the kernel that connected. Its own id and that of the kernel.
fn as_the_client(cm: &mut Cm, name: &str, retries: (u8, u8), tos: u8) -> (ConnId, u32) {
    let mads = capture(name);
    let theirs = mads[0].2;
    let CmMessage::Req(req) = theirs.message else { panic!("not a request") };
    let mut ask = ConnectRequest::new(req.service, av(2, tos), gid(1), req.qpn, Mtu::B4096);
    ask.ip = IpCmHeader::parse(&req.private);
    (ask.retry_count, ask.rnr_retry) = retries;
    ask.ack_timeout = 19;
    let id = cm.connect(NOW, &ask).unwrap();
    let (to, mut ours) = next(cm);
    assert_eq!((to.dgid, to.traffic_class), (gid(2), tos));
    let CmMessage::Req(mine) = &mut ours.message else { panic!("{ours:?}") };
    assert_eq!(mine.local_id, id.0);
    assert_ne!(mine.primary.flow_label, 0);
    // Drawn: the id (twice: the transaction ends in it), the PSN, the flow label.
    (mine.local_id, mine.psn) = (req.local_id, req.psn);
    mine.primary.flow_label = req.primary.flow_label;
    ours.header = theirs.header;
    assert_eq!(ours.emit(), theirs.emit());

    let (_, _, mut theirs) = *mads.iter().find(|m| m.0 == 2).unwrap();
    match &mut theirs.message {
        CmMessage::Rep(rep) => {
            rep.remote_id = id.0;
            let remote_id = rep.local_id;
            cm.handle_mad(NOW, &from(2, tos), &theirs.emit());
            (id, remote_id)
        }
        CmMessage::Rej(rej) => {
            rej.remote_id = id.0;
            cm.handle_mad(NOW, &from(2, tos), &theirs.emit());
            (id, 0)
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_kernel_client_connects_to_this_side() {
    as_the_server("cm-rping", 7174, (7, 7), 0);
    as_the_server("cm-req-retry", 7174, (7, 7), 0);
    as_the_server("cm-ucmatose-tos", 7471, (5, 0), 104);
}

#[test]
fn this_side_connects_to_a_kernel_server() {
    for (name, retries, tos) in
        [("cm-rping", (7, 7), 0), ("cm-req-retry", (7, 7), 0), ("cm-ucmatose-tos", (5, 0), 104)]
    {
        let mut cm = cm(0x0077_00ff_fe00_000a);
        let (id, remote_id) = as_the_client(&mut cm, name, retries, tos);
        let Some(CmEvent::Response(response)) = cm.poll_event() else { panic!("no response") };
        let rts = response.plan.rts.attr;
        assert_eq!((rts.rnr_retry, rts.max_rd_atomic, rts.timeout), (7, 1, 19), "{name}");
        assert_eq!(rts.retry_cnt, retries.0);
        assert_eq!(response.plan.rtr.attr.max_dest_rd_atomic, 1);
        cm.establish(NOW, id).unwrap();
        let (_, rtu) = next(&mut cm);
        let CmMessage::Rtu(rtu) = rtu.message else { panic!("{rtu:?}") };
        assert_eq!((rtu.local_id, rtu.remote_id), (id.0, remote_id));
        cm.disconnect(NOW, id).unwrap();
        let (_, dreq) = next(&mut cm);
        let CmMessage::Dreq(dreq) = dreq.message else { panic!("{dreq:?}") };
        assert_eq!((dreq.remote_id, dreq.remote_qpn), (remote_id, response.remote_qpn));
    }
}

/// PSN of the first request of a host over the connection of a capture: no management datagram, no
/// answer.
fn first_psn(name: &str, host: u8) -> u32 {
    let path = format!("{}/../wire/tests/captures/{name}.pcap", env!("CARGO_MANIFEST_DIR"));
    let file = std::fs::read(&path).unwrap_or_else(|e| panic!("{path}: {e}"));
    let mut at = 24;
    while at < file.len() {
        let length = u32::from_le_bytes(file[at + 8..at + 12].try_into().unwrap()) as usize;
        let frame = &file[at + 16..at + 16 + length];
        at += 16 + length;
        if frame[29] == host && (frame[42] <= 0x0C || matches!(frame[42], 0x13 | 0x14)) {
            return u32::from_be_bytes([0, frame[51], frame[52], frame[53]]);
        }
    }
    panic!("host {host} asks for nothing in {name}")
}

#[test]
fn each_side_begins_with_the_psn_that_the_other_told() {
    for name in ["cm-rping", "cm-req-retry"] {
        let (asked, answered) = (first_psn(name, 1), first_psn(name, 2));
        // Here as the client: it sends from where the kernel's server says, and says where from.
        let mut client = cm(0x0077_00ff_fe00_000a);
        as_the_client(&mut client, name, (7, 7), 0);
        let Some(CmEvent::Response(response)) = client.poll_event() else { panic!("no response") };
        assert_eq!(response.plan.rts.attr.sq_psn.get(), asked, "{name}");
        // Here as the server: it sends from where the kernel's client says.
        let CmMessage::Req(req) = capture(name)[0].2.message else { panic!("not a request") };
        assert_eq!(req.psn.get(), answered, "{name}");
    }
}

#[test]
fn the_server_of_the_capture_disconnects() {
    let mut cm = cm(0x0077_00ff_fe00_000a);
    let (id, remote_id) = as_the_client(&mut cm, "cm-ucmatose-tos", (5, 0), 104);
    cm.poll_event();
    cm.establish(NOW, id).unwrap();
    cm.poll_mad();
    assert_eq!(cm.poll_event(), Some(CmEvent::Established(id)));
    let mads = capture("cm-ucmatose-tos");
    let ours = |m: &&(u8, u8, Mad)| match m.2.message {
        CmMessage::Dreq(dreq) => dreq.local_id == remote_id,
        _ => false,
    };
    let mut theirs = mads.iter().find(ours).unwrap().2;
    let CmMessage::Dreq(dreq) = &mut theirs.message else { unreachable!() };
    dreq.remote_id = id.0;
    cm.handle_mad(NOW, &from(2, 104), &theirs.emit());
    assert_eq!(cm.poll_event(), Some(CmEvent::Disconnected(id)));
    let (to, drep) = next(&mut cm);
    assert_eq!(drep.header, theirs.header, "an answer keeps the transaction");
    assert_eq!((drep.message.name(), to.traffic_class), ("DREP", 104));
}

#[test]
fn a_kernel_refuses_a_closed_port() {
    let mut cm = cm(0x0077_00ff_fe00_000a);
    let (id, _) = as_the_client(&mut cm, "cm-reject-closed-port", (7, 7), 0);
    let Some(CmEvent::Rejected(rejected)) = cm.poll_event() else { panic!("not rejected") };
    assert_eq!((rejected.id, rejected.reason), (id, RejectReason::INVALID_SERVICE_ID));

    // And the other way round: this side's refusal is the kernel's, byte for byte.
    let mads = capture("cm-reject-closed-port");
    cm.handle_mad(NOW, &from(1, 0), &mads[0].2.emit());
    assert_eq!(next(&mut cm).1.emit(), mads[1].2.emit());
}

#[test]
fn the_kernels_repeats_are_one_request() {
    let mut cm = cm(2);
    let service = ServiceId::rdma_cm(PortSpace::Tcp, 7174);
    cm.listen(Listen { service, address: None, backlog: 8 }).unwrap();
    let mads = capture("cm-req-retry");
    let mut now = NOW;
    let mut reply = None;
    for (_, _, req) in &mads[..3] {
        cm.handle_mad(now, &from(1, 0), &req.emit());
        match reply {
            None => {
                let id = incoming(&mut cm).id;
                cm.accept(now, id, &Accept::new(Qpn::new(0x77))).unwrap();
                reply = Some((id, cm.poll_mad().unwrap()));
            }
            Some((id, rep)) => {
                assert_eq!(cm.poll_mad(), Some(rep), "a repeated request gets the same reply");
                assert_eq!(cm.state(id), Some(ConnState::RepSent));
            }
        }
        assert_eq!(cm.poll_event(), None);
        now = now + Span::from_us(10);
    }
}
