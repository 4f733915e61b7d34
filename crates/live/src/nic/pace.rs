//! What the packets that came lately tell of those to come: whether they belong to a stream of bulk
//! data whose sender waits for nothing, so that the NIC's thread may sleep a little between trains
//! instead of looking out for the next. It only counts; who sleeps how long is not decided here.

use engine::Payload;
use wire::{Instant, Packet, Position, Span};

/// What came is judged over so long at least.
const WINDOW: Span = Span::from_us(500);
/// Bulk is so many bytes in a microsecond at least.
const BULK: u64 = 500;
/// And so many packets at least for one that asks for an acknowledgement: in a stream it is every
/// 64th; one who waits for the end of each message asks more often, unless they are long.
const PACKETS_PER_REQUEST: u64 = 48;
/// A sender who has not waited for the end of a message is believed so for this long: few long
/// messages end in a window.
const BELIEF: Span = Span::from_ms(10);
/// When senders were found waiting after dozes there are none for this long.
const CAUTION: Span = Span::from_ms(50);

/// Of the packets since `since`, and of the last of them.
#[derive(Debug, Default)]
pub(super) struct Pace {
    since: Instant,
    bytes: u64,
    packets: u64,
    /// Packets that ask for an acknowledgement.
    requests: u64,
    /// Dozes, and after how many of them all that came was at last waiting for an answer.
    dozes: u64,
    dry: u64,
    /// A sender has not waited for the end of a message; the belief in that ends.
    runs_on: bool,
    believed_until: Instant,
    cautious_until: Instant,
    is_bulk: bool,
    /// The last packet asks for an acknowledgement, and nothing may come before it.
    waits: bool,
    /// Something has come since the last time that a doze was considered.
    is_fresh: bool,
    has_dozed: bool,
}

/// The packets of a batch, as they are taken.
pub(super) struct Batch<'a> {
    pace: &'a mut Pace,
    /// The last one asks for an acknowledgement, and ends its message.
    asks: bool,
    ends: bool,
}

impl Pace {
    /// A batch is about to be taken.
    pub(super) fn batch(&mut self) -> Batch<'_> {
        Batch { pace: self, asks: false, ends: false }
    }

    /// Whether it is bulk that comes, of which more will come without an answer to the last. True
    /// once for each batch at most: if nothing more comes within a doze, there is no second one.
    pub(super) fn is_sure_of_more(&mut self) -> bool {
        if !std::mem::take(&mut self.is_fresh) {
            return false;
        }
        if std::mem::take(&mut self.has_dozed) {
            self.dozes += 1;
            self.dry += u64::from(self.waits);
        }
        self.has_dozed = self.is_bulk && !self.waits;
        self.has_dozed
    }

    fn judge(&mut self, now: Instant) {
        let over = now.since(self.since);
        if over < WINDOW {
            return;
        }
        if std::mem::take(&mut self.runs_on) {
            self.believed_until = now + BELIEF;
        }
        if self.dozes > 2 && self.dry * 2 > self.dozes {
            self.cautious_until = now + CAUTION;
        }
        self.is_bulk = now.is_before(self.believed_until)
            && !now.is_before(self.cautious_until)
            && self.bytes >= over.as_ps() / 1_000_000 * BULK
            // Services without acknowledgements tell nothing of what their senders wait for.
            && self.requests > 0
            && self.requests * PACKETS_PER_REQUEST <= self.packets;
        self.since = now;
        (self.bytes, self.packets, self.requests, self.dozes, self.dry) = (0, 0, 0, 0, 0);
    }
}

impl Batch<'_> {
    /// The next packet.
    pub(super) fn packet(&mut self, packet: &Packet<Payload<'_>>) {
        let (asks, bytes) = (packet.bth.ack_request, packet.payload.len());
        let pace = &mut *self.pace;
        pace.bytes += bytes as u64;
        pace.packets += 1;
        pace.requests += u64::from(asks);
        // A message with others behind it may leave the asking to them; and behind one that asks
        // nothing more comes at once if its end is waited for.
        let ends = (asks || !pace.runs_on) && bytes > 0 && is_end(packet);
        pace.runs_on = pace.runs_on || (self.asks && self.ends) || (ends && !asks);
        (self.asks, self.ends) = (asks, ends);
    }

    /// That was the last; whether there was none is known to the caller.
    pub(super) fn end(self, now: Instant, is_empty: bool) {
        if !is_empty {
            self.pace.judge(now);
            self.pace.waits = self.asks;
            self.pace.is_fresh = true;
        }
    }
}

fn is_end(packet: &Packet<Payload<'_>>) -> bool {
    let position = packet.bth.opcode.operation().map(|operation| operation.position());
    matches!(position, Some(Position::Last | Position::Only))
}

#[cfg(test)]
mod tests {
    use wire::{
        Bth, Encapsulation, Extensions, Gid, Opcode, Operation, PKey, Path, Psn, Qpn, Service,
    };

    use super::*;

    const MTU: usize = 4096;

