//! Configurations, frames and a driver for the tests of the switch.
#![allow(dead_code, reason = "each test file uses its part")]

use std::net::Ipv4Addr;

use switch::{
    Alpha, Buffer, Content, Frame, Header, Net, NextHop, PfcPriority, PortConfig, Ports,
    Scheduling, Switch, SwitchConfig, Trust,
};
use wire::{Gid, Instant, Mac, Rate};

/// What frames carry in these tests.
pub(crate) type Body = u64;

pub(crate) const MAC: Mac = Mac([2, 0, 0, 9, 0, 0]);

/// A lossless priority with dynamic thresholds.
pub(crate) fn lossless(headroom: u64) -> PfcPriority {
    PfcPriority { headroom, xoff: None, xon_offset: 3072, quanta: 0xFFFF }
}

/// A port at 100 Gb/s with priority 3 lossless.
pub(crate) fn port(headroom: u64) -> PortConfig {
    let mut pfc = [None; 8];
    pfc[3] = Some(lossless(headroom));
    PortConfig {
        rate: Rate::from_gbps(100),
        pfc,
        link_pause: false,
        ecn: [None; 8],
        scheduling: [Scheduling::Strict; 8],
    }
}

/// A switch with so many ports, 1/8 of the free pool for each ingress.
pub(crate) fn config(ports: usize, total: u64, headroom: u64) -> SwitchConfig {
    SwitchConfig {
        seed: 1,
        mac: MAC,
        ports: vec![port(headroom); ports],
        buffer: Buffer {
            total,
            reserve: 4096,
            alpha: Alpha { numerator: 1, denominator: 8 },
            egress_alpha: None,
            cell: 0,
        },
        trust: Trust::Dscp,
        dscp_map: SwitchConfig::DSCP_MAP,
        class_of: SwitchConfig::CLASS_OF,
    }
}

pub(crate) fn gid(last: u8) -> Gid {
    Gid::from_ip(Ipv4Addr::new(10, 0, 0, last).into())
}

pub(crate) fn hop(port: u16) -> NextHop {
    NextHop { port, weight: 1, mac: Mac([2, 0, 0, 1, 0, port as u8]) }
}

/// A switch whose port `i` leads to 10.0.0.`i`.
pub(crate) fn star(config: SwitchConfig) -> Switch<Body> {
    let ports = config.ports.len();
    let mut switch = Switch::new(config).expect("a configuration that works");
    for port in 0..ports as u16 {
        switch.set_route(gid(port as u8), 128, vec![hop(port)]);
    }
    switch
}

/// An ECN-capable packet of a priority to 10.0.0.`to`.
pub(crate) fn packet(to: u8, priority: u8, length: u32) -> Box<Frame<Body>> {
    let net = Net {
        source: gid(200),
        destination: gid(to),
        traffic_class: priority << 5 | 2,
        hop_limit: 64,
        protocol: 17,
        ports: Ports { source: 49152, destination: 4791 },
    };
    let header =
        Header { destination: MAC, source: Mac([2, 0, 0, 0, 0, 7]), tag: None, net: Some(net) };
    Box::new(Frame { header, length, content: Content::Data(0) })
}

pub(crate) fn at(ns: u64) -> Instant {
    Instant::from_ns(ns)
}

/// All that a port has to send.
pub(crate) fn drain(switch: &mut Switch<Body>, now: Instant, port: u16) -> Vec<Frame<Body>> {
    std::iter::from_fn(|| switch.poll_transmit(now, port).map(|frame| *frame)).collect()
}
