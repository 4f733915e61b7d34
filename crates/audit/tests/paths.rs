//! Paths: DSCP by direction and on the way, ECN on the way, RoCE versions, source ports, TTL. Each
//! fault and what looks like it but is none.

#[path = "support/net.rs"]
mod net;

use audit::finding::Finding;
use audit::{Rule, Side};
use net::{ACK, CNP, Net, Sent, UC_SEND_ONLY, UD_SEND_ONLY, US};
use net::{ack, cnp, data, end, mac};
use wire::Encapsulation;

const AF31: u8 = 26 << 2;
const CS6: u8 = 48 << 2;

/// A conversation of 20 requests and answers, each as `there` and `back` make it.
fn talk(there: impl Fn(u32, Sent) -> Sent, back: impl Fn(u32, Sent) -> Sent) -> Net {
    let mut net = Net::new();
    for psn in 0..20 {
        net.send(u64::from(psn) * 10 * US, there(psn, data(1, 2, 0x22, psn)));
        net.send(u64::from(psn) * 10 * US + 1, back(psn, ack(2, 1, 0x11, psn)));
    }
    net
}

fn one(findings: &[Finding]) -> &Finding {
    assert_eq!(findings.len(), 1, "{findings:?}");
    &findings[0]
}

#[test]
fn acknowledgements_without_the_datas_dscp_are_told() {
    let findings = talk(|_, sent| sent.class(AF31), |_, sent| sent).finish();
    let finding = one(&findings);
    assert_eq!((finding.rule, finding.side), (Rule::DscpAsymmetric, Side::Host(end(2))));
    assert_eq!(finding.subject.to_string(), "10.0.0.1 and 10.0.0.2");
    assert!(finding.detail.contains("DSCP 26") && finding.detail.contains("DSCP 0"));
}

#[test]
fn data_both_ways_with_different_dscps_is_told() {
    let mut net = Net::new();
    for psn in 0..20 {
        let at = u64::from(psn) * 10 * US;
        net.send(at, data(1, 2, 0x22, psn).class(AF31));
        net.send(at + 1, ack(2, 1, 0x11, psn).class(34 << 2));
        net.send(at + 2, data(2, 1, 0x11, 500 + psn).class(34 << 2));
        net.send(at + 3, ack(1, 2, 0x22, 500 + psn).class(AF31));
    }
    let findings = net.finish();
    assert_eq!((one(&findings).rule, one(&findings).side), (Rule::DscpAsymmetric, Side::Unknown));
}

#[test]
fn directions_may_differ_where_it_is_meant_or_cannot_be_told() {
    let both =
        |there: u8, back: u8| talk(|_, sent| sent.class(there), |_, sent| sent.class(back)).rules();
    assert_eq!(both(0, 0), []);
    assert_eq!(both(AF31, AF31), []);
    assert_eq!(both(AF31 | 2, AF31), [], "ECN is not the DSCP");
    assert_eq!(both(AF31, CS6), [], "acknowledgements preferred on purpose");
    // Not a pair of directions; few packets; only CNPs come back.
    let mut single = Net::new();
    for psn in 0..20 {
        single.send(0, data(1, 2, 0x22, psn).class(AF31));
        single.send(0, ack(2, 1, 0x99, 5000 + psn));
    }
    assert_eq!(single.rules(), []);
    let mut few = Net::new();
    for psn in 0..3 {
        few.send(0, data(1, 2, 0x22, psn).class(AF31));
        few.send(0, ack(2, 1, 0x11, psn));
    }
    assert_eq!(few.rules(), []);
    let mut notified = Net::new();
    for psn in 0..20 {
        notified.send(0, data(1, 2, 0x22, psn).class(AF31 | 2));
    }
    notified.send(0, cnp(2, 1, 0x11));
    assert_eq!(notified.rules(), []);
}

