//! Pages of made-up reports: hostile names stay text, the size is bounded, nothing is fetched.

use audit::finding::{Finding, Subject};
use audit::record::{At, Point, Time};
use audit::report::{Capture, Connection, Conversation, End};
use audit::{Rule, Side};
use wire::mac_control::MacControl;

use super::*;

fn finding(rule: Rule, link: u16, text: &str) -> Finding {
    Finding {
        rule,
        severity: rule.severity(),
        subject: Subject::Link(Point(link)),
        side: Side::Unknown,
        causes: Vec::new(),
        detail: text.to_owned(),
        count: 1,
        first: None,
        last: None,
        sample: Vec::new(),
        numbers: Vec::new(),
    }
}

fn pause(ns: u64) -> Event {
    Event {
        at: At { time: Time(ns), file: 0, frame: ns },
        part: 0,
        point: Point(0),
        direction: None,
        len: 60,
        macs: None,
        tag: None,
        tunnels: 0,
        what: audit::What::Pause(MacControl::Pause { quanta: 9 }),
    }
}

#[test]
fn hostile_names_stay_text() {
    const BAD: &str = "\"'><script>alert(1)</script>&\u{1b}[2J\u{202e}";
    let end = || End { address: BAD.into(), qp: Some(1) };
    let report = Report {
        captures: vec![Capture { name: BAD.into(), format: BAD.into(), ..Capture::default() }],
        findings: vec![finding(Rule::PauseStorm, 1, BAD)],
        conversations: vec![Conversation { a: end(), b: end(), ..Conversation::default() }],
        connections: vec![Connection {
            service: BAD.into(),
            state: BAD.into(),
            ..Connection::default()
        }],
        ..Report::default()
    };
    let page = page(&report, &Series::default(), Some(BAD));
    assert_eq!(page.matches("<script>").count(), 1, "only our own");
    assert_eq!(
        page.matches("alert(1)").count(),
        page.matches("&lt;script&gt;alert(1)&lt;").count()
    );
    assert!(page.matches("alert(1)").count() >= 6, "{page}");
    assert!(!page.contains(['\u{1b}', '\u{202e}']));
    for outside in ["http:", "https:", "src=", "href=", "@import", "url("] {
        assert!(!page.contains(outside), "{outside}");
    }
}

#[test]
fn the_page_is_bounded() {
    let rules = Rule::ALL.iter().cycle().take(20_000).zip(0..);
    let report = Report {
        findings: rules.map(|(rule, link)| finding(*rule, link, "x")).collect(),
        conversations: vec![Conversation::default(); 20_000],
        connections: vec![Connection::default(); 20_000],
        ..Report::default()
    };
    let mut series = Series::default();
    for i in 0..100_000 {
        series.see(&pause(i * i), None);
    }
    series.finish();
    let page = page(&report, &series, None);
    assert!(page.len() < 1 << 20, "{} bytes", page.len());
    assert!(page.contains("and 19500 more rows"), "{}", page.len());
    assert!(page.contains(">pauses</span>"));
}

#[test]
fn an_empty_report_is_a_page_too() {
    let page = page(&Report::default(), &Series::default(), None);
    assert!(page.contains("Nothing to judge") && page.ends_with("</html>\n"), "{page}");
}
