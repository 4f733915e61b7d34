//! The settings of DCQCN as mlx5 shows them: `ecn/roce_np` and `roce_rp` of the interface, or
//! `cc_params` of debugfs, under the names of the former; and as bnxt_re shows them, in configfs
//! for a whole port.

use std::collections::BTreeMap;

use crate::reader::{Reader, Seen};

/// Notification point (receiver) and reaction point (sender).
#[derive(Clone, Debug, Default)]
pub struct Ecn {
    /// Priorities for which the receiver sends CNPs, as a mask.
    pub np_enabled: Option<Seen<u8>>,
    /// Priorities for which the sender slows down, as a mask.
    pub rp_enabled: Option<Seen<u8>>,
    /// Parameters by their sysfs name.
    pub parameters: BTreeMap<&'static str, Seen<u64>>,
    /// The directory that sets them.
    pub dir: String,
    /// Whether it is on, where that is one switch for the port.
    pub enabled: Option<Seen<bool>>,
    /// The file to write 1 to, so that what was written to the others takes effect; none where
    /// nothing of the kind is needed.
    pub apply: Option<String>,
}

/// The parameters: name in sysfs with its part, name in debugfs.
const PARAMETERS: &[(&str, &str, &str)] = &[
    ("roce_rp", "clamp_tgt_rate", "rp_clamp_tgt_rate"),
    ("roce_rp", "clamp_tgt_rate_after_time_inc", "rp_clamp_tgt_rate_ati"),
    ("roce_rp", "dce_tcp_g", "rp_dce_tcp_g"),
    ("roce_rp", "dce_tcp_rtt", "rp_dce_tcp_rtt"),
    ("roce_rp", "initial_alpha_value", "rp_initial_alpha_value"),
    ("roce_rp", "rate_reduce_monitor_period", "rp_rate_reduce_monitor_period"),
    ("roce_rp", "rate_to_set_on_first_cnp", "rp_rate_to_set_on_first_cnp"),
    ("roce_rp", "rpg_ai_rate", "rp_ai_rate"),
    ("roce_rp", "rpg_byte_reset", "rp_byte_reset"),
    ("roce_rp", "rpg_gd", "rp_gd"),
    ("roce_rp", "rpg_hai_rate", "rp_hai_rate"),
    ("roce_rp", "rpg_max_rate", "rp_max_rate"),
    ("roce_rp", "rpg_min_dec_fac", "rp_min_dec_fac"),
    ("roce_rp", "rpg_min_rate", "rp_min_rate"),
    ("roce_rp", "rpg_threshold", "rp_threshold"),
    ("roce_rp", "rpg_time_reset", "rp_time_reset"),
    ("roce_np", "min_time_between_cnps", "np_min_time_between_cnps"),
    ("roce_np", "cnp_dscp", "np_cnp_dscp"),
    ("roce_np", "cnp_802p_prio", "np_cnp_prio"),
];

impl Ecn {
    /// A parameter by its name in sysfs.
    pub fn get(&self, name: &str) -> Option<&Seen<u64>> {
        self.parameters.get(name)
    }

    pub(crate) fn read(reader: &Reader<'_>, interface: &str, pci: Option<&str>) -> Self {
        let dir = format!("sys/class/net/{interface}/ecn");
        // One look, and one remark, instead of one for each parameter.
        let debug = pci.map(|pci| format!("sys/kernel/debug/mlx5/{pci}/cc_params"));
        let here = !reader.names(&dir, "roce_").is_empty();
        let debug = debug.filter(|debug| !here && !reader.names(debug, "").is_empty());
        if !here && debug.is_none() {
            let why = "no such directory: the driver shows no ECN settings here (nor in debugfs)";
            reader.note(format!("/{dir}"), why);
        }
        let mut parameters = BTreeMap::new();
        for (part, name, debug_name) in PARAMETERS {
            let expected = "a number (DCQCN parameter)";
            let seen = reader
                .number(&format!("{dir}/{part}/{name}"), expected)
                .or_else(|| reader.number(&format!("{}/{debug_name}", debug.as_ref()?), expected));
            if let Some(seen) = seen {
                parameters.insert(*name, seen);
            }
        }
        Self {
            np_enabled: enabled(reader, &format!("{dir}/roce_np/enable")),
            rp_enabled: enabled(reader, &format!("{dir}/roce_rp/enable")),
            parameters,
            dir: format!("/{dir}"),
            ..Self::default()
        }
    }

    /// The settings of a port of bnxt_re. They are there only while somebody keeps a directory of
    /// the device's name in configfs.
    pub(crate) fn of_bnxt(reader: &Reader<'_>, device: &str, port: u32) -> Self {
        let base = format!("sys/kernel/config/bnxt_re/{device}");
        let dir = format!("{base}/ports/{port}/cc");
        if reader.names(&dir, "").is_empty() {
            let why = "no settings of congestion control there: `mkdir` of the device's name \
                       shows them";
            reader.note(format!("/{base}"), why);
            return Self::default();
        }
        let number = |name: &str| {
            let seen = reader.word(&format!("{dir}/{name}"))?;
            let value = match seen.value.strip_prefix("0x") {
                Some(hex) => u64::from_str_radix(hex, 16).ok(),
                None => seen.value.parse().ok(),
            };
            reader.parsed(&seen, value, "a number such as 1 or 0x1")
        };
        let names = [("cnp_dscp", "cnp_dscp"), ("cnp_prio", "cnp_802p_prio")];
        let parameters = names.into_iter().filter_map(|(file, name)| Some((name, number(file)?)));
        Self {
            enabled: number("ecn_enable").map(|seen| seen.map(seen.value != 0)),
            parameters: parameters.collect(),
            apply: Some(format!("/{dir}/apply")),
            dir: format!("/{dir}"),
            ..Self::default()
        }
    }
}

/// The files `enable/0` to `enable/7`; none unless all eight are there.
fn enabled(reader: &Reader<'_>, dir: &str) -> Option<Seen<u8>> {
    let mut mask = 0;
    for priority in 0..8 {
        let seen: Seen<u8> = reader.number(&format!("{dir}/{priority}"), "0 or 1")?;
        mask |= u8::from(seen.value != 0) << priority;
    }
    Some(Seen { value: mask, from: format!("/{dir}") })
}