#[test]
fn a_dscp_that_changes_by_turns_within_a_queue_pair_is_told() {
    let turns = |psn, sent: Sent| sent.class(if psn % 3 == 0 { 0 } else { AF31 });
    let findings = talk(turns, |_, sent| sent.class(AF31)).finish();
    let finding = one(&findings);
    assert_eq!((finding.rule, finding.side), (Rule::DscpChanged, Side::Before(end(1))));
    assert!(finding.count >= 8, "{finding:?}");
}

#[test]
fn a_dscp_may_change_between_connections_datagrams_and_kinds_of_packets() {
    // Twice, as where it is set anew; under new PSNs, as with a queue pair number used again.
    let anew = |psn, sent: Sent| sent.class(if psn < 10 { 0 } else { AF31 });
    assert_eq!(talk(anew, |_, sent| sent).rules(), []);
    let again = |psn: u32, sent: Sent| Sent {
        psn: (psn * 0x10_0001) & 0xFF_FFFF,
        ..sent.class([0, AF31][psn as usize % 2])
    };
    assert_eq!(talk(again, |_, sent| sent).rules(), []);
    let datagrams = |psn, sent: Sent| {
        let sent = sent.opcode(UD_SEND_ONLY).port(0xC000 + psn as u16).ttl(psn as u8 + 1);
        sent.class(if psn % 2 == 0 { 0 } else { AF31 })
    };
    assert_eq!(talk(datagrams, |_, sent| sent).rules(), []);
    // Answers and CNPs of one queue pair among its requests.
    let mixed = |psn, sent: Sent| match psn % 3 {
        0 => sent.class(AF31),
        1 => Sent { psn: 0x80_0000 + psn, ..sent.opcode(ACK).payload(0) },
        _ => Sent { psn: 0, ..sent.opcode(CNP).class(CS6).payload(0).port(0).ttl(255) },
    };
    assert_eq!(talk(mixed, |_, sent| sent.class(AF31)).rules(), []);
}

#[test]
fn a_packet_whose_dscp_differs_at_two_points_is_told() {
    for (ttl, files) in [(64, (0, 0)), (63, (0, 1)), (64, (0, 1))] {
        let mut net = Net::new();
        for psn in 0..20 {
            let sent = data(1, 2, 0x22, psn).class(AF31 | 2);
            net.send(u64::from(psn) * US, sent.seen(0, files.0));
            net.send(u64::from(psn) * US + 1, sent.class(2).ttl(ttl).seen(1, files.1));
        }
        let findings = net.finish();
        let finding = one(&findings);
        assert_eq!((finding.rule, finding.side), (Rule::DscpChanged, Side::Network));
        assert!(finding.detail.contains("DSCP 26"), "{}", finding.detail);
        assert_eq!(finding.count, 20);
        assert_eq!(finding.detail.contains("further"), ttl == 63 || files == (0, 0));
    }
}

#[test]
fn an_erased_ecn_field_is_told() {
    let at_two = |before: u8, behind: u8, ttl: u8, file: u16| {
        let mut net = Net::new();
        for psn in 0..20 {
            let sent = data(1, 2, 0x22, psn);
            net.send(u64::from(psn) * US, sent.class(before).seen(0, 0));
            net.send(u64::from(psn) * US + 1, sent.class(behind).ttl(ttl).seen(1, file));
        }
        let mut rules = net.rules();
        rules.retain(|rule| !matches!(rule, Rule::NotEct | Rule::NoCnp));
        rules
    };
    let (not_ect, ect1, ect0, ce) = (0, 1, 2, 3);
    for (before, behind) in
        [(ect0, not_ect), (ce, not_ect), (ce, ect0), (ect0, ect1), (not_ect, ect0), (not_ect, ce)]
    {
        assert_eq!(at_two(before, behind, 64, 0), [Rule::EcnErased], "{before} {behind}");
    }
    assert_eq!(at_two(ect0, ce, 64, 0), [], "marked");
    assert_eq!(at_two(ect1, ce, 64, 0), [], "marked");
    assert_eq!(at_two(ect0, ect0, 63, 1), []);
    // Two files have two clocks: the second point may lie first on the way, unless the TTL tells.
    assert_eq!(at_two(ce, ect0, 64, 1), []);
    assert_eq!(at_two(ce, ect0, 65, 1), [], "the second point lies first");
    assert_eq!(at_two(ce, ect0, 63, 1), [Rule::EcnErased]);
}

