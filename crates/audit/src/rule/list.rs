//! The list of rules with their texts, by families: capture, integrity (R00x, R01x), loss (R02x),
//! requesters (R03x), responders (R04x), refusals (R05x), ECN (R06x), paths (R07x), pauses (R08x),
//! DCBX (R09x), connections (R10x), time (R11x).

use super::Severity::{self, Critical, Error, Warning};

/// Defines the rules and their texts.
macro_rules! rules {
    ($($name:ident = $code:literal $word:literal $severity:ident: $title:literal,
        $remedy:literal;)*) => {
        /// A rule that a network or an end can break.
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
        pub enum Rule {
            $(#[doc = $title] $name,)*
        }

        impl Rule {
            /// All of them, in the order of their numbers.
            pub const ALL: &'static [Self] = &[$(Self::$name,)*];

            /// The number: `R001` and so on.
            pub const fn code(self) -> &'static str {
                match self { $(Self::$name => $code,)* }
            }

            /// A short name for programs that read findings.
            pub const fn word(self) -> &'static str {
                match self { $(Self::$name => $word,)* }
            }

            /// How bad it is.
            pub const fn severity(self) -> Severity {
                match self { $(Self::$name => $severity,)* }
            }

            /// What is wrong, in a line.
            pub const fn title(self) -> &'static str {
                match self { $(Self::$name => $title,)* }
            }

            /// What to do about it.
            pub const fn remedy(self) -> &'static str {
                match self { $(Self::$name => $remedy,)* }
            }
        }
    };
}

