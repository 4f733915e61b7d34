//! What explains stalls (R110) and outliers (R111): an exchange for each cause, and for none.

mod support;

use audit::event::{Event, What};
use audit::finding::Finding;
use audit::{At, Auditor, Options, Report, Rule, Time};
use support::exchange::{Exchange, op};
use wire::Mac;
use wire::mac_control::{MacControl, Pfc};

/// 200 usual requests, then one that `slow` draws out.
fn stalled(slow: impl FnOnce(&mut Exchange)) -> Exchange {
    let mut x = Exchange::new();
    x.sends(0, 200);
    slow(&mut x);
    x.sends(210, 2);
    x
}

fn audited(x: &Exchange) -> Report {
    support::audit(&x.events)
}

fn of(report: &Report, rule: Rule) -> &Finding {
    report.findings.iter().find(|f| f.rule == rule).unwrap_or_else(|| panic!("{report:#?}"))
}

/// The causes of a rule: rule, word, how many, frames.
fn causes(report: &Report, rule: Rule) -> Vec<(Option<&'static str>, &'static str, u64, Vec<u64>)> {
    let frames = |at: &[At]| at.iter().map(|at| at.frame).collect();
    let causes = of(report, rule).causes.iter();
    causes.map(|c| (c.rule.map(Rule::code), c.what, c.count, frames(&c.sample))).collect()
}

#[test]
fn nothing_explains_a_silent_stall() {
    let x = stalled(|x| {
        x.request(op::SEND_ONLY, 200, 100).wait(300_000).ack(200, 201).sends(201, 9);
    });
    let report = audited(&x);
    assert_eq!(causes(&report, Rule::Stall), [(None, "no cause in this capture", 1, vec![])]);
    let detail = &of(&report, Rule::Stall).detail;
    assert!(detail.ends_with("after 300 ms; no cause in this capture"), "{detail}");
}

#[test]
fn a_time_out_explains_a_stall() {
    let x = stalled(|x| {
        x.request(op::SEND_ONLY, 200, 100).wait(300_000).request(op::SEND_ONLY, 200, 100);
        x.ack(200, 201).sends(201, 9);
    });
    let report = audited(&x);
    assert_eq!(causes(&report, Rule::Stall), [(Some("R025"), "time-out", 1, vec![402])]);
    assert!(report.findings.iter().any(|f| f.rule == Rule::Timeout), "the finding that it names");
    let detail = &of(&report, Rule::Stall).detail;
    assert!(detail.ends_with("; explained by R025 (time-out) in frame #402"), "{detail}");
    // One long before it does not.
    let mut x = Exchange::new();
    x.request(op::SEND_ONLY, 0, 100).wait(67_000).request(op::SEND_ONLY, 0, 100).ack(0, 1);
    x.sends(1, 200).request(op::SEND_ONLY, 201, 100).wait(300_000).ack(201, 202);
    let report = audited(&x);
    assert_eq!(causes(&report, Rule::Stall), [(None, "no cause in this capture", 1, vec![])]);
}

#[test]
fn a_loss_explains_a_stall() {
    let x = stalled(|x| {
        // The receiver asks for it late.
        x.request(op::SEND_ONLY, 200, 100).request(op::SEND_ONLY, 201, 100).wait(300_000);
        x.out_of_sequence(200).request(op::SEND_ONLY, 200, 100).request(op::SEND_ONLY, 201, 100);
        x.ack(201, 202).sends(202, 8);
    });
    let report = audited(&x);
    assert_eq!(causes(&report, Rule::Stall), [(Some("R021"), "loss", 1, vec![404])]);
    let x = stalled(|x| {
        x.request(op::SEND_FIRST, 200, 1024).request(op::SEND_MIDDLE, 201, 1024).lose();
        x.request(op::SEND_LAST, 202, 100).wait(300_000).out_of_sequence(201);
        x.request(op::SEND_MIDDLE, 201, 1024).request(op::SEND_LAST, 202, 100);
        x.ack(202, 201).sends(203, 7);
    });
    let report = audited(&x);
    let cause = &causes(&report, Rule::Stall)[0];
    assert_eq!((cause.0, cause.1), (Some("R020"), "loss"));
}

