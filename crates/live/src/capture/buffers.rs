//! The buffers between the NICs and the writer of a capture: whole blocks in chunks that go round.
//! The latest chunk given back is the next one filled, so that a writer that keeps up leaves all of
//! it in the processor's cache.

use std::collections::VecDeque;
use std::fmt::Write;

use wire::pcapng::{self, Interface, Notes, Statistics};

use super::tap::Text;

/// Bytes of a chunk; the longest packet fits.
const CHUNK: usize = 256 << 10;
/// Chunks at most.
const CHUNKS: usize = 128;
/// With so many waiting to be written, packets are cut.
const CUT_FROM: usize = CHUNKS / 2;
/// With so many, the writer does not rest.
const NO_REST_FROM: usize = CHUNKS * 3 / 4;
/// What is kept of a packet then: all headers, whatever they are.
pub(super) const CUT_TO: usize = 128;

/// What has been captured and not written.
#[derive(Default)]
pub(super) struct Buffers {
    current: Vec<u8>,
    full: VecDeque<Vec<u8>>,
    free: Vec<Vec<u8>>,
    /// Chunks that there are.
    made: usize,
    /// Section header and descriptions of interfaces, which stand before all packets.
    preamble: Vec<u8>,
    /// How much of it the writer has had.
    introduced: usize,
    interfaces: Vec<Counts>,
    /// The writer has a chunk in hand.
    writing: bool,
    /// The writer sleeps until it is called.
    pub(super) asleep: bool,
    ring: bool,
    /// The writer is not to wait until a chunk is full.
    pub(super) hurry: bool,
    /// The writer is to end.
    pub(super) stop: bool,
    /// The file takes no more.
    failed: bool,
}

/// What is counted of an interface.
#[derive(Clone, Copy, Debug, Default)]
struct Counts {
    start: u64,
    seen: u64,
    kept: u64,
    dropped: u64,
    /// Dropped since the last packet that was kept.
    gap: u64,
    cut: u64,
    os_dropped: u64,
    /// Sum of the counts when they were last written.
    reported: u64,
}

/// A packet to be captured.
pub(super) struct Captured<'a> {
    pub(super) interface: Interface,
    pub(super) time: u64,
    /// What stands before the BTH.
    pub(super) head: &'a [u8],
    pub(super) transport: &'a [u8],
    pub(super) notes: Notes<'a>,
    /// Bytes to keep at most.
    pub(super) snap_len: usize,
}

impl Buffers {
    pub(super) fn new(preamble: Vec<u8>) -> Self {
        Self { preamble, ring: true, ..Self::default() }
    }

    /// Whether the writer is to be woken.
    pub(super) fn take_ring(&mut self) -> bool {
        std::mem::take(&mut self.ring)
    }

    /// Adds an interface.
    pub(super) fn describe(&mut self, time: u64, interface: &pcapng::Description<'_>) -> Interface {
        pcapng::put_interface(&mut self.preamble, interface);
        self.interfaces.push(Counts { start: time, ..Counts::default() });
        self.call();
        Interface(self.interfaces.len() as u32 - 1)
    }

    /// Adds a packet, if there is room.
    pub(super) fn packet(&mut self, packet: &Captured<'_>) {
        let Some(counts) = self.interfaces.get_mut(packet.interface.0 as usize) else { return };
        counts.seen += 1;
        let whole = packet.head.len() + packet.transport.len();
        let mut keep = whole.min(packet.snap_len);
        if self.full.len() >= CUT_FROM && keep > CUT_TO {
            keep = CUT_TO;
            counts.cut += 1;
        }
        let gap = counts.gap;
        if self.failed || !self.make_room(keep + packet.notes.overhead()) {
            self.lose(packet.interface);
            return;
        }
        let head = &packet.head[..packet.head.len().min(keep)];
        let body = &packet.transport[..keep - head.len()];
        let notes = Notes { original_len: Some(whole as u32), dropped: gap, ..packet.notes };
        pcapng::put_packet(&mut self.current, packet.interface, packet.time, (head, body), &notes);
        if let Some(counts) = self.interfaces.get_mut(packet.interface.0 as usize) {
            counts.kept += 1;
            counts.gap = 0;
        }
        self.call();
    }

