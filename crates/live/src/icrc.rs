//! Checking and making ICRCs over UDP sockets, which do not show the IPv4 identification that the
//! ICRC covers. The arithmetic is `wire::icrc`; here is what to expect of which peer.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use wire::icrc::{BEHIND_IDENT, finish, ipv4_state, ipv6_state, solve_ipv4_ident};

/// Bytes of a UDP header.
const UDP_HEADER: usize = 8;
/// The flags word of a packet that must not be fragmented.
pub(crate) const DONT_FRAGMENT: u16 = 0x4000;
/// Identifications whose effect on the state is worked out once.
const KNOWN_IDENTS: usize = 128;
/// States that are remembered.
const LAST: usize = 8;

/// Addresses and ports of a packet, as its ICRC covers them.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Flow {
    /// Source, destination, UDP source port.
    V4(Ipv4Addr, Ipv4Addr, u16),
    /// Source, destination, UDP source port.
    V6(Ipv6Addr, Ipv6Addr, u16),
}

impl Flow {
    /// A flow; `None` if the two addresses are not of one family.
    pub(crate) fn new(source: IpAddr, destination: IpAddr, source_port: u16) -> Option<Self> {
        match (source, destination) {
            (IpAddr::V4(s), IpAddr::V4(d)) => Some(Self::V4(s, d, source_port)),
            (IpAddr::V6(s), IpAddr::V6(d)) => Some(Self::V6(s, d, source_port)),
            _ => None,
        }
    }
}

/// Makes the CRC state in front of a packet's transport bytes, remembering the last ones.
pub(crate) struct States {
    /// What an identification changes in the state, whatever the rest of the header.
    idents: [u32; KNOWN_IDENTS],
    /// The last state of each place, where the length says which: a message and the acknowledgement
    /// behind it alternate.
    last: [Option<(Flow, u16, u32)>; LAST],
}

impl States {
    pub(crate) fn new() -> Self {
        let state = |ident| {
            ipv4_state(Ipv4Addr::UNSPECIFIED, Ipv4Addr::UNSPECIFIED, 0, 0, ident as u16, true)
        };
        let zero = state(0);
        Self { idents: std::array::from_fn(|ident| zero ^ state(ident)), last: [None; LAST] }
    }

    /// The state for a packet of `len` bytes from the BTH through the ICRC, with DF set.
    pub(crate) fn of(&mut self, flow: Flow, len: usize, ident: u16) -> u32 {
        let udp_len = (UDP_HEADER + len) as u16;
        // Lengths are multiples of four.
        let last = &mut self.last[usize::from(udp_len / 4) % LAST];
        let base = match *last {
            Some((f, l, state)) if f == flow && l == udp_len => state,
            _ => {
                let state = match flow {
                    Flow::V4(s, d, port) => ipv4_state(s, d, port, udp_len, 0, true),
                    Flow::V6(s, d, port) => ipv6_state(s, d, port, udp_len),
                };
                *last = Some((flow, udp_len, state));
                state
            }
        };
        match (flow, self.idents.get(usize::from(ident))) {
            (Flow::V6(..), _) => base,
            (Flow::V4(..), Some(change)) => base ^ change,
            (Flow::V4(s, d, port), None) => ipv4_state(s, d, port, udp_len, ident, true),
        }
    }
}

/// Writes the ICRC into the last four bytes of `packet`, which starts at the BTH.
pub(crate) fn seal(states: &mut States, flow: Flow, ident: u16, packet: &mut [u8]) {
    let state = states.of(flow, packet.len(), ident);
    if let Some((body, icrc)) = packet.split_last_chunk_mut::<4>() {
        *icrc = finish(state, body).to_le_bytes();
    }
}

/// What a check found.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Verdict {
    /// Right, with the identification that was to be expected (all 32 bits checked).
    Right,
    /// Right with some identification (16 bits checked).
    Solved,
    /// Wrong.
    Wrong,
    /// Some identification would make it right, but this peer has always had the expected ones.
    Refused,
}

/// A source that has started so many trains at identification 0 in a row is one that always does.
const TRUST_AFTER: u8 = 16;
/// So many refused packets in a row end that: another sender may have taken the address. Damaged
/// ones in between begin the count again, so that nobody who sends those can end it.
const DISTRUST_AFTER: u8 = 8;
/// Addresses remembered: so many sets, and places in each.
const SETS: usize = 64;
const WAYS: usize = 8;
/// Addresses and ports whose last identification is remembered; more share places.
const PORTS: usize = 256;

/// What is known of the identifications of one source address.
#[derive(Clone, Copy, Default)]
struct Source {
    address: u32,
    /// Expected identifications seen since the last unexpected one.
    expected: u8,
    /// Refused packets since the last one of another kind.
    refused: u8,
}

/// The sources: those that are heard of often come to stand in front, and a new one takes the last
/// place of its set. Only a packet whose ICRC is right brings one in: what anybody can write on a
/// packet changes nothing.
struct Sources(Box<[[Source; WAYS]; SETS]>);

