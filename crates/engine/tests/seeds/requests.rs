//! The next request of an end: drawn over every operation and size class, posted, and noted in the
//! model: what the peer's memory must hold then, what must arrive, what must come back.

use std::ops::Range;

use engine::{
    AtomicOp, QpType, Remote, SendData, SendFlags, SendOp, SendRequest, Sge, WcData, WcOpcode,
    WindowType,
};
use wire::RKey;

use crate::end::{Effect, Message, Pieces, Posted, scatter, split};
use crate::run::{BIG, Run};
use crate::windows::Phase;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Kind {
    Send,
    SendImm,
    SendInvalidate,
    Write,
    WriteImm,
    Read,
    CompareSwap,
    FetchAdd,
}

/// A request that is about to be posted.
struct Draft {
    op: SendOp,
    opcode: WcOpcode,
    flags: SendFlags,
    sges: Vec<Sge>,
    inline: Option<Vec<u8>>,
    bytes: usize,
    effect: Effect,
    through: Option<usize>,
}

impl Draft {
    fn new(op: SendOp, opcode: WcOpcode) -> Self {
        Self {
            op,
            opcode,
            flags: SendFlags::empty(),
            sges: Vec::new(),
            inline: None,
            bytes: 0,
            effect: Effect::None,
            through: None,
        }
    }
}

impl Run {
    /// Posts the next request of an end, if it has one and there is room.
    pub(crate) fn post_request(&mut self, e: usize) -> bool {
        let end = &self.ends[e];
        if end.left == 0 || end.posted.len() as u32 >= end.cap.max_send_wr {
            return false;
        }
        let kinds: &[Kind] = match end.service {
            QpType::Rc | QpType::XrcSend | QpType::XrcRecv => &[
                Kind::Send,
                Kind::SendImm,
                Kind::SendInvalidate,
                Kind::Write,
                Kind::Write,
                Kind::WriteImm,
                Kind::Read,
                Kind::Read,
                Kind::CompareSwap,
                Kind::FetchAdd,
            ],
            QpType::Uc => &[Kind::Send, Kind::SendImm, Kind::Write, Kind::WriteImm],
            QpType::Ud | QpType::Gsi => &[Kind::Send, Kind::SendImm],
        };
        let draft = match self.dice.pick(kinds) {
            Kind::Read => self.draft_read(e),
            Kind::CompareSwap => self.draft_atomic(e, 1),
            Kind::FetchAdd => self.draft_atomic(e, 0),
            Kind::Write => self.draft_write(e, false),
            Kind::WriteImm => self.draft_write(e, true),
            Kind::SendInvalidate => self.draft_invalidate(e),
            kind => Some(self.draft_send(e, kind == Kind::SendImm)),
        };
        // Where there is no room for the drawn one, a SEND always goes.
        let draft = draft.unwrap_or_else(|| self.draft_send(e, false));
        self.submit(e, draft);
        true
    }

    fn submit(&mut self, e: usize, draft: Draft) {
        let sig_all = {
            let end = &self.ends[e];
            self.plan.links[end.link].side[end.side].sq_sig_all
        };
        let wanted = {
            let end = &self.ends[e];
            let percent = self.plan.links[end.link].side[end.side].signaled;
            self.dice.percent(percent)
        };
        let end = &mut self.ends[e];
        let needed = end.left == 1 || end.unsignaled + 1 >= (end.cap.max_send_wr / 2).max(1);
        let mut flags = draft.flags;
        flags.set(SendFlags::SIGNALED, wanted || needed);
        if flags.contains(SendFlags::FENCE) {
            end.open_reads.clear();
        }
        let wr_id = end.next_wr;
        end.next_wr += 1;
        let data = match &draft.inline {
            Some(bytes) => SendData::Inline(bytes),
            None => SendData::Sges(&draft.sges),
        };
        let wr = SendRequest { wr_id, op: draft.op, flags, data, datagram: end.datagram };
        let device = &mut self.world.hosts[end.host].device;
        device
            .post_send(self.world.now, end.qpn, &wr)
            .unwrap_or_else(|error| panic!("post_send of {:?}: {error}", draft.op));
        let signaled = sig_all || flags.contains(SendFlags::SIGNALED);
        end.unsignaled = if signaled { 0 } else { end.unsignaled + 1 };
        end.left -= 1;
        if let Effect::Read { range, .. } = &draft.effect {
            end.open_reads.push(range.clone());
        }
        let Draft { opcode, effect, through, .. } = draft;
        end.posted.push_back(Posted { wr_id, opcode, signaled, effect, through });
        let (service, peer) = (end.service, end.peer);
        self.report.count(service, opcode, draft.bytes);
        if let Some(window) = through {
            self.ends[peer].windows[window].users += 1;
        }
    }

