//! The machine's network interfaces as the system lists them: addresses, MTU, MAC, speed. What a
//! device makes of them is in `info`.

use std::collections::BTreeMap;
use std::ffi::CStr;
use std::fs;
use std::io;
use std::mem::zeroed;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::os::fd::{AsFd, AsRawFd};

use engine::{Error, ErrorKind};
use libc::c_int;
use socket2::{Domain, Socket, Type};
use wire::Mac;

use crate::sys;

/// A network interface.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct NetDev {
    /// Its name, such as `eth0`.
    pub name: String,
    /// Its index in the system, from 1.
    pub index: u32,
    /// Bytes of the longest IP packet.
    pub mtu: u32,
    /// Its Ethernet address; zeros if it has none.
    pub mac: Mac,
    /// Whether it is up and has a carrier.
    pub up: bool,
    /// Whether it is the loopback interface.
    pub loopback: bool,
    /// Speed in Mbit/s, where the system knows it.
    pub speed_mbps: Option<u32>,
    /// Its addresses, in the system's order.
    pub addrs: Vec<IpAddr>,
}

/// All interfaces, by index.
///
/// # Errors
/// `System` if the system does not list them.
pub fn netdevs() -> engine::Result<Vec<NetDev>> {
    list().map_err(|e| {
        Error::new(ErrorKind::System, format!("cannot list the network interfaces: {e}"))
    })
}

/// What `getifaddrs` says of one interface.
#[derive(Default)]
struct Entry {
    flags: u32,
    mac: Mac,
    addrs: Vec<IpAddr>,
}

fn list() -> io::Result<Vec<NetDev>> {
    let socket = Socket::new(Domain::IPV4, Type::DGRAM, None)
        .or_else(|_| Socket::new(Domain::IPV6, Type::DGRAM, None))?;
    let mut devs = Vec::new();
    for (name, entry) in entries()? {
        // An interface may vanish between the two looks at it.
        let (Ok(index), Ok(mtu)) = (
            request(&socket, &name, libc::SIOCGIFINDEX),
            request(&socket, &name, libc::SIOCGIFMTU),
        ) else {
            continue;
        };
        let running = (libc::IFF_UP | libc::IFF_RUNNING) as u32;
        devs.push(NetDev {
            index: index as u32,
            mtu: mtu as u32,
            mac: entry.mac,
            up: entry.flags & running == running,
            loopback: entry.flags & libc::IFF_LOOPBACK as u32 != 0,
            speed_mbps: speed(&name),
            addrs: entry.addrs,
            name,
        });
    }
    devs.sort_by_key(|dev| dev.index);
    Ok(devs)
}

/// The integer that an interface request of the `SIOCGIF` family returns.
fn request(socket: &Socket, name: &str, what: libc::Ioctl) -> io::Result<c_int> {
    // SAFETY: plain old data for which all zeros are a value.
    let mut ifreq: libc::ifreq = unsafe { zeroed() };
    if name.len() >= ifreq.ifr_name.len() {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    for (slot, byte) in ifreq.ifr_name.iter_mut().zip(name.bytes()) {
        *slot = byte as libc::c_char;
    }
    // SAFETY: these requests read the name and write the union of the structure given.
    sys::check(unsafe { libc::ioctl(socket.as_fd().as_raw_fd(), what, &raw mut ifreq) })?;
    // SAFETY: both requests used here answer with an integer at the start of the union.
    Ok(unsafe { ifreq.ifr_ifru.ifru_mtu })
}

fn speed(name: &str) -> Option<u32> {
    // Unknown speeds read as −1 or as an error.
    fs::read_to_string(format!("/sys/class/net/{name}/speed")).ok()?.trim().parse().ok()
}

fn entries() -> io::Result<BTreeMap<String, Entry>> {
    let mut head: *mut libc::ifaddrs = std::ptr::null_mut();
    // SAFETY: writes a list head to `head`.
    sys::check(unsafe { libc::getifaddrs(&raw mut head) })?;
    let mut map = BTreeMap::<String, Entry>::new();
    let mut next = head;
    // SAFETY: the list came from getifaddrs and is freed only below; each element and what it
    // points to stays as it is until then.
    while let Some(item) = unsafe { next.as_ref() } {
        next = item.ifa_next;
        // SAFETY: the name is a C string that lives as long as the list.
        let name = unsafe { CStr::from_ptr(item.ifa_name) }.to_string_lossy().into_owned();
        // Labels such as `eth0:1` belong to the interface before the colon.
        let name = name.split(':').next().unwrap_or_default().to_owned();
        let entry = map.entry(name).or_default();
        entry.flags |= item.ifa_flags;
        // SAFETY: null, or a socket address whose family says how long it is.
        unsafe { read_address(item.ifa_addr, entry) };
    }
    // SAFETY: the head that getifaddrs gave, freed once.
    unsafe { libc::freeifaddrs(head) };
    Ok(map)
}

/// # Safety
/// `addr` is null or points to a socket address that is as long as its family says.
unsafe fn read_address(addr: *const libc::sockaddr, entry: &mut Entry) {
    if addr.is_null() {
        return;
    }
    // SAFETY: by this function's contract, here and below.
    match c_int::from(unsafe { (*addr).sa_family }) {
        libc::AF_INET => {
            // SAFETY: as above.
            let v4 = unsafe { addr.cast::<libc::sockaddr_in>().read_unaligned() };
            entry.addrs.push(Ipv4Addr::from(v4.sin_addr.s_addr.to_ne_bytes()).into());
        }
        libc::AF_INET6 => {
            // SAFETY: as above.
            let v6 = unsafe { addr.cast::<libc::sockaddr_in6>().read_unaligned() };
            entry.addrs.push(Ipv6Addr::from(v6.sin6_addr.s6_addr).into());
        }
        libc::AF_PACKET => {
            // SAFETY: as above.
            let ll = unsafe { addr.cast::<libc::sockaddr_ll>().read_unaligned() };
            if ll.sll_halen == 6 {
                let [a, b, c, d, e, f, ..] = ll.sll_addr;
                entry.mac = Mac([a, b, c, d, e, f]);
            }
        }
        _ => {}
    }
}
