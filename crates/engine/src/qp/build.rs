//! Puts packets into a train under the rule that all are equal in size but the last, which may be
//! shorter.

use wire::Path;

use crate::qp::facts::Draft;
use crate::train::{Fragment, Train, TrainLimits, TxPacket};

/// A train in the making.
pub(crate) struct Builder<'a> {
    train: &'a mut Train,
    limits: TrainLimits,
    segment: usize,
    bytes: usize,
    open: bool,
}

impl<'a> Builder<'a> {
    pub(crate) fn new(train: &'a mut Train, limits: TrainLimits) -> Self {
        train.clear();
        Self { train, limits, segment: 0, bytes: 0, open: true }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.train.packets.is_empty()
    }

    pub(crate) fn packets(&self) -> usize {
        self.train.packets.len()
    }

    /// Whether a packet of `wire_len` bytes to `path` may be next.
    pub(crate) fn fits(&self, path: &Path, wire_len: usize) -> bool {
        if self.is_empty() {
            return true;
        }
        self.open
            && wire_len <= self.segment
            && self.packets() < self.limits.segments
            && self.bytes + wire_len <= self.limits.bytes
            && self.train.path.as_ref() == Some(path)
    }

    /// The destination queue pair of the train so far.
    pub(crate) fn dest_qp(&self) -> Option<wire::Qpn> {
        self.train.packets.first().map(|p| p.bth.dest_qp)
    }

    /// Where the next packet's pieces of payload go; pieces left by an abandoned packet are
    /// dropped.
    pub(crate) fn pieces(&mut self) -> (&mut Vec<Fragment>, &mut Vec<u8>) {
        let kept = self.train.packets.last().map_or(0, |p| p.fragments.end as usize);
        self.train.fragments.truncate(kept);
        (&mut self.train.fragments, &mut self.train.inline)
    }

    /// Adds a packet whose pieces have been put into [`pieces`](Self::pieces).
    pub(crate) fn push(&mut self, path: &Path, draft: &Draft) {
        let start = self.train.packets.last().map_or(0, |p| p.fragments.end);
        let packet = TxPacket {
            bth: draft.bth,
            ext: draft.ext,
            length: draft.length,
            fragments: start..self.train.fragments.len() as u32,
            again: draft.again,
        };
        let len = packet.wire_len();
        if self.train.packets.is_empty() {
            self.train.path = Some(*path);
            self.segment = len;
        } else if len < self.segment {
            self.open = false;
        }
        self.bytes += len;
        self.train.packets.push(packet);
    }
}
