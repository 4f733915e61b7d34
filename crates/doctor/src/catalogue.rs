//! The catalogue of findings: number, name, severity, what it is, what it means, what mends it.
//! `docs/doctor.md` is made from it; a test keeps the two in step. When a finding applies is said
//! by the rules.

use serde::Serialize;

/// How bad a finding is.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Severity {
    /// Worth knowing; RoCE works.
    Note,
    /// RoCE works worse than it could, or will under load.
    Warning,
    /// RoCE does not work, or loses packets by design.
    Error,
}

impl Severity {
    /// As it is printed.
    pub fn word(self) -> &'static str {
        match self {
            Self::Note => "note",
            Self::Warning => "warning",
            Self::Error => "error",
        }
    }
}

/// Defines the rules and their texts.
macro_rules! catalogue {
    ($($name:ident = $code:literal $word:literal $severity:ident: $title:literal, $means:literal,
        $remedy:literal;)*) => {
        /// What can be wrong with a host.
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
        pub enum Rule {
            $(#[doc = $title] $name,)*
        }

        impl Rule {
            /// All of them, in the order of their numbers.
            pub const ALL: &'static [Self] = &[$(Self::$name,)*];

            /// The number: `H001` and so on. It never changes its meaning.
            pub fn code(self) -> &'static str {
                match self { $(Self::$name => $code,)* }
            }

            /// A short name for programs that read findings.
            pub fn word(self) -> &'static str {
                match self { $(Self::$name => $word,)* }
            }

            /// How bad it is, unless the finding itself says otherwise.
            pub fn severity(self) -> Severity {
                match self { $(Self::$name => Severity::$severity,)* }
            }

            /// What is wrong, in a line.
            pub fn title(self) -> &'static str {
                match self { $(Self::$name => $title,)* }
            }

            /// What it means and when it is found, in a paragraph.
            pub fn means(self) -> &'static str {
                match self { $(Self::$name => $means,)* }
            }

            /// What mends it, with IF, DEV and PRIO for names and numbers of the host.
            pub fn remedy(self) -> &'static str {
                match self { $(Self::$name => $remedy,)* }
            }
        }
    };
}

