//! The ECN chain: each link broken, and what looks like it but is none. The packets are made here;
//! traffic goes from end 1 to queue pair 0x22 of end 2, answers to queue pair 0x11 of end 1.

#[path = "support/net.rs"]
mod net;

use audit::record::Direction;
use audit::{Rule, Side};
use net::{ACK, MS, Net, Sent, UC_SEND_ONLY, UD_SEND_ONLY, US, ack, cnp, data, end, mac};

/// DSCP 26 with ECT(0), without, and marked.
const ECT: u8 = 0x6A;
const BARE: u8 = 0x68;
const MARKED: u8 = 0x6B;

fn there(psn: u32) -> Sent {
    data(1, 2, 0x22, psn).class(ECT)
}

fn back(psn: u32) -> Sent {
    ack(2, 1, 0x11, psn).class(ECT)
}

/// Requests and answers, 10 µs apart, of which `class` gives the requests' traffic class.
fn exchange(net: &mut Net, from_ns: u64, packets: u32, class: impl Fn(u32) -> u8) {
    for psn in 0..packets {
        let ns = from_ns + u64::from(psn) * 10 * US;
        net.send(ns, there(psn).class(class(psn)));
        net.send(ns + 5 * US, back(psn));
    }
}

#[test]
fn a_flow_without_ect_beside_one_with_it_is_told() {
    let mut net = Net::new();
    for psn in 0..20 {
        net.send(u64::from(psn) * US, there(psn));
        net.send(u64::from(psn) * US, data(1, 2, 0x23, psn).class(BARE));
    }
    let findings = net.finish();
    assert_eq!(findings.len(), 1, "{findings:?}");
    assert_eq!((findings[0].rule, findings[0].side), (Rule::NotEct, Side::Host(end(1))));
    assert_eq!(findings[0].subject.to_string(), "10.0.0.1 > 10.0.0.2 qp 0x23");
    assert_eq!(findings[0].first.map(|at| at.frame), Some(2));
    assert!(findings[0].detail.contains("20 of 20"), "{}", findings[0].detail);
}

#[test]
fn ect_is_missed_only_where_something_speaks_of_ecn() {
    let bare = |net: &mut Net| {
        for psn in 0..20 {
            net.send(u64::from(psn) * US, there(psn).class(BARE));
        }
    };
    let mut silent = Net::new();
    bare(&mut silent);
    assert_eq!(silent.rules(), []);
    let mut expected = Net::expecting(true);
    bare(&mut expected);
    assert_eq!(expected.rules(), [Rule::NotEct]);
    let mut notified = Net::new();
    bare(&mut notified);
    notified.send(30 * US, cnp(2, 1, 0x11));
    assert_eq!(notified.rules(), [Rule::NotEct]);
}

#[test]
fn what_carries_no_load_may_be_without_ect() {
    let mut net = Net::new();
    for psn in 0..20 {
        let ns = u64::from(psn) * US;
        net.send(ns, there(psn));
        // Acknowledgements, datagrams, RoCEv1, and a flow of a few packets.
        net.send(ns, ack(2, 1, 0x11, psn).class(BARE));
        net.send(ns, data(2, 1, 0x33, psn).opcode(UD_SEND_ONLY));
        net.send(ns, data(5, 6, 0x34, psn).over(wire::Encapsulation::RoceV1));
        if psn < 7 {
            net.send(ns, data(2, 1, 0x35, psn).class(BARE));
        }
    }
    assert_eq!(net.rules(), []);
}

#[test]
fn a_receiver_that_answers_no_mark_is_told() {
    let mut net = Net::new();
    exchange(&mut net, 0, 300, |psn| if psn % 10 == 3 { MARKED } else { ECT });
    let findings = net.finish();
    assert_eq!(findings.len(), 1, "{findings:?}");
    assert_eq!((findings[0].rule, findings[0].side), (Rule::NoCnp, Side::Host(end(2))));
    assert_eq!(findings[0].numbers[0].value, 30.0);
    assert_eq!(findings[0].first.map(|at| at.frame), Some(7));
}

