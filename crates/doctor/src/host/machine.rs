//! The machine around the NIC: a process's limits and processors, nodes, governors, interrupts,
//! socket buffers.

use std::collections::BTreeMap;

use crate::host::device::cpu_set;
use crate::limits;
use crate::parse::cpus::CpuSet;
use crate::parse::proc::{self, Interrupt};
use crate::reader::{Reader, Seen};

/// A process.
#[derive(Clone, Debug, Default)]
pub struct Process {
    /// Its number, if it was asked for.
    pub pid: Option<u32>,
    /// Bytes that it may lock in memory; `None` within is without limit.
    pub memlock: Option<Seen<Option<u64>>>,
    /// Whether the limit does not bind it (CAP_IPC_LOCK).
    pub may_lock: bool,
    /// The processors that it may run on.
    pub cpus: Option<Seen<CpuSet>>,
}

/// `CAP_IPC_LOCK` in the mask of capabilities (`capabilities(7)`).
const IPC_LOCK: u64 = 1 << 14;

impl Process {
    pub(crate) fn read(reader: &Reader<'_>, pid: Option<u32>) -> Self {
        let who = pid.map_or_else(|| "self".to_owned(), |pid| pid.to_string());
        let limits = reader.file(&format!("proc/{who}/limits"));
        let status = reader.file(&format!("proc/{who}/status"));
        if let (Some(pid), None, None) = (pid, &limits, &status) {
            reader.note(format!("/proc/{pid}"), "no such process");
        }
        let field = |key| status.as_ref().and_then(|seen| proc::status(&seen.value, key));
        let capabilities = field("CapEff").and_then(|hex| u64::from_str_radix(hex, 16).ok());
        let memlock = limits.as_ref().and_then(|seen| {
            let limit = proc::limit(&seen.value, "Max locked memory");
            reader.parsed(seen, limit, "a line `Max locked memory` with a number or `unlimited`")
        });
        let cpus = field("Cpus_allowed_list").and_then(|list| list.parse().ok());
        Self {
            pid,
            memlock,
            may_lock: capabilities.is_some_and(|mask| mask & IPC_LOCK != 0),
            cpus: cpus.and_then(|cpus| status.as_ref().map(|seen| seen.map(cpus))),
        }
    }
}

/// Processors.
#[derive(Clone, Debug, Default)]
pub struct Cpus {
    /// NUMA nodes.
    pub nodes: Option<Seen<CpuSet>>,
    /// Processors by frequency governor.
    pub governors: BTreeMap<String, CpuSet>,
}

impl Cpus {
    pub(crate) fn read(reader: &Reader<'_>) -> Self {
        let dir = "sys/devices/system/cpu";
        let online = cpu_set(reader, &format!("{dir}/online")).map(|seen| seen.value);
        let mut by_name: BTreeMap<String, Vec<String>> = BTreeMap::new();
        let online = online.unwrap_or_default();
        let cpus = (0..limits::CPUS).filter(|cpu| online.contains(*cpu));
        for cpu in cpus.take(limits::GOVERNORS) {
            let path = format!("{dir}/cpu{cpu}/cpufreq/scaling_governor");
            let Some(governor) = reader.word(&path) else { continue };
            if governor.value.bytes().all(|b| b.is_ascii_lowercase() || b == b'_') {
                by_name.entry(governor.value).or_default().push(cpu.to_string());
            } else {
                let expected = "the name of a governor";
                let _: Option<Seen<()>> = reader.parsed(&governor, None, expected);
            }
        }
        let governors = by_name
            .into_iter()
            .map(|(name, cpus)| (name, cpus.join(",").parse().unwrap_or_default()))
            .collect();
        Self { nodes: cpu_set(reader, "sys/devices/system/node/online"), governors }
    }
}

/// A completion interrupt.
#[derive(Clone, Debug)]
pub struct Irq {
    /// Its number.
    pub number: u32,
    /// The processors that it may go to.
    pub affinity: Option<Seen<CpuSet>>,
    /// The processors that have taken it.
    pub taken_by: CpuSet,
}

impl Irq {
    pub(crate) fn read(reader: &Reader<'_>, irq: &Interrupt) -> Self {
        let path = format!("proc/irq/{}/smp_affinity_list", irq.number);
        Self { number: irq.number, affinity: cpu_set(reader, &path), taken_by: irq.taken_by() }
    }
}

/// What a socket may have.
#[derive(Clone, Debug, Default)]
pub struct Sockets {
    /// `net.core.rmem_max`, bytes.
    pub rmem_max: Option<Seen<u64>>,
    /// `net.core.wmem_max`, bytes.
    pub wmem_max: Option<Seen<u64>>,
}

impl Sockets {
    pub(crate) fn read(reader: &Reader<'_>) -> Self {
        let of =
            |name: &str| reader.number(&format!("proc/sys/net/core/{name}"), "a number of bytes");
        Self { rmem_max: of("rmem_max"), wmem_max: of("wmem_max") }
    }
}
