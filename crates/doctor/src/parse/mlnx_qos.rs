//! What `mlnx_qos -i IF` prints.

use crate::parse::{leading_number, put};

/// How a traffic class is scheduled.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Tsa {
    /// Before all others while it has anything to send.
    Strict,
    /// A share of what strict classes leave, percent; if it is known.
    Ets(Option<u32>),
    /// The vendor's own way.
    Vendor,
}

/// What a port trusts to tell the priority of a packet.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Trust {
    /// The DSCP of the IP header.
    Dscp,
    /// The priority of the VLAN tag.
    Pcp,
    /// The DSCP, and the tag where there is none.
    Both,
}

/// Who speaks DCBX for the port.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum DcbxMode {
    /// The operating system: lldpad, or nobody.
    Os,
    /// The adapter's firmware.
    Firmware,
}

/// The output, as far as it was understood.
#[derive(Clone, PartialEq, Debug, Default)]
pub(crate) struct MlnxQos {
    pub(crate) dcbx: Option<DcbxMode>,
    pub(crate) trust: Option<Trust>,
    pub(crate) dscp_priority: Option<[Option<u8>; 64]>,
    pub(crate) buffer_bytes: Option<Vec<u64>>,
    pub(crate) cable_m: Option<f64>,
    pub(crate) pfc: Option<u8>,
    pub(crate) priority_buffer: Option<[u8; 8]>,
    pub(crate) priority_tc: Option<[u8; 8]>,
    pub(crate) tsa: Option<[Option<Tsa>; 8]>,
}

/// Eight numbers behind a word.
fn row(line: &str, word: &str) -> Option<[u8; 8]> {
    let mut numbers = line.strip_prefix(word)?.split_whitespace().map(|n| n.parse().ok());
    let mut row = [0; 8];
    for place in &mut row {
        *place = numbers.next()??;
    }
    Some(row)
}

/// The priority of each DSCP of `prio:N dscp:07,06,…`.
fn dscp_line(line: &str, map: &mut [Option<u8>; 64]) -> Option<()> {
    let (priority, list) = line.strip_prefix("prio:")?.split_once(" dscp:")?;
    let priority: u8 = priority.trim().parse().ok().filter(|p| *p < 8)?;
    for dscp in list.split(',').filter(|word| !word.trim().is_empty()) {
        put(map, dscp, Some(priority))?;
    }
    Some(())
}

/// `0 ratelimit: unlimited, tsa: ets, bw: 50%`, what stands behind `tc:`.
fn class(line: &str) -> Option<(usize, Tsa)> {
    let (tc, _) = leading_number(line)?;
    let tsa = line.split_once("tsa:")?.1.split(',').next()?.trim();
    let share = || Some(leading_number(line.split_once("bw:")?.1)?.0 as u32);
    let tsa = match tsa {
        "strict" => Tsa::Strict,
        "ets" => Tsa::Ets(share()),
        _ => Tsa::Vendor,
    };
    Some((tc as usize, tsa)).filter(|(tc, _)| *tc < 8)
}

/// Parses the output.
pub(crate) fn parse(text: &str) -> MlnxQos {
    let mut found = MlnxQos::default();
    let mut current = None;
    for line in text.lines().map(str::trim) {
        if let Some(mode) = line.strip_prefix("DCBX mode:") {
            found.dcbx = match mode.trim() {
                mode if mode.starts_with("OS") => Some(DcbxMode::Os),
                mode if mode.starts_with("Firmware") => Some(DcbxMode::Firmware),
                _ => None,
            };
        } else if let Some(trust) = line.strip_prefix("Priority trust state:") {
            found.trust = match trust.trim() {
                "dscp" => Some(Trust::Dscp),
                "pcp" => Some(Trust::Pcp),
                "both" => Some(Trust::Both),
                _ => None,
            };
        } else if line.starts_with("prio:") {
            dscp_line(line, found.dscp_priority.get_or_insert([None; 64]));
        } else if let Some(sizes) = line.strip_prefix("Receive buffer size (bytes):") {
            let sizes = sizes.split(',').map_while(|size| size.trim().parse().ok()).take(8);
            found.buffer_bytes = Some(sizes.collect()).filter(|sizes: &Vec<u64>| !sizes.is_empty());
        } else if let Some(metres) = line.strip_prefix("Cable len:") {
            found.cable_m = leading_number(metres).map(|(metres, _)| metres);
        } else if let Some(row) = row(line, "enabled") {
            found.pfc = Some((0..8).filter(|p| row[*p] != 0).fold(0, |mask, p| mask | 1 << p));
        } else if let Some(row) = row(line, "buffer") {
            found.priority_buffer = Some(row);
        } else if let Some(rest) = line.strip_prefix("tc:") {
            current = class(rest);
            if let Some((tc, tsa)) = current {
                found.tsa.get_or_insert([None; 8])[tc] = Some(tsa);
            }
        } else if let (Some(priority), Some((tc, _))) = (line.strip_prefix("priority:"), current) {
            put(found.priority_tc.get_or_insert([0; 8]), priority, tc as u8);
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "DCBX mode: OS controlled\nPriority trust state: dscp\n\
        dscp2prio mapping:\n\tprio:0 dscp:07,06,05,04,03,02,01,00,\n\tprio:3 dscp:26,\n\
        default priority:\nReceive buffer size (bytes): 20016,156096,0,0,0,0,0,0,\
        max_buffer_size=262016\nCable len: 7\nPFC configuration:\n\
        \tpriority    0   1   2   3   4   5   6   7\n\
        \tenabled     0   0   0   1   0   0   0   0   \n\
        \tbuffer      0   0   0   1   0   0   0   0   \n\
        tc: 0 ratelimit: unlimited, tsa: ets, bw: 9%\n\t priority:  0\n\
        tc: 3 ratelimit: 10 Gbps, tsa: strict\n\t priority:  3\n\t priority:  6\n\
        tc: 5 ratelimit: unlimited, tsa: vendor\n";

    #[test]
    fn all_of_it_is_understood() {
        let found = parse(TEXT);
        assert_eq!(found.dcbx, Some(DcbxMode::Os));
        assert_eq!(found.trust, Some(Trust::Dscp));
        assert_eq!(found.dscp_priority.unwrap()[26..28], [Some(3), None]);
        assert_eq!(found.buffer_bytes.as_deref(), Some(&[20016, 156_096, 0, 0, 0, 0, 0, 0][..]));
        assert_eq!(found.cable_m, Some(7.0));
        assert_eq!(found.pfc, Some(8));
        assert_eq!(found.priority_buffer, Some([0, 0, 0, 1, 0, 0, 0, 0]));
        assert_eq!(found.priority_tc, Some([0, 0, 0, 3, 0, 0, 3, 0]));
        let tsa = found.tsa.unwrap();
        assert_eq!(tsa[0], Some(Tsa::Ets(Some(9))));
        assert_eq!(tsa[3], Some(Tsa::Strict));
        assert_eq!(tsa[5], Some(Tsa::Vendor));
    }

    #[test]
    fn nonsense_is_nothing() {
        let text = "tc: 99 tsa: ets, bw: x%\nenabled 1 2\nprio:9 dscp:1\nDCBX mode: ?\n\
            Receive buffer size (bytes): many\npriority: 3\n";
        let found = parse(text);
        assert_eq!(
            (found.pfc, found.tsa, found.buffer_bytes, found.priority_tc, found.dcbx),
            (None, None, None, None, None)
        );
    }
}