#[test]
fn a_mark_counts_as_unanswered_only_if_the_answer_would_be_seen() {
    let marks = |psn| if psn % 10 == 3 { MARKED } else { ECT };
    let mut answered = Net::new();
    exchange(&mut answered, 0, 300, marks);
    answered.send(3 * MS, cnp(2, 1, 0x11));
    assert_eq!(answered.rules(), []);

    let mut few = Net::new();
    exchange(&mut few, 0, 300, |psn| if psn % 50 == 3 { MARKED } else { ECT });
    assert_eq!(few.rules(), []);

    let mut short = Net::new();
    exchange(&mut short, 0, 90, |_| MARKED);
    assert_eq!(short.rules(), [], "the capture ends before the receiver has had its time");

    let mut one_way = Net::new();
    for psn in 0..300 {
        one_way.send(u64::from(psn) * 10 * US, there(psn).class(MARKED));
    }
    assert_eq!(one_way.rules(), [], "what the receiver sends is not in the capture");

    let mut shared = Net::new();
    exchange(&mut shared, 0, 300, marks);
    shared.send(3 * MS, cnp(2, 1, 0x12));
    assert_eq!(shared.rules(), [], "an adapter may ration CNPs over its flows");

    let mut not_paired = Net::new();
    for psn in 0..300 {
        let ns = u64::from(psn) * 10 * US;
        not_paired.send(ns, there(psn).class(MARKED).opcode(UC_SEND_ONLY));
        not_paired.send(ns, cnp(2, 1, 0x11));
    }
    assert_eq!(not_paired.rules(), [], "a CNP may be for any queue pair of the sender");
}

#[test]
fn a_receiver_that_forgets_one_flow_of_two_is_told_after_many_marks() {
    let mut net = Net::new();
    exchange(&mut net, 0, 300, |_| MARKED);
    net.send(MS, cnp(2, 1, 0x12));
    assert_eq!(net.rules(), [Rule::NoCnp]);
}

/// Sends for `ms` milliseconds with a gap between packets that `gap` gives by the time in ns, CNPs
/// every `every` ns from `cnps` on.
fn congested(ms: u64, gap: impl Fn(u64) -> u64, cnps: u64, every: u64) -> Net {
    let mut net = Net::new();
    net.send(0, there(0));
    net.send(0, back(0));
    let (mut ns, mut psn, mut next) = (0, 1, cnps);
    while ns < ms * MS {
        ns += gap(ns);
        while next < ns {
            net.send(next, cnp(2, 1, 0x11));
            next += every;
        }
        // Marked now and then, so that the CNPs have a cause.
        net.send(ns, there(psn).class(if psn % 16 == 0 { MARKED } else { ECT }));
        psn += 1;
    }
    net
}

#[test]
fn a_sender_that_keeps_its_rate_through_dense_cnps_is_told() {
    // 33 Gbit/s, CNPs every 50 µs from the fifth millisecond on.
    let findings = congested(25, |_| US, 5 * MS, 50 * US).finish();
    assert_eq!(findings.len(), 1, "{findings:?}");
    let finding = &findings[0];
    assert_eq!((finding.rule, finding.side), (Rule::NoSlowDown, Side::Host(end(1))));
    assert_eq!(finding.subject.to_string(), "10.0.0.1 > 10.0.0.2 qp 0x22");
    let number = |name| finding.numbers.iter().find(|n| n.name == name).map(|n| n.value.round());
    assert_eq!(number("rate_before_gbps"), Some(33.0));
    assert_eq!(number("rate_gbps"), Some(33.0));
}

#[test]
fn a_sender_may_need_the_whole_capture_to_be_found_where_it_begins_with_cnps() {
    let dense = |ms| congested(ms, |_| US, 0, 50 * US).rules();
    assert_eq!(dense(10), [], "it may be at its fair share");
    assert_eq!(dense(25), [Rule::NoSlowDown]);
}

#[test]
fn a_sender_that_slows_down_rests_or_has_little_to_send_is_not_told() {
    let slows = |ns| if ns < 5 * MS { US } else { US + (ns - 5 * MS) / 1000 };
    assert_eq!(congested(25, slows, 5 * MS, 50 * US).rules(), []);
    let halves = |ns| if ns < 6 * MS { US } else { 2 * US };
    assert_eq!(congested(40, halves, 5 * MS, 50 * US).rules(), []);
    // Ends, or pauses by itself, while CNPs still come.
    let ends = |ns| if ns < 7 * MS { US } else { 30 * MS };
    assert_eq!(congested(25, ends, 5 * MS, 50 * US).rules(), []);
    let rests = |ns| if ns % (4 * MS) < US { 3 * MS } else { US };
    assert_eq!(congested(60, rests, 5 * MS, 50 * US).rules(), []);
    // 66 Mbit/s: the sender's limit may be far above.
    assert_eq!(congested(40, |_| 500 * US, 5 * MS, 50 * US).rules(), []);
    assert_eq!(congested(40, |_| 100 * US, 5 * MS, 50 * US).rules(), [Rule::NoSlowDown]);
}

#[test]
fn a_few_cnps_ask_for_little() {
    assert_eq!(congested(40, |_| US, 5 * MS, 200 * US).rules(), []);
    assert_eq!(congested(40, |_| US, 5 * MS, 3 * MS).rules(), []);
    // A burst of CNPs within microseconds is one.
    let mut net = congested(10, |_| US, 50 * MS, MS);
    for n in 0..500 {
        net.send(10 * MS + n, cnp(2, 1, 0x11));
    }
    for psn in 0..20_000 {
        net.send(10 * MS + u64::from(psn) * US, there(10_001 + psn));
    }
    assert_eq!(net.rules(), []);
}

