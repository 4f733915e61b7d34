//! Whether queues build for a flow: the times from requests that ask for an acknowledgement to that
//! acknowledgement. One request at a time is timed, none that was sent again.

use crate::fabric::stream::{BEHIND, ahead};
use crate::record::At;

/// Times in a window; its least counts, so that a single late answer does not.
const WINDOW: u8 = 16;
/// Windows in a row with grown delay that show a standing queue.
const STANDING: u8 = 4;
/// A delay has grown where it is so many times the least ...
const TIMES: u32 = 8;
/// ... and longer by so much, ns.
const LONGER: u32 = 100_000;

/// The delays of a half's requests.
#[derive(Debug)]
pub(super) struct Delay {
    /// Request that waits, if any.
    waits: Option<(u32, At)>,
    in_window: u8,
    window: u32,
    grown_windows: u8,
    /// Least of all windows, ns.
    pub(super) least: u32,
    /// The window, ns, and the frame where the queue was found to stand.
    pub(super) standing: Option<(u32, At)>,
}

impl Delay {
    /// With a first request that asks for an acknowledgement.
    pub(super) const fn new(at: At, psn: u32) -> Self {
        let waits = Some((psn, at));
        let (window, least) = (u32::MAX, u32::MAX);
        Self { waits, in_window: 0, window, grown_windows: 0, least, standing: None }
    }

    /// A request packet.
    pub(super) fn request(&mut self, at: At, psn: u32, asks: bool) {
        match self.waits {
            // Sent again: an answer could be to either.
            Some((waiting, _)) if ahead(waiting, psn) < BEHIND => self.waits = None,
            None if asks => self.waits = Some((psn, at)),
            Some(_) | None => {}
        }
    }

    /// An acknowledgement of everything up to `psn`; `taken` if it is positive.
    pub(super) fn answer(&mut self, at: At, psn: u32, taken: bool) {
        let Some((waiting, since)) = self.waits else { return };
        if !taken {
            self.waits = None;
            return;
        }
        if ahead(psn, waiting) >= BEHIND {
            return;
        }
        self.waits = None;
        let time = u32::try_from(at.time.since(since.time)).unwrap_or(u32::MAX);
        self.window = self.window.min(time);
        self.in_window += 1;
        if self.in_window == WINDOW {
            self.close(at);
        }
    }

    fn close(&mut self, at: At) {
        self.least = self.least.min(self.window);
        let grown = self.window / TIMES >= self.least && self.window - self.least >= LONGER;
        self.grown_windows = if grown { self.grown_windows.saturating_add(1) } else { 0 };
        if self.grown_windows >= STANDING {
            self.standing.get_or_insert((self.window, at));
        }
        (self.in_window, self.window) = (0, u32::MAX);
    }
}
