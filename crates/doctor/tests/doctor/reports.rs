//! The summaries of the recorded hosts as snapshots, and what their JSON holds.

use doctor::Asked;

use crate::host::Edit::{Drop, Set};
use crate::host::{HOSTS, codes, compared, edit, host, report};

#[test]
fn summaries() {
    for name in HOSTS {
        insta::assert_snapshot!(*name, report(&host(name), &Asked::default()).text());
    }
    insta::assert_snapshot!("two-readings", compared(&host("cx5-good"), &host("cx5-later")).text());
}

#[test]
fn well_configured_hosts_have_no_finding() {
    for name in ["cx5-good", "bnxt-good", "softroce-vm", "softroce-guest"] {
        let report = report(&host(name), &Asked::default());
        assert_eq!(codes(&report), [""; 0], "{name}: {}", report.text());
    }
}

#[test]
fn a_host_without_rdma_is_not_judged_for_pfc() {
    let plain = host("plain");
    assert_eq!(codes(&report(&plain, &Asked::default())), ["H075"]);
    // The interface that was asked for is judged as one for RoCE; nothing of PFC is known of it.
    let asked = Asked { interface: Some("eth0".to_owned()), ..Asked::default() };
    assert_eq!(codes(&report(&plain, &asked)), ["H075"]);
}

#[test]
fn json_has_the_values_and_where_they_were_seen() {
    let report = report(&host("cx5-bare"), &Asked::default());
    let json = serde_json::to_value(&report).expect("a report has a JSON form");
    let first = &json["findings"][0];
    assert_eq!(first["severity"], "error");
    for finding in json["findings"].as_array().expect("a list") {
        assert!(finding["finding"].as_str().is_some_and(|code| code.starts_with('H')), "{finding}");
        assert!(finding["to_do"].as_str().is_some_and(|text| !text.is_empty()), "{finding}");
        let found = finding["found"].as_array().expect("a list");
        assert!(!found.is_empty(), "{finding}");
        for evidence in found {
            assert!(evidence["from"].as_str().is_some_and(|from| !from.is_empty()), "{evidence}");
        }
    }
    assert_eq!(json["ports"][0]["port"], "mlx5_0/1");
    assert_eq!(json["interfaces"][0]["mtu"], 1500);
}

#[test]
fn remedies_of_bnxt_take_effect() {
    let mut tree = host("bnxt-good");
    edit(&mut tree, &[Set("sys/kernel/config/bnxt_re/bnxt_re0/ports/1/cc/ecn_enable", "0\n")]);
    let report = report(&tree, &Asked::default());
    let dir = "/sys/kernel/config/bnxt_re/bnxt_re0/ports/1/cc";
    let remedy = format!("echo 1 > {dir}/ecn_enable; echo 1 > {dir}/apply");
    assert_eq!(report.findings[0].remedy, remedy);
    let marked = "sys/class/infiniband/bnxt_re0/ports/1/hw_counters/tx_cnp_pkts";
    edit(&mut tree, &[Set(marked, "0\n")]);
    let both = crate::host::report(&tree, &Asked::default());
    let no_cnp = both.findings.iter().find(|f| f.rule == doctor::Rule::NoCnp).expect("H061");
    let remedy = "mkdir -p /sys/kernel/config/bnxt_re/bnxt_re0; cd \
                  /sys/kernel/config/bnxt_re/bnxt_re0/ports/1/cc && echo 1 > ecn_enable && \
                  echo 1 > apply";
    assert_eq!(no_cnp.remedy, remedy);
    let json = serde_json::to_value(&report).expect("a report has a JSON form");
    assert_eq!(json["ports"][0]["node_guid"], "0200:5eff:fe00:5301");
    assert_eq!(json["interfaces"][0]["ecn"], serde_json::json!([]));
}

