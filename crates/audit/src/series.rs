//! What is plotted over time: throughput, repetitions, marks and pauses of all traffic, and of the
//! busiest conversations their throughput, round trips and PSNs. Bounded however long the capture:
//! buckets double their width when they are full, points thin out.

mod busiest;

use wire::{Opcode, Syndrome};

use busiest::{Busiest, Place};

use crate::event::{Event, Packet, What};
use crate::limits;
use crate::record::Time;
use crate::talk::Remark;

/// Nanoseconds of a bucket at first.
const WIDTH: u64 = 1000;

/// What can be added up.
pub trait Sum: Default + Copy {
    /// Adds another one.
    fn add(&mut self, other: Self);
}

impl Sum for u64 {
    fn add(&mut self, other: Self) {
        *self += other;
    }
}

/// Counts of all traffic in a bucket.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Load {
    /// Bytes of packets on the wire.
    pub bytes: u64,
    /// Packets.
    pub packets: u64,
    /// Packets sent again.
    pub again: u64,
    /// NAKs of all kinds, RNR too.
    pub naks: u64,
    /// Packets marked CE.
    pub ce: u64,
    /// CNPs.
    pub cnp: u64,
    /// Pauses, 802.3x or PFC.
    pub pauses: u64,
}

impl Sum for Load {
    fn add(&mut self, other: Self) {
        self.bytes += other.bytes;
        self.packets += other.packets;
        self.again += other.again;
        self.naks += other.naks;
        self.ce += other.ce;
        self.cnp += other.cnp;
        self.pauses += other.pauses;
    }
}

/// Times in a bucket, nanoseconds.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Spread {
    /// How many.
    pub count: u64,
    /// Their sum.
    pub sum: u64,
    /// The shortest.
    pub least: u64,
    /// The longest.
    pub most: u64,
}

impl Sum for Spread {
    fn add(&mut self, other: Self) {
        if other.count == 0 {
            return;
        }
        self.least = if self.count == 0 { other.least } else { self.least.min(other.least) };
        self.most = self.most.max(other.most);
        self.sum = self.sum.saturating_add(other.sum);
        self.count += other.count;
    }
}

/// The time axis of all buckets.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Axis {
    /// Where it begins.
    pub start: Time,
    /// The last moment seen.
    pub end: Time,
    /// Nanoseconds of a bucket.
    pub width: u64,
}

impl Axis {
    /// The bucket of a moment, in buckets of the axis's width; the width doubles until there is
    /// one.
    fn bucket(&mut self, time: Time) -> usize {
        self.end = self.end.max(time);
        let ns = time.since(self.start);
        while ns / self.width >= limits::BUCKETS as u64 {
            self.width *= 2;
        }
        (ns / self.width) as usize
    }
}

/// A sum for each stretch of time. Trailing stretches without anything are not there.
#[derive(Clone, Debug)]
pub struct Buckets<T> {
    width: u64,
    sums: Vec<T>,
}

impl<T> Default for Buckets<T> {
    fn default() -> Self {
        Self { width: WIDTH, sums: Vec::new() }
    }
}

impl<T: Sum> Buckets<T> {
    fn add(&mut self, bucket: usize, width: u64, value: T) {
        self.widen(width);
        if self.sums.len() <= bucket {
            self.sums.resize(bucket + 1, T::default());
        }
        self.sums[bucket].add(value);
    }

    /// Joins neighbours until the buckets are as wide as the axis has them.
    fn widen(&mut self, width: u64) {
        while self.width < width {
            let joined = |pair: &[T]| {
                let mut sum = pair[0];
                pair.iter().skip(1).for_each(|other| sum.add(*other));
                sum
            };
            self.sums = self.sums.chunks(2).map(joined).collect();
            self.width *= 2;
        }
    }

    /// The sums, from the axis's start on, a bucket of the axis's width each.
    pub fn sums(&self) -> &[T] {
        &self.sums
    }
}

/// Points, thinned out evenly: of each `stride` that came, the first is kept.
#[derive(Clone, Debug)]
pub struct Points {
    points: Vec<(Time, u64)>,
    stride: u64,
    seen: u64,
}

impl Default for Points {
    fn default() -> Self {
        Self { points: Vec::new(), stride: 1, seen: 0 }
    }
}

impl Points {
    fn add(&mut self, time: Time, value: u64) {
        if self.seen.is_multiple_of(self.stride) {
            if self.points.len() == limits::POINTS {
                let mut at = 0;
                self.points.retain(|_| {
                    at += 1;
                    at % 2 == 1
                });
                self.stride *= 2;
            }
            if self.seen.is_multiple_of(self.stride) {
                self.points.push((time, value));
            }
        }
        self.seen += 1;
    }

    /// Those that are kept.
    pub fn points(&self) -> &[(Time, u64)] {
        &self.points
    }

    /// How many came for each that is kept.
    pub const fn stride(&self) -> u64 {
        self.stride
    }
}

/// A conversation's requests in one direction, and what answers them.
#[derive(Clone, Debug, Default)]
pub struct Way {
    /// Payload bytes sent this way, also in READ responses.
    pub payload: Buckets<u64>,
    /// From a request that wants an answer to that answer, as the point of capture saw them.
    pub round_trip: Buckets<Spread>,
    /// PSNs of requests sent for the first time.
    pub psn: Points,
    /// PSNs of those sent again.
    pub again: Points,
    /// Requests whose answer is awaited: PSN, time.
    asked: Vec<(u32, Time)>,
}

