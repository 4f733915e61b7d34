//! From the tables of a scenario file to a network.

use std::collections::BTreeMap;
use std::ops::Range;

use engine::{Congestion, Control, Dcqcn, Notification};
use switch::{Alpha, Balance};
use toml::Spanned;
use wire::{Instant, Mtu, Rate, Span};

use super::file::{ControlName, File, Kind, Nic, Preset, Spread, SwitchTable, Topology};
use super::work;
use super::{Scenario, ScenarioError, Text};
use crate::network::{Cable, HostSpec, Network, NicSpec, NodeId};
use crate::plan::Plan;
use crate::profile::{EcnRule, Headroom, Marking, SwitchProfile};
use crate::topology::{self, Parts, Shape, Wire};

/// Bytes of buffer where a file says nothing: a Trident2-like switch.
const BUFFER: u64 = 12_000_000;

pub(super) fn scenario(at: Text<'_>, file: &File) -> Result<Scenario, ScenarioError> {
    let network = network(at, file)?;
    let mut plan = Plan::default();
    let groups = work::plan(at, file, &network, &mut plan)?;
    reachable(at, file, &network, &plan)?;
    Ok(Scenario {
        name: file.name.clone(),
        teaches: file.teaches.trim().to_owned(),
        seed: file.seed,
        until: Instant::ZERO + file.until.0,
        network,
        plan,
        groups,
    })
}

fn network(at: Text<'_>, file: &File) -> Result<Network, ScenarioError> {
    let t = &file.topology;
    let rate = t.rate.map_or(Rate::from_gbps(100), |r| r.0);
    let delay = t.delay.map_or(Span::from_us(1), |d| d.0);
    let access = Wire { rate, delay };
    let fabric = Wire {
        rate: t.fabric_rate.map_or(rate, |r| r.0),
        delay: t.fabric_delay.map_or(delay, |d| d.0),
    };
    let parts = Parts { access, fabric, nic: nic(at, &file.nic, rate)?, switch: switch(at, file)? };
    let kind = *t.kind.get_ref();
    fields(at, t, kind)?;
    if kind == Kind::Explicit {
        return explicit(at, file, &parts);
    }
    if let Some(link) = file.link.first() {
        let message = "link: cables are listed only where topology.kind is \"explicit\"";
        return Err(at.error(link.span(), message));
    }
    let get = |field: &Option<Spanned<u32>>| field.as_ref().map_or(0, |n| *n.get_ref());
    let shape = match kind {
        Kind::Pair | Kind::Explicit => Shape::Pair,
        Kind::Star => Shape::Star { hosts: get(&t.hosts) },
        Kind::Dumbbell => Shape::Dumbbell { left: get(&t.left), right: get(&t.right) },
        Kind::ParkingLot => Shape::ParkingLot { switches: get(&t.switches), hosts: get(&t.hosts) },
        Kind::Ring => Shape::Ring { switches: get(&t.switches), hosts: get(&t.hosts) },
        Kind::LeafSpine => Shape::LeafSpine {
            leaves: get(&t.leaves),
            spines: get(&t.spines),
            hosts: get(&t.hosts),
        },
        Kind::FatTree => Shape::FatTree { k: get(&t.k) },
        Kind::Rail => Shape::Rail {
            servers: get(&t.servers),
            rails: get(&t.rails),
            group: get(&t.group),
            spines: get(&t.spines),
        },
    };
    topology::build(shape, &parts).map_err(|message| {
        // A sentence about a field begins with its name.
        let of = given(t).into_iter().find(|(field, _)| message.starts_with(&format!("{field}:")));
        let span = of.and_then(|(_, span)| span).unwrap_or(t.kind.span());
        at.error(span, format!("topology.{message}"))
    })
}

