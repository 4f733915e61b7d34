//! Thresholds of the network's rules (R019, R06x, R071, R080): each met just so, and just not.

#[path = "support/net.rs"]
mod net;

use audit::Rule;
use audit::record::Direction;
use net::{MS, Net, Sent, US, ack, cnp, data, mac};

const ECT: u8 = 0x6A;
const BARE: u8 = 0x68;
const MARKED: u8 = 0x6B;
const AF31: u8 = 26 << 2;
const CS6: u8 = 48 << 2;

fn there(psn: u32) -> Sent {
    data(1, 2, 0x22, psn).class(ECT)
}

fn back(psn: u32) -> Sent {
    ack(2, 1, 0x11, psn).class(ECT)
}

#[test]
fn r019_three_changes() {
    let changes = |at: &[u32]| {
        let mut net = Net::new();
        for psn in 0..40 {
            let ttl = 60 + (at.iter().filter(|change| psn >= **change).count() % 2) as u8;
            net.send(u64::from(psn) * US, there(psn).ttl(ttl));
        }
        net.rules()
    };
    assert_eq!(changes(&[10, 20]), []);
    assert_eq!(changes(&[10, 20, 30]), [Rule::OddTtl]);
}

#[test]
fn r060_eight_packets_and_a_hundredth() {
    let bare = |bare: u32, all: u32| {
        let mut net = Net::new();
        for psn in 0..all {
            net.send(u64::from(psn) * US, there(psn).class(if psn < bare { BARE } else { ECT }));
        }
        net.rules()
    };
    assert_eq!(bare(7, 100), []);
    assert_eq!(bare(8, 100), [Rule::NotEct]);
    assert_eq!(bare(8, 801), []);
}

/// So many packets with ECT, paused by a switch the while.
fn paused(packets: u32) -> Net {
    let mut net = Net::new();
    for psn in 0..packets {
        net.send(u64::from(psn) * 10 * US, there(psn));
    }
    for n in 0..40 {
        net.pause(n * 10 * US, mac(99), 3);
    }
    net
}

#[test]
fn r061_enough_packets_and_no_mark_anywhere() {
    assert_eq!(paused(63).rules(), []);
    assert_eq!(paused(64).rules(), [Rule::NoMarks]);
    // Another point of capture, behind the queue, shows a mark.
    let mut elsewhere = paused(64);
    elsewhere.send(MS, there(63).class(MARKED).seen(1, 1));
    assert_eq!(elsewhere.rules(), []);
}

#[test]
fn r061_a_delay_that_stands() {
    // Answers after `short`, then so many after `long`. 16 make a window, without the first answer,
    // which joins the two directions.
    let delayed = |short: u64, long: u64, many: u32| {
        let mut net = Net::expecting(true);
        let mut ns = 0;
        for psn in 0..400 {
            net.send(ns, there(psn));
            ns += if (97..97 + many).contains(&psn) { long } else { short };
            net.send(ns, back(psn));
            ns += 10 * US;
        }
        net.rules()
    };
    assert_eq!(delayed(10 * US, 500 * US, 4 * 16), [Rule::NoMarks]);
    assert_eq!(delayed(10 * US, 500 * US, 3 * 16), []);
    assert_eq!(delayed(300 * US, 450 * US, 200), [], "not eight times as long");
}

#[test]
fn r062_eight_marks_and_no_cnp_since() {
    let marks = |marks: u32, early: bool| {
        let mut net = Net::new();
        for psn in 0..300 {
            let ns = u64::from(psn) * 10 * US;
            let marked = (20..20 + marks).contains(&psn);
            net.send(ns, there(psn).class(if marked { MARKED } else { ECT }));
            net.send(ns + US, back(psn));
            if psn == 10 && early {
                net.send(ns, cnp(2, 1, 0x11));
            }
        }
        net.rules()
    };
    assert_eq!(marks(7, false), []);
    assert_eq!(marks(8, false), [Rule::NoCnp]);
    // A CNP before the first mark answers none.
    assert_eq!(marks(100, true), [Rule::NoCnp]);
}

