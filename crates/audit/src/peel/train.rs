//! Trains: datagrams that were captured before segmentation offload cut them into packets of one
//! size and a shorter last one, or after receive offload joined them. Where the capture does not
//! say the size, it is the one that makes the ICRCs right.

use wire::transport::{BTH_LEN, ICRC_LEN};
use wire::{Mtu, Opcode};

use super::Peeler;
use super::transport::{Carrier, LONGEST, Segment};

/// The least bytes of a packet from the BTH through the ICRC.
const SHORTEST: usize = BTH_LEN + ICRC_LEN;
/// Sizes that are tried on one datagram beyond those of full packets: bounds the time that a
/// datagram made for it can cost.
const TRIES: usize = 24;

/// The size that packets of a train last had, by the opcode of its first.
#[derive(Debug)]
pub(super) struct Sizes([u16; 256]);

impl Default for Sizes {
    fn default() -> Self {
        Self([0; 256])
    }
}

impl Peeler {
    /// The size of the packets in a datagram, if it is a train.
    pub(super) fn train(&mut self, carrier: &Carrier<'_>, bytes: &[u8]) -> Option<usize> {
        let first: &[u8; BTH_LEN] = bytes.first_chunk()?;
        let fits = |size: usize| is_train(carrier, bytes, size);
        let known = usize::from(self.sizes.0[usize::from(first[0])]);
        if fits(known) {
            return Some(known);
        }
        let headers = Opcode(first[0]).headers()?.byte_len();
        let full =
            |code| Some(BTH_LEN + headers + Mtu::from_code(code)?.bytes() as usize + ICRC_LEN);
        let size = (1..=5).rev().filter_map(full).find(|size| fits(*size));
        let size = size.or_else(|| {
            let places = (SHORTEST..=LONGEST.min(bytes.len() - SHORTEST)).step_by(4);
            places.filter(|at| begins_alike(first, bytes, *at)).take(TRIES).find(|at| fits(*at))
        })?;
        self.sizes.0[usize::from(first[0])] = size as u16;
        Some(size)
    }
}

/// Whether a packet for the same receiver may begin at `at`.
fn begins_alike(first: &[u8; BTH_LEN], bytes: &[u8], at: usize) -> bool {
    let Some(next) = bytes.get(at..).and_then(|rest| rest.first_chunk::<BTH_LEN>()) else {
        return false;
    };
    next[2..4] == first[2..4]
        && next[5..8] == first[5..8]
        && next[1] & 0x0F == 0
        && Opcode(next[0]).headers().is_some()
}

/// Whether the first or the second packet is right if all have this size.
fn is_train(carrier: &Carrier<'_>, bytes: &[u8], size: usize) -> bool {
    if size < SHORTEST || size >= bytes.len() || (bytes.len() - 1) % size + 1 < SHORTEST {
        return false;
    }
    let mut packets = bytes.chunks(size).zip(0..);
    packets.by_ref().take(2).any(|(packet, part)| Segment::new(carrier, packet, part).is_right())
}
