//! The stage and its notation by themselves: rates, order, queue, marks, repeatability, sentences.

use proptest::prelude::*;
use wire::{Instant, Rate, Span};

use super::{
    Chance, Delivered, EcnSpec, FaultItem, FaultKind, FaultPlan, FaultSpec, FaultStage, MAX_HELD,
    MAX_HELD_BYTES, REORDER_HOLD, REORDER_OVERTAKERS,
};

mod once;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Item {
    number: u32,
    length: u64,
    bits: Option<u64>,
    ecn_capable: bool,
    ce: bool,
}

impl Item {
    fn new(number: u32) -> Self {
        Self { number, length: 1000, bits: Some(0), ecn_capable: true, ce: false }
    }
}

impl FaultItem for Item {
    fn wire_len(&self) -> u64 {
        self.length
    }
    fn mark_ce(&mut self) -> bool {
        self.ce |= self.ecn_capable;
        self.ecn_capable
    }
    fn corrupt(&mut self, entropy: u64) -> bool {
        self.bits = self.bits.map(|bits| bits ^ 1 << (entropy % 64));
        self.bits.is_some()
    }
}

fn us(n: u64) -> Instant {
    Instant::ZERO + Span::from_us(n)
}

fn stage(text: &str) -> FaultStage<Item> {
    FaultStage::new(text.parse().expect("a good specification"), 0)
}

/// Everything that comes out until the stage is empty.
fn drain(stage: &mut FaultStage<Item>) -> Vec<Delivered<Item>> {
    let mut out = Vec::new();
    while let Some(due) = stage.next_due() {
        let before = out.len();
        out.extend(std::iter::from_fn(|| stage.pop(due)));
        assert!(out.len() > before || stage.next_due() != Some(due), "next_due without progress");
    }
    out
}

fn numbers(out: &[Delivered<Item>]) -> Vec<u32> {
    out.iter().map(|d| d.item.number).collect()
}

#[test]
fn a_perfect_wire_delivers_at_once_and_in_order() {
    let mut wire = stage("");
    for number in 0..100 {
        wire.push(us(1), Item::new(number));
    }
    let out: Vec<_> = std::iter::from_fn(|| wire.pop(us(1))).collect();
    assert_eq!(numbers(&out), (0..100).collect::<Vec<_>>());
    assert_eq!(wire.next_due(), None);
    assert_eq!(wire.counts().total(), 0);
}

#[test]
fn rates_are_met_and_counted() {
    let mut wire = stage("loss=10%,dup=5%,reorder=2%,corrupt=1%,seed=7");
    let n = 200_000;
    let mut out = 0;
    for number in 0..n {
        wire.push(us(number.into()), Item::new(number));
        out += std::iter::from_fn(|| wire.pop(us(number.into()))).count() as u64;
    }
    out += drain(&mut wire).len() as u64;
    let counts = wire.counts();
    let near = |count: u64, of: u64, percent: u64| {
        let expected = of * percent / 100;
        assert!(count.abs_diff(expected) < expected / 10, "{count} instead of {expected}");
    };
    near(counts.lost, n.into(), 10);
    near(counts.duplicated, counts.offered - counts.lost, 5);
    near(counts.reordered, out, 2);
    near(counts.corrupted, out, 1);
    assert_eq!(counts.delivered, out);
    assert_eq!(counts.offered - counts.lost + counts.duplicated, out);
}

#[test]
fn the_same_seed_decides_the_same_and_streams_differ() {
    let run = |text: &str, stream| {
        let mut wire = FaultStage::new(text.parse().unwrap(), stream);
        for number in 0..2000 {
            wire.push(us(1), Item::new(number));
        }
        drain(&mut wire)
    };
    let text = "loss=20%,dup=20%,reorder=20%,corrupt=20%,jitter=3us,seed=1";
    assert_eq!(run(text, 0), run(text, 0));
    assert_ne!(run(text, 0), run(text, 1));
    assert_ne!(run(text, 0), run(&text.replace("seed=1", "seed=2"), 0));
}

#[test]
fn a_kind_switched_off_leaves_the_others_where_they_were() {
    let lost = |text: &str| {
        let mut wire = stage(text);
        for number in 0..1000 {
            wire.push(us(1), Item::new(number));
        }
        let mut arrived = numbers(&drain(&mut wire));
        arrived.sort_unstable();
        arrived.dedup();
        arrived
    };
    assert_eq!(lost("loss=30%,seed=3"), lost("loss=30%,dup=20%,reorder=20%,seed=3"));
}

#[test]
fn a_reordered_packet_is_overtaken_by_a_few_only() {
    let mut wire = stage("reorder=5%,seed=11");
    let n = 10_000;
    for number in 0..n {
        wire.push(us(1), Item::new(number));
    }
    let out = numbers(&drain(&mut wire));
    let mut late = 0;
    for (place, number) in out.iter().enumerate() {
        let overtaken =
            out[..place].iter().rev().take(1000).filter(|&other| other > number).count();
        late += u64::from(overtaken > 0);
        // Its overtakers may themselves have been held back among others.
        assert!(overtaken <= 2 * REORDER_OVERTAKERS as usize, "{number}: {overtaken}");
    }
    assert!(late > u64::from(n) / 25, "only {late} overtaken");
}