catalogue! {
    PortDown = "H001" "port-down" Error:
        "a RoCE port has no link",
        "The port's state is not ACTIVE. Of several ports one is passed over whose interface was \
         set down or has no address, unless it was asked for; and it is a warning.",
        "ip link set dev IF up; if it stays down, look at cable, transceiver and switch port: \
         ethtool -m IF";
    LinkSlow = "H002" "link-slow" Warning:
        "a link runs below the speed of its port",
        "Both sides offer a faster mode than the one in use, or this side does not offer all \
         that it can. Where the other side's offer is not known it is a note: the switch may be \
         slower on purpose.",
        "ethtool -s IF autoneg on; then compare what both offer: ethtool IF";
    PcieReduced = "H003" "pcie-reduced" Warning:
        "PCI Express runs below what the card can",
        "The link to the processor was trained with fewer lanes than the card has: a slot with \
         fewer lanes, a riser, or a contact that fails. Or with a lower speed, and so carries \
         less than all ports of the card together.",
        "lspci -vv -s PCI | grep -E 'LnkCap|LnkSta'; move or reseat the card";
    PcieTooSlow = "H004" "pcie-too-slow" Warning:
        "PCI Express carries less than the port",
        "After line coding, lanes times speed is below the rate of the port, so the port cannot \
         be filled and its receive buffer runs over, or PFC pauses the network.",
        "lspci -vv -s PCI | grep -E 'LnkCap|LnkSta'; move the card to a slot with more lanes or \
         a newer generation";
    LinkErrors = "H005" "link-errors" Warning:
        "frames arrive damaged",
        "Symbol or frame check errors: cable, transceiver or connector. Each damaged frame is a \
         lost packet, and go-back-N sends all behind it again. One reading is judged by the \
         share of damaged frames, two by any growth.",
        "ethtool -m IF; clean or replace cable and transceiver";
    LinkFlaps = "H006" "link-flaps" Warning:
        "the link went down again and again",
        "The link was lost in the time looked at, or at least ten times and once a day since the \
         host started.",
        "dmesg | grep -i 'link'; replace cable or transceiver, look at the switch port's log";
    MtuTooSmall = "H010" "mtu-too-small" Warning:
        "the interface's MTU leaves a RoCE MTU below 1024",
        "RoCE takes the largest of 256, 512, 1024, 2048 and 4096 that fits into the interface's \
         MTU less 96 bytes for headers: 1024 needs 1120. Small packets cost throughput, and a \
         peer set to 1024 does not connect.",
        "ip link set dev IF mtu 1500 (4200 or 9000 if the switches carry it)";
    MtuNotLargest = "H011" "mtu-not-4096" Note:
        "the interface's MTU leaves a RoCE MTU below 4096",
        "A RoCE MTU of 4096 needs an interface MTU of 4192 at both ends and at every switch \
         between. 1500 gives 1024: four times the packets for the same bytes. Told of RoCE \
         adapters only.",
        "ip link set dev IF mtu 4200, on every host and switch of the network";
    MtuBelowActive = "H012" "mtu-below-active" Error:
        "the interface's MTU is too small for the port's active MTU",
        "The active MTU plus headers does not fit the interface's MTU, so full packets are \
         dropped on the way. The device read the MTU before it was changed, or a VLAN or bond \
         above it has a smaller one.",
        "ip link set dev IF mtu MTU, then restart the programs that use DEV";
    RoceV1Default = "H020" "roce-v1-default" Warning:
        "RDMA CM connects by RoCEv1 although there are v2 GIDs",
        "default_roce_mode is v1: connections do not cross routers, carry no DSCP and no ECN, \
         and a peer set to v2 does not answer.",
        "mkdir -p /sys/kernel/config/rdma_cm/DEV; echo 'RoCE v2' > \
         /sys/kernel/config/rdma_cm/DEV/ports/PORT/default_roce_mode";
    NoV2Gid = "H021" "no-v2-gid" Error:
        "the port has no RoCEv2 GID",
        "The GID table has no entry of type RoCE v2, so there is no address to use RoCEv2 by: \
         the interface is down, has no address, or the device was set to v1 only.",
        "ip address add ADDRESS/LENGTH dev IF";
    NoIpGid = "H022" "no-ip-gid" Note:
        "the port's only RoCEv2 GIDs are link-local",
        "No v2 GID stands for an IPv4 or a routable IPv6 address: RoCE works inside the subnet \
         only, and programs that take a GID index for IPv4 find none.",
        "ip address add ADDRESS/LENGTH dev IF";
    GidMissing = "H023" "gid-missing" Warning:
        "an address of the interface has no RoCEv2 GID",
        "Every IPv4 address of a RoCE interface has a GID; for this one there is none, so \
         connections from or to it fail with an unreachable address. The GID table is full, or \
         the device missed the change. Routes by the address go with it, and have to be set again.",
        "ip address del ADDRESS/LENGTH dev IF; ip address add ADDRESS/LENGTH dev IF";
    SameSubnet = "H024" "same-subnet" Warning:
        "several interfaces are in one subnet, and ARP or routing mixes them",
        "With the default settings each interface answers ARP for the addresses of the others \
         (arp_ignore 0), asks in another's name (arp_announce 0), or drops what comes by the \
         other way (rp_filter 1): peers send RoCE to the wrong port, which has no such GID.",
        "sysctl -w net.ipv4.conf.IF.arp_ignore=1 net.ipv4.conf.IF.arp_announce=2 \
         net.ipv4.conf.IF.rp_filter=2";
    NoPfc = "H030" "no-pfc" Warning:
        "no priority has PFC, and there is no global pause",
        "When a buffer on the way is full, packets are lost, and go-back-N sends all behind them \
         again: 1 % loss can cost most of the throughput. Adapters set up for lossy RoCE (ECN \
         and selective repeat) live with it. Judged on RoCE adapters with a link.",
        "mlnx_qos -i IF --trust dscp --pfc 0,0,0,1,0,0,0,0 (or: dcb pfc set dev IF prio-pfc \
         all:off 3:on), and the same on the switch";
    RoceNotLossless = "H031" "roce-not-lossless" Error:
        "RoCE traffic leaves in a priority without PFC",
        "The ToS that RoCE is given stands for a DSCP, which the port's map gives to a priority \
         that has no PFC, while another has it: what should be lossless is not.",
        "mlnx_qos -i IF --dscp2prio set,DSCP,PRIO (or: dcb app replace dev IF dscp-prio \
         DSCP:PRIO)";
    TosUnset = "H032" "roce-tos-unset" Note:
        "RDMA CM gives connections no ToS, so they miss the lossless priority",
        "PFC is on for a priority that DSCP 0 does not lead to, and default_roce_tos is 0. \
         Programs that set a ToS of their own (perftest --tclass, NCCL_IB_TC) are not concerned; \
         others travel beside PFC, and without ECN.",
        "mkdir -p /sys/kernel/config/rdma_cm/DEV; echo TOS > \
         /sys/kernel/config/rdma_cm/DEV/ports/PORT/default_roce_tos";
    PfcTooWide = "H033" "pfc-too-wide" Warning:
        "PFC is on for more than two priorities",
        "Each lossless priority needs a headroom of its own at every port; switches have buffer \
         for two. With PFC on all, one congested flow pauses everything on the link, as global \
         pause does.",
        "mlnx_qos -i IF --pfc 0,0,0,1,0,0,0,0 (or: dcb pfc set dev IF prio-pfc all:off 3:on)";
    PauseAndPfc = "H034" "pause-and-pfc" Warning:
        "global pause and PFC are both on",
        "A link has one of them: with both, a global pause stops the priorities that PFC keeps \
         apart, and adapters or switches ignore one of the two.",
        "ethtool -A IF autoneg off rx off tx off";
    GlobalPause = "H035" "global-pause" Note:
        "global pause instead of PFC",
        "The link loses nothing, but one congested flow pauses all traffic of the port, and \
         pauses spread.",
        "ethtool -A IF autoneg off rx off tx off; then PFC for RoCE's priority: mlnx_qos -i IF \
         --pfc 0,0,0,1,0,0,0,0";
    TrustPcp = "H036" "trust-pcp" Warning:
        "the port goes by VLAN tags, and RoCE has none",
        "Trust state pcp: the priority is taken from the VLAN tag. No GID is on a VLAN, so all \
         RoCE is in priority 0, which has no PFC, whatever its DSCP.",
        "mlnx_qos -i IF --trust dscp";
    DcbxTwice = "H037" "dcbx-twice" Warning:
        "firmware and operating system both speak DCBX",
        "The adapter's firmware controls DCBX, and lldpad announces PFC on the same port: \
         whichever heard the switch last overwrites PFC and classes.",
        "mlnx_qos -i IF -d os, or dcb dcbx set dev IF host ieee (or leave it to the firmware: \
         lldptool set-lldp -i IF adminStatus=disabled)";
    DcbxPeer = "H038" "dcbx-mismatch" Warning:
        "the neighbour has PFC on other priorities",
        "The switch announces by DCBX another set of lossless priorities than this port has: on \
         the ones in which they differ, one side pauses and the other does not listen.",
        "set both alike: mlnx_qos -i IF --pfc LIST, or the switch port; lldptool -t -n -i IF \
         shows its view";
    Headroom = "H039" "headroom" Warning:
        "the buffer of a lossless priority is too small for speed and cable",
        "After a pause was sent, what is under way still arrives. For mlx5: (301 + 2.16 × cable \
         in m) × Gb/s (40 at least) + 2.72 × MTU, and a largest frame (9216) above that; for \
         others rate × (2 × propagation + reaction) + 2 × MTU. With less, a lossless priority \
         loses.",
        "mlnx_qos -i IF --cable_len METRES --buffer_size LIST (or: dcb buffer set dev IF \
         buffer-size N:BYTES)";
    EtsStarved = "H040" "ets-no-bandwidth" Error:
        "RoCE's class has no bandwidth",
        "ETS gives the class of a lossless priority 0 %, and others have a share: under load \
         RoCE gets what they leave.",
        "mlnx_qos -i IF --tsa LIST --tcbw LIST (or: dcb ets set dev IF tc-bw TC:50)";
    EtsStrict = "H041" "ets-strict" Warning:
        "RoCE's class is strict before classes with shares",
        "A strict class is served before all others while it has anything to send. RoCE is bulk: \
         it starves TCP, and the control traffic in other classes. Strict is for CNPs.",
        "mlnx_qos -i IF --tsa LIST --tcbw LIST (or: dcb ets set dev IF tc-tsa TC:ets tc-bw \
         TC:50)";
    EtsSum = "H042" "ets-sum" Warning:
        "the shares of ETS do not add up to 100 %",
        "Shares of the ETS classes are of one whole; firmware refuses or scales others.",
        "mlnx_qos -i IF --tcbw LIST (or: dcb ets set dev IF tc-bw LIST), with a sum of 100";
    EcnOff = "H045" "ecn-off" Warning:
        "congestion control is off on RoCE's priority",
        "The receiver sends no CNPs (roce_np), or the sender does not slow down (roce_rp), for a \
         lossless priority: congestion is met by PFC alone, which spreads it. With bnxt_re it is \
         one switch for the port (ecn_enable).",
        "echo 1 > /sys/class/net/IF/ecn/roce_np/enable/PRIO; echo 1 > \
         /sys/class/net/IF/ecn/roce_rp/enable/PRIO (bnxt_re: cd \
         /sys/kernel/config/bnxt_re/DEV/ports/PORT/cc; echo 1 > ecn_enable; echo 1 > apply)";
    EcnParameter = "H046" "ecn-parameter" Warning:
        "a parameter of DCQCN is out of any useful range",
        "Ranges hold the vendor's defaults and the published settings with room around them. \
         Outside, senders do not slow down, stand still, or never come back.",
        "echo VALUE > /sys/class/net/IF/ecn/PART/PARAMETER";
    CnpClass = "H047" "cnp-class" Warning:
        "CNPs travel with RoCE's data or in a lossless class",
        "Congestion notifications wait behind the congestion that they tell of, or are paused \
         with it. They have a priority of their own, strict and without PFC; by default PCP 6, \
         DSCP 48.",
        "echo 6 > /sys/class/net/IF/ecn/roce_np/cnp_802p_prio; echo 48 > \
         /sys/class/net/IF/ecn/roce_np/cnp_dscp";
    Discards = "H050" "receive-discards" Warning:
        "the NIC drops packets that it received",
        "The receive buffer of the port was full (rx_discards_phy, rx_prioN_buf_discard): the \
         host does not take packets as fast as they come, and PFC did not stop the peer in time. \
         One reading is judged by the share of packets, two by growth.",
        "ethtool -S IF | grep -E 'discard|pci_stalled|out_of_buffer'; then PFC, headroom, PCI \
         Express and NUMA as told by the other findings";
    OutOfBuffer = "H051" "out-of-buffer" Warning:
        "receives are missing when packets arrive",
        "out_of_buffer counts packets that found no receive request posted: the program does not \
         post receives fast enough, or its queue is short.",
        "post more receives (a deeper receive queue or SRQ) in the program; crocevia run --check \
         -- PROGRAM names the place";
    PauseStorm = "H052" "pause-storm" Error:
        "the NIC paused the network for a very long time",
        "Storm prevention has struck: the device stood still while it sent pauses (warning \
         events), or gave up sending them and dropped (error events). A host that hangs or \
         swaps, a driver or PCI Express that stalls.",
        "ethtool -S IF | grep -E 'pause_storm|pci_stalled'; look at what stalls the host: dmesg, \
         vmstat 1";
    Paused = "H053" "paused" Warning:
        "the network pauses this host for much of the time",
        "Of the time between the two readings the port was paused for more than 5 %: congestion \
         beyond the switch, which ECN should keep from becoming pauses.",
        "look at the switch for the port that congests; ECN on for the priority there and here: \
         cat /sys/class/net/IF/ecn/roce_rp/enable/PRIO";
    Pausing = "H054" "pausing" Warning:
        "this host pauses the network for much of the time",
        "Of the time between the two readings the port asked its peer to pause for more than 5 \
         %: the host is slower than its link. Others behind the same switch suffer.",
        "ethtool -S IF | grep -E 'pci_stalled|out_of_buffer'; then PCI Express, NUMA and \
         governor as told by the other findings";
    OutOfSequence = "H055" "out-of-sequence" Warning:
        "packets arrive out of sequence",
        "Packets were lost or overtaken on the way (out_of_sequence: seen by this receiver; \
         packet_seq_err: told by the peer). Each makes the sender go back. In a lossless network \
         there are none.",
        "look for drops on the way: ethtool -S IF | grep -E 'discard|drop', the switch's drop \
         counters; crocevia audit CAPTURE tells lost from overtaken";
    Timeouts = "H056" "ack-timeouts" Warning:
        "requests time out",
        "No ACK came within the queue pair's timeout: the last packet or its ACK was lost, the \
         peer stands still, or the timeout is too short. Peers that end without a word count \
         here too, so one reading is judged by its share.",
        "ibv_devinfo -v -d DEV; raise the timeout (17 or more is 0.5 s) and look for drops: \
         ethtool -S IF | grep -E 'discard|drop'";
    Rnr = "H057" "receiver-not-ready" Warning:
        "peers are not ready to receive",
        "RNR NAKs: a SEND found no receive posted at the other end, and waits for its RNR timer.",
        "post more receives in the program at the peer; crocevia run --check -- PROGRAM names \
         the place";
    ImpliedNak = "H058" "implied-nak" Warning:
        "answers to READs or atomics are lost",
        "An ACK for a later request came before the answer to an earlier READ or atomic: the \
         answer was lost on the way back, and is asked for again.",
        "look for drops towards this host: ethtool -S IF | grep -E 'discard|drop', and at the \
         switch in the direction of this port";
    BadIcrc = "H059" "bad-icrc" Error:
        "RoCE packets arrive with a wrong ICRC",
        "Something on the way changed what RoCE protects: an address translator, a tunnel, a \
         broken switch or NIC. The packets are dropped.",
        "tcpdump -i IF -w icrc.pcap udp port 4791; crocevia audit icrc.pcap names the field";
    RetriesExceeded = "H060" "retries-exceeded" Warning:
        "connections ended after all retries",
        "Queue pairs went to error because a peer did not answer, or was never ready.",
        "look for drops on the way: ethtool -S IF | grep -E 'discard|drop'; dmesg on the peer";
    NoCnp = "H061" "marked-no-cnp" Error:
        "packets arrive marked, and no CNP is sent",
        "Switches mark congestion (ECN), and this receiver tells nobody: congestion control is \
         broken here.",
        "echo 1 > /sys/class/net/IF/ecn/roce_np/enable/PRIO";
    CnpIgnored = "H062" "cnp-ignored" Warning:
        "CNPs arrive and are ignored",
        "Peers report congestion, and this sender does not slow down: the reaction point is off \
         for the priority.",
        "echo 1 > /sys/class/net/IF/ecn/roce_rp/enable/PRIO";
    CnpNoEffect = "H063" "cnp-no-effect" Warning:
        "CNPs are sent, and the marks do not get fewer",
        "Between the two readings more than 30 % of the packets received were marked, although \
         CNPs were sent: the senders do not react, or the CNPs do not reach them.",
        "at the peers: cat /sys/class/net/IF/ecn/roce_rp/enable/PRIO and \
         hw_counters/rp_cnp_handled; on the way: the class of CNPs (DSCP 48)";
    PcieStalls = "H064" "pcie-stalls" Warning:
        "the NIC waits for PCI Express",
        "outbound_pci_stalled_rd and _wr are the percent of the last second in which reads or \
         writes could not go: the host's memory or its PCI Express is the limit.",
        "lspci -vv -s PCI | grep -E 'LnkSta|MaxReadReq'; setpci or BIOS: relaxed ordering, \
         larger read requests";
    Memlock = "H070" "memlock" Warning:
        "processes may lock too little memory",
        "Registering memory with an RDMA adapter locks it. Below 64 MiB and without CAP_IPC_LOCK \
         ibv_reg_mr, ibv_create_cq and ibv_create_qp fail with ENOMEM.",
        "echo '* - memlock unlimited' > /etc/security/limits.d/rdma.conf, then log in anew (of a \
         service: LimitMEMLOCK=infinity)";
    Numa = "H071" "numa" Warning:
        "the process runs away from the NIC's node",
        "None of the processors that the process may use is on the NUMA node of the NIC: every \
         doorbell and every byte crosses between sockets.",
        "numactl --cpunodebind=NODE --membind=NODE PROGRAM";
    Governor = "H072" "governor" Note:
        "processors near the NIC do not run at full speed",
        "The frequency governor is not `performance`: a processor that sleeps between messages \
         wakes slowly, which latency tests show.",
        "cpupower frequency-set -g performance";
    IrqOneCpu = "H073" "irq-one-cpu" Warning:
        "all interrupts of the NIC go to one processor",
        "Completion interrupts are there for every processor, and one takes them all.",
        "set_irq_affinity.sh IF (or: echo CPU > /proc/irq/N/smp_affinity_list for each)";
    IrqWrongNode = "H074" "irq-wrong-node" Warning:
        "interrupts of the NIC go to another node",
        "No completion interrupt goes to a processor of the NIC's NUMA node.",
        "set_irq_affinity_bynode.sh NODE IF (or: echo CPUS > /proc/irq/N/smp_affinity_list for \
         each)";
    RmemMax = "H075" "rmem-max" Note:
        "sockets get little receive buffer for crocevia",
        "crocevia's own NIC receives by UDP sockets and keeps in flight what their buffer holds; \
         for full speed it wants 4 MiB. Told where no RDMA device is present, so that crocevia \
         is the way to RDMA.",
        "sysctl -w net.core.rmem_max=4194304";
}