/// The fields that depend on the kind, and where they stand.
fn given(t: &Topology) -> [(&'static str, Option<Range<usize>>); 11] {
    let span = |field: &Option<Spanned<u32>>| field.as_ref().map(Spanned::span);
    [
        ("hosts", span(&t.hosts)),
        ("left", span(&t.left)),
        ("right", span(&t.right)),
        ("switches", span(&t.switches)),
        ("leaves", span(&t.leaves)),
        ("spines", span(&t.spines)),
        ("k", span(&t.k)),
        ("servers", span(&t.servers)),
        ("rails", span(&t.rails)),
        ("group", span(&t.group)),
        ("switch-names", t.switch_names.as_ref().map(Spanned::span)),
    ]
}

/// Refuses fields that a kind needs and has not, or has and does not know.
fn fields(at: Text<'_>, t: &Topology, kind: Kind) -> Result<(), ScenarioError> {
    let needs: &[&str] = match kind {
        Kind::Pair => &[],
        Kind::Explicit => &["switch-names"],
        Kind::Star => &["hosts"],
        Kind::Dumbbell => &["left", "right"],
        Kind::ParkingLot | Kind::Ring => &["switches", "hosts"],
        Kind::LeafSpine => &["leaves", "spines", "hosts"],
        Kind::FatTree => &["k"],
        Kind::Rail => &["servers", "rails", "group", "spines"],
    };
    let name = format!("{kind:?}");
    for (field, span) in given(t) {
        match span {
            None if needs.contains(&field) => {
                let message = format!("topology.{field}: missing, a topology {name} needs it");
                return Err(at.error(t.kind.span(), message));
            }
            Some(span) if !needs.contains(&field) => {
                let message = format!(
                    "topology.{field}: a topology {name} has no such field; it has {}",
                    if needs.is_empty() { "none".to_owned() } else { needs.join(", ") }
                );
                return Err(at.error(span, message));
            }
            _ => {}
        }
    }
    Ok(())
}

/// Hosts are the names of cables' ends that are no switch's, in the order in which they come.
fn explicit(at: Text<'_>, file: &File, parts: &Parts) -> Result<Network, ScenarioError> {
    let names = file.topology.switch_names.as_ref().map_or(&[][..], |n| n.get_ref().as_slice());
    let mut hosts: Vec<String> = Vec::new();
    for link in &file.link {
        let (a, b) = link.get_ref().ends.get_ref();
        for name in [a, b] {
            if !names.contains(name) && !hosts.contains(name) {
                hosts.push(name.clone());
            }
        }
    }
    let all = hosts.iter().chain(names).enumerate();
    let ids: BTreeMap<&str, u32> = all.map(|(id, name)| (name.as_str(), id as u32)).collect();
    if ids.len() != hosts.len() + names.len() {
        let span = file.topology.switch_names.as_ref().map_or(0..0, Spanned::span);
        return Err(at.error(span, "topology.switch-names: a name is there twice"));
    }
    let mut cables = Vec::new();
    for link in &file.link {
        let ends = &link.get_ref().ends;
        let (a, b) = ends.get_ref();
        if a == b {
            let message = format!("link.ends: a cable from `{a}` to itself");
            return Err(at.error(ends.span(), message));
        }
        let is_switch = names.contains(a) && names.contains(b);
        let wire = if is_switch { parts.fabric } else { parts.access };
        cables.push(Cable {
            a: NodeId(ids[a.as_str()]),
            b: NodeId(ids[b.as_str()]),
            rate: link.get_ref().rate.map_or(wire.rate, |r| r.0),
            delay: link.get_ref().delay.map_or(wire.delay, |d| d.0),
            ..Cable::PERFECT
        });
    }
    let host = |name| HostSpec { name, address: None, nic: parts.nic.clone(), storm: None };
    let mut network =
        Network { hosts: hosts.into_iter().map(host).collect(), cables, ..Network::default() };
    network.switches = topology::dress(&network, names.to_vec(), &parts.switch);
    let ports = network.ports();
    if let Some((host, _)) = network.hosts.iter().zip(&ports).find(|(_, p)| p.len() != 1) {
        let message = format!("link: `{}` has several cables: a NIC has one port", host.name);
        let span = file.link.first().map_or(0..0, Spanned::span);
        return Err(at.error(span, message));
    }
    Ok(network)
}

fn nic(at: Text<'_>, nic: &Nic, line: Rate) -> Result<NicSpec, ScenarioError> {
    let mtu = match &nic.mtu {
        None => Mtu::B1024,
        Some(mtu) => Mtu::from_bytes(*mtu.get_ref()).ok_or_else(|| {
            let message =
                format!("nic.mtu: expected 256, 512, 1024, 2048 or 4096, found {}", mtu.get_ref());
            at.error(mtu.span(), message)
        })?,
    };
    let (mut p, mut notification) = match nic.preset {
        Preset::Paper => (Dcqcn::PAPER, Notification::PAPER),
        Preset::Vendor => (Dcqcn::VENDOR, Notification::VENDOR),
        Preset::HpccSim => (Dcqcn::hpcc_sim(line), Notification::VENDOR),
    };
    let t = &nic.dcqcn;
    let set = |place: &mut u16, value: Option<u16>| *place = value.unwrap_or(*place);
    set(&mut p.dce_tcp_g, t.dce_tcp_g);
    set(&mut p.initial_alpha_value, t.initial_alpha_value);
    let set = |place: &mut Span, value: Option<super::quantity::Lasting>| {
        *place = value.map_or(*place, |v| v.0);
    };
    set(&mut p.dce_tcp_rtt, t.dce_tcp_rtt);
    set(&mut p.rate_reduce_monitor_period, t.rate_reduce_monitor_period);
    set(&mut p.rpg_time_reset, t.rpg_time_reset);
    set(&mut notification.spacing, nic.cnp_spacing);
    let set = |place: &mut Rate, value: Option<super::quantity::Rated>| {
        *place = value.map_or(*place, |v| v.0);
    };
    set(&mut p.rpg_min_rate, t.rpg_min_rate);
    set(&mut p.rpg_max_rate, t.rpg_max_rate);
    set(&mut p.rpg_ai_rate, t.rpg_ai_rate);
    set(&mut p.rpg_hai_rate, t.rpg_hai_rate);
    p.rpg_byte_reset = t.rpg_byte_reset.map_or(p.rpg_byte_reset, |b| b.0);
    p.rpg_threshold = t.rpg_threshold.unwrap_or(p.rpg_threshold);
    p.clamp_tgt_rate = t.clamp_tgt_rate.unwrap_or(p.clamp_tgt_rate);
    if let Some(dscp) = &nic.cnp_dscp {
        notification.dscp = work::dscp(at, "nic.cnp-dscp", dscp)?;
    }
    let control = match nic.control {
        ControlName::None => Control::None,
        ControlName::Dcqcn => Control::Dcqcn(p),
    };
    Ok(NicSpec {
        mtu,
        ack_delay: Span::ZERO,
        segment: None,
        ack_interval: engine::limits::ACK_INTERVAL,
        acks_apart: false,
        congestion: Congestion { control, line, notification, overhead: None },
    })
}

fn switch(at: Text<'_>, file: &File) -> Result<SwitchProfile, ScenarioError> {
    let t: &SwitchTable = &file.switch;
    let mut profile = SwitchProfile::shared(t.buffer.map_or(BUFFER, |b| b.0));
    profile.seed = file.seed;
    profile.buffer.reserve = t.reserve.map_or(profile.buffer.reserve, |b| b.0);
    if let Some(alpha) = t.alpha {
        profile.buffer.alpha = Alpha { numerator: alpha.0.0, denominator: alpha.0.1 };
    }
    let mut lossless = profile.lossless[3];
    if let Some(l) = &mut lossless {
        l.headroom = t.headroom.map_or(l.headroom, |b| Headroom::Bytes(b.0));
        l.xoff = t.xoff.map(|b| b.0);
        l.xon_offset = t.xon_offset.map_or(l.xon_offset, |b| b.0);
        l.quanta = t.quanta.unwrap_or(l.quanta);
    }
    profile.lossless = [None; 8];
    match &t.lossless {
        None => profile.lossless[3] = lossless,
        Some(list) => {
            for priority in list {
                let place = profile.lossless.get_mut(usize::from(*priority.get_ref()));
                *place.ok_or_else(|| {
                    let message = format!(
                        "switch.lossless: expected priorities from 0 to 7, found {}",
                        priority.get_ref()
                    );
                    at.error(priority.span(), message)
                })? = lossless;
            }
        }
    }
    if let Some(Marking::Same(rule) | Marking::PerGbps(rule)) = profile.marking[3] {
        let rule = EcnRule {
            kmin: t.kmin.map_or(rule.kmin, |b| b.0),
            kmax: t.kmax.map_or(rule.kmax, |b| b.0),
            pmax_ppb: t.pmax.map_or(rule.pmax_ppb, |p| p.0),
            ..rule
        };
        profile.marking[3] = t.ecn.unwrap_or(true).then_some(Marking::Same(rule));
    }
    profile.balance = match t.balance {
        Spread::Flow => Balance::Flow,
        Spread::Packet => Balance::Packet,
        Spread::Spray => Balance::Spray,
        Spread::Flowlet => Balance::Flowlet(t.flowlet_gap.map_or(Span::from_us(50), |gap| gap.0)),
    };
    Ok(profile)
}

/// Refuses a plan whose ends no cables join.
fn reachable(
    at: Text<'_>,
    file: &File,
    network: &Network,
    plan: &Plan,
) -> Result<(), ScenarioError> {
    let mut part: Vec<u32> = (0..network.nodes() as u32).collect();
    fn root(part: &mut [u32], mut node: u32) -> u32 {
        while part[node as usize] != node {
            part[node as usize] = part[part[node as usize] as usize];
            node = part[node as usize];
        }
        node
    }
    for cable in &network.cables {
        let (a, b) = (root(&mut part, cable.a.0), root(&mut part, cable.b.0));
        part[a as usize] = b;
    }
    for flow in &plan.flows {
        let Some((a, b)) = flow.ends(plan) else { continue };
        if root(&mut part, a.0) != root(&mut part, b.0) {
            let span = file.workload.get(usize::from(flow.group)).map_or(0..0, Spanned::span);
            let message = format!(
                "workload: from {} to {}: no cables lead from one to the other",
                network.name(a),
                network.name(b)
            );
            return Err(at.error(span, message));
        }
    }
    Ok(())
}
