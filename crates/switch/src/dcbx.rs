//! DCBX of 802.1Qaz: the TLVs in which neighbours tell each other about ETS, PFC and applications,
//! to bytes and back. What follows from them is for `exchange`; sending them is for the switch.

pub mod exchange;

use std::fmt;

use wire::Mac;

/// The group address of LLDP that no bridge forwards.
pub const GROUP: Mac = Mac([0x01, 0x80, 0xC2, 0, 0, 0x0E]);
/// The organisation of 802.1.
const OUI: [u8; 3] = [0x00, 0x80, 0xC2];
const CHASSIS: u8 = 1;
const PORT: u8 = 2;
const LIFE: u8 = 3;
const ORGANISATION: u8 = 127;
const ETS: u8 = 9;
const RECOMMENDATION: u8 = 10;
const PFC: u8 = 11;
const APPLICATION: u8 = 12;
/// Identified by a MAC: a chassis, a port.
const BY_MAC: [u8; 2] = [4, 3];
/// Application entries that are kept.
const APPLICATIONS: usize = 64;

/// How a traffic class is served.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Algorithm {
    /// Strict priority.
    Strict,
    /// Credit-based shaper.
    Cbs,
    /// Enhanced transmission selection: a share of the bandwidth.
    Ets,
    /// The vendor's own (255), or a number that is not assigned.
    Other(u8),
}

impl From<u8> for Algorithm {
    fn from(n: u8) -> Self {
        match n {
            0 => Self::Strict,
            1 => Self::Cbs,
            2 => Self::Ets,
            n => Self::Other(n),
        }
    }
}

impl From<Algorithm> for u8 {
    fn from(algorithm: Algorithm) -> Self {
        match algorithm {
            Algorithm::Strict => 0,
            Algorithm::Cbs => 1,
            Algorithm::Ets => 2,
            Algorithm::Other(n) => n,
        }
    }
}

/// The three tables of ETS.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct EtsTable {
    /// Traffic class of each priority, 0 to 7.
    pub class: [u8; 8],
    /// Per cent of each class.
    pub bandwidth: [u8; 8],
    /// How each class is served.
    pub algorithm: [Algorithm; 8],
}

/// The ETS configuration TLV.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Ets {
    /// Takes what the peer recommends.
    pub willing: bool,
    /// Can shape by credit.
    pub cbs: bool,
    /// Traffic classes, 1 to 8.
    pub classes: u8,
    /// The tables in use.
    pub table: EtsTable,
}

/// The PFC configuration TLV.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PfcSetting {
    /// Takes what the peer uses.
    pub willing: bool,
    /// Not able to bypass MACsec.
    pub bypass: bool,
    /// Classes that can have PFC at once.
    pub capability: u8,
    /// Priorities that have it, as bits.
    pub enabled: u8,
}

/// An entry of the application TLV.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Application {
    /// The priority it should have, 0 to 7.
    pub priority: u8,
    /// What `protocol` is: 1 an EtherType, 2 a port of TCP, 3 of UDP, 4 of either, 5 a DSCP.
    pub selector: u8,
    /// The number.
    pub protocol: u16,
}

/// What a neighbour tells of itself.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Advert {
    /// Its MAC, where its chassis is named by one.
    pub chassis: Option<Mac>,
    /// Seconds for which this is true; 0: it goes away.
    pub life: u16,
    /// ETS in use.
    pub ets: Option<Ets>,
    /// ETS that it recommends.
    pub recommendation: Option<EtsTable>,
    /// PFC in use.
    pub pfc: Option<PfcSetting>,
    /// Priorities for applications.
    pub applications: Vec<Application>,
}

/// Why an LLDP frame is not understood.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum AdvertError {
    /// A TLV goes on behind the frame's end.
    Truncated {
        /// Its type.
        kind: u8,
    },
    /// A TLV is too short for what it has to hold.
    TooShort {
        /// Its type, or the subtype of one of 802.1.
        kind: u8,
        /// Bytes found.
        found: usize,
    },
    /// A TLV that may stand once stands twice.
    Twice {
        /// Its subtype.
        kind: u8,
    },
}

impl fmt::Display for AdvertError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Truncated { kind } => write!(f, "TLV {kind} goes on behind the frame's end"),
            Self::TooShort { kind, found } => {
                write!(f, "TLV {kind} has {found} bytes, too few for what it holds")
            }
            Self::Twice { kind } => write!(f, "TLV {kind} stands twice, expected once"),
        }
    }
}

impl std::error::Error for AdvertError {}

impl EtsTable {
    fn parse(bytes: &[u8; 20]) -> Self {
        let class = |p: usize| (bytes[p / 2] >> (4 - 4 * (p & 1))) & 7;
        Self {
            class: std::array::from_fn(class),
            bandwidth: std::array::from_fn(|class| bytes[4 + class]),
            algorithm: std::array::from_fn(|class| bytes[12 + class].into()),
        }
    }

    fn emit(&self, out: &mut Vec<u8>) {
        out.extend((0..4).map(|n| (self.class[2 * n] & 15) << 4 | (self.class[2 * n + 1] & 15)));
        out.extend(self.bandwidth);
        out.extend(self.algorithm.map(u8::from));
    }
}

