//! A NIC's two taps into the capture: what its sockets take and give becomes frames again, as they
//! are on the wire. What a socket does not show is what the kernel is known to do (see `udp`): DF
//! set, identifications counted from 0 within a train, no flow label on what we send. Ethernet
//! addresses of peers come from the system (`capture/neighbour`), and are 0 while it has none.

use std::collections::VecDeque;
use std::fmt::{self, Display, Write};
use std::net::IpAddr;
use std::os::fd::AsFd;
use std::sync::Arc;

use engine::FaultSet;
use socket2::{Domain, Socket, Type};
use wire::checksum::Check;
use wire::ethernet::Ethernet;
use wire::frame::{MAX_UDP_HEAD, emit_udp_head};
use wire::ip::{Ip, Ipv4, Ipv6};
use wire::pcapng::{Description, Direction, Interface, Notes};
use wire::{Gid, Mac};

use super::buffers::Captured;
use super::neighbour::Peers;
use super::{Capture, wall_clock};
use crate::icrc::DONT_FRAGMENT;
use crate::info::DeviceInfo;
use crate::mmsg::Outgoing;
use crate::options::Options;
use crate::sys;

/// What the device or the link has to say of a received packet, if it is not as usual.
pub(crate) type Remark = Option<&'static str>;

/// What is known of a sent packet beforehand.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct SentNote {
    /// It has been sent before.
    pub(crate) again: bool,
    /// The faults that were injected into it.
    pub(crate) faults: FaultSet,
    /// What else there is to say.
    pub(crate) remark: Remark,
}

/// A text of bounded length, made without allocation; what does not fit is left out.
#[derive(Clone, Copy)]
pub(super) struct Text {
    bytes: [u8; 160],
    len: usize,
}

impl Default for Text {
    fn default() -> Self {
        Self { bytes: [0; 160], len: 0 }
    }
}

impl Text {
    pub(super) fn as_str(&self) -> &str {
        str::from_utf8(&self.bytes[..self.len]).unwrap_or_default()
    }

    /// Adds a remark behind those that there are.
    fn add(&mut self, remark: impl Display) {
        let between = if self.len == 0 { "" } else { "; " };
        // It never fails.
        let _ = write!(self, "{between}{remark}");
    }
}

impl Write for Text {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        let mut len = text.len().min(self.bytes.len() - self.len);
        while !text.is_char_boundary(len) {
            len -= 1;
        }
        self.bytes[self.len..self.len + len].copy_from_slice(&text.as_bytes()[..len]);
        self.len += len;
        Ok(())
    }
}

/// A device's interface in the capture.
struct Attached {
    capture: Arc<Capture>,
    interface: Interface,
    snap_len: usize,
    /// The interface's own Ethernet address; zeros on loopback.
    mac: Mac,
    /// The interface's index in the system.
    index: u32,
    addresses: Vec<IpAddr>,
}

/// Writes an interface for the device into the capture.
pub(super) fn attach(
    capture: Arc<Capture>,
    info: &DeviceInfo,
    options: &Options,
) -> (Inbound, Outbound) {
    let dev = &info.netdev;
    let addresses: Vec<IpAddr> =
        info.gids.iter().filter(|e| !e.gid.is_zero()).map(|e| e.gid.to_ip()).collect();
    let description = Description {
        snap_len: options.pcap_snap_len.unwrap_or(0),
        name: &dev.name,
        description: &info.name,
        addresses: &addresses,
        mac: (dev.mac != Mac::default()).then_some(dev.mac),
        speed: dev.speed_mbps.map(|mbps| u64::from(mbps) * 1_000_000),
        ..Description::default()
    };
    let interface = capture.with(|buffers| buffers.describe(wall_clock(), &description));
    let attached = Arc::new(Attached {
        capture,
        interface,
        snap_len: options.pcap_snap_len.map_or(usize::MAX, |len| len as usize),
        mac: dev.mac,
        index: dev.index,
        addresses,
    });
    let hops = [Domain::IPV4, Domain::IPV6].map(default_hops);
    let inbound =
        Inbound { attached: Arc::clone(&attached), time: 0, lost: 0, peers: Peers::new() };
    let outbound =
        Outbound { attached, time: 0, hops, notes: VecDeque::new(), peers: Peers::new() };
    (inbound, outbound)
}

