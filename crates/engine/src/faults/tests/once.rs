//! Faults that happen once, those of both directions, and what is told of each.

use super::*;
use crate::faults::{Direction, FaultSet, Shot, ShotKind, When};

fn planned(text: &str) -> FaultStage<Item> {
    let plan: FaultPlan = text.parse().expect("a good plan");
    FaultStage::new(plan.rx.spec, 0).with_shots(plan.rx.shots)
}

fn push_all(wire: &mut FaultStage<Item>, count: u32) -> Vec<FaultSet> {
    (0..count).map(|number| wire.push(us(number.into()), Item::new(number))).collect()
}

#[test]
fn exactly_the_packet_named_is_struck() {
    let mut wire = planned("fail=drop@3,fail=corrupt@5,fail=dup@7,fail=reorder@9");
    let told: Vec<String> = push_all(&mut wire, 12).iter().map(ToString::to_string).collect();
    let expected = ["", "", "lost", "", "corrupted", "", "duplicated", "", "reordered", "", "", ""];
    assert_eq!(told, expected);
    let out = drain(&mut wire);
    let of = |kind| {
        let hit = out.iter().filter(|d| d.faults.contains(kind));
        hit.map(|d| d.number).collect::<Vec<_>>()
    };
    assert!(!numbers(&out).contains(&2), "the third is number 3");
    assert_eq!((of(FaultKind::Corrupt), of(FaultKind::Reorder)), (vec![5], vec![9]));
    assert_eq!(out.iter().filter(|d| d.number == 7).count(), 2);
    assert_eq!(of(FaultKind::Dup), [7], "the copy says so, the original is as it was");
    let ninth = out.iter().position(|d| d.number == 9).unwrap();
    assert!(out[..ninth].iter().any(|d| d.number > 9), "overtaken");
    let counts = wire.counts();
    assert_eq!((counts.struck, counts.total(), counts.lost), (4, 4, 1));
    let struck: Vec<String> =
        wire.take_struck().iter().map(|s| format!("{} {:?}", s.shot, s.number)).collect();
    let expected = ["drop@3 Some(3)", "corrupt@5 Some(5)", "dup@7 Some(7)", "reorder@9 Some(9)"];
    assert_eq!(struck, expected);
    assert!(wire.take_struck().is_empty() && !wire.has_shots());
}

#[test]
fn a_drop_with_a_duration_is_a_blackout() {
    let mut wire = planned("fail=drop@10/20us");
    push_all(&mut wire, 50);
    let out = numbers(&drain(&mut wire));
    assert_eq!(out, (0..9).chain(29..50).collect::<Vec<_>>());
    // By the clock: the first packet from then on begins it.
    let mut wire = planned("fail=drop@15us");
    push_all(&mut wire, 20);
    assert_eq!(numbers(&drain(&mut wire)), (0..15).chain(16..20).collect::<Vec<_>>());
}

#[test]
fn faults_that_are_drawn_stay_where_they_are_beside_those_that_are_not() {
    let mut plain = planned("loss=10%,dup=10%,seed=5");
    let mut once = planned("loss=10%,dup=10%,seed=5,fail=drop@100,fail=dup@200");
    let (plain, once) = (push_all(&mut plain, 400), push_all(&mut once, 400));
    let differ: Vec<usize> = (0..400).filter(|&i| plain[i] != once[i]).collect();
    assert!(differ.iter().all(|i| [99, 199].contains(i)), "{differ:?}");
}

