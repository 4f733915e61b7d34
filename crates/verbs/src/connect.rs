//! Bringing queue pairs to work without a connection manager: what two programs have to tell each
//! other, and the state changes that follow from it.

use std::fmt;
use std::hash::{BuildHasher, Hasher, RandomState};
use std::net::IpAddr;
use std::str::FromStr;

use engine::{Access, AddressVector, AttrMask, Error, QpAttr, QpState, QpType, Result};
use wire::{Gid, Mtu, Psn, QKey, Qpn};

use crate::qp::Qp;

/// Attributes of which none counts.
const BLANK: QpAttr = QpAttr {
    state: QpState::Reset,
    cur_state: QpState::Reset,
    en_sqd_async_notify: false,
    access: Access::empty(),
    pkey_index: 0,
    port: 1,
    qkey: QKey::new(0),
    av: AddressVector {
        is_global: true,
        dgid: Gid([0; 16]),
        sgid_index: 0,
        traffic_class: 0,
        hop_limit: 0,
        flow_label: 0,
        sl: 0,
    },
    path_mtu: Mtu::B1024,
    dest_qp: Qpn::new(0),
    rq_psn: Psn::new(0),
    sq_psn: Psn::new(0),
    timeout: 0,
    retry_cnt: 0,
    rnr_retry: 0,
    min_rnr_timer: 0,
    max_rd_atomic: 0,
    max_dest_rd_atomic: 0,
};

/// A PSN that nobody can guess: keyed hashing with keys that the system drew at random.
pub(crate) fn random_psn() -> Psn {
    Psn::new(RandomState::new().build_hasher().finish() as u32)
}

/// What a peer has to know of a queue pair to connect to it. Two programs exchange theirs by any
/// means they have (a TCP connection, a file, the command line), as text or as bytes.
///
/// As text it is one word: address, queue pair number, PSN and path MTU, with slashes.
///
/// ```
/// use crocevia::Endpoint;
///
/// let endpoint: Endpoint = "192.0.2.1/0x000011/0x5a3c01/4096".parse()?;
/// assert_eq!(endpoint.qpn.get(), 0x11);
/// assert_eq!(endpoint.to_string(), "192.0.2.1/0x000011/0x5a3c01/4096");
/// assert_eq!(Endpoint::from_bytes(&endpoint.to_bytes())?, endpoint);
/// let error = "192.0.2.1".parse::<Endpoint>().unwrap_err();
/// assert!(error.to_string().contains("no queue pair"));
/// # Ok::<(), crocevia::Error>(())
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Endpoint {
    /// The address.
    pub gid: Gid,
    /// The queue pair.
    pub qpn: Qpn,
    /// The PSN of its first packet.
    pub psn: Psn,
    /// The largest path MTU of its port.
    pub mtu: Mtu,
}

impl Endpoint {
    /// Bytes of an endpoint.
    pub const BYTES: usize = 24;

    /// As bytes: GID, queue pair number, PSN (3 bytes each, big endian), MTU code, version 1.
    pub fn to_bytes(&self) -> [u8; Self::BYTES] {
        let mut bytes = [0; Self::BYTES];
        bytes[..16].copy_from_slice(&self.gid.0);
        bytes[16..19].copy_from_slice(&self.qpn.get().to_be_bytes()[1..]);
        bytes[19..22].copy_from_slice(&self.psn.get().to_be_bytes()[1..]);
        bytes[22] = self.mtu.code();
        bytes[23] = 1;
        bytes
    }

    /// From bytes.
    ///
    /// # Errors
    /// `Invalid` if the version or the MTU code is unknown.
    pub fn from_bytes(bytes: &[u8; Self::BYTES]) -> Result<Self> {
        if bytes[23] != 1 {
            return Err(Error::invalid(format!("endpoint version {} instead of 1", bytes[23])));
        }
        let mut gid = [0; 16];
        gid.copy_from_slice(&bytes[..16]);
        let mtu = Mtu::from_code(bytes[22])
            .ok_or_else(|| Error::invalid(format!("MTU code {} instead of 1 to 5", bytes[22])))?;
        Ok(Self {
            gid: Gid(gid),
            qpn: Qpn::new(u32::from_be_bytes([0, bytes[16], bytes[17], bytes[18]])),
            psn: Psn::new(u32::from_be_bytes([0, bytes[19], bytes[20], bytes[21]])),
            mtu,
        })
    }
}

