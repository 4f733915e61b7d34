//! Where frames go: longest prefixes, spreading over next hops, the bridge and its VLANs.

mod rig;

use std::collections::BTreeMap;

use rig::{MAC, at, config, gid, hop, packet, star};
use switch::{
    Balance, Content, DropCause, Frame, NextHop, Options, PortVlans, Ports, Switch, SwitchConfig,
    hash,
};
use wire::{Gid, Mac, Span};

fn wide(ports: usize) -> SwitchConfig {
    config(ports, 64 << 20, 20_000)
}

/// Sends a packet with this source port in and tells at which port it comes out.
fn way(switch: &mut Switch<u64>, ns: u64, source: u16, to: u8) -> Option<u16> {
    let mut frame = packet(to, 3, 1000);
    frame.header.net.as_mut().expect("a packet").ports.source = source;
    switch.receive(at(ns), 0, frame);
    let ports = switch.config().ports.len() as u16;
    (0..ports).find(|&port| switch.poll_transmit(at(ns), port).is_some())
}

fn shares(balance: Balance, hops: Vec<NextHop>, packets: u16) -> BTreeMap<u16, u32> {
    let mut switch = Switch::new(wide(9)).expect("a configuration that works");
    switch.set_route(gid(0), 96, hops);
    switch.set_balance(balance);
    let mut shares = BTreeMap::new();
    for source in 0..packets {
        *shares.entry(way(&mut switch, 0, source, 9).expect("a way")).or_default() += 1;
    }
    shares
}

#[test]
fn ecmp_spreads_flows_by_weight() {
    let even = shares(Balance::Flow, (1..9).map(hop).collect(), 40_000);
    assert_eq!(even.len(), 8);
    // 5,000 each, with a standard deviation of 66.
    assert!(even.values().all(|n| n.abs_diff(5_000) < 300), "{even:?}");
    let weights = [NextHop { weight: 3, ..hop(1) }, hop(2)];
    let uneven = shares(Balance::Flow, weights.to_vec(), 40_000);
    assert!(uneven[&1].abs_diff(30_000) < 400, "{uneven:?}");
    let uneven = shares(Balance::Spray, weights.to_vec(), 40_000);
    assert_eq!((uneven[&1], uneven[&2]), (30_000, 10_000));
}

#[test]
fn a_flow_keeps_its_way_and_another_seed_has_others() {
    let mut switches: Vec<Switch<u64>> = [1, 1, 2]
        .iter()
        .map(|&seed| {
            let mut switch = Switch::new(SwitchConfig { seed, ..wide(9) }).expect("it works");
            switch.set_route(gid(0), 96, (1..9).map(hop).collect());
            switch
        })
        .collect();
    let mut of = |index: usize| -> Vec<_> {
        (0..64).map(|source| way(&mut switches[index], 0, source, 9)).collect()
    };
    let (first, again, same, other) = (of(0), of(0), of(1), of(2));
    assert_eq!((&first, &first), (&again, &same));
    assert_ne!(first, other);
}

#[test]
fn the_hpcc_simulators_choice() {
    let config = SwitchConfig { seed: 320, ..wide(9) };
    let mut switch = Switch::new(config).expect("a configuration that works");
    switch.set_balance(Balance::FlowHpcc);
    let address = |node| Gid::from_ip(std::net::Ipv4Addr::from(hash::hpcc_address(node)).into());
    switch.set_route(address(1), 128, (1..5).map(hop).collect());
    let mut frame = packet(0, 3, 1048);
    let net = frame.header.net.as_mut().expect("a packet");
    (net.source, net.destination) = (address(0), address(1));
    net.ports = Ports { source: 10_000, destination: 100 };
    switch.receive(at(0), 0, frame);
    // 0xEAE3B97C modulo 4 is the first.
    assert!(switch.poll_transmit(at(0), 1).is_some());
}

#[test]
fn a_way_whose_link_is_down_is_not_taken() {
    for balance in [Balance::Flow, Balance::FlowHpcc, Balance::Packet, Balance::Spray] {
        let mut switch = Switch::new(wide(5)).expect("a configuration that works");
        switch.set_route(gid(0), 96, (1..5).map(hop).collect());
        switch.set_balance(balance);
        switch.handle_link(at(0), 2, false);
        for source in 0..200 {
            assert_ne!(way(&mut switch, 0, source, 9), Some(2), "{balance:?}");
        }
        for port in [1, 3, 4] {
            switch.handle_link(at(0), port, false);
        }
        assert_eq!(way(&mut switch, 0, 0, 9), None);
        let dropped = &switch.counters(0).expect("port 0").dropped;
        assert_eq!(dropped.get(&DropCause::LinkDown), Some(&1));
        switch.handle_link(at(0), 3, true);
        assert_eq!(way(&mut switch, 0, 0, 9), Some(3));
    }
}

