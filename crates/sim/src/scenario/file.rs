//! A scenario file as it is written: tables and fields, before they are understood.

use serde::Deserialize;
use toml::Spanned;

use super::quantity::{Bytes, Lasting, Part, Rated, Ratio};

/// The whole file.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub(super) struct File {
    pub(super) name: String,
    #[serde(default)]
    pub(super) teaches: String,
    #[serde(default = "one")]
    pub(super) seed: u64,
    pub(super) until: Lasting,
    pub(super) topology: Topology,
    #[serde(default)]
    pub(super) link: Vec<Spanned<Link>>,
    #[serde(default)]
    pub(super) nic: Nic,
    #[serde(default)]
    pub(super) switch: SwitchTable,
    #[serde(default)]
    pub(super) workload: Vec<Spanned<Workload>>,
}

fn one() -> u64 {
    1
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum Kind {
    Pair,
    Star,
    Dumbbell,
    ParkingLot,
    LeafSpine,
    FatTree,
    Rail,
    Ring,
    Explicit,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub(super) struct Topology {
    pub(super) kind: Spanned<Kind>,
    pub(super) hosts: Option<Spanned<u32>>,
    pub(super) left: Option<Spanned<u32>>,
    pub(super) right: Option<Spanned<u32>>,
    pub(super) switches: Option<Spanned<u32>>,
    pub(super) leaves: Option<Spanned<u32>>,
    pub(super) spines: Option<Spanned<u32>>,
    pub(super) k: Option<Spanned<u32>>,
    pub(super) servers: Option<Spanned<u32>>,
    pub(super) rails: Option<Spanned<u32>>,
    pub(super) group: Option<Spanned<u32>>,
    /// Names of the switches of an explicit topology.
    pub(super) switch_names: Option<Spanned<Vec<String>>>,
    pub(super) rate: Option<Rated>,
    pub(super) delay: Option<Lasting>,
    pub(super) fabric_rate: Option<Rated>,
    pub(super) fabric_delay: Option<Lasting>,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub(super) struct Link {
    pub(super) ends: Spanned<(String, String)>,
    pub(super) rate: Option<Rated>,
    pub(super) delay: Option<Lasting>,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum ControlName {
    #[default]
    None,
    Dcqcn,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum Preset {
    Paper,
    #[default]
    Vendor,
    HpccSim,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub(super) struct Nic {
    pub(super) mtu: Option<Spanned<u32>>,
    #[serde(default)]
    pub(super) control: ControlName,
    #[serde(default)]
    pub(super) preset: Preset,
    #[serde(default)]
    pub(super) dcqcn: DcqcnTable,
    pub(super) cnp_spacing: Option<Lasting>,
    pub(super) cnp_dscp: Option<Spanned<u8>>,
}

/// Under the names of adapters' firmware.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct DcqcnTable {
    pub(super) dce_tcp_g: Option<u16>,
    pub(super) dce_tcp_rtt: Option<Lasting>,
    pub(super) initial_alpha_value: Option<u16>,
    pub(super) rate_reduce_monitor_period: Option<Lasting>,
    pub(super) rpg_min_rate: Option<Rated>,
    pub(super) rpg_max_rate: Option<Rated>,
    pub(super) rpg_time_reset: Option<Lasting>,
    pub(super) rpg_byte_reset: Option<Bytes>,
    pub(super) rpg_threshold: Option<u8>,
    pub(super) rpg_ai_rate: Option<Rated>,
    pub(super) rpg_hai_rate: Option<Rated>,
    pub(super) clamp_tgt_rate: Option<bool>,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum Spread {
    #[default]
    Flow,
    Flowlet,
    Packet,
    Spray,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub(super) struct SwitchTable {
    pub(super) buffer: Option<Bytes>,
    pub(super) reserve: Option<Bytes>,
    pub(super) alpha: Option<Ratio>,
    pub(super) lossless: Option<Vec<Spanned<u8>>>,
    pub(super) headroom: Option<Bytes>,
    pub(super) xoff: Option<Bytes>,
    pub(super) xon_offset: Option<Bytes>,
    pub(super) quanta: Option<u16>,
    pub(super) ecn: Option<bool>,
    pub(super) kmin: Option<Bytes>,
    pub(super) kmax: Option<Bytes>,
    pub(super) pmax: Option<Part>,
    #[serde(default)]
    pub(super) balance: Spread,
    pub(super) flowlet_gap: Option<Lasting>,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum Work {
    Stream,
    Incast,
    Permutation,
    Poisson,
    AllReduce,
    AllToAll,
    RequestResponse,
    Storage,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum Algorithm {
    #[default]
    Ring,
    HalvingDoubling,
    Tree,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum VerbName {
    #[default]
    Write,
    Read,
    Send,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub(super) struct Workload {
    pub(super) kind: Work,
    pub(super) name: Option<String>,
    pub(super) from: Option<Spanned<Vec<String>>>,
    pub(super) to: Option<Spanned<Vec<String>>>,
    pub(super) hosts: Option<Spanned<Vec<String>>>,
    pub(super) bytes: Option<Bytes>,
    pub(super) response: Option<Bytes>,
    pub(super) message: Option<Bytes>,
    pub(super) depth: Option<u32>,
    pub(super) count: Option<u32>,
    pub(super) replicas: Option<u32>,
    pub(super) think: Option<Lasting>,
    pub(super) start: Option<Lasting>,
    pub(super) lasts: Option<Lasting>,
    pub(super) load: Option<Part>,
    pub(super) sizes: Option<Spanned<String>>,
    #[serde(default)]
    pub(super) algorithm: Algorithm,
    #[serde(default)]
    pub(super) verb: VerbName,
    pub(super) dscp: Option<Spanned<u8>>,
    pub(super) timeout: Option<Spanned<u8>>,
    pub(super) retries: Option<Spanned<u8>>,
}
