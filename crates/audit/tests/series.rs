//! Series for plots: what a real capture gives, and that they stay bounded whatever comes.

mod support;

use audit::event::What;
use audit::record::{Point, Time};
use audit::series::Series;
use audit::{At, Auditor, Event, Options, limits};
use support::capture;
use wire::mac_control::MacControl;

/// The series of a capture.
fn of(events: &[Event]) -> Series {
    let mut auditor = Auditor::new(Options::default());
    let mut series = Series::default();
    for event in events {
        let remark = auditor.see(event);
        series.see(event, remark.as_ref());
    }
    series.finish();
    series
}

fn pause(time: u64) -> Event {
    Event {
        at: At { time: Time(time), file: 0, frame: 1 },
        part: 0,
        point: Point(0),
        direction: None,
        len: 60,
        macs: None,
        tag: None,
        tunnels: 0,
        what: What::Pause(MacControl::Pause { quanta: 9 }),
    }
}

#[test]
fn a_loss_has_its_repetitions_at_their_psns() {
    let series = of(&capture("loss-drop-request.pcap"));
    let load = |of: fn(&audit::series::Load) -> u64| series.load().iter().map(of).sum::<u64>();
    assert_eq!((load(|l| l.packets), load(|l| l.again), load(|l| l.naks)), (80, 16, 8));
    let talk = series.conversation(1).expect("the conversation");
    let (sent, again) = (talk.forward.psn.points(), talk.forward.again.points());
    // 8 SENDs of 3 packets, 8 WRITEs of 2: each PSN once, and 16 of them twice.
    assert_eq!((sent.len(), again.len()), (40, 16));
    let psns: Vec<u64> = sent.iter().map(|(_, psn)| psn - sent[0].1).collect();
    assert_eq!(psns, (0..40).collect::<Vec<u64>>());
    let payload: u64 = talk.forward.payload.sums().iter().sum();
    assert_eq!(payload, 8 * 3000 + 8 * 2000);
    assert!(talk.backward.psn.points().is_empty());
    let trips: u64 = talk.forward.round_trip.sums().iter().map(|s| s.count).sum();
    assert!((1..=24).contains(&trips), "{trips}");
}

#[test]
fn read_responses_are_payload_of_the_other_way() {
    let series = of(&capture("rc-read-mtu1024.pcap"));
    let talk = series.conversation(1).expect("the conversation");
    let sum = |way: &audit::series::Way| way.payload.sums().iter().sum::<u64>();
    assert_eq!(sum(&talk.forward), 0);
    assert!(sum(&talk.backward) > 1024, "{}", sum(&talk.backward));
    let trips: Vec<_> = talk.forward.round_trip.sums().iter().filter(|s| s.count > 0).collect();
    assert!(!trips.is_empty() && trips.iter().all(|s| s.least <= s.most && s.sum >= s.most));
}

#[test]
fn buckets_double_and_keep_their_sums() {
    let many = 100_000;
    let events: Vec<Event> = (0..many).map(|i| pause(i * i)).collect();
    let series = of(&events);
    assert!(series.load().len() <= limits::BUCKETS);
    assert_eq!(series.load().iter().map(|load| load.pauses).sum::<u64>(), many);
    let axis = series.axis().expect("an axis");
    assert!((axis.width / 1000).is_power_of_two());
    assert!((axis.end.0 - axis.start.0) / axis.width < limits::BUCKETS as u64);
    assert_eq!(format!("{series:?}"), format!("{:?}", of(&events)), "the same again");
}

#[test]
fn clocks_that_jump_do_no_harm() {
    let times = [5_000_000, 0, u64::MAX, 7, u64::MAX / 2];
    let series = of(&times.map(pause));
    assert_eq!(series.load().iter().map(|load| load.pauses).sum::<u64>(), 5);
    assert!(series.load().len() <= limits::BUCKETS);
    assert!(of(&[]).axis().is_none());
}

#[test]
fn points_thin_out_evenly() {
    let events = capture("rc-write-mtu256.pcap");
    let mut auditor = Auditor::new(Options::default());
    let mut series = Series::default();
    let mut remarks = Vec::new();
    for event in &events {
        remarks.push(auditor.see(event));
    }
    for round in 0..1000 {
        for (event, remark) in events.iter().zip(&remarks) {
            let at = At { time: Time(event.at.time.0 + round * 1_000_000_000), ..event.at };
            series.see(&Event { at, ..event.clone() }, remark.as_ref());
        }
    }
    series.finish();
    let talk = series.conversation(1).expect("the conversation");
    let points = talk.forward.psn.points();
    assert!(
        points.len() <= limits::POINTS && points.len() > limits::POINTS / 4,
        "{}",
        points.len()
    );
    assert!(talk.forward.psn.stride() > 1);
    assert!(points.is_sorted_by_key(|(time, _)| *time));
}

/// Remarks of packets of so many conversations in turns, and one that is busier from packet `from`
/// on.
fn crowd(many: u32, packets: u32, busy: u32, from: u32) -> Series {
    let event = capture("rc-write-mtu256.pcap").into_iter().find(|e| e.len > 300).expect("a WRITE");
    let mut series = Series::default();
    for n in 0..packets {
        let conversation = if n >= from && n % 2 == 0 { busy } else { n % many + 1 };
        let remark =
            audit::talk::Remark { conversation, forward: true, again: false, psn: n.into() };
        let at = At { time: Time(event.at.time.0 + u64::from(n) * 1000), ..event.at };
        series.see(&Event { at, ..event.clone() }, Some(&remark));
    }
    series.finish();
    series
}

#[test]
fn the_busiest_conversation_is_plotted_however_late_it_comes() {
    let payload = |series: &Series, id| -> Option<u64> {
        series.conversation(id).map(|talk| talk.forward.payload.sums().iter().sum())
    };
    let busy = 1_000_000;
    for many in [300, 5000] {
        let series = crowd(many, 100_000, busy, 50_000);
        let got = payload(&series, busy).expect("it is plotted");
        assert!(got > 256 * 20_000, "{got}");
        assert_eq!((1..=many).filter(|id| series.conversation(*id).is_some()).count(), 255);
    }
    // None is busier than the first: they stay.
    let series = crowd(2000, 100_000, busy, u32::MAX);
    assert!((1..=256).all(|id| series.conversation(id).is_some()));
    assert_eq!(payload(&series, 1), Some(50 * 256));
}
