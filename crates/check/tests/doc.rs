//! `docs/checker.md` explains each rule in the rule's own words.

use check::Rule;

#[test]
fn the_document_and_the_rules_say_the_same() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/checker.md");
    let text = std::fs::read_to_string(path).expect("docs/checker.md is part of the repository");
    let mut rest = text.as_str();
    for rule in Rule::ALL {
        let (code, word, title) = (rule.code(), rule.word(), rule.title());
        let head = format!("### {code} {word}: {title}\n\n");
        let Some(at) = rest.find(&head) else { panic!("no section `{}`", head.trim()) };
        rest = &rest[at + head.len()..];
        let section = rest.split("\n#").next().unwrap_or_default();
        assert!(section.contains(&format!("Expected: {}.\n", rule.expected())), "{code}: expected");
        assert!(section.contains(&format!("To do: {}.\n", rule.remedy())), "{code}: to do");
        let more = section.lines().filter(|line| !line.is_empty()).count();
        assert!(more >= 3, "{code}: nothing but the rule's own words");
    }
    let sections = text.lines().filter(|line| line.starts_with("### C")).count();
    assert_eq!(sections, Rule::ALL.len(), "sections without a rule");
}