    fn draw_length(&mut self, e: usize) -> u32 {
        let end = &self.ends[e];
        let mtu = end.mtu;
        if end.service == QpType::Ud {
            return self.dice.pick(&[0, 1, 7, mtu / 2, mtu - 1, mtu]);
        }
        if end.longest == BIG && self.dice.percent(30) {
            return BIG;
        }
        match self.dice.below(8) {
            0 => 0,
            1 => 1,
            2 => mtu - 1,
            3 => mtu,
            4 => mtu + 1,
            5 => 3 * mtu - 1,
            6 => self.dice.below(64) as u32,
            _ => self.dice.below(u64::from(4 * mtu) + 1) as u32,
        }
    }

    /// Local data of a SEND or WRITE: the bytes, and how they are given to the device.
    fn draw_data(&mut self, e: usize, length: u32, draft: &mut Draft) -> Vec<u8> {
        let end = &self.ends[e];
        let mut bytes = Vec::with_capacity(length as usize);
        draft.bytes = length as usize;
        if length <= end.cap.max_inline_data && self.dice.percent(50) {
            bytes.resize(length as usize, 0);
            self.dice.fill(&mut bytes);
            draft.inline = Some(bytes.clone());
            return bytes;
        }
        let count = self.dice.range(1..=u64::from(end.cap.max_send_sge)) as usize;
        if length == 0 && self.dice.percent(50) {
            return bytes;
        }
        let site = &self.sites[end.host];
        for piece in split(&mut self.dice, length, count) {
            let offset = self.dice.below(site.source.length - u64::from(piece) + 1);
            let addr = site.source.addr + offset;
            draft.sges.push(site.source.sge(addr, piece));
            bytes.extend_from_slice(&site.shadow[site.at(addr, piece as usize)]);
        }
        bytes
    }

    fn solicit(&mut self, draft: &mut Draft) -> bool {
        let solicited = self.dice.percent(30);
        draft.flags.set(SendFlags::SOLICITED, solicited);
        solicited
    }

    fn fence(&mut self, e: usize, draft: &mut Draft) {
        if self.ends[e].service == QpType::Rc && self.dice.percent(10) {
            draft.flags |= SendFlags::FENCE;
        }
    }

    fn draft_send(&mut self, e: usize, with_imm: bool) -> Draft {
        let imm = (self.dice.bits() as u32).to_be_bytes();
        let (op, data) = match with_imm {
            true => (SendOp::SendImm(imm), WcData::Imm(imm)),
            false => (SendOp::Send, WcData::None),
        };
        self.draft_message(e, op, data)
    }

    fn draft_message(&mut self, e: usize, op: SendOp, data: WcData) -> Draft {
        let mut draft = Draft::new(op, WcOpcode::Send);
        let length = self.draw_length(e);
        let bytes = self.draw_data(e, length, &mut draft);
        let solicited = self.solicit(&mut draft);
        self.fence(e, &mut draft);
        self.expect_message(
            e,
            Message {
                opcode: WcOpcode::Recv,
                bytes,
                written_at: None,
                overwritten: false,
                data,
                solicited,
                from: self.ends[e].qpn,
                seen: false,
            },
        );
        draft
    }

    fn expect_message(&mut self, e: usize, message: Message) {
        let peer = self.ends[e].peer;
        self.ends[peer].messages_made += 1;
        self.ends[peer].incoming.push_back(message);
    }

    /// A SEND that kills a window of the peer's. It is fenced: a READ through the window that had
    /// to be asked again would find it dead.
    fn draft_invalidate(&mut self, e: usize) -> Option<Draft> {
        let peer = self.ends[e].peer;
        let window = self.ends[peer]
            .windows
            .iter_mut()
            .find(|w| w.kind == WindowType::Type2 && w.phase == Phase::Bound)?;
        window.phase = Phase::Dying;
        let rkey = window.rkey;
        let mut draft =
            self.draft_message(e, SendOp::SendInvalidate(rkey), WcData::Invalidated(rkey));
        draft.flags |= SendFlags::FENCE;
        Some(draft)
    }

    /// A place of `length` bytes in the peer's memory, the way to name it, and the window if it
    /// goes through one.
    fn place(&mut self, e: usize, length: u32) -> (u64, Remote, Option<usize>) {
        let length = u64::from(length);
        let peer = &self.ends[self.ends[e].peer];
        let usable = |w: &crate::windows::Window| w.phase == Phase::Bound && w.length >= length;
        let windows: Vec<usize> =
            (0..peer.windows.len()).filter(|&w| usable(&peer.windows[w])).collect();
        let target = &peer.target;
        if !windows.is_empty() && self.dice.percent(60) {
            let w = self.dice.pick(&windows);
            let window = &peer.windows[w];
            let addr = window.addr + self.dice.below(window.length - length + 1);
            let remote = Remote { addr: target.named(addr), rkey: window.rkey };
            return (addr, remote, Some(w));
        }
        let addr = target.addr + self.dice.below(target.length - length + 1);
        (addr, Remote { addr: target.named(addr), rkey: target.rkey }, None)
    }

