//! Filters: what they keep, what is told of wrong ones.

use audit::finding::Flow;
use audit::record::At;
use audit::report::End;
use audit::{Rule, Side};

use super::*;

fn gid(text: &str) -> Gid {
    Gid::from_ip(text.parse().expect("an address"))
}

fn fault(text: &str) -> String {
    match Filter::parse(text) {
        Err(Failure::Usage(text)) => text,
        other => panic!("{other:?}"),
    }
}

#[test]
fn wrong_expressions_name_the_column() {
    let cases = [
        ("", 1, "host, src, dst"),
        ("hots 10.0.0.1", 1, "found 'hots'"),
        ("host 10.0.0", 6, "an IP address"),
        ("host 10.0.0.1 qp 1", 15, "expected and, or"),
        ("host 10.0.0.1 and", 18, "found the end"),
        ("qp 0x1000000", 4, "0xffffff"),
        ("qp -1", 4, "queue pair number"),
        ("qp +1", 4, "queue pair number"),
        ("qp 0x+1", 4, "queue pair number"),
        ("(qp 1", 6, "expected and, or, or )"),
        ("qp 1)", 5, "found ')'"),
        ("time 5", 6, "FROM..TO"),
        ("time 5..4", 6, "FROM..TO"),
        ("time 25:00:00..", 6, "FROM..TO"),
        ("time nan..inf", 6, "FROM..TO"),
        ("frame 7..3", 7, "12..20"),
        ("frame ..", 7, "12..20"),
        ("conversation x", 14, "conversation"),
        ("häst 1", 1, "found 'häst'"),
        ("not é", 5, "found 'é'"),
    ];
    for (text, column, part) in cases {
        let told = fault(text);
        let place = format!("--filter, column {column}: ");
        assert!(told.starts_with(&place) && told.contains(part), "{text:?}: {told}");
        let mark = told.lines().last().expect("a mark");
        assert_eq!(mark.chars().count(), 2 + column, "{told}");
    }
    assert!(fault(&"not ".repeat(100_000)).contains("words"));
    assert!(fault(&format!("{}qp 1", "(".repeat(40))).contains("levels"));
    assert!(!fault("host \u{1b}[2J").contains('\u{1b}'));
}

fn ask(text: &str, thing: &Thing<'_>) -> Truth {
    let start = Time(1_000 * DAY + 36_000_000_000_000);
    Filter { start: Some(start), ..Filter::parse(text).expect("a filter") }.ask(thing)
}

#[test]
fn terms_answer_of_packets() {
    let start = 1_000 * DAY + 36_000_000_000_000; // 10:00:00
    let at = Time(start + 2_500_000_000);
    let thing = Thing {
        way: Some((gid("10.0.0.1"), gid("10.0.0.2"))),
        qps: &[0x11],
        times: Some((at, at)),
        frames: Some((7, 7)),
        ..Thing::default()
    };
    let cases = [
        ("host 10.0.0.1", Yes),
        ("host ::ffff:10.0.0.2", Yes),
        ("host 10.0.0.3", No),
        ("src 10.0.0.1 and dst 10.0.0.2", Yes),
        ("src 10.0.0.2", No),
        ("qp 17", Yes),
        ("qp 0x12", Perhaps),
        ("not qp 0x11", No),
        ("not qp 0x12", Perhaps),
        ("qp 0x12 and host 10.0.0.3", No),
        ("qp 0x12 or host 10.0.0.1", Yes),
        ("NOT (host 10.0.0.3 OR src 10.0.0.2)", Yes),
        ("conversation 3", Perhaps),
        ("time 2.4..2.6", Yes),
        ("time 2.6..", No),
        ("time ..2.6", Yes),
        ("time 10:00:02..10:00:03", Yes),
        ("time 10:00:03..10:00:04.5", No),
        ("time 09:59:00..10:00:01", No),
        ("frame 7", Yes),
        ("frame 8..", No),
        ("frame ..6", No),
        ("frame 0x7..9", Yes),
    ];
    for (text, truth) in cases {
        assert_eq!(ask(text, &thing), truth, "{text}");
    }
}

#[test]
fn a_time_of_day_before_a_late_beginning_is_that_of_the_next_day() {
    let start = Time(5 * DAY + DAY - 1_000_000_000); // 23:59:59
    let five = Moment::OfDay(5_000_000_000);
    assert_eq!(five.or(start, 0), 6 * DAY + 5_000_000_000);
    assert_eq!(Moment::OfDay(DAY - 2_000_000_000).or(start, 0), 6 * DAY - 2_000_000_000);
}

fn report() -> Report {
    let end = |address: &str, qp| End { address: address.to_owned(), qp: Some(qp) };
    let talk = |id, a, b| Conversation { id, a, b, ..Conversation::default() };
    let finding = |destination: &str, qp, second: u64| {
        let at = At { time: Time(second * 1_000_000_000), file: 0, frame: second };
        Finding {
            rule: Rule::BadIcrc,
            severity: Rule::BadIcrc.severity(),
            subject: Subject::Flow(Flow {
                source: gid("10.0.0.1"),
                destination: gid(destination),
                qp,
            }),
            side: Side::Unknown,
            causes: Vec::new(),
            detail: String::new(),
            count: 1,
            first: Some(at),
            last: Some(at),
            sample: vec![at],
            numbers: Vec::new(),
        }
    };
    Report {
        conversations: vec![
            talk(1, end("10.0.0.1", 0x11), end("10.0.0.2", 0x22)),
            talk(2, end("10.0.0.1", 0x12), end("10.0.0.3", 0x22)),
        ],
        conversations_seen: 2,
        findings: vec![
            finding("10.0.0.2", 0x22, 1),
            finding("10.0.0.3", 0x22, 2),
            finding("10.0.0.9", 0x99, 3),
        ],
        ..Report::default()
    }
}

#[test]
fn reports_are_narrowed_to_what_fits() {
    let narrowed = |text: &str| {
        let mut report = report();
        let filter = Filter { start: Some(Time(0)), ..Filter::parse(text).expect("a filter") };
        filter.narrow(&mut report);
        let ids: Vec<u32> = report.conversations.iter().map(|talk| talk.id).collect();
        let frames: Vec<u64> =
            report.findings.iter().filter_map(|f| f.first).map(|at| at.frame).collect();
        (ids, frames)
    };
    // The other queue pair of the conversation names its findings too.
    assert_eq!(narrowed("qp 0x11"), (vec![1], vec![1]));
    assert_eq!(narrowed("conversation 2"), (vec![2], vec![2]));
    assert_eq!(narrowed("host 10.0.0.3"), (vec![2], vec![2]));
    assert_eq!(narrowed("time 2..2.5"), (vec![1, 2], vec![2]));
    assert_eq!(narrowed("not host 10.0.0.1"), (vec![], vec![]));
}
