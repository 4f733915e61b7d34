//! ETS, DCQCN, the class of CNPs.
//! Changes of a recorded host, and all findings that they make; the limits are those of the
//! catalogue, worked out by hand.

use crate::catalogue::Case;
use crate::host::Edit::{Drop, Set, Swap};

pub(super) const CASES: &[Case] = &[
    Case {
        name: "no bandwidth for RoCE",
        host: "cx5-good",
        edits: &[
            Swap(
                "cmd/mlnx_qos_-i_ens1f0np0.txt",
                "tc: 0 ratelimit: unlimited, tsa: ets, bw: 50%",
                "tc: 0 ratelimit: unlimited, tsa: ets, bw: 100%",
            ),
            Swap(
                "cmd/mlnx_qos_-i_ens1f0np0.txt",
                "tc: 3 ratelimit: unlimited, tsa: ets, bw: 50%",
                "tc: 3 ratelimit: unlimited, tsa: ets, bw: 0%",
            ),
        ],
        expected: &["H040"],
    },
    Case {
        name: "a little bandwidth for RoCE",
        host: "cx5-good",
        edits: &[
            Swap(
                "cmd/mlnx_qos_-i_ens1f0np0.txt",
                "tc: 0 ratelimit: unlimited, tsa: ets, bw: 50%",
                "tc: 0 ratelimit: unlimited, tsa: ets, bw: 99%",
            ),
            Swap(
                "cmd/mlnx_qos_-i_ens1f0np0.txt",
                "tc: 3 ratelimit: unlimited, tsa: ets, bw: 50%",
                "tc: 3 ratelimit: unlimited, tsa: ets, bw: 1%",
            ),
        ],
        expected: &[],
    },
    Case {
        name: "shares that nobody has set",
        host: "cx5-good",
        edits: &[
            Swap(
                "cmd/mlnx_qos_-i_ens1f0np0.txt",
                "tc: 0 ratelimit: unlimited, tsa: ets, bw: 50%",
                "tc: 0 ratelimit: unlimited, tsa: ets, bw: 0%",
            ),
            Swap(
                "cmd/mlnx_qos_-i_ens1f0np0.txt",
                "tc: 3 ratelimit: unlimited, tsa: ets, bw: 50%",
                "tc: 3 ratelimit: unlimited, tsa: ets, bw: 0%",
            ),
        ],
        expected: &[],
    },
    Case {
        name: "RoCE before all others",
        host: "cx5-good",
        edits: &[
            Swap(
                "cmd/mlnx_qos_-i_ens1f0np0.txt",
                "tc: 0 ratelimit: unlimited, tsa: ets, bw: 50%",
                "tc: 0 ratelimit: unlimited, tsa: ets, bw: 100%",
            ),
            Swap(
                "cmd/mlnx_qos_-i_ens1f0np0.txt",
                "tc: 3 ratelimit: unlimited, tsa: ets, bw: 50%",
                "tc: 3 ratelimit: unlimited, tsa: strict",
            ),
        ],
        expected: &["H041"],
    },
    Case {
        name: "RoCE in the vendor's way",
        host: "cx5-good",
        edits: &[
            Swap(
                "cmd/mlnx_qos_-i_ens1f0np0.txt",
                "tc: 0 ratelimit: unlimited, tsa: ets, bw: 50%",
                "tc: 0 ratelimit: unlimited, tsa: ets, bw: 100%",
            ),
            Swap(
                "cmd/mlnx_qos_-i_ens1f0np0.txt",
                "tc: 3 ratelimit: unlimited, tsa: ets, bw: 50%",
                "tc: 3 ratelimit: unlimited, tsa: vendor",
            ),
        ],
        expected: &[],
    },
    Case {
        name: "RoCE strict among strict ones",
        host: "cx5-good",
        edits: &[
            Swap(
                "cmd/mlnx_qos_-i_ens1f0np0.txt",
                "tc: 0 ratelimit: unlimited, tsa: ets, bw: 50%",
                "tc: 0 ratelimit: unlimited, tsa: strict",
            ),
            Swap(
                "cmd/mlnx_qos_-i_ens1f0np0.txt",
                "tc: 3 ratelimit: unlimited, tsa: ets, bw: 50%",
                "tc: 3 ratelimit: unlimited, tsa: strict",
            ),
        ],
        expected: &[],
    },
    Case {
        name: "shares of 90 %",
        host: "cx5-good",
        edits: &[
            Swap(
                "cmd/mlnx_qos_-i_ens1f0np0.txt",
                "tc: 0 ratelimit: unlimited, tsa: ets, bw: 50%",
                "tc: 0 ratelimit: unlimited, tsa: ets, bw: 40%",
            ),
            Swap(
                "cmd/mlnx_qos_-i_ens1f0np0.txt",
                "tc: 3 ratelimit: unlimited, tsa: ets, bw: 50%",
                "tc: 3 ratelimit: unlimited, tsa: ets, bw: 50%",
            ),
        ],
        expected: &["H042"],
    },
    Case {
        name: "no CNPs for RoCE",
        host: "cx5-good",
        edits: &[Set("sys/class/net/ens1f0np0/ecn/roce_np/enable/3", "0\n")],
        expected: &["H045"],
    },
    Case {
        name: "no reaction for RoCE",
        host: "cx5-good",
        edits: &[Set("sys/class/net/ens1f0np0/ecn/roce_rp/enable/3", "0\n")],
        expected: &["H045"],
    },
    Case {
        name: "no congestion control for another priority",
        host: "cx5-good",
        edits: &[
            Set("sys/class/net/ens1f0np0/ecn/roce_np/enable/4", "0\n"),
            Set("sys/class/net/ens1f0np0/ecn/roce_rp/enable/4", "0\n"),
        ],
        expected: &[],
    },
    Case {
        name: "a floor of half the line",
        host: "cx5-good",
        edits: &[Set("sys/class/net/ens1f0np0/ecn/roce_rp/rpg_min_rate", "50000\n")],
        expected: &["H046"],
    },
    Case {
        name: "a floor of a hundredth of the line",
        host: "cx5-good",
        edits: &[Set("sys/class/net/ens1f0np0/ecn/roce_rp/rpg_min_rate", "1000\n")],
        expected: &[],
    },
    Case {
        name: "the paper's gain and timers",
        host: "cx5-good",
        edits: &[
            Set("sys/class/net/ens1f0np0/ecn/roce_rp/dce_tcp_g", "1020\n"),
            Set("sys/class/net/ens1f0np0/ecn/roce_rp/dce_tcp_rtt", "55\n"),
            Set("sys/class/net/ens1f0np0/ecn/roce_rp/rpg_time_reset", "55\n"),
            Set("sys/class/net/ens1f0np0/ecn/roce_rp/rpg_ai_rate", "40\n"),
            Set("sys/class/net/ens1f0np0/ecn/roce_rp/rpg_hai_rate", "200\n"),
            Set("sys/class/net/ens1f0np0/ecn/roce_np/min_time_between_cnps", "50\n"),
        ],
        expected: &[],
    },
    Case {
        name: "a CNP each minute",
        host: "cx5-good",
        edits: &[Set("sys/class/net/ens1f0np0/ecn/roce_np/min_time_between_cnps", "60000000\n")],
        expected: &["H046"],
    },
    Case {
        name: "a parameter in debugfs, where there is no ecn",
        host: "cx5-good",
        edits: &[
            Drop("sys/class/net/ens1f0np0/ecn"),
            Set("sys/kernel/debug/mlx5/0000:81:00.0/cc_params/rp_min_rate", "50000\n"),
            Set("sys/kernel/debug/mlx5/0000:81:00.0/cc_params/np_cnp_prio", "6\n"),
        ],
        expected: &["H046"],
    },
    Case {
        name: "no ecn anywhere",
        host: "cx5-good",
        edits: &[Drop("sys/class/net/ens1f0np0/ecn")],
        expected: &[],
    },
    Case {
        name: "CNPs in the lossless priority",
        host: "cx5-good",
        edits: &[Set("sys/class/net/ens1f0np0/ecn/roce_np/cnp_802p_prio", "3\n")],
        expected: &["H047"],
    },
    Case {
        name: "CNPs by RoCE's DSCP",
        host: "cx5-good",
        edits: &[Set("sys/class/net/ens1f0np0/ecn/roce_np/cnp_dscp", "26\n")],
        expected: &["H047"],
    },
    Case {
        name: "CNPs in another priority",
        host: "cx5-good",
        edits: &[
            Set("sys/class/net/ens1f0np0/ecn/roce_np/cnp_802p_prio", "5\n"),
            Set("sys/class/net/ens1f0np0/ecn/roce_np/cnp_dscp", "46\n"),
        ],
        expected: &[],
    },
];
