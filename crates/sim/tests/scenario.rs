//! Scenario files: what they give, and what is said of wrong ones.

use sim::scenario::Scenario;

const GOOD: &str = r#"
name = "a star"
until = "1ms"

[topology]
kind = "star"
hosts = 4
rate = "25Gbps"

[nic]
control = "dcqcn"
preset = "paper"
dcqcn.rpg_ai_rate = "10Mbps"

[[workload]]
kind = "incast"
from = ["h1..h3"]
to = ["h0"]
bytes = "1MB"
"#;

#[test]
fn a_file_becomes_a_network_and_a_plan() {
    let scenario = Scenario::read(GOOD, None).expect("a good file");
    assert_eq!(scenario.network.hosts.len(), 4);
    assert_eq!(scenario.network.switches[0].config.ports.len(), 4);
    assert_eq!(scenario.plan.flows.len(), 3);
    assert!(scenario.plan.flows.iter().all(|f| f.bytes == 1_000_000));
}

/// A good file with one line changed gives an error at that line that says all of `parts`.
#[track_caller]
fn wrong(old: &str, new: &str, parts: &[&str]) {
    assert!(GOOD.contains(old), "the test changes something");
    let text = GOOD.replace(old, new);
    let error = Scenario::read(&text, None).expect_err("a wrong file").to_string();
    let line = text.lines().position(|l| new.lines().next().is_some_and(|n| l == n));
    let place = format!("line {}:", line.expect("the changed line") + 1);
    assert!(error.starts_with(&place), "{place} expected in: {error}");
    for part in parts {
        assert!(error.contains(part), "`{part}` expected in: {error}");
    }
}

#[test]
fn errors_name_line_field_value_and_expectation() {
    wrong("rate = \"25Gbps\"", "rate = \"25Gb\"", &["25Gb", "a rate above 0 such as 100Gbps"]);
    wrong("hosts = 4", "hosts = -4", &["-4"]);
    wrong("hosts = 4", "host = 4", &["host", "hosts"]);
    wrong("hosts = 4", "hosts = 0", &["topology.hosts", "at least 1", "found 0"]);
    wrong("hosts = 4", "spines = 2\nhosts = 4", &["topology.spines", "no such field", "hosts"]);
    wrong("kind = \"star\"", "kind = \"sun\"", &["sun", "star"]);
    wrong("until = \"1ms\"", "until = \"1 fortnight\"", &["a time such as 1us", "fortnight"]);
    wrong("to = [\"h0\"]", "to = [\"h9\"]", &["workload.to", "no host `h9`", "h0 to h3"]);
    wrong("bytes = \"1MB\"", "bytes = 1000000", &["a number of bytes"]);
    wrong("kind = \"incast\"", "kind = \"outcast\"", &["outcast", "incast"]);
    wrong("preset = \"paper\"", "preset = \"rock\"", &["rock", "paper"]);
    wrong(
        "dcqcn.rpg_ai_rate = \"10Mbps\"",
        "dcqcn.rpg_ai_speed = \"10Mbps\"",
        &["rpg_ai_speed", "rpg_ai_rate"],
    );
}

#[test]
fn what_is_missing_or_cut_off_is_named() {
    let text = GOOD.replace("hosts = 4\n", "");
    let error = Scenario::read(&text, None).expect_err("no hosts").to_string();
    assert!(error.contains("topology.hosts: missing"), "{error}");
    let text = GOOD.replace("bytes = \"1MB\"\n", "");
    let error = Scenario::read(&text, None).expect_err("no bytes").to_string();
    assert!(error.contains("workload.bytes: missing"), "{error}");
    let islands = r#"
        name = "two islands"
        until = "1ms"
        [topology]
        kind = "explicit"
        switch-names = ["s", "t"]
        [[link]]
        ends = ["a", "s"]
        [[link]]
        ends = ["b", "t"]
        [[workload]]
        kind = "stream"
        from = ["a"]
        to = ["b"]
        bytes = "1KB"
    "#;
    let error = Scenario::read(islands, None).expect_err("islands").to_string();
    assert!(error.starts_with("line 11:") && error.contains("from a to b"), "{error}");
}
