//! The connection manager's handshakes and the rules R100 to R103: what real captures say, and each
//! rule's positive and near miss.

#[path = "support/connection.rs"]
mod connection;
#[path = "support/stage.rs"]
mod stage;

use audit::report::Connection;
use audit::{Report, Rule, Side};
use stage::{MS, S, Stage, Taken, cm, found, frame, gid, of, packet};
use wire::Qpn;
use wire::mad::{
    CmMessage, Drep, Dreq, Mra, PortSpace, Rej, RejectReason, Rep, Req, Rtu, ServiceId, SidrRep,
    SidrReq, SidrStatus, Subject,
};
use wire::{PKey, QKey};

fn whole(name: &str) -> Report {
    let mut stage = Stage::new();
    stage.replay(name, Some);
    stage.finish()
}

fn edited(name: &str, edit: impl FnMut(Taken) -> Option<Taken>) -> Report {
    let mut stage = Stage::new();
    stage.replay(name, edit);
    stage.finish()
}

fn frames(connection: &Connection) -> Vec<u64> {
    connection.frames.iter().map(|at| at.frame).collect()
}

#[test]
fn rping_connects_and_closes() {
    let report = whole("cm-rping.pcap");
    let [connection] = &report.connections[..] else { panic!("{:?}", report.connections) };
    assert_eq!(connection.active, "10.77.1.1");
    assert_eq!(connection.passive, "10.77.1.2");
    assert_eq!(connection.service, "TCP port 7174");
    assert_eq!(connection.transport, "RC");
    assert_eq!((connection.active_qp, connection.passive_qp), (Some(0x70), Some(0x70)));
    assert_eq!((connection.active_psn, connection.passive_psn), (Some(0xd2_d159), Some(0x4a_d7d2)));
    assert_eq!(connection.mtu, Some(4096));
    assert_eq!((connection.responder_resources, connection.initiator_depth), (Some(1), Some(1)));
    assert_eq!((connection.retry_count, connection.rnr_retry), (Some(7), Some(7)));
    assert_eq!(connection.ack_timeout, Some(19));
    assert_eq!(connection.from.map(|from| from.to_string()).as_deref(), Some("10.77.1.1:48099"));
    assert_eq!(connection.to.map(|to| to.to_string()).as_deref(), Some("10.77.1.2"));
    assert_eq!(connection.private, "");
    assert_eq!(connection.state, "closed");
    assert_eq!(connection.transaction, 0x2_d623_da66);
    assert_eq!(frames(connection), [1, 2, 3, 28, 29]);
    assert_eq!(connection.repeated, 0);
    assert_eq!(found(&report, "R10"), [] as [&str; 0]);
}

#[test]
fn a_closed_port_rejects() {
    let report = whole("cm-reject-closed-port.pcap");
    let [connection] = &report.connections[..] else { panic!("{:?}", report.connections) };
    assert_eq!(connection.state, "rejected: nobody listens on this service");
    assert_eq!((connection.active_qp, connection.passive_qp), (Some(0x72), None));
    assert_eq!(found(&report, "R10"), ["R100 x1"]);
    let finding = of(&report, Rule::CmReject)[0];
    let passive = wire::Gid::from_ip([10, 77, 1, 2].into());
    assert_eq!(finding.side, Side::Host(passive));
    assert_eq!(finding.sample.iter().map(|at| at.frame).collect::<Vec<_>>(), [2, 1]);
    assert_eq!(
        finding.detail,
        "10.77.1.2 rejects the request of 10.77.1.1 for TCP port 7174, reason 8, nobody listens \
         on this service: start the server, or see its port and the address that it is bound to"
    );
}

#[test]
fn lost_requests_are_seen_as_repeated() {
    let report = whole("cm-req-retry.pcap");
    let [connection] = &report.connections[..] else { panic!("{:?}", report.connections) };
    assert_eq!(connection.state, "closed");
    assert_eq!(connection.repeated, 2);
    assert_eq!(frames(connection), [1, 2, 3, 4, 5, 18, 19]);
    assert_eq!(found(&report, "R10"), ["R101 x2"]);
    let finding = of(&report, Rule::CmRetry)[0];
    assert_eq!(finding.sample.iter().map(|at| at.frame).collect::<Vec<_>>(), [2, 1, 3]);
    assert_eq!(finding.side, Side::Behind(wire::Gid::from_ip([10, 77, 1, 2].into())));
    let seconds = finding.numbers[0];
    assert_eq!(seconds.name, "seconds_since_first");
    assert!((seconds.value - 12.742_113).abs() < 1e-6, "{}", seconds.value);
}

