//! What a link receives from: of each address the sockets of the slots that it has claimed (`set`),
//! or, of further addresses, a socket of its own. Where the system lets a socket have little
//! receive buffer a link claims several slots, so that many senders do not meet in one buffer.

use std::io;
use std::net::IpAddr;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;

use engine::{Error, ErrorKind};
use libc::c_int;
use socket2::Socket;
use wire::Gid;
use wire::transport::ROCE_PORT;

use super::receive::Origin;
use super::set::{Claim, SLOTS, Set};
use super::stray;
use super::{BUFFER, bind_error, datagram_socket, set_buffer, socket_address};
use crate::epoll::{Epoll, MOST_READY};
use crate::sys::{get_int, interest, set_int, socket_drops};

/// Most slots of a link.
const MOST: u8 = 8;
/// Addresses that are shared with other processes: descriptors are not without end.
const SHARED_ADDRESSES: usize = 4;
/// Datagrams that may wait in a socket: more than any buffer holds.
const MOST_STALE: usize = 1 << 16;
/// Up to so many sockets are looked at one by one.
const DIRECT: usize = 4;
const _: () = assert!(DIRECT <= MOST_READY);
/// A socket on which nothing came for so many looks is looked at only now and then.
const QUIET_AFTER: u32 = 256;
/// Every so many looks.
const QUIET_EVERY: u32 = 8;
/// A socket that was the only one to have something at so many looks is looked at first.
const ALONE: u32 = 4;

/// Where a link receives.
pub(super) struct Inlet {
    pub(super) gid: Gid,
    source: Source,
    /// The kernel's count of drops when last told.
    pub(super) kernel_drops: u32,
    /// Messages to ask for at the next receive.
    pub(super) appetite: usize,
    /// Looks since the last message.
    pub(super) quiet: u32,
}

/// Whose a packet is.
pub(super) enum Whose<'a> {
    Ours,
    /// Another process has sent it on to this one.
    SentOn(Origin, &'a [u8]),
    /// For a slot of another process; it is to be sent on as this.
    Another(Vec<u8>),
    /// For a slot that no process has.
    Nobodys,
}

enum Source {
    Own(Socket),
    /// With the slots of the link, bit i for slot i.
    Slot(Arc<Set>, u8, u64),
}

/// Where a link receives on all of its addresses.
pub(super) struct Inlets {
    pub(super) all: Vec<Inlet>,
    sets: Vec<Arc<Set>>,
    gids: Vec<Gid>,
    /// Given back before the sets are left.
    claim: Option<Claim>,
    /// Where there are many: asks them all at once.
    epoll: Option<Epoll>,
    /// The only one on which something came in the last looks at all.
    hot: Option<u16>,
    /// The only one at the last such look that found any, and how often it was.
    last: Option<u16>,
    alone: u32,
    looks: u32,
    pub(super) receive_buffer: Option<usize>,
}

/// Which sockets a look is at.
pub(super) struct Look {
    numbers: [u16; MOST_READY],
    count: u16,
}

impl Look {
    const NONE: Self = Self { numbers: [0; MOST_READY], count: 0 };

    fn at(number: u16) -> Self {
        let mut look = Self::NONE;
        look.add(number);
        look
    }

    fn add(&mut self, number: u16) {
        if let Some(place) = self.numbers.get_mut(usize::from(self.count)) {
            *place = number;
            self.count += 1;
        }
    }

    pub(super) fn numbers(&self) -> &[u16] {
        &self.numbers[..usize::from(self.count)]
    }
}

impl Inlets {
    pub(super) fn new(receive_buffer: Option<usize>) -> Self {
        Self {
            all: Vec::new(),
            sets: Vec::new(),
            gids: Vec::new(),
            claim: None,
            epoll: None,
            hot: None,
            last: None,
            alone: 0,
            looks: 0,
            receive_buffer,
        }
    }

    /// How many slots a link is to have, so that together they have as much buffer as is wanted: a
    /// power of two.
    pub(super) fn spread(receive_buffer: u64) -> u8 {
        // The kernel counts double what is asked for.
        let wanted = 2 * BUFFER as u64 / receive_buffer.max(1);
        let most = wanted.clamp(1, MOST.into()) as u8;
        1 << most.ilog2()
    }

