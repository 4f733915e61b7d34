//! The port: link, PCI Express, damaged frames, MTU.
//! Changes of a recorded host, and all findings that they make; the limits are those of the
//! catalogue, worked out by hand.

use crate::catalogue::Case;
use crate::host::Edit::{Set, Swap};

pub(super) const CASES: &[Case] = &[
    Case {
        name: "a port without a link",
        host: "cx5-good",
        edits: &[
            Swap("sys/class/infiniband/mlx5_0/ports/1/state", "4: ACTIVE", "1: DOWN"),
            Swap("sys/class/infiniband/mlx5_0/ports/1/phys_state", "5: LinkUp", "3: Disabled"),
        ],
        expected: &["H001"],
    },
    Case {
        name: "a second port whose interface was set down",
        host: "cx5-good",
        edits: &[
            Set("sys/class/infiniband/mlx5_1/ports/1/state", "1: DOWN\n"),
            Set("sys/class/infiniband/mlx5_1/ports/1/link_layer", "Ethernet\n"),
            Set(
                "sys/class/infiniband/mlx5_1/device/uevent",
                "DRIVER=mlx5_core\nPCI_SLOT_NAME=0000:81:00.1\n",
            ),
            Set(
                "sys/class/infiniband/mlx5_1/ports/1/gids/0",
                "fe80:0000:0000:0000:0200:5eff:fe00:5399\n",
            ),
            Set("sys/class/infiniband/mlx5_1/ports/1/gid_attrs/types/0", "RoCE v2\n"),
            Set("sys/class/infiniband/mlx5_1/ports/1/gid_attrs/ndevs/0", "ens1f1np1\n"),
            Set("sys/class/net/ens1f1np1/mtu", "9000\n"),
            Set("sys/class/net/ens1f1np1/operstate", "down\n"),
            Set("sys/class/net/ens1f1np1/flags", "0x1002\n"),
        ],
        expected: &[],
    },
    Case {
        name: "a second port whose interface was set up, without an address",
        host: "cx5-good",
        edits: &[
            Set("sys/class/infiniband/mlx5_1/ports/1/state", "1: DOWN\n"),
            Set("sys/class/infiniband/mlx5_1/ports/1/link_layer", "Ethernet\n"),
            Set(
                "sys/class/infiniband/mlx5_1/device/uevent",
                "DRIVER=mlx5_core\nPCI_SLOT_NAME=0000:81:00.1\n",
            ),
            Set(
                "sys/class/infiniband/mlx5_1/ports/1/gids/0",
                "fe80:0000:0000:0000:0200:5eff:fe00:5399\n",
            ),
            Set("sys/class/infiniband/mlx5_1/ports/1/gid_attrs/types/0", "RoCE v2\n"),
            Set("sys/class/infiniband/mlx5_1/ports/1/gid_attrs/ndevs/0", "ens1f1np1\n"),
            Set("sys/class/net/ens1f1np1/mtu", "9000\n"),
            Set("sys/class/net/ens1f1np1/operstate", "down\n"),
            Set("sys/class/net/ens1f1np1/flags", "0x1003\n"),
        ],
        expected: &[],
    },
    Case {
        name: "a second port whose interface has an address",
        host: "cx5-good",
        edits: &[
            Set("sys/class/infiniband/mlx5_1/ports/1/state", "1: DOWN\n"),
            Set("sys/class/infiniband/mlx5_1/ports/1/link_layer", "Ethernet\n"),
            Set(
                "sys/class/infiniband/mlx5_1/device/uevent",
                "DRIVER=mlx5_core\nPCI_SLOT_NAME=0000:81:00.1\n",
            ),
            Set(
                "sys/class/infiniband/mlx5_1/ports/1/gids/0",
                "fe80:0000:0000:0000:0200:5eff:fe00:5399\n",
            ),
            Set("sys/class/infiniband/mlx5_1/ports/1/gid_attrs/types/0", "RoCE v2\n"),
            Set("sys/class/infiniband/mlx5_1/ports/1/gid_attrs/ndevs/0", "ens1f1np1\n"),
            Set("sys/class/net/ens1f1np1/mtu", "9000\n"),
            Set("sys/class/net/ens1f1np1/operstate", "down\n"),
            Set("sys/class/net/ens1f1np1/flags", "0x1003\n"),
            Swap(
                "cmd/ip_-d_address.txt",
                "2: ens1f0np0:",
                "9: ens1f1np1: <UP> mtu 9000 state UP\n    inet 198.51.100.3/24 s\
            cope global x\n2: ens1f0np0:",
            ),
        ],
        expected: &["H001"],
    },
    Case {
        name: "a link below what both sides offer",
        host: "cx5-good",
        edits: &[
            Set("sys/class/net/ens1f0np0/speed", "25000\n"),
            Set(
                "cmd/ethtool_ens1f0np0.txt",
                "Settings for ens1f0np0:\n\tSupported link modes:   100000baseCR4\
            /Full\n\tAdvertised link modes:  100000baseCR4/Full\n\tLink part\
            ner advertised link modes:  100000baseCR4/Full\n\tSpeed: 25000Mb\
            /s\n",
            ),
        ],
        expected: &["H002"],
    },
    Case {
        name: "a link below what this side could offer",
        host: "cx5-good",
        edits: &[
            Set("sys/class/net/ens1f0np0/speed", "25000\n"),
            Set(
                "cmd/ethtool_ens1f0np0.txt",
                "Settings for ens1f0np0:\n\tSupported link modes:   100000baseCR4\
            /Full\n\tAdvertised link modes:  25000baseCR/Full\n\tLink partne\
            r advertised link modes:  25000baseCR/Full\n\tSpeed: 25000Mb/s\n",
            ),
        ],
        expected: &["H002"],
    },
    Case {
        name: "a link as fast as the other side allows",
        host: "cx5-good",
        edits: &[
            Set("sys/class/net/ens1f0np0/speed", "25000\n"),
            Set(
                "cmd/ethtool_ens1f0np0.txt",
                "Settings for ens1f0np0:\n\tSupported link modes:   100000baseCR4\
            /Full\n\tAdvertised link modes:  100000baseCR4/Full\n\tLink part\
            ner advertised link modes:  25000baseCR/Full\n\tSpeed: 25000Mb/s\
            \n",
            ),
        ],
        expected: &[],
    },
    Case {
        name: "half of the lanes, of a generation that is fast enough",
        host: "cx5-good",
        edits: &[
            Set("sys/class/infiniband/mlx5_0/device/current_link_width", "8\n"),
            Set("sys/class/infiniband/mlx5_0/device/current_link_speed", "16.0 GT/s PCIe\n"),
            Set("sys/class/infiniband/mlx5_0/device/max_link_speed", "16.0 GT/s PCIe\n"),
        ],
        expected: &["H003"],
    },
    Case {
        name: "all lanes in an older slot that is fast enough",
        host: "cx5-good",
        edits: &[Set("sys/class/infiniband/mlx5_0/device/max_link_speed", "16.0 GT/s PCIe\n")],
        expected: &[],
    },
    Case {
        name: "a slow slot for two ports of a card",
        host: "cx5-good",
        edits: &[
            Set("sys/class/infiniband/mlx5_1/ports/1/state", "4: ACTIVE\n"),
            Set("sys/class/infiniband/mlx5_1/ports/1/link_layer", "Ethernet\n"),
            Set("sys/class/infiniband/mlx5_1/ports/1/rate", "100 Gb/sec (4X EDR)\n"),
            Set(
                "sys/class/infiniband/mlx5_1/device/uevent",
                "DRIVER=mlx5_core\nPCI_SLOT_NAME=0000:81:00.1\n",
            ),
            Set("sys/class/infiniband/mlx5_0/device/max_link_speed", "16.0 GT/s PCIe\n"),
        ],
        expected: &["H003"],
    },
    Case {
        name: "a card of two ports that can no more",
        host: "cx5-good",
        edits: &[
            Set("sys/class/infiniband/mlx5_1/ports/1/state", "4: ACTIVE\n"),
            Set("sys/class/infiniband/mlx5_1/ports/1/link_layer", "Ethernet\n"),
            Set("sys/class/infiniband/mlx5_1/ports/1/rate", "100 Gb/sec (4X EDR)\n"),
            Set(
                "sys/class/infiniband/mlx5_1/device/uevent",
                "DRIVER=mlx5_core\nPCI_SLOT_NAME=0000:81:00.1\n",
            ),
        ],
        expected: &[],
    },
    Case {
        name: "half of the lanes, which are too slow",
        host: "cx5-good",
        edits: &[Set("sys/class/infiniband/mlx5_0/device/current_link_width", "8\n")],
        expected: &["H004"],
    },
    Case {
        name: "a card of eight fast lanes",
        host: "cx5-good",
        edits: &[
            Set("sys/class/infiniband/mlx5_0/device/current_link_width", "8\n"),
            Set("sys/class/infiniband/mlx5_0/device/max_link_width", "8\n"),
            Set("sys/class/infiniband/mlx5_0/device/current_link_speed", "16.0 GT/s PCIe\n"),
            Set("sys/class/infiniband/mlx5_0/device/max_link_speed", "16.0 GT/s PCIe\n"),
        ],
        expected: &[],
    },
    Case {
        name: "a link to the processor that nobody knows",
        host: "cx5-good",
        edits: &[
            Set("sys/class/infiniband/mlx5_0/device/current_link_width", "63\n"),
            Set("sys/class/infiniband/mlx5_0/device/current_link_speed", "Unknown\n"),
        ],
        expected: &[],
    },
    Case {
        name: "one frame of a million damaged",
        host: "cx5-good",
        edits: &[Swap(
            "cmd/ethtool_-S_ens1f0np0.txt",
            " rx_crc_errors_phy: 0\n",
            " rx_crc_errors_phy: 5000\n",
        )],
        expected: &["H005"],
    },
    Case {
        name: "less than one of a hundred million",
        host: "cx5-good",
        edits: &[Swap(
            "cmd/ethtool_-S_ens1f0np0.txt",
            " rx_crc_errors_phy: 0\n",
            " rx_crc_errors_phy: 40\n",
        )],
        expected: &[],
    },
    Case {
        name: "symbol errors of the port",
        host: "cx5-good",
        edits: &[Set("sys/class/infiniband/mlx5_0/ports/1/counters/symbol_error", "65535\n")],
        expected: &["H005"],
    },
    Case {
        name: "twelve lost links in ten days",
        host: "cx5-good",
        edits: &[Set("sys/class/infiniband/mlx5_0/ports/1/counters/link_downed", "12\n")],
        expected: &["H006"],
    },
    Case {
        name: "nine lost links in ten days",
        host: "cx5-good",
        edits: &[Set("sys/class/infiniband/mlx5_0/ports/1/counters/link_downed", "9\n")],
        expected: &[],
    },
    Case {
        name: "twelve lost links in a hundred days",
        host: "cx5-good",
        edits: &[
            Set("sys/class/infiniband/mlx5_0/ports/1/counters/link_downed", "12\n"),
            Set("proc/uptime", "8640000.0 1.0\n"),
        ],
        expected: &[],
    },
    Case {
        name: "an MTU for 512",
        host: "cx5-good",
        edits: &[
            Set("sys/class/net/ens1f0np0/mtu", "1119\n"),
            Swap(
                "cmd/ibv_devinfo_-d_mlx5_0.txt",
                "active_mtu:\t\t4096 (5)",
                "active_mtu:\t\t512 (2)",
            ),
        ],
        expected: &["H010"],
    },
    Case {
        name: "an MTU for 1024",
        host: "cx5-good",
        edits: &[
            Set("sys/class/net/ens1f0np0/mtu", "1120\n"),
            Swap(
                "cmd/ibv_devinfo_-d_mlx5_0.txt",
                "active_mtu:\t\t4096 (5)",
                "active_mtu:\t\t1024 (3)",
            ),
        ],
        expected: &["H011"],
    },
    Case {
        name: "an MTU for 2048",
        host: "cx5-good",
        edits: &[
            Set("sys/class/net/ens1f0np0/mtu", "4191\n"),
            Swap(
                "cmd/ibv_devinfo_-d_mlx5_0.txt",
                "active_mtu:\t\t4096 (5)",
                "active_mtu:\t\t2048 (4)",
            ),
        ],
        expected: &["H011"],
    },
    Case {
        name: "an MTU for 4096",
        host: "cx5-good",
        edits: &[
            Set("sys/class/net/ens1f0np0/mtu", "4192\n"),
            Swap(
                "cmd/ibv_devinfo_-d_mlx5_0.txt",
                "active_mtu:\t\t4096 (5)",
                "active_mtu:\t\t4096 (5)",
            ),
        ],
        expected: &[],
    },
    Case {
        name: "a port that still thinks of a larger MTU",
        host: "cx5-good",
        edits: &[
            Set("sys/class/net/ens1f0np0/mtu", "1500\n"),
            Swap(
                "cmd/ibv_devinfo_-d_mlx5_0.txt",
                "active_mtu:\t\t4096 (5)",
                "active_mtu:\t\t4096 (5)",
            ),
        ],
        expected: &["H011", "H012"],
    },
    Case {
        name: "a port whose packets just fit",
        host: "cx5-good",
        edits: &[
            Set("sys/class/net/ens1f0np0/mtu", "4140\n"),
            Swap(
                "cmd/ibv_devinfo_-d_mlx5_0.txt",
                "active_mtu:\t\t4096 (5)",
                "active_mtu:\t\t4096 (5)",
            ),
        ],
        expected: &["H011"],
    },
];
