//! What the NIC's lock guards, and the steps that drive it: receive, timers, transmit. Who takes
//! the steps when is not decided here.

use engine::{Device, Event, Payload, Priorities, Train};
use wire::{Instant, Packet, Span};

use super::pace::Pace;
use super::remark;
use crate::counters::LinkCounters;
use crate::faultlog::FaultNews;
use crate::mem::{ProcessMemory, Watch};
use crate::udp::UdpLink;

/// When the kernel can take no more, it is asked again after this time at the latest: a socket says
/// when it has room, an interface does not.
const RETRY: Span = Span::from_us(500);

/// A step that comes so much later than it was due was not let run by the system.
const LATE: Span = Span::from_us(1000);
/// Such a step looks so many times for what has come meanwhile, before it runs timers.
const CATCH_UP: usize = 1024;
/// And after so many of them answers what it has taken: peers have waited long enough.
const ANSWER_EVERY: usize = 16;

/// Device and link.
pub(super) struct State {
    device: Device<ProcessMemory>,
    link: UdpLink,
    train: Train,
    pace: Pace,
    /// When the next step is due if nothing arrives and nobody calls.
    deadline: Option<Instant>,
}

impl State {
    pub(super) fn new(device: Device<ProcessMemory>, link: UdpLink) -> Self {
        let deadline = link.next_due();
        Self { device, link, train: Train::default(), pace: Pace::default(), deadline }
    }

    pub(super) fn device(&mut self) -> &mut Device<ProcessMemory> {
        &mut self.device
    }

    pub(super) fn parts(&mut self) -> (&mut Device<ProcessMemory>, &mut UdpLink) {
        (&mut self.device, &mut self.link)
    }

    pub(super) fn link_counters(&mut self) -> &LinkCounters {
        self.link.count()
    }

    /// When the next step is due.
    pub(super) fn deadline(&self) -> Option<Instant> {
        self.deadline
    }

    /// Whether more of a stream of bulk data will come whatever this side does, as far as packets
    /// tell that have come since the last call; and nothing is due within `span`.
    pub(super) fn may_doze(&mut self, now: Instant, span: Span) -> bool {
        self.pace.is_sure_of_more() && !self.deadline.is_some_and(|at| at.is_due(now + span))
    }

    /// Appends what the link has to wait for.
    pub(super) fn interests(&self, out: &mut Vec<libc::pollfd>) {
        self.link.interests(out);
    }

    /// One bounded step; whether anything was done. `everywhere`: look at every address.
    pub(super) fn step(&mut self, now: Instant, everywhere: bool, batches: usize) -> bool {
        let _watch = Watch::begin(now);
        let arrived = self.take(now, everywhere);
        let due = self.deadline.is_some_and(|deadline| deadline.is_due(now));
        let unblocked = self.link.is_blocked() && self.link.flush();
        if arrived == 0 && !due && !unblocked {
            return false;
        }
        if due {
            if self.deadline.is_some_and(|deadline| (deadline + LATE).is_due(now)) {
                self.catch_up(now);
            }
            self.device.handle_timeout(now);
        }
        self.transmit(now, batches);
        self.replan(now);
        true
    }