#[test]
fn other_packets_at_another_point_are_no_copies() {
    let mut net = Net::new();
    for psn in 0..20 {
        // Two links carry a queue pair by turns, with different classes; and a request sent again.
        let sent = data(1, 2, 0x22, psn);
        net.send(u64::from(psn) * US, sent.class(AF31).seen(0, 0));
        net.send(u64::from(psn) * US, Sent { ident: 900, ..sent }.seen(1, 0));
        net.send(u64::from(psn) * US, Sent { payload: 8, ..sent }.seen(1, 0));
        net.send(u64::from(psn) * US, data(1, 2, 0x22, 700 + psn).seen(1, 0));
    }
    assert_eq!(net.rules(), []);
}

#[test]
fn a_ttl_that_changes_by_turns_or_runs_out_is_told() {
    let ttl = |of: fn(u32) -> u8| talk(move |psn, sent| sent.ttl(of(psn)), |_, sent| sent);
    let findings = ttl(|psn| if psn % 2 == 0 { 62 } else { 61 }).finish();
    assert_eq!((one(&findings).rule, one(&findings).side), (Rule::OddTtl, Side::Before(end(1))));
    assert_eq!(ttl(|psn| if psn == 9 { 1 } else { 30 }).rules(), [Rule::OddTtl]);
    assert_eq!(ttl(|psn| if psn == 9 { 0 } else { 30 }).rules(), [Rule::OddTtl]);
    assert_eq!(ttl(|_| 0).rules(), [Rule::OddTtl]);
}

#[test]
fn a_ttl_may_be_small_change_once_or_differ_by_kind() {
    let ttl = |of: fn(u32) -> u8| talk(move |psn, sent| sent.ttl(of(psn)), |_, sent| sent).rules();
    assert_eq!(ttl(|_| 1), [], "programs ask for it within a subnet");
    assert_eq!(ttl(|psn| if psn < 10 { 63 } else { 62 }), [], "rerouted");
    assert_eq!(talk(|_, sent| sent, |_, sent| sent.ttl(255)).rules(), []);
    let v1 = |_, sent: Sent| sent.ttl(0).over(Encapsulation::RoceV1);
    let mut net = Net::new();
    for psn in 0..20 {
        net.send(0, v1(psn, data(1, 2, 0x22, psn)));
    }
    assert_eq!(net.rules(), [], "RoCEv1 is not routed");
    // One point that sees each packet twice, before and behind a router.
    let mut twice = Net::new();
    for burst in 0..20 {
        for ttl in [64, 63] {
            for psn in 0..4 {
                twice.send(0, data(1, 2, 0x22, burst * 4 + psn).ttl(ttl));
            }
        }
    }
    assert_eq!(twice.rules(), []);
}

#[test]
fn a_source_port_that_changes_within_a_connection_is_told() {
    let port = |psn: u32, sent: Sent| sent.port(0xC000 + (psn * 7919 % 1000) as u16);
    let findings = talk(port, |_, sent| sent).finish();
    assert_eq!((one(&findings).rule, one(&findings).side), (Rule::PortChanges, Side::Host(end(1))));
    let mut uc = Net::new();
    for psn in 0..20 {
        uc.send(0, port(psn, data(1, 2, 0x22, psn).opcode(UC_SEND_ONLY)));
    }
    assert_eq!(uc.rules(), [Rule::PortChanges]);
}

#[test]
fn a_source_port_may_change_with_the_path_or_the_connection() {
    let moved = |psn, sent: Sent| sent.port(if psn < 10 { 0xC001 } else { 0xC002 });
    assert_eq!(talk(moved, |_, sent| sent.port(0xC100)).rules(), []);
    let mut slowly = Net::new();
    for psn in 0..20_000 {
        slowly.send(0, data(1, 2, 0x22, psn).port(0xC000 + (psn / 2000) as u16));
    }
    assert_eq!(slowly.rules(), []);
    let again = |psn: u32, sent: Sent| Sent {
        psn: (psn * 0x10_0001) & 0xFF_FFFF,
        ..sent.port(0xC000 + psn as u16)
    };
    assert_eq!(talk(again, |_, sent| sent).rules(), []);
}

