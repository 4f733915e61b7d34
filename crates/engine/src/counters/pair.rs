//! What is counted of each queue pair: a small record that every one has, and a larger one that it
//! gets when something out of the ordinary happens to it for the first time.

use wire::{NakCode, Syndrome};

use crate::counters::Counters;
use crate::qp::facts::{Facts, Shared};
use crate::qp::refusal::Fault;
use crate::work::SendOp;

crate::counter_table! {
    /// The ordinary traffic of a queue pair; each counter only grows.
    pub struct QpTraffic {
        counts {
            /// Packets received for it, after the checks that all packets have to pass.
            rx_packets,
            /// Payload bytes received and placed.
            rx_bytes,
            /// Packets sent.
            tx_packets,
            /// Payload bytes sent, resent ones included.
            tx_bytes,
            /// SEND messages executed.
            rx_send_requests,
            /// WRITE messages executed.
            rx_write_requests,
            /// READ requests executed.
            rx_read_requests,
            /// Atomic requests executed.
            rx_atomic_requests,
            /// SEND messages begun.
            tx_send_requests,
            /// WRITE messages begun.
            tx_write_requests,
            /// READs begun.
            tx_read_requests,
            /// Atomics begun.
            tx_atomic_requests,
            /// ACKs sent.
            tx_acks,
            /// ACKs owed that a later one answered too.
            acks_coalesced,
        }
        drops {}
        losses {}
    }
}

