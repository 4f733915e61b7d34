//! Any datagram may come: arbitrary bytes, and messages with arbitrary fields that name live
//! connections. Nothing breaks (the invariants are checked in every call), nothing stays behind.

mod cm_support;

use cm_support::{Faults, World, av, gid, request};
use engine::cm::{Accept, CmEvent, ConnId, Listen, MadFrom, ResolveRequest};
use rand_core::Rng;
use wire::mad::{CmMessage, MAD_LEN, Mad};
use wire::{Qpn, Span};

/// A message of any kind, between ids that exist as often as not.
fn forged(w: &mut World, ids: &[u32]) -> [u8; MAD_LEN] {
    let mut bytes = [0; MAD_LEN];
    w.rng.fill_bytes(&mut bytes);
    bytes[..4].copy_from_slice(&[1, 7, 2, 3]);
    bytes[16..18].copy_from_slice(&(0x10 + w.rng.next_u32() as u16 % 11).to_be_bytes());
    for at in [24, 28] {
        let id = match w.rng.next_u32() % 8 {
            0 => 0,
            1 => w.rng.next_u32(),
            n => ids.get(n as usize % ids.len().max(1)).copied().unwrap_or(0),
        };
        bytes[at..at + 4].copy_from_slice(&id.to_be_bytes());
    }
    // What is asked for is something that is listened on, and the numbers are small.
    let mut mad = Mad::parse(&bytes).expect("any body is a message");
    match &mut mad.message {
        CmMessage::Req(req) => {
            req.service = cm_support::SERVICE;
            req.qpn = Qpn::new(req.qpn.get() % 8);
        }
        CmMessage::SidrReq(req) => req.service = cm_support::SERVICE,
        CmMessage::Dreq(dreq) => dreq.remote_qpn = Qpn::new(dreq.remote_qpn.get() % 8),
        _ => {}
    }
    mad.emit()
}

/// One application step, as wild as the network.
fn act(w: &mut World, ids: &mut Vec<u32>) {
    let node = (w.rng.next_u32() % 2) as usize;
    let now = w.now;
    let id = ConnId(ids.get(w.rng.next_u32() as usize % ids.len().max(1)).copied().unwrap_or(1));
    let qpn = w.rng.next_u32() % 8;
    let cm = &mut w.cms[node];
    match w.rng.next_u32() % 8 {
        0 => ids.push(w.cms[0].connect(now, &request(qpn)).unwrap().0),
        1 => drop(cm.accept(now, id, &Accept::new(Qpn::new(qpn)))),
        2 => drop(cm.establish(now, id)),
        3 => drop(cm.disconnect(now, id)),
        4 => drop(cm.destroy(now, id)),
        5 => cm.handle_comm_est(now, Qpn::new(qpn)),
        6 => drop(cm.reject(now, id, wire::mad::RejectReason::CONSUMER, b"no")),
        _ => {
            let ask = ResolveRequest::new(cm_support::SERVICE, av(1));
            ids.push(w.cms[0].resolve(now, &ask).unwrap().0);
        }
    }
}

fn play(seed: u64) {
    let mut w = World::listening(seed, Faults { loss: 100, duplicate: 100, delay_ms: 50 });
    let listen = Listen { service: cm_support::SERVICE, address: Some(gid(0)), backlog: 3 };
    w.cms[0].listen(listen).unwrap();
    let mut ids = Vec::new();
    for _ in 0..60 {
        match w.rng.next_u32() % 3 {
            0 => act(&mut w, &mut ids),
            1 => {
                let node = (w.rng.next_u32() % 2) as usize;
                let payload = forged(&mut w, &ids);
                let from = MadFrom { av: av(1 - node), local: gid(node) };
                w.cms[node].handle_mad(w.now, &from, &payload);
            }
            _ => w.run(Span::from_ms(20)),
        }
        for node in 0..2 {
            for event in w.take_events(node) {
                ids.extend(event.connection().map(|id| id.0));
                if let CmEvent::Incoming(incoming) = event {
                    assert!(incoming.private.len() <= 92, "seed {seed}");
                }
            }
        }
    }
    // The applications let go of everything: nothing may stay.
    for id in ids {
        for cm in &mut w.cms {
            let _ = cm.destroy(w.now, ConnId(id));
        }
    }
    w.run(Span::from_ms(2_000_000));
    for (node, cm) in w.cms.iter().enumerate() {
        assert_eq!(cm.poll_timeout(), None, "seed {seed}: node {node} keeps something");
    }
}

#[test]
fn forged_messages_break_nothing_and_leave_nothing() {
    for seed in 0..1500 {
        play(seed);
    }
}

#[test]
fn arbitrary_bytes_are_counted_and_dropped() {
    let mut w = World::listening(1, Faults::default());
    let from = MadFrom { av: av(0), local: gid(1) };
    for length in 0..600usize {
        let mut bytes = vec![0; length];
        w.rng.fill_bytes(&mut bytes);
        w.cms[1].handle_mad(w.now, &from, &bytes);
    }
    assert_eq!(w.cms[1].counters().rx_malformed, 600);
    assert_eq!((w.cms[1].poll_mad(), w.cms[1].poll_timeout()), (None, None));
}

#[test]
fn a_flood_of_requests_stays_within_the_backlog() {
    let mut w = World::listening(1, Faults::default());
    w.cms[0].connect(w.now, &request(1)).unwrap();
    let mut mad = Mad::parse(&w.cms[0].poll_mad().unwrap().payload).unwrap();
    let from = MadFrom { av: av(0), local: gid(1) };
    for n in 0..100_000u32 {
        if let CmMessage::Req(req) = &mut mad.message {
            (req.local_id, req.qpn) = (n, Qpn::new(n));
        }
        w.cms[1].handle_mad(w.now, &from, &mad.emit());
    }
    assert_eq!(w.take_events(1).len(), 16);
    assert_eq!(w.cms[1].counters().rx_no_room, 100_000 - 16);
}