impl fmt::Display for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (qpn, psn) = (self.qpn.get(), self.psn.get());
        write!(f, "{}/{qpn:#08x}/{psn:#08x}/{}", self.gid.to_ip(), self.mtu.bytes())
    }
}

impl FromStr for Endpoint {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        let bad = |what: &str| {
            Error::invalid(format!(
                "{what} in {text:?}: an endpoint is address/queue pair/PSN/MTU, for instance \
                 192.0.2.1/0x000011/0x5a3c01/4096"
            ))
        };
        let mut parts = text.trim().split('/');
        let mut part = |what: &str| parts.next().ok_or_else(|| bad(&format!("no {what}")));
        let ip: IpAddr = part("address")?.parse().map_err(|_| bad("no IP address"))?;
        let qpn = number(part("queue pair")?).ok_or_else(|| bad("no queue pair number"))?;
        let psn = number(part("PSN")?).ok_or_else(|| bad("no PSN"))?;
        let mtu = part("MTU")?.parse().ok().and_then(Mtu::from_bytes);
        let mtu = mtu.ok_or_else(|| bad("no path MTU (256, 512, 1024, 2048, 4096)"))?;
        if parts.next().is_some() {
            return Err(bad("a fifth part"));
        }
        Ok(Self { gid: Gid::from_ip(ip), qpn: Qpn::new(qpn), psn: Psn::new(psn), mtu })
    }
}

/// A number of 24 bits, hexadecimal with `0x` or decimal.
fn number(text: &str) -> Option<u32> {
    let value = match text.strip_prefix("0x") {
        Some(hex) => u32::from_str_radix(hex, 16).ok()?,
        None => text.parse().ok()?,
    };
    (value <= 0xFF_FFFF).then_some(value)
}

/// How a connection is to be; the defaults fit most programs.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ConnectOptions {
    /// Own GID to use; `None` takes the first of the peer's address family.
    pub gid_index: Option<u8>,
    /// Path MTU; `None` takes the smaller of the two ports'.
    pub mtu: Option<Mtu>,
    /// What the peer may do to memory of this queue pair's domain, as far as its regions allow it.
    pub access: Access,
    /// ACK timeout code, 0..=31: 4.096 µs × 2^code; 0 is never, 1 to 11 are as 12 (17 ms).
    pub timeout: u8,
    /// Retries after timeouts and sequence errors, 0..=7.
    pub retry_cnt: u8,
    /// Retries while the peer has no receive request, 0..=7; 7 is without limit.
    pub rnr_retry: u8,
    /// How long the peer is told to wait when there is no receive request here: RNR timer code
    /// 0..=31; 12 is 0.64 ms.
    pub min_rnr_timer: u8,
    /// READs and atomics outstanding, as requester.
    pub max_rd_atomic: u8,
    /// READs and atomics outstanding, as responder: not less than the peer's `max_rd_atomic`.
    pub max_dest_rd_atomic: u8,
    /// TOS or traffic class byte.
    pub traffic_class: u8,
    /// TTL or hop limit; 0 means 64.
    pub hop_limit: u8,
    /// Flow label: entropy for ECMP.
    pub flow_label: u32,
    /// Service level.
    pub sl: u8,
}

impl Default for ConnectOptions {
    /// All remote rights, 16 READs each way, 7 retries after 67 ms each, RNR retries without limit.
    fn default() -> Self {
        Self {
            gid_index: None,
            mtu: None,
            access: Access::LOCAL_WRITE
                | Access::REMOTE_WRITE
                | Access::REMOTE_READ
                | Access::REMOTE_ATOMIC,
            timeout: 14,
            retry_cnt: 7,
            rnr_retry: 7,
            min_rnr_timer: 12,
            max_rd_atomic: 16,
            max_dest_rd_atomic: 16,
            traffic_class: 0,
            hop_limit: 0,
            flow_label: 0,
            sl: 0,
        }
    }
}

impl Qp {
    /// What the peer has to know to connect to this queue pair: with the first GID of the device.
    ///
    /// # Errors
    /// `NotFound` if the device has no GID.
    pub fn endpoint(&self) -> Result<Endpoint> {
        self.endpoint_at(0)
    }

