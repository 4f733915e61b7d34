//! What a link counts. The device's own counters are in `engine::counters`.

engine::counter_table! {
    /// Counters of a link; each only grows.
    pub struct LinkCounters {
        counts {
            /// Messages taken from the kernel; one may hold a whole train of packets.
            rx_messages,
            /// Packets in them.
            rx_packets,
            /// Packets for another process on the same address, sent on to it.
            rx_strays,
            /// Packets whose ICRC was right with a predicted IPv4 identification, or over IPv6.
            rx_icrc_ok,
            /// Packets whose ICRC was right with an identification solved from the ICRC itself.
            rx_icrc_solved,
            /// Of the packets with a wrong ICRC, those that an unexpected identification would have
            /// explained, from a peer whose identifications are always the expected ones.
            rx_icrc_refused,
            /// Send calls.
            tx_calls,
            /// Messages given to the kernel; one may hold a whole train of packets.
            tx_messages,
            /// Packets in them.
            tx_packets,
            /// Times that the kernel could take no more and the link had to wait.
            tx_blocked,
            /// Times that the kernel could not cut a train, so that its packets went one by one.
            tx_train_refused,
            /// Faults injected into received packets.
            faults_injected,
        }
        drops {
            /// Packets with a wrong ICRC.
            rx_icrc_encapsulated,
            /// Packets or messages shorter than their headers, or cut.
            rx_truncated,
            /// Packets with a transport version other than 0.
            rx_wrong_version,
            /// Packets with an opcode that no service defines.
            rx_unknown_opcode,
            /// Packets whose pad count does not fit their length.
            rx_wrong_pad,
            /// Packets malformed in another way.
            rx_malformed,
        }
        losses {
            /// Packets dropped by the kernel because the receive buffer was full.
            rx_kernel_drops,
            /// Packets that the kernel refused (no route, not permitted, too long).
            tx_refused,
            /// Packets from a GID that is not bound, or to one of another family.
            tx_no_path,
            /// Packets that have no form on the wire.
            tx_not_emitted,
        }
    }
}