#[test]
fn two_connections_at_once() {
    let report = whole("cm-ucmatose-tos.pcap");
    let states: Vec<_> = report.connections.iter().map(|c| (frames(c), &*c.state)).collect();
    assert_eq!(
        states,
        [(vec![1, 3, 4, 23, 25], "closed"), (vec![2, 5, 6, 24, 26], "closed")],
        "closed by the end that was asked"
    );
    assert_eq!(found(&report, "R10"), [] as [&str; 0]);
}

#[test]
fn other_captures_have_no_handshake_and_no_complaint() {
    for name in stage::capture_names() {
        if !name.starts_with("cm-") {
            let report = whole(&name);
            assert_eq!(found(&report, "R10"), [] as [&str; 0], "{name}");
            assert_eq!(report.connections.len(), 0, "{name}");
        }
    }
}

// Made by hand: host 1 asks host 2.

const TX: u64 = 0x1234_5678;

fn req(id: u32) -> Req {
    Req { qpn: Qpn::new(0x100), ..connection::req(id) }
}

fn rep(active: u32, id: u32) -> Rep {
    Rep { qpn: Qpn::new(0x200), ..connection::rep(active, id) }
}

fn rej(local: u32, remote: u32, subject: Subject, reason: RejectReason) -> CmMessage {
    CmMessage::Rej(Rej {
        local_id: local,
        remote_id: remote,
        subject,
        info_len: 0,
        reason,
        info: [0; 72],
        private: [0; 148],
    })
}

fn asks() -> CmMessage {
    CmMessage::Req(req(7))
}

fn accepts() -> CmMessage {
    CmMessage::Rep(rep(7, 8))
}

fn ready() -> CmMessage {
    CmMessage::Rtu(Rtu { local_id: 7, remote_id: 8, private: [0; 224] })
}

fn dreq(local: u32, remote: u32, qp: u32) -> CmMessage {
    let remote_qpn = Qpn::new(qp);
    CmMessage::Dreq(Dreq { local_id: local, remote_id: remote, remote_qpn, private: [0; 220] })
}

/// A message at a time in milliseconds; those of host 2 go to host 1.
type Said = (u64, u8, CmMessage);

fn play(said: &[Said]) -> Report {
    let mut stage = Stage::new();
    say(&mut stage, said);
    stage.finish()
}

fn say(stage: &mut Stage, said: &[Said]) {
    for (time, from, message) in said {
        stage.show(time * MS, 0, &cm(*from, 3 - *from, TX, *message));
    }
}

fn none() -> Vec<String> {
    Vec::new()
}

#[test]
fn a_rejection_is_named_by_its_reason() {
    for (reason, word) in [
        (RejectReason::CONSUMER, "rejected by the application"),
        (RejectReason::STALE_CONNECTION, "stale connection"),
        (RejectReason::INVALID_MTU, "path MTU not supported"),
        (RejectReason(777), "unknown reason"),
    ] {
        let refusal = rej(0, 7, Subject::Req, reason);
        let report = play(&[(0, 1, asks()), (1, 2, refusal), (2, 2, refusal)]);
        assert_eq!(found(&report, "R10"), ["R100 x1"], "a repeated REJ counts once");
        assert!(of(&report, Rule::CmReject)[0].detail.contains(word), "{word}");
        assert!(report.connections[0].state.contains(word), "{word}");
    }
}

#[test]
fn a_rejected_reply_is_on_the_asking_side() {
    let refusal = rej(7, 8, Subject::Rep, RejectReason::CONSUMER);
    let report = play(&[(0, 1, asks()), (1, 2, accepts()), (2, 1, refusal)]);
    assert_eq!(found(&report, "R10"), ["R100 x1"]);
    assert_eq!(of(&report, Rule::CmReject)[0].side, Side::Host(gid(1)));
}

