//! Counters in one reading.
//! Changes of a recorded host, and all findings that they make; the limits are those of the
//! catalogue, worked out by hand.

use crate::catalogue::Case;
use crate::host::Edit::{Set, Swap};

pub(super) const CASES: &[Case] = &[
    Case {
        name: "one packet of a hundred thousand dropped",
        host: "cx5-good",
        edits: &[Swap(
            "cmd/ethtool_-S_ens1f0np0.txt",
            " rx_prio3_buf_discard: 0\n",
            " rx_prio3_buf_discard: 50000\n",
        )],
        expected: &["H050"],
    },
    Case {
        name: "less than one of a million dropped",
        host: "cx5-good",
        edits: &[Swap(
            "cmd/ethtool_-S_ens1f0np0.txt",
            " rx_prio3_buf_discard: 0\n",
            " rx_prio3_buf_discard: 4000\n",
        )],
        expected: &[],
    },
    Case {
        name: "receives missing for two of a hundred thousand",
        host: "cx5-good",
        edits: &[Set("sys/class/infiniband/mlx5_0/ports/1/hw_counters/out_of_buffer", "100000\n")],
        expected: &["H051"],
    },
    Case {
        name: "receives missing for less than one",
        host: "cx5-good",
        edits: &[Set("sys/class/infiniband/mlx5_0/ports/1/hw_counters/out_of_buffer", "40000\n")],
        expected: &[],
    },
    Case {
        name: "a pause storm",
        host: "cx5-good",
        edits: &[Swap(
            "cmd/ethtool_-S_ens1f0np0.txt",
            " tx_pause_storm_warning_events: 0\n",
            " tx_pause_storm_warning_events: 1\n",
        )],
        expected: &["H052"],
    },
    Case {
        name: "many pauses",
        host: "cx5-good",
        edits: &[
            Swap(
                "cmd/ethtool_-S_ens1f0np0.txt",
                " tx_prio3_pause: 0\n",
                " tx_prio3_pause: 1000000\n",
            ),
            Swap(
                "cmd/ethtool_-S_ens1f0np0.txt",
                " rx_prio3_pause: 812\n",
                " rx_prio3_pause: 9000000\n",
            ),
        ],
        expected: &[],
    },
    Case {
        name: "out of sequence",
        host: "cx5-good",
        edits: &[Set("sys/class/infiniband/mlx5_0/ports/1/hw_counters/out_of_sequence", "60000\n")],
        expected: &["H055"],
    },
    Case {
        name: "a little out of sequence",
        host: "cx5-good",
        edits: &[Set("sys/class/infiniband/mlx5_0/ports/1/hw_counters/out_of_sequence", "40000\n")],
        expected: &[],
    },
    Case {
        name: "the peers say so",
        host: "cx5-good",
        edits: &[Set("sys/class/infiniband/mlx5_0/ports/1/hw_counters/packet_seq_err", "60000\n")],
        expected: &["H055"],
    },
    Case {
        name: "timeouts",
        host: "cx5-good",
        edits: &[Set(
            "sys/class/infiniband/mlx5_0/ports/1/hw_counters/local_ack_timeou\
            t_err",
            "6000\n",
        )],
        expected: &["H056"],
    },
    Case {
        name: "some timeouts",
        host: "cx5-good",
        edits: &[Set(
            "sys/class/infiniband/mlx5_0/ports/1/hw_counters/local_ack_timeou\
            t_err",
            "4000\n",
        )],
        expected: &[],
    },
    Case {
        name: "RNR NAKs",
        host: "cx5-good",
        edits: &[Set(
            "sys/class/infiniband/mlx5_0/ports/1/hw_counters/rnr_nak_retry_er\
            r",
            "600000\n",
        )],
        expected: &["H057"],
    },
    Case {
        name: "some RNR NAKs",
        host: "cx5-good",
        edits: &[Set(
            "sys/class/infiniband/mlx5_0/ports/1/hw_counters/rnr_nak_retry_er\
            r",
            "400000\n",
        )],
        expected: &[],
    },
    Case {
        name: "implied NAKs",
        host: "cx5-good",
        edits: &[Set(
            "sys/class/infiniband/mlx5_0/ports/1/hw_counters/implied_nak_seq_\
            err",
            "60000\n",
        )],
        expected: &["H058"],
    },
    Case {
        name: "some implied NAKs",
        host: "cx5-good",
        edits: &[Set(
            "sys/class/infiniband/mlx5_0/ports/1/hw_counters/implied_nak_seq_\
            err",
            "40000\n",
        )],
        expected: &[],
    },
    Case {
        name: "a wrong ICRC",
        host: "cx5-good",
        edits: &[Set(
            "sys/class/infiniband/mlx5_0/ports/1/hw_counters/rx_icrc_encapsul\
            ated",
            "1\n",
        )],
        expected: &["H059"],
    },
    Case {
        name: "an error of a request",
        host: "cx5-good",
        edits: &[Set("sys/class/infiniband/mlx5_0/ports/1/hw_counters/req_cqe_error", "5\n")],
        expected: &[],
    },
    Case {
        name: "retries used up",
        host: "cx5-good",
        edits: &[Set(
            "sys/class/infiniband/mlx5_0/ports/1/hw_counters/req_transport_re\
            tries_exceeded",
            "6000\n",
        )],
        expected: &["H060"],
    },
    Case {
        name: "some retries used up",
        host: "cx5-good",
        edits: &[Set(
            "sys/class/infiniband/mlx5_0/ports/1/hw_counters/req_transport_re\
            tries_exceeded",
            "4000\n",
        )],
        expected: &[],
    },
    Case {
        name: "marks and no CNP",
        host: "cx5-good",
        edits: &[Set("sys/class/infiniband/mlx5_0/ports/1/hw_counters/np_cnp_sent", "0\n")],
        expected: &["H061"],
    },
    Case {
        name: "marks and one CNP",
        host: "cx5-good",
        edits: &[Set("sys/class/infiniband/mlx5_0/ports/1/hw_counters/np_cnp_sent", "1\n")],
        expected: &[],
    },
    Case {
        name: "few marks and no CNP",
        host: "cx5-good",
        edits: &[
            Set("sys/class/infiniband/mlx5_0/ports/1/hw_counters/np_cnp_sent", "0\n"),
            Set(
                "sys/class/infiniband/mlx5_0/ports/1/hw_counters/np_ecn_marked_ro\
            ce_packets",
                "99\n",
            ),
        ],
        expected: &[],
    },
    Case {
        name: "CNPs ignored",
        host: "cx5-good",
        edits: &[Set("sys/class/infiniband/mlx5_0/ports/1/hw_counters/rp_cnp_ignored", "6000\n")],
        expected: &["H062"],
    },
    Case {
        name: "some CNPs ignored",
        host: "cx5-good",
        edits: &[Set("sys/class/infiniband/mlx5_0/ports/1/hw_counters/rp_cnp_ignored", "5000\n")],
        expected: &[],
    },
    Case {
        name: "a NIC that waits",
        host: "cx5-good",
        edits: &[Swap(
            "cmd/ethtool_-S_ens1f0np0.txt",
            " outbound_pci_stalled_wr: 0\n",
            " outbound_pci_stalled_wr: 6\n",
        )],
        expected: &["H064"],
    },
    Case {
        name: "a NIC that waits a little",
        host: "cx5-good",
        edits: &[Swap(
            "cmd/ethtool_-S_ens1f0np0.txt",
            " outbound_pci_stalled_wr: 0\n",
            " outbound_pci_stalled_wr: 5\n",
        )],
        expected: &[],
    },
];