#[test]
fn cnps_in_the_class_of_the_data_are_told() {
    let mut net = Net::new();
    exchange(&mut net, 0, 300, |psn| if psn == 20 { MARKED } else { ECT });
    net.send(MS, cnp(2, 1, 0x11).class(BARE));
    let findings = net.finish();
    assert_eq!(findings.len(), 1, "{findings:?}");
    assert_eq!((findings[0].rule, findings[0].side), (Rule::CnpClass, Side::Host(end(2))));
    assert!(findings[0].detail.contains("DSCP 26"), "{}", findings[0].detail);
}

#[test]
fn cnps_of_an_unpaired_flow_are_held_against_all_data_of_their_ends() {
    let between = |second: u8| {
        let mut net = Net::new();
        for psn in 0..10 {
            net.send(u64::from(psn) * US, there(psn));
            net.send(u64::from(psn) * US, data(1, 2, 0x23, psn).class(second));
        }
        net.send(20 * US, cnp(2, 1, 0x11).class(BARE));
        net.rules()
    };
    assert_eq!(between(ECT), [Rule::CnpClass]);
    assert_eq!(between(0x12), [], "the CNP may be about data of another class");
}

#[test]
fn cnps_with_a_class_or_priority_of_their_own_are_right() {
    let with = |data_tag: u8, cnp_class: u8, cnp_tag: u8| {
        let mut net = Net::new();
        net.send(0, there(0).class(MARKED).tag(data_tag));
        net.send(0, back(0).tag(data_tag));
        net.send(US, cnp(2, 1, 0x11).class(cnp_class).tag(cnp_tag));
        net.rules()
    };
    assert_eq!(with(3, 0xC0, 6), []);
    assert_eq!(with(3, BARE, 6), [], "another priority is another queue");
    assert_eq!(with(3, 0xC2, 3), [], "the network may trust the DSCP");
    assert_eq!(with(3, BARE, 3), [Rule::CnpClass]);
}

/// Unmarked data and 20 CNPs for it from `from` on; `marks` on another flow of the same ends.
fn unfounded(from: u64, directions: bool, marks: u32) -> Net {
    let mut net = Net::new();
    let seen = |sent: Sent, way| if directions { sent.going(way) } else { sent };
    for psn in 0..1000 {
        let ns = u64::from(psn) * 10 * US;
        net.send(ns, seen(there(psn), Direction::In));
        if psn < marks {
            let marked = there(0x1000 + psn).class(MARKED);
            net.send(ns, Sent { qp: 0x23, ..marked });
            net.send(ns, cnp(2, 1, 0x12));
        }
        if psn == 0 {
            net.send(ns, seen(back(0), Direction::Out));
        }
        if ns >= from && ns < from + 200 * US {
            net.send(ns, seen(cnp(2, 1, 0x11), Direction::Out));
        }
    }
    net
}

#[test]
fn cnps_for_unmarked_data_are_told_where_marks_would_be_seen() {
    let findings = unfounded(5 * MS, true, 0).finish();
    assert_eq!(findings.len(), 1, "{findings:?}");
    assert_eq!((findings[0].rule, findings[0].side), (Rule::CnpUnfounded, Side::Host(end(2))));
    assert_eq!(findings[0].numbers[0].value, 20.0);
    assert_eq!(unfounded(5 * MS, false, 20).rules(), [Rule::CnpUnfounded]);
}

#[test]
fn cnps_may_answer_marks_that_the_capture_does_not_show() {
    assert_eq!(unfounded(5 * MS, false, 0).rules(), [], "marks may be set behind the capture");
    assert_eq!(unfounded(5 * MS, false, 3).rules(), [], "a few marks of others prove little");
    assert_eq!(unfounded(100 * US, true, 0).rules(), [], "marks from before the capture");
    let mut marked = unfounded(5 * MS, true, 0);
    marked.send(11 * MS, there(2000).class(MARKED));
    assert_eq!(marked.rules(), []);
    let mut elsewhere = unfounded(5 * MS, true, 0);
    elsewhere.send(11 * MS, there(5).class(MARKED).seen(1, 1));
    assert_eq!(elsewhere.rules(), [], "the other point of capture shows the mark");
}

#[test]
fn the_sender_of_data_sees_no_marks_of_its_own() {
    let mut net = Net::new();
    exchange(&mut net, 0, 500, |_| ECT);
    for n in 0..20 {
        net.send(5 * MS + n * 10 * US, cnp(2, 1, 0x11).going(Direction::In));
    }
    assert_eq!(net.rules(), []);
}

