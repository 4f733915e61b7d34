//! `docs/doctor.md` has every finding in the catalogue's words. After a wanted change, run with
//! `CROCEVIA_UPDATE=1` and look at the difference.

use std::fmt::Write;

use doctor::Rule;

const BEGIN: &str = "## Findings\n";

fn catalogue() -> String {
    let mut out = String::from(BEGIN);
    out.push_str("\n| code | severity | what |\n| --- | --- | --- |\n");
    for rule in Rule::ALL {
        let (code, severity) = (rule.code(), rule.severity().word());
        let _ = writeln!(out, "| {code} | {severity} | {} |", rule.title());
    }
    for rule in Rule::ALL {
        let (code, word) = (rule.code(), rule.word());
        let _ = writeln!(out, "\n### {code} {word}: {}\n", rule.title());
        let _ = writeln!(out, "{}\n\nTo do: `{}`", rule.means(), rule.remedy().replace('`', "'"));
    }
    out
}

#[test]
fn the_document_has_the_catalogue() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/doctor.md");
    let text = std::fs::read_to_string(path).expect("docs/doctor.md is part of the repository");
    let head = text.split(BEGIN).next().unwrap_or_default();
    assert!(head.contains("crocevia doctor"), "the document has a head");
    let wanted = format!("{head}{}", catalogue());
    if std::env::var_os("CROCEVIA_UPDATE").is_some() {
        std::fs::write(path, &wanted).expect("the file can be written");
    } else {
        assert!(text == wanted, "docs/doctor.md differs; CROCEVIA_UPDATE=1 writes it");
    }
}