/// Declares the counters that a queue pair has of those that its device has.
macro_rules! exceptions {
    (
        counts { $($count:ident: $count_doc:literal,)* }
        drops { $($drop:ident: $drop_doc:literal,)* }
        losses { $($loss:ident: $loss_doc:literal,)* }
    ) => {
        crate::counter_table! {
            /// What is out of the ordinary in the traffic of a queue pair; each counter only grows,
            /// and means what the one of the same name in [`Counters`] means.
            pub struct QpExceptions {
                counts { $(#[doc = $count_doc] $count,)* }
                drops { $(#[doc = $drop_doc] $drop,)* }
                losses { $(#[doc = $loss_doc] $loss,)* }
            }
        }
    };
}

exceptions! {
    counts {
        retransmitted_packets: "Packets sent again.",
        retransmitted_bytes: "Payload bytes sent again.",
        tx_probes: "Packets sent once more because acknowledgements stopped coming.",
        local_ack_timeout_err: "ACK timeouts.",
        packet_seq_err: "NAKs for a PSN sequence error received.",
        rnr_nak_retry_err: "RNR NAKs received.",
        implied_nak_seq_err: "Gaps in responses that were asked for again.",
        req_transport_retries_exceeded: "Requests given up: the retries were exhausted.",
        req_rnr_retries_exceeded: "Requests given up: the RNR retries were exhausted.",
        req_remote_access_errors: "Remote access NAKs received.",
        req_remote_invalid_request: "Invalid request NAKs received.",
        req_remote_operational_errors: "Remote operational NAKs received.",
        req_cqe_error: "Send completions in error, flushed ones included.",
        req_cqe_flush_error: "Send completions flushed.",
        resp_cqe_error: "Receive completions in error, flushed ones included.",
        resp_cqe_flush_error: "Receive completions flushed.",
        tx_seq_naks: "NAKs for a PSN sequence error sent.",
        tx_rnr_naks: "RNR NAKs sent.",
        tx_invalid_request_naks: "Invalid request NAKs sent.",
        tx_access_naks: "Remote access NAKs sent.",
        tx_operational_naks: "Remote operational NAKs sent.",
        out_of_sequence: "Requests with a PSN ahead of the expected one.",
        duplicate_request: "Requests with a PSN behind the expected one.",
        rx_after_nak: "Of the requests ahead, those that came while a NAK was outstanding.",
        uc_dropped_messages: "UC messages cut by a gap.",
        np_ecn_marked_roce_packets: "Packets received with the CE mark.",
        np_cnp_sent: "CNPs sent.",
        rp_cnp_handled: "CNPs received and obeyed.",
    }
    drops {
        rx_wrong_address: "Packets from another address than the connected peer's.",
        rx_wrong_state: "Packets that came while it was not ready to receive.",
        rx_wrong_pkey: "Packets with another partition key.",
        rx_wrong_opcode: "Packets with an opcode that is unknown or of another service.",
        rp_cnp_ignored: "CNPs ignored.",
        rx_wrong_qkey: "Datagrams with another Q_Key.",
        rx_datagram_too_long: "Datagrams longer than their receive buffer.",
        rx_beyond_expected: "Requests beyond the expected PSN of a reliable connection.",
        out_of_buffer: "Requests that found no receive request.",
        resp_local_length_error: "Messages longer than their receive buffer.",
        resp_local_protection_error: "Requests whose receive buffer may not be written.",
        resp_remote_access_errors: "Requests refused for key, range or right.",
        resp_remote_invalid_request: "Requests refused as invalid.",
        resp_remote_operational_errors: "Requests that the host's memory failed.",
        rx_after_cut: "UC packets of a message whose beginning is missing.",
        rx_stale_ack: "Acknowledgements and responses without effect.",
        rx_beyond_gap: "Responses beyond a gap.",
        rx_bad_response: "Responses that cannot belong to their request, or be placed.",
    }
    losses {
        tx_datagram_too_long: "Datagrams longer than the port's MTU that were not sent.",
    }
}

/// What a queue pair has counted since it was created.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct QpCounters {
    /// The ordinary.
    pub traffic: QpTraffic,
    /// What is not.
    pub exceptions: QpExceptions,
}

impl QpCounters {
    /// Names and values, in a fixed order.
    pub fn iter(&self) -> impl Iterator<Item = (&'static str, u64)> + use<> {
        self.traffic.iter().chain(self.exceptions.iter())
    }
}

/// The counters of a queue pair as the device keeps them.
#[derive(Clone, Debug, Default)]
pub(crate) struct Tally {
    pub(crate) traffic: QpTraffic,
    exceptions: Option<Box<QpExceptions>>,
}

impl Tally {
    pub(crate) fn exceptions(&mut self) -> &mut QpExceptions {
        self.exceptions.get_or_insert_default()
    }

    /// The counters as they stand.
    pub(crate) fn counters(&self) -> QpCounters {
        let exceptions = self.exceptions.as_deref().copied().unwrap_or_default();
        QpCounters { traffic: self.traffic, exceptions }
    }
}

/// Adds to a counter of the device and to that of the queue pair with an index.
macro_rules! count {
    ($sh:expr, $index:expr, $name:ident) => {
        $crate::counters::pair::count!($sh, $index, $name, 1)
    };
    ($sh:expr, $index:expr, $name:ident, $n:expr) => {{
        let n: u64 = $n;
        $sh.counters.$name += n;
        if let Some(tally) = $sh.tallies.get_mut($index as usize)
            && n > 0
        {
            tally.exceptions().$name += n;
        }
    }};
}
pub(crate) use count;

/// The same for counters of ordinary traffic.
macro_rules! count_traffic {
    ($sh:expr, $index:expr, $name:ident) => {
        $crate::counters::pair::count_traffic!($sh, $index, $name, 1)
    };
    ($sh:expr, $index:expr, $name:ident, $n:expr) => {{
        let n: u64 = $n;
        $sh.counters.$name += n;
        if let Some(tally) = $sh.tallies.get_mut($index as usize) {
            tally.traffic.$name += n;
        }
    }};
}
pub(crate) use count_traffic;

/// What the device had counted before something was done for a queue pair.
#[derive(Clone, Copy)]
pub(crate) struct Before {
    rx_bytes: u64,
    tx_bytes: u64,
    tx_packets: u64,
}

impl Before {
    pub(crate) fn of(counters: &Counters) -> Self {
        let &Counters { rx_bytes, tx_bytes, tx_packets, .. } = counters;
        Self { rx_bytes, tx_bytes, tx_packets }
    }
}

impl<M> Shared<M> {
    /// A new queue pair has this index.
    pub(crate) fn begin_tally(&mut self, index: u32) {
        let index = index as usize;
        if self.tallies.len() <= index {
            self.tallies.resize_with(index + 1, Tally::default);
        }
        self.tallies[index] = Tally::default();
    }

    /// The queue pair with this index has gone.
    pub(crate) fn end_tally(&mut self, index: u32) {
        if let Some(tally) = self.tallies.get_mut(index as usize) {
            *tally = Tally::default();
        }
    }

    /// A queue pair has been given a packet.
    pub(crate) fn book_received(&mut self, index: u32, before: Before) {
        if let Some(Tally { traffic, .. }) = self.tallies.get_mut(index as usize) {
            traffic.rx_packets += 1;
            traffic.rx_bytes += self.counters.rx_bytes - before.rx_bytes;
        }
    }

    /// A queue pair has filled a train.
    pub(crate) fn book_sent(&mut self, index: u32, before: Before) {
        if let Some(Tally { traffic, .. }) = self.tallies.get_mut(index as usize) {
            traffic.tx_packets += self.counters.tx_packets - before.tx_packets;
            traffic.tx_bytes += self.counters.tx_bytes - before.tx_bytes;
        }
    }

    /// A message begins.
    pub(crate) fn count_begun(&mut self, index: u32, op: &SendOp) {
        match op {
            SendOp::Read(_) => count_traffic!(self, index, tx_read_requests),
            SendOp::CompareSwap { .. } | SendOp::FetchAdd { .. } => {
                count_traffic!(self, index, tx_atomic_requests);
            }
            SendOp::Write(_) | SendOp::WriteImm(..) => {
                count_traffic!(self, index, tx_write_requests);
            }
            _ => count_traffic!(self, index, tx_send_requests),
        }
    }

    /// Counts a request that could not be executed.
    pub(crate) fn count_fault(&mut self, q: &Facts, fault: Fault) {
        match fault {
            Fault::NotReady => count!(self, q.index, out_of_buffer),
            Fault::Access => count!(self, q.index, resp_remote_access_errors),
            Fault::TooLong => count!(self, q.index, resp_local_length_error),
            Fault::Receive => count!(self, q.index, resp_local_protection_error),
            Fault::Operational => count!(self, q.index, resp_remote_operational_errors),
            Fault::Invalid => count!(self, q.index, resp_remote_invalid_request),
        }
    }

    /// A NAK leaves.
    pub(crate) fn count_nak(&mut self, index: u32, syndrome: Syndrome) {
        match syndrome {
            Syndrome::Nak(NakCode::PsnSequenceError) => count!(self, index, tx_seq_naks),
            Syndrome::RnrNak(_) => count!(self, index, tx_rnr_naks),
            Syndrome::Nak(NakCode::RemoteAccessError) => count!(self, index, tx_access_naks),
            Syndrome::Nak(NakCode::RemoteOperationalError) => {
                count!(self, index, tx_operational_naks);
            }
            _ => count!(self, index, tx_invalid_request_naks),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_queue_pair_pays_little_for_being_counted() {
        assert!(size_of::<Tally>() <= 128, "{} bytes", size_of::<Tally>());
        let mut tally = Tally::default();
        assert!(tally.exceptions.is_none());
        tally.exceptions().tx_probes += 2;
        assert_eq!(tally.counters().exceptions.tx_probes, 2);
    }
}
