//! What `ip -d address` (or `ip -d link`) prints: interfaces, what they stand on, addresses.

use std::net::IpAddr;

/// One interface.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(crate) struct Entry {
    pub(crate) name: String,
    /// What stands behind the `@`: the interface below a VLAN.
    pub(crate) below: Option<String>,
    /// Whether it was set up.
    pub(crate) up: bool,
    pub(crate) addresses: Vec<(IpAddr, u8)>,
}

/// Parses the output.
pub(crate) fn parse(text: &str) -> Vec<Entry> {
    let mut entries: Vec<Entry> = Vec::new();
    for line in text.lines() {
        let words: Vec<&str> = line.split_whitespace().collect();
        if line.starts_with(|c: char| c.is_ascii_digit()) {
            let Some(name) = words.get(1).map(|word| word.trim_end_matches(':')) else { continue };
            let (name, below) = match name.split_once('@') {
                Some((name, below)) => (name, Some(below.to_owned())),
                None => (name, None),
            };
            let flags = words.get(2).map(|flags| flags.trim_matches(['<', '>']));
            let up = flags.is_some_and(|flags| flags.split(',').any(|flag| flag == "UP"));
            entries.push(Entry { name: name.to_owned(), below, up, addresses: Vec::new() });
        } else if let ["inet" | "inet6", address, ..] = words[..]
            && let Some(entry) = entries.last_mut()
        {
            let (address, length) = address.split_once('/').unwrap_or((address, "128"));
            let most = if address.contains(':') { 128 } else { 32 };
            if let (Ok(address), Ok(length)) = (address.parse(), length.parse::<u8>()) {
                entry.addresses.push((address, length.min(most)));
            }
        }
    }
    entries
}

/// Whether two addresses with their prefix lengths are of one subnet.
pub(crate) fn same_subnet(a: &(IpAddr, u8), b: &(IpAddr, u8)) -> bool {
    let bits = |address: &IpAddr| match address {
        IpAddr::V4(v4) => (u128::from(v4.to_bits()) << 96, 4),
        IpAddr::V6(v6) => (v6.to_bits(), 6),
    };
    let ((a_bits, a_kind), (b_bits, b_kind)) = (bits(&a.0), bits(&b.0));
    let length = u32::from(a.1.min(b.1));
    let differ = (a_bits ^ b_bits).checked_shr(128 - length.min(128)).unwrap_or(0);
    a_kind == b_kind && differ == 0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_lowers_and_addresses() {
        let text = "1: lo: <LOOPBACK> mtu 65536\n    inet 127.0.0.1/8 scope host lo\n\
            7: eth0.100@eth0: <UP> mtu 1500 master bond0 state UP\n    vlan id 100\n\
            \x20   inet 192.0.2.1/24 scope global x\n    inet6 fe80::1/64 scope link\n\
            \x20   inet bad/24\n";
        let entries = parse(text);
        assert_eq!(entries.len(), 2);
        assert_eq!(entries[1].below.as_deref(), Some("eth0"));
        assert!(entries[1].up && !entries[0].up);
        assert_eq!(entries[1].addresses.len(), 2);
    }

    #[test]
    fn subnets() {
        let at = |text: &str, length| (text.parse().unwrap(), length);
        assert!(same_subnet(&at("192.0.2.1", 24), &at("192.0.2.200", 24)));
        assert!(!same_subnet(&at("192.0.2.1", 24), &at("192.0.3.1", 24)));
        assert!(!same_subnet(&at("192.0.2.1", 24), &at("fe80::1", 24)));
        assert!(same_subnet(&at("192.0.2.1", 0), &at("10.0.0.1", 0)));
    }
}
