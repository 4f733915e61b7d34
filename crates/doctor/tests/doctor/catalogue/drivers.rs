//! Other drivers: Soft-RoCE, and bnxt by dcb.
//! Changes of a recorded host, and all findings that they make; the limits are those of the
//! catalogue, worked out by hand.

use crate::catalogue::Case;
use crate::host::Edit::{Set, Swap};

/// PFC on priority 3, as `lldptool` prints it.
const LLDP: &str = "IEEE 8021QAZ PFC TLV\n\t Willing: no\n\t PFC enabled: 3\n";

pub(super) const CASES: &[Case] = &[
    Case {
        name: "a Soft-RoCE port for 512",
        host: "softroce-vm",
        edits: &[
            Set("sys/class/net/eth0/mtu", "1103\n"),
            Swap("cmd/ibv_devinfo_-d_rxe0.txt", "1024 (3)", "512 (2)"),
        ],
        expected: &["H010"],
    },
    Case {
        name: "a Soft-RoCE port for 1024",
        host: "softroce-vm",
        edits: &[Set("sys/class/net/eth0/mtu", "1104\n")],
        expected: &[],
    },
    Case {
        name: "Soft-RoCE whose peers are not ready",
        host: "softroce-vm",
        edits: &[Set("sys/class/infiniband/rxe0/ports/1/hw_counters/rcvd_rnr_err", "5000\n")],
        expected: &["H057"],
    },
    Case {
        name: "dcb: no PFC",
        host: "bnxt-good",
        edits: &[Swap("cmd/dcb_pfc_show_dev_ens3np0.txt", "3:on", "3:off")],
        expected: &["H030"],
    },
    Case {
        name: "dcb: RoCE's DSCP elsewhere",
        host: "bnxt-good",
        edits: &[Swap("cmd/dcb_app_show_dev_ens3np0.txt", "AF31:3", "AF31:2")],
        expected: &["H031"],
    },
    Case {
        name: "dcb: tags are trusted",
        host: "bnxt-good",
        edits: &[Set("cmd/dcb_apptrust_show_dev_ens3np0.txt", "order: pcp \n")],
        expected: &["H036"],
    },
    Case {
        name: "dcb: no bandwidth for RoCE",
        host: "bnxt-good",
        edits: &[Swap("cmd/dcb_ets_show_dev_ens3np0.txt", "0:50 1:50", "0:100 1:0")],
        expected: &["H040"],
    },
    Case {
        name: "dcb: a small buffer",
        host: "bnxt-good",
        edits: &[Set(
            "cmd/dcb_buffer_show_dev_ens3np0.txt",
            "prio-buffer 0:0 1:0 2:0 3:1 4:0 5:0 6:0 7:0 \nbuffer-size 0:10Kb \
            1:40Kb 2:0b \ntotal-size 222Kb \n",
        )],
        expected: &["H039"],
    },
    Case {
        name: "dcb: a sufficient buffer",
        host: "bnxt-good",
        edits: &[Set(
            "cmd/dcb_buffer_show_dev_ens3np0.txt",
            "prio-buffer 0:0 1:0 2:0 3:1 4:0 5:0 6:0 7:0 \nbuffer-size 0:10Kb \
            1:64Kb 2:0b \ntotal-size 222Kb \n",
        )],
        expected: &[],
    },
    Case {
        name: "bnxt: marks and no CNP",
        host: "bnxt-good",
        edits: &[Set("sys/class/infiniband/bnxt_re0/ports/1/hw_counters/tx_cnp_pkts", "0\n")],
        expected: &["H061"],
    },
    Case {
        name: "bnxt: congestion control off",
        host: "bnxt-good",
        edits: &[Set("sys/kernel/config/bnxt_re/bnxt_re0/ports/1/cc/ecn_enable", "0x0\n")],
        expected: &["H045"],
    },
    Case {
        name: "bnxt: congestion control on, CNPs by themselves",
        host: "bnxt-good",
        edits: &[
            Set("sys/kernel/config/bnxt_re/bnxt_re0/ports/1/cc/ecn_enable", "0x1\n"),
            Set("sys/kernel/config/bnxt_re/bnxt_re0/ports/1/cc/cnp_prio", "7\n"),
            Set("sys/kernel/config/bnxt_re/bnxt_re0/ports/1/cc/cnp_dscp", "48\n"),
        ],
        expected: &[],
    },
    Case {
        name: "bnxt: CNPs with the data",
        host: "bnxt-good",
        edits: &[Set("sys/kernel/config/bnxt_re/bnxt_re0/ports/1/cc/cnp_dscp", "0x1a\n")],
        expected: &["H047"],
    },
    Case {
        name: "bnxt: nonsense for congestion control is not judged",
        host: "bnxt-good",
        edits: &[Set("sys/kernel/config/bnxt_re/bnxt_re0/ports/1/cc/ecn_enable", "off\n")],
        expected: &[],
    },
    Case {
        name: "dcb: the device and lldpad both speak DCBX",
        host: "bnxt-good",
        edits: &[
            Set("cmd/dcb_dcbx_show_dev_ens3np0.txt", "lld-managed ieee \n"),
            Set("cmd/lldptool_-t_-n_-i_ens3np0.txt", LLDP),
            Set("cmd/lldptool_-t_-i_ens3np0.txt", LLDP),
        ],
        expected: &["H037"],
    },
    Case {
        name: "dcb: lldpad alone speaks DCBX",
        host: "bnxt-good",
        edits: &[
            Set("cmd/dcb_dcbx_show_dev_ens3np0.txt", "host ieee \n"),
            Set("cmd/lldptool_-t_-n_-i_ens3np0.txt", LLDP),
            Set("cmd/lldptool_-t_-i_ens3np0.txt", LLDP),
        ],
        expected: &[],
    },
    Case {
        name: "bnxt: a pause storm",
        host: "bnxt-good",
        edits: &[Swap(
            "cmd/ethtool_-S_ens3np0.txt",
            "continuous_roce_pause_events: 0",
            "continuous_roce_pause_events: 3",
        )],
        expected: &["H052"],
    },
];
