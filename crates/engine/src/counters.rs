//! What the device counts, under the names of the kernel's `hw_counters` where one exists. Those of
//! a queue pair are in `counters/pair`, those of the link in `live`.

pub(crate) mod pair;
mod table;

use wire::Operation;

pub use pair::{QpCounters, QpExceptions, QpTraffic};
pub use table::{CounterInfo, CounterKind};

crate::counter_table! {
    /// Counters of a device; each only grows.
    pub struct Counters {
        counts {
            /// Packets received, after the link's own checks.
            rx_packets,
            /// Copies of multicast packets beyond the first, one for each further member.
            rx_multicast_copies,
            /// Packets taken: executed, or of effect on a request of ours. All others are
            /// duplicates or have one cause of a drop.
            rx_accepted,
            /// Payload bytes received and placed.
            rx_bytes,
            /// Payload bytes received that were not placed.
            rx_dropped_bytes,
            /// Packets sent.
            tx_packets,
            /// Payload bytes sent, resent ones included.
            tx_bytes,
            /// SEND packets received by queue pairs that take them.
            rx_send_packets,
            /// Payload bytes in SEND packets received.
            rx_send_bytes,
            /// RDMA WRITE packets received by queue pairs that take them.
            rx_write_packets,
            /// Payload bytes in RDMA WRITE packets received.
            rx_write_bytes,
            /// READ request packets received by queue pairs that take them.
            rx_read_packets,
            /// READ response packets received by queue pairs that take them.
            rx_read_response_packets,
            /// Payload bytes in READ response packets received.
            rx_read_response_bytes,
            /// Atomic request packets received by queue pairs that take them.
            rx_atomic_packets,
            /// Atomic response packets received by queue pairs that take them.
            rx_atomic_response_packets,
            /// ACK and NAK packets received by queue pairs that take them.
            rx_ack_packets,
            /// SEND packets sent.
            tx_send_packets,
            /// Payload bytes in SEND packets sent.
            tx_send_bytes,
            /// RDMA WRITE packets sent.
            tx_write_packets,
            /// Payload bytes in RDMA WRITE packets sent.
            tx_write_bytes,
            /// READ request packets sent.
            tx_read_packets,
            /// READ response packets sent.
            tx_read_response_packets,
            /// Payload bytes in READ response packets sent.
            tx_read_response_bytes,
            /// Atomic request packets sent.
            tx_atomic_packets,
            /// Atomic response packets sent.
            tx_atomic_response_packets,
            /// ACK and NAK packets sent.
            tx_ack_packets,
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
            /// ACKs that left behind a packet of the queue pair's own.
            tx_acks_riding,
            /// ACKs owed that a later one answered too.
            acks_coalesced,
            /// NAKs for a PSN sequence error sent.
            tx_seq_naks,
            /// RNR NAKs sent.
            tx_rnr_naks,
            /// Invalid request NAKs sent.
            tx_invalid_request_naks,
            /// Remote access NAKs sent.
            tx_access_naks,
            /// Remote operational NAKs sent.
            tx_operational_naks,
            /// Requests with a PSN ahead of the expected one.
            out_of_sequence,
            /// Requests with a PSN behind the expected one: answered again, not executed.
            duplicate_request,
            /// Of the requests ahead, those that came while a NAK was outstanding.
            rx_after_nak,
            /// NAKs for a PSN sequence error received.
            packet_seq_err,
            /// RNR NAKs received.
            rnr_nak_retry_err,
            /// ACK timeouts.
            local_ack_timeout_err,
            /// Gaps in responses that were asked for again.
            implied_nak_seq_err,
            /// Requests given up because the retries were exhausted.
            req_transport_retries_exceeded,
            /// Requests given up because the RNR retries were exhausted.
            req_rnr_retries_exceeded,
            /// Packets sent again.
            retransmitted_packets,
            /// Payload bytes sent again.
            retransmitted_bytes,
            /// Packets sent once more because acknowledgements stopped coming.
            tx_probes,
            /// Remote access NAKs received.
            req_remote_access_errors,
            /// Invalid request NAKs received.
            req_remote_invalid_request,
            /// Remote operational NAKs received.
            req_remote_operational_errors,
            /// Send completions in error, flushed ones included.
            req_cqe_error,
            /// Send completions flushed.
            req_cqe_flush_error,
            /// Receive completions in error, flushed ones included.
            resp_cqe_error,
            /// Receive completions flushed.
            resp_cqe_flush_error,
            /// UC messages cut by a gap.
            uc_dropped_messages,
            /// Times that a peer was asked how far it has come with what unreliable services sent.
            tx_flow_asks,
            /// Such questions received, and answered.
            rx_flow_asks,
            /// Answers received.
            rx_flow_answers,
            /// Flows of unreliable services that went on without answers.
            flow_given_up,
            /// Accesses to registered memory that had gone or did not allow them.
            memory_faults,
            /// CNPs sent.
            np_cnp_sent,
            /// Packets received with the CE mark.
            np_ecn_marked_roce_packets,
            /// CNPs received and obeyed.
            rp_cnp_handled,
        }
        drops {
            /// Packets for a queue pair that does not exist.
            rx_unknown_qp,
            /// Packets from another address than the connected peer's, or to another than ours.
            rx_wrong_address,
            /// Packets for a queue pair that is not ready to receive.
            rx_wrong_state,
            /// Packets with another partition key.
            rx_wrong_pkey,
            /// Packets with an opcode that is unknown, not offered or of another service.
            rx_wrong_opcode,
            /// CNPs ignored: congestion control is off, or they are not from the peer.
            rp_cnp_ignored,
            /// Datagrams with another Q_Key.
            rx_wrong_qkey,
            /// Datagrams longer than their receive buffer, which needs 40 bytes more.
            rx_datagram_too_long,
            /// Requests beyond the expected PSN of a reliable connection.
            rx_beyond_expected,
            /// Requests that found no receive request.
            out_of_buffer,
            /// Messages longer than their receive buffer.
            resp_local_length_error,
            /// Requests whose receive buffer may not be written.
            resp_local_protection_error,
            /// Requests refused for key, range or right.
            resp_remote_access_errors,
            /// Requests refused as invalid.
            resp_remote_invalid_request,
            /// Requests that the host's memory failed.
            resp_remote_operational_errors,
            /// UC packets of a message whose beginning is missing.
            rx_after_cut,
            /// Acknowledgements and responses outside what is unacknowledged, or without effect.
            rx_stale_ack,
            /// Responses beyond a gap.
            rx_beyond_gap,
            /// Responses that cannot belong to their request, or cannot be placed.
            rx_bad_response,
        }
        losses {
            /// Datagrams longer than the port's MTU that were not sent.
            tx_datagram_too_long,
        }
    }
}

