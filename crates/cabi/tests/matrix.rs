//! `docs/verbs-matrix.md` lists the names of `symbols.txt` as they are now. With `CROCEVIA_BLESS=1`
//! the test writes the list instead of comparing it.

use std::fmt::Write as _;
use std::path::Path;

const BEGIN: &str = "<!-- names: from crates/cabi/symbols.txt -->\n";
const END: &str = "<!-- end of names -->\n";

fn table() -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("symbols.txt");
    let text = std::fs::read_to_string(path).expect("symbols.txt is part of the crate");
    let mut public = String::from("| name | node | status | remark |\n| --- | --- | --- | --- |\n");
    let mut stubs = Vec::new();
    for line in text.lines().filter(|line| !line.starts_with('#') && !line.is_empty()) {
        let mut words = line.split_whitespace();
        let (Some(node), Some(name), Some(status)) = (words.next(), words.next(), words.next())
        else {
            panic!("symbols.txt: `{line}`");
        };
        let remark = words.collect::<Vec<_>>().join(" ");
        if node == "base" && status != "works" {
            stubs.push(format!("`{name}`"));
        } else {
            writeln!(public, "| `{name}` | {node} | {status} | {remark} |").expect("a string");
        }
    }
    format!(
        "{public}\nStubs without a version, for the load time of libmlx5, libmlx4 and libefa \
         ({}): {}.\n",
        stubs.len(),
        stubs.join(", ")
    )
}

#[test]
fn the_matrix_lists_every_name() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/verbs-matrix.md");
    let text = std::fs::read_to_string(&path).expect("docs/verbs-matrix.md");
    let (before, rest) = text.split_once(BEGIN).expect("the mark before the names");
    let (names, after) = rest.split_once(END).expect("the mark behind the names");
    if std::env::var_os("CROCEVIA_BLESS").is_some() {
        let written = format!("{before}{BEGIN}\n{}\n{END}{after}", table());
        std::fs::write(&path, written).expect("the working copy is writable");
        return;
    }
    assert_eq!(names.trim(), table().trim(), "run the test with CROCEVIA_BLESS=1");
}
