//! pcapng: sections in either byte order, interfaces with clocks of their own, and the blocks that
//! hold packets or say how many were lost. All other blocks are read over. No classic pcap here.

use std::fmt;

use hashbrown::HashMap;

use super::{Damage, Entry, Framed, MAX_BLOCK, MAX_RECORD, link};
use crate::record::{Direction, Link, Point, Time};

/// The type of a section's first block, the same in both byte orders.
pub(super) const MAGIC: [u8; 4] = [0x0A, 0x0D, 0x0D, 0x0A];
/// Bytes of a section header that show the byte order and the version.
pub(super) const SECTION_HEAD: usize = 16;
/// Bytes that any block has: type, length, length again.
const BLOCK_LEN: usize = 12;
/// Bytes that a block can say it has, those read over included.
const MAX_SAID: u32 = 64 << 20;
/// Interfaces that are kept apart in a file; what goes beyond counts for the last of them.
const MAX_POINTS: usize = 4096;
/// Interfaces of one section.
const MAX_INTERFACES: usize = 65_536;

const SECTION: u32 = 0x0A0D_0D0A;
const INTERFACE: u32 = 1;
const OLD_PACKET: u32 = 2;
const SIMPLE_PACKET: u32 = 3;
const STATISTICS: u32 = 5;
const ENHANCED_PACKET: u32 = 6;

/// How the ticks of an interface become nanoseconds.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Clock {
    /// So many nanoseconds a tick.
    Multiply(u64),
    /// So many ticks a nanosecond.
    Divide(u64),
    /// 2 to the power of so many ticks a second.
    Binary(u8),
}

impl Clock {
    /// The meaning of `if_tsresol`.
    fn of(resolution: u8) -> Self {
        let power = u32::from(resolution & 0x7F);
        match (resolution & 0x80 != 0, power) {
            (true, power) => Self::Binary(power as u8),
            (false, 0..=9) => Self::Multiply(10u64.pow(9 - power)),
            // Beyond 10^28 a tick is nothing.
            (false, power) => Self::Divide(10u64.checked_pow(power - 9).unwrap_or(u64::MAX)),
        }
    }

    fn time(self, ticks: u64, offset: i64) -> Time {
        let nanoseconds = match self {
            Self::Multiply(factor) => ticks.saturating_mul(factor),
            Self::Divide(divisor) => ticks / divisor,
            Self::Binary(power) => {
                let nanoseconds = (u128::from(ticks) * 1_000_000_000) >> power;
                u64::try_from(nanoseconds).unwrap_or(u64::MAX)
            }
        };
        Time(nanoseconds.saturating_add_signed(offset.saturating_mul(1_000_000_000)))
    }
}

#[derive(Clone, Copy, Debug)]
struct Interface {
    link: Link,
    snap_len: u32,
    clock: Clock,
    /// Seconds to add.
    offset: i64,
    point: Point,
}

/// A pcapng file.
#[derive(Debug, Default)]
pub(super) struct Ng {
    big: bool,
    /// Of the section that is read.
    interfaces: Vec<Interface>,
    /// Interfaces of all sections, and what makes them the same.
    points: Vec<Known>,
    index: HashMap<Key, u16>,
    sections: u64,
    last: Time,
    /// Packets lost that packet blocks tell of.
    lost: Option<u64>,
}

/// What makes an interface the same in another section.
#[derive(PartialEq, Eq, Hash, Debug)]
struct Key {
    index: usize,
    link: Link,
    name: Box<[u8]>,
}

/// Packets that an interface says were lost.
#[derive(Default, Debug)]
struct Known {
    /// By the last statistics, which are of this section.
    dropped: Option<u64>,
    section: u64,
    /// In the sections before.
    before: u64,
}

/// Reads numbers in a section's byte order.
#[derive(Clone, Copy)]
struct Order<const BIG: bool>;

impl<const BIG: bool> Order<BIG> {
    fn u16(bytes: &[u8], at: usize) -> u16 {
        let Some(word) = bytes.get(at..).and_then(|rest| rest.first_chunk()) else { return 0 };
        if BIG { u16::from_be_bytes(*word) } else { u16::from_le_bytes(*word) }
    }
    fn u32(bytes: &[u8], at: usize) -> u32 {
        let Some(word) = bytes.get(at..).and_then(|rest| rest.first_chunk()) else { return 0 };
        if BIG { u32::from_be_bytes(*word) } else { u32::from_le_bytes(*word) }
    }
    fn u64(bytes: &[u8], at: usize) -> u64 {
        let Some(word) = bytes.get(at..).and_then(|rest| rest.first_chunk()) else { return 0 };
        if BIG { u64::from_be_bytes(*word) } else { u64::from_le_bytes(*word) }
    }

