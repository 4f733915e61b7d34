//! CEE DCBX, from before the standard: TLVs of the organisation 00-1B-21 with TLVs of features
//! inside. Version 2 is read whole; of version 1 only PFC, whose form is the same.

use super::ieee::nibbles;
use super::{App, Ets, Faults, Pfc, Selector, Tables};

const CONTROL: u16 = 1;
const GROUPS: u16 = 2;
const PFC: u16 = 3;
const APPLICATION: u16 = 4;
/// Flags of a feature: enabled, willing, error.
const ENABLED: u8 = 0x80;
const WILLING: u8 = 0x40;
const ERROR: u8 = 0x20;
/// The priority group that shares nothing.
const STRICT: u8 = 15;

/// Reads the TLVs inside.
pub(super) fn read(version: u8, body: &[u8], tables: &mut Tables, faults: &mut Faults) {
    let mut rest = body;
    while let Some((head, behind)) = rest.split_first_chunk::<2>() {
        let head = u16::from_be_bytes(*head);
        let (kind, length) = (head >> 9, usize::from(head & 0x1FF));
        if kind == 0 {
            return;
        }
        let Some((value, behind)) = behind.split_at_checked(length) else {
            let left = behind.len();
            faults.add(|| format!("a CEE feature of {length} bytes where {left} are left"));
            return;
        };
        rest = behind;
        match (kind, value) {
            (CONTROL, _) if length < 10 => {
                faults.add(|| format!("a CEE control TLV of {length} bytes, 10 are needed"));
            }
            (PFC, [_, _, flags, _, enabled, ..]) => {
                tables.pfc = Some(Pfc {
                    willing: flags & WILLING != 0,
                    enabled: if flags & ENABLED != 0 { *enabled } else { 0 },
                    error: flags & ERROR != 0,
                });
            }
            (PFC, _) => faults.add(|| format!("a CEE PFC feature of {length} bytes, not 6")),
            (GROUPS, [_, _, flags, _, rest @ ..]) if version == 2 => {
                tables.ets = groups(*flags, rest, faults).or(tables.ets);
            }
            (APPLICATION, [_, _, flags, _, entries @ ..]) if version == 2 => {
                let read = apps(entries, faults).filter(|_| flags & ENABLED != 0);
                tables.apps = read.or(tables.apps.take());
            }
            (GROUPS | APPLICATION, _) if version == 2 => {
                faults.add(|| format!("a CEE feature of {length} bytes, shorter than its header"));
            }
            _ => {}
        }
    }
}

fn groups(flags: u8, body: &[u8], faults: &mut Faults) -> Option<Ets> {
    let (Some(map), Some(shares)) = (
        body.first_chunk::<4>(),
        body.get(4..12).and_then(|bytes| <[u8; 8]>::try_from(bytes).ok()),
    ) else {
        let length = body.len() + 4;
        faults.add(|| format!("a CEE priority group feature of {length} bytes, 17 are needed"));
        return None;
    };
    let classes = nibbles(*map);
    if let Some(group) = classes.iter().find(|group| **group > 7 && **group != STRICT) {
        faults.add(|| format!("a CEE priority group feature with group {group}"));
        return None;
    }
    let sum: u32 = shares.iter().map(|share| u32::from(*share)).sum();
    if sum != 0 && sum != 100 {
        faults.add(|| format!("a CEE priority group feature whose shares are {sum} % in all"));
        return None;
    }
    let shared =
        classes.iter().filter(|group| **group < 8).fold(0, |bits, group| bits | 1 << group);
    let is_on = flags & ENABLED != 0;
    is_on.then_some(Ets { willing: flags & WILLING != 0, classes, shares, shared })
}

/// Entries of six bytes: protocol 2, selector in the low two bits of the next, two of an
/// organisation, a bit for each priority.
fn apps(entries: &[u8], faults: &mut Faults) -> Option<Vec<App>> {
    let (entries, left) = entries.as_chunks::<6>();
    if !left.is_empty() {
        let length = left.len();
        faults.add(|| format!("a CEE application feature with {length} bytes too many"));
        return None;
    }
    let mut apps = Vec::new();
    for [high, low, selector, _, _, priorities] in entries {
        let selector = match selector & 3 {
            0 => Selector::EtherType,
            1 => Selector::Port,
            _ => continue,
        };
        let protocol = u16::from_be_bytes([*high, *low]);
        for priority in (0..8).filter(|priority| priorities >> priority & 1 == 1) {
            apps.push(App { selector, protocol, priority });
        }
    }
    apps.sort_unstable();
    Some(apps)
}
