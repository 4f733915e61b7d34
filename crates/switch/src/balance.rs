//! Which of several next hops a frame takes.

use wire::Instant;

use crate::forward::Way;
use crate::frame::Net;
use crate::hash;
use crate::limits::FLOWLETS;
use crate::switch::{Balance, NextHop};

/// What the choice depends on beside the frame.
pub(crate) struct View<'a, F: Fn(u16) -> Option<u64>> {
    pub(crate) now: Instant,
    pub(crate) seed: u64,
    /// Bytes that wait at a port; none if its link is down.
    pub(crate) load: F,
    pub(crate) flowlets: &'a mut Flowlets,
}

/// Flows in their present bursts.
#[derive(Debug, Default)]
pub(crate) struct Flowlets {
    places: Vec<Flowlet>,
    turn: u64,
}

#[derive(Clone, Copy, Debug)]
struct Flowlet {
    flow: u64,
    hop: u32,
    seen: Instant,
}

/// The next hop of a frame; none if all links are down.
pub(crate) fn choose<F: Fn(u16) -> Option<u64>>(
    balance: Balance,
    way: &mut Way,
    net: &Net,
    view: &mut View<'_, F>,
) -> Option<NextHop> {
    if let [hop] = way.hops[..] {
        return (view.load)(hop.port).map(|_| hop);
    }
    let index = match balance {
        Balance::Flow => return by_number(way, hash::flow(view.seed, net), &view.load),
        Balance::FlowHpcc => {
            let source = hash::low_word(net.source);
            let destination = hash::low_word(net.destination);
            let hash = hash::hpcc(view.seed as u32, source, destination, net.ports);
            let up = |hop: &&NextHop| (view.load)(hop.port).is_some();
            let count = way.hops.iter().filter(up).count();
            let place = (hash as usize).checked_rem(count)?;
            return way.hops.iter().filter(up).nth(place).copied();
        }
        Balance::Spray => {
            way.turn = way.turn.wrapping_add(1);
            // The part behind the point of turn / total, as a hash would be.
            let part = (u128::from(way.turn % way.total) << 64) / u128::from(way.total);
            return by_number(way, (part as u64).saturating_add(1), &view.load);
        }
        Balance::Packet => least(way, &view.load, &mut view.flowlets.turn)?,
        Balance::Flowlet(gap) => {
            let flow = hash::flow(view.seed, net);
            if view.flowlets.places.is_empty() {
                let none = Flowlet { flow: 0, hop: u32::MAX, seen: view.now };
                view.flowlets.places.resize(FLOWLETS, none);
            }
            let place = flow as usize % FLOWLETS;
            let known = view.flowlets.places[place];
            let fresh = known.flow == flow && !(known.seen + gap).is_due(view.now);
            let hop = way.hops.get(known.hop as usize).filter(|_| fresh);
            let index = match hop.and_then(|hop| (view.load)(hop.port)) {
                Some(_) => known.hop as usize,
                None => least(way, &view.load, &mut view.flowlets.turn)?,
            };
            let hop = index as u32;
            view.flowlets.places[place] = Flowlet { flow, hop, seen: view.now };
            index
        }
    };
    way.hops.get(index).copied()
}

/// The hop at a number of 64 bits, each hop having a part of them by its weight. If its link is
/// down, the number decides among the others.
fn by_number(way: &Way, number: u64, load: &impl Fn(u16) -> Option<u64>) -> Option<NextHop> {
    let scale = |total: u64| ((u128::from(number) * u128::from(total)) >> 64) as u64;
    let hop = if way.even {
        way.hops.get(scale(way.hops.len() as u64) as usize)
    } else {
        nth(way.hops.iter(), scale(way.total))
    };
    if let Some(hop) = hop
        && load(hop.port).is_some()
    {
        return Some(*hop);
    }
    let up = || way.hops.iter().filter(|hop| load(hop.port).is_some());
    nth(up(), scale(up().map(|hop| u64::from(hop.weight)).sum())).copied()
}

/// The hop in which lies a point of the sum of the weights.
fn nth<'a>(mut hops: impl Iterator<Item = &'a NextHop>, mut point: u64) -> Option<&'a NextHop> {
    hops.find(|hop| match point.checked_sub(u64::from(hop.weight)) {
        Some(rest) => {
            point = rest;
            false
        }
        None => true,
    })
}

/// The least loaded hop by weight; equal ones take turns.
fn least(way: &Way, load: &impl Fn(u16) -> Option<u64>, turn: &mut u64) -> Option<usize> {
    let count = way.hops.len();
    *turn = turn.wrapping_add(1);
    let first = (*turn % count as u64) as usize;
    let order = (first..count).chain(0..first);
    let loaded = |index: usize| {
        let hop = way.hops[index];
        // Over a weight of 16 bits, so that small differences count.
        Some((load(hop.port)?.saturating_mul(1 << 16) / u64::from(hop.weight), index))
    };
    order.filter_map(loaded).min_by_key(|&(load, _)| load).map(|(_, index)| index)
}
