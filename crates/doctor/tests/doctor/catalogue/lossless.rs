//! PFC, pause, trust, DSCP, DCBX, headroom.
//! Changes of a recorded host, and all findings that they make; the limits are those of the
//! catalogue, worked out by hand.

use crate::catalogue::Case;
use crate::host::Edit::{Drop, Set, Swap};

pub(super) const CASES: &[Case] = &[
    Case {
        name: "no PFC",
        host: "cx5-good",
        edits: &[Swap(
            "cmd/mlnx_qos_-i_ens1f0np0.txt",
            "enabled     0   0   0   1   0   0   0   0",
            "enabled     0   0   0   0   0   0   0   0",
        )],
        expected: &["H030"],
    },
    Case {
        name: "no PFC on a port without a link",
        host: "cx5-good",
        edits: &[
            Swap(
                "cmd/mlnx_qos_-i_ens1f0np0.txt",
                "enabled     0   0   0   1   0   0   0   0",
                "enabled     0   0   0   0   0   0   0   0",
            ),
            Swap("sys/class/infiniband/mlx5_0/ports/1/state", "4: ACTIVE", "1: DOWN"),
        ],
        expected: &["H001"],
    },
    Case {
        name: "global pause instead of PFC",
        host: "cx5-good",
        edits: &[
            Swap(
                "cmd/mlnx_qos_-i_ens1f0np0.txt",
                "enabled     0   0   0   1   0   0   0   0",
                "enabled     0   0   0   0   0   0   0   0",
            ),
            Set(
                "cmd/ethtool_-a_ens1f0np0.txt",
                "Pause parameters for ens1f0np0:\nAutonegotiate:\toff\nRX:\t\ton\n\
            TX:\t\ton\n",
            ),
        ],
        expected: &["H035"],
    },
    Case {
        name: "half of global pause instead of PFC",
        host: "cx5-good",
        edits: &[
            Swap(
                "cmd/mlnx_qos_-i_ens1f0np0.txt",
                "enabled     0   0   0   1   0   0   0   0",
                "enabled     0   0   0   0   0   0   0   0",
            ),
            Set(
                "cmd/ethtool_-a_ens1f0np0.txt",
                "Pause parameters for ens1f0np0:\nAutonegotiate:\toff\nRX:\t\ton\n\
            TX:\t\toff\n",
            ),
        ],
        expected: &["H030"],
    },
    Case {
        name: "PFC that nobody can tell of",
        host: "cx5-good",
        edits: &[Drop("cmd/mlnx_qos_-i_ens1f0np0.txt")],
        expected: &[],
    },
    Case {
        name: "RoCE's DSCP in another priority",
        host: "cx5-good",
        edits: &[
            Swap(
                "cmd/mlnx_qos_-i_ens1f0np0.txt",
                "prio:3 dscp:31,30,29,28,27,26,25,24,",
                "prio:3 dscp:31,30,29,28,27,25,24,",
            ),
            Swap("cmd/mlnx_qos_-i_ens1f0np0.txt", "prio:0 dscp:07,", "prio:0 dscp:26,07,"),
        ],
        expected: &["H031"],
    },
    Case {
        name: "another DSCP in another priority",
        host: "cx5-good",
        edits: &[
            Swap(
                "cmd/mlnx_qos_-i_ens1f0np0.txt",
                "prio:3 dscp:31,30,29,28,27,26,25,24,",
                "prio:3 dscp:31,30,29,28,26,25,24,",
            ),
            Swap("cmd/mlnx_qos_-i_ens1f0np0.txt", "prio:0 dscp:07,", "prio:0 dscp:27,07,"),
        ],
        expected: &[],
    },
    Case {
        name: "no ToS",
        host: "cx5-good",
        edits: &[Set("sys/kernel/config/rdma_cm/mlx5_0/ports/1/default_roce_tos", "0\n")],
        expected: &["H032"],
    },
    Case {
        name: "no ToS of RDMA CM, and one of the driver",
        host: "cx5-good",
        edits: &[
            Set("sys/kernel/config/rdma_cm/mlx5_0/ports/1/default_roce_tos", "0\n"),
            Set("sys/class/infiniband/mlx5_0/tc/1/traffic_class", "Global tclass=106\n"),
        ],
        expected: &[],
    },
    Case {
        name: "the driver's ToS, which leads elsewhere",
        host: "cx5-good",
        edits: &[Set("sys/class/infiniband/mlx5_0/tc/1/traffic_class", "Global tclass=64\n")],
        expected: &["H031"],
    },
    Case {
        name: "no ToS, and PFC for priority 0 too",
        host: "cx5-good",
        edits: &[
            Set("sys/kernel/config/rdma_cm/mlx5_0/ports/1/default_roce_tos", "0\n"),
            Swap(
                "cmd/mlnx_qos_-i_ens1f0np0.txt",
                "enabled     0   0   0   1   0   0   0   0",
                "enabled     1   0   0   1   0   0   0   0",
            ),
            Swap("cmd/lldptool_-t_-n_-i_ens1f0np0.txt", "PFC enabled: 3", "PFC enabled: 0 3"),
        ],
        expected: &[],
    },
    Case {
        name: "PFC on three priorities",
        host: "cx5-good",
        edits: &[
            Swap(
                "cmd/mlnx_qos_-i_ens1f0np0.txt",
                "enabled     0   0   0   1   0   0   0   0",
                "enabled     0   0   1   1   1   0   0   0",
            ),
            Swap("cmd/lldptool_-t_-n_-i_ens1f0np0.txt", "PFC enabled: 3", "PFC enabled: 2 3 4"),
        ],
        expected: &["H033"],
    },
    Case {
        name: "PFC on two priorities",
        host: "cx5-good",
        edits: &[
            Swap(
                "cmd/mlnx_qos_-i_ens1f0np0.txt",
                "enabled     0   0   0   1   0   0   0   0",
                "enabled     0   0   0   1   1   0   0   0",
            ),
            Swap("cmd/lldptool_-t_-n_-i_ens1f0np0.txt", "PFC enabled: 3", "PFC enabled: 3 4"),
        ],
        expected: &[],
    },
    Case {
        name: "PFC and global pause",
        host: "cx5-good",
        edits: &[Set(
            "cmd/ethtool_-a_ens1f0np0.txt",
            "Pause parameters for ens1f0np0:\nAutonegotiate:\toff\nRX:\t\toff\
            \nTX:\t\ton\n",
        )],
        expected: &["H034"],
    },
    Case {
        name: "trust in tags that are not there",
        host: "cx5-good",
        edits: &[Swap("cmd/mlnx_qos_-i_ens1f0np0.txt", "trust state: dscp", "trust state: pcp")],
        expected: &["H036"],
    },
    Case {
        name: "trust in the tags of a VLAN",
        host: "cx5-good",
        edits: &[
            Set("sys/class/infiniband/mlx5_0/ports/1/gid_attrs/ndevs/0", "ens1f0np0.100\n"),
            Set("sys/class/infiniband/mlx5_0/ports/1/gid_attrs/ndevs/1", "ens1f0np0.100\n"),
            Set("sys/class/infiniband/mlx5_0/ports/1/gid_attrs/ndevs/2", "ens1f0np0.100\n"),
            Set("sys/class/infiniband/mlx5_0/ports/1/gid_attrs/ndevs/3", "ens1f0np0.100\n"),
            Set("sys/class/net/ens1f0np0.100/mtu", "9000\n"),
            Set("sys/class/net/ens1f0np0.100/operstate", "up\n"),
            Set("sys/class/net/ens1f0np0.100/flags", "0x1003\n"),
            Set("sys/class/net/ens1f0np0.100/uevent", "DEVTYPE=vlan\nINTERFACE=ens1f0np0.100\n"),
            Swap(
                "cmd/ip_-d_address.txt",
                "2: ens1f0np0: <BROADCAST,MULTICAST,UP,LOWER_UP> mtu 9000",
                "2: ens1f0np0: <UP> mtu 9000\n9: ens1f0np0.100@ens1f0np0: <UP> mt\
            u 9000",
            ),
            Swap("cmd/mlnx_qos_-i_ens1f0np0.txt", "trust state: dscp", "trust state: pcp"),
        ],
        expected: &[],
    },
    Case {
        name: "a VLAN's port without PFC",
        host: "cx5-good",
        edits: &[
            Set("sys/class/infiniband/mlx5_0/ports/1/gid_attrs/ndevs/0", "ens1f0np0.100\n"),
            Set("sys/class/infiniband/mlx5_0/ports/1/gid_attrs/ndevs/1", "ens1f0np0.100\n"),
            Set("sys/class/infiniband/mlx5_0/ports/1/gid_attrs/ndevs/2", "ens1f0np0.100\n"),
            Set("sys/class/infiniband/mlx5_0/ports/1/gid_attrs/ndevs/3", "ens1f0np0.100\n"),
            Set("sys/class/net/ens1f0np0.100/mtu", "9000\n"),
            Set("sys/class/net/ens1f0np0.100/operstate", "up\n"),
            Set("sys/class/net/ens1f0np0.100/flags", "0x1003\n"),
            Set("sys/class/net/ens1f0np0.100/uevent", "DEVTYPE=vlan\nINTERFACE=ens1f0np0.100\n"),
            Swap(
                "cmd/ip_-d_address.txt",
                "2: ens1f0np0: <BROADCAST,MULTICAST,UP,LOWER_UP> mtu 9000",
                "2: ens1f0np0: <UP> mtu 9000\n9: ens1f0np0.100@ens1f0np0: <UP> mt\
            u 9000",
            ),
            Swap(
                "cmd/mlnx_qos_-i_ens1f0np0.txt",
                "enabled     0   0   0   1   0   0   0   0",
                "enabled     0   0   0   0   0   0   0   0",
            ),
        ],
        expected: &["H030"],
    },
    Case {
        name: "DCBX by firmware and by lldpad",
        host: "cx5-good",
        edits: &[Swap("cmd/mlnx_qos_-i_ens1f0np0.txt", "OS controlled", "Firmware controlled")],
        expected: &["H037"],
    },
    Case {
        name: "DCBX by firmware alone, and lldpad that only listens",
        host: "cx5-good",
        edits: &[
            Swap("cmd/mlnx_qos_-i_ens1f0np0.txt", "OS controlled", "Firmware controlled"),
            Drop("cmd/lldptool_-t_-i_ens1f0np0.txt"),
        ],
        expected: &[],
    },
    Case {
        name: "a neighbour with PFC on one more",
        host: "cx5-good",
        edits: &[Swap("cmd/lldptool_-t_-n_-i_ens1f0np0.txt", "PFC enabled: 3", "PFC enabled: 3 4")],
        expected: &["H038"],
    },
    Case {
        name: "a neighbour that says nothing of PFC",
        host: "cx5-good",
        edits: &[Swap("cmd/lldptool_-t_-n_-i_ens1f0np0.txt", "IEEE 8021QAZ PFC TLV", "Other TLV")],
        expected: &[],
    },
    Case {
        name: "a buffer that is just too small",
        host: "cx5-good",
        edits: &[Swap("cmd/mlnx_qos_-i_ens1f0np0.txt", "130944,130944", "130944,65307")],
        expected: &["H039"],
    },
    Case {
        name: "a buffer that is just large enough",
        host: "cx5-good",
        edits: &[Swap("cmd/mlnx_qos_-i_ens1f0np0.txt", "130944,130944", "130944,65309")],
        expected: &[],
    },
    Case {
        name: "a buffer for a longer cable",
        host: "cx5-good",
        edits: &[Swap("cmd/mlnx_qos_-i_ens1f0np0.txt", "Cable len: 7", "Cable len: 400")],
        expected: &["H039"],
    },
    Case {
        name: "a small buffer of the other priorities",
        host: "cx5-good",
        edits: &[Swap("cmd/mlnx_qos_-i_ens1f0np0.txt", "130944,130944", "20016,130944")],
        expected: &[],
    },
];
