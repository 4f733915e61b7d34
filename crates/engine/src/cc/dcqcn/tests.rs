//! Values of the limiter, step by step, reckoned by hand from the two published forms.

use super::*;

const LINE: Rate = Rate::from_gbps(40);

fn gbps(limiter: &Limiter) -> f64 {
    limiter.rate().as_bps() as f64 / 1e9
}

fn at(us: u64) -> Instant {
    Instant::from_ns(us * 1000)
}

#[test]
fn the_first_cnp_of_the_paper_halves_the_rate() {
    let p = Dcqcn::PAPER;
    let mut l = Limiter::new(&p, LINE, at(0));
    assert_eq!(l.rate(), Rate::from_gbps(20));
    // Fast recovery: half of what is missing, five times.
    for (i, expected) in [30.0, 35.0, 37.5, 38.75, 39.375].into_iter().enumerate() {
        l.timeout(&p, at(55 * (i as u64 + 1)));
        assert!((gbps(&l) - expected).abs() < 1e-6, "{} after {i}", gbps(&l));
    }
    // The target is the line's rate already: additive increase adds nothing to it.
    l.timeout(&p, at(55 * 6));
    assert!((gbps(&l) - 39.6875).abs() < 1e-6);
}

#[test]
fn alpha_of_the_paper_fades_by_g_in_each_period_without_a_cnp() {
    let p = Dcqcn::PAPER;
    let mut l = Limiter::new(&p, LINE, at(0));
    // Alpha stays 1 at the first CNP; ten periods of 55 us follow.
    l.timeout(&p, at(550));
    let before = l.rate().as_bps() as f64;
    l.notified(&p, at(551));
    let alpha = (255.0_f64 / 256.0).powi(10);
    let expected = before * (1.0 - alpha / 2.0);
    assert!((l.rate().as_bps() as f64 - expected).abs() < 500.0, "{}", l.rate().as_bps());
    assert_eq!(l.target as f64, before);
}

#[test]
fn adapters_cut_at_their_own_clock_and_once_for_all_cnps_before_it() {
    let p = Dcqcn { initial_alpha_value: 1024, ..Dcqcn::VENDOR };
    let mut l = Limiter::new(&p, LINE, at(0));
    assert_eq!(l.rate(), LINE, "the first CNP starts the clocks and cuts nothing");
    assert_eq!(l.deadline(), None);
    for us in 1..4 {
        l.notified(&p, at(us));
    }
    assert_eq!(l.deadline(), Some(at(4)));
    l.timeout(&p, at(4));
    // One period without a CNP, three with one: alpha = ((((g) g + h) g + h) g + h), g = 1019/1024.
    let (g, h) = (1019.0 / 1024.0, 5.0 / 1024.0);
    let alpha = (1..4).fold(g, |a, _| a * g + h);
    let expected = 40e9 * (1.0 - alpha / 2.0);
    assert!((l.rate().as_bps() as f64 - expected).abs() < 40.0, "{}", l.rate().as_bps());
    // No timer increase came before it: the target stays the line's.
    assert_eq!(l.target, LINE.as_bps());
    assert_eq!(l.deadline(), Some(at(304)));
}

#[test]
fn the_timer_goes_from_recovery_by_additive_to_hyper_increase() {
    let p = Dcqcn { initial_alpha_value: 1024, ..Dcqcn::VENDOR };
    let mut l = Limiter::new(&p, LINE, at(0));
    l.notified(&p, at(1));
    l.timeout(&p, at(4));
    l.timeout(&p, at(304));
    let first = l.rate().as_bps();
    l.notified(&p, at(305));
    l.timeout(&p, at(308));
    // After an increase the target follows the rate.
    assert_eq!(l.target, first);
    let cut = l.rate().as_bps();
    l.timeout(&p, at(608));
    assert_eq!(l.rate().as_bps(), cut + (first - cut).div_ceil(2), "recovery");
    l.timeout(&p, at(908));
    assert_eq!(l.target, first + 5_000_000, "additive");
    l.timeout(&p, at(1208));
    assert_eq!(l.target, first + 55_000_000, "hyper");
}

#[test]
fn bytes_raise_the_rate_too() {
    let p = Dcqcn { rpg_time_reset: Span::ZERO, rpg_byte_reset: 1000, ..Dcqcn::PAPER };
    let mut l = Limiter::new(&p, LINE, at(0));
    l.sent(&p, 999);
    assert_eq!(l.rate(), Rate::from_gbps(20));
    l.sent(&p, 1);
    assert_eq!(l.rate(), Rate::from_gbps(30));
}

#[test]
fn the_rate_stays_within_its_bounds_and_comes_back_to_the_line() {
    let p = Dcqcn::hpcc_sim(Rate::from_gbps(100));
    let mut l = Limiter::new(&p, Rate::from_gbps(100), at(0));
    for us in 1..2000 {
        l.notified(&p, at(us));
        l.timeout(&p, at(us));
    }
    assert_eq!(l.rate(), Rate::from_gbps(1), "the floor");
    l.timeout(&p, at(2004));
    let mut steps = 0;
    while let Some(next) = l.deadline() {
        l.timeout(&p, next);
        steps += 1;
        assert!(steps < 10_000, "it does not come back");
    }
    assert_eq!(l.rate(), Rate::from_gbps(100));
    assert!(!l.is_limited());
}

#[test]
fn fading_in_one_go_is_fading_step_by_step() {
    for g in [0, 512, 1019, 1020, 1023, 1024] {
        let (mut slow, mut n) = (1_u64 << 32, 0);
        for wanted in [5, 17, 100, 1000] {
            while n < wanted {
                slow = (slow * u64::from(g)) >> 10;
                n += 1;
            }
            let fast = faded(1 << 32, g, wanted);
            assert!(fast.abs_diff(slow) <= 2 * wanted, "g {g}, {wanted}: {fast} and {slow}");
        }
    }
    assert_eq!(faded(1 << 32, 1023, u64::MAX), 0);
}
