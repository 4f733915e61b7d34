//! The machine around the NIC.
//! Changes of a recorded host, and all findings that they make; the limits are those of the
//! catalogue, worked out by hand.

use crate::catalogue::Case;
use crate::host::Edit::{Set, Swap};

pub(super) const CASES: &[Case] = &[
    Case {
        name: "too little memory to lock",
        host: "cx5-good",
        edits: &[Set(
            "proc/self/limits",
            "Limit                     Soft Limit           Hard Limit           \
            Units     \nMax locked memory         67108863    unlimited            \
            bytes     \n",
        )],
        expected: &["H070"],
    },
    Case {
        name: "enough memory to lock",
        host: "cx5-good",
        edits: &[Set(
            "proc/self/limits",
            "Limit                     Soft Limit           Hard Limit           \
            Units     \nMax locked memory         67108864    unlimited            \
            bytes     \n",
        )],
        expected: &[],
    },
    Case {
        name: "too little, but no limit binds",
        host: "cx5-good",
        edits: &[
            Set(
                "proc/self/limits",
                "Limit                     Soft Limit           Hard Limit           \
            Units     \nMax locked memory         65536    unlimited            \
            bytes     \n",
            ),
            Swap("proc/self/status", "CapEff:\t0000000000000000", "CapEff:\t0000000000004000"),
        ],
        expected: &[],
    },
    Case {
        name: "a process on the other node",
        host: "cx5-good",
        edits: &[Swap("proc/self/status", "Cpus_allowed_list:\t0-7", "Cpus_allowed_list:\t0-3")],
        expected: &["H071"],
    },
    Case {
        name: "a process on both nodes",
        host: "cx5-good",
        edits: &[Swap("proc/self/status", "Cpus_allowed_list:\t0-7", "Cpus_allowed_list:\t0-4")],
        expected: &[],
    },
    Case {
        name: "a process on a host with one node",
        host: "cx5-good",
        edits: &[
            Swap("proc/self/status", "Cpus_allowed_list:\t0-7", "Cpus_allowed_list:\t0-3"),
            Set("sys/devices/system/node/online", "0\n"),
        ],
        expected: &[],
    },
    Case {
        name: "a slow processor near the NIC",
        host: "cx5-good",
        edits: &[Set("sys/devices/system/cpu/cpu4/cpufreq/scaling_governor", "powersave\n")],
        expected: &["H072"],
    },
    Case {
        name: "a slow processor far from the NIC",
        host: "cx5-good",
        edits: &[Set("sys/devices/system/cpu/cpu3/cpufreq/scaling_governor", "powersave\n")],
        expected: &[],
    },
    Case {
        name: "all interrupts to one processor",
        host: "cx5-good",
        edits: &[
            Set("proc/irq/41/smp_affinity_list", "5\n"),
            Set("proc/irq/42/smp_affinity_list", "5\n"),
            Set("proc/irq/43/smp_affinity_list", "5\n"),
            Set("proc/irq/44/smp_affinity_list", "5\n"),
            Set("proc/irq/45/smp_affinity_list", "5\n"),
            Set("proc/irq/46/smp_affinity_list", "5\n"),
            Set("proc/irq/47/smp_affinity_list", "5\n"),
            Set("proc/irq/48/smp_affinity_list", "5\n"),
        ],
        expected: &["H073"],
    },
    Case {
        name: "interrupts to two processors",
        host: "cx5-good",
        edits: &[
            Set("proc/irq/41/smp_affinity_list", "5\n"),
            Set("proc/irq/42/smp_affinity_list", "6\n"),
            Set("proc/irq/43/smp_affinity_list", "5\n"),
            Set("proc/irq/44/smp_affinity_list", "6\n"),
            Set("proc/irq/45/smp_affinity_list", "5\n"),
            Set("proc/irq/46/smp_affinity_list", "6\n"),
            Set("proc/irq/47/smp_affinity_list", "5\n"),
            Set("proc/irq/48/smp_affinity_list", "6\n"),
        ],
        expected: &[],
    },
    Case {
        name: "all interrupts to the other node",
        host: "cx5-good",
        edits: &[
            Set("proc/irq/41/smp_affinity_list", "0\n"),
            Set("proc/irq/42/smp_affinity_list", "1\n"),
            Set("proc/irq/43/smp_affinity_list", "2\n"),
            Set("proc/irq/44/smp_affinity_list", "3\n"),
            Set("proc/irq/45/smp_affinity_list", "0\n"),
            Set("proc/irq/46/smp_affinity_list", "1\n"),
            Set("proc/irq/47/smp_affinity_list", "2\n"),
            Set("proc/irq/48/smp_affinity_list", "3\n"),
        ],
        expected: &["H074"],
    },
    Case {
        name: "one interrupt to the right node",
        host: "cx5-good",
        edits: &[
            Set("proc/irq/41/smp_affinity_list", "0\n"),
            Set("proc/irq/42/smp_affinity_list", "1\n"),
            Set("proc/irq/43/smp_affinity_list", "2\n"),
            Set("proc/irq/44/smp_affinity_list", "3\n"),
            Set("proc/irq/45/smp_affinity_list", "4\n"),
            Set("proc/irq/46/smp_affinity_list", "0\n"),
            Set("proc/irq/47/smp_affinity_list", "1\n"),
            Set("proc/irq/48/smp_affinity_list", "2\n"),
        ],
        expected: &[],
    },
    Case {
        name: "a small buffer for sockets",
        host: "plain",
        edits: &[Set("proc/sys/net/core/rmem_max", "4194303\n")],
        expected: &["H075"],
    },
    Case {
        name: "a large buffer for sockets",
        host: "plain",
        edits: &[Set("proc/sys/net/core/rmem_max", "4194304\n")],
        expected: &[],
    },
    Case {
        name: "a small buffer for sockets where an adapter is",
        host: "cx5-good",
        edits: &[Set("proc/sys/net/core/rmem_max", "4096\n")],
        expected: &[],
    },
];