#[test]
fn rnr_naks_explain_a_stall() {
    let x = stalled(|x| {
        // Timer code 0: 655.36 ms.
        x.request(op::SEND_ONLY, 200, 100).rnr(200, 0).wait(656_000);
        x.request(op::SEND_ONLY, 200, 100).ack(200, 201).sends(201, 9);
    });
    let report = audited(&x);
    assert_eq!(causes(&report, Rule::Stall), [(Some("R050"), "RNR NAK", 1, vec![402])]);
}

/// Shows the events with pauses of priority 0 by the responder's port from `from` to `to`.
fn with_pauses(x: &Exchange, from: u64, to: u64) -> Report {
    const EACH: u64 = 300_000;
    let mut auditor = Auditor::new(Options::default());
    let pause = |time: u64| {
        let pfc = Pfc::one(0, 0xFFFF).expect("a priority");
        Event {
            at: At { time: Time(time), file: 0, frame: 1_000_000 + time / EACH },
            part: 0,
            point: audit::Point(0),
            direction: None,
            len: 60,
            macs: Some((Mac([2, 0, 0, 0, 0, 2]), Mac([1, 0x80, 0xC2, 0, 0, 1]))),
            tag: None,
            tunnels: 0,
            what: What::Pause(MacControl::Pfc(pfc)),
        }
    };
    let mut next = from;
    for event in &x.events {
        while next < event.at.time.0 && next < to {
            auditor.see(&pause(next));
            next += EACH;
        }
        auditor.see(event);
    }
    auditor.finish(Vec::new())
}

#[test]
fn pauses_explain_a_stall() {
    let x = stalled(|x| {
        x.request(op::SEND_ONLY, 200, 100).wait(300_000).ack(200, 201).sends(201, 9);
    });
    let asked = x.events[400].at.time.0;
    let report = with_pauses(&x, asked + 1000, asked + 250_000_000);
    let found = causes(&report, Rule::Stall);
    assert_eq!((found[0].0, found[0].1), (Some("R080"), "pauses"), "{found:?}");
    assert!(
        report.findings.iter().any(|f| f.rule == Rule::PauseStorm),
        "the finding that it names"
    );
    // A short part of the time.
    let report = with_pauses(&x, asked + 1000, asked + 30_000_000);
    assert_eq!(causes(&report, Rule::Stall)[0].1, "no cause in this capture");
}

#[test]
fn cnps_explain_a_message_that_is_sent_slowly() {
    let slowly = |cnps: u32, every: u64, last: u64| {
        stalled(|x| {
            x.request(op::SEND_FIRST, 200, 1024);
            for psn in 201..209 {
                x.wait(every);
                if psn - 201 < cnps {
                    x.packet(true, 0x81, 0, Default::default(), 16);
                }
                x.request(op::SEND_MIDDLE, psn, 1024);
            }
            x.request(op::SEND_LAST, 209, 100).wait(last).ack(209, 201);
        })
    };
    let what = |x: &Exchange| causes(&audited(x), Rule::Stall)[0].1;
    assert_eq!(what(&slowly(4, 40_000, 0)), "slow-down by CNPs");
    // One alone, or a message that was sent at once and waits for its answer.
    assert_eq!(what(&slowly(1, 40_000, 0)), "no cause in this capture");
    assert_eq!(what(&slowly(4, 10, 300_000)), "no cause in this capture");
}

#[test]
fn outliers_are_counted_by_cause() {
    let mut x = Exchange::new();
    for psn in 0..2000 {
        x.request(op::SEND_ONLY, psn, 100);
        match psn % 100 {
            0 => x.wait(20_000),
            50 => x.wait(67_000).request(op::SEND_ONLY, psn, 100),
            _ => &mut x,
        };
        x.ack(psn, psn + 1);
    }
    let report = audited(&x);
    let found: Vec<_> = causes(&report, Rule::Outliers);
    let short: Vec<_> = found.iter().map(|(rule, what, n, _)| (*rule, *what, *n)).collect();
    assert_eq!(
        short,
        [(None, "no cause in this capture", 20), (Some("R025"), "time-out", 20)],
        "{found:?}"
    );
    assert_eq!(found[1].3.len(), audit::limits::SAMPLE);
}