    fn draft_write(&mut self, e: usize, with_imm: bool) -> Option<Draft> {
        let length = self.draw_length(e);
        let (service, peer) = (self.ends[e].service, self.ends[e].peer);
        let (addr, remote, through) = if service == QpType::Uc {
            let addr = self.ends[peer].places.take(length.into())?;
            let target = &self.ends[peer].target;
            (addr, Remote { addr: target.named(addr), rkey: target.rkey }, None)
        } else {
            self.place(e, length)
        };
        let imm = (self.dice.bits() as u32).to_be_bytes();
        let op = if with_imm { SendOp::WriteImm(remote, imm) } else { SendOp::Write(remote) };
        let mut draft = Draft::new(op, WcOpcode::RdmaWrite);
        draft.through = through;
        // A key of zero bytes is not looked at.
        if length == 0 && through.is_none() && self.dice.percent(30) {
            let wild = Remote { addr: self.dice.bits(), rkey: RKey::new(self.dice.bits() as u32) };
            draft.op = if with_imm { SendOp::WriteImm(wild, imm) } else { SendOp::Write(wild) };
        }
        let bytes = self.draw_data(e, length, &mut draft);
        self.fence(e, &mut draft);
        let range = addr..addr + u64::from(length);
        if self.ends[e].open_reads.iter().any(|open| overlap(open, &range)) {
            draft.flags |= SendFlags::FENCE;
        }
        for message in &mut self.ends[peer].incoming {
            let at = message.written_at.unwrap_or(0);
            message.overwritten |= overlap(&(at..at + message.bytes.len() as u64), &range);
        }
        let host = self.ends[peer].host;
        if service == QpType::Uc {
            self.ends[peer].perhaps.push((addr, bytes.clone()));
        } else {
            let at = self.sites[host].at(addr, bytes.len());
            self.sites[host].shadow[at].copy_from_slice(&bytes);
        }
        if with_imm {
            let solicited = self.solicit(&mut draft);
            self.expect_message(
                e,
                Message {
                    opcode: WcOpcode::RecvRdmaWithImm,
                    bytes,
                    written_at: Some(addr),
                    overwritten: false,
                    data: WcData::Imm(imm),
                    solicited,
                    from: self.ends[e].qpn,
                    seen: false,
                },
            );
        }
        Some(draft)
    }

    fn local_pieces(&mut self, e: usize, length: u32, count: usize) -> Option<(u64, Pieces)> {
        scatter(&mut self.dice, &mut self.ends[e].sink_arena, length, count)
    }

    fn draft_read(&mut self, e: usize) -> Option<Draft> {
        let length = self.draw_length(e);
        let count = self.dice.range(1..=u64::from(self.ends[e].cap.max_send_sge)) as usize;
        let (taken, pieces) = self.local_pieces(e, length, count)?;
        let (addr, remote, through) = self.place(e, length);
        let mut draft = Draft::new(SendOp::Read(remote), WcOpcode::RdmaRead);
        let end = &self.ends[e];
        draft.sges = pieces.iter().map(|&(at, len)| end.sink.sge(at, len)).collect();
        draft.through = through;
        draft.bytes = length as usize;
        let site = &self.sites[self.ends[end.peer].host];
        let expected = site.shadow[site.at(addr, length as usize)].to_vec();
        let range = addr..addr + u64::from(length);
        draft.effect = Effect::Read { pieces, taken, expected, range };
        self.fence(e, &mut draft);
        Some(draft)
    }

    /// An atomic on one of the words of the peer's host: even ones are added to (`odd` 0), odd ones
    /// compared and swapped.
    fn draft_atomic(&mut self, e: usize, odd: u64) -> Option<Draft> {
        let (at, _) = self.local_pieces(e, 8, 1)?;
        let host = self.ends[self.ends[e].peer].host;
        let word = 2 * self.dice.below(self.sites[host].words.count / 2) + odd;
        let (initial, seen) = {
            let words = &self.sites[host].words;
            (words.initial[word as usize], words.seen.get(&word).copied())
        };
        let area = self.sites[host].words.area;
        let remote = Remote { addr: area.named(area.addr + 8 * word), rkey: area.rkey };
        let (op, send, opcode) = if odd == 1 {
            // Often the value that was seen last, so that many swaps succeed.
            let last = seen.unwrap_or(initial);
            let compare = if self.dice.percent(85) { last } else { self.dice.bits() };
            let swap = self.dice.bits();
            let send = SendOp::CompareSwap { remote, compare, swap };
            (AtomicOp::CompareSwap { compare, swap }, send, WcOpcode::CompSwap)
        } else {
            let add = self.dice.range(1..=1 << 40);
            (AtomicOp::FetchAdd { add }, SendOp::FetchAdd { remote, add }, WcOpcode::FetchAdd)
        };
        let mut draft = Draft::new(send, opcode);
        let (sink, gap) = (&self.ends[e].sink, at);
        draft.sges = vec![sink.sge(gap, 8)];
        draft.bytes = 8;
        draft.effect = Effect::Atomic { at, word, op };
        self.fence(e, &mut draft);
        Some(draft)
    }
}

fn overlap(a: &Range<u64>, b: &Range<u64>) -> bool {
    a.start < b.end && b.start < a.end
}
