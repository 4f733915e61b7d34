//! What iproute2's `dcb OBJECT show dev IF` prints, whether over lines or in one.

use crate::parse::mlnx_qos::{DcbxMode, Trust, Tsa};
use crate::parse::{leading_number, pairs, put};

/// The words from `key` on to the next word that is a key too (one without a colon).
fn section<'a>(text: &'a str, key: &str) -> Option<impl Iterator<Item = (&'a str, &'a str)>> {
    let at = text.match_indices(key).map(|(at, _)| at).find(|at| {
        let before = text[..*at].chars().next_back();
        let after = text[at + key.len()..].chars().next();
        before.is_none_or(char::is_whitespace) && after.is_none_or(char::is_whitespace)
    })?;
    Some(pairs_of(&text[at + key.len()..]))
}

fn pairs_of(text: &str) -> impl Iterator<Item = (&str, &str)> {
    let words = text.split_whitespace().take_while(|word| word.contains(':'));
    words.flat_map(pairs)
}

/// The priorities with PFC, as a mask.
pub(crate) fn pfc(text: &str) -> Option<u8> {
    let mut on = [false; 8];
    let mut any = false;
    for (priority, state) in section(text, "prio-pfc")? {
        any |= put(&mut on, priority, state == "on").is_some();
    }
    any.then(|| (0..8).filter(|p| on[*p]).fold(0, |mask, p| mask | 1 << p))
}

/// Eight numbers of a section.
fn row(text: &str, key: &str) -> Option<[u8; 8]> {
    let mut row = [0; 8];
    let mut any = false;
    for (index, value) in section(text, key)? {
        let value = value.parse().ok().filter(|value: &u8| *value < 8)?;
        any |= put(&mut row, index, value).is_some();
    }
    any.then_some(row)
}

/// `dcb ets show`: the class of each priority, and how classes are scheduled.
pub(crate) fn ets(text: &str) -> (Option<[u8; 8]>, Option<[Option<Tsa>; 8]>) {
    let mut tsa = [None; 8];
    for (tc, how) in section(text, "tc-tsa").into_iter().flatten() {
        let how = match how {
            "strict" => Tsa::Strict,
            "ets" => Tsa::Ets(None),
            _ => Tsa::Vendor,
        };
        put(&mut tsa, tc, Some(how));
    }
    for (tc, share) in section(text, "tc-bw").into_iter().flatten() {
        let place = tc.parse::<usize>().ok().and_then(|tc| tsa.get_mut(tc));
        if let Some(Some(Tsa::Ets(bandwidth))) = place {
            *bandwidth = share.trim_end_matches('%').parse().ok();
        }
    }
    (row(text, "prio-tc"), tsa.iter().any(Option::is_some).then_some(tsa))
}

/// A DSCP by name or number.
fn dscp(word: &str) -> Option<usize> {
    let number = |text: &str| text.parse::<usize>().ok();
    let value = match word.to_ascii_uppercase().as_str() {
        "EF" => 46,
        "BE" | "DEFAULT" => 0,
        "LE" => 1,
        name if name.starts_with("CS") => 8 * number(&name[2..])?,
        name if name.starts_with("AF") => {
            let (class, drop) = (number(name.get(2..3)?)?, number(name.get(3..4)?)?);
            8 * class + 2 * drop
        }
        name if name.starts_with("0X") => usize::from_str_radix(&name[2..], 16).ok()?,
        name => number(name)?,
    };
    Some(value).filter(|value| *value < 64)
}

/// `dcb app show`: the priority of each DSCP that has an entry.
pub(crate) fn app(text: &str) -> Option<Vec<(usize, u8)>> {
    let entries = section(text, "dscp-prio")?
        .filter_map(|(name, priority)| Some((dscp(name)?, priority.parse().ok()?)))
        .filter(|(_, priority)| *priority < 8);
    Some(entries.collect())
}

/// A size such as `10Kb`, `1Mb`, `18048b`, `10000`: bytes.
fn size(word: &str) -> Option<u64> {
    let (number, unit) = leading_number(word)?;
    let scale = match unit.trim_end_matches(['b', 'B', 'i']) {
        "" => 1.0,
        "K" | "k" => 1024.0,
        "M" | "m" => 1024.0 * 1024.0,
        "G" | "g" => 1024.0 * 1024.0 * 1024.0,
        _ => return None,
    };
    Some((number * scale) as u64)
}

