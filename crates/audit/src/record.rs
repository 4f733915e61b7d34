//! A record of a capture: bytes as they were taken, when and where. What the bytes mean is for
//! `peel`.

use core::fmt;

/// Time of capture, nanoseconds since 1970-01-01 00:00 UTC. Enough until the year 2554.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default, serde::Serialize)]
#[serde(transparent)]
pub struct Time(pub u64);

impl Time {
    /// Nanoseconds from `earlier` to here; 0 where the capture's clock went back.
    pub const fn since(self, earlier: Self) -> u64 {
        self.0.saturating_sub(earlier.0)
    }
}

/// A place of capture: an interface of a file, counted over all files in the order of their first
/// record.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default, serde::Serialize)]
#[serde(transparent)]
pub struct Point(pub u16);

/// Where in the captures something was seen.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default, serde::Serialize)]
pub struct At {
    /// When.
    pub time: Time,
    /// Which file, from 0.
    pub file: u16,
    /// The frame's number in its file, from 1, as tshark counts.
    pub frame: u64,
}

impl fmt::Display for At {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.file {
            0 => write!(f, "#{}", self.frame),
            file => write!(f, "{}#{}", file + 1, self.frame),
        }
    }
}

/// What the bytes of a record begin with.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Link {
    /// An Ethernet header (pcap link type 1).
    Ethernet,
    /// An IPv4 or IPv6 header (101, 228, 229, 12, 14).
    RawIp,
    /// The Linux cooked header, version 1 (113).
    Cooked,
    /// The Linux cooked header, version 2 (276).
    Cooked2,
    /// An ERF record header (197): InfiniBand or Ethernet behind it.
    Erf,
    /// An InfiniBand local route header (247).
    Infiniband,
    /// A link type that is not read; its number.
    Other(u16),
}

/// Which way a frame went at the point of capture, where the capture says so.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Direction {
    /// Received by the machine that captured.
    In,
    /// Sent by it.
    Out,
}

/// A record of a capture.
#[derive(Clone, Copy, Debug)]
pub struct Record<'a> {
    /// Where and when.
    pub at: At,
    /// At which interface.
    pub point: Point,
    /// What the bytes begin with.
    pub link: Link,
    /// Which way, if the capture says so.
    pub direction: Option<Direction>,
    /// Bytes the frame had on the link; `bytes` may be fewer (snap length).
    pub original_len: u32,
    /// Bytes of each segment that the link's hardware will cut the frame into, transport payload
    /// only, where a live capture tells it (virtio net header).
    pub segment: Option<u16>,
    /// The frame's bytes.
    pub bytes: &'a [u8],
}

impl Record<'_> {
    /// Whether the capture kept less than the frame had.
    pub fn is_cut(&self) -> bool {
        (self.bytes.len() as u64) < u64::from(self.original_len)
    }
}
