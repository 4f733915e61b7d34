//! The transport part of a packet, from the base transport header through the ICRC: bytes to
//! meaning and back. Nothing here allocates. What stands before it is in `frame`; whether the ICRC
//! is right is for `icrc` to say.

use crate::error::{DropReason, EmitError, Layer};
use crate::ids::{Msn, PKey, Psn, QKey, Qpn, RKey, SrqNum};
use crate::opcode::{HeaderSet, Opcode};
use crate::packet::{Aeth, AtomicEth, Bth, Deth, Extensions, Feth, Reth, Syndrome};

pub use crate::flow::ROCE_PORT;

/// Bytes of a base transport header.
pub const BTH_LEN: usize = 12;
/// Bytes of the invariant CRC at the end.
pub const ICRC_LEN: usize = 4;
/// The longest BTH with extension headers: an atomic request of an extended reliable connection.
pub const MAX_HEADERS: usize = BTH_LEN + 4 + 28;

/// Marks an opcode in [`LAYOUT`] that no service defines.
const UNKNOWN: u16 = u16::MAX;

/// Extension headers (bits of [`HeaderSet`]) and their bytes for each opcode, worked out from the
/// opcode table when compiled, so that a packet costs one look-up.
static LAYOUT: [(u16, u8); 256] = {
    let mut table = [(UNKNOWN, 0); 256];
    let mut op = 0;
    while op < 256 {
        if let Some(set) = Opcode(op as u8).headers() {
            table[op] = (set.bits(), set.byte_len() as u8);
        }
        op += 1;
    }
    table
};

/// A packet from the BTH on, its payload still in the receiver's buffer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Transport<'a> {
    /// Base transport header.
    pub bth: Bth,
    /// Extension headers.
    pub ext: Extensions,
    /// Payload without pad.
    pub payload: &'a [u8],
    /// The ICRC as stored, read least significant byte first; not checked.
    pub icrc: u32,
}

/// Bits that mean nothing to a receiver. Senders write 0; kept so that a captured packet can be
/// written again byte by byte.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct Reserved {
    /// Low six bits of BTH byte 4, behind FECN and BECN.
    pub bth_4: u8,
    /// Low seven bits of BTH byte 8, behind the acknowledge request.
    pub bth_8: u8,
    /// The byte before the source queue pair of a DETH.
    pub deth: u8,
    /// The byte before the number in an XRCETH.
    pub xrceth: u8,
    /// The upper 26 bits of a FETH, as they stand in the word.
    pub feth: u32,
    /// The pad bytes, first ones first.
    pub pad: [u8; 3],
}

/// Pad bytes behind a payload: up to the next multiple of four.
pub const fn pad_len(payload_len: usize) -> usize {
    payload_len.wrapping_neg() & 3
}

/// Bytes from the BTH through the ICRC; `None` for an unknown opcode.
pub fn wire_len(opcode: Opcode, payload_len: usize) -> Option<usize> {
    let (set, ext_len) = LAYOUT[opcode.0 as usize];
    (set != UNKNOWN)
        .then(|| BTH_LEN + ext_len as usize + payload_len + pad_len(payload_len) + ICRC_LEN)
}

/// Reads a packet from the BTH through the ICRC, which is returned and not checked.
///
/// # Errors
/// [`DropReason::Truncated`], [`DropReason::Version`], [`DropReason::UnknownOpcode`] or
/// [`DropReason::Pad`], in this order.
pub fn parse(bytes: &[u8]) -> Result<Transport<'_>, DropReason> {
    const SHORT: DropReason = DropReason::Truncated(Layer::Transport);
    let (body, icrc) = bytes.split_last_chunk::<ICRC_LEN>().ok_or(SHORT)?;
    let (head, rest) = body.split_first_chunk::<BTH_LEN>().ok_or(SHORT)?;
    if head[1] & 0x0F != 0 {
        return Err(DropReason::Version(Layer::Transport));
    }
    let (bits, ext_len) = LAYOUT[head[0] as usize];
    if bits == UNKNOWN {
        return Err(DropReason::UnknownOpcode(head[0]));
    }
    let (ext, padded) = rest.split_at_checked(ext_len as usize).ok_or(SHORT)?;
    let pad = (head[1] >> 4 & 3) as usize;
    if padded.len() % 4 != 0 || pad > padded.len() {
        return Err(DropReason::Pad);
    }
    let ext = read_extensions(HeaderSet::from_bits_truncate(bits), ext).ok_or(SHORT)?;
    let payload = &padded[..padded.len() - pad];
    Ok(Transport { bth: read_bth(head), ext, payload, icrc: u32::from_le_bytes(*icrc) })
}

