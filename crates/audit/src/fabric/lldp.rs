//! LLDP frames: who speaks (chassis, port, name), for how long it counts, and the DCBX tables in
//! it. Total: any bytes give what can be read of them and a list of what makes no sense. IEEE
//! 802.1AB for the frame; `ieee` and `cee` have the two versions of DCBX.

use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use wire::Mac;

mod cee;
mod ieee;

/// Faults of one frame that are kept.
const FAULTS: usize = 4;
/// Characters of a name that are kept.
const NAME: usize = 48;

/// A transmission selection: priorities in groups, with shares of the link.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Ets {
    pub(super) willing: bool,
    /// Traffic class (IEEE) or priority group (CEE; 15 is strict) of each priority.
    pub(super) classes: [u8; 8],
    /// Share of each class, percent.
    pub(super) shares: [u8; 8],
    /// Which classes share: bit for each; the others are strict or their vendor's.
    pub(super) shared: u8,
}

/// PFC.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Pfc {
    pub(super) willing: bool,
    /// Bit for each priority.
    pub(super) enabled: u8,
    /// The sender says that the two ends do not fit (CEE).
    pub(super) error: bool,
}

/// A priority for an application.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) struct App {
    pub(super) selector: Selector,
    pub(super) protocol: u16,
    pub(super) priority: u8,
}

/// What the protocol of an application is.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) enum Selector {
    EtherType,
    /// TCP, UDP, or any of them: RoCE's port is the same number.
    Port,
    Dscp,
}

/// The tables of one version of DCBX.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(super) struct Tables {
    pub(super) ets: Option<Ets>,
    pub(super) recommended: Option<Ets>,
    pub(super) pfc: Option<Pfc>,
    pub(super) apps: Option<Vec<App>>,
}

impl Tables {
    fn is_empty(&self) -> bool {
        *self == Self::default()
    }
}

/// What a frame says.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(super) struct Lldp {
    /// Chassis with its kind in front; nothing else tells devices apart.
    pub(super) chassis: Vec<u8>,
    pub(super) port: Vec<u8>,
    /// Seconds that it counts; 0: the port goes away.
    pub(super) ttl: u16,
    pub(super) system: Option<String>,
    pub(super) management: Option<IpAddr>,
    pub(super) ieee: Option<Tables>,
    pub(super) cee: Option<Tables>,
    /// What makes no sense in its DCBX parts.
    pub(super) faults: Vec<String>,
}

/// Reads the bytes behind the EtherType.
pub(super) fn parse(bytes: &[u8]) -> Lldp {
    let mut lldp = Lldp::default();
    let (mut ieee, mut cee) = (ieee::Reader::default(), Tables::default());
    let mut faults = Faults::default();
    let mut rest = bytes;
    while let Some((head, behind)) = rest.split_first_chunk::<2>() {
        let head = u16::from_be_bytes(*head);
        let (kind, length) = (head >> 9, usize::from(head & 0x1FF));
        if kind == 0 {
            break;
        }
        let Some((value, behind)) = behind.split_at_checked(length) else {
            let is_dcbx = !ieee.is_empty() || !cee.is_empty() || is_dcbx(kind, behind);
            if is_dcbx {
                let left = behind.len();
                faults.add(|| format!("a TLV of {length} bytes where {left} are left"));
            }
            break;
        };
        rest = behind;
        match (kind, value) {
            (1, id) => lldp.chassis = id.to_vec(),
            (2, id) => lldp.port = id.to_vec(),
            (3, [high, low, ..]) => lldp.ttl = u16::from_be_bytes([*high, *low]),
            (5, name) => lldp.system = Some(printable(name)),
            (8, address) => lldp.management = lldp.management.or(management(address)),
            (127, [0x00, 0x80, 0xC2, subtype, body @ ..]) => ieee.read(*subtype, body, &mut faults),
            (127, [0x00, 0x1B, 0x21, version @ 1..=2, body @ ..]) => {
                cee::read(*version, body, &mut cee, &mut faults);
            }
            _ => {}
        }
    }
    lldp.ieee = (!ieee.is_empty()).then(|| ieee.tables());
    lldp.cee = (!cee.is_empty()).then_some(cee);
    lldp.faults = faults.0;
    lldp
}

/// Whether what is left of a TLV belongs to DCBX.
fn is_dcbx(kind: u16, behind: &[u8]) -> bool {
    kind == 127 && matches!(behind, [0x00, 0x80, 0xC2, 9..=12, ..] | [0x00, 0x1B, 0x21, 1..=2, ..])
}

/// What makes no sense.
#[derive(Default)]
struct Faults(Vec<String>);

impl Faults {
    fn add(&mut self, what: impl FnOnce() -> String) {
        if self.0.len() < FAULTS {
            self.0.push(what());
        }
    }
}

/// A management address: its length with the kind, the kind, the address.
fn management(value: &[u8]) -> Option<IpAddr> {
    let (length, rest) = value.split_first()?;
    match rest.get(..usize::from(*length))? {
        [1, a, b, c, d] => Some(Ipv4Addr::new(*a, *b, *c, *d).into()),
        [2, address @ ..] => Some(Ipv6Addr::from(<[u8; 16]>::try_from(address).ok()?).into()),
        _ => None,
    }
}

/// Text from the network, made harmless and short.
fn printable(bytes: &[u8]) -> String {
    let plain =
        |byte: &u8| if byte.is_ascii_graphic() || *byte == b' ' { *byte as char } else { '?' };
    bytes.iter().take(NAME).map(plain).collect()
}

/// An id of a chassis or port in words: the kind in front tells which.
fn id(bytes: &[u8], mac_kind: u8, address_kind: u8) -> String {
    match bytes {
        [kind, rest @ ..] if *kind == mac_kind => match <[u8; 6]>::try_from(rest) {
            Ok(mac) => Mac(mac).to_string(),
            Err(_) => printable(rest),
        },
        [kind, 1, rest @ ..] if *kind == address_kind => match <[u8; 4]>::try_from(rest) {
            Ok(address) => Ipv4Addr::from(address).to_string(),
            Err(_) => printable(rest),
        },
        [_, rest @ ..] => printable(rest),
        [] => String::new(),
    }
}

impl Lldp {
    /// Who speaks: the system's name, or its chassis, and the port.
    pub(super) fn name(&self) -> String {
        let system = match &self.system {
            Some(name) if !name.is_empty() => name.clone(),
            _ => id(&self.chassis, 4, 5),
        };
        let port = id(&self.port, 3, 4);
        match self.management {
            Some(address) => format!("{system} {port}, {address}"),
            None => format!("{system} {port}"),
        }
    }
}
