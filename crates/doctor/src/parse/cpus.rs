//! Sets of processors, as `0-3,8` in sysfs and procfs.

use std::collections::BTreeSet;
use std::fmt;
use std::str::FromStr;

use crate::limits;

/// A set of processors.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct CpuSet(BTreeSet<usize>);

impl CpuSet {
    /// How many.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Whether both have a processor.
    pub fn meets(&self, other: &Self) -> bool {
        self.0.iter().any(|cpu| other.0.contains(cpu))
    }

    /// Whether a processor is in it.
    pub fn contains(&self, cpu: usize) -> bool {
        self.0.contains(&cpu)
    }

    /// Adds all of another.
    pub fn extend(&mut self, other: &Self) {
        self.0.extend(&other.0);
    }
}

impl FromStr for CpuSet {
    type Err = ();

    fn from_str(text: &str) -> Result<Self, ()> {
        let mut cpus = BTreeSet::new();
        let mut named = 0usize;
        for range in text.trim().split(',').filter(|range| !range.is_empty()) {
            let (first, last) = range.split_once('-').unwrap_or((range, range));
            let first: usize = first.trim().parse().map_err(drop)?;
            let last: usize = last.trim().parse().map_err(drop)?;
            // A list that names more than there can be names some again and again.
            named = last
                .checked_sub(first)
                .map_or(usize::MAX, |more| named.saturating_add(more).saturating_add(1));
            if first > last || last >= limits::CPUS || named > limits::CPUS {
                return Err(());
            }
            cpus.extend(first..=last);
        }
        Ok(Self(cpus))
    }
}

impl fmt::Display for CpuSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut cpus = self.0.iter().copied().peekable();
        let mut comma = "";
        while let Some(first) = cpus.next() {
            let mut last = first;
            while cpus.next_if_eq(&(last + 1)).is_some() {
                last += 1;
            }
            if first == last {
                write!(f, "{comma}{first}")?;
            } else {
                write!(f, "{comma}{first}-{last}")?;
            }
            comma = ",";
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::CpuSet;

    #[test]
    fn lists_go_there_and_back() {
        for text in ["", "0", "0-3", "0,2-3,8"] {
            assert_eq!(text.parse::<CpuSet>().unwrap().to_string(), text);
        }
        for text in ["x", "3-1", "0-99999999", "1--2", "-1", "0-4095,0"] {
            assert!(text.parse::<CpuSet>().is_err(), "{text}");
        }
    }
}
