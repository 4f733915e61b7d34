//! Generators and helpers that several test files share.
#![allow(dead_code)] // Each test file uses its own part.

pub(crate) mod manifest;
pub(crate) mod pcap;

use proptest::option;
use proptest::prelude::*;
use wire::packet::{Aeth, AtomicEth, Bth, Deth, Extensions, Feth, Reth, Syndrome};
use wire::{HeaderSet, Msn, Opcode, PKey, Psn, QKey, Qpn, RKey, SrqNum};

/// Every opcode that some service defines.
pub(crate) fn known_opcodes() -> impl Iterator<Item = Opcode> {
    (0..=255).map(Opcode).filter(|op| op.headers().is_some())
}

/// A SEND Only of a reliable connection.
pub(crate) fn plain_bth() -> Bth {
    Bth {
        opcode: Opcode(4),
        solicited: false,
        migration: true,
        pkey: PKey::DEFAULT,
        fecn: false,
        becn: false,
        dest_qp: Qpn::new(0x11),
        ack_request: true,
        psn: Psn::new(0x12_3456),
    }
}

prop_compose! {
    /// Any base transport header with an opcode that exists.
    pub(crate) fn any_bth()(
        opcode in proptest::sample::select(known_opcodes().collect::<Vec<_>>()),
        flags in any::<[bool; 5]>(),
        pkey in any::<u16>(),
        dest_qp in any::<u32>(),
        psn in any::<u32>(),
    ) -> Bth {
        let [solicited, migration, fecn, becn, ack_request] = flags;
        Bth {
            opcode,
            solicited,
            migration,
            pkey: PKey::new(pkey),
            fecn,
            becn,
            dest_qp: Qpn::new(dest_qp),
            ack_request,
            psn: Psn::new(psn),
        }
    }
}

prop_compose! {
    /// Any values in the extension headers that the opcode asks for.
    pub(crate) fn any_extensions(opcode: Opcode)(
        words in any::<[u32; 8]>(),
        longs in any::<[u64; 5]>(),
        codes in any::<[u8; 3]>(),
        imm in any::<[u8; 4]>(),
    ) -> Extensions {
        let set = opcode.headers().unwrap_or(HeaderSet::empty());
        let has = |header| set.contains(header);
        Extensions {
            deth: has(HeaderSet::DETH)
                .then_some(Deth { qkey: QKey::new(words[0]), source_qp: Qpn::new(words[1]) }),
            xrc_srq: has(HeaderSet::XRCETH).then_some(SrqNum::new(words[2])),
            feth: has(HeaderSet::FETH)
                .then_some(Feth { selectivity: codes[0] & 3, placement: codes[1] & 15 }),
            reth: has(HeaderSet::RETH)
                .then_some(Reth { va: longs[0], rkey: RKey::new(words[3]), length: words[4] }),
            atomic: has(HeaderSet::ATOMIC_ETH).then_some(AtomicEth {
                va: longs[1],
                rkey: RKey::new(words[5]),
                swap_add: longs[2],
                compare: longs[3],
            }),
            aeth: has(HeaderSet::AETH)
                .then(|| Aeth { syndrome: Syndrome::from_byte(codes[2]), msn: Msn::new(words[6]) }),
            atomic_ack: has(HeaderSet::ATOMIC_ACK_ETH).then_some(longs[4]),
            imm: has(HeaderSet::IMM).then_some(imm),
            invalidate: has(HeaderSet::IETH).then_some(RKey::new(words[7])),
        }
    }
}

/// Sometimes nothing.
pub(crate) fn maybe<S: Strategy>(strategy: S) -> impl Strategy<Value = Option<S::Value>> {
    option::of(strategy)
}