#[test]
fn a_rejection_whose_request_was_not_captured_still_counts() {
    let report = play(&[(0, 2, rej(0, 7, Subject::Req, RejectReason::CONSUMER))]);
    assert_eq!(found(&report, "R10"), ["R100 x1"]);
    assert_eq!(report.connections[0].active, "10.0.0.1");
}

#[test]
fn a_redirection_is_no_rejection() {
    let report = play(&[(0, 1, asks()), (1, 2, rej(0, 7, Subject::Req, RejectReason(25)))]);
    assert_eq!(found(&report, "R10"), none());
    // An answer to a message that nobody remembers is none either.
    let stray = rej(8, 9, Subject::Other, RejectReason::INVALID_COMM_ID);
    assert_eq!(found(&play(&[(0, 2, stray)]), "R10"), none());
}

#[test]
fn a_copy_made_on_the_way_is_no_repetition() {
    let all =
        [(0, 1, asks()), (1, 1, asks()), (2, 2, accepts()), (3, 2, accepts()), (4, 1, ready())];
    let report = play(&all);
    assert_eq!(found(&report, "R10"), none());
    assert_eq!(report.connections[0].state, "established");
    // Nor is the same datagram at a second point of capture, however late.
    let mut stage = Stage::new();
    stage.show(0, 0, &cm(1, 2, TX, asks()));
    stage.show(9 * S, 1, &cm(1, 2, TX, asks()));
    stage.show(9 * S + MS, 0, &cm(2, 1, TX, accepts()));
    stage.show(18 * S, 1, &cm(2, 1, TX, accepts()));
    stage.show(18 * S + MS, 0, &cm(1, 2, TX, ready()));
    assert_eq!(found(&stage.finish(), "R10"), none());
}

#[test]
fn an_accepted_request_sent_again_shows_a_lost_reply() {
    let all = [
        (0, 1, asks()),
        (1, 2, accepts()),
        (5000, 1, asks()),
        (5001, 2, accepts()),
        (5002, 1, ready()),
    ];
    let report = play(&all);
    assert_eq!(found(&report, "R10"), ["R101 x2"], "the REQ and the REP");
    assert_eq!(of(&report, Rule::CmRetry)[0].side, Side::Behind(gid(1)));
}

#[test]
fn a_disconnection_that_nobody_answers_is_a_repetition() {
    let made = [(0, 1, asks()), (1, 2, accepts()), (2, 1, ready())];
    let mut all = made.to_vec();
    all.extend([(100, 1, dreq(7, 8, 0x200)), (5000, 1, dreq(7, 8, 0x200))]);
    let report = play(&all);
    assert_eq!(found(&report, "R10"), ["R101 x1"]);
    assert_eq!(report.connections[0].state, "closing");
    // Both ends closing at once is none.
    let mut all = made.to_vec();
    all.extend([(100, 1, dreq(7, 8, 0x200)), (101, 2, dreq(8, 7, 0x100))]);
    let drep = |a, b| CmMessage::Drep(Drep { local_id: a, remote_id: b, private: [0; 224] });
    all.extend([(102, 2, drep(8, 7)), (103, 1, drep(7, 8))]);
    let report = play(&all);
    assert_eq!(found(&report, "R10"), none());
    assert_eq!(report.connections[0].state, "closed");
}

#[test]
fn nobody_answers() {
    let report = play(&[(0, 1, asks()), (6300, 1, asks()), (12_700, 1, asks())]);
    assert_eq!(found(&report, "R10"), ["R102 x1"]);
    let finding = of(&report, Rule::CmNoAnswer)[0];
    assert_eq!(finding.sample.iter().map(|at| at.frame).collect::<Vec<_>>(), [1, 2, 3]);
    assert_eq!(finding.numbers[0].value, 3.0);
    assert_eq!(report.connections[0].state, "no answer");
}

