//! LLDP frames: every TLV, those of DCBX (IEEE 802.1Qaz, and CEE before it) with their fields.

use core::fmt::{self, Display, Formatter, Write};

use super::tree::Lines;

/// OUI of IEEE 802.1, and of the CEE TLVs.
const OUI_8021: [u8; 3] = [0x00, 0x80, 0xC2];
const OUI_CEE: [u8; 3] = [0x00, 0x1B, 0x21];

/// An LLDP frame from behind the EtherType on, as a line (`{}`) or with every field (`{:#}`).
#[derive(Clone, Copy, Debug)]
pub struct Lldp<'a>(pub &'a [u8]);

/// A TLV: its type and value.
type Tlv<'a> = (u8, &'a [u8]);

/// The TLVs in front, and what is left where one is cut.
fn tlvs(mut bytes: &[u8]) -> (Vec<Tlv<'_>>, &[u8]) {
    let mut found = Vec::new();
    while let Some(([a, b], rest)) = bytes.split_first_chunk::<2>() {
        let (kind, len) = (a >> 1, usize::from(a & 1) << 8 | usize::from(*b));
        let Some(value) = rest.get(..len) else { return (found, bytes) };
        if kind == 0 {
            return (found, &[]);
        }
        found.push((kind, value));
        bytes = &rest[len..];
    }
    (found, bytes)
}

impl Display for Lldp<'_> {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let (tlvs, rest) = tlvs(self.0);
        if !f.alternate() {
            return line(&tlvs, rest, f);
        }
        let mut lines = Lines(f);
        lines.header(format_args!("LLDP, {} TLVs", tlvs.len()))?;
        for tlv in &tlvs {
            tree(*tlv, &mut lines)?;
        }
        lines.bytes("Cut TLV", rest)
    }
}

fn line(tlvs: &[Tlv<'_>], rest: &[u8], f: &mut Formatter<'_>) -> fmt::Result {
    f.write_str("LLDP")?;
    for (kind, value) in tlvs {
        match (*kind, Organisation::of(*kind, value)) {
            (5, _) => write!(f, " system {}", text(value))?,
            (2, _) => write!(f, " port {}", identifier(value))?,
            (_, Some(Organisation { oui: OUI_8021, subtype: 9, .. })) => f.write_str(" ETS")?,
            (_, Some(Organisation { oui: OUI_8021, subtype: 11, body: [flags, enabled, ..] })) => {
                let willing = if flags & 0x80 != 0 { ", willing" } else { "" };
                write!(f, " PFC on {}{willing}", Priorities(*enabled))?;
            }
            (_, Some(Organisation { oui: OUI_8021, subtype: 12, .. })) => f.write_str(" APP")?,
            (_, Some(Organisation { oui: OUI_CEE, .. })) => f.write_str(" CEE-DCBX")?,
            _ => {}
        }
    }
    if rest.is_empty() { Ok(()) } else { write!(f, " (cut)") }
}

/// An organisationally specific TLV.
struct Organisation<'a> {
    oui: [u8; 3],
    subtype: u8,
    body: &'a [u8],
}

impl<'a> Organisation<'a> {
    fn of(kind: u8, value: &'a [u8]) -> Option<Self> {
        let ([a, b, c, subtype], body) = value.split_first_chunk::<4>().filter(|_| kind == 127)?;
        Some(Self { oui: [*a, *b, *c], subtype: *subtype, body })
    }
}

fn tree((kind, value): Tlv<'_>, lines: &mut Lines<'_, '_>) -> fmt::Result {
    if let Some(organisation) = Organisation::of(kind, value) {
        return organisation_tree(&organisation, lines);
    }
    match (kind, value) {
        (1, value) => lines.field("Chassis", identifier(value)),
        (2, value) => lines.field("Port", identifier(value)),
        (3, [a, b, ..]) => {
            lines.field("Time to live", format_args!("{} s", u16::from_be_bytes([*a, *b])))
        }
        (4, value) => lines.field("Port description", text(value)),
        (5, value) => lines.field("System name", text(value)),
        (6, value) => lines.field("System description", text(value)),
        (7, [a, b, c, d, ..]) => {
            let (has, on) = (u16::from_be_bytes([*a, *b]), u16::from_be_bytes([*c, *d]));
            lines.field("Capabilities", format_args!("{has:#06x}, enabled {on:#06x}"))
        }
        (8, value) => lines.bytes("Management address", value),
        (kind, value) => lines.bytes(&format!("TLV {kind}"), value),
    }
}