    /// The options of a block.
    fn options(mut bytes: &[u8]) -> impl Iterator<Item = (u16, &[u8])> {
        core::iter::from_fn(move || {
            let (code, len) = (Self::u16(bytes, 0), usize::from(Self::u16(bytes, 2)));
            let value = bytes.get(4..4 + len)?;
            bytes = bytes.get(4 + len.next_multiple_of(4)..).unwrap_or_default();
            (code != 0).then_some((code, value))
        })
    }
}

impl Ng {
    /// Looks at the head of the file.
    pub(super) fn check_first(&self, head: &[u8]) -> Result<(), Damage> {
        if head.len() < SECTION_HEAD {
            let found = format!("the end of the file after {} bytes", head.len());
            return Err(Damage::new(head.len() as u64, "section header", found, "28 bytes"));
        }
        section_order(head, 0).map(|_| ())
    }

    pub(super) fn frame(&mut self, bytes: &[u8], offset: u64, out: &mut Vec<Entry>) -> Framed {
        let mut framed = Framed::default();
        loop {
            let big = self.big;
            if big {
                self.blocks::<true>(bytes, offset, out, &mut framed);
            } else {
                self.blocks::<false>(bytes, offset, out, &mut framed);
            }
            // A section of the other byte order has stopped it.
            if big == self.big {
                return framed;
            }
        }
    }

    fn blocks<const BIG: bool>(
        &mut self,
        bytes: &[u8],
        offset: u64,
        out: &mut Vec<Entry>,
        framed: &mut Framed,
    ) {
        while let Some(head) = bytes[framed.used..].first_chunk::<8>() {
            let start = framed.used;
            let kind = Order::<BIG>::u32(head, 0);
            if kind == SECTION {
                // Its order stands in it.
                if bytes.len() < start + SECTION_HEAD {
                    return;
                }
                match section_order(&bytes[start..], offset + start as u64) {
                    Err(damage) => {
                        framed.damage = Some(damage);
                        return;
                    }
                    Ok(big) if big != BIG => {
                        self.big = big;
                        return;
                    }
                    Ok(_) => {}
                }
            }
            let said = Order::<BIG>::u32(head, 4);
            if let Some(damage) = odd_length(kind, said, offset + start as u64) {
                framed.damage = Some(damage);
                return;
            }
            let len = said as usize;
            let Some(block) = bytes.get(start..start + len) else {
                if len > MAX_BLOCK {
                    let rest = bytes.len() - start;
                    framed.used = bytes.len();
                    framed.skip = (len - rest) as u64;
                }
                return;
            };
            let again = Order::<BIG>::u32(block, len - 4);
            if again != said {
                let at = offset + (start + len - 4) as u64;
                let (found, expected) = (again.to_string(), format!("{said} as before"));
                framed.damage =
                    Some(Damage::new(at, "block length behind the block", found, &expected));
                return;
            }
            if let Err(damage) = self.block::<BIG>(kind, block, start, offset, out) {
                framed.damage = Some(damage);
                return;
            }
            framed.used = start + len;
        }
    }

    /// A whole block at `start` of the bytes that begin at `offset` of the file.
    #[inline]
    fn block<const BIG: bool>(
        &mut self,
        kind: u32,
        block: &[u8],
        start: usize,
        offset: u64,
        out: &mut Vec<Entry>,
    ) -> Result<(), Damage> {
        let at = offset + start as u64;
        match kind {
            ENHANCED_PACKET => {
                let index = Order::<BIG>::u32(block, 8);
                self.packet::<BIG>(block, start, at, index, 28, out)
            }
            OLD_PACKET => {
                let index = u32::from(Order::<BIG>::u16(block, 8));
                let drops = Order::<BIG>::u16(block, 10);
                if drops != u16::MAX {
                    *self.lost.get_or_insert(0) += u64::from(drops);
                }
                self.packet::<BIG>(block, start, at, index, 28, out)
            }
            SIMPLE_PACKET => self.simple::<BIG>(block, start, at, out),
            SECTION => {
                self.section();
                Ok(())
            }
            INTERFACE => self.interface::<BIG>(block, at),
            STATISTICS => {
                self.statistics::<BIG>(block);
                Ok(())
            }
            _ => Ok(()),
        }
    }