#[test]
fn a_request_given_up_by_its_sender_was_not_answered() {
    let timeout = rej(7, 0, Subject::Other, RejectReason::TIMEOUT);
    let report = play(&[(0, 1, asks()), (3000, 1, timeout)]);
    assert_eq!(found(&report, "R10"), ["R102 x1"]);
    assert_eq!(report.connections[0].state, "timed out");
}

/// Packets from one host to the other, the last of them late.
fn traffic(stage: &mut Stage, from: u8, until_ms: u64) {
    for time in [0, until_ms] {
        stage.show(time * MS, 0, &frame(from, 3 - from, &packet(from, 3 - from, 0x04, 9, 5, 64)));
    }
}

#[test]
fn one_unanswered_request_counts_where_answers_would_be_seen() {
    let mut stage = Stage::new();
    say(&mut stage, &[(0, 1, asks())]);
    traffic(&mut stage, 2, 20_000);
    assert_eq!(found(&stage.finish(), "R10"), ["R102 x1"]);
}

#[test]
fn no_complaint_where_the_capture_ends_early_or_has_one_direction() {
    // It ends before the answer is due.
    let mut stage = Stage::new();
    say(&mut stage, &[(0, 1, asks())]);
    traffic(&mut stage, 2, 2000);
    assert_eq!(found(&stage.finish(), "R10"), none());
    // It has one direction only.
    let mut stage = Stage::new();
    say(&mut stage, &[(0, 1, asks())]);
    traffic(&mut stage, 1, 20_000);
    let report = stage.finish();
    assert_eq!(found(&report, "R10"), none());
    assert_eq!(report.connections[0].state, "answer not captured");
    // It has one direction, and the RTU shows that there was an answer.
    assert_eq!(
        found(&play(&[(0, 1, asks()), (5000, 1, asks()), (5001, 1, ready())]), "R102"),
        none()
    );
    // It has one direction, and goes on: what came behind the last try would not be seen, unless
    // that was the last that the request allows.
    let tried = |most| {
        let mut stage = Stage::new();
        let ask = CmMessage::Req(Req { max_cm_retries: most, ..req(7) });
        say(&mut stage, &[(0, 1, ask), (6000, 1, ask), (12_000, 1, ask)]);
        traffic(&mut stage, 1, 60_000);
        found(&stage.finish(), "R102")
    };
    assert_eq!(tried(15), none());
    assert_eq!(tried(2), ["R102 x1"]);
    // It begins in the middle.
    assert_eq!(found(&play(&[(0, 1, ready()), (9000, 1, dreq(7, 8, 0x200))]), "R10"), none());
    assert_eq!(found(&play(&[(0, 2, accepts()), (1, 1, ready())]), "R10"), none());
    assert_eq!(found(&play(&[(0, 1, dreq(7, 8, 0x200))]), "R10"), none());
    // The other end asks for patience.
    let mra = CmMessage::Mra(Mra {
        local_id: 0,
        remote_id: 7,
        subject: Subject::Req,
        service_timeout: 24,
        private: [0; 222],
    });
    let mut stage = Stage::new();
    say(&mut stage, &[(0, 1, asks()), (1, 2, mra)]);
    traffic(&mut stage, 2, 20_000);
    assert_eq!(found(&stage.finish(), "R10"), none());
}

#[test]
fn datagram_services_are_resolved_or_refused() {
    let ask = CmMessage::SidrReq(SidrReq {
        request_id: 5,
        pkey: PKey::DEFAULT,
        service: ServiceId::rdma_cm(PortSpace::Udp, 9000),
        private: [0; 216],
    });
    let answer = |status| {
        CmMessage::SidrRep(SidrRep {
            request_id: 5,
            status,
            info_len: 0,
            qpn: Qpn::new(0x33),
            service: ServiceId::rdma_cm(PortSpace::Udp, 9000),
            qkey: QKey::new(1),
            info: [0; 72],
            private: [0; 136],
        })
    };
    let report = play(&[(0, 1, ask), (1, 2, answer(SidrStatus::VALID))]);
    assert_eq!(found(&report, "R10"), none());
    let connection = &report.connections[0];
    assert_eq!((&*connection.service, &*connection.state), ("UDP port 9000", "resolved"));
    assert_eq!((connection.passive_qp, connection.transport), (Some(0x33), "UD"));
    let report = play(&[(0, 1, ask), (1, 2, answer(SidrStatus::UNSUPPORTED))]);
    assert_eq!(found(&report, "R10"), ["R100 x1"]);
    let report = play(&[(0, 1, ask), (4100, 1, ask), (8200, 1, ask)]);
    assert_eq!(found(&report, "R10"), ["R102 x1"]);
}