/// The TTL or hop limit that the system gives where none is asked for.
fn default_hops(domain: Domain) -> u8 {
    let (level, name) = match domain {
        Domain::IPV4 => (libc::IPPROTO_IP, libc::IP_TTL),
        _ => (libc::IPPROTO_IPV6, libc::IPV6_UNICAST_HOPS),
    };
    Socket::new(domain, Type::DGRAM, None)
        .and_then(|socket| sys::get_int(socket.as_fd(), level, name))
        .ok()
        .and_then(|hops| u8::try_from(hops).ok())
        .unwrap_or(engine::limits::DEFAULT_HOP_LIMIT)
}

impl Drop for Attached {
    fn drop(&mut self) {
        if !self.capture.is_inherited() {
            self.capture.with(|buffers| buffers.report_of(self.interface, wall_clock()));
        }
    }
}

/// What the IP and UDP headers of a packet say.
pub(crate) struct Envelope {
    pub(crate) from: IpAddr,
    pub(crate) to: IpAddr,
    pub(crate) source_port: u16,
    pub(crate) traffic_class: u8,
    pub(crate) hop_limit: u8,
    pub(crate) flow_label: u32,
    /// IPv4 identification, and the word with the flags and the fragment offset.
    pub(crate) ident: u16,
    pub(crate) flags: u16,
}

impl Attached {
    /// Where peers are looked for; `None` where there are no Ethernet addresses.
    fn place(&self) -> Option<u32> {
        (self.mac != Mac::default()).then_some(self.index)
    }

    /// Captures a packet; `transport` runs from its BTH through its ICRC.
    fn packet(
        &self,
        time: u64,
        ethernet: Ethernet,
        envelope: &Envelope,
        transport: &[u8],
        notes: Notes<'_>,
    ) {
        let ip = match (envelope.from, envelope.to) {
            (IpAddr::V4(source), IpAddr::V4(destination)) => Ip::V4(Ipv4 {
                tos: envelope.traffic_class,
                ident: envelope.ident,
                dont_fragment: envelope.flags & DONT_FRAGMENT != 0,
                reserved_flag: false,
                ttl: envelope.hop_limit,
                source,
                destination,
                options: &[],
                checksum: Check::Right,
            }),
            (IpAddr::V6(source), IpAddr::V6(destination)) => Ip::V6(Ipv6 {
                traffic_class: envelope.traffic_class,
                flow_label: envelope.flow_label,
                hop_limit: envelope.hop_limit,
                source,
                destination,
            }),
            // No socket brings that.
            _ => return,
        };
        let mut head = [0; MAX_UDP_HEAD];
        let port = envelope.source_port;
        let Ok(len) = emit_udp_head(&ethernet, &ip, port, transport, &mut head) else { return };
        let captured = Captured {
            interface: self.interface,
            time,
            head: &head[..len],
            transport,
            notes,
            snap_len: self.snap_len,
        };
        self.capture.with(|buffers| buffers.packet(&captured));
    }
}

/// The PSN in the bytes of a packet.
fn psn(transport: &[u8]) -> u32 {
    match transport.get(9..12) {
        Some(&[a, b, c]) => u32::from_be_bytes([0, a, b, c]),
        _ => 0,
    }
}

/// Where received packets are captured.
pub(crate) struct Inbound {
    attached: Arc<Attached>,
    time: u64,
    /// Datagrams that the kernel dropped before the next packet.
    lost: u64,
    peers: Peers,
}

impl Inbound {
    /// Packets have arrived, or come out of the fault stage.
    pub(crate) fn arrived(&mut self) {
        self.time = wall_clock();
    }

    /// The kernel has dropped datagrams, its receive buffer being full.
    pub(crate) fn kernel_dropped(&mut self, count: u64) {
        self.lost += count;
        self.attached.capture.with(|b| b.os_dropped(self.attached.interface, count));
    }

