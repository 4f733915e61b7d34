//! Round trips of every message with every field drawn, and of arbitrary bytes.

use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use proptest::prelude::*;

use super::*;
use crate::ids::Mtu;

/// Bytes after the header.
const BODY_LEN: usize = MAD_LEN - MAD_HEADER_LEN;

const ATTRIBUTES: core::ops::RangeInclusive<u16> = 0x0010..=0x001A;

/// A datagram of the given attribute with arbitrary contents.
fn bytes_of(attribute: u16, transaction: u64, body: &[u8]) -> [u8; MAD_LEN] {
    let mut bytes = [0; MAD_LEN];
    bytes[..4].copy_from_slice(&[1, 7, 2, 3]);
    bytes[8..16].copy_from_slice(&transaction.to_be_bytes());
    bytes[16..18].copy_from_slice(&attribute.to_be_bytes());
    bytes[MAD_HEADER_LEN..].copy_from_slice(body);
    bytes
}

proptest! {
    /// Meaning survives: parse, emit, parse gives the same message, and bytes once emitted are a
    /// fixed point.
    #[test]
    fn meaning_round_trips(
        attribute in ATTRIBUTES,
        transaction: u64,
        body in proptest::collection::vec(any::<u8>(), BODY_LEN),
    ) {
        let mad = Mad::parse(&bytes_of(attribute, transaction, &body)).unwrap();
        prop_assert_eq!(mad.message.attribute(), attribute);
        let emitted = mad.emit();
        prop_assert_eq!(Mad::parse(&emitted).unwrap(), mad);
        prop_assert_eq!(Mad::parse(&emitted).unwrap().emit(), emitted);
    }

    /// Every bit of a message either means something, and then comes back, or is reserved, and
    /// then is written as zero: nothing moves to another place.
    #[test]
    fn no_bit_moves(
        attribute in ATTRIBUTES,
        body in proptest::collection::vec(any::<u8>(), BODY_LEN),
    ) {
        let bytes = bytes_of(attribute, 0, &body);
        let emitted = Mad::parse(&bytes).unwrap().emit();
        for (at, (&given, &back)) in bytes.iter().zip(&emitted).enumerate() {
            // An MTU code that means nothing is the one field that is not kept.
            let mtu = attribute == 0x0010
                && at == MAD_HEADER_LEN + 50
                && Mtu::from_code(given >> 4).is_none();
            let kept = if mtu { given & 0x0F } else { given };
            prop_assert_eq!(back & !kept, 0, "byte {} gained a bit", at);
        }
    }

    #[test]
    fn arbitrary_bytes_never_panic(bytes in proptest::collection::vec(any::<u8>(), 0..300)) {
        let _ = Mad::parse(&bytes);
        let _ = IpCmHeader::parse(&bytes);
    }

    #[test]
    fn address_headers_round_trip(
        port: u16,
        v6: bool,
        source: [u8; 16],
        destination: [u8; 16],
    ) {
        let address = |b: [u8; 16]| match v6 {
            true => IpAddr::V6(Ipv6Addr::from(b)),
            false => IpAddr::V4(Ipv4Addr::new(b[0], b[1], b[2], b[3])),
        };
        let header = IpCmHeader {
            source_port: port,
            source: address(source),
            destination: address(destination),
        };
        prop_assert_eq!(IpCmHeader::parse(&header.emit()), Some(header));
    }
}

#[test]
fn each_fault_of_the_header_has_its_name() {
    let good = bytes_of(0x0014, 1, &[0; BODY_LEN]);
    assert!(Mad::parse(&good).is_ok());
    let broken = |at: usize, value: u8| {
        let mut bytes = good;
        bytes[at] = value;
        Mad::parse(&bytes).unwrap_err()
    };
    assert_eq!(broken(0, 2), MadError::BaseVersion(2));
    assert_eq!(broken(1, 3), MadError::Class(3));
    assert_eq!(broken(2, 1), MadError::ClassVersion(1));
    assert_eq!(broken(3, 0x81), MadError::Method(0x81));
    assert_eq!(broken(17, 0x0F), MadError::Attribute(0x000F));
    assert_eq!(broken(17, 0x1B), MadError::Attribute(0x001B));
    assert_eq!(Mad::parse(&good[..255]), Err(MadError::Length(255)));
    assert_eq!(Mad::parse(&[]), Err(MadError::Length(0)));
    assert_eq!(Mad::parse(&[&good[..], &[0]].concat()), Err(MadError::Length(257)));
}

#[test]
fn service_ids_of_rdma_cm() {
    assert_eq!(ServiceId::rdma_cm(PortSpace::Tcp, 7174), ServiceId(0x0106_1C06));
    assert_eq!(ServiceId(0x0111_1C06).to_rdma_cm(), Some((PortSpace::Udp, 7174)));
    assert_eq!(ServiceId(0x013F_0001).to_rdma_cm(), Some((PortSpace::Ib, 1)));
    assert_eq!(ServiceId(0x0002_FFFF).to_rdma_cm(), Some((PortSpace::IpoIb, 0xFFFF)));
    assert_eq!(ServiceId(0x1_0106_1C06).to_rdma_cm(), None);
    assert_eq!(format!("{:?}", ServiceId(0x0106_1C06)), "Tcp:7174");
}

#[test]
fn timeouts_are_powers_of_two_of_4096_ns() {
    assert_eq!(timeout_span(0), Span::from_ns(4096));
    assert_eq!(timeout_span(20), Span::from_ns(4096 << 20));
    assert_eq!(timeout_span(31), Span::from_ns(4096 << 31));
    assert_eq!(timeout_span(32), timeout_span(0));
}

#[test]
fn a_refusal_names_its_reason() {
    assert_eq!(RejectReason(8).to_string(), "8 (nobody listens on this service)");
    assert_eq!(RejectReason(999).to_string(), "999");
    let mut rej = Rej {
        local_id: 0,
        remote_id: 0,
        subject: Subject::Req,
        info_len: 127,
        reason: RejectReason::CONSUMER,
        info: [7; 72],
        private: [0; 148],
    };
    assert_eq!(rej.info().len(), 72, "a length beyond the field is cut");
    rej.info_len = 1;
    assert_eq!(rej.info(), [7]);
}