/// Traffic of host `from` behind a finished handshake: opcode, PSN, bytes, milliseconds later.
fn after_handshake(packets: &[(u8, u8, u32, u32, usize, u64)]) -> Vec<String> {
    let mut stage = Stage::new();
    say(&mut stage, &[(0, 1, asks()), (1, 2, accepts()), (2, 1, ready())]);
    for &(from, opcode, qp, psn, len, later) in packets {
        let packet = packet(from, 3 - from, opcode, qp, psn, len);
        stage.show((1 + later) * MS, 0, &frame(from, 3 - from, &packet));
    }
    found(&stage.finish(), "R103")
}

#[test]
fn traffic_that_keeps_to_what_was_agreed() {
    const SEND_FIRST: u8 = 0x00;
    const SEND_ONLY: u8 = 0x04;
    const ACK: u8 = 0x11;
    let good = [
        (1, SEND_FIRST, 0x200, 1000, 1024, 1),
        (1, 0x02, 0x200, 1001, 100, 1),
        (2, ACK, 0x100, 1001, 0, 1),
        (2, SEND_ONLY, 0x100, 2000, 64, 2),
        (1, ACK, 0x200, 2000, 0, 2),
        (2, SEND_FIRST, 0x100, 2001, 1024, 3),
    ];
    assert_eq!(after_handshake(&good), none());
    // The first ones were lost before the point of capture.
    assert_eq!(after_handshake(&[(1, SEND_ONLY, 0x200, 1003, 64, 1)]), none());
    // Much has gone by unseen since.
    assert_eq!(after_handshake(&[(1, SEND_ONLY, 0x200, 901_000, 64, 1000)]), none());
    // Another queue pair of the same hosts.
    assert_eq!(after_handshake(&[(1, SEND_FIRST, 0x201, 77, 4096, 1)]), none());
    // An answer whose PSN is of the other end's numbers.
    assert_eq!(after_handshake(&[(1, ACK, 0x200, 1999, 0, 1)]), none());
}

#[test]
fn traffic_with_another_psn_or_mtu() {
    assert_eq!(after_handshake(&[(1, 0x04, 0x200, 999, 64, 1)]), ["R103 x1"]);
    assert_eq!(after_handshake(&[(2, 0x04, 0x100, 1000, 64, 1)]), ["R103 x1"]);
    assert_eq!(after_handshake(&[(1, 0x04, 0x200, 901_000, 64, 1)]), ["R103 x1"]);
    let large = [(1, 0x00, 0x200, 1000, 2048, 1), (1, 0x02, 0x200, 1001, 1, 1)];
    assert_eq!(after_handshake(&large), ["R103 x1"]);
    let small_response = [(2, 0x0D, 0x100, 1000, 512, 1), (2, 0x0E, 0x100, 1001, 512, 1)];
    assert_eq!(after_handshake(&small_response), ["R103 x2"]);
}

#[test]
fn a_closed_connection_binds_nobody() {
    let mut stage = Stage::new();
    say(&mut stage, &[(0, 1, asks()), (1, 2, accepts()), (2, 1, ready())]);
    say(&mut stage, &[(3, 1, dreq(7, 8, 0x200))]);
    stage.show(4 * MS, 0, &frame(1, 2, &packet(1, 2, 0x00, 0x200, 5, 4096)));
    assert_eq!(found(&stage.finish(), "R10"), none());
}

#[test]
fn a_disconnection_names_the_queue_pair_that_was_agreed() {
    let made = [(0, 1, asks()), (1, 2, accepts()), (2, 1, ready())];
    for (message, expected) in [
        ((3, 1, dreq(7, 8, 0x200)), none()),
        ((3, 2, dreq(8, 7, 0x100)), none()),
        ((3, 1, dreq(7, 8, 0)), none()),
        ((3, 1, dreq(7, 8, 0x201)), vec![String::from("R103 x1")]),
    ] {
        let mut all = made.to_vec();
        all.push(message);
        assert_eq!(found(&play(&all), "R10"), expected);
    }
}