#[test]
fn a_fault_of_the_device_waits_for_the_packet_that_it_fits() {
    let mut wire = planned("fail=qp_error@3,fail=rnr@2,fail=port_down@5/1ms");
    push_all(&mut wire, 8);
    let mut offered = Vec::new();
    for d in drain_ready(&mut wire, us(10)) {
        wire.strike(Some(d.number), us(10), |kind| {
            offered.push((d.number, kind));
            // Only even ones fit.
            d.number.is_multiple_of(2)
        });
    }
    let expected = [
        (2, ShotKind::Rnr),
        (3, ShotKind::QpError),
        (4, ShotKind::QpError),
        (5, ShotKind::PortDown),
        (6, ShotKind::PortDown),
    ];
    assert_eq!(offered, expected);
    // Its end is by the clock.
    assert_eq!(wire.next_due(), Some(us(1010)));
    let mut ended = Vec::new();
    wire.strike(None, us(1009), |kind| {
        ended.push(kind);
        true
    });
    assert!(ended.is_empty());
    wire.strike(None, us(1010), |kind| {
        ended.push(kind);
        true
    });
    assert_eq!((ended, wire.next_due()), (vec![ShotKind::PortUp], None));
}

fn drain_ready(stage: &mut FaultStage<Item>, now: Instant) -> Vec<Delivered<Item>> {
    std::iter::from_fn(|| stage.pop(now)).collect()
}

#[test]
fn times_need_no_packet_for_port_and_device_only() {
    let wire = planned("fail=port_down@3ms,fail=device_fatal@2ms,fail=qp_error@1ms");
    assert_eq!(wire.next_due(), Some(us(2000)));
    let mut wire = planned("fail=qp_error@1ms");
    assert_eq!(wire.next_due(), None);
    wire.strike(None, us(5000), |_| panic!("no packet, no queue pair"));
    let mut struck = 0;
    wire.strike(Some(1), us(999), |_| panic!("too early"));
    wire.strike(Some(2), us(1000), |_| {
        struck += 1;
        true
    });
    wire.strike(Some(3), us(1001), |_| panic!("once"));
    assert_eq!(struck, 1);
}

#[test]
fn when_the_last_packet_will_have_left_is_known() {
    let mut wire = planned("delay=1ms,fail=reorder@2");
    assert_eq!(wire.last_due(), None);
    push_all(&mut wire, 2);
    assert_eq!(wire.last_due(), Some(us(1001) + REORDER_HOLD));
    drain(&mut wire);
    assert_eq!(wire.last_due(), None);
}

#[test]
fn what_the_port_cuts_is_not_delivered() {
    let mut wire = planned("");
    push_all(&mut wire, 2);
    assert_eq!(drain(&mut wire).len(), 2);
    wire.cut();
    let counts = wire.counts();
    assert_eq!((counts.delivered, counts.cut, counts.total()), (1, 1, 1));
}

#[test]
fn two_runs_are_one_run() {
    let run = || {
        let mut wire = planned(
            "loss=5%,dup=1%,reorder=5%,corrupt=1%,delay=3us,jitter=9us,rate=10gbit,queue=20k,\
             ecn=4k:16k:30%,seed=12,fail=drop@77,fail=dup@100us,fail=corrupt@500",
        );
        let told = push_all(&mut wire, 3000);
        (told, drain(&mut wire), wire.counts(), wire.take_struck())
    };
    assert_eq!(run(), run());
}

#[test]
fn a_plan_is_read_and_written() {
    let text = "loss=1%, tx.loss=2%,rx.delay=20us,tx.rate=1gbit,tx.ecn=10k:20k:5%,seed=4,\
                fail=qp_error@1000,tx.fail=drop@7/2ms,fail=port_down@2s/50ms,fail=nak_access@9";
    let plan: FaultPlan = text.parse().unwrap();
    assert_eq!(plan.rx.spec, "loss=1%,delay=20us,seed=4".parse().unwrap());
    assert_eq!(plan.tx.spec, "loss=2%,rate=1gbit,ecn=10k:20k:5%,seed=4".parse().unwrap());
    let shot = |kind, when, lasts| Shot { kind, when, lasts };
    let down = shot(ShotKind::PortDown, When::Time(Span::from_ms(2000)), Some(Span::from_ms(50)));
    let expected = [
        shot(ShotKind::QpError, When::Packet(1000), None),
        down,
        shot(ShotKind::NakAccess, When::Packet(9), None),
    ];
    assert_eq!(plan.side(Direction::Rx).shots, expected);
    let expected = [shot(ShotKind::Drop, When::Packet(7), Some(Span::from_ms(2)))];
    assert_eq!(plan.side(Direction::Tx).shots, expected);
    assert_eq!(
        plan.to_string(),
        "loss=1%,delay=20us,fail=qp_error@1000,fail=port_down@2s/50ms,fail=nak_access@9,\
         tx.loss=2%,tx.rate=1gbit,tx.ecn=10240:20480:5%,tx.fail=drop@7/2ms,seed=4"
    );
    assert_eq!(plan.to_string().parse::<FaultPlan>().unwrap(), plan);
    let seeds: FaultPlan = "seed=3,tx.seed=5".parse().unwrap();
    assert_eq!((seeds.rx.spec.seed, seeds.tx.spec.seed, seeds.is_none()), (3, 5, true));
    assert!(!"tx.fail=drop@1".parse::<FaultPlan>().unwrap().is_none());
}

