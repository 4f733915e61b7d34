//! The transport layer by itself: every opcode both ways, what is refused and why.

use proptest::prelude::*;
use wire::packet::{Bth, Extensions};
use wire::transport::{self, MAX_HEADERS};
use wire::{DropReason, EmitError, Layer, Opcode};

mod support;
use support::{any_bth, any_extensions, known_opcodes};

/// Writes a whole transport part over a poisoned buffer.
fn emit(bth: &Bth, ext: &Extensions, payload: &[u8]) -> Vec<u8> {
    let mut headers = [0xA5; MAX_HEADERS];
    let len = transport::emit_headers(bth, ext, payload.len(), &mut headers).expect("emit");
    assert!(headers[len..].iter().all(|byte| *byte == 0xA5));
    let mut bytes = headers[..len].to_vec();
    bytes.extend_from_slice(payload);
    bytes.resize(bytes.len() + transport::pad_len(payload.len()), 0);
    bytes.extend_from_slice(&0x1234_5678u32.to_le_bytes());
    bytes
}

proptest! {
    #[test]
    fn what_is_written_is_read(
        (bth, ext) in any_bth().prop_flat_map(|bth| (Just(bth), any_extensions(bth.opcode))),
        payload in proptest::collection::vec(any::<u8>(), 0..300),
    ) {
        let bytes = emit(&bth, &ext, &payload);
        prop_assert_eq!(Some(bytes.len()), transport::wire_len(bth.opcode, payload.len()));
        let read = transport::parse(&bytes).expect("parse");
        prop_assert_eq!(read.bth, bth);
        prop_assert_eq!(read.ext, ext);
        prop_assert_eq!(read.payload, &payload[..]);
        prop_assert_eq!(read.icrc, 0x1234_5678);
    }

    #[test]
    fn any_bytes_are_answered(bytes in proptest::collection::vec(any::<u8>(), 0..120)) {
        if let Ok(read) = transport::parse(&bytes) {
            let len = transport::wire_len(read.bth.opcode, read.payload.len());
            prop_assert_eq!(Some(bytes.len()), len);
        }
    }
}

#[test]
fn headers_of_other_opcodes_are_refused() {
    let mut out = [0; MAX_HEADERS];
    for opcode in known_opcodes() {
        let bth = Bth { opcode, ..support::plain_bth() };
        let empty = Extensions::default();
        let result = transport::emit_headers(&bth, &empty, 0, &mut out);
        match opcode.headers().map(|set| set.is_empty()) {
            Some(true) => assert_eq!(result, Ok(12)),
            _ => assert_eq!(result, Err(EmitError::WrongHeaders)),
        }
    }
    let bth = Bth { opcode: Opcode(0x1F), ..support::plain_bth() };
    let result = transport::emit_headers(&bth, &Extensions::default(), 0, &mut out);
    assert_eq!(result, Err(EmitError::UnknownOpcode(0x1F)));
    let bth = support::plain_bth();
    let result = transport::emit_headers(&bth, &Extensions::default(), 0, &mut out[..11]);
    assert_eq!(result, Err(EmitError::NoRoom(12)));
}

#[test]
fn refusals_have_names() {
    let good = emit(&support::plain_bth(), &Extensions::default(), &[1, 2, 3]);
    assert!(transport::parse(&good).is_ok());
    for len in 0..16 {
        let short = Err(DropReason::Truncated(Layer::Transport));
        assert_eq!(transport::parse(&good[..len]), short);
    }
    let changed = |at: usize, value: u8| {
        let mut bytes = good.clone();
        bytes[at] = value;
        bytes
    };
    let version = changed(1, 0x11);
    assert_eq!(transport::parse(&version), Err(DropReason::Version(Layer::Transport)));
    assert_eq!(transport::parse(&changed(0, 0x1E)), Err(DropReason::UnknownOpcode(0x1E)));
    let headers_missing = changed(0, 0x0A);
    assert_eq!(transport::parse(&headers_missing), Err(DropReason::Truncated(Layer::Transport)));
    assert_eq!(transport::parse(&good[..good.len() - 1]), Err(DropReason::Pad));
    let mut empty = emit(&support::plain_bth(), &Extensions::default(), &[]);
    empty[1] |= 0x30;
    assert_eq!(transport::parse(&empty), Err(DropReason::Pad));
}