impl Rule {
    /// The rule of a number or name: `H012`, `h012`, `mtu-below-active`.
    pub fn find(text: &str) -> Option<Self> {
        let same = |rule: &&Self| rule.code().eq_ignore_ascii_case(text) || rule.word() == text;
        Self::ALL.iter().find(same).copied()
    }

    /// What `--explain` prints.
    pub fn explain(self) -> String {
        let (code, word, severity) = (self.code(), self.word(), self.severity().word());
        let means = crate::report::wrap(self.means(), 2, 2);
        let remedy = crate::report::wrap(self.remedy(), 2, 2);
        let title = self.title();
        format!("{code} {word} ({severity}): {title}\n\n{means}\n\nTo do:\n{remedy}\n")
    }
}

#[cfg(test)]
mod tests {
    use super::Rule;

    #[test]
    fn numbers_ascend_and_names_differ() {
        for pair in Rule::ALL.windows(2) {
            assert!(pair[0].code() < pair[1].code(), "{pair:?}");
        }
        let mut words: Vec<_> = Rule::ALL.iter().map(|rule| rule.word()).collect();
        words.sort_unstable();
        words.dedup();
        assert_eq!(words.len(), Rule::ALL.len());
        assert_eq!(Rule::find("h012"), Some(Rule::MtuBelowActive));
        assert_eq!(Rule::find("mtu-below-active"), Some(Rule::MtuBelowActive));
        assert_eq!(Rule::find("H999"), None);
    }
}