#[test]
fn the_least_loaded_way_for_each_packet_or_burst() {
    let build = |balance| {
        let mut switch: Switch<u64> = Switch::new(wide(4)).expect("a configuration that works");
        switch.set_route(gid(9), 128, vec![hop(1), hop(2)]);
        switch.set_route(gid(1), 128, vec![hop(1)]);
        switch.set_balance(balance);
        switch
    };
    let mut switch = build(Balance::Packet);
    for _ in 0..3 {
        switch.receive(at(0), 0, packet(1, 3, 1000));
    }
    for _ in 0..3 {
        switch.receive(at(0), 0, packet(9, 3, 1000));
    }
    assert_eq!((switch.egress_bytes(1, 3), switch.egress_bytes(2, 3)), (3000, 3000));

    let mut switch = build(Balance::Flowlet(Span::from_ns(500)));
    let burst = |ns, switch: &mut Switch<u64>| {
        let before = switch.egress_bytes(2, 3);
        switch.receive(at(ns), 0, packet(9, 3, 1000));
        switch.egress_bytes(2, 3) > before
    };
    let second = burst(0, &mut switch);
    // The way is kept though it is the more loaded one, until the flow has been silent.
    for ns in [100, 599, 1098] {
        assert_eq!(burst(ns, &mut switch), second);
    }
    assert_eq!(burst(1598, &mut switch), !second);
}

#[test]
fn longest_prefixes_as_a_plain_search_finds_them() {
    let mut seed = 5_u64;
    let mut draw = move || {
        seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        seed >> 33
    };
    let mut table: Vec<(u128, u8, u16)> = Vec::new();
    let mut switch: Switch<u64> = Switch::new(wide(9)).expect("a configuration that works");
    let base = u128::from_be_bytes(gid(0).0);
    for _ in 0..300 {
        // Few different bits, so that prefixes nest.
        let bits = [0, 64, 96, 104, 112, 120, 124, 127, 128][draw() as usize % 9];
        let wanted = base | u128::from(draw() & 0x0303);
        let mask = u128::MAX.checked_shl(128 - u32::from(bits)).unwrap_or(0);
        table.retain(|&(prefix, length, _)| (prefix, length) != (wanted & mask, bits));
        if draw() % 8 == 0 {
            switch.set_route(Gid(wanted.to_be_bytes()), bits, Vec::new());
            continue;
        }
        let port = 1 + draw() as u16 % 8;
        table.push((wanted & mask, bits, port));
        switch.set_route(Gid(wanted.to_be_bytes()), bits, vec![hop(port)]);
        for _ in 0..8 {
            let address = base | u128::from(draw() & 0x0707);
            let fits = |&&(prefix, bits, _): &&(u128, u8, u16)| {
                address & u128::MAX.checked_shl(128 - u32::from(bits)).unwrap_or(0) == prefix
            };
            let expected = table.iter().filter(fits).max_by_key(|entry| entry.1).map(|e| e.2);
            let mut frame = packet(0, 3, 100);
            frame.header.net.as_mut().expect("a packet").destination = Gid(address.to_be_bytes());
            switch.receive(at(0), 0, frame);
            let found = (0..9).find(|&port| switch.poll_transmit(at(0), port).is_some());
            assert_eq!(found, expected, "{address:x}");
        }
    }
}

#[test]
fn a_router_rewrites_addresses_and_counts_hops() {
    let mut switch = star(wide(3));
    let mut frame = packet(2, 3, 1000);
    frame.header.net.as_mut().expect("a packet").hop_limit = 2;
    switch.receive(at(0), 0, frame);
    let sent = switch.poll_transmit(at(0), 2).expect("a packet");
    assert_eq!(sent.header.destination, hop(2).mac);
    assert_eq!(sent.header.source, Mac([2, 0, 0, 9, 0, 2]));
    assert_eq!(sent.header.net.expect("a packet").hop_limit, 1);
    for hop_limit in [0, 1] {
        let mut frame = packet(2, 3, 1000);
        frame.header.net.as_mut().expect("a packet").hop_limit = hop_limit;
        switch.receive(at(0), 0, frame);
    }
    switch.receive(at(0), 0, packet(77, 3, 1000));
    // A router may send a packet back where it came from.
    switch.receive(at(0), 0, packet(0, 3, 1000));
    assert!(switch.poll_transmit(at(0), 0).is_some());
    let dropped = &switch.counters(0).expect("port 0").dropped;
    let expected = BTreeMap::from([(DropCause::HopLimit, 2), (DropCause::NoRoute, 1)]);
    assert_eq!(dropped, &expected);
}