    /// Adds an address: with other processes of this user if it is one of the first, else for this
    /// link alone.
    ///
    /// # Errors
    /// `AddressInUse` if somebody receives on it who does not share it, or too many share it
    /// already: no slot is free on this address and on those before.
    pub(super) fn open(&mut self, gid: Gid, scope: u32) -> engine::Result<()> {
        let ip = gid.to_ip();
        // A quarter of what the process may have is enough.
        let limit = crate::sys::descriptor_limit();
        let affordable = limit / 4 / (u64::from(SLOTS) + 1);
        let mut why = None;
        if self.sets.len() < SHARED_ADDRESSES.min(affordable as usize) {
            match Set::open(ip, scope) {
                Ok(set) => {
                    self.sets.push(set);
                    if Claim::new(&self.sets).slots().is_empty() {
                        self.sets.pop();
                        return Err(full(ip));
                    }
                    self.gids.push(gid);
                    return Ok(());
                }
                // What it takes to share is not to be had here.
                Err(e) if e.kind() == ErrorKind::System => why = Some(e),
                Err(e) => return Err(e),
            }
        }
        let bytes = self.receive_buffer.unwrap_or(BUFFER);
        let socket = open_socket(ip, scope, bytes, Sharing::Alone)
            .map_err(|e| why.take().unwrap_or_else(|| bind_error(ip, &e)))
            .map_err(|e| match affordable {
                0 => Error::new(
                    e.kind(),
                    format!(
                        "{e}; this process may have {limit} descriptors (ulimit -n), and needs {} \
                         to share an address with other crocevia processes",
                        4 * (u32::from(SLOTS) + 1)
                    ),
                ),
                _ => e,
            })?;
        self.all.push(Inlet::own(gid, socket));
        Ok(())
    }

    /// Receives from one more socket, besides those opened.
    pub(super) fn add(&mut self, inlet: Inlet) -> io::Result<()> {
        self.all.push(inlet);
        self.watch().inspect_err(|_| drop(self.all.pop()))
    }

    /// Keeps the sockets that are wanted; whether others went.
    pub(super) fn retain(&mut self, wanted: impl FnMut(&Inlet) -> bool) -> bool {
        let before = self.all.len();
        self.all.retain(wanted);
        let gone = self.all.len() < before;
        if gone {
            // Without a set that is asked at once they are looked at one by one, all of them.
            let _ = self.watch();
        }
        gone
    }

    /// Puts all sockets under their numbers into the set that is asked at once, where they are
    /// many.
    fn watch(&mut self) -> io::Result<()> {
        (self.epoll, self.hot, self.last, self.alone) = (None, None, None, 0);
        if self.all.len() > DIRECT {
            let epoll = Epoll::new()?;
            for (number, inlet) in (0..).zip(&self.all) {
                epoll.add(inlet.as_fd(), number)?;
            }
            self.epoll = Some(epoll);
        }
        Ok(())
    }

    /// Claims slots of the shared addresses; the bytes of buffer behind each address and slot, and
    /// the slots.
    ///
    /// # Errors
    /// `AddressInUse` if all slots are taken, `System` as the system says.
    pub(super) fn claim(&mut self) -> engine::Result<(u64, Vec<u8>)> {
        let fail = |e: io::Error| Error::new(ErrorKind::System, format!("cannot receive: {e}"));
        let mut claim = Claim::new(&self.sets);
        let Some(&first) = claim.slots().first() else {
            // It was there a moment ago.
            return Err(full(self.gids.first().map_or(IpAddr::V4(0.into()), |gid| gid.to_ip())));
        };
        let mut least = u64::MAX;
        let own: Vec<&Socket> = self.all.iter().map(Inlet::socket).collect();
        let firsts = self.sets.iter().map(|set| set.socket(first));
        for socket in firsts.chain(own) {
            self.prepare(socket).map_err(fail)?;
            let bytes = get_int(socket.as_fd(), libc::SOL_SOCKET, libc::SO_RCVBUF).map_err(fail)?;
            least = least.min(bytes.max(0) as u64);
        }
        if !self.sets.is_empty() {
            claim.extend(Self::spread(least));
        }
        let slots = claim.slots().to_vec();
        let ours = slots.iter().fold(0, |ours, slot| ours | 1 << slot);
        for (set, &gid) in self.sets.iter().zip(&self.gids) {
            for &slot in &slots {
                if slot != first {
                    self.prepare(set.socket(slot)).map_err(fail)?;
                }
                self.all.push(Inlet::new(gid, Source::Slot(Arc::clone(set), slot, ours)));
            }
        }
        self.claim = Some(claim);
        self.watch().map_err(fail)?;
        Ok((least, slots))
    }