#[test]
fn a_reordered_packet_that_nobody_overtakes_leaves_in_time() {
    let mut wire = stage("reorder=100%");
    wire.push(us(1), Item::new(0));
    assert_eq!(wire.pop(us(1)), None);
    assert_eq!(wire.next_due(), Some(us(1) + REORDER_HOLD));
    assert_eq!(wire.pop(us(1) + REORDER_HOLD).map(|d| d.item.number), Some(0));
    assert!(wire.is_empty());
}

#[test]
fn delay_and_jitter_hold_packets_and_keep_their_order() {
    let mut wire = stage("delay=20us,jitter=5us,seed=5");
    for number in 0..500 {
        wire.push(Instant::from_ns(u64::from(number) * 100), Item::new(number));
    }
    assert!(wire.pop(us(19)).is_none());
    let out = drain(&mut wire);
    assert_eq!(numbers(&out), (0..500).collect::<Vec<_>>());
    for d in &out {
        let took = d.at.since(Instant::from_ns(u64::from(d.item.number) * 100));
        assert!(took >= Span::from_us(20) && took <= Span::from_us(25), "{took:?}");
    }
    assert!(
        out.iter()
            .any(|d| d.at.since(Instant::from_ns(u64::from(d.item.number) * 100))
                > Span::from_us(22))
    );
}

#[test]
fn a_rate_spaces_packets_and_its_queue_has_a_bound() {
    // 1000 bytes take 8 µs.
    let mut wire = stage("rate=1gbit,queue=10000");
    for number in 0..12 {
        wire.push(us(100), Item::new(number));
    }
    assert_eq!(wire.counts().overflowed, 2);
    assert_eq!(wire.queued_bytes(us(100)), 10_000);
    let out = drain(&mut wire);
    assert_eq!(numbers(&out), (0..10).collect::<Vec<_>>());
    for (place, d) in out.iter().enumerate() {
        assert_eq!(d.at, us(108 + 8 * place as u64));
    }
    assert_eq!(wire.queued_bytes(us(200)), 0);
}

#[test]
fn marks_follow_the_length_of_the_queue() {
    let mut wire = stage("rate=1gbit,ecn=100k:200k:50%,seed=9");
    let mut plain = Item::new(0);
    plain.ecn_capable = false;
    for number in 0..400 {
        wire.push(us(0), Item::new(number));
        plain.number = 1000 + number;
        plain.length = 0;
        wire.push(us(0), plain);
    }
    let out = drain(&mut wire);
    let marked = |range: std::ops::Range<u32>| {
        out.iter().filter(|d| range.contains(&d.item.number) && d.item.ce).count()
    };
    assert_eq!(marked(0..102), 0);
    assert!((10..45).contains(&marked(103..204)), "{}", marked(103..204));
    assert_eq!(marked(206..400), 194);
    assert_eq!(marked(1000..2000), 0);
    assert_eq!(wire.counts().marked as usize, marked(0..400));
}

#[test]
fn what_has_no_bits_is_dropped_instead_of_damaged() {
    let mut wire = stage("corrupt=100%");
    wire.push(us(0), Item { bits: None, ..Item::new(0) });
    wire.push(us(0), Item::new(1));
    let out = drain(&mut wire);
    assert_eq!(numbers(&out), [1]);
    assert!(out[0].is_corrupted() && out[0].item.bits.unwrap().count_ones() == 1);
    assert_eq!(wire.counts().corrupted, 2);
}

#[test]
fn a_healed_stage_delivers_everything() {
    let mut wire = stage("loss=100%");
    wire.push(us(0), Item::new(0));
    wire.set_spec(FaultSpec::NONE);
    wire.push(us(0), Item::new(1));
    assert_eq!(numbers(&drain(&mut wire)), [1]);
}

#[test]
fn nothing_grows_without_bound() {
    let mut wire = stage("delay=1s");
    for number in 0..=MAX_HELD as u32 {
        wire.push(us(0), Item::new(number));
    }
    assert_eq!((wire.len(), wire.counts().overflowed), (MAX_HELD, 1));
    let mut wire = stage("delay=1s");
    let long = Item { length: MAX_HELD_BYTES / 4, ..Item::new(0) };
    let kept: Vec<bool> = (0..6).map(|_| wire.push(us(0), long).is_empty()).collect();
    assert_eq!(kept, [true, true, true, true, false, false]);
    drain(&mut wire);
    assert!(wire.push(us(9), long).is_empty(), "room again");
}

