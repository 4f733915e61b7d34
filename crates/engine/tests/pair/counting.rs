//! What must hold between counters at any time, whatever has happened.

use engine::counters::CounterKind;
use engine::{Counters, Device, HostMemory, QpReport};

/// All queue pairs of a device, looked at a few at a time.
pub fn reports<M: HostMemory>(device: &Device<M>) -> Vec<QpReport> {
    let mut out = Vec::new();
    let mut from = Some(0);
    while let Some(place) = from {
        from = device.report_qps(place, 3, &mut out);
    }
    out
}

/// Every packet received has been taken, was a duplicate, or has one cause of its drop; every one
/// sent is of one class; no queue pair has counted what its device has not.
#[track_caller]
pub fn adds_up<M: HostMemory>(device: &Device<M>, who: &str) {
    let c = device.counters();
    let causes: u64 = c
        .iter()
        .zip(Counters::INFO)
        .filter(|(_, info)| info.kind == CounterKind::Drop)
        .map(|((name, value), info)| {
            assert_eq!(name, info.name);
            value
        })
        .sum();
    assert_eq!(causes, c.dropped(), "{who}");
    assert_eq!(
        c.rx_packets + c.rx_multicast_copies,
        c.rx_accepted + c.duplicate_request + causes,
        "{who}: packets received"
    );
    let sent = c.tx_send_packets
        + c.tx_write_packets
        + c.tx_read_packets
        + c.tx_read_response_packets
        + c.tx_atomic_packets
        + c.tx_atomic_response_packets
        + c.tx_ack_packets;
    assert_eq!(sent, c.tx_packets, "{who}: packets sent, by class");
    let bytes = c.tx_send_bytes + c.tx_write_bytes + c.tx_read_response_bytes;
    assert_eq!(bytes, c.tx_bytes, "{who}: bytes sent, by class");
    let pairs = reports(device);
    assert_eq!(pairs.len(), device.objects().qps as usize);
    for (name, value) in c.iter() {
        let of_pairs: u64 = pairs
            .iter()
            .flat_map(|qp| qp.counters.iter().filter(|(n, _)| *n == name))
            .map(|(_, value)| value)
            .sum();
        assert!(of_pairs <= value, "{who}: {name} is {value}, of its queue pairs {of_pairs}");
    }
}