    /// The same with another GID.
    ///
    /// # Errors
    /// `NotFound` if the table has no such index.
    pub fn endpoint_at(&self, gid_index: u8) -> Result<Endpoint> {
        let gid = self.context().gid(gid_index)?;
        let mtu = self.context().port().active_mtu;
        Ok(Endpoint { gid, qpn: self.qpn(), psn: self.psn(), mtu })
    }

    /// RESET to INIT: from here on receive requests can be posted, which is what a peer that may
    /// send as soon as it is connected needs. [`connect`](Self::connect) does this itself when it
    /// has not been done. For datagram queue pairs see
    /// [`activate_datagram`](Self::activate_datagram).
    ///
    /// # Errors
    /// `Invalid` if the state is not RESET.
    pub fn init(&self, access: Access) -> Result<()> {
        let attr = QpAttr { state: QpState::Init, access, ..BLANK };
        let mask = AttrMask::STATE | AttrMask::PKEY_INDEX | AttrMask::PORT | AttrMask::ACCESS_FLAGS;
        self.modify(&attr, mask)
    }

    /// Connects an RC or UC queue pair in RESET or INIT to its peer: INIT, RTR, RTS. The peer has
    /// to do the same with this queue pair's [`endpoint`](Self::endpoint); nothing is sent
    /// meanwhile, so neither has to be first.
    ///
    /// # Errors
    /// `Invalid` if the service has no connections, the state is another, no own GID is of the
    /// peer's address family, or an option is out of range; the message says what was expected.
    pub fn connect(&self, peer: &Endpoint, options: &ConnectOptions) -> Result<()> {
        if !self.qp_type().is_connected() {
            return Err(Error::invalid(format!(
                "a queue pair of service {:?} has no connection: call activate_datagram, and give \
                 each datagram its address handle",
                self.qp_type()
            )));
        }
        match self.state() {
            QpState::Reset => self.init(options.access)?,
            QpState::Init => {}
            other => {
                return Err(Error::invalid(format!(
                    "the queue pair is in state {other:?}: connect takes it in RESET or INIT; move \
                     it to RESET first to connect it anew"
                )));
            }
        }
        let gid_index = match options.gid_index {
            Some(index) => index,
            None => self.own_gid_for(peer.gid)?,
        };
        let own_mtu = self.context().port().active_mtu;
        let attr = QpAttr {
            state: QpState::Rtr,
            access: options.access,
            av: AddressVector {
                is_global: true,
                dgid: peer.gid,
                sgid_index: gid_index,
                traffic_class: options.traffic_class,
                hop_limit: options.hop_limit,
                flow_label: options.flow_label,
                sl: options.sl,
            },
            path_mtu: options.mtu.unwrap_or(own_mtu.min(peer.mtu)),
            dest_qp: peer.qpn,
            rq_psn: peer.psn,
            sq_psn: self.psn(),
            timeout: options.timeout,
            retry_cnt: options.retry_cnt,
            rnr_retry: options.rnr_retry,
            min_rnr_timer: options.min_rnr_timer,
            max_rd_atomic: options.max_rd_atomic,
            max_dest_rd_atomic: options.max_dest_rd_atomic,
            ..BLANK
        };
        let mut to_rtr = AttrMask::STATE
            | AttrMask::ACCESS_FLAGS
            | AttrMask::AV
            | AttrMask::PATH_MTU
            | AttrMask::DEST_QPN
            | AttrMask::RQ_PSN;
        let mut to_rts = AttrMask::STATE | AttrMask::SQ_PSN;
        if self.qp_type().is_reliable() {
            to_rtr |= AttrMask::MAX_DEST_RD_ATOMIC | AttrMask::MIN_RNR_TIMER;
            to_rts |= AttrMask::TIMEOUT
                | AttrMask::RETRY_CNT
                | AttrMask::RNR_RETRY
                | AttrMask::MAX_QP_RD_ATOMIC;
        }
        self.modify(&attr, to_rtr)?;
        self.modify(&QpAttr { state: QpState::Rts, ..attr }, to_rts)
    }