impl Counters {
    /// A packet for a queue pair that takes it has come.
    pub(crate) fn came(&mut self, operation: Operation, bytes: usize) {
        let bytes = bytes as u64;
        if operation.is_write() {
            self.rx_write_packets += 1;
            self.rx_write_bytes += bytes;
        } else if operation.is_send() {
            self.rx_send_packets += 1;
            self.rx_send_bytes += bytes;
        } else if operation == Operation::Acknowledge {
            self.rx_ack_packets += 1;
        } else if operation.is_read_response() {
            self.rx_read_response_packets += 1;
            self.rx_read_response_bytes += bytes;
        } else if operation == Operation::ReadRequest {
            self.rx_read_packets += 1;
        } else if operation == Operation::AtomicAcknowledge {
            self.rx_atomic_response_packets += 1;
        } else {
            self.rx_atomic_packets += 1;
        }
    }

    /// A packet has been put into a train.
    pub(crate) fn leaves(&mut self, operation: Operation, bytes: u32) {
        let bytes = u64::from(bytes);
        self.tx_bytes += bytes;
        if operation.is_write() {
            self.tx_write_packets += 1;
            self.tx_write_bytes += bytes;
        } else if operation.is_send() {
            self.tx_send_packets += 1;
            self.tx_send_bytes += bytes;
        } else if operation == Operation::Acknowledge {
            self.tx_ack_packets += 1;
        } else if operation.is_read_response() {
            self.tx_read_response_packets += 1;
            self.tx_read_response_bytes += bytes;
        } else if operation == Operation::ReadRequest {
            self.tx_read_packets += 1;
        } else if operation == Operation::AtomicAcknowledge {
            self.tx_atomic_response_packets += 1;
        } else {
            self.tx_atomic_packets += 1;
        }
    }

    /// Whether every received packet has been accounted for, once.
    pub(crate) fn is_balanced(&self) -> bool {
        self.rx_packets + self.rx_multicast_copies
            == self.rx_accepted + self.duplicate_request + self.dropped()
    }
}