    /// Gives a socket its buffer, and takes what came for whoever had it before.
    fn prepare(&self, socket: &Socket) -> io::Result<()> {
        let bytes = self.receive_buffer.unwrap_or(BUFFER);
        set_buffer(socket, libc::SO_RCVBUFFORCE, libc::SO_RCVBUF, bytes)?;
        for _ in 0..MOST_STALE {
            if socket.recv(&mut []).is_err() {
                break;
            }
        }
        Ok(())
    }

    /// Appends what has to be waited for.
    pub(super) fn interests(&self, out: &mut Vec<libc::pollfd>) {
        match &self.epoll {
            Some(epoll) => out.push(interest(epoll.as_fd(), libc::POLLIN)),
            None => {
                let sockets = self.all.iter().map(Inlet::as_fd);
                out.extend(sockets.map(|fd| interest(fd, libc::POLLIN)));
            }
        }
    }

    /// The first sockets to look at; if nothing has come, [`Self::elsewhere`] tells where else.
    /// With `everywhere` unset, those long quiet may be looked at only now and then.
    pub(super) fn look(&mut self, everywhere: bool) -> Look {
        self.looks = self.looks.wrapping_add(1);
        let now_and_then = self.looks.is_multiple_of(QUIET_EVERY);
        if self.epoll.is_some() {
            return match self.hot {
                Some(hot) if !now_and_then => Look::at(hot),
                _ => self.ready(),
            };
        }
        let only = self.all.len() == 1;
        let mut look = Look::NONE;
        for (number, inlet) in (0..).zip(&self.all) {
            if everywhere || only || now_and_then || inlet.quiet < QUIET_AFTER {
                look.add(number);
            }
        }
        look
    }

    /// What else to look at after `look` has found nothing.
    pub(super) fn elsewhere(&mut self, look: &Look) -> Look {
        match self.hot {
            Some(hot) if self.epoll.is_some() && look.numbers() == [hot] => self.ready(),
            _ => Look::NONE,
        }
    }

    /// Those that have something.
    fn ready(&mut self) -> Look {
        let Some(epoll) = &self.epoll else { return Look::NONE };
        let (numbers, count) = epoll.ready();
        let only = numbers.first().copied().filter(|_| count == 1);
        if count > 0 && only != self.last {
            (self.last, self.alone) = (only, 0);
        }
        self.alone = self.alone.saturating_add(1);
        self.hot = self.last.filter(|_| self.alone >= ALONE);
        Look { numbers, count: count as u16 }
    }
}

impl Inlet {
    fn new(gid: Gid, source: Source) -> Self {
        let mut inlet = Self { gid, source, kernel_drops: 0, appetite: 1, quiet: 0 };
        inlet.kernel_drops = socket_drops(inlet.as_fd()).unwrap_or(0);
        inlet
    }

    /// One that receives from a socket of this link's own.
    pub(super) fn own(gid: Gid, socket: Socket) -> Self {
        crate::sys::release_on_fork(socket.as_fd());
        Self::new(gid, Source::Own(socket))
    }

    fn socket(&self) -> &Socket {
        match &self.source {
            Source::Own(socket) => socket,
            Source::Slot(set, slot, _) => set.socket(*slot),
        }
    }

    /// Takes over the kernel's count of drops; how many are new.
    pub(super) fn dropped(&mut self, count: u32) -> u64 {
        let more = count.wrapping_sub(self.kernel_drops);
        self.kernel_drops = count;
        more.into()
    }

