//! GIDs, addresses, RDMA CM, subnets.
//! Changes of a recorded host, and all findings that they make; the limits are those of the
//! catalogue, worked out by hand.

use crate::catalogue::Case;
use crate::host::Edit::{Set, Swap};

pub(super) const CASES: &[Case] = &[
    Case {
        name: "RDMA CM by v1",
        host: "cx5-good",
        edits: &[Set("sys/kernel/config/rdma_cm/mlx5_0/ports/1/default_roce_mode", "IB/RoCE v1\n")],
        expected: &["H020"],
    },
    Case {
        name: "RDMA CM by v1, where there is nothing else",
        host: "cx5-good",
        edits: &[
            Set("sys/kernel/config/rdma_cm/mlx5_0/ports/1/default_roce_mode", "IB/RoCE v1\n"),
            Set("sys/class/infiniband/mlx5_0/ports/1/gid_attrs/types/1", "IB/RoCE v1\n"),
            Set("sys/class/infiniband/mlx5_0/ports/1/gid_attrs/types/3", "IB/RoCE v1\n"),
        ],
        expected: &["H021"],
    },
    Case {
        name: "no GID of v2",
        host: "cx5-good",
        edits: &[
            Set("sys/class/infiniband/mlx5_0/ports/1/gid_attrs/types/1", "IB/RoCE v1\n"),
            Set("sys/class/infiniband/mlx5_0/ports/1/gid_attrs/types/3", "IB/RoCE v1\n"),
        ],
        expected: &["H021"],
    },
    Case {
        name: "a link-local GID of v2, and an address without",
        host: "cx5-good",
        edits: &[Set("sys/class/infiniband/mlx5_0/ports/1/gid_attrs/types/3", "IB/RoCE v1\n")],
        expected: &["H022", "H023"],
    },
    Case {
        name: "an interface without an address",
        host: "cx5-good",
        edits: &[
            Set(
                "sys/class/infiniband/mlx5_0/ports/1/gids/2",
                "0000:0000:0000:0000:0000:0000:0000:0000\n",
            ),
            Set(
                "sys/class/infiniband/mlx5_0/ports/1/gids/3",
                "0000:0000:0000:0000:0000:0000:0000:0000\n",
            ),
            Swap("cmd/ip_-d_address.txt", "    inet 192.0.2.17/24", "    xxxx 192.0.2.17/24"),
        ],
        expected: &["H022"],
    },
    Case {
        name: "an interface with an IPv6 address only",
        host: "cx5-good",
        edits: &[
            Set(
                "sys/class/infiniband/mlx5_0/ports/1/gids/2",
                "2001:0db8:0000:0000:0000:0000:0000:0017\n",
            ),
            Set(
                "sys/class/infiniband/mlx5_0/ports/1/gids/3",
                "2001:0db8:0000:0000:0000:0000:0000:0017\n",
            ),
            Swap("cmd/ip_-d_address.txt", "    inet 192.0.2.17/24", "    inet6 2001:db8::17/64"),
        ],
        expected: &[],
    },
    Case {
        name: "another address than the GID has",
        host: "cx5-good",
        edits: &[Swap("cmd/ip_-d_address.txt", "192.0.2.17/24", "192.0.2.18/24")],
        expected: &["H023"],
    },
    Case {
        name: "two addresses with a GID each",
        host: "cx5-good",
        edits: &[
            Swap(
                "cmd/ip_-d_address.txt",
                "    inet6 fe80",
                "    inet 198.51.100.7/24 scope global x\n    inet6 fe80",
            ),
            Set(
                "sys/class/infiniband/mlx5_0/ports/1/gids/4",
                "0000:0000:0000:0000:0000:ffff:c633:6407\n",
            ),
            Set("sys/class/infiniband/mlx5_0/ports/1/gid_attrs/types/4", "RoCE v2\n"),
            Set("sys/class/infiniband/mlx5_0/ports/1/gid_attrs/ndevs/4", "ens1f0np0\n"),
        ],
        expected: &[],
    },
    Case {
        name: "two interfaces in one subnet",
        host: "cx5-good",
        edits: &[Swap(
            "cmd/ip_-d_address.txt",
            "2: ens1f0np0:",
            "9: eno1: <UP> mtu 1500 state UP\n    inet 192.0.2.117/24 scope g\
            lobal eno1\n2: ens1f0np0:",
        )],
        expected: &["H024"],
    },
    Case {
        name: "two interfaces in one subnet, kept apart",
        host: "cx5-good",
        edits: &[
            Swap(
                "cmd/ip_-d_address.txt",
                "2: ens1f0np0:",
                "9: eno1: <UP> mtu 1500 state UP\n    inet 192.0.2.117/24 scope g\
            lobal eno1\n2: ens1f0np0:",
            ),
            Set("proc/sys/net/ipv4/conf/ens1f0np0/arp_ignore", "1\n"),
            Set("proc/sys/net/ipv4/conf/ens1f0np0/arp_announce", "2\n"),
            Set("proc/sys/net/ipv4/conf/ens1f0np0/rp_filter", "2\n"),
        ],
        expected: &[],
    },
    Case {
        name: "two interfaces in one subnet, kept apart for all",
        host: "cx5-good",
        edits: &[
            Swap(
                "cmd/ip_-d_address.txt",
                "2: ens1f0np0:",
                "9: eno1: <UP> mtu 1500 state UP\n    inet 192.0.2.117/24 scope g\
            lobal eno1\n2: ens1f0np0:",
            ),
            Set("proc/sys/net/ipv4/conf/all/arp_ignore", "1\n"),
            Set("proc/sys/net/ipv4/conf/all/arp_announce", "2\n"),
        ],
        expected: &[],
    },
    Case {
        name: "two interfaces in one subnet, with a strict reverse path",
        host: "cx5-good",
        edits: &[
            Swap(
                "cmd/ip_-d_address.txt",
                "2: ens1f0np0:",
                "9: eno1: <UP> mtu 1500 state UP\n    inet 192.0.2.117/24 scope g\
            lobal eno1\n2: ens1f0np0:",
            ),
            Set("proc/sys/net/ipv4/conf/ens1f0np0/arp_ignore", "1\n"),
            Set("proc/sys/net/ipv4/conf/ens1f0np0/arp_announce", "2\n"),
            Set("proc/sys/net/ipv4/conf/all/rp_filter", "1\n"),
        ],
        expected: &["H024"],
    },
    Case {
        name: "another interface of the subnet that is not up",
        host: "cx5-good",
        edits: &[Swap(
            "cmd/ip_-d_address.txt",
            "2: ens1f0np0:",
            "9: eno1: <BROADCAST> mtu 1500 state DOWN\n    inet 192.0.2.117/2\
            4 scope global eno1\n2: ens1f0np0:",
        )],
        expected: &[],
    },
    Case {
        name: "two interfaces in two subnets",
        host: "cx5-good",
        edits: &[Swap(
            "cmd/ip_-d_address.txt",
            "2: ens1f0np0:",
            "9: eno1: <UP> mtu 1500 state UP\n    inet 192.0.3.117/24 scope g\
            lobal eno1\n2: ens1f0np0:",
        )],
        expected: &[],
    },
];