fn organisation_tree(of: &Organisation<'_>, lines: &mut Lines<'_, '_>) -> fmt::Result {
    match (of.oui, of.subtype, of.body) {
        (OUI_8021, 9, [flags, tables @ ..]) => {
            lines.field("ETS configuration", willing(flags & 0x80))?;
            lines.field("  Credit-based shaper", flags & 0x40 != 0)?;
            let classes = if flags & 7 == 0 { 8 } else { flags & 7 };
            lines.field("  Traffic classes", classes)?;
            ets(tables, lines)
        }
        (OUI_8021, 10, [_, tables @ ..]) => {
            lines.field("ETS recommendation", "")?;
            ets(tables, lines)
        }
        (OUI_8021, 11, [flags, enabled, ..]) => {
            lines.field("PFC configuration", willing(flags & 0x80))?;
            lines.field("  MACsec bypass", flags & 0x40 != 0)?;
            lines.field("  Capable classes", flags & 15)?;
            lines.field("  Enabled priorities", Priorities(*enabled))
        }
        (OUI_8021, 12, [_, entries @ ..]) => {
            lines.field("Application priorities", "")?;
            for entry in entries.chunks(3) {
                let [head, a, b] = entry else { return lines.bytes("  Cut entry", entry) };
                let protocol = u16::from_be_bytes([*a, *b]);
                let name = match head & 7 {
                    1 => format!("EtherType {protocol:#06x}"),
                    2 => format!("TCP or SCTP port {protocol}"),
                    3 => format!("UDP or DCCP port {protocol}"),
                    4 => format!("any port {protocol}"),
                    5 => format!("DSCP {protocol}"),
                    selector => format!("selector {selector}, protocol {protocol:#06x}"),
                };
                lines.field("  Priority", format_args!("{} for {name}", head >> 5))?;
            }
            Ok(())
        }
        (OUI_CEE, 1 | 2, body) => cee(of.subtype, body, lines),
        ([a, b, c], subtype, body) => {
            let name = format!("OUI {a:02x}-{b:02x}-{c:02x}, subtype {subtype}");
            lines.bytes(&name, body)
        }
    }
}

fn willing(flag: u8) -> &'static str {
    if flag == 0 { "not willing" } else { "willing" }
}

/// Priority to class, shares, algorithms.
fn ets(tables: &[u8], lines: &mut Lines<'_, '_>) -> fmt::Result {
    let Some((map, rest)) = tables.split_first_chunk::<4>() else {
        return lines.bytes("  Cut tables", tables);
    };
    let classes = map.iter().flat_map(|byte| [byte >> 4, byte & 15]);
    lines.field("  Priority to class", list(classes.zip(0..).map(|(c, p)| format!("{p}:{c}"))))?;
    let Some((shares, rest)) = rest.split_first_chunk::<8>() else {
        return lines.bytes("  Cut tables", rest);
    };
    lines.field("  Bandwidth", list(shares.iter().map(|share| format!("{share}%"))))?;
    let Some((algorithms, _)) = rest.split_first_chunk::<8>() else {
        return lines.bytes("  Cut tables", rest);
    };
    let name = |algorithm: &u8| match algorithm {
        0 => "strict".to_owned(),
        1 => "shaper".to_owned(),
        2 => "ETS".to_owned(),
        255 => "vendor".to_owned(),
        other => other.to_string(),
    };
    lines.field("  Selection", list(algorithms.iter().map(name)))
}

/// The sub-TLVs of the form before 802.1Qaz.
fn cee(version: u8, body: &[u8], lines: &mut Lines<'_, '_>) -> fmt::Result {
    lines.field("CEE DCBX", format_args!("subtype {version}"))?;
    let (found, rest) = tlvs(body);
    for (kind, value) in found {
        let name = match (version, kind) {
            (_, 1) => "  Control",
            (_, 2) => "  Priority groups",
            (_, 3) => "  PFC",
            (2, 4) | (1, 5) => "  Application",
            (1, 4) => "  Congestion notification",
            (1, 6) => "  Logical link",
            _ => "  Feature",
        };
        match (kind, value) {
            (1, [operation, most, sequence @ ..]) => {
                let mut text = format!("version {operation}, at most {most}");
                if let Some(([a, b, c, d], ack)) = sequence.split_first_chunk::<4>() {
                    write!(text, ", sequence {}", u32::from_be_bytes([*a, *b, *c, *d]))?;
                    if let Some([a, b, c, d]) = ack.first_chunk::<4>() {
                        write!(text, ", acknowledged {}", u32::from_be_bytes([*a, *b, *c, *d]))?;
                    }
                }
                lines.field(name, text)?;
            }
            (kind, [_, _, flags, _, data @ ..]) => {
                let mut text = willing(flags & 0x40).to_owned();
                let states = [(0x80, "enabled"), (0x20, "error")];
                for (_, state) in states.iter().filter(|(bit, _)| flags & bit != 0) {
                    write!(text, ", {state}")?;
                }
                lines.field(name, text)?;
                match (kind, data) {
                    (3, [enabled, ..]) => lines.field("    On", Priorities(*enabled))?,
                    _ => lines.bytes("    Data", data)?,
                }
            }
            (_, value) => lines.bytes(name, value)?,
        }
    }
    lines.bytes("  Cut sub-TLV", rest)
}

/// The priorities of a bit map.
struct Priorities(u8);

impl Display for Priorities {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        if self.0 == 0 {
            return f.write_str("none");
        }
        let on = (0..8).filter(|priority| self.0 & (1 << priority) != 0);
        f.write_str(&list(on.map(|priority| priority.to_string())))
    }
}

fn list(items: impl Iterator<Item = String>) -> String {
    items.collect::<Vec<String>>().join(" ")
}

/// A chassis or port identifier: a MAC address, or text.
fn identifier(value: &[u8]) -> String {
    match value {
        [3 | 4, mac @ ..] if mac.len() == 6 => {
            let parts: Vec<String> = mac.iter().map(|byte| format!("{byte:02x}")).collect();
            parts.join(":")
        }
        [subtype, rest @ ..] => format!("{} (subtype {subtype})", text(rest)),
        [] => "nothing".to_owned(),
    }
}

/// Text from a frame, without what steers a terminal.
fn text(bytes: &[u8]) -> String {
    let text = String::from_utf8_lossy(bytes);
    text.chars().map(|c| if c.is_control() { '\u{fffd}' } else { c }).collect()
}