fn read_bth(h: &[u8; BTH_LEN]) -> Bth {
    Bth {
        opcode: Opcode(h[0]),
        solicited: h[1] & 0x80 != 0,
        migration: h[1] & 0x40 != 0,
        pkey: PKey::new(u16::from_be_bytes([h[2], h[3]])),
        fecn: h[4] & 0x80 != 0,
        becn: h[4] & 0x40 != 0,
        dest_qp: Qpn::new(u32::from_be_bytes([h[4], h[5], h[6], h[7]])),
        ack_request: h[8] & 0x80 != 0,
        psn: Psn::new(u32::from_be_bytes([h[8], h[9], h[10], h[11]])),
    }
}

/// Takes big endian numbers off the front of a slice.
struct Reader<'a>(&'a [u8]);

impl Reader<'_> {
    fn bytes<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (head, rest) = self.0.split_first_chunk::<N>()?;
        self.0 = rest;
        Some(*head)
    }
    fn u32(&mut self) -> Option<u32> {
        self.bytes().map(u32::from_be_bytes)
    }
    fn u64(&mut self) -> Option<u64> {
        self.bytes().map(u64::from_be_bytes)
    }
}

fn read_extensions(set: HeaderSet, bytes: &[u8]) -> Option<Extensions> {
    let mut ext = Extensions::default();
    let mut r = Reader(bytes);
    if set.contains(HeaderSet::DETH) {
        ext.deth = Some(Deth { qkey: QKey::new(r.u32()?), source_qp: Qpn::new(r.u32()?) });
    }
    if set.contains(HeaderSet::XRCETH) {
        ext.xrc_srq = Some(SrqNum::new(r.u32()?));
    }
    if set.contains(HeaderSet::FETH) {
        let word = r.u32()?;
        ext.feth = Some(Feth { selectivity: (word >> 4 & 3) as u8, placement: (word & 15) as u8 });
    }
    if set.contains(HeaderSet::RETH) {
        ext.reth = Some(Reth { va: r.u64()?, rkey: RKey::new(r.u32()?), length: r.u32()? });
    }
    if set.contains(HeaderSet::ATOMIC_ETH) {
        let (va, rkey) = (r.u64()?, RKey::new(r.u32()?));
        ext.atomic = Some(AtomicEth { va, rkey, swap_add: r.u64()?, compare: r.u64()? });
    }
    if set.contains(HeaderSet::AETH) {
        let word = r.u32()?;
        ext.aeth =
            Some(Aeth { syndrome: Syndrome::from_byte((word >> 24) as u8), msn: Msn::new(word) });
    }
    if set.contains(HeaderSet::ATOMIC_ACK_ETH) {
        ext.atomic_ack = Some(r.u64()?);
    }
    if set.contains(HeaderSet::IMM) {
        ext.imm = Some(r.bytes()?);
    }
    if set.contains(HeaderSet::IETH) {
        ext.invalidate = Some(RKey::new(r.u32()?));
    }
    Some(ext)
}

impl Extensions {
    /// Which headers are present.
    pub fn header_set(&self) -> HeaderSet {
        let mut set = HeaderSet::empty();
        set.set(HeaderSet::DETH, self.deth.is_some());
        set.set(HeaderSet::XRCETH, self.xrc_srq.is_some());
        set.set(HeaderSet::FETH, self.feth.is_some());
        set.set(HeaderSet::RETH, self.reth.is_some());
        set.set(HeaderSet::ATOMIC_ETH, self.atomic.is_some());
        set.set(HeaderSet::AETH, self.aeth.is_some());
        set.set(HeaderSet::ATOMIC_ACK_ETH, self.atomic_ack.is_some());
        set.set(HeaderSet::IMM, self.imm.is_some());
        set.set(HeaderSet::IETH, self.invalidate.is_some());
        set
    }
}

impl Reserved {
    /// The bits of a packet that [`parse`] has read, from the BTH through the pad.
    pub(crate) fn read(opcode: Opcode, body: &[u8]) -> Self {
        let byte = |at: usize| body.get(at).copied().unwrap_or(0);
        let mut reserved = Self { bth_4: byte(4) & 0x3F, bth_8: byte(8) & 0x7F, ..Self::default() };
        let set = opcode.headers().unwrap_or(HeaderSet::empty());
        let mut at = BTH_LEN;
        if set.contains(HeaderSet::DETH) {
            reserved.deth = byte(at + 4);
            at += 8;
        }
        if set.contains(HeaderSet::XRCETH) {
            reserved.xrceth = byte(at);
            at += 4;
        }
        if set.contains(HeaderSet::FETH) {
            let word = u32::from_be_bytes([byte(at), byte(at + 1), byte(at + 2), byte(at + 3)]);
            reserved.feth = word & !0x3F;
        }
        let pad = (byte(1) >> 4 & 3) as usize;
        if let Some(tail) = body.len().checked_sub(pad).and_then(|end| body.get(end..)) {
            reserved.pad[..pad].copy_from_slice(tail);
        }
        reserved
    }

