//! What `lldptool -t -n -i IF` prints of the neighbour's DCBX settings, and without `-n` of ours.
//! Only PFC is taken.

/// What one end announces, as far as it was understood.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Neighbour {
    /// Priorities with PFC, as a mask.
    pub pfc: Option<u8>,
    /// Whether it takes PFC settings from the other end.
    pub pfc_willing: Option<bool>,
}

/// Parses the output; `None` if it has no DCBX TLV.
pub(crate) fn parse(text: &str) -> Option<Neighbour> {
    let mut found = Neighbour::default();
    let mut in_pfc = false;
    for line in text.lines() {
        let words = line.trim();
        if !line.starts_with([' ', '\t']) {
            in_pfc = words.contains("PFC") && words.contains("TLV");
        } else if in_pfc {
            if let Some(value) = words.strip_prefix("Willing:") {
                found.pfc_willing = Some(value.trim() == "yes");
            } else if let Some(list) = words.strip_prefix("PFC enabled:") {
                found.pfc = mask(list);
            }
        }
    }
    (found != Neighbour::default()).then_some(found)
}

/// `3 4`, `3,4` or `none`.
fn mask(list: &str) -> Option<u8> {
    let mut mask = 0;
    for word in list.split([' ', ',', '\t']).filter(|word| !word.is_empty() && *word != "none") {
        mask |= 1u8.checked_shl(word.parse().ok()?)?;
    }
    Some(mask)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_neighbours_pfc() {
        let text = "Chassis ID TLV\n\tMAC: 00:00:5e:00:53:01\nIEEE 8021QAZ PFC TLV\n\
            \t Willing: no\n\t MACsec Bypass Capable: no\n\t PFC capable traffic classes: 8\n\
            \t PFC enabled: 3 4\nEnd of LLDPDU TLV\n";
        assert_eq!(parse(text), Some(Neighbour { pfc: Some(0b11000), pfc_willing: Some(false) }));
        let none = text.replace("3 4", "none");
        assert_eq!(parse(&none).unwrap().pfc, Some(0));
        assert_eq!(parse("Chassis ID TLV\n"), None);
        assert_eq!(parse(&text.replace("3 4", "9")).unwrap().pfc, None);
    }
}