    fn section(&mut self) {
        self.sections += 1;
        self.interfaces.clear();
    }

    fn interface<const BIG: bool>(&mut self, block: &[u8], at: u64) -> Result<(), Damage> {
        if self.interfaces.len() == MAX_INTERFACES {
            let found = "interface 65537 of its section";
            return Err(Damage::new(at, "block", found, "at most 65536 interfaces"));
        }
        let (mut clock, mut offset, mut name) = (Clock::of(6), 0, &[][..]);
        for (code, value) in Order::<BIG>::options(&block[16..block.len() - 4]) {
            match (code, value.len()) {
                (2, _) => name = &value[..value.len().min(64)],
                (9, 1) => clock = Clock::of(value[0]),
                (14, 8) => offset = Order::<BIG>::u64(value, 0) as i64,
                _ => {}
            }
        }
        let link = link(Order::<BIG>::u16(block, 8));
        let point = self.point(link, name);
        let snap_len = Order::<BIG>::u32(block, 12);
        self.interfaces.push(Interface { link, snap_len, clock, offset, point });
        Ok(())
    }

    /// The point of the next interface: one that an earlier section had, or a new one.
    fn point(&mut self, link: Link, name: &[u8]) -> Point {
        let key = Key { index: self.interfaces.len(), link, name: name.into() };
        if let Some(at) = self.index.get(&key) {
            return Point(*at);
        }
        if self.points.len() == MAX_POINTS {
            return Point(MAX_POINTS as u16 - 1);
        }
        let at = self.points.len() as u16;
        self.points.push(Known::default());
        self.index.insert(key, at);
        Point(at)
    }

    fn statistics<const BIG: bool>(&mut self, block: &[u8]) {
        let Some(body) = block.get(20..block.len() - 4) else { return };
        let index = Order::<BIG>::u32(block, 8) as usize;
        let Some(interface) = self.interfaces.get(index) else { return };
        let point = usize::from(interface.point.0);
        let mut dropped = None;
        for (code, value) in Order::<BIG>::options(body) {
            // By the interface, by the operating system.
            if matches!((code, value.len()), (5 | 7, 8)) {
                let more = Order::<BIG>::u64(value, 0);
                dropped = Some(dropped.unwrap_or(0u64).saturating_add(more));
            }
        }
        if let (Some(dropped), Some(known)) = (dropped, self.points.get_mut(point)) {
            if known.section != self.sections {
                known.before = known.before.saturating_add(known.dropped.unwrap_or(0));
                known.section = self.sections;
            }
            known.dropped = Some(dropped);
        }
    }

    /// A packet with a time; its bytes begin at `head` of the block.
    #[inline]
    fn packet<const BIG: bool>(
        &mut self,
        block: &[u8],
        start: usize,
        at: u64,
        index: u32,
        head: usize,
        out: &mut Vec<Entry>,
    ) -> Result<(), Damage> {
        let interface = self.interface_of(index, at)?;
        let ticks =
            u64::from(Order::<BIG>::u32(block, 12)) << 32 | u64::from(Order::<BIG>::u32(block, 16));
        let len = Order::<BIG>::u32(block, 20);
        captured_fits(len, block.len() - head - 4, at + 20)?;
        let end = head + (len as usize).next_multiple_of(4);
        let mut direction = None;
        if block.len() > end + 8 {
            direction = self.options_of_packet::<BIG>(&block[end..block.len() - 4]);
        }
        let time = interface.clock.time(ticks, interface.offset);
        self.last = time;
        out.push(Entry {
            time,
            start: (start + head) as u32,
            len,
            original_len: Order::<BIG>::u32(block, 24),
            link: interface.link,
            point: interface.point,
            direction,
        });
        Ok(())
    }

    fn options_of_packet<const BIG: bool>(&mut self, options: &[u8]) -> Option<Direction> {
        let mut direction = None;
        for (code, value) in Order::<BIG>::options(options) {
            match (code, value.len()) {
                (2, 4) => {
                    direction = match Order::<BIG>::u32(value, 0) & 3 {
                        1 => Some(Direction::In),
                        2 => Some(Direction::Out),
                        _ => None,
                    }
                }
                (4, 8) => {
                    let lost = self.lost.get_or_insert(0);
                    *lost = lost.saturating_add(Order::<BIG>::u64(value, 0));
                }
                _ => {}
            }
        }
        direction
    }

