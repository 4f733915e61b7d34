//! A request packet in the making: its headers, the pieces of its payload, where it goes. What the
//! next packet is, and whether it may go, is not decided here.

use wire::{AtomicEth, Deth, Extensions, PKey, Path, Reth};

use crate::qp::build::Builder;
use crate::qp::facts::{Draft, Facts, Shared};
use crate::qp::requester::{Next, Requester};
use crate::qp::send_queue::Wqe;
use crate::regions::AccessFault;
use crate::train::Fragment;
use crate::window;
use crate::work::{Remote, SendOp};

/// With fewer end-to-end credits than this, each message asks: acknowledgements bring new ones.
const CREDITS_LOW: u64 = 64;

impl Requester {
    /// Collects the pieces of a packet's payload.
    pub(crate) fn gather<M>(
        &self,
        q: &Facts,
        sh: &Shared<M>,
        wqe: &Wqe,
        offset: u32,
        length: u32,
        b: &mut Builder<'_>,
    ) -> Result<(), AccessFault> {
        let (fragments, inline) = b.pieces();
        if wqe.inline {
            let start = inline.len() as u32;
            let bytes = self.queue.inline(wqe);
            let range = offset as usize..(offset + length) as usize;
            inline.extend_from_slice(bytes.get(range).ok_or(AccessFault)?);
            fragments.push(Fragment::Inline { start, length });
            return Ok(());
        }
        let (mut skip, mut left) = (offset, length);
        for sge in self.queue.sges(wqe) {
            if skip >= sge.length {
                skip -= sge.length;
                continue;
            }
            let take = (sge.length - skip).min(left);
            let at = sge.addr.checked_add(u64::from(skip)).ok_or(AccessFault)?;
            let addr = sh.regions.local(sge.lkey, q.pd, at, u64::from(take), false)?;
            fragments.push(Fragment::Memory { addr, length: take });
            (skip, left) = (0, left - take);
            if left == 0 {
                break;
            }
        }
        if left == 0 { Ok(()) } else { Err(AccessFault) }
    }

    /// Whether the packet asks for an acknowledgement: at the end of a message for which somebody
    /// waits, at intervals, and when the peer's window, which may have shrunk, has no room for
    /// another one. While an answer is to come anyway, a message that has others behind it leaves
    /// the asking to them: in a stream the next interval ends soon.
    pub(crate) fn asks<M>(&self, q: &Facts, sh: &Shared<M>, wqe: &Wqe, next: &Next) -> bool {
        let full = window::cost(q.mtu as usize + 32);
        let waits = self.awaits_ack();
        let last =
            next.last && (wqe.is_fetch() || (wqe.signaled && !waits) || !self.is_followed(q));
        last || self.since_ack_request + 1 >= ack_every(sh, q, full)
            || (!waits && sh.windows.is_last(q.peer, full))
    }

    /// Whether the request at the cursor has another one behind it that will ask in its turn. One
    /// that waits for credits might not; one that fails at this side does by
    /// [`set_failed`](Self::set_failed).
    fn is_followed(&self, q: &Facts) -> bool {
        let granted = |limit| self.messages + CREDITS_LOW < limit;
        let asks = |w: &Wqe| {
            w.packets(q.mtu) > 0 && (!w.consumes_receive() || self.credit_limit.is_none_or(granted))
        };
        !self.draining && self.queue.wqes.get(self.cursor + 1).is_some_and(asks)
    }

    /// The headers of the packet at `nxt`.
    pub(crate) fn draft<M>(&self, q: &Facts, sh: &Shared<M>, wqe: &Wqe, next: &Next) -> Draft {
        let mut bth = q.bth(next.operation, self.nxt);
        let mut ext = Extensions::default();
        let place = |remote: &Remote, length: u32| Reth {
            va: remote.addr.wrapping_add(u64::from(next.offset)),
            rkey: remote.rkey,
            length,
        };
        match &wqe.op {
            SendOp::Write(remote) | SendOp::WriteImm(remote, _) if next.offset == 0 => {
                ext.reth = Some(place(remote, wqe.length));
            }
            SendOp::Read(remote) => ext.reth = Some(place(remote, next.asked.1)),
            SendOp::CompareSwap { remote, compare, swap } => {
                ext.atomic = Some(AtomicEth {
                    va: remote.addr,
                    rkey: remote.rkey,
                    swap_add: *swap,
                    compare: *compare,
                });
            }
            SendOp::FetchAdd { remote, add } => {
                ext.atomic = Some(AtomicEth {
                    va: remote.addr,
                    rkey: remote.rkey,
                    swap_add: *add,
                    compare: 0,
                });
            }
            _ => {}
        }
        if next.last {
            match wqe.op {
                SendOp::SendImm(imm) | SendOp::WriteImm(_, imm) => ext.imm = Some(imm),
                SendOp::SendInvalidate(key) => ext.invalidate = Some(key),
                _ => {}
            }
            bth.solicited = wqe.solicited && wqe.consumes_receive();
        }
        ext.xrc_srq = wqe.srq;
        if let Some(d) = self.queue.datagram(wqe) {
            ext.deth = Some(Deth { qkey: q.key_of(d), source_qp: q.qpn });
            bth.dest_qp = d.dest_qp;
        }
        bth.pkey = PKey::DEFAULT;
        bth.ack_request = q.kind.is_reliable() && self.asks(q, sh, wqe, next);
        Draft { bth, ext, length: next.length, again: self.nxt < self.max }
    }

    /// Where a request's packets go.
    pub(crate) fn path<M>(&self, q: &Facts, sh: &Shared<M>, wqe: &Wqe) -> Option<Path> {
        match self.queue.datagram(wqe) {
            None => q.path,
            Some(d) => {
                let mut path = crate::qp::path_of(&sh.gids, &d.av)?;
                path.source_port = wire::flow::datagram_source_port(q.qpn);
                Some(path)
            }
        }
    }
}

/// How many packets may go between two that ask for an acknowledgement, when the window holds
/// packets of cost `full`: often enough that the window never stalls.
fn ack_every<M>(sh: &Shared<M>, q: &Facts, full: u64) -> u64 {
    (sh.windows.packets(q.peer, full) / 4).clamp(1, sh.ack_interval)
}
