//! How long a switch takes for a frame, from `receive` through `poll_transmit`:
//! `cargo run --release -p crocevia-switch --example frames`. The boxes go round, as in a
//! simulation: nothing is allocated on the way.
#![allow(clippy::print_stdout, reason = "it prints what it measures")]

use std::collections::VecDeque;
use std::net::Ipv4Addr;
use std::time::Instant as Clock;

use switch::{
    Alpha, Balance, Bandwidth, Buffer, Content, EcnAt, EcnProfile, Frame, Header, Net, NextHop,
    PfcPriority, PortConfig, Ports, Scheduling, Switch, SwitchConfig, Trust,
};
use wire::{Gid, Instant, Mac, Rate, Span};

const PORTS: u16 = 36;
const FRAMES: u64 = 20_000_000;
const MAC: Mac = Mac([2, 0, 0, 9, 0, 0]);

/// A body as large as that of a simulated RDMA packet.
type Body = [u64; 24];

fn config() -> SwitchConfig {
    let pfc = PfcPriority { headroom: 40_000, xoff: None, xon_offset: 3072, quanta: 0xFFFF };
    let ecn = EcnProfile {
        kmin: 5_000,
        kmax: 200_000,
        pmax_ppb: 10_000_000,
        at: EcnAt::Dequeue,
        average_shift: 0,
    };
    let port = PortConfig {
        rate: Rate::from_gbps(100),
        pfc: [None, None, None, Some(pfc), None, None, None, None],
        link_pause: false,
        ecn: [None, None, None, Some(ecn), None, None, None, None],
        scheduling: [Scheduling::Weighted(Bandwidth(10)); 8],
    };
    SwitchConfig {
        seed: 1,
        mac: MAC,
        ports: vec![port; usize::from(PORTS)],
        buffer: Buffer {
            total: 32 << 20,
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

fn address(n: u32) -> Gid {
    Gid::from_ip(Ipv4Addr::from(0x0A00_0000 + n).into())
}

fn frame(flow: u32) -> Frame<Body> {
    let net = Net {
        source: address(flow * 7919 % 11_664),
        destination: address(flow),
        traffic_class: 3 << 5 | 2,
        hop_limit: 64,
        protocol: 17,
        ports: Ports { source: 49_152 + flow as u16, destination: 4791 },
    };
    let header = Header { destination: MAC, source: MAC, tag: None, net: Some(net) };
    Frame { header, length: 1086, content: Content::Data([0; 24]) }
}

/// Nanoseconds of CPU that this process has used, where the system tells.
fn cpu_ns() -> Option<u64> {
    let line = std::fs::read_to_string("/proc/self/schedstat").ok()?;
    line.split_whitespace().next()?.parse().ok()
}

/// Frames of so many flows, each burst spread over all ports in and drained from all ports out.
fn run(name: &str, flows: u32, balance: Balance) {
    let mut switch = Switch::new(config()).expect("a configuration that works");
    switch.set_balance(balance);
    // Half of the ports lead to hosts, half of them up, as in a fat tree.
    for host in 0..18 {
        let hop = NextHop { port: host as u16, weight: 1, mac: MAC };
        switch.set_route(address(host), 128, vec![hop]);
    }
    let up = |port| NextHop { port, weight: 1, mac: MAC };
    switch.set_route(address(0), 96 + 8, (18..PORTS).map(up).collect());
    let mut boxes: VecDeque<Box<Frame<Body>>> =
        (0..4096).map(|n| Box::new(frame(n * 31 % flows))).collect();
    let (mut sent, mut now) = (0_u64, Instant::ZERO);
    let start = (cpu_ns(), Clock::now());
    while sent < FRAMES {
        now = now + Span::from_ns(88);
        for port in 0..PORTS {
            if let Some(mut frame) = boxes.pop_front() {
                frame.header.destination = MAC;
                if let Some(net) = &mut frame.header.net {
                    net.hop_limit = 64;
                }
                switch.receive(now, port, frame);
            }
        }
        while switch.poll_port().is_some() {}
        for port in 0..PORTS {
            if let Some(frame) = switch.poll_transmit(now, port) {
                sent += 1;
                boxes.push_back(frame);
            }
        }
    }
    let wall = start.1.elapsed().as_nanos() as u64;
    let spent = cpu_ns().zip(start.0).map_or(wall, |(now, then)| now - then);
    let ns = spent as f64 / sent as f64;
    println!("{name}: {ns:.1} ns of CPU a frame");
}

fn main() {
    run("one way, 18 destinations", 18, Balance::Flow);
    run("ECMP, 4096 destinations", 4096, Balance::Flow);
    run("flowlets, 4096 destinations", 4096, Balance::Flowlet(Span::from_us(50)));
    run("spraying, 4096 destinations", 4096, Balance::Spray);
}