    fn lose(&mut self, interface: Interface) {
        if let Some(counts) = self.interfaces.get_mut(interface.0 as usize) {
            counts.dropped += 1;
            counts.gap += 1;
        }
    }

    /// Datagrams that the kernel has dropped.
    pub(super) fn os_dropped(&mut self, interface: Interface, count: u64) {
        if let Some(counts) = self.interfaces.get_mut(interface.0 as usize) {
            counts.os_dropped += count;
        }
    }

    /// Writes what has been counted on all interfaces where something has since.
    pub(super) fn report(&mut self, time: u64) {
        for number in 0..self.interfaces.len() {
            self.report_of(Interface(number as u32), time);
        }
    }

    /// The same for one interface.
    pub(super) fn report_of(&mut self, interface: Interface, time: u64) {
        let Some(counts) = self.interfaces.get(interface.0 as usize).copied() else { return };
        let sum = 1 + counts.seen + counts.os_dropped;
        let mut comment = Text::default();
        if counts.cut > 0 {
            let _ = write!(
                comment,
                "{} packets were cut to {CUT_TO} bytes because the writer could not keep up",
                counts.cut
            );
        }
        if sum == counts.reported || self.failed || !self.make_room(512) {
            return;
        }
        let counted = Statistics {
            time,
            start: counts.start,
            end: time,
            received: counts.seen,
            dropped: counts.dropped,
            os_dropped: counts.os_dropped,
            delivered: counts.kept,
            comment: comment.as_str(),
        };
        pcapng::put_statistics(&mut self.current, interface, &counted);
        if let Some(counts) = self.interfaces.get_mut(interface.0 as usize) {
            counts.reported = sum;
        }
        self.call();
    }

    /// Makes room for a block of `len` bytes in the chunk being filled.
    fn make_room(&mut self, len: usize) -> bool {
        if self.current.capacity() - self.current.len() >= len {
            return true;
        }
        let fresh = match self.free.pop() {
            Some(chunk) => chunk,
            None if self.made < CHUNKS => {
                self.made += 1;
                Vec::with_capacity(CHUNK)
            }
            None => return false,
        };
        let full = std::mem::replace(&mut self.current, fresh);
        if full.capacity() > 0 {
            self.full.push_back(full);
            self.ring = true;
            self.asleep = false;
        }
        len <= CHUNK
    }

    /// There is something to be written, now or later.
    fn call(&mut self) {
        self.ring |= std::mem::take(&mut self.asleep);
    }

    /// Chunks and pieces that have not been written.
    pub(super) fn unwritten(&self) -> usize {
        if self.failed {
            return 0;
        }
        let pieces = [!self.current.is_empty(), self.has_introduction(), self.writing];
        self.full.len() + pieces.into_iter().filter(|&piece| piece).count()
    }

    /// Whether there is something in the chunk being filled.
    pub(super) fn has_some(&self) -> bool {
        !self.current.is_empty()
    }

    pub(super) fn has_introduction(&self) -> bool {
        self.introduced < self.preamble.len()
    }

    /// For the writer: what of the preamble it has not had; all of it if it starts `anew`.
    pub(super) fn introduction(&mut self, anew: bool) -> Vec<u8> {
        let from = if anew { 0 } else { self.introduced };
        self.introduced = self.preamble.len();
        self.writing = true;
        self.preamble[from..].to_vec()
    }

    /// For the writer: a chunk to be written, or with `partial` the one being filled.
    pub(super) fn take(&mut self, partial: bool) -> Option<Vec<u8>> {
        let chunk = match self.full.pop_front() {
            Some(chunk) => Some(chunk),
            None if partial && self.has_some() => Some(std::mem::take(&mut self.current)),
            None => None,
        };
        self.writing |= chunk.is_some();
        chunk
    }

    /// For the writer: the chunk has been written; whether there is time for a rest.
    pub(super) fn give_back(&mut self, mut chunk: Vec<u8>) -> bool {
        chunk.clear();
        if chunk.capacity() > 0 {
            self.free.push(chunk);
        }
        self.writing = false;
        !self.hurry && !self.stop && self.full.len() < NO_REST_FROM
    }

    /// For the writer: nothing more can be written.
    pub(super) fn fail(&mut self) {
        *self = Self {
            failed: true,
            interfaces: std::mem::take(&mut self.interfaces),
            ..Self::default()
        };
    }
}
