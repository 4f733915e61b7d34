//! The promises: each request completes once, in order, with success and the right words; each
//! message arrives once, in order, byte-equal; atomics have an order; and at the end the memories
//! of all hosts hold what the model says, to the last byte.

use engine::{Completion, CqId, QpType, WcStatus};

use crate::end::{Effect, Message, Posted, Slot};
use crate::pair::counting;
use crate::pair::host::Host;
use crate::run::Run;
use crate::windows::Phase;

impl Run {
    /// A completion was taken from a queue of a host.
    pub(crate) fn completion(&mut self, host: usize, cq: CqId, wc: &Completion) {
        self.world.note((self.world.now.as_ps(), host, wc.wr_id, wc.byte_len, wc.status));
        let Some(e) = self.ends.iter().position(|end| end.host == host && end.qpn == wc.qp) else {
            panic!("a completion for a queue pair that does not exist: {wc:?}");
        };
        assert_eq!(wc.status, WcStatus::Success, "end {e}: {wc:?}\n{}", self.describe());
        let receive = wc.wr_id >> 63 != 0;
        let end = &self.ends[e];
        assert_eq!(cq, if receive { end.recv_cq } else { end.send_cq }, "the other queue: {wc:?}");
        if receive {
            self.received(e, wc);
        } else {
            self.sent(e, wc);
        }
    }

    fn sent(&mut self, e: usize, wc: &Completion) {
        loop {
            let Some(posted) = self.ends[e].posted.pop_front() else {
                panic!("end {e}: a completion of nothing that is posted: {wc:?}");
            };
            let last = posted.wr_id == wc.wr_id;
            assert!(
                last || !posted.signaled,
                "end {e}: {wc:?} before the completion of {:#x} {:?}",
                posted.wr_id,
                posted.opcode
            );
            assert!(!last || posted.signaled, "end {e}: unsignaled, but completed: {wc:?}");
            if last {
                assert_eq!(wc.opcode, posted.opcode, "end {e}: {wc:?}");
            }
            let returned = match &posted.effect {
                Effect::Read { expected, .. } => Some(expected.len() as u32),
                Effect::Atomic { .. } => Some(8),
                _ => None,
            };
            if last && let Some(returned) = returned {
                assert_eq!(wc.byte_len, returned, "end {e}: {wc:?}");
            }
            self.take_effect(e, posted);
            if last {
                return;
            }
        }
    }

    fn take_effect(&mut self, e: usize, posted: Posted) {
        let (host, peer) = (self.ends[e].host, self.ends[e].peer);
        if let Some(window) = posted.through {
            self.ends[peer].windows[window].users -= 1;
        }
        match posted.effect {
            Effect::None => {}
            Effect::Read { pieces, taken, expected, range } => {
                let mut done = 0;
                for (addr, length) in pieces {
                    let part = &expected[done..done + length as usize];
                    self.compare(host, addr, part, || format!("end {e}: READ {:#x}", posted.wr_id));
                    self.remember(host, addr, length as usize);
                    done += length as usize;
                }
                let end = &mut self.ends[e];
                end.sink_arena.give(taken);
                if let Some(at) = end.open_reads.iter().position(|open| *open == range) {
                    end.open_reads.swap_remove(at);
                }
            }
            Effect::Atomic { at, word, op } => {
                let old = self.world.hosts[host].device.memory().word(at);
                self.remember(host, at, 8);
                let there = &mut self.sites[self.ends[peer].host].words;
                there.done.push((word, e, op, old));
                let new = match op {
                    engine::AtomicOp::FetchAdd { add } => old.wrapping_add(add),
                    engine::AtomicOp::CompareSwap { compare, swap } if compare == old => swap,
                    engine::AtomicOp::CompareSwap { .. } => old,
                };
                there.seen.insert(word, new);
                self.ends[e].sink_arena.give(at);
            }
            Effect::Bound { window } => self.ends[e].windows[window].phase = Phase::Bound,
            Effect::Unbound { window } => self.ends[e].windows[window].phase = Phase::Idle,
        }
    }

    fn received(&mut self, e: usize, wc: &Completion) {
        let host = self.ends[e].host;
        let Some(slot) = self.sites[host].slots.remove(&wc.wr_id) else {
            panic!("end {e}: a receive request that is not posted: {wc:?}");
        };
        if slot.shared {
            self.sites[host].srq_posted -= 1;
        } else {
            let oldest = self.ends[e].receives_posted.pop_front();
            assert_eq!(oldest, Some(wc.wr_id), "end {e}: receives out of order");
        }
        self.ends[slot.owner].buffer_arena.give(slot.taken);
        if self.ends[e].service == QpType::Rc {
            let Some(message) = self.ends[e].incoming.pop_front() else {
                panic!("end {e}: a message that nobody sent: {wc:?}");
            };
            self.check_message(e, &message, &slot, wc);
        } else {
            self.find_message(e, &slot, wc);
        }
        for (addr, length) in slot.pieces {
            // What is behind the message was compared, or may be dirty.
            self.remember(host, addr, length as usize);
        }
    }