/// So many queue pairs from one end to another, with packets each and a port by its number.
fn crowd(queue_pairs: u32, packets: u32, port: impl Fn(u32) -> u16) -> Net {
    let mut net = Net::new();
    for qp in 0..queue_pairs {
        for psn in 0..packets {
            net.send(0, data(1, 2, 0x100 + qp, psn).port(port(qp)));
        }
    }
    net
}

#[test]
fn many_queue_pairs_on_one_source_port_are_told() {
    let findings = crowd(16, 10, |_| 0xC000).finish();
    assert_eq!((one(&findings).rule, one(&findings).side), (Rule::NoEntropy, Side::Host(end(1))));
    assert!(one(&findings).detail.contains("16 queue pairs"), "{}", one(&findings).detail);
    assert_eq!(crowd(64, 10, |qp| 0xC000 + qp as u16 % 4).rules(), [Rule::NoEntropy]);
}

#[test]
fn few_idle_or_spread_queue_pairs_have_entropy_enough() {
    assert_eq!(crowd(7, 10, |_| 0xC000).rules(), []);
    assert_eq!(crowd(64, 10, |qp| 0xC000 + qp as u16 % 16).rules(), []);
    assert_eq!(crowd(64, 7, |_| 0xC000).rules(), [], "hardly used");
    let mut others = Net::new();
    for number in 0..16 {
        for psn in 0..10 {
            // To different ends; datagrams.
            others.send(0, data(1, 2 + number, 0x22, psn).port(0xC000));
            let datagram = data(1, 2, 0x100 + u32::from(number), psn).port(0xC000);
            others.send(0, datagram.opcode(UD_SEND_ONLY));
        }
    }
    assert_eq!(others.rules(), []);
}

#[test]
fn roce_v1_and_v2_between_the_same_ends_are_told() {
    let mut net = Net::new();
    net.send(0, data(1, 2, 0x22, 0));
    net.send(0, ack(2, 1, 0x11, 0).over(Encapsulation::RoceV1));
    let findings = net.finish();
    assert_eq!(one(&findings).rule, Rule::VersionsMixed);
    assert_eq!(one(&findings).subject.to_string(), "10.0.0.1 and 10.0.0.2");
    // By MAC address where the GIDs are others.
    let mut net = Net::new();
    net.send(0, data(1, 2, 0x22, 0));
    let other = Sent { macs: (mac(2), mac(1)), ..data(12, 11, 0x11, 0) };
    net.send(0, other.over(Encapsulation::RoceV1));
    assert_eq!(one(&net.finish()).rule, Rule::VersionsMixed);
}

#[test]
fn roce_v1_and_v2_between_different_ends_are_not_mixed() {
    let mut net = Net::new();
    net.send(0, data(1, 2, 0x22, 0));
    net.send(0, data(1, 3, 0x22, 0).over(Encapsulation::RoceV1));
    net.send(0, data(3, 1, 0x22, 0).over(Encapsulation::RoceV1));
    assert_eq!(net.rules(), []);
}

#[test]
fn ipv6_is_judged_alike() {
    let mut net = Net::new();
    for psn in 0..20 {
        let sent = Sent { v6: true, ..data(1, 2, 0x22, psn) };
        let ports = sent.port(0xC000 + psn as u16);
        net.send(u64::from(psn) * US, ports.class(AF31 | 2).seen(0, 0));
        net.send(u64::from(psn) * US + 1, ports.class(0).ttl(63).seen(1, 1));
        net.send(u64::from(psn) * US, Sent { v6: true, ..ack(2, 1, 0x11, psn) });
    }
    let mut rules = net.rules();
    rules.sort();
    let all = [Rule::DscpAsymmetric, Rule::DscpChanged, Rule::EcnErased, Rule::PortChanges];
    assert_eq!(rules, all);
}