    /// Makes a datagram queue pair in RESET work: INIT, RTR, RTS. It receives datagrams that carry
    /// `qkey`.
    ///
    /// # Errors
    /// `Invalid` if the service is not datagrams or the state is not RESET.
    pub fn activate_datagram(&self, qkey: QKey) -> Result<()> {
        if self.qp_type() != QpType::Ud {
            return Err(Error::invalid(format!(
                "a queue pair of service {:?} is connected to one peer: call connect",
                self.qp_type()
            )));
        }
        let attr = QpAttr { state: QpState::Init, qkey, sq_psn: self.psn(), ..BLANK };
        let to_init = AttrMask::STATE | AttrMask::PKEY_INDEX | AttrMask::PORT | AttrMask::QKEY;
        self.modify(&attr, to_init)?;
        self.modify(&QpAttr { state: QpState::Rtr, ..attr }, AttrMask::STATE)?;
        self.modify(&QpAttr { state: QpState::Rts, ..attr }, AttrMask::STATE | AttrMask::SQ_PSN)
    }

    /// Connects two queue pairs of this process to each other: for tests, examples and learning.
    /// They may belong to one device or to two.
    ///
    /// # Errors
    /// As [`connect`](Self::connect).
    pub fn pair(a: &Self, b: &Self, options: &ConnectOptions) -> Result<()> {
        let (of_a, of_b) = (a.endpoint()?, b.endpoint()?);
        a.connect(&of_b, options)?;
        b.connect(&of_a, options)
    }

    fn own_gid_for(&self, peer: Gid) -> Result<u8> {
        let gids = self.context().gids();
        let scope = |gid: Gid| (gid.is_ipv4(), gid.0[..2] == [0xFE, 0x80]);
        let index = gids.iter().position(|entry| scope(entry.gid) == scope(peer));
        index.and_then(|index| u8::try_from(index).ok()).ok_or_else(|| {
            let own: Vec<String> = gids.iter().map(|entry| entry.gid.to_ip().to_string()).collect();
            Error::invalid(format!(
                "the peer is {}, and no own GID is of that kind (own: {}): give both sides \
                 addresses of one family, or set gid_index",
                peer.to_ip(),
                own.join(", ")
            ))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn endpoint(ip: &str, qpn: u32, psn: u32, mtu: Mtu) -> Endpoint {
        let gid = Gid::from_ip(ip.parse().unwrap());
        Endpoint { gid, qpn: Qpn::new(qpn), psn: Psn::new(psn), mtu }
    }

    #[test]
    fn endpoints_as_text_and_bytes() {
        for (ip, text) in [("10.0.0.1", "10.0.0.1"), ("2001:DB8::0:1", "2001:db8::1")] {
            for mtu in [Mtu::B256, Mtu::B4096] {
                let one = endpoint(ip, 0xFF_FFFF, 0, mtu);
                let written = format!("{text}/0xffffff/0x000000/{}", mtu.bytes());
                assert_eq!(one.to_string(), written);
                assert_eq!(format!(" {written}\n").parse(), Ok(one));
                assert_eq!(Endpoint::from_bytes(&one.to_bytes()), Ok(one));
            }
        }
        assert_eq!("10.0.0.1/17/18/1024".parse(), Ok(endpoint("10.0.0.1", 17, 18, Mtu::B1024)));
    }

    #[test]
    fn what_is_no_endpoint() {
        for text in [
            "",
            "10.0.0.1",
            "10.0.0/1/1/1024",
            "10.0.0.1/0x1000000/1/1024",
            "10.0.0.1/1/-1/1024",
            "10.0.0.1/1/1/1500",
            "10.0.0.1/1/1/1024/5",
        ] {
            let error = text.parse::<Endpoint>().unwrap_err();
            assert!(error.to_string().contains("192.0.2.1/"), "{text}: {error}");
        }
        let good = endpoint("10.0.0.1", 1, 1, Mtu::B1024).to_bytes();
        for (at, value) in [(22, 0), (22, 6), (23, 2)] {
            let mut bytes = good;
            bytes[at] = value;
            assert!(Endpoint::from_bytes(&bytes).is_err());
        }
    }

    #[test]
    fn psns_differ() {
        let drawn: std::collections::HashSet<u32> = (0..100).map(|_| random_psn().get()).collect();
        assert!(drawn.len() > 95, "{} of 100 differ", drawn.len());
    }
}