impl Sources {
    fn set(&mut self, address: u32) -> &mut [Source; WAYS] {
        let place = address.wrapping_mul(0x9E37_79B1) >> 26;
        &mut self.0[place as usize % SETS]
    }

    fn find(&mut self, address: u32) -> Option<&mut Source> {
        let set = self.set(address);
        let at = set.iter().position(|source| source.address == address)?;
        set.swap(at, at.saturating_sub(1));
        set.get_mut(at.saturating_sub(1))
    }

    fn find_or_add(&mut self, address: u32) -> &mut Source {
        let set = self.set(address);
        if set[0].address == address {
            return &mut set[0];
        }
        let at = set.iter().position(|source| source.address == address).unwrap_or_else(|| {
            set[WAYS - 1] = Source { address, ..Source::default() };
            WAYS - 1
        });
        set.swap(at, at.saturating_sub(1));
        &mut set[at.saturating_sub(1)]
    }
}

/// The last identification that came from an address and port.
#[derive(Clone, Copy, Default)]
struct Last {
    address: u32,
    port: u16,
    ident: u16,
}

/// Checks received ICRCs.
pub(crate) struct Checker {
    states: States,
    sources: Sources,
    last: Box<[Last; PORTS]>,
    /// Identification and flags of the last packet that had others than the expected ones.
    solved: Option<(u16, u16)>,
}

impl Checker {
    pub(crate) fn new() -> Self {
        Self {
            states: States::new(),
            sources: Sources(Box::new([[Source::default(); WAYS]; SETS])),
            last: Box::new([Last::default(); PORTS]),
            solved: None,
        }
    }

    /// Checks `packet`, which runs from the BTH through the ICRC and was number `index` in the
    /// message that the kernel gave. `strict`: no identification but the index is considered.
    pub(crate) fn check(&mut self, flow: Flow, packet: &[u8], index: u16, strict: bool) -> Verdict {
        let state = self.states.of(flow, packet.len(), index);
        let Some((body, icrc)) = packet.split_last_chunk::<4>() else { return Verdict::Wrong };
        let (computed, stored) = (finish(state, body), u32::from_le_bytes(*icrc));
        match flow {
            Flow::V6(..) if computed == stored => Verdict::Right,
            Flow::V6(..) => Verdict::Wrong,
            Flow::V4(source, _, port) => {
                let address = source.to_bits();
                if computed == stored {
                    self.came(address, port, index);
                    let source = self.sources.find_or_add(address);
                    source.expected = source.expected.saturating_add(1);
                    source.refused = 0;
                    return Verdict::Right;
                }
                if strict {
                    return Verdict::Wrong;
                }
                // The field is solved as a difference, so an identification that was put into the
                // state comes out exclusive-ored.
                let solved = solve_ipv4_ident(computed, stored, BEHIND_IDENT + body.len());
                let solved = solved.map(|(ident, flags)| (ident ^ index, flags));
                self.judge(address, port, solved)
            }
        }
    }

    /// Judges a packet whose ICRC is right with an identification other than that expected, or not
    /// at all.
    fn judge(&mut self, address: u32, port: u16, solved: Option<(u16, u16)>) -> Verdict {
        let Some((ident, flags)) = solved else {
            if let Some(source) = self.sources.find(address) {
                source.refused = 0;
            }
            return Verdict::Wrong;
        };
        let last = self.last[place(address, port)];
        let next = last.ident.wrapping_add(1);
        let follows = (last.address, last.port, next) == (address, port, ident);
        // A train that a NIC has cut: each packet comes alone and counts up. Or a running count.
        let expected = flags == DONT_FRAGMENT && (ident == 0 || follows);
        let source = self.sources.find(address);
        let trusted = source.as_ref().is_some_and(|source| source.expected >= TRUST_AFTER);
        if let Some(source) = source.filter(|_| trusted && !expected) {
            source.refused = source.refused.saturating_add(1);
            if source.refused >= DISTRUST_AFTER {
                source.expected = 0;
            }
            return Verdict::Refused;
        }
        self.came(address, port, ident);
        let source = self.sources.find_or_add(address);
        source.refused = 0;
        self.solved = solved;
        if expected {
            return Verdict::Right;
        }
        source.expected = 0;
        Verdict::Solved
    }

    /// Notes the identification of a packet that was right.
    fn came(&mut self, address: u32, port: u16, ident: u16) {
        self.last[place(address, port)] = Last { address, port, ident };
    }

    /// Identification and flags of the packet last checked, if they were not the expected ones and
    /// its ICRC is right. Answers once.
    pub(crate) fn take_solved(&mut self) -> Option<(u16, u16)> {
        self.solved.take()
    }
}

fn place(address: u32, port: u16) -> usize {
    let hash = (address ^ u32::from(port)).wrapping_mul(0x9E37_79B1) >> 24;
    hash as usize % PORTS
}

#[cfg(test)]
#[path = "icrc_tests.rs"]
mod tests;