    fn check_message(&mut self, e: usize, message: &Message, slot: &Slot, wc: &Completion) {
        assert_eq!(wc.opcode, message.opcode, "end {e}: {wc:?}");
        assert_eq!(wc.data, message.data, "end {e}: {wc:?}");
        assert_eq!(wc.solicited, message.solicited, "end {e}: {wc:?}");
        assert_eq!(wc.byte_len as usize, message.bytes.len(), "end {e}: {wc:?}");
        let host = self.ends[e].host;
        let mut buffer: &[u8] = &message.bytes;
        if let Some(at) = message.written_at {
            if !message.overwritten {
                self.compare(host, at, buffer, || format!("end {e}: WRITE with immediate"));
            }
            buffer = &[];
        }
        for &(addr, length) in &slot.pieces {
            let (part, rest) = buffer.split_at(buffer.len().min(length as usize));
            buffer = rest;
            self.compare(host, addr, part, || format!("end {e}: message {:#x}", wc.wr_id));
            let behind = addr + part.len() as u64;
            let length = length as usize - part.len();
            let kept = self.sites[host].shadow[self.sites[host].at(behind, length)].to_vec();
            self.compare(host, behind, &kept, || format!("end {e}: behind a message"));
        }
        assert!(buffer.is_empty(), "end {e}: the message does not fit its buffer");
        if let engine::WcData::Invalidated(rkey) = wc.data {
            let window = self.ends[e].windows.iter_mut().find(|w| w.rkey == rkey);
            window.expect("a window of this end").phase = Phase::Idle;
        }
    }

    /// A message of a service that loses some: it must be one of those sent, whole.
    fn find_message(&mut self, e: usize, slot: &Slot, wc: &Completion) {
        let datagram = self.ends[e].service == QpType::Ud;
        let host = self.ends[e].host;
        let mut content = Vec::new();
        for &(addr, length) in &slot.pieces {
            content.extend_from_slice(
                self.world.hosts[host].device.memory().slice(addr, length as usize),
            );
        }
        let skip = if datagram { 40 } else { 0 };
        assert_eq!(wc.grh, datagram, "end {e}: {wc:?}");
        let mut last_seen = None;
        let mut found = None;
        for (index, message) in self.ends[e].incoming.iter().enumerate() {
            let length = message.bytes.len() + skip;
            let same = wc.opcode == message.opcode
                && wc.data == message.data
                && wc.solicited == message.solicited
                && wc.byte_len as usize == length
                && (!datagram || wc.src_qp == message.from)
                && match message.written_at {
                    None => content.get(skip..length) == Some(&message.bytes[..]),
                    Some(at) => {
                        self.world.hosts[host].device.memory().slice(at, message.bytes.len())
                            == message.bytes
                    }
                };
            if message.seen {
                last_seen = Some(index);
            }
            if same && (found.is_none() || !message.seen) {
                found = Some(index);
                if !message.seen {
                    break;
                }
            }
        }
        let Some(index) = found else {
            panic!("end {e}: not a message that was sent: {wc:?}");
        };
        let again = self.ends[e].incoming[index].seen;
        let faults = &self.plan.faults;
        let shuffled =
            faults.dup != engine::Chance::NEVER || faults.reorder != engine::Chance::NEVER;
        assert!(!again || shuffled, "end {e}: a message twice: {wc:?}");
        assert!(
            shuffled || last_seen.is_none_or(|last| last < index),
            "end {e}: a message out of order: {wc:?}"
        );
        self.ends[e].incoming[index].seen = true;
    }

    fn compare(&mut self, host: usize, addr: u64, expected: &[u8], what: impl FnOnce() -> String) {
        let found = self.world.hosts[host].device.memory().slice(addr, expected.len());
        if found != expected {
            let at = found.iter().zip(expected).take_while(|(a, b)| a == b).count();
            panic!("{}: wrong from byte {at} of {} on", what(), expected.len());
        }
    }

    /// What memory holds there is right.
    fn remember(&mut self, host: usize, addr: u64, length: usize) {
        let range = self.sites[host].at(addr, length);
        let found = self.world.hosts[host].device.memory().slice(addr, length);
        self.sites[host].shadow[range].copy_from_slice(found);
    }

