//! The machine around the NIC: memory that may be locked, nodes, governors, interrupts, sockets.

use crate::catalogue::Rule;
use crate::finding::{Evidence, Finding};
use crate::host::{Asked, Device, Host};
use crate::parse::cpus::CpuSet;

/// Bytes that a process may lock at least before registration is expected to work.
const MEMLOCK: u64 = 64 << 20;
/// Bytes of socket buffer that crocevia's NIC wants (README.md).
const RMEM: u64 = 4 << 20;
/// Completion interrupts from which on one processor is too few.
const IRQS: usize = 4;

pub(super) fn judge(host: &Host, asked: &Asked, out: &mut Vec<Finding>) {
    let own = |device: &&Device| {
        let Some(name) = &asked.interface else { return true };
        let netdevs = || device.ports.iter().flat_map(crate::host::Port::netdevs);
        netdevs()
            .any(|netdev| netdev == *name || host.physical(&netdev).iter().any(|i| i.name == *name))
    };
    let adapters: Vec<&Device> =
        host.devices.iter().filter(|device| !device.is_software()).filter(own).collect();
    if adapters.is_empty() {
        sockets(host, out);
        return;
    }
    memlock(host, out);
    governors(host, &adapters, out);
    for device in adapters {
        numa(host, device, out);
        irqs(host, device, out);
    }
}

fn sockets(host: &Host, out: &mut Vec<Finding>) {
    // A host with a device, be it rxe or for InfiniBand, has RDMA without crocevia's sockets.
    if !host.others.is_empty() || !host.devices.is_empty() {
        return;
    }
    if let Some(seen) = &host.sockets.rmem_max
        && seen.value < RMEM
    {
        out.push(
            Finding::new(Rule::RmemMax, "sockets")
                .with(Evidence::of("net.core.rmem_max", seen))
                .with(Evidence::new("wanted", RMEM.to_string(), "crocevia's README"))
                .mend(format!("sysctl -w net.core.rmem_max={RMEM}")),
        );
    }
}

fn process_name(host: &Host) -> String {
    host.process.pid.map_or_else(|| "this process".to_owned(), |pid| format!("process {pid}"))
}

fn memlock(host: &Host, out: &mut Vec<Finding>) {
    let Some(seen) = &host.process.memlock else { return };
    if let Some(limit) = seen.value
        && limit < MEMLOCK
        && !host.process.may_lock
    {
        let remedy = match host.process.pid {
            Some(pid) => format!("prlimit --pid {pid} --memlock=unlimited"),
            None => "echo '* - memlock unlimited' > /etc/security/limits.d/rdma.conf, then log in \
                     anew"
                .to_owned(),
        };
        out.push(
            Finding::new(Rule::Memlock, process_name(host))
                .with(Evidence::new("Max locked memory", format!("{limit} bytes"), &seen.from))
                .mend(remedy),
        );
    }
}

fn several_nodes(host: &Host) -> bool {
    host.cpus.nodes.as_ref().is_some_and(|nodes| nodes.value.len() > 1)
}

fn numa(host: &Host, device: &Device, out: &mut Vec<Finding>) {
    let (Some(node), Some(local)) = (&device.numa_node, &device.local_cpus) else { return };
    let Some(allowed) = &host.process.cpus else { return };
    if !several_nodes(host) || allowed.value.is_empty() || allowed.value.meets(&local.value) {
        return;
    }
    let remedy = match host.process.pid {
        Some(pid) => {
            format!("taskset -apc {} {pid}; migratepages {pid} all {}", local.value, node.value)
        }
        None => format!("numactl --cpunodebind={0} --membind={0} PROGRAM", node.value),
    };
    out.push(
        Finding::new(Rule::Numa, format!("{}, {}", process_name(host), device.name))
            .with(Evidence::of("the NIC's node", node))
            .with(Evidence::of("its processors", local))
            .with(Evidence::of("the process's processors", allowed))
            .mend(remedy),
    );
}

fn governors(host: &Host, adapters: &[&Device], out: &mut Vec<Finding>) {
    let mut near = CpuSet::default();
    for local in adapters.iter().filter_map(|device| device.local_cpus.as_ref()) {
        near.extend(&local.value);
    }
    let slow =
        host.cpus.governors.iter().filter(|(name, cpus)| {
            *name != "performance" && (near.is_empty() || cpus.meets(&near))
        });
    let mut finding = Finding::new(Rule::Governor, "processors");
    for (name, cpus) in slow {
        let from = "/sys/devices/system/cpu/cpu*/cpufreq/scaling_governor";
        finding = finding.with(Evidence::new(format!("processors {cpus}"), name, from));
    }
    if !finding.found.is_empty() {
        out.push(finding.mend("cpupower frequency-set -g performance"));
    }
}

fn irqs(host: &Host, device: &Device, out: &mut Vec<Finding>) {
    let mut allowed = CpuSet::default();
    let mut taken = CpuSet::default();
    for irq in &device.irqs {
        if let Some(affinity) = &irq.affinity {
            allowed.extend(&affinity.value);
        }
        taken.extend(&irq.taken_by);
    }
    let busy = device.irqs.iter().filter(|irq| !irq.taken_by.is_empty()).count();
    let interface = device.ports.iter().flat_map(crate::host::Port::netdevs).next();
    let interface = interface.unwrap_or_else(|| "IF".to_owned());
    let count = format!("{} completion interrupts", device.irqs.len());
    let from = "/proc/irq/N/smp_affinity_list";
    let more = device.local_cpus.as_ref().is_none_or(|local| local.value.len() > 1);
    let one_allowed = device.irqs.len() >= IRQS && allowed.len() == 1;
    let one_taken = busy >= IRQS && taken.len() == 1;
    if more && (one_allowed || one_taken) {
        let (cpus, from) =
            if one_allowed { (&allowed, from) } else { (&taken, "/proc/interrupts") };
        out.push(
            Finding::new(Rule::IrqOneCpu, &device.name)
                .with(Evidence::new(count.clone(), format!("all on processor {cpus}"), from))
                .mend(format!("set_irq_affinity.sh {interface}")),
        );
    }
    let Some(local) = &device.local_cpus else { return };
    if several_nodes(host) && !allowed.is_empty() && !allowed.meets(&local.value) {
        let node =
            device.numa_node.as_ref().map_or_else(String::new, |node| node.value.to_string());
        out.push(
            Finding::new(Rule::IrqWrongNode, &device.name)
                .with(Evidence::new(count, format!("on processors {allowed}"), from))
                .with(Evidence::of("the NIC's processors", local))
                .mend(format!("set_irq_affinity_bynode.sh {node} {interface}")),
        );
    }
}