    fn packet(operation: Operation, ack_request: bool, bytes: &[u8]) -> Packet<Payload<'_>> {
        let path = Path {
            encapsulation: Encapsulation::RoceV2,
            source: Gid::from_ip(std::net::Ipv4Addr::LOCALHOST.into()),
            destination: Gid::from_ip(std::net::Ipv4Addr::LOCALHOST.into()),
            traffic_class: 0,
            hop_limit: 64,
            flow_label: 0,
            source_port: 49152,
            priority: 0,
        };
        let bth = Bth {
            opcode: Opcode::new(Service::Rc, operation),
            solicited: false,
            migration: true,
            pkey: PKey::DEFAULT,
            fecn: false,
            becn: false,
            dest_qp: Qpn::new(9),
            ack_request,
            psn: Psn::new(1),
        };
        Packet { path, bth, ext: Extensions::default(), payload: Payload::Bytes(bytes) }
    }

    /// Who sends messages of so many packets, every `asks`th of which asks, and what becomes of
    /// them in a receiver that takes `batch` at a time, one every 20 us, and is then idle.
    struct Sender {
        length: u64,
        asks: u64,
        bytes: usize,
        sent: u64,
        now: Instant,
    }

    impl Sender {
        fn new(length: u64, asks: u64) -> Self {
            Self { length, asks, bytes: MTU, sent: 0, now: Instant::ZERO }
        }

        /// How often of `rounds` the receiver dozes. With `waits` no batch goes past the end of a
        /// message.
        fn dozes(&mut self, pace: &mut Pace, rounds: usize, batch: u64, waits: bool) -> usize {
            let data = [0; MTU];
            let mut dozes = 0;
            for _ in 0..rounds {
                let mut taken = pace.batch();
                for _ in 0..batch {
                    self.sent += 1;
                    let ends = self.sent.is_multiple_of(self.length);
                    let operation =
                        if ends { Operation::WriteLast } else { Operation::WriteMiddle };
                    let asks = self.sent.is_multiple_of(self.asks);
                    taken.packet(&packet(operation, asks, &data[..self.bytes]));
                    if ends && waits {
                        break;
                    }
                }
                self.now = self.now + Span::from_us(20);
                taken.end(self.now, false);
                dozes += usize::from(pace.is_sure_of_more());
                assert!(!pace.is_sure_of_more(), "twice for one batch");
            }
            dozes
        }
    }

    #[test]
    fn a_stream_is_bulk() {
        // Messages of 64 KiB, trains of 16 packets: three of four do not ask.
        let dozes = Sender::new(16, 64).dozes(&mut Pace::default(), 1000, 16, false);
        assert!((650..=750).contains(&dozes), "{dozes}");
        // Messages that all ask, but with more behind them on its way.
        let dozes = Sender::new(64, 64).dozes(&mut Pace::default(), 1000, 60, false);
        assert!(dozes > 800, "{dozes}");
    }

    #[test]
    fn who_waits_for_the_end_of_each_message_is_no_stream() {
        for (length, asks) in [(1, 1), (16, 16), (64, 64), (256, 64), (4096, 64)] {
            let dozes = Sender::new(length, asks).dozes(&mut Pace::default(), 2000, 16, true);
            assert_eq!(dozes, 0, "messages of {length} packets");
        }
    }

    #[test]
    fn small_packets_few_packets_and_services_without_acknowledgement_are_no_bulk() {
        let mut small = Sender { bytes: 64, ..Sender::new(1, 64) };
        assert_eq!(small.dozes(&mut Pace::default(), 1000, 16, false), 0, "small");
        assert_eq!(Sender::new(1, 64).dozes(&mut Pace::default(), 1000, 2, false), 0, "few");
        let never = u64::MAX;
        assert_eq!(Sender::new(16, never).dozes(&mut Pace::default(), 1000, 16, false), 0);
    }

    #[test]
    fn when_senders_wait_after_dozes_there_are_none_for_a_while() {
        let mut pace = Pace::default();
        let mut sender = Sender::new(16, 64);
        assert!(sender.dozes(&mut pace, 100, 16, false) > 40);
        let dozes: Vec<_> = (0..2500)
            .map(|i| {
                let mut taken = pace.batch();
                let data = [0; MTU];
                // Every doze is followed by a batch that asks at its end.
                for n in 0..64 {
                    let asks = n == 63 && i % 2 == 1;
                    taken.packet(&packet(Operation::WriteOnly, asks, &data));
                }
                sender.now = sender.now + Span::from_us(20);
                taken.end(sender.now, false);
                pace.is_sure_of_more()
            })
            .collect();
        // 50 ms without, then a window with.
        assert!(dozes.iter().filter(|dozes| **dozes).count() < 100);
    }

    #[test]
    fn after_silence_a_stream_has_to_prove_itself_again() {
        let mut pace = Pace::default();
        let mut sender = Sender::new(16, 64);
        assert!(sender.dozes(&mut pace, 100, 16, false) > 40);
        sender.now = sender.now + Span::from_ms(100);
        assert_eq!(sender.dozes(&mut pace, 20, 16, false), 0);
        assert!(sender.dozes(&mut pace, 100, 16, false) > 40);
    }
}