#[test]
fn the_notation_is_read() {
    let text = "loss=1%, dup=0.1%,reorder=0.02,corrupt=0.01%,delay=20us,jitter=1.5ms,rate=2.5gbit,\
                queue=256k,ecn=100k:400000:10%,seed=42";
    let spec: FaultSpec = text.parse().unwrap();
    let expected = FaultSpec {
        loss: Chance::from_percent(1),
        dup: Chance::from_ppb(1_000_000),
        reorder: Chance::from_percent(2),
        corrupt: Chance::from_ppb(100_000),
        delay: Span::from_us(20),
        jitter: Span::from_us(1500),
        rate: Some(Rate::from_bps(2_500_000_000)),
        queue: Some(256 << 10),
        ecn: Some(EcnSpec { kmin: 100 << 10, kmax: 400_000, pmax: Chance::from_percent(10) }),
        seed: 42,
    };
    assert_eq!(spec, expected);
    assert_eq!(
        spec.to_string(),
        "loss=1%,dup=0.1%,reorder=2%,corrupt=0.01%,delay=20us,jitter=1500us,rate=2500mbit,\
         queue=262144,ecn=102400:400000:10%,seed=42"
    );
    assert_eq!("".parse::<FaultSpec>().unwrap(), FaultSpec::NONE);
    assert!("seed=4".parse::<FaultSpec>().unwrap().is_none());
    assert_eq!("loss=100%".parse::<FaultSpec>().unwrap().loss, Chance::ALWAYS);
}

#[test]
fn refusals_name_field_value_and_expectation() {
    for (text, words) in [
        ("loss", &["FIELD=VALUE", "`loss`", "jitter"][..]),
        ("los=1%", &["unknown field `los`", "`1%`", "loss"]),
        ("loss=1", &["loss", "percentage", "`1`"]),
        ("loss=101%", &["loss", "percentage", "`101%`"]),
        ("loss=-1%", &["loss", "percentage", "`-1%`"]),
        ("dup=0.00000000001", &["dup", "percentage"]),
        ("corrupt=", &["corrupt", "percentage", "``"]),
        ("delay=20", &["delay", "20us", "`20`"]),
        ("jitter=2h", &["jitter", "20us", "`2h`"]),
        ("delay=99999999s", &["delay", "at most an hour"]),
        ("rate=0gbit", &["rate", "above 0", "`0gbit`"]),
        ("rate=10", &["rate", "10gbit"]),
        ("rate=1gbit,queue=0", &["queue", "above 0"]),
        ("rate=1gbit,ecn=5:4:1%", &["ecn", "KMIN below KMAX", "`5:4:1%`"]),
        ("rate=1gbit,ecn=5:9", &["ecn", "KMIN:KMAX:PMAX"]),
        ("ecn=1:2:1%", &["`ecn`", "rate="]),
        ("seed=x", &["seed", "whole number", "`x`"]),
        ("loss=1%,loss=2%", &["once", "`loss`", "`2%`"]),
        ("loss=1%,rx.loss=2%", &["once", "`rx.loss`", "`2%`"]),
        ("tx.loss=1%", &["one direction", "`tx.loss=1%`"]),
        ("fail=drop@1", &["one direction", "`fail`"]),
    ] {
        let sentence = text.parse::<FaultSpec>().expect_err(text).to_string();
        for word in words {
            assert!(sentence.contains(word), "{text}: {sentence}");
        }
    }
}

fn any_spec() -> impl Strategy<Value = FaultSpec> {
    let chance = || (0..=1_000_000_000u32).prop_map(Chance::from_ppb);
    let span = || (0..3_600_000_000_000_000u64).prop_map(Span::from_ps);
    let link = (1..u64::MAX, proptest::option::of(1..u64::MAX), any::<(u32, u32, u32)>());
    (
        chance(),
        chance(),
        chance(),
        chance(),
        span(),
        span(),
        proptest::option::of(link),
        any::<u64>(),
    )
        .prop_map(|(loss, dup, reorder, corrupt, delay, jitter, link, seed)| FaultSpec {
            loss,
            dup,
            reorder,
            corrupt,
            delay,
            jitter,
            rate: link.map(|(bps, ..)| Rate::from_bps(bps)),
            queue: link.and_then(|(_, queue, _)| queue),
            ecn: link.map(|(.., (kmin, more, pmax))| EcnSpec {
                kmin: kmin.into(),
                kmax: u64::from(kmin) + u64::from(more) + 1,
                pmax: Chance::from_ppb(pmax),
            }),
            seed,
        })
}

proptest! {
    #[test]
    fn what_is_written_is_read_back(spec in any_spec()) {
        prop_assert_eq!(spec.to_string().parse::<FaultSpec>().unwrap(), spec);
    }

    #[test]
    fn any_text_gives_a_specification_or_a_sentence(text in "[a-z0-9=,.%: ]{0,40}") {
        if let Err(error) = text.parse::<FaultSpec>() {
            prop_assert!(error.to_string().starts_with("faults: "));
        }
    }
}
