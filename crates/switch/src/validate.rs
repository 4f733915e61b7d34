//! Whether a configuration can work. What is refused is named: field, value, expectation.

use crate::config::{Alpha, EcnProfile, PortConfig, Scheduling, SwitchConfig};
use crate::options::{Options, PortVlans};

/// The largest cell.
const CELL: u32 = 1 << 16;
/// Parts of a chance.
const PPB: u32 = 1_000_000_000;

/// Checks a configuration and gives the bytes of the buffer that are not shared.
pub(crate) fn check(config: &SwitchConfig, options: &Options) -> Result<u64, String> {
    let ports = config.ports.len();
    if ports > usize::from(u16::MAX) {
        return Err(format!("ports: {ports} are configured, expected at most 65535"));
    }
    alpha("buffer.alpha", config.buffer.alpha)?;
    if let Some(share) = config.buffer.egress_alpha {
        alpha("buffer.egress_alpha", share)?;
    }
    if config.buffer.cell > CELL {
        return Err(format!("buffer.cell: {} bytes, expected at most {CELL}", config.buffer.cell));
    }
    below_eight("dscp_map", &config.dscp_map)?;
    below_eight("class_of", &config.class_of)?;
    let mut kept = 0_u64;
    for (index, port) in config.ports.iter().enumerate() {
        check_port(port).map_err(|what| format!("ports[{index}].{what}"))?;
        let own = port.pfc.iter().flatten();
        let own = own.map(|pfc| pfc.headroom.saturating_add(config.buffer.reserve));
        kept = own.fold(kept, u64::saturating_add);
    }
    let total = config.buffer.total;
    if kept > total {
        return Err(format!(
            "buffer.total: {total} bytes, expected at least the {kept} bytes that headroom and \
             reserve of all ports' lossless priorities take"
        ));
    }
    for (index, port) in config.ports.iter().enumerate() {
        for (priority, pfc) in port.pfc.iter().enumerate() {
            let Some(xoff) = pfc.and_then(|pfc| pfc.xoff) else { continue };
            if xoff > total - kept {
                return Err(format!(
                    "ports[{index}].pfc[{priority}].xoff: {xoff} bytes, expected at most the \
                     {} bytes that are shared",
                    total - kept
                ));
            }
        }
    }
    check_options(ports, options)?;
    Ok(kept)
}

fn check_port(port: &PortConfig) -> Result<(), String> {
    if port.rate.as_bps() == 0 {
        return Err("rate: 0 bit/s, expected a rate above 0".to_owned());
    }
    for (priority, pfc) in port.pfc.iter().enumerate() {
        let Some(pfc) = pfc else { continue };
        if pfc.quanta == 0 {
            return Err(format!(
                "pfc[{priority}].quanta: 0 would end a pause, expected 1 to 65535"
            ));
        }
        if let Some(xoff) = pfc.xoff
            && pfc.xon_offset > xoff
        {
            return Err(format!(
                "pfc[{priority}].xon_offset: {} bytes, expected at most the {xoff} bytes of xoff",
                pfc.xon_offset
            ));
        }
    }
    for (queue, ecn) in port.ecn.iter().enumerate() {
        if let Some(ecn) = ecn {
            check_ecn(ecn).map_err(|what| format!("ecn[{queue}].{what}"))?;
        }
    }
    for (queue, how) in port.scheduling.iter().enumerate() {
        if matches!(how, Scheduling::Weighted(weight) if weight.0 == 0) {
            return Err(format!("scheduling[{queue}]: a weight of 0, expected 1 to 255"));
        }
    }
    Ok(())
}

fn check_ecn(ecn: &EcnProfile) -> Result<(), String> {
    let EcnProfile { kmin, kmax, pmax_ppb, average_shift, .. } = *ecn;
    if kmin > kmax {
        return Err(format!("kmin: {kmin} bytes, expected at most kmax, {kmax} bytes"));
    }
    if pmax_ppb > PPB {
        return Err(format!("pmax_ppb: {pmax_ppb}, expected at most {PPB} (certainty)"));
    }
    if average_shift > 31 {
        return Err(format!("average_shift: {average_shift}, expected 0 to 31"));
    }
    Ok(())
}

fn check_options(ports: usize, options: &Options) -> Result<(), String> {
    if options.port_alpha.len() > ports {
        return Err(format!(
            "port_alpha: {} values, expected at most one for each of {ports} ports",
            options.port_alpha.len()
        ));
    }
    for (index, share) in options.port_alpha.iter().enumerate() {
        if let Some(share) = share {
            alpha(&format!("port_alpha[{index}]"), *share)?;
        }
    }
    if !options.vlans.is_empty() && options.vlans.len() != ports {
        return Err(format!(
            "vlans: {} values, expected none or one for each of {ports} ports",
            options.vlans.len()
        ));
    }
    for (index, vlans) in options.vlans.iter().enumerate() {
        check_vlans(vlans).map_err(|what| format!("vlans[{index}].{what}"))?;
    }
    for (index, mirror) in options.mirrors.iter().enumerate() {
        let [of, to] = [mirror.of, mirror.to].map(usize::from);
        let twice = options.mirrors[..index].iter().any(|other| other.of == mirror.of);
        if of >= ports || to >= ports || of == to || twice {
            return Err(format!(
                "mirrors[{index}]: of {of} to {to}, expected two different ports below {ports}, \
                 and one mirror for a port"
            ));
        }
    }
    if options.dcbx.len() > ports {
        return Err(format!(
            "dcbx: {} values, expected at most one for each of {ports} ports",
            options.dcbx.len()
        ));
    }
    if let Some(watchdog) = &options.watchdog {
        let zero = wire::Span::ZERO;
        if watchdog.poll == zero || watchdog.restoration == zero {
            return Err("watchdog.poll, .restoration: 0, expected more than 0".to_owned());
        }
        if watchdog.detection < watchdog.poll {
            return Err(format!(
                "watchdog.detection: {:?}, expected at least watchdog.poll, {:?}",
                watchdog.detection, watchdog.poll
            ));
        }
    }
    Ok(())
}

fn check_vlans(vlans: &PortVlans) -> Result<(), String> {
    let all = || vlans.untagged.iter().chain(&vlans.tagged);
    if let Some(vlan) = all().find(|vlan| !(1..=4094).contains(*vlan)) {
        return Err(format!("untagged, .tagged: VLAN {vlan}, expected 1 to 4094"));
    }
    if let Some(vlan) = all().find(|vlan| all().filter(|other| other == vlan).count() > 1) {
        return Err(format!("untagged, .tagged: VLAN {vlan} twice, expected each once"));
    }
    Ok(())
}

fn below_eight(field: &str, map: &[u8]) -> Result<(), String> {
    match map.iter().enumerate().find(|(_, value)| **value > 7) {
        Some((index, value)) => Err(format!("{field}[{index}]: {value}, expected 0 to 7")),
        None => Ok(()),
    }
}

fn alpha(field: &str, alpha: Alpha) -> Result<(), String> {
    match alpha {
        Alpha { denominator: 0, .. } => Err(format!("{field}.denominator: 0, expected 1 or more")),
        Alpha { numerator: 0, .. } => {
            Err(format!("{field}.numerator: 0 leaves no shared buffer, expected 1 or more"))
        }
        _ => Ok(()),
    }
}
