//! Whether a configuration can work. What is refused is named: field, value, expectation.

use crate::config::{Alpha, Scheduling, SwitchConfig};
use crate::options::Options;

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
    for (index, share) in options.port_alpha.iter().enumerate() {
        if let Some(share) = share {
            alpha(&format!("port_alpha of port {index}"), *share)?;
        }
    }
    let mut kept = 0_u64;
    for (index, port) in config.ports.iter().enumerate() {
        if port.rate.as_bps() == 0 {
            return Err(format!("ports[{index}].rate: 0 bit/s, expected a rate above 0"));
        }
        for pfc in port.pfc.iter().flatten() {
            kept = kept.saturating_add(pfc.headroom).saturating_add(config.buffer.reserve);
            if pfc.quanta == 0 {
                return Err(format!(
                    "ports[{index}].pfc.quanta: 0 would end a pause, expected 1 to 65535"
                ));
            }
        }
        for (queue, how) in port.scheduling.iter().enumerate() {
            if matches!(how, Scheduling::Weighted(weight) if weight.0 == 0) {
                return Err(format!(
                    "ports[{index}].scheduling[{queue}]: a weight of 0, expected 1 to 255"
                ));
            }
        }
    }
    if kept > config.buffer.total {
        return Err(format!(
            "buffer.total: {} bytes, expected at least the {kept} bytes that headroom and reserve \
             of all ports' lossless priorities take",
            config.buffer.total
        ));
    }
    Ok(kept)
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