    /// Receives a batch; how much it was.
    fn take(&mut self, now: Instant, everywhere: bool) -> usize {
        let Self { device, link, pace, .. } = self;
        let captured = link.is_captured();
        let mut batch = pace.batch();
        let mut sink = |packet: &Packet<Payload<'_>>| {
            if captured {
                return remark::receive(device, now, packet);
            }
            batch.packet(packet);
            device.receive(now, packet);
            None
        };
        let arrived = link.receive(now, everywhere, &mut sink);
        batch.end(now, arrived == 0);
        arrived + link.release(now, device, remark::said)
    }

    /// Takes all that has come: a peer whose answer lies in the socket has not kept us waiting, and
    /// a retry is not spent on it. What it owes leaves in between.
    #[cold]
    fn catch_up(&mut self, now: Instant) {
        for n in 1..=CATCH_UP {
            if self.take(now, true) == 0 {
                return;
            }
            if n.is_multiple_of(ANSWER_EVERY) {
                self.device.hasten();
                self.transmit(now, 1);
            }
        }
    }

    /// Hands what there is to send to the kernel, at most `batches` full buffers of it; whether
    /// everything has gone.
    pub(super) fn transmit(&mut self, now: Instant, batches: usize) -> bool {
        let _watch = Watch::begin(now);
        let Self { device, link, train, .. } = self;
        if link.holds() {
            return self.transmit_held(now, batches);
        }
        for _ in 0..batches {
            if !link.flush() {
                return false;
            }
            while link.has_room() {
                if !device.poll_transmit(now, link.train_limits(), Priorities::ALL, train) {
                    return link.flush();
                }
                if let Some(at) = link.push(train) {
                    device.handle_unreadable(now, train, at);
                }
            }
        }
        link.flush();
        false
    }

    /// The same where sent packets pass through a fault stage.
    #[cold]
    fn transmit_held(&mut self, now: Instant, batches: usize) -> bool {
        let Self { device, link, train, .. } = self;
        for _ in 0..batches {
            if !link.let_out(now, device) {
                return false;
            }
            let mut more = true;
            while more && link.has_room() {
                more = device.poll_transmit(now, link.train_limits(), Priorities::ALL, train);
                if more && let Some(at) = link.push(train) {
                    device.handle_unreadable(now, train, at);
                }
            }
            link.hold(now);
            if !more {
                return link.let_out(now, device) && !link.is_holding();
            }
        }
        link.let_out(now, device);
        false
    }

    /// What there is to tell of injected faults since the last call.
    pub(super) fn take_fault_news(&mut self) -> Vec<FaultNews> {
        self.link.take_fault_news()
    }

    /// All injected faults in a line; `None` if none were asked for.
    pub(super) fn fault_summary(&self) -> Option<FaultNews> {
        self.link.fault_summary()
    }

    /// Works out when the next step is due.
    pub(super) fn replan(&mut self, now: Instant) {
        let device = self.device.poll_timeout(now);
        // What the device has to send has to wait, whatever it says; its timers can.
        self.deadline = if self.link.is_blocked() { Some(now + RETRY) } else { device };
        if let Some(due) = self.link.next_due() {
            self.deadline = Some(self.deadline.map_or(due, |at| at.earlier(due)));
        }
    }

    /// What the device has raised.
    pub(super) fn events(&mut self) -> impl Iterator<Item = Event> {
        std::iter::from_fn(|| self.device.poll_event())
    }
}

#[cfg(test)]
mod tests {
    use std::net::{Ipv4Addr, UdpSocket};

    use engine::{
        Access, AddressVector, AttrMask, DeviceConfig, QpAttr, QpCap, QpInit, QpState, QpType,
        Remote, SendData, SendFlags, SendOp, SendRequest,
    };
    use wire::{Gid, Psn, QKey, Qpn};

    use super::*;
    use crate::info::devices;
    use crate::options::Options;

    /// A device that nobody uses, on an address of this test process only.
    fn state(last: u8) -> (State, Ipv4Addr) {
        let pid = std::process::id();
        let address = Ipv4Addr::new(127, 64 + (pid >> 8) as u8 % 64, pid as u8, last);
        let mut info = devices(Some(&address.to_string())).unwrap().remove(0);
        info.gids.truncate(1);
        let (link, gids) = UdpLink::open(&info, &Options::default()).unwrap();
        let config = DeviceConfig {
            seed: [7; 32],
            slots: link.slots().to_vec(),
            gids,
            mtu: info.mtu,
            receive_buffer: link.receive_buffer(),
            ack_delay: engine::limits::ACK_DELAY,
            credits: false,
        };
        (State::new(Device::new(config, ProcessMemory::new()), link), address)
    }

    #[test]
    fn a_late_step_takes_all_that_has_come_before_timers_run() {
        let (mut state, address) = state(120);
        let peer = UdpSocket::bind("127.0.0.1:0").unwrap();
        let slot = state.link.slots()[0];
        let send = |count| {
            for _ in 0..count {
                peer.send_to(&[4, 0, 0, 0, 0, slot, 0, 9], (address, wire::ROCE_PORT)).unwrap();
            }
        };
        let due = Instant::ZERO + Span::from_us(100);
        send(100);
        state.deadline = Some(due);
        assert!(state.step(due + Span::from_us(10), true, 1));
        let taken = state.link_counters().rx_packets;
        assert!((1..50).contains(&taken), "in time, a batch: {taken}");
        state.deadline = Some(due);
        assert!(state.step(due + LATE, true, 1));
        assert_eq!(state.link_counters().rx_packets, 100);
    }

