//! Counters as rows under the names that `ethtool -S` of an mlx5 adapter shows; what that does not
//! count has the name that SONiC gives it.

use crate::counters::{DropCause, PortCounters};

/// The name under which a cause of drops is shown.
pub fn cause(cause: DropCause) -> &'static str {
    match cause {
        DropCause::Headroom => "rx_drop_headroom",
        DropCause::Buffer => "rx_drop_buffer",
        DropCause::NoRoute => "rx_drop_no_route",
        DropCause::HopLimit => "rx_drop_hop_limit",
        DropCause::LinkDown => "rx_drop_link_down",
        DropCause::Watchdog => "rx_drop_pfcwd",
        DropCause::Reflection => "rx_drop_reflection",
        DropCause::Mirror => "mirror_drop",
    }
}

/// A port's counters, by name, always in the same order; causes of drops only where some are.
pub fn rows(counters: &PortCounters) -> Vec<(String, u64)> {
    let mut rows = Vec::new();
    for (number, priority) in counters.priorities.iter().enumerate() {
        let mut row =
            |name: &str, value| rows.push((name.replace('N', &number.to_string()), value));
        row("rx_prioN_bytes", priority.rx_bytes);
        row("rx_prioN_packets", priority.rx_frames);
        row("tx_prioN_bytes", priority.tx_bytes);
        row("tx_prioN_packets", priority.tx_frames);
        row("rx_prioN_pause", priority.rx_pause);
        // In microseconds, as the driver has it.
        row("rx_prioN_pause_duration", priority.rx_pause_duration / wire::units::PS_PER_US);
        row("rx_prioN_pause_transition", priority.rx_pause_transition);
        row("tx_prioN_pause", priority.tx_pause);
        row("rx_prioN_buf_discard", priority.rx_buf_discard);
        row("rx_prioN_cong_discard", priority.rx_cong_discard);
        row("rx_prioN_marked", priority.ecn_marked);
        row("pgN_watermark", priority.ingress_watermark);
        row("queueN_watermark", priority.egress_watermark);
    }
    rows.push(("rx_lldp_discards".to_owned(), counters.lldp_discards));
    rows.push(("tx_pause_storm_warning_events".to_owned(), counters.storms.0));
    rows.push(("tx_pause_storm_restored_events".to_owned(), counters.storms.1));
    rows.extend(counters.dropped.iter().map(|(&why, &count)| (cause(why).to_owned(), count)));
    rows
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_the_driver() {
        let mut counters = PortCounters::default();
        counters.priorities[3].rx_pause_duration = 7_999_999;
        counters.dropped.insert(DropCause::Headroom, 2);
        let rows = rows(&counters);
        assert_eq!(rows.len(), 8 * 13 + 3 + 1);
        assert!(rows.contains(&("rx_prio3_pause_duration".to_owned(), 7)));
        assert_eq!(rows.last(), Some(&("rx_drop_headroom".to_owned(), 2)));
    }
}
