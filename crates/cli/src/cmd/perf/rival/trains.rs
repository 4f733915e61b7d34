//! The datagrams of messages in RDMA's packet shape, and the trains that the kernel cuts into
//! them. No sockets here.

use super::Course;

/// Largest UDP payload of one train.
pub(super) const PAYLOAD: usize = 65_507;
/// Most datagrams of one train, for every kernel that has UDP_SEGMENT.
const SEGMENTS: u64 = 64;

/// Datagrams that one system call sends.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Train {
    pub(super) bytes: usize,
    /// Bytes of each datagram but the last, which may be shorter.
    pub(super) segment: usize,
    pub(super) packets: u64,
}

/// The sizes of the datagrams of a message.
pub(super) fn message(size: usize, course: &Course) -> Vec<usize> {
    let [each, first] = course.headers;
    let count = size.div_ceil(course.mtu).max(1);
    (0..count)
        .map(|i| {
            let payload = (size - i * course.mtu).min(course.mtu);
            payload + each + if i == 0 { first } else { 0 }
        })
        .collect()
}

/// The trains of these datagrams, in order, of at most `most` each.
pub(super) fn trains(datagrams: &[usize], most: u64) -> Vec<Train> {
    let mut trains: Vec<Train> = Vec::new();
    let mut open = false;
    for &bytes in datagrams {
        if let Some(train) = trains.last_mut().filter(|train| {
            open && bytes <= train.segment
                && train.bytes + bytes <= PAYLOAD
                && train.packets < most.min(SEGMENTS)
        }) {
            train.bytes += bytes;
            train.packets += 1;
            open = bytes == train.segment;
        } else {
            trains.push(Train { bytes, segment: bytes, packets: 1 });
            open = true;
        }
    }
    trains
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cmd::perf::plan::Amount;
    use crate::cmd::perf::rival::Way;

    fn course(size: usize, headers: [usize; 2]) -> Course {
        let amount = Amount::Iterations(1);
        Course { way: Way::Forth, size, amount, mtu: 1000, headers, latency: false }
    }

    #[test]
    fn a_message_is_its_packets() {
        assert_eq!(message(2500, &course(2500, [16, 16])), [1032, 1016, 516]);
        assert_eq!(message(1000, &course(1000, [16, 0])), [1016]);
        assert_eq!(message(0, &course(0, [16, 4])), [20]);
    }

    #[test]
    fn trains_have_one_size_but_for_the_last() {
        let pack = |list: &[usize], most| -> Vec<(usize, usize, u64)> {
            let trains = trains(list, most);
            trains.iter().map(|train| (train.bytes, train.segment, train.packets)).collect()
        };
        assert_eq!(pack(&[40, 30, 30, 10, 40], 9), [(70, 40, 2), (40, 30, 2), (40, 40, 1)]);
        assert_eq!(pack(&[9; 5], 2), [(18, 9, 2), (18, 9, 2), (9, 9, 1)]);
        assert_eq!(pack(&[9; 100], u64::MAX), [(576, 9, 64), (324, 9, 36)]);
        assert_eq!(pack(&[40_000, 30_000], 9), [(40_000, 40_000, 1), (30_000, 30_000, 1)]);
        assert_eq!(pack(&[], 9), []);
    }
}
