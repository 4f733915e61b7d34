//! Any bytes as a frame, a link's packet, a tunnel and a transport part: nothing panics, what is
//! read is written again byte by byte, and everything has a text. Frames of the captures in
//! `crates/wire/tests/captures` make a good first corpus.
#![no_main]

use libfuzzer_sys::fuzz_target;
use wire::pretty::{self, Line, Start};
use wire::transport::{self, MAX_HEADERS, ROCE_PORT};
use wire::{frame, icrc, infiniband};

fuzz_target!(|bytes: &[u8]| {
    let mut out = vec![0xA5; bytes.len()];
    if let Ok(read) = frame::parse_frame(bytes) {
        assert_eq!(frame::emit_frame(&read, &mut out), Ok(bytes.len()));
        assert_eq!(out, bytes);
        assert!(!Line(&read).to_string().is_empty());
        let _ = read.packet();
    }
    if let Ok(read) = infiniband::parse(bytes) {
        assert_eq!(infiniband::emit(&read, &mut out), Ok(bytes.len()));
        assert_eq!(out, bytes);
        assert!(!Line(&read).to_string().is_empty());
        let _ = read.packet();
    }
    if let Ok(read) = transport::parse(bytes) {
        let mut headers = [0; MAX_HEADERS];
        let len = transport::emit_headers(&read.bth, &read.ext, read.payload.len(), &mut headers);
        let len = len.expect("headers that were read");
        let again = transport::parse(&[&headers[..len], &bytes[len..]].concat()).map(|t| t.ext);
        assert_eq!(again, Ok(read.ext));
    }
    let _ = wire::mad::Mad::parse(bytes);
    let _ = icrc::finish(icrc::udp_state(bytes, &ROCE_PORT.to_be_bytes()), bytes);
    assert!(!pretty::describe(Start::Ethernet, bytes).is_empty());
    assert!(!pretty::describe(Start::Infiniband, bytes).is_empty());
});