#[test]
fn every_kind_has_a_name_that_is_read() {
    for kind in ShotKind::ALL {
        let plan: FaultPlan = format!("fail={kind}@5").parse().unwrap();
        assert_eq!(plan.rx.shots[0].kind, kind);
        let sent = format!("tx.fail={kind}@5").parse::<FaultPlan>();
        assert_eq!(sent.is_err(), kind.is_answer(), "{kind}");
    }
}

#[test]
fn refusals_of_plans_name_field_value_and_expectation() {
    let many = "fail=drop@1,".repeat(257);
    for (text, words) in [
        ("tx.los=1%", &["unknown field `tx.los`", "`1%`"][..]),
        ("tx.loss=x", &["tx.loss", "percentage", "`x`"]),
        ("xx.loss=1%", &["unknown field `xx.loss`"]),
        ("tx.ecn=1:2:1%,rate=1gbit", &["`tx.ecn`", "tx.rate="]),
        ("seed=1,seed=2", &["once", "`seed`", "`2`"]),
        ("fail=qp_error", &["fail", "KIND@WHEN", "`qp_error`"]),
        ("fail=boom@5", &["fail", "qp_error", "`boom@5`"]),
        ("fail=drop@0", &["from 1 on", "`drop@0`"]),
        ("fail=drop@-1", &["from 1 on", "`drop@-1`"]),
        ("fail=drop@", &["from 1 on", "`drop@`"]),
        ("fail=drop@1h", &["such as 20us", "`drop@1h`"]),
        ("fail=qp_error@5/1ms", &["no duration", "qp_error"]),
        ("fail=port_down@5/0", &["above 0", "`port_down@5/0`"]),
        ("fail=port_down@5/", &["behind the /"]),
        ("tx.fail=rnr@5", &["tx.fail", "received", "`rnr@5`"]),
        (&many, &["at most 256", "`drop@1`"]),
    ] {
        let sentence = text.parse::<FaultPlan>().expect_err(text).to_string();
        for word in words {
            assert!(sentence.contains(word), "{text}: {sentence}");
        }
    }
}

proptest! {
    #[test]
    fn plans_that_are_written_are_read_back(
        rx in any_spec(),
        tx in any_spec(),
        shots in proptest::collection::vec(
            (0..14_usize, proptest::option::of(1..u64::MAX), 0..3_600_000_000_000_000_u64), 0..9),
    ) {
        let mut plan = FaultPlan::default();
        (plan.rx.spec, plan.tx.spec) = (rx, tx);
        for (kind, number, ps) in shots {
            let (kind, span) = (ShotKind::ALL[kind], Span::from_ps(ps));
            let when = number.map_or(When::Time(span), When::Packet);
            let lasts = (kind.lasts() && ps > 0).then_some(span);
            plan.rx.shots.push(Shot { kind, when, lasts });
        }
        prop_assert_eq!(plan.to_string().parse::<FaultPlan>().unwrap(), plan);
    }

    #[test]
    fn any_text_gives_a_plan_or_a_sentence(text in "[a-z0-9=,.%:@/_ ]{0,40}") {
        if let Err(error) = text.parse::<FaultPlan>() {
            prop_assert!(error.to_string().starts_with("faults: "));
        }
    }
}