/// A conversation over time.
#[derive(Clone, Debug)]
pub struct TalkSeries {
    /// Its number.
    pub conversation: u32,
    /// From a to b.
    pub forward: Way,
    /// From b to a.
    pub backward: Way,
}

/// Everything over time.
#[derive(Clone, Debug, Default)]
pub struct Series {
    axis: Option<Axis>,
    load: Buckets<Load>,
    talks: Vec<TalkSeries>,
    busiest: Busiest,
}

impl Series {
    /// An event was judged.
    pub fn see(&mut self, event: &Event, remark: Option<&Remark>) {
        let time = event.at.time;
        let axis = self.axis.get_or_insert(Axis { start: time, end: time, width: WIDTH });
        let bucket = axis.bucket(time);
        let width = axis.width;
        let mut load = Load::default();
        match &event.what {
            What::Packet(packet) => {
                load.packets = 1;
                load.bytes = u64::from(event.len);
                load.again = u64::from(remark.is_some_and(|remark| remark.again));
                load.naks = u64::from(is_nak(packet));
                load.ce = u64::from(packet.path.traffic_class & 3 == 3);
                load.cnp = u64::from(packet.bth.opcode == Opcode::CNP);
                if let Some(remark) = remark {
                    self.talk(event, (bucket, width), packet, remark);
                }
            }
            What::Pause(_) => load.pauses = 1,
            _ => return,
        }
        self.load.add(bucket, width, load);
    }

    fn talk(&mut self, event: &Event, place: (usize, u64), packet: &Packet, remark: &Remark) {
        let (time, len) = (event.at.time, u64::from(event.len));
        let at = match self.busiest.see(remark.conversation, len) {
            Place::Plotted(at) => at,
            Place::None => return,
            Place::Taken(at) => {
                let (forward, backward) = Default::default();
                let conversation = remark.conversation;
                let new = TalkSeries { conversation, forward, backward };
                match self.talks.get_mut(at) {
                    Some(old) => *old = new,
                    None => self.talks.push(new),
                }
                at
            }
        };
        let Some(talk) = self.talks.get_mut(at) else { return };
        let (way, other) = match remark.forward {
            true => (&mut talk.forward, &mut talk.backward),
            false => (&mut talk.backward, &mut talk.forward),
        };
        if !remark.again && packet.payload_len > 0 && packet.bth.opcode != Opcode::CNP {
            way.payload.add(place.0, place.1, u64::from(packet.payload_len));
        }
        match packet.bth.opcode.0 {
            // Answers: READ responses, acknowledgements.
            opcode if matches!(opcode & 0x1F, 0x0D..=0x12) => {
                if !is_nak(packet)
                    && let Some(asked) = other.answered(packet.bth.psn.get())
                {
                    let ns = time.since(asked);
                    let spread = Spread { count: 1, sum: ns, least: ns, most: ns };
                    other.round_trip.add(place.0, place.1, spread);
                }
            }
            opcode if opcode >> 5 == 0 || opcode >> 5 == 1 || opcode >> 5 == 5 => {
                let wants = packet.bth.ack_request || matches!(opcode & 0x1F, 0x0C | 0x13 | 0x14);
                way.request(time, packet.bth.psn.get(), remark, wants);
            }
            _ => {}
        }
    }

    /// The end: all buckets get the width of the axis.
    pub fn finish(&mut self) {
        let Some(axis) = self.axis else { return };
        self.load.widen(axis.width);
        for talk in &mut self.talks {
            for way in [&mut talk.forward, &mut talk.backward] {
                way.payload.widen(axis.width);
                way.round_trip.widen(axis.width);
            }
        }
    }

    /// The time axis; `None` if there was nothing.
    pub const fn axis(&self) -> Option<Axis> {
        self.axis
    }

    /// All traffic.
    pub fn load(&self) -> &[Load] {
        self.load.sums()
    }

    /// The conversation of a number, if it is among those that are kept.
    pub fn conversation(&self, id: u32) -> Option<&TalkSeries> {
        self.talks.iter().find(|talk| talk.conversation == id)
    }
}

impl Way {
    fn request(&mut self, time: Time, psn: u32, remark: &Remark, wants_answer: bool) {
        if remark.again {
            self.again.add(time, remark.psn);
            // Which of the two is answered cannot be told.
            self.asked.retain(|(asked, _)| *asked != psn);
            return;
        }
        self.psn.add(time, remark.psn);
        if wants_answer {
            if self.asked.len() == limits::ROUND_TRIPS {
                self.asked.remove(0);
            }
            self.asked.push((psn, time));
        }
    }

    /// When the request with this PSN was seen. Those before it are answered with it.
    fn answered(&mut self, psn: u32) -> Option<Time> {
        let at = self.asked.iter().position(|(asked, _)| *asked == psn)?;
        let (_, time) = self.asked[at];
        self.asked.drain(..=at);
        Some(time)
    }
}

fn is_nak(packet: &Packet) -> bool {
    packet.ext.aeth.is_some_and(|aeth| !matches!(aeth.syndrome, Syndrome::Ack(_)))
}