/// Packets every `gap` ns for `us` microseconds, from the fifth millisecond on `burst` CNPs a
/// microsecond apart every `every` ns.
fn notified(us: u64, gap: u64, burst: u64, every: u64) -> Vec<Rule> {
    let mut net = Net::new();
    net.send(0, there(0));
    net.send(0, back(0));
    let (mut ns, mut psn, mut next) = (0, 1, 5 * MS);
    while ns < us * US {
        ns += gap;
        while next < ns {
            (0..burst).for_each(|n| net.send(next + n * US, cnp(2, 1, 0x11)));
            next += every;
        }
        net.send(ns, there(psn).class(if psn % 16 == 0 { MARKED } else { ECT }));
        psn += 1;
    }
    net.rules()
}

#[test]
fn r063_four_windows_in_a_row_and_more_than_a_sender_could_have() {
    assert_eq!(notified(8_500, US, 1, 50 * US), []);
    assert_eq!(notified(9_500, US, 1, 50 * US), [Rule::NoSlowDown]);
    // 2 Gbit/s after 80 CNPs: the sender's limit may be above.
    assert_eq!(notified(9_500, 16 * US, 1, 50 * US), []);
    // Those close together count as one: four in a millisecond.
    assert_eq!(notified(40_000, US, 5, 250 * US), []);
}

#[test]
fn r065_eight_cnps_and_eight_packets() {
    let unfounded = |packets: u32, cnps: u64| {
        let mut net = Net::new();
        for psn in 0..packets {
            net.send(u64::from(psn) * US, there(psn).going(Direction::In));
            net.send(u64::from(psn) * US, back(psn).going(Direction::Out));
        }
        for n in 0..cnps {
            net.send(5 * MS + n * 50 * US, cnp(2, 1, 0x11).going(Direction::Out));
        }
        net.rules()
    };
    assert_eq!(unfounded(8, 7), []);
    assert_eq!(unfounded(8, 8), [Rule::CnpUnfounded]);
    assert_eq!(unfounded(7, 8), []);
}

#[test]
fn r066_four_each_way_and_answers_preferred_only() {
    let talk = |requests: u32, answers: u32, there: u8, back: u8| {
        let mut net = Net::new();
        for psn in 0..requests {
            net.send(u64::from(psn) * US, data(1, 2, 0x22, psn).class(there));
            if psn < answers {
                net.send(u64::from(psn) * US, ack(2, 1, 0x11, psn).class(back));
            }
        }
        net.rules()
    };
    assert_eq!(talk(4, 4, AF31, 0), [Rule::DscpAsymmetric]);
    assert_eq!(talk(3, 3, AF31, 0), []);
    assert_eq!(talk(20, 3, AF31, 0), []);
    // Preferred is what has 40 or more.
    assert_eq!(talk(20, 20, 0, AF31), [Rule::DscpAsymmetric]);
    // Data is not preferred on purpose.
    let mut both = Net::new();
    for psn in 0..20 {
        let at = u64::from(psn) * 10 * US;
        both.send(at, data(1, 2, 0x22, psn).class(AF31));
        both.send(at + 1, ack(2, 1, 0x11, psn).class(CS6));
        both.send(at + 2, data(2, 1, 0x11, 500 + psn).class(CS6));
        both.send(at + 3, ack(1, 2, 0x22, 500 + psn).class(AF31));
    }
    assert_eq!(both.rules(), [Rule::DscpAsymmetric]);
}

#[test]
fn r071_eight_queue_pairs() {
    let crowd = |queue_pairs: u32| {
        let mut net = Net::new();
        for qp in 0..queue_pairs {
            for psn in 0..8 {
                net.send(0, data(1, 2, 0x100 + qp, psn).port(0xC000));
            }
        }
        net.rules()
    };
    assert_eq!(crowd(7), []);
    assert_eq!(crowd(8), [Rule::NoEntropy]);
}