#[test]
fn editing_a_real_handshake_is_noticed() {
    // The reply announces another PSN than the queue pair uses.
    let report = edited("cm-rping.pcap", |taken| {
        Some(match taken.number {
            2 => taken.edit_mad(|message| {
                if let CmMessage::Rep(rep) = message {
                    rep.psn = rep.psn.add(1);
                }
            }),
            _ => taken,
        })
    });
    assert_eq!(found(&report, "R10"), ["R103 x1"]);
    // Without the reply in the capture there is nothing to compare with.
    let report = edited("cm-rping.pcap", |taken| (taken.number != 2).then_some(taken));
    assert_eq!(found(&report, "R10"), none());
}

#[test]
fn a_flood_of_handshakes_stays_bounded() {
    let mut stage = Stage::new();
    for id in 0..40_000_u32 {
        let mut ask = req(id + 1);
        ask.qpn = Qpn::new(id + 0x100);
        let mut answer = rep(id + 1, id + 1);
        answer.qpn = Qpn::new(id + 0x100);
        let time = u64::from(id) * MS;
        stage.show(time, 0, &cm(1, 2, u64::from(id), CmMessage::Req(ask)));
        stage.show(time + 1, 0, &cm(2, 1, u64::from(id), CmMessage::Rep(answer)));
    }
    let report = stage.finish();
    assert_eq!(report.connections.len(), audit::limits::HANDSHAKES);
    assert_eq!(found(&report, "R10"), none());
}

#[test]
fn any_datagrams_are_taken_without_harm() {
    // A small generator of its own: the same datagrams on every run.
    let mut state = 0x2545_F491_u32;
    let mut next = move || {
        state ^= state << 13;
        state ^= state >> 17;
        state ^= state << 5;
        state
    };
    let mut stage = Stage::new();
    let mut time = 0;
    for _ in 0..60_000 {
        let (local, remote) = (next() % 8, next() % 8);
        let (from, to) = ((next() % 3) as u8 + 1, (next() % 3) as u8 + 1);
        let subject = [Subject::Req, Subject::Rep, Subject::Other][next() as usize % 3];
        let message = match next() % 9 {
            0 => CmMessage::Req(req(local)),
            1 => CmMessage::Rep(rep(remote, local)),
            2 => CmMessage::Rtu(Rtu { local_id: local, remote_id: remote, private: [1; 224] }),
            3 => rej(local, remote, subject, RejectReason((next() % 40) as u16)),
            4 => dreq(local, remote, next()),
            5 => CmMessage::Drep(Drep { local_id: local, remote_id: remote, private: [0; 224] }),
            6 => CmMessage::SidrReq(SidrReq {
                request_id: local,
                pkey: PKey::DEFAULT,
                service: ServiceId(u64::from(next())),
                private: [next() as u8; 216],
            }),
            7 => CmMessage::Mra(Mra {
                local_id: local,
                remote_id: remote,
                subject,
                service_timeout: next() as u8 & 31,
                private: [0; 222],
            }),
            _ => CmMessage::SidrRep(SidrRep {
                request_id: remote,
                status: SidrStatus(next() as u8 % 8),
                info_len: next() as u8,
                qpn: Qpn::new(next()),
                service: ServiceId(1),
                qkey: QKey::new(1),
                info: [0; 72],
                private: [0; 136],
            }),
        };
        time += u64::from(next()) % S;
        stage.show(time, (next() % 2) as u16, &cm(from, to, u64::from(next() % 4), message));
        let psn = next() & 0xFF_FFFF;
        let packet = packet(from, to, [0x00, 0x04, 0x11][next() as usize % 3], 0x200, psn, 64);
        stage.show(time, 0, &frame(from, to, &packet));
    }
    let report = stage.finish();
    assert!(report.connections.iter().all(|c| c.frames.len() <= audit::limits::HANDSHAKE_FRAMES));
}