    /// What must hold when everything is done.
    pub(crate) fn check_end(&mut self) {
        for host in 0..self.sites.len() {
            for cq in self.sites[host].cqs.clone() {
                assert!(!self.world.hosts[host].cqs[&cq].is_overrun());
                let rest = self.world.hosts[host].poll_all(cq);
                // Messages of unreliable services may still have come; requests may not.
                for wc in rest {
                    let e = self.ends.iter().position(|end| end.host == host && end.qpn == wc.qp);
                    let late = e.is_some_and(|e| self.ends[e].service != QpType::Rc);
                    assert!(late && wc.wr_id >> 63 != 0, "a completion too many: {wc:?}");
                    self.completion(host, cq, &wc);
                }
            }
            let events = std::mem::take(&mut self.world.hosts[host].events);
            assert!(events.is_empty(), "unexpected events: {events:?}");
            self.check_atomics(host);
        }
        self.forgive_unreliable();
        for host in 0..self.sites.len() {
            let memory = self.world.hosts[host].device.memory();
            let (found, expected) = (memory.all(), &self.sites[host].shadow);
            if found != expected {
                let at = found.iter().zip(expected).take_while(|(a, b)| a == b).count();
                panic!(
                    "host {host}: memory at {:#x} is not what was asked",
                    memory.base() + at as u64
                );
            }
        }
        self.check_counters();
    }

    fn check_atomics(&mut self, host: usize) {
        let words = &self.sites[host].words;
        let memory = self.world.hosts[host].device.memory();
        let at = |word: u64| words.area.addr + 8 * word;
        let last: Vec<u64> = (0..words.count).map(|word| memory.word(at(word))).collect();
        assert_eq!(memory.atomics.len(), words.done.len(), "host {host}: atomics executed");
        words.check(&last);
        let (addr, length) = (words.area.addr, 8 * words.count as usize);
        self.remember(host, addr, length);
    }

    /// Takes over what unreliable services may have left: parts of messages in receive buffers, and
    /// WRITEs that happened in part.
    fn forgive_unreliable(&mut self) {
        for e in 0..self.ends.len() {
            let (host, service) = (self.ends[e].host, self.ends[e].service);
            if service == QpType::Rc {
                continue;
            }
            let unseen = self.ends[e].incoming.iter().filter(|message| !message.seen).count();
            self.report.lost_messages += unseen as u64;
            let dirty: Vec<_> = self.sites[host]
                .slots
                .values()
                .filter(|slot| service == QpType::Uc && (slot.shared || slot.owner == e))
                .flat_map(|slot| slot.pieces.clone())
                .collect();
            for (addr, length) in dirty {
                self.remember(host, addr, length as usize);
            }
            for (addr, bytes) in std::mem::take(&mut self.ends[e].perhaps) {
                let range = self.sites[host].at(addr, bytes.len());
                let before = &self.sites[host].shadow[range];
                let found = self.world.hosts[host].device.memory().slice(addr, bytes.len());
                for (index, byte) in found.iter().enumerate() {
                    assert!(
                        *byte == before[index] || *byte == bytes[index],
                        "end {e}: byte {index} of an unreliable WRITE is neither old nor new"
                    );
                }
                self.remember(host, addr, bytes.len());
            }
        }
    }

    fn check_counters(&self) {
        let (mut sent, mut received) = (0, 0);
        for (index, host) in self.world.hosts.iter().enumerate() {
            let c = host.device.counters();
            sent += c.tx_packets;
            received += c.rx_packets;
            counting::adds_up(&host.device, &format!("host {index}"));
            assert_eq!(c.rx_atomic_requests, self.sites[index].words.done.len() as u64);
            for (name, value) in c.iter() {
                let never = [
                    "req_rnr_retries_exceeded",
                    "req_transport_retries_exceeded",
                    "req_remote_access_errors",
                    "req_remote_invalid_request",
                    "req_remote_operational_errors",
                    "req_cqe_error",
                    "resp_cqe_error",
                    "resp_local_length_error",
                    "resp_remote_access_errors",
                    "resp_remote_invalid_request",
                    "rx_unknown_qp",
                    "rx_wrong_address",
                    "rx_wrong_state",
                    "rx_wrong_pkey",
                    "rx_wrong_opcode",
                    "rx_wrong_qkey",
                    "rx_datagram_too_long",
                    "tx_datagram_too_long",
                ];
                assert!(value == 0 || !never.contains(&name), "host {index}: {name} = {value}");
            }
        }
        assert_eq!(sent, self.world.packets, "packets sent");
        let arrived = self.world.fault_counts().delivered - self.world.bad_icrc;
        assert_eq!(received, arrived, "packets received");
        if self.world.fault_counts().total() == self.world.fault_counts().marked {
            self.check_calm();
        }
    }

    /// Without faults nothing is out of order.
    fn check_calm(&self) {
        let late = |host: &Host| host.device.counters().rnr_nak_retry_err > 0;
        let receiver_not_ready = self.world.hosts.iter().any(late);
        for (index, host) in self.world.hosts.iter().enumerate() {
            let c = host.device.counters();
            assert!(c.out_of_sequence == 0 || receiver_not_ready, "host {index}");
            assert_eq!(c.packet_seq_err, 0, "host {index}");
            assert_eq!(c.implied_nak_seq_err, 0, "host {index}");
        }
    }
}
