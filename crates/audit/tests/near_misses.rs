//! A near miss for each rule: a table of the tests that have one, held against the rules that there
//! are and the tests that there are; and those near misses that have no other place.

mod support;

use std::collections::BTreeSet;

use audit::Rule;
use support::exchange::{Exchange, op};
use support::{audit, codes};
use wire::Qpn;
use wire::packet::{NakCode, Syndrome};

/// Rule, file, and the test in which traffic that nearly breaks it has no such finding. That each
/// rule is found where it is broken, `seeded` holds.
const NEAR_MISSES: &[(&str, &str, &str)] = &[
    ("R001", "integrity", "r001_a_file_cut_in_a_record"),
    ("R010", "integrity", "r010_not_of_packets_captured_before_the_adapter_filled_them"),
    ("R011", "integrity", "r011_a_device_that_rewrites_addresses"),
    ("R012", "integrity", "r012_a_sender_that_masks_too_little"),
    ("R013", "integrity", "r013_packets_shorter_than_they_say"),
    ("R014", "integrity", "r014_a_link_that_damages"),
    ("R015", "integrity", "r015_headers_that_a_receiver_refuses"),
    ("R016", "integrity", "r016_udp_checksums"),
    ("R017", "integrity", "r017_ip_checksums"),
    ("R018", "integrity", "r018_fragments"),
    ("R019", "paths", "a_ttl_may_be_small_change_once_or_differ_by_kind"),
    ("R020", "transport", "r020_lost_before"),
    ("R021", "near_misses", "r021_nak_of_what_is_sent_late"),
    ("R022", "late", "responses_that_come_twice_after_the_repetition_were_late"),
    ("R023", "transport", "r023_ack_lost"),
    ("R024", "transport", "r025_timeout"),
    ("R025", "transport", "r025_timeout"),
    ("R026", "transport", "r026_retry_exceeded"),
    ("R027", "transport", "r027_reordered"),
    ("R028", "transport", "r028_network_duplicate"),
    ("R030", "transport", "r030_psn_skipped"),
    ("R031", "transport", "r031_psn_after_read"),
    ("R032", "transport", "r032_opcode_order"),
    ("R033", "transport", "r033_bad_length"),
    ("R034", "transport", "r034_mtu_mismatch"),
    ("R035", "near_misses", "r035_the_same_again"),
    ("R036", "resources", "r036_too_many_reads"),
    ("R037", "transport", "r037_rnr_ignored"),
    ("R038", "near_misses", "r038_one_service_each"),
    ("R039", "transport", "r039_after_fatal"),
    ("R040", "transport", "r040_ghost_ack"),
    ("R041", "transport", "r041_missing_ack"),
    ("R042", "transport", "r042_bad_msn"),
    ("R044", "transport", "r044_atomic_twice"),
    ("R045", "transport", "r045_wrong_replay"),
    ("R046", "near_misses", "r046_responses_in_their_places"),
    ("R047", "transport", "r047_spurious_nak"),
    ("R050", "transport", "r050_rnr_storm"),
    ("R051", "transport", "r051_rnr_exceeded"),
    ("R052", "transport", "r052_to_r056_refusals"),
    ("R053", "transport", "r052_to_r056_refusals"),
    ("R054", "transport", "r052_to_r056_refusals"),
    ("R055", "near_misses", "r055_syndromes_that_exist"),
    ("R056", "transport", "r052_to_r056_refusals"),
    ("R060", "ecn", "ect_is_missed_only_where_something_speaks_of_ecn"),
    (
        "R061",
        "ecn",
        "pauses_show_no_missing_marks_where_something_was_marked_or_the_receiver_pauses",
    ),
    ("R062", "ecn", "a_mark_counts_as_unanswered_only_if_the_answer_would_be_seen"),
    ("R063", "ecn", "a_sender_that_slows_down_rests_or_has_little_to_send_is_not_told"),
    ("R064", "ecn", "cnps_with_a_class_or_priority_of_their_own_are_right"),
    ("R065", "ecn", "cnps_may_answer_marks_that_the_capture_does_not_show"),
    ("R066", "paths", "directions_may_differ_where_it_is_meant_or_cannot_be_told"),
    ("R067", "paths", "a_dscp_may_change_between_connections_datagrams_and_kinds_of_packets"),
    ("R068", "paths", "an_erased_ecn_field_is_told"),
    ("R070", "paths", "roce_v1_and_v2_between_different_ends_are_not_mixed"),
    ("R071", "paths", "few_idle_or_spread_queue_pairs_have_entropy_enough"),
    ("R072", "paths", "a_source_port_may_change_with_the_path_or_the_connection"),
    ("R080", "pause", "a_storm_of_short_pauses"),
    ("R081", "pause", "a_long_pause_and_a_storm_of_one"),
    ("R082", "pause", "one_end_that_never_pauses_and_loses"),
    ("R083", "pause", "pauses_of_a_class_that_nobody_uses"),
    ("R084", "pause", "a_pause_that_may_have_run_out_is_heeded"),
    ("R085", "pause", "hosts_with_neighbouring_addresses_are_no_ring"),
    ("R086", "pause", "a_global_pause"),
    ("R090", "dcbx", "a_willing_end_that_takes_over_is_no_fault"),
    ("R091", "dcbx", "ets_is_each_ends_own_unless_recommended"),
    ("R092", "dcbx", "ends_that_agree"),
    ("R093", "dcbx", "ends_that_agree"),
    ("R094", "dcbx", "ends_that_agree"),
    ("R095", "dcbx", "one_end_speaks_the_old_version"),
    ("R096", "dcbx", "what_is_unusual_but_makes_sense"),
    ("R100", "connect", "a_redirection_is_no_rejection"),
    ("R101", "connect", "a_copy_made_on_the_way_is_no_repetition"),
    ("R102", "connect", "no_complaint_where_the_capture_ends_early_or_has_one_direction"),
    ("R103", "connect", "traffic_that_keeps_to_what_was_agreed"),
    ("R110", "transport", "r110_stall"),
    ("R111", "transport", "r111_outliers"),
];