    /// Adds the bits to headers and pad that [`emit_headers`] and the caller have written with
    /// zeros.
    pub(crate) fn write(&self, opcode: Opcode, pad: usize, body: &mut [u8]) {
        let set = opcode.headers().unwrap_or(HeaderSet::empty());
        let mut put = |at: usize, bits: u8| {
            if let Some(byte) = body.get_mut(at) {
                *byte |= bits;
            }
        };
        put(4, self.bth_4 & 0x3F);
        put(8, self.bth_8 & 0x7F);
        let mut at = BTH_LEN;
        if set.contains(HeaderSet::DETH) {
            put(at + 4, self.deth);
            at += 8;
        }
        if set.contains(HeaderSet::XRCETH) {
            put(at, self.xrceth);
            at += 4;
        }
        if set.contains(HeaderSet::FETH) {
            for (i, bits) in (self.feth & !0x3F).to_be_bytes().into_iter().enumerate() {
                put(at + i, bits);
            }
        }
        let end = body.len();
        body[end - pad..].copy_from_slice(&self.pad[..pad]);
    }
}

/// Writes the BTH, its pad count taken from `payload_len`, and the extension headers to the front
/// of `out`; returns the bytes written, at most [`MAX_HEADERS`]. Payload, pad ([`pad_len`]) and
/// ICRC are the caller's to put behind.
///
/// # Errors
/// [`EmitError::UnknownOpcode`], [`EmitError::WrongHeaders`] if `ext` holds other headers than the
/// opcode has, [`EmitError::Field`], [`EmitError::NoRoom`].
pub fn emit_headers(
    bth: &Bth,
    ext: &Extensions,
    payload_len: usize,
    out: &mut [u8],
) -> Result<usize, EmitError> {
    let (bits, ext_len) = LAYOUT[bth.opcode.0 as usize];
    if bits == UNKNOWN {
        return Err(EmitError::UnknownOpcode(bth.opcode.0));
    }
    if ext.header_set().bits() != bits {
        return Err(EmitError::WrongHeaders);
    }
    if ext.feth.is_some_and(|feth| feth.selectivity > 3 || feth.placement > 15) {
        return Err(EmitError::Field("FETH"));
    }
    let len = BTH_LEN + ext_len as usize;
    let Some((head, rest)) = out.get_mut(..len).and_then(|o| o.split_first_chunk_mut()) else {
        return Err(EmitError::NoRoom(len));
    };
    write_bth(bth, pad_len(payload_len), head);
    if bits != 0 {
        write_extensions(ext, rest);
    }
    Ok(len)
}

fn write_bth(bth: &Bth, pad: usize, out: &mut [u8; BTH_LEN]) {
    let flag = |set: bool, bit: u32| if set { bit } else { 0 };
    let flags = flag(bth.solicited, 0x80) | flag(bth.migration, 0x40) | (pad as u32) << 4;
    let words = [
        u32::from(bth.opcode.0) << 24 | flags << 16 | u32::from(bth.pkey.get()),
        flag(bth.fecn, 1 << 31) | flag(bth.becn, 1 << 30) | bth.dest_qp.get(),
        flag(bth.ack_request, 1 << 31) | bth.psn.get(),
    ];
    let [a, b, c] = words.map(u32::to_be_bytes);
    out[..4].copy_from_slice(&a);
    out[4..8].copy_from_slice(&b);
    out[8..].copy_from_slice(&c);
}

/// Puts big endian numbers into a slice, one behind the other. The slice is as long as the opcode's
/// headers, so nothing is ever left out.
struct Writer<'a>(&'a mut [u8]);

impl Writer<'_> {
    fn bytes<const N: usize>(&mut self, value: [u8; N]) {
        if let Some((head, rest)) = core::mem::take(&mut self.0).split_first_chunk_mut::<N>() {
            *head = value;
            self.0 = rest;
        }
    }
    fn u32(&mut self, value: u32) {
        self.bytes(value.to_be_bytes());
    }
    fn u64(&mut self, value: u64) {
        self.bytes(value.to_be_bytes());
    }
}

fn write_extensions(ext: &Extensions, out: &mut [u8]) {
    let mut w = Writer(out);
    if let Some(deth) = ext.deth {
        w.u32(deth.qkey.get());
        w.u32(deth.source_qp.get());
    }
    if let Some(srq) = ext.xrc_srq {
        w.u32(srq.get());
    }
    if let Some(feth) = ext.feth {
        w.u32(u32::from(feth.selectivity) << 4 | u32::from(feth.placement));
    }
    if let Some(reth) = ext.reth {
        w.u64(reth.va);
        w.u32(reth.rkey.get());
        w.u32(reth.length);
    }
    if let Some(atomic) = ext.atomic {
        w.u64(atomic.va);
        w.u32(atomic.rkey.get());
        w.u64(atomic.swap_add);
        w.u64(atomic.compare);
    }
    if let Some(aeth) = ext.aeth {
        w.u32(u32::from(aeth.syndrome.to_byte()) << 24 | aeth.msn.get());
    }
    if let Some(value) = ext.atomic_ack {
        w.u64(value);
    }
    if let Some(imm) = ext.imm {
        w.bytes(imm);
    }
    if let Some(rkey) = ext.invalidate {
        w.u32(rkey.get());
    }
}
