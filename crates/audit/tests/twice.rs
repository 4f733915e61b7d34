//! The same request twice without a reason: a copy where it comes too soon for a timer, whoever
//! counts his packets; a time-out where a timer had the time.

mod support;

use audit::event::{Icrc, IcrcCause, What, WrongIcrc};
use support::exchange::{Exchange, op};
use support::{audit, codes};

/// An exchange whose ends do not count their packets.
fn uncounted(mut x: Exchange) -> Exchange {
    for event in &mut x.events {
        if let What::Packet(packet) = &mut event.what {
            packet.path.ident = 0;
        }
    }
    x
}

#[track_caller]
fn expect(x: Exchange, right: &[&str]) {
    let report = audit(&uncounted(x).events);
    let got: Vec<_> = codes(&report).into_iter().map(|(code, _)| code).collect();
    assert_eq!(got, right, "{:#?}", report.findings);
}

fn started() -> Exchange {
    let mut x = Exchange::new();
    x.sends(0, 4);
    x
}

/// A request, the same again after `us`, its acknowledgement, and more requests.
fn twice(us: u64) -> Exchange {
    let mut x = started();
    x.request(op::SEND_ONLY, 4, 100).wait(us - 10).request(op::SEND_ONLY, 4, 100);
    x
}

#[test]
fn a_request_twice_is_a_copy_if_no_timer_had_the_time() {
    for us in [10, 50, 250] {
        let mut x = twice(us);
        x.ack(4, 5).sends(5, 4);
        expect(x, &["R028"]);
    }
    for us in [300, 2_000] {
        let mut x = twice(us);
        x.ack(4, 5).sends(5, 4);
        expect(x, &["R025"]);
    }
}

#[test]
fn a_copy_behind_its_acknowledgement_is_no_lost_acknowledgement() {
    let behind = |us: u64| {
        let mut x = started();
        x.request(op::SEND_ONLY, 4, 100).ack(4, 5).wait(us).request(op::SEND_ONLY, 4, 100);
        x.ack(4, 5).sends(5, 4);
        x
    };
    expect(behind(10), &["R028"]);
    expect(behind(5_000), &["R023", "R025"]);
}

#[test]
fn copies_in_the_middle_of_a_train_change_nothing_of_what_follows() {
    let mut x = started();
    for psn in [4, 5, 6, 6, 7, 7, 8, 9] {
        x.request(op::SEND_ONLY, psn, 100);
    }
    x.ack(9, 10).sends(10, 2);
    expect(x, &["R028"]);
    // The network holds a copy back for some packets.
    let mut x = started();
    for psn in [4, 5, 6, 7, 5, 8, 9] {
        x.request(op::SEND_ONLY, psn, 100);
    }
    x.ack(9, 10).sends(10, 2);
    expect(x, &["R028"]);
}

#[test]
fn what_goes_on_or_was_asked_for_or_stays_unanswered_is_no_copy() {
    // Goes back though no NAK was seen.
    let mut x = started();
    for psn in [4, 5, 6, 7, 5, 6, 7, 8] {
        x.request(op::SEND_ONLY, psn, 100);
    }
    x.ack(8, 9).sends(9, 2);
    expect(x, &["R024"]);
    let mut x = started();
    x.request(op::SEND_ONLY, 4, 100).out_of_sequence(4).request(op::SEND_ONLY, 4, 100);
    x.ack(4, 5).sends(5, 2);
    expect(x, &["R021"]);
    // Asks early, and again by its timer: it was lost.
    let mut x = twice(30);
    x.wait(5_000).request(op::SEND_ONLY, 4, 100).ack(4, 5).sends(5, 2);
    expect(x, &["R021", "R025"]);
    // Not the same: the sender's fault.
    let mut x = started();
    x.request(op::SEND_ONLY, 4, 100).request(op::SEND_ONLY, 4, 99).ack(4, 5).sends(5, 2);
    expect(x, &["R035"]);
}

#[test]
fn a_read_twice_is_a_copy_but_not_one_that_misses_its_answer() {
    let mut x = started();
    x.read(4, 3000).read(4, 3000).response(op::RESPONSE_FIRST, 4, 1024);
    x.response(op::RESPONSE_MIDDLE, 5, 1024).response(op::RESPONSE_LAST, 6, 952).sends(7, 2);
    expect(x, &["R028"]);
    let mut x = started();
    x.read(4, 3000).response(op::RESPONSE_FIRST, 4, 1024);
    x.response(op::RESPONSE_MIDDLE, 5, 1024).lose().response(op::RESPONSE_LAST, 6, 952);
    x.with_reth(op::READ, 5, 1976, 0x1000 + 1024);
    x.response(op::RESPONSE_FIRST, 5, 1024).response(op::RESPONSE_LAST, 6, 952).sends(7, 2);
    let report = audit(&uncounted(x.clone()).events);
    let names = report.findings.iter().flat_map(|f| f.numbers.iter().map(|n| n.name));
    assert!(names.clone().any(|name| name == "asked_again"), "{:#?}", report.findings);
    assert!(!names.clone().any(|name| name == "lost_packets"), "{:#?}", report.findings);
    expect(x, &["R022"]);
}

#[test]
fn answers_that_go_on_behind_the_last_request_show_what_the_capture_missed() {
    let mut x = started();
    x.sends(4, 8);
    for psn in [13, 14, 17, 20, 21, 40] {
        x.ack(psn, psn + 1);
    }
    let mut near = x.clone();
    expect(x.clone(), &[]);
    x.sends(41, 4);
    expect(x, &[]);
    // The requests go on where they were: nothing was missed.
    near.wait(20_000).sends(12, 2);
    expect(near, &["R040"]);
    // READs that were not seen, before and behind others.
    let mut x = started();
    x.sends(4, 8).request(op::SEND_ONLY, 14, 100).response(op::RESPONSE_ONLY, 13, 100);
    x.ack(14, 15).response(op::RESPONSE_ONLY, 15, 100).response(op::RESPONSE_ONLY, 16, 100);
    expect(x, &[]);
}

#[test]
fn a_damaged_packet_is_no_second_time_lost() {
    let exchange = |damaged: bool| {
        let mut x = started();
        x.request(op::SEND_ONLY, 4, 100);
        let wrong = WrongIcrc { difference: 1, cause: IcrcCause::Unknown };
        match damaged {
            true => x.newest_packet().icrc = Icrc::Wrong(wrong),
            false => drop(x.lose()),
        }
        x.request(op::SEND_ONLY, 5, 100).out_of_sequence(4).request(op::SEND_ONLY, 4, 100);
        x.request(op::SEND_ONLY, 5, 100).ack(5, 6).sends(6, 2);
        x
    };
    expect(exchange(true), &["R010", "R024"]);
    expect(exchange(false), &["R020", "R024"]);
}

#[test]
fn what_a_late_packet_made_the_receiver_drop_is_not_lost() {
    let exchange = |order: [u32; 4]| {
        let mut x = started();
        for psn in order {
            x.request(op::SEND_ONLY, psn, 100);
        }
        x.out_of_sequence(5).request(op::SEND_ONLY, 5, 100).request(op::SEND_ONLY, 6, 100);
        x.request(op::SEND_ONLY, 7, 100).ack(7, 8).sends(8, 2);
        x
    };
    expect(exchange([5, 6, 4, 7]), &["R024", "R027"]);
    expect(exchange([4, 5, 6, 7]), &["R021", "R024"]);
}