/// The files of the table.
const FILES: &[(&str, &str)] = &[
    ("connect", include_str!("connect.rs")),
    ("dcbx", include_str!("dcbx.rs")),
    ("ecn", include_str!("ecn.rs")),
    ("integrity", include_str!("integrity.rs")),
    ("late", include_str!("late.rs")),
    ("near_misses", include_str!("near_misses.rs")),
    ("paths", include_str!("paths.rs")),
    ("pause", include_str!("pause.rs")),
    ("resources", include_str!("resources.rs")),
    ("transport", include_str!("transport.rs")),
];

#[test]
fn every_rule_has_a_near_miss() {
    let listed: BTreeSet<_> = NEAR_MISSES.iter().map(|(rule, ..)| *rule).collect();
    let all: BTreeSet<_> = Rule::ALL.iter().map(|rule| rule.code()).collect();
    assert_eq!(listed, all);
    for (rule, file, test) in NEAR_MISSES {
        let text = FILES.iter().find(|(name, _)| name == file).map(|(_, text)| text);
        let heading = format!("#[test]\nfn {test}() {{");
        assert!(text.is_some_and(|text| text.contains(&heading)), "{rule}: no {test} in {file}");
    }
}

#[track_caller]
fn expect(exchange: &Exchange, right: &[&str]) {
    let report = audit(&exchange.events);
    let got: Vec<_> = codes(&report).into_iter().map(|(code, _)| code).collect();
    assert_eq!(got, right, "{:#?}", report.findings);
}

fn started() -> Exchange {
    let mut exchange = Exchange::new();
    exchange.sends(0, 4);
    exchange
}

#[test]
fn r021_nak_of_what_is_sent_late() {
    // An RNR NAK, and not a loss, is why it comes again.
    let mut x = started();
    x.request(op::SEND_ONLY, 4, 100).request(op::SEND_ONLY, 5, 100).rnr(4, 1).wait(700);
    x.request(op::SEND_ONLY, 4, 100).request(op::SEND_ONLY, 5, 100).ack(5, 6);
    expect(&x, &[]);
    // A copy of the NAK for what has come meanwhile.
    let mut x = started();
    x.sends(4, 2).out_of_sequence(4).sends(6, 2);
    expect(&x, &[]);
}