    /// How many messages the kernel has dropped since this was last known.
    pub(super) fn look_for_drops(&mut self) -> u64 {
        socket_drops(self.as_fd()).map_or(0, |count| self.dropped(count))
    }

    /// Whose a packet is that came here.
    pub(super) fn whose<'a>(&self, origin: &Origin, packet: &'a [u8]) -> Whose<'a> {
        let Source::Slot(set, _, ours) = &self.source else { return Whose::Ours };
        if let Some(slot) = stray::slot(packet).filter(|slot| ours & (1 << slot) == 0) {
            // Nothing is done for what nobody waits for: a flood of it costs little.
            return match set.is_claimed(slot) {
                true => Whose::Another(stray::wrap(set.secret(), origin, packet)),
                false => Whose::Nobodys,
            };
        }
        match stray::unwrap(set.secret(), origin, packet) {
            Some((origin, packet)) => Whose::SentOn(origin, packet),
            None => Whose::Ours,
        }
    }
}

impl AsFd for Inlet {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket().as_fd()
    }
}

impl Drop for Inlet {
    fn drop(&mut self) {
        if let Source::Own(socket) = &self.source {
            crate::sys::keep_on_fork(socket.as_fd());
        }
    }
}

fn full(ip: IpAddr) -> Error {
    Error::new(
        ErrorKind::AddressInUse,
        format!(
            "all {} places of the processes that share UDP {ip} port {ROCE_PORT} are taken: use \
             another address, such as --addr 127.0.0.2 or CROCEVIA_ADDR=127.0.0.2",
            SLOTS - 1
        ),
    )
}

/// Whether an address is one of an interface only.
pub(super) fn needs_scope(ip: IpAddr) -> bool {
    matches!(ip, IpAddr::V6(v6) if v6.is_unicast_link_local() || v6.is_multicast())
}

/// With whom a socket receives on its address.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Sharing {
    /// With nobody.
    Alone,
    /// With others of this user: each datagram is for one of them.
    Slots,
    /// With whoever wants: each has a copy.
    Copies,
}

/// A socket that receives on the RoCE port of an address.
pub(super) fn open_socket(
    ip: IpAddr,
    scope: u32,
    receive_buffer: usize,
    sharing: Sharing,
) -> io::Result<Socket> {
    let socket = datagram_socket(ip)?;
    let fd = socket.as_fd();
    match ip {
        IpAddr::V4(_) => {
            set_int(fd, libc::IPPROTO_IP, libc::IP_RECVTOS, 1)?;
            set_int(fd, libc::IPPROTO_IP, libc::IP_RECVTTL, 1)?;
        }
        IpAddr::V6(_) => {
            set_int(fd, libc::IPPROTO_IPV6, libc::IPV6_RECVTCLASS, 1)?;
            set_int(fd, libc::IPPROTO_IPV6, libc::IPV6_RECVHOPLIMIT, 1)?;
            // Comes along where it is not 0.
            set_int(fd, libc::IPPROTO_IPV6, libc::IPV6_FLOWINFO, 1)?;
            // The kernel's Soft-RoCE sends datagrams without UDP checksum.
            set_int(fd, libc::SOL_UDP, libc::UDP_NO_CHECK6_RX, 1)?;
        }
    }
    set_int(fd, libc::SOL_SOCKET, libc::SO_RXQ_OVFL, 1)?;
    // Kernels before 5.0 do not know it; trains then come in packets.
    let _ = set_int(fd, libc::SOL_UDP, libc::UDP_GRO, 1);
    set_buffer(&socket, libc::SO_RCVBUFFORCE, libc::SO_RCVBUF, receive_buffer)?;
    set_int(fd, libc::SOL_SOCKET, libc::SO_REUSEPORT, c_int::from(sharing == Sharing::Slots))?;
    set_int(fd, libc::SOL_SOCKET, libc::SO_REUSEADDR, c_int::from(sharing == Sharing::Copies))?;
    socket.bind(&socket_address(ip, ROCE_PORT, scope).into())?;
    Ok(socket)
}
