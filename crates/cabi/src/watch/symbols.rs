//! Names of functions from a module's own symbol table, which has those that are not exported too.
//! Whatever the file holds, the worst that comes of it is no name.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};

use crate::handle::lock;

/// Files larger than this are not read.
const LARGEST: u64 = 1 << 29;
const SYMTAB: u32 = 2;
const FUNCTION: u8 = 2;
/// Bytes of a section header, of a symbol (ELF64).
const SECTION: usize = 64;
const SYMBOL: usize = 24;

/// The functions of a file: where each begins and ends, and its name.
#[derive(Default)]
struct Table(Vec<(u64, u64, String)>);

/// The name of the function in which `address` (as the file counts) lies.
pub(super) fn name(path: &str, address: u64) -> Option<String> {
    static TABLES: Mutex<Option<HashMap<String, Arc<Table>>>> = Mutex::new(None);
    let mut tables = lock(&TABLES);
    let tables = tables.get_or_insert_default();
    let table = match tables.get(path) {
        Some(table) => Arc::clone(table),
        None => {
            let table = Arc::new(read(path).unwrap_or_default());
            tables.insert(path.to_owned(), Arc::clone(&table));
            table
        }
    };
    table.find(address).map(str::to_owned)
}

fn read(path: &str) -> Option<Table> {
    if std::fs::metadata(path).ok()?.len() > LARGEST {
        return None;
    }
    Table::parse(&std::fs::read(path).ok()?)
}

fn number<const N: usize>(bytes: &[u8], at: usize) -> Option<u64> {
    let mut all = [0; 8];
    all[..N].copy_from_slice(bytes.get(at..at.checked_add(N)?)?);
    Some(u64::from_le_bytes(all))
}

/// The part of a file that a section header names, and the number of its partner.
fn section(file: &[u8], header: &[u8]) -> Option<(usize, usize, usize)> {
    let (offset, size) = (number::<8>(header, 24)? as usize, number::<8>(header, 32)? as usize);
    file.get(offset..offset.checked_add(size)?)?;
    Some((offset, offset + size, number::<4>(header, 40)? as usize))
}

impl Table {
    fn parse(file: &[u8]) -> Option<Self> {
        // ELF, 64 bits, little-endian.
        if file.get(..6)? != b"\x7fELF\x02\x01" {
            return None;
        }
        let start = number::<8>(file, 40)? as usize;
        let count = number::<2>(file, 60)? as usize;
        let headers = file.get(start..start.checked_add(count * SECTION)?)?;
        let headers: Vec<&[u8]> = headers.chunks_exact(SECTION).collect();
        let symtab =
            headers.iter().find(|header| number::<4>(header, 4) == Some(u64::from(SYMTAB)))?;
        let (from, to, partner) = section(file, symtab)?;
        let (names, names_end, _) = section(file, headers.get(partner)?)?;
        let mut found = Vec::new();
        for symbol in file[from..to].chunks_exact(SYMBOL) {
            let (value, size) = (number::<8>(symbol, 8)?, number::<8>(symbol, 16)?);
            if symbol[4] & 0xF != FUNCTION || size == 0 {
                continue;
            }
            let at = names.checked_add(number::<4>(symbol, 0)? as usize)?;
            let text = file.get(at..names_end)?;
            let end = text.iter().position(|&byte| byte == 0)?;
            let name = String::from_utf8_lossy(&text[..end]).into_owned();
            found.push((value, value.saturating_add(size), name));
        }
        found.sort();
        Some(Self(found))
    }

    fn find(&self, address: u64) -> Option<&str> {
        let after = self.0.partition_point(|(start, ..)| *start <= address);
        let (_, end, name) = self.0.get(after.checked_sub(1)?)?;
        (address < *end).then_some(name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_own_functions_have_names_and_broken_files_have_none() {
        let own = std::fs::read("/proc/self/exe").expect("the own file can be read");
        let table = Table::parse(&own).expect("tests are not stripped");
        let (start, end, name) =
            table.0.iter().find(|(.., name)| name.contains("symbols")).expect("this module");
        assert_eq!(table.find(*start), Some(name.as_str()));
        assert_ne!(table.find(*end), Some(name.as_str()));
        assert!(Table::parse(&[]).is_none() && Table::parse(b"\x7fELF\x02\x01").is_none());
        for cut in (0..own.len()).step_by(own.len() / 50 + 1) {
            let _ = Table::parse(&own[..cut]);
        }
        // The section headers' place and number, and each byte of the first of them, set at random.
        let at = number::<8>(&own, 40).expect("a header") as usize;
        let mut broken = own.clone();
        for place in (40..48).chain(60..62).chain(at..at + 40 * SECTION) {
            let was = std::mem::replace(&mut broken[place], 0xFF);
            if place % 7 == 0 || place < 64 {
                let _ = Table::parse(&broken);
            }
            broken[place] = was;
        }
    }
}
