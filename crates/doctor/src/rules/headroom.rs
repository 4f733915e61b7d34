//! Receive buffers of lossless priorities: whether what is under way after a pause fits.

use crate::catalogue::Rule;
use crate::finding::{Evidence, Finding};
use crate::rules::{Link, priorities};

/// Metres of cable that drivers assume.
const CABLE_M: f64 = 7.0;
/// The largest frame that mlx5 keeps between its two thresholds, bytes.
const LARGEST_FRAME: f64 = 9216.0;

/// Bytes that a lossless buffer of mlx5 needs: what the driver computes for the pause threshold,
/// and a largest frame above it.
fn mlx5_bytes(gbps: f64, cable_m: f64, mtu: f64) -> f64 {
    (301.0 + 2.16 * cable_m) * gbps.max(40.0) + 2.72 * mtu + mtu.max(LARGEST_FRAME)
}

/// Bytes that arrive at least between the decision to pause and silence: both ways of the cable (5
/// ns a metre), the peer's reaction (quanta of 512 bits, IEEE 802.3 31B.3.7), a frame begun at
/// either end.
fn least_bytes(gbps: f64, cable_m: f64, mtu: f64) -> f64 {
    let quanta = match gbps {
        speed if speed <= 10.0 => 60.0,
        speed if speed <= 40.0 => 118.0,
        _ => 394.0,
    };
    let propagation = 2.0 * 5.0 * cable_m * gbps / 8.0;
    propagation + quanta * 64.0 + 2.0 * mtu
}

pub(super) fn judge(link: &Link<'_>, out: &mut Vec<Finding>) {
    let qos = &link.interface.qos;
    let (Some(pfc), Some(headroom)) = (link.pfc(), &qos.headroom) else { return };
    let (Some(rate), Some(mtu)) = (link.rate(), &link.interface.mtu) else { return };
    let gbps = rate.value as f64 / 1000.0;
    let cable = qos.cable_m.as_ref();
    let metres = cable.map_or(CABLE_M, |seen| seen.value);
    let needed = if link.is_mlx5() { mlx5_bytes } else { least_bytes };
    let needed = needed(gbps, metres, f64::from(mtu.value));
    let mut told = Vec::new();
    for priority in priorities(pfc.value) {
        let buffer = headroom.value.buffer_of[usize::from(priority)];
        let Some(bytes) = headroom.value.bytes.get(usize::from(buffer)).copied() else { continue };
        if bytes as f64 >= needed || told.contains(&buffer) {
            continue;
        }
        told.push(buffer);
        let name = &link.interface.name;
        let mut sizes = headroom.value.bytes.clone();
        if let Some(size) = sizes.get_mut(usize::from(buffer)) {
            *size = needed.ceil() as u64;
        }
        let sizes: Vec<String> = sizes.iter().map(u64::to_string).collect();
        let wanted = needed.ceil();
        let remedy = if link.is_mlx5() {
            format!("mlnx_qos -i {name} --buffer_size {}", sizes.join(","))
        } else {
            format!("dcb buffer set dev {name} buffer-size {buffer}:{wanted}")
        };
        let what = format!("buffer {buffer} of priority {priority}");
        let length = match cable {
            Some(seen) => Evidence::new("cable", format!("{metres} m"), &seen.from),
            None => Evidence::new("cable", format!("{metres} m"), "assumed"),
        };
        out.push(
            Finding::new(Rule::Headroom, link.subject())
                .with(Evidence::new(what, format!("{bytes} bytes"), &headroom.from))
                .with(Evidence::new("needed", format!("{wanted} bytes"), "H039's formula"))
                .with(Evidence::new("speed", format!("{gbps} Gb/s"), &rate.from))
                .with(length)
                .with(Evidence::of("MTU", mtu))
                .mend(remedy),
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_drivers_formula() {
        // Without the frame above: 100 Gb/s, 100 m, 4096 bytes.
        let frame = LARGEST_FRAME;
        assert_eq!((mlx5_bytes(100.0, 100.0, 4096.0) - frame).round(), 62_841.0);
        assert_eq!((mlx5_bytes(400.0, 100.0, 4096.0) - frame).round(), 217_941.0);
        assert_eq!(mlx5_bytes(10.0, 7.0, 1500.0), mlx5_bytes(40.0, 7.0, 1500.0));
    }

    #[test]
    fn less_is_never_enough() {
        for gbps in [10.0, 25.0, 40.0, 100.0, 400.0] {
            assert!(least_bytes(gbps, 7.0, 1500.0) < mlx5_bytes(gbps, 7.0, 1500.0), "{gbps}");
        }
    }
}