    /// A packet without a time, which gets that of the one before.
    fn simple<const BIG: bool>(
        &mut self,
        block: &[u8],
        start: usize,
        at: u64,
        out: &mut Vec<Entry>,
    ) -> Result<(), Damage> {
        let interface = self.interface_of(0, at)?;
        let original_len = Order::<BIG>::u32(block, 8);
        let len = match interface.snap_len {
            0 => original_len,
            snap_len => original_len.min(snap_len),
        };
        captured_fits(len, block.len() - 16, at + 8)?;
        out.push(Entry {
            time: self.last,
            start: (start + 12) as u32,
            len,
            original_len,
            link: interface.link,
            point: interface.point,
            direction: None,
        });
        Ok(())
    }

    #[inline]
    fn interface_of(&self, index: u32, at: u64) -> Result<Interface, Damage> {
        self.interfaces.get(index as usize).copied().ok_or_else(|| {
            let expected = match self.interfaces.len() {
                0 => "an interface block before it".to_owned(),
                many => format!("less than {many}"),
            };
            Damage::new(at + 8, "interface of a packet", index.to_string(), &expected)
        })
    }

    pub(super) fn cut(&self, rest: &[u8], offset: u64) -> Damage {
        let found = format!("the end of the file after {} bytes", rest.len());
        let said = match (self.big, rest.len() >= 8) {
            (_, false) => BLOCK_LEN as u32,
            (true, true) => Order::<true>::u32(rest, 4),
            (false, true) => Order::<false>::u32(rest, 4),
        };
        Damage::new(offset, "block", found, &format!("{said} bytes"))
    }

    /// Packets that the file says were lost.
    pub(super) fn dropped(&self) -> Option<u64> {
        let of = |known: &Known| Some(known.dropped?.saturating_add(known.before));
        self.points.iter().filter_map(of).reduce(u64::saturating_add).max(self.lost)
    }
}

impl fmt::Display for Ng {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let order = if self.big { "big" } else { "little" };
        let plural = |n: u64| if n == 1 { "" } else { "s" };
        let interfaces = self.points.len() as u64;
        write!(f, "pcapng, {order} endian, {interfaces} interface{}", plural(interfaces))?;
        if self.sections > 1 {
            write!(f, ", {} sections", self.sections)?;
        }
        Ok(())
    }
}

/// Whether the section whose header begins here is big endian.
fn section_order(head: &[u8], offset: u64) -> Result<bool, Damage> {
    let magic = head.get(8..12).unwrap_or_default();
    let (big, major) = match magic {
        [0x1A, 0x2B, 0x3C, 0x4D] => (true, Order::<true>::u16(head, 12)),
        [0x4D, 0x3C, 0x2B, 0x1A] => (false, Order::<false>::u16(head, 12)),
        _ => {
            let found: Vec<_> = magic.iter().map(|byte| format!("{byte:02x}")).collect();
            let expected = "1a 2b 3c 4d or the reverse";
            return Err(Damage::new(offset + 8, "byte order", found.join(" "), expected));
        }
    };
    if major != 1 {
        return Err(Damage::new(offset + 12, "major version", major.to_string(), "1"));
    }
    Ok(big)
}

/// What is wrong with the length of a block.
#[inline]
fn odd_length(kind: u32, said: u32, at: u64) -> Option<Damage> {
    let (least, most) = match kind {
        SECTION => (28, MAX_BLOCK as u32),
        INTERFACE => (20, MAX_BLOCK as u32),
        OLD_PACKET | ENHANCED_PACKET => (32, MAX_BLOCK as u32),
        SIMPLE_PACKET => (16, MAX_BLOCK as u32),
        STATISTICS => (24, MAX_BLOCK as u32),
        _ => (BLOCK_LEN as u32, MAX_SAID),
    };
    if said.is_multiple_of(4) && said >= least && said <= most {
        return None;
    }
    let expected = format!("a multiple of 4 from {least} to {most}");
    Some(Damage::new(at + 4, "block length", said.to_string(), &expected))
}

#[inline]
fn captured_fits(len: u32, room: usize, at: u64) -> Result<(), Damage> {
    let most = room.min(MAX_RECORD);
    if len as usize <= most {
        return Ok(());
    }
    let expected = format!("at most {most} bytes");
    Err(Damage::new(at, "captured length", format!("{len} bytes"), &expected))
}