/// `dcb buffer show`: the buffer of each priority, and the buffers' sizes in bytes.
pub(crate) fn buffer(text: &str) -> (Option<[u8; 8]>, Option<Vec<u64>>) {
    let mut sizes = [0; 8];
    let mut any = false;
    for (index, word) in section(text, "buffer-size").into_iter().flatten() {
        if let Some(size) = size(word) {
            any |= put(&mut sizes, index, size).is_some();
        }
    }
    (row(text, "prio-buffer"), any.then(|| sizes.to_vec()))
}

/// `dcb apptrust show`: `order: dscp pcp`.
pub(crate) fn trust(text: &str) -> Option<Trust> {
    let order: Vec<&str> = text.trim().split_once("order")?.1.split([' ', ':', '\n']).collect();
    let has = |word| order.contains(&word);
    match (has("dscp"), has("pcp")) {
        (true, true) => Some(Trust::Both),
        (true, false) => Some(Trust::Dscp),
        (false, true) => Some(Trust::Pcp),
        (false, false) => None,
    }
}

/// `dcb dcbx show`: `host ieee`, or `lld-managed cee` where the device speaks it itself.
pub(crate) fn dcbx(text: &str) -> Option<DcbxMode> {
    let has = |word| text.split_whitespace().any(|flag| flag == word);
    match (has("host"), has("lld-managed")) {
        (true, false) => Some(DcbxMode::Os),
        (false, true) => Some(DcbxMode::Firmware),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_line_or_several() {
        let text = "pfc-cap 8 macsec-bypass off delay 4096\nprio-pfc 0:off 3:on 4:on\n";
        assert_eq!(pfc(text), Some(0b11000));
        assert_eq!(pfc("pfc-cap 8 prio-pfc 0:off 3:on delay 0"), Some(0b1000));
        assert_eq!(pfc("pfc-cap 8"), None);
    }

    #[test]
    fn classes_and_shares() {
        let text = "willing off ets-cap 8 cbs off\ntc-bw 0:50 3:50 5:0\nprio-tc 0:0 3:3 6:6\n\
            tc-tsa 0:ets 3:ets 5:strict 6:vendor\n";
        let (classes, tsa) = ets(text);
        let tsa = tsa.unwrap();
        assert_eq!(classes, Some([0, 0, 0, 3, 0, 0, 6, 0]));
        assert_eq!(tsa[3], Some(Tsa::Ets(Some(50))));
        assert_eq!((tsa[5], tsa[6], tsa[7]), (Some(Tsa::Strict), Some(Tsa::Vendor), None));
    }

    #[test]
    fn dscps_have_names() {
        let text = "default-prio 0\ndscp-prio AF31:3 CS6:6 46:5 0x1a:4 ??:1 CS9:1\n";
        assert_eq!(app(text), Some(vec![(26, 3), (48, 6), (46, 5), (26, 4)]));
        assert_eq!(app("default-prio 0\n"), None);
    }

    #[test]
    fn who_speaks_dcbx() {
        assert_eq!(dcbx("host ieee \n"), Some(DcbxMode::Os));
        assert_eq!(dcbx("lld-managed cee static\n"), Some(DcbxMode::Firmware));
        for nobody in ["", "ieee", "host lld-managed", "hosts"] {
            assert_eq!(dcbx(nobody), None, "{nobody}");
        }
    }

    #[test]
    fn sizes_have_units() {
        let text = "prio-buffer 0:0 3:1\nbuffer-size 0:18048b 1:1Mb 2:10Kb 3:7\ntotal-size 222Kb\n";
        let (map, sizes) = buffer(text);
        assert_eq!(map, Some([0, 0, 0, 1, 0, 0, 0, 0]));
        assert_eq!(sizes.unwrap()[..4], [18048, 1 << 20, 10 << 10, 7]);
    }

    #[test]
    fn order_tells_trust() {
        assert_eq!(trust("order: dscp pcp\n"), Some(Trust::Both));
        assert_eq!(trust("order dscp"), Some(Trust::Dscp));
        assert_eq!(trust("order:"), None);
    }
}
