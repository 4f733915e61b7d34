//! Whether a sender slows down: its rate in windows of a millisecond, before CNPs come and while
//! they come densely. DCQCN's recovery makes single windows rise and fall, so only a rate that is
//! kept through many CNPs is told.

use crate::record::{At, Time};

/// Length of a window, ns.
const WINDOW: u64 = 1_000_000;
/// CNPs closer together than this count as one: receivers send one for each 50 µs, or more.
const APART: u64 = 40_000;
/// CNPs in a window, counted so, that make it dense: a sender has no time to recover between.
const DENSE: u8 = 8;
/// Packets in a window that make a rate.
const PACKETS: u16 = 8;
/// Windows without CNPs that make up the rate before.
const QUIET: u8 = 4;
/// The last dense windows, all of which must keep the rate.
const KEPT: u8 = 4;
/// CNPs, counted so, where the rate before them is not in the capture.
const BLIND: u32 = 256;
/// A rate that is kept: at least so many percent.
const PERCENT: u64 = 90;
/// Slowest rate that senders are brought down to, bit/s: some never go lower.
const FLOOR: f64 = 100e6;
/// Fastest link whose sender is judged, bit/s, and what each CNP leaves of its rate at most,
/// recovery counted. A flow slower than these allow may just have no more to send.
const FASTEST: f64 = 400e9;
const LEAVES: f64 = 0.95;

/// The rate of a half's data.
#[derive(Debug, Default)]
pub(super) struct Rate {
    window: Option<Time>,
    bytes: u32,
    packets: u16,
    quiet: u8,
    /// Bytes of a window before the CNPs, averaged.
    before: u32,
    notified: Option<Box<Notified>>,
}

/// While CNPs come.
#[derive(Clone, Copy, Debug)]
struct Notified {
    first: At,
    last: At,
    counted: Time,
    in_window: u8,
    /// Counted in dense windows without a break.
    cnps: u32,
    /// Bytes of a window that the rate is held against; 0 until there is one.
    reference: u32,
    blind: bool,
    kept: u8,
    told: bool,
}

/// A sender that was found to keep its rate.
#[derive(Clone, Copy, Debug)]
pub(super) struct Steady {
    /// First and last CNP.
    pub(super) cnps: (At, At),
    /// How many, at least 40 µs apart.
    pub(super) count: u32,
    /// Rate before, bit/s.
    pub(super) before: f64,
    /// Rate in the end, bit/s.
    pub(super) after: f64,
    /// A packet of that time.
    pub(super) at: At,
}

impl Rate {
    /// A data packet of so many bytes.
    pub(super) fn data(&mut self, at: At, len: u32) -> Option<Steady> {
        let begin = *self.window.get_or_insert(at.time);
        let passed = at.time.since(begin) / WINDOW;
        let mut steady = None;
        if passed > 0 {
            steady = self.close(at);
            if passed > 1 {
                self.rest();
            }
            self.window = Some(Time(begin.0.saturating_add(passed * WINDOW)));
        }
        self.bytes = self.bytes.saturating_add(len);
        self.packets = self.packets.saturating_add(1);
        steady
    }

    /// A CNP that asks this half's sender to slow down.
    pub(super) fn cnp(&mut self, at: At) {
        let reference = if self.quiet >= 2 { self.before } else { 0 };
        let notified = self.notified.get_or_insert_with(|| {
            Box::new(Notified {
                first: at,
                last: at,
                counted: Time(0),
                in_window: 0,
                cnps: 0,
                reference,
                blind: reference == 0,
                kept: 0,
                told: false,
            })
        });
        notified.last = at;
        if at.time.since(notified.counted) >= APART {
            notified.counted = at.time;
            notified.in_window = notified.in_window.saturating_add(1);
        }
    }

    /// The end of a window.
    fn close(&mut self, at: At) -> Option<Steady> {
        let bytes = core::mem::take(&mut self.bytes);
        let packets = core::mem::take(&mut self.packets);
        let Some(notified) = &mut self.notified else {
            self.quiet = (self.quiet + 1).min(QUIET);
            let change = i64::from(bytes) - i64::from(self.before);
            self.before = (i64::from(self.before) + change / i64::from(self.quiet)) as u32;
            return None;
        };
        let in_window = core::mem::take(&mut notified.in_window);
        if in_window == 0 {
            // Quiet again: what comes now is what later CNPs are held against.
            (self.notified, self.quiet, self.before) = (None, 1, bytes);
            return None;
        }
        if in_window < DENSE || packets < PACKETS {
            (notified.cnps, notified.kept) = (0, 0);
            return None;
        }
        notified.window(in_window, bytes, at)
    }

    /// Windows without any packet: the sender rests, by itself or because it was told to.
    fn rest(&mut self) {
        (self.quiet, self.before) = (0, 0);
        self.notified = None;
    }
}

impl Notified {
    /// A window full of CNPs.
    fn window(&mut self, cnps: u8, bytes: u32, at: At) -> Option<Steady> {
        self.cnps = self.cnps.saturating_add(u32::from(cnps));
        if self.reference == 0 {
            self.reference = bytes;
            return None;
        }
        if u64::from(bytes) * 100 < u64::from(self.reference) * PERCENT {
            self.kept = 0;
            return None;
        }
        self.kept = self.kept.saturating_add(1);
        let rate = |bytes: u32| f64::from(bytes) * 8.0 * 1e9 / WINDOW as f64;
        let after = rate(bytes);
        let power = i32::try_from(self.cnps).unwrap_or(i32::MAX);
        let limit = FLOOR.max(FASTEST * LEAVES.powi(power));
        let enough = !self.blind || self.cnps >= BLIND;
        if self.told || self.kept < KEPT || !enough || after <= limit {
            return None;
        }
        self.told = true;
        let cnps = (self.first, self.last);
        Some(Steady { cnps, count: self.cnps, before: rate(self.reference), after, at })
    }
}
