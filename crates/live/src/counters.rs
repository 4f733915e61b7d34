//! What a link counts. The device's own counters are in `engine::counters`.

use engine::FaultCounts;

engine::counter_table! {
    /// Counters of a link; each only grows.
    pub struct LinkCounters {
        counts {
            /// Messages taken from the kernel; one may hold a whole train of packets.
            rx_messages,
            /// Packets taken from the kernel.
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
            /// Packets given to the kernel.
            tx_packets,
            /// Times that the kernel could take no more and the link had to wait.
            tx_blocked,
            /// Times that the kernel could not cut a train, so that its packets went one by one.
            tx_train_refused,
            /// Faults injected into packets, of all kinds, both directions.
            faults_injected,
            /// One-shot faults that have struck.
            faults_struck,
            /// Received packets of which a duplicate was made.
            faults_rx_duplicated,
            /// Received packets that were held back for others to overtake.
            faults_rx_reordered,
            /// Received packets of which a bit was flipped.
            faults_rx_corrupted,
            /// Received packets that were given the CE mark.
            faults_rx_marked,
            /// Sent packets of which a duplicate was made.
            faults_tx_duplicated,
            /// Sent packets that were held back for others to overtake.
            faults_tx_reordered,
            /// Sent packets of which a bit was flipped.
            faults_tx_corrupted,
            /// Sent packets that were given the CE mark.
            faults_tx_marked,
        }
        drops {
            /// Packets for a slot of queue pair numbers that no process has, behind others.
            rx_nobodys,
            /// Packets for another process that could not be sent on to it.
            rx_strays_lost,
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
            /// Messages dropped by the kernel because the receive buffer was full.
            rx_kernel_drops,
            /// Packets that the kernel refused (no route, not permitted, too long).
            tx_refused,
            /// Packets from a GID that is not bound, or to one of another family.
            tx_no_path,
            /// Packets that have no form on the wire.
            tx_not_emitted,
            /// Received packets that were lost on purpose.
            faults_rx_lost,
            /// Received packets lost because the queue of the faults was full.
            faults_rx_overflowed,
            /// Received packets lost because a fault had taken the port down.
            faults_rx_cut,
            /// Sent packets that were lost on purpose.
            faults_tx_lost,
            /// Sent packets lost because the queue of the faults was full.
            faults_tx_overflowed,
            /// Sent packets lost because a fault had taken the port down.
            faults_tx_cut,
        }
    }
}

impl LinkCounters {
    /// Takes over what the fault stages have counted.
    pub(crate) fn count_faults(&mut self, rx: &FaultCounts, tx: &FaultCounts) {
        self.faults_injected = rx.total() + tx.total();
        self.faults_struck = rx.struck + tx.struck;
        self.faults_rx_lost = rx.lost;
        self.faults_rx_duplicated = rx.duplicated;
        self.faults_rx_reordered = rx.reordered;
        self.faults_rx_corrupted = rx.corrupted;
        self.faults_rx_overflowed = rx.overflowed;
        self.faults_rx_marked = rx.marked;
        self.faults_rx_cut = rx.cut;
        self.faults_tx_lost = tx.lost;
        self.faults_tx_duplicated = tx.duplicated;
        self.faults_tx_reordered = tx.reordered;
        self.faults_tx_corrupted = tx.corrupted;
        self.faults_tx_overflowed = tx.overflowed;
        self.faults_tx_marked = tx.marked;
        self.faults_tx_cut = tx.cut;
    }
}