fn station(n: u8) -> Mac {
    Mac([2, 7, 0, 0, 0, n])
}

/// A RoCEv1 frame: nothing that a router understands.
fn local(from: u8, to: Mac, tag: Option<(u16, u8)>) -> Box<Frame<u64>> {
    let mut frame = packet(0, 0, 1000);
    frame.header.net = None;
    frame.header.tag = tag;
    frame.header.source = station(from);
    frame.header.destination = to;
    frame
}

/// A port at which a frame comes out, its tag and its length.
type Out = (u16, Option<(u16, u8)>, u32);

fn out(switch: &mut Switch<u64>, ns: u64) -> Vec<Out> {
    let ports = switch.config().ports.len() as u16;
    let mut out = Vec::new();
    for port in 0..ports {
        while let Some(frame) = switch.poll_transmit(at(ns), port) {
            out.push((port, frame.header.tag, frame.length));
        }
    }
    out
}

#[test]
fn a_bridge_floods_learns_and_forgets() {
    let options = Options { ageing: Span::from_us(10), ..Options::default() };
    let mut switch = Switch::with_options(wide(4), options).expect("a configuration that works");
    let tag = Some((0, 3));
    let ports = |switch: &mut Switch<u64>, ns| -> Vec<u16> {
        out(switch, ns).into_iter().map(|(port, ..)| port).collect()
    };
    switch.receive(at(0), 0, local(1, station(2), tag));
    assert_eq!(ports(&mut switch, 0), [1, 2, 3]);
    switch.receive(at(100), 2, local(2, station(1), tag));
    assert_eq!(out(&mut switch, 100), [(0, tag, 1000)]);
    switch.receive(at(9_999), 0, local(1, station(2), tag));
    assert_eq!(ports(&mut switch, 9_999), [2]);
    // The answer was 10 us ago; the first station has moved.
    switch.receive(at(10_100), 3, local(1, station(2), tag));
    assert_eq!(ports(&mut switch, 10_100), [0, 1, 2]);
    switch.receive(at(10_200), 2, local(2, station(1), tag));
    assert_eq!(ports(&mut switch, 10_200), [3]);
    // To a station behind the same port; to everybody; to bridges only.
    switch.receive(at(10_300), 3, local(9, station(1), tag));
    switch.receive(at(10_300), 3, local(9, Mac([0xFF; 6]), tag));
    assert_eq!(ports(&mut switch, 10_300), [0, 1, 2]);
    switch.receive(at(10_300), 3, local(9, Mac([1, 0x80, 0xC2, 0, 0, 0xE]), tag));
    assert_eq!(ports(&mut switch, 10_300), []);
    let dropped = &switch.counters(3).expect("port 3").dropped;
    let expected = BTreeMap::from([(DropCause::NoRoute, 1), (DropCause::Reflection, 1)]);
    assert_eq!(dropped, &expected);
    // A link that fails takes its addresses along.
    switch.handle_link(at(10_400), 3, false);
    switch.handle_link(at(10_400), 3, true);
    switch.receive(at(10_500), 2, local(2, station(1), tag));
    assert_eq!(ports(&mut switch, 10_500), [0, 1, 3]);
}

