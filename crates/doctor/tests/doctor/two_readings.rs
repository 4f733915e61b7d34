//! Two readings of a host: what grew in between, and only that.

use doctor::{Growth, growth};

use crate::host::Edit::{self, Drop, Set, Swap};
use crate::host::{codes, compared, edit, host};

const STATISTICS: &str = "cmd/ethtool_-S_ens1f0np0.txt";
const LATER: Edit = Set("proc/uptime", "864010.00 6000100.00\n");

#[track_caller]
fn found(edits: &[Edit], expected: &[&str]) {
    let before = host("cx5-good");
    let mut now = before.clone();
    edit(&mut now, &[LATER]);
    edit(&mut now, edits);
    let report = compared(&before, &now);
    assert_eq!(codes(&report), expected, "{}", report.text());
}

#[test]
fn nothing_grew() {
    found(&[], &[]);
}

#[test]
fn much_that_was_there_before_is_not_told() {
    let mut before = host("cx5-good");
    edit(
        &mut before,
        &[
            Set("sys/class/infiniband/mlx5_0/ports/1/hw_counters/out_of_sequence", "400000000\n"),
            Swap(STATISTICS, "tx_pause_storm_error_events: 0", "tx_pause_storm_error_events: 7"),
        ],
    );
    let mut now = before.clone();
    edit(&mut now, &[LATER]);
    assert_eq!(codes(&compared(&before, &now)), [""; 0]);
}

#[test]
fn pauses_are_judged_by_their_share_of_the_time() {
    let rx = "rx_prio3_pause_duration: 4300";
    found(&[Swap(STATISTICS, rx, "rx_prio3_pause_duration: 554300")], &["H053"]);
    found(&[Swap(STATISTICS, rx, "rx_prio3_pause_duration: 454300")], &[]);
    let tx = "tx_prio3_pause_duration: 0";
    found(&[Swap(STATISTICS, tx, "tx_prio3_pause_duration: 550000")], &["H054"]);
    found(&[Swap(STATISTICS, tx, "tx_prio3_pause_duration: 450000")], &[]);
}

#[test]
fn marks_that_do_not_get_fewer() {
    let packets = |n| Set("sys/class/infiniband/mlx5_0/ports/1/counters/port_rcv_packets", n);
    let marked = Set(
        "sys/class/infiniband/mlx5_0/ports/1/hw_counters/np_ecn_marked_roce_packets",
        "42200\n",
    );
    let sent = Set("sys/class/infiniband/mlx5_0/ports/1/hw_counters/np_cnp_sent", "39010\n");
    found(&[packets("5000003000\n"), marked, sent], &["H063"]);
    found(&[packets("5000004000\n"), marked, sent], &[]);
    // The same marks, and no CNP at all: the receiver's own fault.
    found(&[packets("5000003000\n"), marked], &["H061"]);
}

#[test]
fn losses_in_between() {
    let out_of_sequence =
        |n| Set("sys/class/infiniband/mlx5_0/ports/1/hw_counters/out_of_sequence", n);
    found(&[out_of_sequence("22\n")], &["H055"]);
    found(&[out_of_sequence("21\n")], &[]);
    // Smaller than before: the counter began anew, and says nothing.
    found(&[out_of_sequence("3\n")], &[]);
    let down = Set("sys/class/infiniband/mlx5_0/ports/1/counters/link_downed", "2\n");
    found(&[down], &["H006"]);
}

#[test]
fn another_run_of_the_host_is_not_compared() {
    let before = host("cx5-good");
    let mut now = before.clone();
    edit(&mut now, &[Set("proc/uptime", "60.0 100.0\n")]);
    let report = compared(&before, &now);
    assert!(!report.compared);
    assert_eq!(codes(&report), [""; 0]);
}

#[test]
fn without_a_clock_there_is_growth_and_no_rate() {
    let mut before = host("cx5-good");
    edit(&mut before, &[Drop("proc/uptime")]);
    let mut now = before.clone();
    edit(
        &mut now,
        &[Set("sys/class/infiniband/mlx5_0/ports/1/hw_counters/out_of_sequence", "99\n")],
    );
    let report = compared(&before, &now);
    assert_eq!(codes(&report), ["H055"]);
    assert!(report.findings[0].found[0].value.starts_with("+87"), "{}", report.text());
    assert!(!report.text().contains("/s)"), "{}", report.text());
}

#[test]
fn rates_survive_a_counter_that_goes_round() {
    let data = "sys/class/infiniband/mlx5_0/ports/1/counters/port_rcv_data";
    let mut before = host("cx5-good");
    // 32 bits of 4-byte words, 1.25 GB before and after the turn.
    edit(
        &mut before,
        &[Set("sys/class/infiniband/mlx5_0/ports/1/counters/port_rcv_data", "3982467296\n")],
    );
    let mut now = before.clone();
    now.set(data, "312500000\n");
    edit(&mut now, &[LATER]);
    let report = compared(&before, &now);
    let rate = report.ports[0].rx_gbps.expect("a rate");
    assert!((rate - 2.0).abs() < 0.001, "{rate}");
    assert_eq!(growth("port_rcv_data", 3_982_467_296, 312_500_000), Growth::By(625_000_000));
}
