//! Congestion control as a closed choice: what a sender does about congestion, and what a receiver
//! tells it. The controls themselves have a file each; where queue pairs meet them is `qp/limit`.

pub mod dcqcn;

use wire::{Rate, Span};

pub use dcqcn::{AlphaClock, Dcqcn, Hyper};

/// What a sender does about congestion.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Control {
    /// Nothing: packets are not ECN capable, CNPs are neither sent nor obeyed.
    #[default]
    None,
    /// DCQCN: the receiver answers marks with CNPs, which the sender obeys by a rate.
    Dcqcn(Dcqcn),
}

/// Congestion control of a device.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Congestion {
    /// What a sender does.
    pub control: Control,
    /// Rate of the port: where every queue pair begins.
    pub line: Rate,
    /// When a receiver tells of marks.
    pub notification: Notification,
    /// Bytes of a frame besides its payload that a rate counts; none: those of an Ethernet frame.
    pub overhead: Option<u32>,
}

/// The notification point: how a receiver of marked packets tells their sender.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Notification {
    /// Least time between two CNPs of a queue pair (`min_time_between_cnps`).
    pub spacing: Span,
    /// A mark within that time is told of at its end, as the paper has it; else it is passed over.
    pub at_end: bool,
    /// DSCP of CNPs (`cnp_dscp`), 0..=63.
    pub dscp: u8,
    /// Priority of CNPs (`cnp_802p_prio`), 0..=7.
    pub priority: u8,
}

impl Notification {
    /// The paper's: one CNP in 50 µs.
    pub const PAPER: Self =
        Self { spacing: Span::from_us(50), at_end: true, dscp: 48, priority: 6 };
    /// As adapters come: one in 4 µs (`CNP_DSCP_P1` 48, `CNP_802P_PRIO_P1` 6).
    pub const VENDOR: Self =
        Self { spacing: Span::from_us(4), at_end: false, dscp: 48, priority: 6 };
}

impl Congestion {
    /// No control at all.
    pub const OFF: Self = Self {
        control: Control::None,
        line: Rate::from_gbps(100),
        notification: Notification::VENDOR,
        overhead: None,
    };

    /// Whether packets say that they are ECN capable.
    pub(crate) fn marks(&self) -> bool {
        self.control != Control::None
    }
}

impl Default for Congestion {
    fn default() -> Self {
        Self::OFF
    }
}
