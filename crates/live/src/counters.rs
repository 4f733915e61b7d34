//! What a link counts. The device's own counters are in `engine::counters`.

macro_rules! counters {
    ($($(#[$doc:meta])* $name:ident,)*) => {
        /// Counters of a link; each only grows.
        #[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
        pub struct LinkCounters { $($(#[$doc])* pub $name: u64,)* }
        impl LinkCounters {
            /// Names and values, in a fixed order.
            pub fn iter(&self) -> impl Iterator<Item = (&'static str, u64)> {
                [$((stringify!($name), self.$name),)*].into_iter()
            }
        }
    };
}

counters! {
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
    /// Packets with a wrong ICRC, dropped.
    rx_icrc_encapsulated,
    /// Of those, packets that an unexpected identification would have explained, from a peer whose
    /// identifications are always the expected ones.
    rx_icrc_refused,
    /// Messages shorter than their headers, or cut.
    rx_truncated,
    /// Packets with a transport version other than 0.
    rx_wrong_version,
    /// Packets with an opcode that no service defines.
    rx_unknown_opcode,
    /// Packets whose pad count does not fit their length.
    rx_wrong_pad,
    /// Packets malformed in another way.
    rx_malformed,
    /// Packets dropped by the kernel because the receive buffer was full.
    rx_kernel_drops,
    /// Send calls.
    tx_calls,
    /// Messages given to the kernel; one may hold a whole train of packets.
    tx_messages,
    /// Packets in them.
    tx_packets,
    /// Times that the kernel could take no more and the link had to wait.
    tx_blocked,
    /// Packets that the kernel refused (no route, not permitted, too long), dropped.
    tx_refused,
    /// Packets from a GID that is not bound, or to one of another family, dropped.
    tx_no_path,
    /// Packets that have no form on the wire, dropped.
    tx_not_emitted,
    /// Times that the kernel could not cut a train, so that its packets went one by one.
    tx_train_refused,
    /// Faults injected into received packets.
    faults_injected,
}
