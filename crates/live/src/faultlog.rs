//! What is told of injected faults, and to whom. A link collects it under the NIC's lock, the NIC
//! tells it after the lock has been given up. How it is shown is decided elsewhere.

use std::fmt;
use std::sync::OnceLock;

use engine::FaultCounts;
use engine::faults::{Direction, FaultKind, FaultSet, Struck};
use wire::{Instant, Psn, Qpn};

/// Something to be told of faults.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum FaultNews {
    /// A packet met faults.
    Packet {
        /// Which way it went.
        direction: Direction,
        /// Its number among those of its direction, from 1.
        number: u64,
        /// The faults.
        faults: FaultSet,
        /// Where it goes.
        dest_qp: Qpn,
        /// Its sequence number.
        psn: Psn,
    },
    /// So many such packets were too many to be told one by one.
    Untold {
        /// Which way they went.
        direction: Direction,
        /// Packets.
        count: u64,
    },
    /// A one-shot fault has struck.
    Struck {
        /// In which direction.
        direction: Direction,
        /// The fault.
        struck: Struck,
    },
    /// Everything, at the end.
    Summary {
        /// Of received packets.
        rx: FaultCounts,
        /// Of sent packets, if these pass through a stage.
        tx: Option<FaultCounts>,
        /// One-shot faults that have not struck.
        waiting: Vec<String>,
    },
}

impl FaultNews {
    /// Whether it is about single packets: of these there may be very many.
    pub fn is_detail(&self) -> bool {
        matches!(self, Self::Packet { .. } | Self::Untold { .. })
    }
}

fn counted(f: &mut fmt::Formatter<'_>, counts: &FaultCounts) -> fmt::Result {
    write!(f, "{} packets", counts.offered)?;
    for kind in FaultKind::ALL {
        if counts.of(kind) > 0 {
            write!(f, ", {} {}", counts.of(kind), kind.noun())?;
        }
    }
    if counts.struck > 0 {
        write!(f, ", {} one-shot", counts.struck)?;
    }
    Ok(())
}

impl fmt::Display for FaultNews {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Packet { direction, number, faults, dest_qp, psn } => write!(
                f,
                "{direction} packet {number} to QP {:#08x}, PSN {}: {faults}",
                dest_qp.get(),
                psn.get()
            ),
            Self::Untold { direction, count } => {
                write!(f, "{direction}: {count} more packets met faults")
            }
            Self::Struck { direction, struck } => {
                write!(f, "{} struck", struck.shot.kind)?;
                if let Some(number) = struck.number {
                    write!(f, " at {direction} packet {number}")?;
                }
                let us = struck.at.since(Instant::ZERO).as_ps() / 1_000_000;
                write!(f, " after {}.{:06} s", us / 1_000_000, us % 1_000_000)
            }
            Self::Summary { rx, tx, waiting } => {
                f.write_str("received ")?;
                counted(f, rx)?;
                if let Some(tx) = tx {
                    f.write_str("; sent ")?;
                    counted(f, tx)?;
                }
                if !waiting.is_empty() {
                    write!(f, "; never struck: {}", waiting.join(", "))?;
                }
                Ok(())
            }
        }
    }
}

/// How much is told.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Detail {
    Nothing,
    /// One-shot faults and the summary.
    Once,
    /// Each packet too.
    Each,
}

struct Watch {
    each: bool,
    tell: fn(&str, &FaultNews),
}

static WATCH: OnceLock<Watch> = OnceLock::new();

/// Has `tell` called with the name of the device and what there is to tell of its faults; with
/// `each`, of every packet that meets one. For devices opened afterwards; the first call counts. It
/// is called from whichever thread drives the device, without any lock of the NIC held.
pub fn watch_faults(each: bool, tell: fn(&str, &FaultNews)) {
    // A second caller finds the first one's in place, as documented.
    let _ = WATCH.set(Watch { each, tell });
}

impl Detail {
    /// What somebody has asked for.
    pub(crate) fn wanted() -> Self {
        match WATCH.get() {
            None => Self::Nothing,
            Some(watch) if watch.each => Self::Each,
            Some(_) => Self::Once,
        }
    }
}

/// Tells it.
pub(crate) fn tell(device: &str, news: &FaultNews) {
    if let Some(watch) = WATCH.get() {
        (watch.tell)(device, news);
    }
}