rules! {
    CaptureCut = "R001" "capture-cut" Warning:
        "the file ends in the middle of a record, or is damaged from there on",
        "take the capture again, or repair the file; findings cover what stands before the damage";
    BadIcrc = "R010" "bad-icrc" Error:
        "packets with a wrong ICRC: the receiver drops them silently",
        "look for what changes bytes on the way: a device that rewrites headers, faulty memory or \
         cable; compare captures at both ends";
    IcrcRewritten = "R011" "icrc-rewritten" Critical:
        "wrong ICRCs that differ from the right ones alike: a device rewrites header fields on \
         the way (NAT)",
        "take the NAT, load balancer or firewall out of the path: RoCE cannot pass a device that \
         rewrites addresses, ports or the IP identification";
    IcrcUnmasked = "R012" "icrc-unmasked" Critical:
        "the sender computes the ICRC without masking a field that changes on the way, or \
         otherwise wrongly",
        "mend the sender: TOS, TTL, checksums and the fifth BTH byte count as ones";
    Truncated = "R013" "truncated-packet" Error:
        "packets shorter than their headers say",
        "look for a link or tunnel whose MTU is too small, and for a faulty sender";
    BadVcrc = "R014" "bad-vcrc" Error:
        "InfiniBand packets with a wrong VCRC: the link damages them",
        "check cable, transceiver and the port's symbol errors (perfquery)";
    Malformed = "R015" "malformed-packet" Error:
        "packets whose transport headers a receiver refuses: opcode, version or pad",
        "mend the sender, or look for damage on the way";
    UdpChecksum = "R016" "udp-checksum" Warning:
        "UDP checksums that are neither 0 nor right",
        "mend the sender or the device that changed the packet; Linux drops such datagrams before \
         RoCE sees them";
    IpChecksum = "R017" "ip-checksum" Error:
        "IPv4 headers with a wrong checksum",
        "mend the sender or the device that changed the header; routers and receivers drop such \
         packets";
    Fragmented = "R018" "fragmented" Error:
        "fragmented RoCE packets: receivers drop them",
        "raise the MTU of the links and tunnels on the way to the RoCE MTU + 96, or lower the \
         RoCE MTU";
    OddTtl = "R019" "odd-ttl" Warning:
        "the TTL or hop limit of a queue pair's packets changes on the way, or is about to run \
         out",
        "look for a route that changes or loops (traceroute both ways)";
    LostBefore = "R020" "lost-before-capture" Error:
        "packets lost between their sender and the point of capture",
        "look for drops on the way: counters of the switch ports towards the sender (discards, \
         PFC off for the priority), cables";
    LostBehind = "R021" "lost-behind-capture" Error:
        "packets seen here, but lost behind the point of capture or not taken by the receiver",
        "look for drops towards the receiver: switch port discards, the receiver's rx_discards, \
         out_of_buffer and rx_icrc_encapsulated; is the priority lossless on all hops?";
    ResponseLost = "R022" "response-lost" Error:
        "responses to READs lost on the way to the requester",
        "look for drops on the way back: its priority and DSCP are the responder's choice, see \
         whether PFC covers it";
    AckLost = "R023" "ack-lost" Warning:
        "requests repeated though they had arrived: their acknowledgements were lost on the way \
         back, or came later than the requester's timeout",
        "look for drops on the way back (ACKs want a lossless or a preferred class too), and for \
         a responder that answers late; or raise the ACK timeout";
    GoBackN = "R024" "go-back-n" Warning:
        "packets sent again though they had arrived, because one before them was lost",
        "cure the loss (see the finding of the loss); smaller windows or selective repeat lower \
         the price of each";
    Timeout = "R025" "timeout-recovery" Error:
        "losses recovered only by the ACK timeout: the link idles meanwhile",
        "cure the loss; lower the local ACK timeout of the queue pair where the path allows it";
    RetryExceeded = "R026" "retry-exceeded" Critical:
        "a request sent again and again without any answer until its sender gave up",
        "see whether the receiver lives, the path works in both directions at full MTU (ping -M \
         do -s), and its queue pair exists";
    Reordered = "R027" "reordered" Error:
        "packets of a queue pair arrive out of order: several paths are used for one flow",
        "bind each queue pair to one path: hash on addresses and ports, no per-packet spraying \
         unless both adapters place out of order";
    NetworkDuplicate = "R028" "network-duplicate" Warning:
        "the same packet seen twice: copied by the network or the mirror, or sent twice",
        "look for a loop or a mirror session that covers both ports of the path";
    PsnSkipped = "R030" "psn-skipped" Error:
        "a requester leaves PSNs out that were never sent",
        "mend the sender: each request packet takes the next PSN";
    PsnAfterRead = "R031" "psn-after-read" Critical:
        "the PSN after a READ does not leave room for the READ's responses",
        "mend the requester: a READ takes as many PSNs as its response has packets, ceil(length / \
         MTU)";
    OpcodeOrder = "R032" "opcode-order" Error:
        "FIRST, MIDDLE, LAST and ONLY in an order that no message has",
        "mend the sender";
    BadLength = "R033" "bad-length" Error:
        "a packet's payload does not fit its place in the message or the RETH length",
        "mend the sender: FIRST and MIDDLE carry the path MTU, LAST 1..MTU, ONLY 0..MTU, together \
         the RETH length";
    MtuMismatch = "R034" "mtu-mismatch" Error:
        "the two ends use different path MTUs",
        "set the same path MTU on both queue pairs: the smaller active MTU of the two ports";
    ChangedOnRetry = "R035" "changed-on-retry" Error:
        "a request sent again is not the one that was sent first",
        "mend the requester: what is sent again under a PSN is the same request";
    TooManyReads = "R036" "too-many-reads" Error:
        "more READs and atomics outstanding than the responder offered",
        "lower max_rd_atomic of the requester to the responder resources of the REP";
    RnrIgnored = "R037" "rnr-ignored" Warning:
        "a request sent again before the RNR timer of its NAK had run out",
        "mend the requester: it waits at least the time that the RNR NAK names";
    ServiceMixed = "R038" "service-mixed" Error:
        "opcodes of different transport services sent to one queue pair",
        "make both ends create the queue pair with the same type (RC, UC, UD, XRC)";
    AfterFatal = "R039" "after-fatal" Error:
        "requests go on after a NAK that ends the queue pair",
        "mend the requester: after such a NAK its queue pair is in error; only a new connection \
         may send";
    GhostAck = "R040" "ghost-ack" Error:
        "acknowledgements of PSNs that were never sent",
        "mend the responder, or look for a stale connection with the same queue pair number";
    MissingAck = "R041" "missing-ack" Error:
        "requests that ask for an acknowledgement and never get one",
        "look at the responder: overloaded, dead, or its answers take another way";
    BadMsn = "R042" "bad-msn" Error:
        "the MSN of acknowledgements does not count completed messages",
        "mend the responder";
    AtomicTwice = "R044" "atomic-executed-twice" Critical:
        "an atomic sent again was executed again: its answers differ",
        "mend the responder: a repeated atomic is answered from the saved result";
    WrongReplay = "R045" "wrong-replay" Error:
        "a repeated READ is answered with other PSNs or lengths than asked",
        "mend the responder";
    BadReadResponse = "R046" "bad-read-response" Error:
        "READ responses in the wrong order, or of the wrong length",
        "mend the responder";
    SpuriousNak = "R047" "spurious-nak" Warning:
        "sequence NAKs without a gap, or more than one for a gap",
        "mend the responder; or look for reordering on the way";
    RnrStorm = "R050" "rnr-storm" Warning:
        "the receiver often has no receive request posted (RNR NAK)",
        "post more receives, or post them earlier; see the receiver's out_of_buffer";
    RnrExceeded = "R051" "rnr-exceeded" Critical:
        "a request was answered with RNR NAK until its sender gave up",
        "post receives before the peer sends; raise rnr_retry (7 is without limit) or \
         min_rnr_timer";
    RemoteAccess = "R052" "remote-access" Error:
        "requests refused with remote access error: key, range or right",
        "check R_Key, address and length, the region's access flags and the queue pair's; a key \
         is dead once its region is deregistered";
    InvalidRequest = "R053" "invalid-request" Error:
        "requests refused as invalid",
        "check the order of opcodes, lengths, max_dest_rd_atomic and the operations that the \
         queue pair's access flags allow";
    RemoteOperation = "R054" "remote-operation" Error:
        "requests refused with remote operational error: the responder could not execute them",
        "look at the responder's log: its receive or target memory is unusable";
    ReservedNak = "R055" "reserved-nak" Error:
        "acknowledgements with a reserved syndrome or NAK code",
        "mend the responder";
    TooLongForBuffer = "R056" "too-long-for-buffer" Error:
        "a SEND longer than the receive buffer that it met",
        "post larger receive buffers, or agree on a message size";
    NotEct = "R060" "not-ect" Error:
        "packets of flows that want ECN are sent without ECT: no switch can mark them",
        "set ECN on for the priority (ecn/roce_np and roce_rp) or a traffic class with ECT(0), \
         e.g. 106 in place of 104";
    NoMarks = "R061" "no-marks" Warning:
        "queues build (delay rises, pauses come), but no packet is marked CE",
        "set ECN thresholds in the switches for this class (Kmin below the PFC threshold), and \
         see that DSCP leads to that class";
    NoCnp = "R062" "ce-without-cnp" Error:
        "CE marks arrive, but the receiver sends no CNP",
        "switch the notification point on at the receiver (ecn/roce_np/enable for the priority)";
    NoSlowDown = "R063" "cnp-without-slow-down" Error:
        "CNPs arrive, but the sender does not slow down",
        "switch the reaction point on at the sender (ecn/roce_rp/enable for the priority); see \
         rp_cnp_ignored";
    CnpClass = "R064" "cnp-class" Warning:
        "CNPs travel in the class of the data and wait behind the queue that they report",
        "give CNPs their own class: cnp_dscp 48, cnp_802p_prio 6, strict priority in the switches";
    CnpUnfounded = "R065" "cnp-without-ce" Warning:
        "CNPs for a flow of which no packet was marked CE, though marks would be seen here",
        "look at the receiver: an adapter with full buffers or a slow PCIe link, CNPs for a wrong \
         queue pair";
    DscpAsymmetric = "R066" "dscp-asymmetric" Warning:
        "the two directions of a queue pair have different DSCPs: often only one is lossless",
        "set the same traffic class at both ends (cma_roce_tos, traffic_class)";
    DscpChanged = "R067" "dscp-changed" Error:
        "the DSCP changes on the way",
        "set the switches to trust DSCP and not to rewrite it";
    EcnErased = "R068" "ecn-erased" Error:
        "the ECN field is erased or rewritten on the way",
        "find the device that clears the ECN bits (often a firewall or tunnel end) and set it to \
         keep them";
    VersionsMixed = "R070" "versions-mixed" Error:
        "RoCEv1 and RoCEv2 between the same ends",
        "choose the same RoCE type at both ends (GID index; cma_roce_mode)";
    NoEntropy = "R071" "no-entropy" Warning:
        "many queue pairs between two ends share one UDP source port: ECMP puts them all on one \
         path",
        "let the adapters choose the source port by flow (flow label per queue pair)";
    PortChanges = "R072" "port-changes" Warning:
        "the UDP source port changes within a connected queue pair: its packets may take several \
         paths",
        "keep the source port of a queue pair constant";
    PauseStorm = "R080" "pause-storm" Critical:
        "a port pauses its neighbour most of the time",
        "look at the pausing end: a slow receiver (PCIe, NUMA), a broken adapter; set the PFC \
         watchdog";
    LongPause = "R081" "long-pause" Error:
        "a single pause that holds a priority for long",
        "look at the pausing end; see its buffers (XOFF, XON) and the PFC watchdog";
    OneWayPause = "R082" "one-way-pause" Warning:
        "only one end of the link ever pauses although both send",
        "see whether PFC is enabled for the priority at both ends (mlnx_qos, dcb pfc show)";
    PauseClass = "R083" "pause-class" Error:
        "pauses for a priority other than the RoCE traffic's",
        "make DSCP, priority and PFC agree on both ends of each link";
    PauseIgnored = "R084" "pause-without-effect" Critical:
        "traffic of a paused priority goes on",
        "enable PFC for the priority at the sender; a tagged or 802.3x pause is not PFC";
    PauseCycle = "R085" "pause-cycle" Critical:
        "links pause each other in a ring: a PFC deadlock",
        "break the ring: no routes that go down and up again, PFC watchdog, fewer lossless \
         classes";
    GlobalPause = "R086" "global-pause" Warning:
        "802.3x pauses stop the whole link, all priorities",
        "switch global pause off (ethtool -A rx off tx off) and PFC on";
    DcbxPfc = "R090" "dcbx-pfc" Error:
        "the two ends of a link announce different PFC priorities",
        "set the same PFC bit map on both ends";
    DcbxEts = "R091" "dcbx-ets" Warning:
        "the two ends of a link announce different ETS tables",
        "set the same priority to traffic class map and shares on both ends";
    DcbxApp = "R092" "dcbx-application" Error:
        "the two ends of a link announce different priorities for RoCE",
        "set the same application priority (UDP 4791, or its DSCP) on both ends";
    DcbxBothWilling = "R093" "dcbx-both-willing" Warning:
        "both ends of a link are willing: nobody leads",
        "set the switch to not willing";
    DcbxNoneWilling = "R094" "dcbx-none-willing" Warning:
        "neither end of a link is willing, and their tables differ",
        "set the host to willing, or configure both alike";
    DcbxVersions = "R095" "dcbx-versions" Warning:
        "one end speaks IEEE DCBX, the other CEE",
        "set both ends to IEEE";
    DcbxMalformed = "R096" "dcbx-malformed" Warning:
        "DCBX TLVs that make no sense",
        "mend or update the sender's LLDP agent";
    CmReject = "R100" "cm-reject" Error:
        "connection requests rejected",
        "see the reason: nobody listens, no resources, stale connection, or the application's own";
    CmRetry = "R101" "cm-retry" Warning:
        "connection messages sent again",
        "see whether the other end listens and answers in time, and whether its answers arrive";
    CmNoAnswer = "R102" "cm-no-answer" Error:
        "connection requests that nobody answers",
        "see the address, whether rdma_cm listens there, and whether UDP 4791 passes both ways";
    CmParameters = "R103" "cm-parameters" Warning:
        "traffic does not keep to what the connection manager agreed: MTU, PSN, queue pair",
        "mend the application or library that moves the queue pair";
    Stall = "R110" "stall" Warning:
        "a queue pair stands still though work is outstanding",
        "see the findings named as its cause";
    Outliers = "R111" "latency-outliers" Warning:
        "some operations take many times as long as the usual ones",
        "see the findings named as their cause";
}
