//! What the device has to say of a packet, for the capture: what it counted when it took it.

use engine::counters::CounterKind;
use engine::{Counters, Device, Payload};
use wire::{Instant, Packet};

use crate::capture::Remark;
use crate::mem::ProcessMemory;

type Counter = fn(&Counters) -> u64;

/// A counter, and what it says of the packet with which it grew. What tells most comes first.
const REMARKS: &[(Counter, &str)] = &[
    (|c| c.rx_after_nak, "out of sequence, dropped: the missing packet has been asked for"),
    (|c| c.out_of_sequence, "out of sequence: packets before it are missing"),
    (|c| c.duplicate_request, "duplicate request, executed before"),
    (|c| c.implied_nak_seq_err, "out of sequence: responses before it are missing"),
    (|c| c.rx_beyond_gap, "out of sequence, dropped: responses before it are missing"),
    (|c| c.rx_stale_ack, "duplicate or stale response"),
    (|c| c.rx_after_cut, "dropped, the beginning of its message is missing"),
    (|c| c.uc_dropped_messages, "ends or cuts a message of which packets are missing, dropped"),
    (|c| c.out_of_buffer, "no receive request for it"),
    (|c| c.rx_unknown_qp, "dropped, no such queue pair"),
    (|c| c.rx_wrong_address, "dropped, not from the connected peer"),
    (|c| c.rx_wrong_state, "dropped, the queue pair is not ready to receive"),
    (|c| c.rx_wrong_pkey, "dropped, wrong partition key"),
    (|c| c.rx_wrong_opcode, "dropped, opcode not of the queue pair's service"),
    (|c| c.rx_wrong_qkey, "dropped, wrong Q_Key"),
    (|c| c.rx_datagram_too_long, "dropped, longer than its receive buffer"),
    (|c| c.resp_remote_access_errors, "refused: key, range or right"),
    (|c| c.resp_remote_invalid_request, "refused: invalid request"),
    (|c| c.resp_local_length_error, "refused: longer than its receive buffer"),
];

/// Lets the device take a packet; what it has to say of it.
pub(super) fn receive(
    device: &mut Device<ProcessMemory>,
    now: Instant,
    packet: &Packet<Payload<'_>>,
) -> Remark {
    let before = *device.counters();
    device.receive(now, packet);
    said(&before, device.counters())
}

/// What the device says of the packet that it took between these counters.
pub(super) fn said(before: &Counters, after: &Counters) -> Remark {
    let usual = after.rx_accepted == before.rx_accepted + 1;
    if usual && after.uc_dropped_messages == before.uc_dropped_messages {
        return None;
    }
    let grown = REMARKS.iter().find(|(counter, _)| counter(after) != counter(before));
    if let Some((_, text)) = grown {
        return Some(text);
    }
    if after.dropped() == before.dropped() {
        return None;
    }
    // A cause that has no words of its own here.
    let causes = after.iter().zip(before.iter()).zip(Counters::INFO);
    let mut grown = causes.filter(|((now, then), _)| now.1 != then.1).map(|(_, info)| info);
    grown.find(|info| info.kind == CounterKind::Drop).map(|info| info.name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_counter_that_grew_speaks() {
        let before = Counters { duplicate_request: 7, rx_packets: 3, ..Counters::default() };
        let usual = Counters { rx_packets: 4, ..before };
        assert_eq!(said(&before, &Counters { rx_accepted: 1, ..usual }), None);
        assert_eq!(said(&before, &usual), None);
        let again = Counters { duplicate_request: 8, ..usual };
        assert_eq!(said(&before, &again), Some("duplicate request, executed before"));
        let ahead = Counters { out_of_sequence: 1, ..usual };
        assert!(said(&before, &ahead).is_some_and(|text| text.contains("missing")));
        let odd = Counters { rx_bad_response: 1, ..usual };
        assert_eq!(said(&before, &odd), Some("rx_bad_response"));
        let silent = Counters { rx_after_nak: 1, ..ahead };
        assert!(said(&before, &silent).is_some_and(|text| text.contains("asked for")));
    }
}
