//! Seeds about packets as such: the capture, ICRCs, headers, checksums, fragments.

use crc32fast::Hasher;
use wire::vcrc;

use super::traffic::{BTH, IP, Record, Traffic, UDP, mend, mend_ip};
use super::{Seed, seed};

pub(crate) const SEEDS: &[Seed] = &[
    seed("R001", &[], |t| t.cut = 5),
    seed("R010", &[], |t| t.named("request", 5)[BTH + 30] ^= 0x10),
    seed("R011", &[], |t| {
        // A device writes another source address, and mends the checksum that it knows.
        for record in t.records.iter_mut().filter(|record| record.name == "uc") {
            record.bytes[IP + 15] = 9;
            mend_ip(&mut record.bytes);
        }
    }),
    seed("R012", &[], |t| {
        for record in t.records.iter_mut().filter(|record| record.name == "uc") {
            count_ttl(&mut record.bytes);
        }
    }),
    seed("R013", &[], |t| {
        let bytes = t.named("request", 5);
        bytes.truncate(bytes.len() - 20);
    }),
    seed("R014", &[], infiniband_damaged),
    seed("R015", &[], |t| {
        let at = t.records.len() / 2;
        let mut odd = t.records[at].clone();
        odd.ns += 1;
        // An opcode that there is not, an ICRC that is right.
        odd.bytes[BTH] = 0x1F;
        mend(&mut odd.bytes);
        t.records.push(odd);
    }),
    seed("R016", &[], |t| {
        // The ICRC counts the checksum as ones.
        t.named("request", 5)[UDP + 6..UDP + 8].copy_from_slice(&[0x12, 0x34]);
    }),
    seed("R017", &[], |t| t.named("request", 5)[IP + 10] ^= 0x55),
    seed("R018", &[], |t| {
        let bytes = t.named("request", 5);
        bytes[IP + 6] = 0x20;
        mend_ip(bytes);
    }),
];

/// Puts an ICRC for which the TTL counts as it stands.
fn count_ttl(bytes: &mut [u8]) {
    let end = bytes.len() - 4;
    let mut masked = bytes[IP..end].to_vec();
    let bth = BTH - IP;
    let udp = UDP - IP;
    for at in [1, 10, 11, udp + 6, udp + 7, bth + 4] {
        masked[at] = 0xFF;
    }
    let mut hasher = Hasher::new();
    hasher.update(&[0xFF; 8]);
    hasher.update(&masked);
    bytes[end..].copy_from_slice(&hasher.finalize().to_le_bytes());
}

/// A packet of another, native interface whose link damaged it.
fn infiniband_damaged(t: &mut Traffic) {
    t.links.push(247);
    let mut bytes = vec![0x00, 0x02, 0, 4, 0, 6, 0, 5];
    bytes.extend(&t.named("uc", 0)[BTH..BTH + 12]);
    bytes.extend([1, 2, 3, 4]);
    let right = vcrc::compute(&bytes);
    bytes.extend((right ^ 0x0101).to_le_bytes());
    t.records.push(Record { ns: t.now, point: 1, bytes, name: "infiniband".to_owned() });
}
