//! The built shared object exports what `symbols.txt` lists, each name under its version node, has
//! the SONAME that programs ask for, and exports nothing else.

mod support;

use std::collections::BTreeSet;

/// Reads little-endian fields out of an ELF file.
struct Elf(Vec<u8>);

const SHT_DYNSYM: u32 = 11;
const SHT_DYNAMIC: u32 = 6;
const SHT_VERDEF: u32 = 0x6FFF_FFFD;
const SHT_VERSYM: u32 = 0x6FFF_FFFF;
const DT_SONAME: u64 = 14;

impl Elf {
    fn load() -> Self {
        let bytes = std::fs::read(support::library()).expect("the library is readable");
        assert_eq!(&bytes[..6], b"\x7fELF\x02\x01", "64 bits, little endian");
        Self(bytes)
    }
    fn u16(&self, at: usize) -> u16 {
        u16::from_le_bytes(self.0[at..at + 2].try_into().expect("2 bytes"))
    }
    fn u32(&self, at: usize) -> u32 {
        u32::from_le_bytes(self.0[at..at + 4].try_into().expect("4 bytes"))
    }
    fn u64(&self, at: usize) -> u64 {
        u64::from_le_bytes(self.0[at..at + 8].try_into().expect("8 bytes"))
    }
    fn text(&self, at: usize) -> String {
        let end = self.0[at..].iter().position(|&b| b == 0).expect("a terminated string");
        String::from_utf8_lossy(&self.0[at..at + end]).into_owned()
    }

    /// Offset and size of the first section of a type, and the offset of its string table.
    fn section(&self, kind: u32) -> (usize, usize, usize) {
        let (table, size, count) =
            (self.u64(0x28) as usize, self.u16(0x3A) as usize, self.u16(0x3C) as usize);
        let header = |i: usize| table + i * size;
        let found = (0..count).map(header).find(|&h| self.u32(h + 4) == kind);
        let h = found.unwrap_or_else(|| panic!("a section of type {kind:#x}"));
        let strings = self.u64(header(self.u32(h + 0x28) as usize) + 0x18) as usize;
        (self.u64(h + 0x18) as usize, self.u64(h + 0x20) as usize, strings)
    }

    /// Version nodes by their index.
    fn nodes(&self) -> Vec<(u16, String)> {
        let (mut at, _, strings) = self.section(SHT_VERDEF);
        let mut nodes = Vec::new();
        loop {
            let aux = at + self.u32(at + 12) as usize;
            nodes.push((self.u16(at + 4), self.text(strings + self.u32(aux) as usize)));
            match self.u32(at + 16) {
                0 => return nodes,
                next => at += next as usize,
            }
        }
    }

    /// Defined symbols: node (`base` for none) and name.
    fn exports(&self) -> BTreeSet<(String, String)> {
        let nodes = self.nodes();
        let (symbols, size, strings) = self.section(SHT_DYNSYM);
        let (versions, _, _) = self.section(SHT_VERSYM);
        let mut exports = BTreeSet::new();
        for i in 1..size / 24 {
            let symbol = symbols + i * 24;
            if self.u16(symbol + 6) == 0 {
                continue; // Undefined.
            }
            let name = self.text(strings + self.u32(symbol) as usize);
            let version = self.u16(versions + i * 2);
            assert_eq!(version & 0x8000, 0, "{name} is not the default version");
            let node = match version {
                0 | 1 => "base".to_owned(),
                v => nodes.iter().find(|(i, _)| *i == v).expect("a node of that index").1.clone(),
            };
            exports.insert((node, name));
        }
        exports
    }
}

#[test]
fn exports_are_those_of_the_table() {
    let expected: BTreeSet<_> =
        support::symbol_table().into_iter().map(|(node, name, _)| (node, name)).collect();
    let found = Elf::load().exports();
    let missing: Vec<_> = expected.difference(&found).collect();
    assert!(missing.is_empty(), "missing: {missing:?}");
    let unlisted: Vec<_> = found.difference(&expected).collect();
    assert!(unlisted.is_empty(), "exported but not listed: {unlisted:?}");
}

#[test]
fn every_node_that_a_program_may_ask_for_is_defined() {
    let nodes: BTreeSet<String> = Elf::load().nodes().into_iter().map(|(_, name)| name).collect();
    let minors = [0].into_iter().chain([1]).chain(5..=18);
    for node in minors.map(|minor| format!("IBVERBS_1.{minor}")) {
        assert!(nodes.contains(&node), "{node} is missing");
    }
    for number in [34, 57, 59, 64, 65] {
        assert!(nodes.contains(&format!("IBVERBS_PRIVATE_{number}")), "PRIVATE_{number}");
    }
}

#[test]
fn the_soname_is_the_one_programs_ask_for() {
    let elf = Elf::load();
    let (dynamic, size, strings) = elf.section(SHT_DYNAMIC);
    let entries = (0..size / 16).map(|i| dynamic + i * 16);
    let soname = entries
        .filter(|&at| elf.u64(at) == DT_SONAME)
        .map(|at| elf.text(strings + elf.u64(at + 8) as usize))
        .next();
    assert_eq!(soname.as_deref(), Some("libibverbs.so.1"));
}
