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
    /// a retry is not spent on it.
    #[cold]
    fn catch_up(&mut self, now: Instant) {
        for _ in 0..CATCH_UP {
            if self.take(now, true) == 0 {
                return;
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

    use engine::DeviceConfig;

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
}