#[test]
fn what_stands_in_files_does_not_steer_the_terminal() {
    let mut tree = host("bnxt-good");
    let bad = "a\u{1b}[2J\u{202e}\u{9b}b\n";
    for path in ["proc/sys/kernel/hostname", "sys/class/infiniband/bnxt_re0/fw_ver"] {
        edit(&mut tree, &[Set(path, bad)]);
    }
    edit(&mut tree, &[Set("sys/class/net/ens3np0/operstate", bad)]);
    let text = report(&tree, &Asked::default()).text();
    assert!(text.contains("a\u{fffd}[2J"), "{text}");
    assert!(!text.contains(['\u{1b}', '\u{202e}', '\u{9b}', '\r']), "{text}");
}

#[test]
fn text_is_at_most_100_wide_where_words_allow() {
    for name in HOSTS {
        for line in report(&host(name), &Asked::default()).text().lines() {
            let long_word = line.split(' ').any(|word| word.len() > 60);
            assert!(line.chars().count() <= 100 || long_word, "{name}: {line}");
        }
    }
}

#[test]
fn a_device_that_is_asked_for_is_the_only_one_judged() {
    let asked = Asked { device: Some("mlx5_3".to_owned()), ..Asked::default() };
    let report = report(&host("cx6-tangled"), &asked);
    assert!(report.findings.iter().all(|finding| !finding.subject.contains("mlx5_2")));
    assert_eq!(report.ports.len(), 1);
}

#[test]
fn an_interface_that_is_asked_for_is_the_only_one_judged() {
    let asked = Asked { interface: Some("eth3".to_owned()), ..Asked::default() };
    let report = report(&host("cx6-tangled"), &asked);
    let of_eth3: Vec<&str> = report
        .findings
        .iter()
        .filter(|f| f.subject.contains("eth3"))
        .map(|f| f.rule.code())
        .collect();
    assert_eq!(of_eth3, ["H031", "H024", "H041", "H047"]);
    assert!(report.findings.iter().all(|f| !f.subject.contains("eth2")), "{}", report.text());
}

#[test]
fn settings_that_are_nowhere_are_told_once() {
    let mut tree = host("cx5-good");
    edit(
        &mut tree,
        &[
            Drop("sys/class/net/ens1f0np0/ecn"),
            Drop("sys/kernel/config/rdma_cm/mlx5_0"),
            Drop("cmd/mlnx_qos_-i_ens1f0np0.txt"),
        ],
    );
    let report = report(&tree, &Asked::default());
    let told: Vec<&str> = report.not_read.iter().map(|note| note.what.as_str()).collect();
    assert_eq!(
        told,
        [
            "/sys/class/net/ens1f0np0/ecn",
            "/sys/kernel/config/rdma_cm/mlx5_0",
            "`dcb pfc show dev ens1f0np0`",
            "`mlnx_qos -i ens1f0np0`",
        ]
    );
    assert_eq!(codes(&report), [""; 0]);
}

/// Every name in a document.
fn names(value: &serde_json::Value, out: &mut Vec<String>) {
    match value {
        serde_json::Value::Object(object) => {
            for (name, value) in object {
                out.push(name.clone());
                names(value, out);
            }
        }
        serde_json::Value::Array(items) => items.iter().for_each(|item| names(item, out)),
        _ => {}
    }
}

#[test]
fn every_name_of_the_json_is_documented() {
    let manual = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/doctor.md");
    let manual = std::fs::read_to_string(manual).expect("the manual");
    let manual = manual.split("\n## ").find(|part| part.starts_with("JSON\n")).expect("a section");
    let mut found = Vec::new();
    for name in HOSTS {
        let report = report(&host(name), &Asked::default());
        names(&serde_json::to_value(&report).expect("a report has a JSON form"), &mut found);
    }
    found.sort();
    found.dedup();
    assert!(found.len() > 30, "{found:?}");
    for name in found {
        assert!(manual.contains(&format!("`{name}`")), "{name} is not in docs/doctor.md");
    }
}