#[test]
fn vlans_keep_their_members_apart_and_change_tags() {
    let own = |untagged, tagged: &[u16]| PortVlans { untagged, tagged: tagged.to_vec() };
    let vlans =
        vec![own(Some(10), &[]), own(Some(10), &[20]), own(Some(20), &[]), own(None, &[10, 20])];
    let options = Options { vlans, ..Options::default() };
    let mut switch = Switch::with_options(wide(4), options).expect("a configuration that works");
    let all = Mac([0xFF; 6]);
    switch.receive(at(0), 0, local(1, all, None));
    assert_eq!(out(&mut switch, 0), [(1, None, 1000), (3, Some((10, 0)), 1004)]);
    // A priority tag belongs to the port's VLAN and is taken off with the others.
    switch.receive(at(0), 0, local(1, all, Some((0, 5))));
    assert_eq!(out(&mut switch, 0), [(1, None, 996), (3, Some((10, 5)), 1000)]);
    switch.receive(at(0), 1, local(2, all, Some((20, 4))));
    assert_eq!(out(&mut switch, 0), [(2, None, 996), (3, Some((20, 4)), 1000)]);
    // What was learned in one VLAN is not known in the other.
    switch.receive(at(0), 3, local(9, station(1), Some((20, 0))));
    assert_eq!(out(&mut switch, 0), [(1, Some((20, 0)), 1000), (2, None, 996)]);
    switch.receive(at(0), 3, local(9, station(1), Some((10, 0))));
    assert_eq!(out(&mut switch, 0), [(0, None, 996)]);
    // Not a member; no tag where one is needed.
    switch.receive(at(0), 0, local(1, all, Some((20, 0))));
    switch.receive(at(0), 3, local(1, all, None));
    assert_eq!(out(&mut switch, 0), []);
}

#[test]
fn what_has_no_network_layer_is_not_routed() {
    let mut switch = star(wide(3));
    let mut frame = local(1, MAC, None);
    switch.receive(at(0), 0, frame.clone());
    assert_eq!(out(&mut switch, 0), []);
    let dropped = &switch.counters(0).expect("port 0").dropped;
    assert_eq!(dropped.get(&DropCause::NoRoute), Some(&1));
    // And what has one is, only if it is sent to the router.
    frame.header.net = packet(2, 3, 0).header.net;
    frame.header.destination = station(5);
    switch.receive(at(0), 0, frame);
    let flooded: Vec<_> = out(&mut switch, 0).into_iter().map(|(port, ..)| port).collect();
    assert_eq!(flooded, [1, 2]);
}

#[test]
fn an_incomplete_neighbour_is_flooded_or_for_lossless_packets_dropped() {
    for drop_incomplete in [false, true] {
        let options = Options { drop_incomplete, ageing: Span::from_us(1), ..Options::default() };
        let mut switch =
            Switch::with_options(wide(4), options).expect("a configuration that works");
        switch.set_bridged_route(gid(5), 128, station(5), 0);
        // Its own packet tells where it is.
        switch.receive(at(0), 2, local(5, station(6), Some((0, 0))));
        out(&mut switch, 0);
        switch.receive(at(999), 0, packet(5, 3, 1000));
        let sent = switch.poll_transmit(at(999), 2).expect("the port that it was seen at");
        assert_eq!(sent.header.destination, station(5));
        assert_eq!(out(&mut switch, 999), []);
        // It has died; its MAC is forgotten, the route is not.
        switch.receive(at(1000), 0, packet(5, 3, 1000));
        let flooded = out(&mut switch, 1000).len();
        assert_eq!(flooded, if drop_incomplete { 0 } else { 3 });
        switch.receive(at(1000), 0, packet(5, 1, 1000));
        assert_eq!(out(&mut switch, 1000).len(), 3, "a lossy packet is flooded");
    }
}

#[test]
fn a_mirror_has_a_copy_of_what_leaves() {
    let mirrors = vec![switch::Mirror { of: 1, to: 2 }];
    let options = Options { mirrors, ..Options::default() };
    let mut switch = Switch::with_options(wide(3), options).expect("a configuration that works");
    switch.set_route(gid(1), 128, vec![hop(1)]);
    let mut frame = packet(1, 3, 1000);
    frame.content = Content::Data(42);
    switch.receive(at(0), 0, frame);
    assert_eq!(switch.poll_transmit(at(0), 2), None);
    let sent = switch.poll_transmit(at(0), 1).expect("the frame");
    while let Some(port) = switch.poll_port() {
        assert!(port > 0);
    }
    assert_eq!(switch.poll_transmit(at(0), 2), Some(sent));
    assert_eq!(switch.shared_bytes(), 0);
    switch.handle_link(at(0), 2, false);
    switch.receive(at(0), 0, packet(1, 3, 1000));
    assert!(switch.poll_transmit(at(0), 1).is_some());
    let dropped = &switch.counters(1).expect("port 1").dropped;
    assert_eq!(dropped.get(&DropCause::Mirror), Some(&1));
}
