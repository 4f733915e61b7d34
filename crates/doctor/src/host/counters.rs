//! Tables of counters, and how much a counter grew between two readings: some are narrow and stay
//! at their end when they are full, some begin again.

use std::collections::BTreeMap;

use crate::limits;
use crate::reader::{Reader, Seen};

/// Counters of one place.
#[derive(Clone, Debug, Default)]
pub struct Counters {
    values: BTreeMap<String, u64>,
    from: String,
    is_directory: bool,
}

impl Counters {
    /// The files of a sysfs directory.
    pub(crate) fn directory(reader: &Reader<'_>, dir: &str) -> Self {
        let mut values = BTreeMap::new();
        for name in reader.names(dir, "").into_iter().take(limits::COUNTERS) {
            // `lifespan` is how long hw_counters are cached, no counter.
            if name == "lifespan" {
                continue;
            }
            let path = format!("{dir}/{name}");
            if let Some(seen) = reader.number(&path, "a counter") {
                values.insert(name, seen.value);
            }
        }
        Self { values, from: format!("/{dir}"), is_directory: true }
    }

    /// The counters that a tool printed.
    pub(crate) fn output(from: String, values: BTreeMap<String, u64>) -> Self {
        Self { values, from, is_directory: false }
    }

    /// A counter.
    pub fn get(&self, name: &str) -> Option<Seen<u64>> {
        let value = *self.values.get(name)?;
        let from =
            if self.is_directory { format!("{}/{name}", self.from) } else { self.from.clone() };
        Some(Seen { value, from })
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.values.is_empty()
    }

    /// Those that are set, with their names.
    pub fn iter(&self) -> impl Iterator<Item = (&str, u64)> {
        self.values.iter().map(|(name, value)| (name.as_str(), *value))
    }
}

/// How much a counter grew.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Growth {
    /// By so much.
    By(u64),
    /// By so much at least: it is full, and counts no further.
    AtLeast(u64),
    /// It is smaller than before: it was set to 0 in between.
    Reset,
}

impl Growth {
    /// The growth that is sure.
    pub fn sure(self) -> u64 {
        match self {
            Self::By(n) | Self::AtLeast(n) => n,
            Self::Reset => 0,
        }
    }
}

/// The narrow counters of the port's performance management (`PortCounters`), with their bits.
/// Full ones stay as they are. Devices with the extended ones count on in 64 bits.
const NARROW: &[(&str, u32)] = &[
    ("symbol_error", 16),
    ("link_error_recovery", 8),
    ("link_downed", 8),
    ("port_rcv_errors", 16),
    ("port_rcv_remote_physical_errors", 16),
    ("port_rcv_switch_relay_errors", 16),
    ("port_xmit_discards", 16),
    ("port_xmit_constraint_errors", 8),
    ("port_rcv_constraint_errors", 8),
    ("local_link_integrity_errors", 4),
    ("excessive_buffer_overrun_errors", 4),
    ("VL15_dropped", 16),
    ("port_xmit_data", 32),
    ("port_rcv_data", 32),
    ("port_xmit_packets", 32),
    ("port_rcv_packets", 32),
];

/// Counters of 32 bits that some drivers let begin again instead of staying full.
const WRAPPING: &[&str] =
    &["port_xmit_data", "port_rcv_data", "port_xmit_packets", "port_rcv_packets"];

/// How much the counter `name` grew from `before` to `now`.
pub fn growth(name: &str, before: u64, now: u64) -> Growth {
    let bits = NARROW.iter().find(|(narrow, _)| *narrow == name).map(|(_, bits)| *bits);
    let full = bits.map(|bits| (1u64 << bits) - 1);
    if full == Some(now) && before <= now {
        return Growth::AtLeast(now - before);
    }
    if before <= now {
        return Growth::By(now - before);
    }
    let span = 1u64 << 32;
    // One that was past its half and is below it now went round; one that was small was reset.
    if WRAPPING.contains(&name) && (span / 2..span).contains(&before) && now < span / 2 {
        return Growth::By(span - before + now);
    }
    Growth::Reset
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn growth_knows_widths() {
        assert_eq!(growth("out_of_sequence", 3, 10), Growth::By(7));
        assert_eq!(growth("out_of_sequence", 10, 3), Growth::Reset);
        assert_eq!(growth("symbol_error", 65_000, 65_535), Growth::AtLeast(535));
        assert_eq!(growth("symbol_error", 65_535, 65_535), Growth::AtLeast(0));
        assert_eq!(growth("symbol_error", 65_000, 70_000), Growth::By(5000));
        assert_eq!(growth("port_rcv_data", 0xffff_fff0, 0x10), Growth::By(0x20));
        assert_eq!(growth("port_rcv_data", 0xffff_fff0, 0x1_0000_0010), Growth::By(0x20));
        assert_eq!(growth("port_rcv_data", 0x10, 0x8), Growth::Reset);
        assert_eq!(growth("port_rcv_data", u64::MAX, 5), Growth::Reset);
        assert_eq!(growth("port_rcv_data", 5, 0xffff_ffff), Growth::AtLeast(0xffff_fffa));
    }
}
