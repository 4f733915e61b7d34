//! IEEE DCBX (802.1Qaz, annex D.2): TLVs of the organisation 00-80-C2, subtypes 9 to 12.

use super::{App, Ets, Faults, Pfc, Selector, Tables};

const ETS: u8 = 9;
const RECOMMENDATION: u8 = 10;
const PFC: u8 = 11;
const APPLICATION: u8 = 12;
/// Transmission selection algorithm: shares of the link.
const SHARES: u8 = 2;

/// Collects the TLVs of a frame.
#[derive(Default)]
pub(super) struct Reader {
    tables: Tables,
}

impl Reader {
    pub(super) fn is_empty(&self) -> bool {
        self.tables.is_empty()
    }

    pub(super) fn tables(self) -> Tables {
        self.tables
    }

    /// A TLV, its bytes behind the subtype.
    pub(super) fn read(&mut self, subtype: u8, body: &[u8], faults: &mut Faults) {
        let tables = &mut self.tables;
        match subtype {
            ETS => set(&mut tables.ets, ets(body, "ETS configuration", faults), "ETS", faults),
            RECOMMENDATION => {
                let read = ets(body, "ETS recommendation", faults);
                set(&mut tables.recommended, read, "ETS recommendation", faults);
            }
            PFC => set(&mut tables.pfc, pfc(body, faults), "PFC", faults),
            APPLICATION => set(&mut tables.apps, apps(body, faults), "application", faults),
            _ => {}
        }
    }
}

/// Keeps what was read; a frame has each TLV once.
fn set<T>(place: &mut Option<T>, read: Option<T>, name: &str, faults: &mut Faults) {
    if read.is_some() && place.is_some() {
        faults.add(|| format!("two {name} TLVs in one frame"));
        return;
    }
    if read.is_some() {
        *place = read;
    }
}

fn ets(body: &[u8], name: &str, faults: &mut Faults) -> Option<Ets> {
    let Some((flags, rest)) = body.split_first_chunk::<1>() else {
        faults.add(|| format!("an {name} TLV without content"));
        return None;
    };
    let (Some(map), Some(shares), Some(algorithms)) = (
        rest.first_chunk::<4>(),
        rest.get(4..12).and_then(|bytes| <[u8; 8]>::try_from(bytes).ok()),
        rest.get(12..20).and_then(|bytes| <[u8; 8]>::try_from(bytes).ok()),
    ) else {
        let length = body.len() + 4;
        faults.add(|| format!("an {name} TLV of {length} bytes, 25 are needed"));
        return None;
    };
    let classes = nibbles(*map);
    if let Some(class) = classes.iter().find(|class| **class > 7) {
        faults.add(|| format!("an {name} TLV with traffic class {class}"));
        return None;
    }
    let mut shared = 0;
    let mut sum = 0_u32;
    for (class, (share, algorithm)) in shares.iter().zip(algorithms).enumerate() {
        if algorithm == SHARES {
            shared |= 1 << class;
            sum += u32::from(*share);
        }
    }
    if sum != 0 && sum != 100 {
        faults.add(|| format!("an {name} TLV whose shares are {sum} % in all"));
        return None;
    }
    Some(Ets { willing: flags[0] & 0x80 != 0, classes, shares, shared })
}

/// The eight nibbles of four bytes, the first priority in the top one.
pub(super) fn nibbles(bytes: [u8; 4]) -> [u8; 8] {
    let [a, b, c, d] = bytes;
    [a >> 4, a & 15, b >> 4, b & 15, c >> 4, c & 15, d >> 4, d & 15]
}

fn pfc(body: &[u8], faults: &mut Faults) -> Option<Pfc> {
    let [flags, enabled, ..] = body else {
        let length = body.len() + 4;
        faults.add(|| format!("a PFC TLV of {length} bytes, 6 are needed"));
        return None;
    };
    Some(Pfc { willing: flags & 0x80 != 0, enabled: *enabled, error: false })
}

fn apps(body: &[u8], faults: &mut Faults) -> Option<Vec<App>> {
    let entries = body.get(1..).unwrap_or_default();
    let (entries, left) = entries.as_chunks::<3>();
    if body.is_empty() || !left.is_empty() {
        let length = body.len() + 4;
        faults.add(|| format!("an application TLV of {length} bytes, not 5 and a multiple of 3"));
        return None;
    }
    let mut apps: Vec<App> = entries.iter().filter_map(app).collect();
    apps.sort_unstable();
    Some(apps)
}

/// An entry; `None` for a selector that is reserved.
fn app(entry: &[u8; 3]) -> Option<App> {
    let [head, high, low] = *entry;
    let selector = match head & 7 {
        1 => Selector::EtherType,
        2..=4 => Selector::Port,
        5 => Selector::Dscp,
        _ => return None,
    };
    Some(App { selector, protocol: u16::from_be_bytes([high, low]), priority: head >> 5 })
}
