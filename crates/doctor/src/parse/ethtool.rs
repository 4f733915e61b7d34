//! What `ethtool` prints: statistics, pause, driver, link.

use std::collections::BTreeMap;

use crate::limits;

/// `ethtool -S`: lines `name: number`.
pub(crate) fn statistics(text: &str) -> BTreeMap<String, u64> {
    let pair = |line: &str| {
        let (name, value) = line.trim().rsplit_once(':')?;
        Some((name.trim().to_owned(), value.trim().parse().ok()?))
    };
    text.lines().filter_map(pair).take(limits::COUNTERS).collect()
}

/// The value behind `key:` at the beginning of a line.
fn field<'a>(text: &'a str, key: &str) -> Option<&'a str> {
    text.lines().find_map(|line| Some(line.trim().strip_prefix(key)?.strip_prefix(':')?.trim()))
}

/// Global pause as it is set, or as it was negotiated where that is printed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Pause {
    /// Pauses received are obeyed.
    pub rx: bool,
    /// Pauses are sent.
    pub tx: bool,
}

/// `ethtool -a`.
pub(crate) fn pause(text: &str) -> Option<Pause> {
    let on = |key| match field(text, key)? {
        "on" => Some(true),
        "off" => Some(false),
        _ => None,
    };
    let set = Pause { rx: on("RX")?, tx: on("TX")? };
    let negotiated = (on("RX negotiated"), on("TX negotiated"));
    Some(match negotiated {
        (Some(rx), Some(tx)) => Pause { rx, tx },
        _ => set,
    })
}

/// `ethtool -i`: the driver.
pub(crate) fn driver(text: &str) -> Option<String> {
    field(text, "driver").filter(|name| !name.is_empty()).map(str::to_owned)
}

/// `ethtool IF`: the fastest link mode of each side, Mb/s.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct LinkModes {
    /// The fastest that this port supports.
    pub supported: Option<u64>,
    /// The fastest that it offers.
    pub advertised: Option<u64>,
    /// The fastest that the peer offers.
    pub partner: Option<u64>,
}

/// The link modes of `ethtool IF`: a key, then modes such as `100000baseCR4/Full` on this and the
/// following lines.
pub(crate) fn link_modes(text: &str) -> LinkModes {
    let mut modes = LinkModes::default();
    let mut none = None;
    let mut place = &mut none;
    for line in text.lines() {
        let mut rest = line.trim();
        if let Some((key, value)) = rest.split_once(':') {
            rest = value;
            place = match key {
                "Supported link modes" => &mut modes.supported,
                "Advertised link modes" => &mut modes.advertised,
                "Link partner advertised link modes" => &mut modes.partner,
                _ => &mut none,
            };
        }
        let speeds =
            rest.split_whitespace().filter_map(|word| word.split_once("base")?.0.parse().ok());
        *place = speeds.chain(*place).max();
    }
    modes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn statistics_are_names_and_numbers() {
        let text = "NIC statistics:\n     rx_packets: 12\n     [0]: rx_bytes: 7\n     bad: x\n";
        let found = statistics(text);
        assert_eq!(found["rx_packets"], 12);
        assert_eq!(found["[0]: rx_bytes"], 7);
        assert_eq!(found.len(), 2);
    }

    #[test]
    fn what_was_negotiated_counts() {
        let text = "Pause parameters for eth0:\nAutonegotiate:\ton\nRX:\t\ton\nTX:\t\ton\n";
        assert_eq!(pause(text), Some(Pause { rx: true, tx: true }));
        let text = format!("{text}RX negotiated:\toff\nTX negotiated:\toff\n");
        assert_eq!(pause(&text), Some(Pause { rx: false, tx: false }));
        assert_eq!(pause("RX: maybe\n"), None);
    }

    #[test]
    fn modes_go_over_lines() {
        let text = "Settings for eth0:\n\tSupported link modes:   25000baseCR/Full\n\
            \t                        100000baseCR4/Full\n\tSupported pause frame use: Symmetric\n\
            \tAdvertised link modes:  25000baseCR/Full\n\tSpeed: 25000Mb/s\n\
            \tLink partner advertised link modes:  Not reported\n";
        let expected =
            LinkModes { supported: Some(100_000), advertised: Some(25_000), partner: None };
        assert_eq!(link_modes(text), expected);
    }
}