#[test]
fn r035_the_same_again() {
    // A message again from its middle; a READ from its middle, and whole.
    let mut x = started();
    x.request(op::SEND_FIRST, 4, 1024).request(op::SEND_MIDDLE, 5, 1024);
    x.request(op::SEND_LAST, 6, 5).out_of_sequence(5);
    x.request(op::SEND_MIDDLE, 5, 1024).request(op::SEND_LAST, 6, 5).ack(6, 5);
    x.read(7, 3000).response(op::RESPONSE_FIRST, 7, 1024).response(op::RESPONSE_MIDDLE, 8, 1024);
    x.lose().response(op::RESPONSE_LAST, 9, 952).with_reth(op::READ, 8, 1976, 0x1000 + 1024);
    x.response(op::RESPONSE_FIRST, 8, 1024).response(op::RESPONSE_LAST, 9, 952);
    x.read(10, 64).wait(67_000).read(10, 64).response(op::RESPONSE_ONLY, 10, 64);
    expect(&x, &["R021", "R022", "R024", "R025"]);
    // The same PSN in the next round of 24 bits is another request.
    let mut x = Exchange::new();
    x.request(op::SEND_ONLY, 0xFF_FFFF, 100).ack(0xFF_FFFF, 1).sends(0, 2);
    x.request(op::SEND_ONLY, 2, 7).ack(2, 4);
    expect(&x, &[]);
}

#[test]
fn r038_one_service_each() {
    const UC: u8 = 0x20;
    // A queue pair of the same number at another address, CNPs, and a datagram to queue pair 1.
    let mut x = started();
    x.request(UC | op::SEND_ONLY, 0, 100);
    x.newest_packet().path.destination = wire::Gid::from_ip([10, 0, 0, 3].into());
    x.packet(true, 0x81, 0, Default::default(), 16);
    x.request(0x64, 0, 100);
    x.newest_packet().bth.dest_qp = Qpn::GSI;
    x.sends(4, 2);
    expect(&x, &[]);
    // The answers of a queue pair whose first packet is a CNP.
    let mut x = Exchange::new();
    x.packet(false, 0x81, 0, Default::default(), 16);
    x.packet(true, 0x81, 0, Default::default(), 16);
    x.sends(0, 4);
    expect(&x, &[]);
}

#[test]
fn r046_responses_in_their_places() {
    // A READ of one response, of none, of a full last one; numbered anew behind a repetition.
    let mut x = started();
    x.read(4, 100).response(op::RESPONSE_ONLY, 4, 100).read(5, 0).response(op::RESPONSE_ONLY, 5, 0);
    x.read(6, 2048).response(op::RESPONSE_FIRST, 6, 1024).response(op::RESPONSE_LAST, 7, 1024);
    expect(&x, &[]);
    x.read(8, 3000).response(op::RESPONSE_FIRST, 8, 1024).response(op::RESPONSE_MIDDLE, 9, 1024);
    x.lose().response(op::RESPONSE_LAST, 10, 952).with_reth(op::READ, 9, 1976, 0x1000 + 1024);
    x.response(op::RESPONSE_FIRST, 9, 1024).response(op::RESPONSE_LAST, 10, 952);
    expect(&x, &["R022"]);
}

#[test]
fn r055_syndromes_that_exist() {
    let mut x = started();
    // Any number of credits.
    for psn in 4..36 {
        let credits = Syndrome::Ack(psn as u8 - 4);
        x.request(op::SEND_ONLY, psn, 100).answer(op::ACK, psn, credits, psn + 1, 0);
    }
    expect(&x, &[]);
    for timer in [0, 31] {
        let mut x = started();
        x.request(op::SEND_ONLY, 4, 100).rnr(4, timer).wait(700_000);
        x.request(op::SEND_ONLY, 4, 100).ack(4, 5);
        expect(&x, &[]);
    }
    for (code, rule) in [
        (NakCode::InvalidRequest, "R053"),
        (NakCode::RemoteAccessError, "R052"),
        (NakCode::RemoteOperationalError, "R054"),
    ] {
        let mut x = started();
        x.with_reth(op::WRITE_ONLY, 4, 10, 0x7000).nak(4, code);
        expect(&x, &[rule]);
    }
}
