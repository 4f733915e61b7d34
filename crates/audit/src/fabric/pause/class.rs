//! The pauses of one priority by one port, as a chain of times: from the first XOFF over those that
//! renew it to the XON, or to where the last one runs out. Lengths in nanoseconds.

use crate::record::{At, Time};

/// Length of a window over which the share of paused time is taken.
const WINDOW: u64 = 10_000_000;
/// Share of a window that makes it stormy, percent.
const STORMY: u64 = 75;
/// Stormy windows in a row that are a storm.
const STORM: u64 = 2;
/// A single pause from which on it is long.
pub(super) const LONG: u64 = 10_000_000;
/// A single pause from which on it is a storm: watchdogs of adapters and switches step in.
pub(super) const WATCHDOG: u64 = 100_000_000;

/// Nanoseconds of a pause on a link of so many bits per second.
pub(super) const fn lasts(quanta: u16, bps: u64) -> u64 {
    (quanta as u64 * 512).saturating_mul(1_000_000_000) / bps
}

/// A pause that goes on.
#[derive(Clone, Copy, Debug)]
pub(super) struct On {
    /// The first XOFF.
    pub(super) first: At,
    /// The newest.
    pub(super) last: At,
    quanta: u16,
    /// When it runs out on a link of the assumed speed.
    until: Time,
    /// From when to when it holds even on the fastest link.
    pub(super) sure: (Time, Time),
    /// Packets that went on in it.
    pub(super) ignored: u32,
    pub(super) ignored_first: At,
}

/// A pause that is over.
#[derive(Clone, Copy, Debug)]
pub(super) struct Over {
    pub(super) first: At,
    pub(super) last: At,
    pub(super) length: u64,
}

/// Stormy windows in a row.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Storm {
    pub(super) windows: u64,
    pub(super) paused: u64,
    pub(super) first: At,
    pub(super) last: At,
}

impl Storm {
    /// Nanoseconds.
    pub(super) const fn length(&self) -> u64 {
        self.windows * WINDOW
    }
}

/// Pauses one after the other.
#[derive(Clone, Copy, Debug, Default)]
struct Stretch {
    first: At,
    last: At,
    end: Time,
    /// Nanoseconds in which it was paused.
    held: u64,
}

impl Stretch {
    /// Stretches that are remembered.
    const NEWEST: usize = 4;
}

/// The speeds with which quanta are told in time.
#[derive(Clone, Copy, Debug)]
pub(super) struct Speeds {
    /// Given, or assumed from what was seen.
    pub(super) likely: u64,
    /// The slowest and the fastest that may be.
    pub(super) slowest: u64,
    pub(super) fastest: u64,
}

/// What a frame leads to.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Ended {
    pub(super) over: Option<Over>,
    pub(super) storm: Option<Storm>,
}

/// A priority of a port.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Class {
    /// Frames with quanta.
    pub(super) xoffs: u64,
    pub(super) total: u64,
    pub(super) longest: u64,
    pub(super) on: Option<On>,
    window: u64,
    in_window: u64,
    storm: Storm,
    /// The newest stretches with pauses, the newest first.
    stretches: [Stretch; Stretch::NEWEST],
}

impl Class {
    /// A frame that pauses. `silent`: no packet of the priority was seen since the newest frame
    /// before it, so that a slow link may have been paused all the while.
    pub(super) fn xoff(&mut self, at: At, quanta: u16, speeds: Speeds, silent: bool) -> Ended {
        self.xoffs += 1;
        let until = Time(at.time.0.saturating_add(lasts(quanta, speeds.likely)));
        let sure_until = Time(at.time.0.saturating_add(lasts(quanta, speeds.fastest)));
        let mut ended = Ended::default();
        if let Some(on) = &mut self.on {
            if on.holds_at(at.time, speeds, silent) {
                if at.time > on.sure.1 {
                    on.sure.0 = at.time;
                }
                on.sure.1 = sure_until;
                (on.last, on.quanta, on.until) = (at, quanta, until);
                return ended;
            }
            ended = self.end(None);
        }
        self.on = Some(On {
            first: at,
            last: at,
            quanta,
            until,
            sure: (at.time, sure_until),
            ignored: 0,
            ignored_first: at,
        });
        ended
    }