/// Puts a value in its place, which has to be free.
fn once<T>(place: &mut Option<T>, value: T, kind: u8) -> Result<(), AdvertError> {
    match place.replace(value) {
        Some(_) => Err(AdvertError::Twice { kind }),
        None => Ok(()),
    }
}

impl Advert {
    /// Reads an LLDP frame's bytes from the first TLV on. TLVs that are not known are passed over.
    pub fn parse(mut bytes: &[u8]) -> Result<Self, AdvertError> {
        let mut advert = Self::default();
        while let Some((head, rest)) = bytes.split_first_chunk::<2>() {
            let head = u16::from_be_bytes(*head);
            let (kind, length) = ((head >> 9) as u8, usize::from(head & 0x1FF));
            if kind == 0 {
                break;
            }
            let (value, rest) =
                rest.split_at_checked(length).ok_or(AdvertError::Truncated { kind })?;
            bytes = rest;
            let short = AdvertError::TooShort { kind, found: length };
            match (kind, value) {
                (CHASSIS, &[4, a, b, c, d, e, f]) => advert.chassis = Some(Mac([a, b, c, d, e, f])),
                (LIFE, &[a, b, ..]) => advert.life = u16::from_be_bytes([a, b]),
                (LIFE, _) => return Err(short),
                (ORGANISATION, [a, b, c, subtype, value @ ..]) if [*a, *b, *c] == OUI => {
                    advert.parse_own(*subtype, value)?;
                }
                _ => {}
            }
        }
        Ok(advert)
    }

    fn parse_own(&mut self, kind: u8, value: &[u8]) -> Result<(), AdvertError> {
        let short = AdvertError::TooShort { kind, found: value.len() };
        match kind {
            ETS | RECOMMENDATION => {
                let (head, rest) = value.split_first().ok_or(short)?;
                let table = EtsTable::parse(rest.first_chunk().ok_or(short)?);
                if kind == RECOMMENDATION {
                    return once(&mut self.recommendation, table, kind);
                }
                let classes = if head & 7 == 0 { 8 } else { head & 7 };
                let (willing, cbs) = (head >> 7 & 1 == 1, head >> 6 & 1 == 1);
                once(&mut self.ets, Ets { willing, cbs, classes, table }, kind)
            }
            PFC => {
                let &[head, enabled, ..] = value else { return Err(short) };
                let (willing, bypass) = (head >> 7 & 1 == 1, head >> 6 & 1 == 1);
                let pfc = PfcSetting { willing, bypass, capability: head & 15, enabled };
                once(&mut self.pfc, pfc, kind)
            }
            APPLICATION => {
                let (_, entries) = value.split_first().ok_or(short)?;
                let entries = entries.as_chunks::<3>().0.iter().map(|&[head, a, b]| Application {
                    priority: head >> 5,
                    selector: head & 7,
                    protocol: u16::from_be_bytes([a, b]),
                });
                let free = APPLICATIONS - self.applications.len();
                self.applications.extend(entries.take(free));
                Ok(())
            }
            _ => Ok(()),
        }
    }

    /// The frame's bytes from the first TLV on, from a port with this MAC.
    pub fn emit(&self, port: Mac) -> Vec<u8> {
        let mut out = Vec::new();
        for (kind, by, mac) in
            [(CHASSIS, BY_MAC[0], self.chassis.unwrap_or(port)), (PORT, BY_MAC[1], port)]
        {
            tlv(&mut out, kind, |out| {
                out.push(by);
                out.extend(mac.0);
            });
        }
        tlv(&mut out, LIFE, |out| out.extend(self.life.to_be_bytes()));
        let mut own = |kind, fill: &dyn Fn(&mut Vec<u8>)| {
            tlv(&mut out, ORGANISATION, |out| {
                out.extend(OUI);
                out.push(kind);
                fill(out);
            });
        };
        let bits = |a: bool, b: bool| u8::from(a) << 7 | u8::from(b) << 6;
        if let Some(ets) = &self.ets {
            own(ETS, &|out| {
                out.push(bits(ets.willing, ets.cbs) | (ets.classes & 7));
                ets.table.emit(out);
            });
        }
        if let Some(table) = &self.recommendation {
            own(RECOMMENDATION, &|out| {
                out.push(0);
                table.emit(out);
            });
        }
        if let Some(pfc) = &self.pfc {
            own(PFC, &|out| {
                out.push(bits(pfc.willing, pfc.bypass) | (pfc.capability & 15));
                out.push(pfc.enabled);
            });
        }
        if !self.applications.is_empty() {
            own(APPLICATION, &|out| {
                out.push(0);
                for entry in self.applications.iter().take(APPLICATIONS) {
                    out.push((entry.priority & 7) << 5 | (entry.selector & 7));
                    out.extend(entry.protocol.to_be_bytes());
                }
            });
        }
        out.extend([0, 0]);
        out
    }
}

/// Appends a TLV.
fn tlv(out: &mut Vec<u8>, kind: u8, fill: impl FnOnce(&mut Vec<u8>)) {
    let start = out.len();
    out.extend([0, 0]);
    fill(out);
    let length = (out.len() - start - 2) as u16;
    out[start..start + 2].copy_from_slice(&(u16::from(kind) << 9 | length).to_be_bytes());
}