    /// Captures a packet. `remark` is what is to be said of it besides its PSN.
    pub(crate) fn packet(
        &mut self,
        envelope: &Envelope,
        transport: &[u8],
        remark: Option<&dyn Display>,
    ) {
        let mut comment = Text::default();
        if self.lost > 0 {
            let lost = std::mem::take(&mut self.lost);
            comment.add(format_args!(
                "the kernel dropped {lost} datagrams before this one: receive buffer full"
            ));
        }
        if let Some(remark) = remark {
            comment.add(format_args!("PSN {}: {remark}", psn(transport)));
        }
        let notes = Notes {
            direction: Some(Direction::Inbound),
            comment: Some(comment.as_str()).filter(|text| !text.is_empty()),
            ..Notes::default()
        };
        let peer = self.peers.mac(self.attached.place(), envelope.from);
        let own = if self.attached.addresses.contains(&envelope.from) {
            Mac::default()
        } else {
            self.attached.mac
        };
        let ethernet = Ethernet::new(peer, own);
        self.attached.packet(self.time, ethernet, envelope, transport, notes);
    }
}

/// Where sent packets are captured.
pub(crate) struct Outbound {
    attached: Arc<Attached>,
    time: u64,
    /// Of packets to which none is given, IPv4 and IPv6.
    hops: [u8; 2],
    /// Places in the send buffer of packets of which there is something to say, in order.
    notes: VecDeque<(usize, SentNote)>,
    peers: Peers,
}

impl Outbound {
    /// The packet at this place in the send buffer is a repetition.
    pub(crate) fn again(&mut self, start: usize) {
        self.note(start, SentNote { again: true, ..SentNote::default() });
    }

    /// This is to be said of the packet at this place in the send buffer.
    pub(crate) fn note(&mut self, start: usize, note: SentNote) {
        if self.notes.back().is_some_and(|&(last, _)| last >= start) {
            // The buffer has been begun anew.
            self.notes.clear();
        }
        if note != SentNote::default() {
            self.notes.push_back((start, note));
        }
    }

    /// Messages are about to be sent. (They may arrive before the call that sends them returns.)
    pub(crate) fn leaving(&mut self) {
        self.time = wall_clock();
    }

    /// Captures a message that has been sent, as the packets that it is on the wire.
    pub(crate) fn message(&mut self, from: IpAddr, port: u16, message: &Outgoing, buffer: &[u8]) {
        let end = message.start + message.len;
        let segment = usize::from(message.segment).max(1);
        for (index, start) in (message.start..end).step_by(segment).enumerate() {
            let Some(transport) = buffer.get(start..end.min(start + segment)) else { return };
            let note = self.take_note(start);
            self.packet((from, port), message, index as u16, transport, note);
        }
    }

    /// Captures a packet of a message, the number `index` in it.
    pub(crate) fn packet(
        &mut self,
        (from, source_port): (IpAddr, u16),
        message: &Outgoing,
        index: u16,
        transport: &[u8],
        note: SentNote,
    ) {
        let to = message.to.ip();
        let hop_limit = match message.hop_limit {
            0 => self.hops[usize::from(to.is_ipv6())],
            other => other,
        };
        let ethernet = self.ethernet(to);
        let mut comment = Text::default();
        if note.again {
            comment.add(format_args!("retransmission of PSN {}", psn(transport)));
        }
        if !note.faults.is_empty() {
            comment.add(format_args!("injected: {}", note.faults));
        }
        if let Some(remark) = note.remark {
            comment.add(remark);
        }
        let notes = Notes {
            direction: Some(Direction::Outbound),
            comment: Some(comment.as_str()).filter(|text| !text.is_empty()),
            ..Notes::default()
        };
        let envelope = Envelope {
            from,
            to,
            source_port,
            traffic_class: message.traffic_class,
            hop_limit,
            flow_label: 0,
            ident: index,
            flags: DONT_FRAGMENT,
        };
        self.attached.packet(self.time, ethernet, &envelope, transport, notes);
    }

    /// What is to be said of the packet at this place.
    pub(crate) fn take_note(&mut self, start: usize) -> SentNote {
        // Those before it were refused by the kernel.
        while self.notes.front().is_some_and(|&(first, _)| first < start) {
            self.notes.pop_front();
        }
        let found = self.notes.front().filter(|(first, _)| *first == start).map(|(_, note)| *note);
        if found.is_some() {
            self.notes.pop_front();
        }
        found.unwrap_or_default()
    }

    fn ethernet(&mut self, to: IpAddr) -> Ethernet {
        if self.attached.addresses.contains(&to) {
            // That goes by the loopback interface, whatever the address is of.
            return Ethernet::default();
        }
        let peer = match Mac::multicast(Gid::from_ip(to)) {
            Some(group) => group,
            None => self.peers.mac(self.attached.place(), to),
        };
        Ethernet::new(self.attached.mac, peer)
    }
}