    /// A frame that lets the priority go on.
    pub(super) fn xon(&mut self, time: Time, speeds: Speeds, silent: bool) -> Ended {
        let Some(on) = &self.on else { return Ended::default() };
        let end = if on.holds_at(time, speeds, silent) { time } else { on.until };
        self.end(Some(end))
    }

    /// The end of the captures.
    pub(super) fn finish(&mut self, time: Time) -> Ended {
        let ended = match &self.on {
            Some(on) => {
                let end = on.until.min(time);
                self.end(Some(end))
            }
            None => Ended::default(),
        };
        let storm = ended.storm.or_else(|| self.turn_window(u64::MAX));
        Ended { storm, ..ended }
    }

    /// The pause is over, at `end` or when it ran out.
    fn end(&mut self, end: Option<Time>) -> Ended {
        let Some(on) = self.on.take() else { return Ended::default() };
        let end = end.unwrap_or(on.until);
        let length = end.since(on.first.time);
        self.total += length;
        self.longest = self.longest.max(length);
        self.stretch(on, end);
        let storm = self.fill(on, end);
        Ended { over: Some(Over { first: on.first, last: on.last, length }), storm }
    }

    /// Notes a pause that is over.
    fn stretch(&mut self, on: On, end: Time) {
        let length = end.since(on.first.time);
        let newest = &mut self.stretches[0];
        if newest.held > 0 && on.first.time.since(newest.end) <= WINDOW {
            (newest.last, newest.end) = (on.last, end);
            newest.held += length;
            return;
        }
        self.stretches.rotate_right(1);
        let (first, last) = (on.first, on.last);
        self.stretches[0] = Stretch { first, last, end, held: length };
    }

    /// Nanoseconds that it was paused between two moments, about, with the first and last frame of
    /// the newest pauses that were.
    pub(super) fn held(&self, from: Time, to: Time) -> Option<(u64, [At; 2])> {
        let on = self.on.as_ref().map(|on| {
            let held = on.until.since(on.first.time);
            Stretch { first: on.first, last: on.last, end: on.until, held }
        });
        let all = on.into_iter().chain(self.stretches).filter(|stretch| stretch.held > 0);
        let mut sum = None;
        for stretch in all {
            let begun = stretch.first.time;
            let both = stretch.end.min(to).since(begun.max(from));
            let share = u128::from(stretch.held) * u128::from(both);
            let held = share / u128::from(stretch.end.since(begun).max(1));
            if held > 0 {
                let (before, frames) = sum.unwrap_or((0, [stretch.first, stretch.last]));
                let sum_now: u64 = before + held as u64;
                sum = Some((sum_now, frames));
            }
        }
        sum
    }

    /// Spreads a pause over the windows that it touches; gives a storm that ended before it.
    fn fill(&mut self, on: On, end: Time) -> Option<Storm> {
        let mut ended = None;
        let mut from = on.first.time.0;
        while from < end.0 {
            let window = from / WINDOW;
            if window != self.window {
                ended = self.turn_window(window).or(ended);
            }
            let to = end.0.min((window + 1).saturating_mul(WINDOW));
            if self.in_window == 0 && self.storm.windows == 0 {
                self.storm.first = on.first;
            }
            self.in_window += to - from;
            self.storm.last = on.last;
            from = to;
        }
        ended
    }

    /// Leaves the current window for a later one; gives the storm that ends here.
    fn turn_window(&mut self, next: u64) -> Option<Storm> {
        let stormy = self.in_window * 100 >= WINDOW * STORMY;
        if stormy {
            self.storm.windows += 1;
            self.storm.paused += self.in_window;
        }
        let goes_on = stormy && next == self.window.wrapping_add(1);
        (self.window, self.in_window) = (next, 0);
        if goes_on {
            return None;
        }
        let storm = core::mem::take(&mut self.storm);
        (storm.windows >= STORM).then_some(storm)
    }
}

impl On {
    /// Whether it goes on at `time`: it has not run out, or would not have on the slowest link and
    /// nothing speaks against that.
    pub(super) fn holds_at(&self, time: Time, speeds: Speeds, silent: bool) -> bool {
        let gap = time.since(self.last.time);
        time <= self.until || (silent && gap <= lasts(self.quanta, speeds.slowest))
    }
}
