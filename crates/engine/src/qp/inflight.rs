//! What a requester has in flight: runs of sequences with what they cost, towards the peer's
//! receive buffer and, for READs, in our own; how many READs and atomics are outstanding.

use std::collections::VecDeque;

use crate::window::Windows;

/// A run of sequences sent and not acknowledged.
#[derive(Clone, Copy, Debug)]
struct Flight {
    start: u64,
    end: u64,
    /// Cost of its packets in the peer's receive buffer.
    sent_cost: u64,
    /// Cost of its responses in our own.
    read_cost: u64,
    /// One READ or atomic request.
    fetch: bool,
}

/// Runs in flight, oldest first.
#[derive(Debug, Default)]
pub(crate) struct InFlight {
    flights: VecDeque<Flight>,
    fetches: u32,
}

impl InFlight {
    /// READ and atomic requests outstanding.
    pub(crate) fn fetches(&self) -> u32 {
        self.fetches
    }

    /// Whether nothing is in flight.
    pub(crate) fn is_empty(&self) -> bool {
        self.flights.is_empty()
    }

    /// Notes packets `start..end` of SENDs and WRITEs.
    pub(crate) fn sent(&mut self, w: &mut Windows, peer: u32, start: u64, end: u64, cost: u64) {
        w.sent(peer, cost);
        if let Some(last) = self.flights.back_mut()
            && !last.fetch
            && last.end == start
            && last.end - last.start < 16
        {
            last.end = end;
            last.sent_cost += cost;
            return;
        }
        self.flights.push_back(Flight { start, end, sent_cost: cost, read_cost: 0, fetch: false });
    }

    /// Notes a READ or atomic request whose responses are `start..end`.
    pub(crate) fn asked(
        &mut self,
        w: &mut Windows,
        peer: u32,
        range: std::ops::Range<u64>,
        (sent_cost, read_cost): (u64, u64),
    ) {
        w.sent(peer, sent_cost);
        w.reads_asked(peer, read_cost);
        self.fetches += 1;
        let (start, end) = (range.start, range.end);
        self.flights.push_back(Flight { start, end, sent_cost, read_cost, fetch: true });
    }

    /// All before `una` is acknowledged.
    pub(crate) fn acknowledged(&mut self, w: &mut Windows, peer: u32, una: u64) {
        while let Some(front) = self.flights.front_mut() {
            if front.end <= una {
                w.acked(peer, front.sent_cost);
                w.reads_arrived(peer, front.read_cost);
                self.fetches -= u32::from(front.fetch);
                self.flights.pop_front();
                continue;
            }
            if front.start < una {
                let (done, all) = (una - front.start, front.end - front.start);
                let sent = front.sent_cost * done / all;
                let read = front.read_cost * done / all;
                front.start = una;
                front.sent_cost -= sent;
                front.read_cost -= read;
                w.acked(peer, sent);
                w.reads_arrived(peer, read);
            }
            break;
        }
    }

    /// All from `seq` on is to be sent again (or never).
    pub(crate) fn recalled(&mut self, w: &mut Windows, peer: u32, seq: u64) {
        while let Some(back) = self.flights.back_mut() {
            if back.start >= seq {
                w.released(peer, back.sent_cost);
                w.reads_done(peer, back.read_cost);
                self.fetches -= u32::from(back.fetch);
                self.flights.pop_back();
                continue;
            }
            if back.end > seq {
                let (gone, all) = (back.end - seq, back.end - back.start);
                let sent = back.sent_cost * gone / all;
                let read = back.read_cost * gone / all;
                back.end = seq;
                back.sent_cost -= sent;
                back.read_cost -= read;
                w.released(peer, sent);
                w.reads_done(peer, read);
            }
            break;
        }
    }
}
