//! What the device counts, under the names of the kernel's `hw_counters` where one exists.

macro_rules! counters {
    ($($(#[$doc:meta])* $name:ident,)*) => {
        /// Counters of a device; each only grows.
        #[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
        pub struct Counters { $($(#[$doc])* pub $name: u64,)* }
        impl Counters {
            /// Names and values, in a fixed order.
            pub fn iter(&self) -> impl Iterator<Item = (&'static str, u64)> {
                [$((stringify!($name), self.$name),)*].into_iter()
            }
        }
    };
}

counters! {
    /// Packets received (after the link's own checks).
    rx_packets,
    /// Payload bytes received.
    rx_bytes,
    /// Packets sent.
    tx_packets,
    /// Payload bytes sent.
    tx_bytes,
    /// WRITE requests executed.
    rx_write_requests,
    /// READ requests executed.
    rx_read_requests,
    /// Atomic requests executed.
    rx_atomic_requests,
    /// SEND requests executed.
    rx_send_requests,
    /// Requests with a PSN ahead of the expected one.
    out_of_sequence,
    /// Requests that found no receive request.
    out_of_buffer,
    /// NAKs for a PSN sequence error received.
    packet_seq_err,
    /// Requests with a PSN behind the expected one.
    duplicate_request,
    /// RNR NAKs received.
    rnr_nak_received,
    /// RNR retries exhausted.
    rnr_nak_retry_err,
    /// ACK timeouts.
    local_ack_timeout_err,
    /// Retries exhausted.
    transport_retry_exceeded,
    /// Responses beyond the one expected.
    implied_nak_seq_err,
    /// Packets sent again.
    retransmitted_packets,
    /// Packets sent once more because acknowledgements stopped coming.
    tx_probes,
    /// Remote access NAKs received.
    req_remote_access_errors,
    /// Invalid request NAKs received.
    req_remote_invalid_request,
    /// Remote operational NAKs received.
    req_remote_operational_errors,
    /// Send completions in error.
    req_cqe_error,
    /// Receive completions in error.
    resp_cqe_error,
    /// Messages longer than their receive buffer.
    resp_local_length_error,
    /// Requests refused for key, range or right.
    resp_remote_access_errors,
    /// Requests refused as invalid.
    resp_remote_invalid_request,
    /// Packets for a queue pair that does not exist.
    rx_unknown_qp,
    /// Packets from another address than the connected peer's, or to another than ours.
    rx_wrong_address,
    /// Packets for a queue pair that is not ready to receive.
    rx_wrong_state,
    /// Packets with another partition key.
    rx_wrong_pkey,
    /// Packets with an opcode that is unknown or of another service.
    rx_wrong_opcode,
    /// Datagrams with another Q_Key.
    rx_wrong_qkey,
    /// Datagrams longer than their receive buffer (which needs 40 bytes more than the message).
    rx_datagram_too_long,
    /// Packets dropped silently while a NAK is outstanding.
    rx_after_nak,
    /// Acknowledgements outside what is unacknowledged.
    rx_stale_ack,
    /// UC messages cut by a gap.
    uc_dropped_messages,
    /// Datagrams longer than the port's MTU that were not sent.
    tx_datagram_too_long,
    /// CNPs sent.
    np_cnp_sent,
    /// Packets received with the CE mark.
    np_ecn_marked_roce_packets,
    /// CNPs handled.
    rp_cnp_handled,
    /// CNPs ignored (congestion control is off, or no such queue pair).
    rp_cnp_ignored,
    /// Acknowledgements sent.
    tx_acks,
    /// Acknowledgements that left behind a packet of the queue pair's own.
    tx_acks_riding,
}
