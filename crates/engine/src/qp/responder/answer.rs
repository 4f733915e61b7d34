//! Answers other than the acknowledgement: to requests that cannot be executed, and to those that
//! an injected fault makes pass for such. What makes a request one is the responder's matter.

use wire::{Instant, NakCode, Packet, Syndrome};

use super::{Responder, Silent};
use crate::counters::pair::count;
use crate::memory::Payload;
use crate::qp::facts::{Facts, Shared};
use crate::qp::refusal::{Broken, Fault};

impl Responder {
    /// Answers a request that cannot be executed.
    pub(crate) fn answer<M>(
        &mut self,
        q: &Facts,
        sh: &mut Shared<M>,
        now: Instant,
        fault: Fault,
    ) -> Result<(), Broken> {
        if fault != Fault::NotReady {
            return Err(self.refuse(q, sh, now, fault));
        }
        sh.count_fault(q, fault);
        self.silent = Silent::RnrNak;
        self.owed.nak(self.expected, Syndrome::RnrNak(q.min_rnr_timer));
        Ok(())
    }

    /// Behaves as if the expected request were one behind it.
    pub(crate) fn miss<M>(&mut self, q: &Facts, sh: &mut Shared<M>) {
        count!(sh, q.index, out_of_sequence);
        count!(sh, q.index, rx_beyond_expected);
        self.silent = Silent::SequenceNak;
        self.owed.nak(self.expected, Syndrome::Nak(NakCode::PsnSequenceError));
    }

    /// Whether a packet is the request that is expected next.
    pub(crate) fn expects(&self, packet: &Packet<Payload<'_>>) -> bool {
        packet.bth.psn.expand(self.expected) == self.expected
    }
}
