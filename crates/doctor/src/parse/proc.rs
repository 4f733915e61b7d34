//! Files of procfs: limits, status, interrupts.

use crate::limits;
use crate::parse::cpus::CpuSet;

/// A soft limit of `/proc/PID/limits`; `None` within is without limit.
pub(crate) fn limit(text: &str, name: &str) -> Option<Option<u64>> {
    let soft = text.lines().find_map(|line| line.strip_prefix(name))?.split_whitespace().next()?;
    match soft {
        "unlimited" => Some(None),
        number => Some(Some(number.parse().ok()?)),
    }
}

/// The value behind `key:` of `/proc/PID/status`.
pub(crate) fn status<'a>(text: &'a str, key: &str) -> Option<&'a str> {
    text.lines().find_map(|line| Some(line.strip_prefix(key)?.strip_prefix(':')?.trim()))
}

/// A line of `/proc/interrupts` that has a number.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Interrupt {
    pub(crate) number: u32,
    /// How often each processor took it, by the columns' processors.
    pub(crate) counts: Vec<(usize, u64)>,
    /// What stands behind the counts: chip, kind and name.
    pub(crate) name: String,
}

/// Parses `/proc/interrupts`.
pub(crate) fn interrupts(text: &str) -> Vec<Interrupt> {
    let mut lines = text.lines();
    let head = lines.next().unwrap_or_default().split_whitespace();
    let cpus: Vec<usize> =
        head.filter_map(|word| word.strip_prefix("CPU")?.parse().ok()).take(limits::CPUS).collect();
    let line = |line: &str| {
        let (number, rest) = line.trim_start().split_once(':')?;
        let number = number.parse().ok()?;
        let mut words = rest.split_whitespace();
        let counts: Vec<(usize, u64)> = cpus
            .iter()
            .map(|cpu| Some((*cpu, words.next()?.parse().ok()?)))
            .collect::<Option<_>>()?;
        Some(Interrupt { number, counts, name: words.collect::<Vec<_>>().join(" ") })
    };
    lines.filter_map(line).collect()
}

impl Interrupt {
    /// Whether its name names `word`: not as a part of a longer word.
    pub(crate) fn names(&self, word: &str) -> bool {
        let part = |c: Option<char>| c.is_some_and(|c| c.is_ascii_alphanumeric() || c == '.');
        !word.is_empty()
            && self.name.match_indices(word).any(|(at, _)| {
                let before = self.name[..at].chars().next_back();
                let after = self.name[at + word.len()..].chars().next();
                !part(before) && !part(after)
            })
    }

    /// Whether it is for events and commands, not for completions.
    pub(crate) fn is_control(&self) -> bool {
        ["async", "cmd", "page", "adminq", "-config"].iter().any(|word| self.name.contains(word))
    }

    /// The processors that took it.
    pub(crate) fn taken_by(&self) -> CpuSet {
        let list: Vec<String> = self
            .counts
            .iter()
            .filter(|(_, count)| *count > 0)
            .map(|(cpu, _)| cpu.to_string())
            .collect();
        list.join(",").parse().unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limits_and_status() {
        let text = "Limit  Soft  Hard\nMax locked memory         65536    unlimited    bytes\n";
        assert_eq!(limit(text, "Max locked memory"), Some(Some(65536)));
        assert_eq!(limit(&text.replace("65536", "unlimited"), "Max locked memory"), Some(None));
        assert_eq!(limit("", "Max locked memory"), None);
        assert_eq!(status("A:\t1\nCpus_allowed_list:\t0-3\n", "Cpus_allowed_list"), Some("0-3"));
    }

    #[test]
    fn interrupts_have_names() {
        let text = "           CPU0       CPU2\n 24:  1  2  IR-PCI-MSI 42-edge  \
            mlx5_comp0@pci:0000:81:00.0\nNMI: 0 0 Non-maskable\n 25: 1\n";
        let found = interrupts(text);
        assert_eq!(found.len(), 1);
        assert_eq!(found[0].counts, [(0, 1), (2, 2)]);
        assert!(found[0].names("0000:81:00.0") && !found[0].names("000:81:00.0"));
        assert!(!found[0].is_control());
        assert_eq!(found[0].taken_by().to_string(), "0,2");
    }
}