#[test]
fn pauses_of_a_switch_without_any_mark_are_told() {
    let mut net = Net::new();
    exchange(&mut net, 0, 300, |_| ECT);
    for n in 0..40 {
        net.pause(n * 50 * US, mac(99), 3);
    }
    let findings = net.finish();
    assert_eq!(findings.len(), 1, "{findings:?}");
    assert_eq!((findings[0].rule, findings[0].side), (Rule::NoMarks, Side::Network));
}

#[test]
fn pauses_show_no_missing_marks_where_something_was_marked_or_the_receiver_pauses() {
    let paused = |port: u8, pauses: u64, from: u64, priority: u8, extra: Option<Sent>| {
        let mut net = Net::new();
        for psn in 0..300 {
            net.send(u64::from(psn) * 10 * US, there(psn).tag(3));
        }
        net.send(0, back(0));
        for n in 0..pauses {
            net.pause(from + n * US, mac(port), priority);
        }
        if let Some(sent) = extra {
            net.send(3 * MS, sent);
        }
        net.rules()
    };
    assert_eq!(paused(99, 40, 0, 3, None), [Rule::NoMarks]);
    assert_eq!(paused(2, 40, 0, 3, None), [], "the receiver is slow");
    assert_eq!(paused(99, 20, 0, 3, None), [], "a few pauses");
    assert_eq!(paused(99, 40, 4 * MS, 3, None), [], "after the flow");
    assert_eq!(paused(99, 40, 0, 5, None), [], "of another priority");
    assert_eq!(paused(99, 40, 0, 3, Some(there(300).class(MARKED))), []);
    assert_eq!(paused(99, 40, 0, 3, Some(cnp(2, 1, 0x11))), [], "marked behind the capture");
}

/// Requests that are answered after `delay` ns of their number, with so many pauses of a switch.
fn delayed(expected: bool, pauses: u64, delay: impl Fn(u32) -> u64) -> Vec<Rule> {
    let mut net = Net::expecting(expected);
    let mut ns = 0;
    for psn in 0..400 {
        net.send(ns, there(psn));
        ns += delay(psn);
        net.send(ns, back(psn));
        ns += 10 * US;
    }
    for n in 0..pauses {
        net.pause(n * US, mac(99), 3);
    }
    net.rules()
}

#[test]
fn a_standing_queue_without_marks_is_told() {
    let grows = |psn| if psn < 100 { 10 * US } else { 500 * US };
    assert_eq!(delayed(false, 5, grows), [Rule::NoMarks]);
    assert_eq!(delayed(true, 0, grows), [Rule::NoMarks]);
}

#[test]
fn delay_alone_or_for_a_moment_shows_no_queue_in_the_network() {
    let grows = |psn| if psn < 100 { 10 * US } else { 500 * US };
    assert_eq!(delayed(false, 0, grows), [], "the receiver may be busy");
    let peaks = |psn| if psn % 7 == 0 { 10 * US } else { 2 * MS };
    assert_eq!(delayed(true, 5, peaks), []);
    let moment = |psn| if psn / 20 == 6 { 500 * US } else { 10 * US };
    assert_eq!(delayed(true, 5, moment), []);
    let little = |psn| if psn < 100 { 5 * US } else { 90 * US };
    assert_eq!(delayed(true, 5, little), []);
    assert_eq!(delayed(true, 5, |_| 500 * US), [], "a long way is no queue");
}

#[test]
fn packets_in_no_order_and_with_any_clock_are_judged_without_fault() {
    let mut random = 7_u64;
    let mut next = move || {
        random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        random >> 33
    };
    let mut net = Net::expecting(true);
    let opcodes = [0x04, 0x00, 0x0C, 0x10, ACK, net::CNP, 0x64, 0x24, 0x0E, 0xA4];
    for _ in 0..20_000 {
        let (from, to) = if next() % 2 == 0 { (1, 2) } else { (2, 1) };
        let sent = data(from, to, 0x11 + next() as u32 % 3, next() as u32)
            .class(next() as u8)
            .ttl(next() as u8)
            .port(next() as u16)
            .opcode(opcodes[next() as usize % opcodes.len()])
            .payload(next() as u32 % 5000)
            .seen(next() as u16 % 3, next() as u16 % 2);
        let sent = Sent { asks: next() % 2 == 0, ..sent };
        net.send(next() * next() % 1_000_000_000, sent);
    }
    for _ in 0..20_000 {
        net.send(next() * next(), there(next() as u32).class(next() as u8));
        net.send(next() * next(), cnp(2, 1, 0x11));
        net.send(next() * next(), back(next() as u32));
    }
    assert!(net.rules().len() > 3, "much is wrong with such packets");
}