    /// A queue pair on a device.
    fn queue_pair(state: &mut State) -> Qpn {
        let device = state.device();
        let pd = device.alloc_pd().unwrap();
        let (cq, _) = device.create_cq(1024).unwrap();
        let cap = QpCap {
            max_send_wr: 1024,
            max_recv_wr: 1,
            max_send_sge: 1,
            max_recv_sge: 1,
            max_inline_data: 0,
        };
        let qp_type = QpType::Rc;
        let (send_cq, recv_cq) = (cq, cq);
        let init = QpInit { qp_type, pd, send_cq, recv_cq, srq: None, cap, sq_sig_all: true };
        device.create_qp(&init).unwrap().0
    }

    /// Connects it to a peer's.
    fn connect(state: &mut State, qp: Qpn, (address, peer): (Ipv4Addr, Qpn)) {
        let av = AddressVector {
            is_global: true,
            dgid: Gid::from_ip(address.into()),
            sgid_index: 0,
            traffic_class: 0,
            hop_limit: 64,
            flow_label: 0,
            sl: 0,
        };
        let attr = QpAttr {
            state: QpState::Init,
            cur_state: QpState::Reset,
            en_sqd_async_notify: false,
            access: Access::REMOTE_WRITE,
            pkey_index: 0,
            port: 1,
            qkey: QKey::new(0),
            av,
            path_mtu: wire::Mtu::B1024,
            dest_qp: peer,
            rq_psn: Psn::new(7),
            sq_psn: Psn::new(7),
            timeout: 18,
            retry_cnt: 7,
            rnr_retry: 7,
            min_rnr_timer: 1,
            max_rd_atomic: 1,
            max_dest_rd_atomic: 1,
        };
        let to_init = AttrMask::PKEY_INDEX | AttrMask::PORT | AttrMask::ACCESS_FLAGS;
        let to_rtr = AttrMask::AV
            | AttrMask::PATH_MTU
            | AttrMask::DEST_QPN
            | AttrMask::RQ_PSN
            | AttrMask::MAX_DEST_RD_ATOMIC
            | AttrMask::MIN_RNR_TIMER;
        let to_rts = AttrMask::SQ_PSN
            | AttrMask::TIMEOUT
            | AttrMask::RETRY_CNT
            | AttrMask::RNR_RETRY
            | AttrMask::MAX_QP_RD_ATOMIC;
        for (state_wanted, mask) in
            [(QpState::Init, to_init), (QpState::Rtr, to_rtr), (QpState::Rts, to_rts)]
        {
            let attr = QpAttr { state: state_wanted, ..attr };
            let mask = mask | AttrMask::STATE;
            state.device().modify_qp(Instant::ZERO, qp, &attr, mask).unwrap();
        }
    }

    #[test]
    fn a_late_step_answers_while_it_takes_what_has_come() {
        let ((mut one, address), (mut two, other)) = (state(121), state(122));
        let (qp, peer) = (queue_pair(&mut one), queue_pair(&mut two));
        connect(&mut one, qp, (other, peer));
        connect(&mut two, peer, (address, qp));
        // Messages that each ask, in datagrams of their own.
        let count = 256;
        let due = Instant::ZERO + Span::from_us(100);
        let to = Remote { addr: 0, rkey: wire::RKey::new(0) };
        for wr_id in 0..count {
            let request = SendRequest {
                wr_id,
                op: SendOp::Write(to),
                flags: SendFlags::SIGNALED,
                data: SendData::Sges(&[]),
                datagram: None,
            };
            one.device().post_send(due, qp, &request).unwrap();
            one.transmit(due, 8);
        }
        two.deadline = Some(due);
        assert!(two.step(due + LATE, true, 1));
        let counters = two.device().counters();
        let sent = one.device().counters().tx_packets;
        assert_eq!(counters.rx_accepted, sent, "all of it at once");
        assert!(counters.tx_acks >= 2, "{} answers", counters.tx_acks);
    }
}
