use crate::pair::bench::Bench;
#[test]
fn x() {
    let mut b = Bench::rc();
    assert!(b.lines().is_empty());
    let _ = crate::pair::world::World::new(vec![], engine::FaultSpec::NONE);
    let _ = crate::pair::dice::Dice::new(0, 0);
}
