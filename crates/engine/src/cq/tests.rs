//! Moderation of a completion queue, seen from the device's side.

use wire::{Instant, Span};

use super::{Cq, Moderation, Pushed};
use crate::work::Completion;

/// A queue that raises its event after 100 completions or a millisecond.
fn moderated() -> (std::sync::Arc<Cq>, Instant) {
    let cq = Cq::new(1024);
    let moderation = Moderation { count: 100, period: Span::from_ms(1) };
    assert!(!cq.set_moderation(moderation), "nothing waits");
    (cq, Instant::ZERO + Span::from_ms(1000))
}

#[test]
fn a_period_sets_one_wake_up_however_many_completions_come() {
    let (cq, start) = moderated();
    for _ in 0..3 {
        cq.req_notify(false);
        let push = |us| cq.push(start + Span::from_us(us), Completion::default());
        assert_eq!(push(0), Pushed::EventAt(start + Span::from_ms(1)));
        assert!((1..50).all(|us| push(us) == Pushed::Quiet));
        assert!(!cq.moderation_due(start + Span::from_us(999)));
        assert!(cq.moderation_due(start + Span::from_ms(1)));
        assert!(!cq.moderation_due(start + Span::from_ms(2)), "one event for each arm");
        assert_eq!(push(50), Pushed::Quiet, "not armed");
    }
}

#[test]
fn a_full_queue_overruns_for_the_first_time_once() {
    let cq = Cq::new(2);
    let push = || cq.push(Instant::ZERO, Completion::default());
    let all = [push(), push(), push(), push()];
    let overrun = |first| Pushed::Overrun { first };
    assert_eq!(all, [Pushed::Quiet, Pushed::Quiet, overrun(true), overrun(false)]);
    assert!(cq.is_overrun());
}
