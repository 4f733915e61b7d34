//! Gives the shared object its name and its version nodes, and turns `symbols.txt` into the list of
//! exports that `src/export.rs` includes.

use std::fmt::Write as _;
use std::path::Path;
use std::{env, fs};

fn main() {
    let dir = env::var("CARGO_MANIFEST_DIR").expect("cargo sets CARGO_MANIFEST_DIR");
    println!("cargo::rerun-if-changed=ibverbs.map");
    println!("cargo::rerun-if-changed=symbols.txt");
    println!("cargo::rustc-cdylib-link-arg=-Wl,--version-script={dir}/ibverbs.map");
    println!("cargo::rustc-cdylib-link-arg=-Wl,-soname,libibverbs.so.1");
    // Plugin hosts close what they have opened; a thread of ours must not lose its code.
    println!("cargo::rustc-cdylib-link-arg=-Wl,-z,nodelete");

    let table = fs::read_to_string("symbols.txt").expect("symbols.txt lies beside build.rs");
    let out = env::var("OUT_DIR").expect("cargo sets OUT_DIR");
    fs::write(Path::new(&out).join("exports.rs"), exports(&table)).expect("OUT_DIR is writable");
}

/// One macro call for the public names, one for the private stubs.
fn exports(table: &str) -> String {
    let (mut public, mut stubs) = (String::new(), String::new());
    for line in table.lines().map(str::trim).filter(|l| !l.is_empty() && !l.starts_with('#')) {
        let mut words = line.split_whitespace();
        let (Some(node), Some(name), Some(status)) = (words.next(), words.next(), words.next())
        else {
            panic!("symbols.txt: expected `node name status ...`, found `{line}`");
        };
        let result = match (node, status) {
            ("base", "errno") => writeln!(stubs, "    errno {name};"),
            ("base", "null") => writeln!(stubs, "    null {name};"),
            ("base", "silent") => writeln!(stubs, "    silent {name};"),
            // A function under its own name, with `no_mangle` where it is defined.
            ("base", "works") => Ok(()),
            ("base", other) => panic!("symbols.txt: {name}: unknown kind of stub `{other}`"),
            _ => writeln!(public, "    \"{node}\" {name};"),
        };
        result.expect("writing to a string does not fail");
    }
    format!("export! {{\n{public}}}\nstubs! {{\n{stubs}}}\n")
}
