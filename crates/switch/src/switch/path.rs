//! Where a frame goes: routed if it is sent to the switch, bridged otherwise.

use wire::{Instant, Mac};

use super::{PortId, Switch};
use crate::balance::{self, View};
use crate::bridge::{Member, is_group, is_reserved};
use crate::counters::DropCause;
use crate::frame::Frame;

/// Where a frame goes.
#[derive(Clone, Copy, Debug)]
pub(super) enum Path {
    /// To one port.
    Port(PortId),
    /// To all ports of a VLAN but the one it came from.
    Flood(u16),
}

/// Bytes of a tag.
const TAG: u32 = 4;

/// Gives a frame the tag that a member of a VLAN sends, or takes it off.
fn dress<B>(frame: &mut Frame<B>, vlan: u16, priority: u8, tagged: Option<bool>) {
    match (tagged, &mut frame.header.tag) {
        (Some(true), Some(tag)) => tag.0 = vlan,
        (Some(true), tag) => {
            *tag = Some((vlan, priority));
            frame.length = frame.length.saturating_add(TAG);
        }
        (Some(false), tag @ Some(_)) => {
            *tag = None;
            frame.length = frame.length.saturating_sub(TAG);
        }
        (Some(false) | None, _) => {}
    }
}

impl<B: Clone> Switch<B> {
    /// Whether an address is one of the switch's own.
    fn is_own(&self, mac: Mac) -> bool {
        let ([a, b, c, d, e, f], own) = (mac.0, self.config.mac.0);
        let last = u16::from_be_bytes([e, f]);
        let offset = last.wrapping_sub(u16::from_be_bytes([own[4], own[5]]));
        own[..4] == [a, b, c, d] && usize::from(offset) < self.ports.len()
    }

    /// Finds where a frame goes, and rewrites it for that.
    pub(super) fn path(
        &mut self,
        now: Instant,
        port: PortId,
        priority: u8,
        frame: &mut Frame<B>,
    ) -> Result<Path, DropCause> {
        if self.is_own(frame.header.destination) {
            if self.learns
                && let Some(vlan) = self.bridge.vlan(port, frame.header.tag)
            {
                self.bridge.learn(now, vlan, frame.header.source, port);
            }
            self.route(now, port, priority, frame)
        } else {
            self.switch(now, port, priority, frame)
        }
    }

    /// The network layer: the longest prefix, one hop less.
    fn route(
        &mut self,
        now: Instant,
        from: PortId,
        priority: u8,
        frame: &mut Frame<B>,
    ) -> Result<Path, DropCause> {
        let net = frame.header.net.as_mut().ok_or(DropCause::NoRoute)?;
        if net.hop_limit <= 1 {
            return Err(DropCause::HopLimit);
        }
        let way = self.routes.find(net.destination).ok_or(DropCause::NoRoute)?;
        if let Some((mac, vlan)) = way.bridged {
            net.hop_limit -= 1;
            frame.header.source = self.config.mac;
            frame.header.destination = mac;
            return self.deliver(now, from, (vlan, priority), frame);
        }
        let ports = &self.ports;
        let load = |port: u16| {
            ports.get(usize::from(port)).filter(|port| port.up).map(|port| port.waiting)
        };
        let seed = self.config.seed;
        let mut view = View { now, seed, load, flowlets: &mut self.flowlets };
        let hop = balance::choose(self.balance, way, net, &mut view);
        let hop = hop.ok_or(DropCause::LinkDown)?;
        net.hop_limit -= 1;
        frame.header.destination = hop.mac;
        if let Some(port) = self.ports.get(usize::from(hop.port)) {
            frame.header.source = port.mac;
        }
        if frame.header.tag.is_some() && self.bridge.has_vlans() {
            dress(frame, 0, priority, Some(false));
        }
        Ok(Path::Port(hop.port))
    }

    /// A routed packet to a neighbour of which the MAC is known, but perhaps not the port.
    fn deliver(
        &mut self,
        now: Instant,
        from: PortId,
        (vlan, priority): (u16, u8),
        frame: &mut Frame<B>,
    ) -> Result<Path, DropCause> {
        if let Some(to) = self.bridge.find(now, vlan, frame.header.destination) {
            let member = self.bridge.member(vlan, to).ok_or(DropCause::NoRoute)?;
            dress(frame, vlan, priority, member.tagged);
            return Ok(Path::Port(to));
        }
        let lossless = self.ports.get(usize::from(from));
        let lossless = lossless.is_some_and(|p| p.ingress[usize::from(priority)].pfc.is_some());
        if self.options.drop_incomplete && lossless {
            return Err(DropCause::NoRoute);
        }
        Ok(Path::Flood(vlan))
    }

    /// The link layer: learn the source, find or flood the destination.
    fn switch(
        &mut self,
        now: Instant,
        port: PortId,
        priority: u8,
        frame: &mut Frame<B>,
    ) -> Result<Path, DropCause> {
        let (destination, source) = (frame.header.destination, frame.header.source);
        if is_reserved(destination) {
            return Err(DropCause::NoRoute);
        }
        let vlan = self.bridge.vlan(port, frame.header.tag).ok_or(DropCause::NoRoute)?;
        self.bridge.learn(now, vlan, source, port);
        if is_group(destination) {
            return Ok(Path::Flood(vlan));
        }
        let Some(to) = self.bridge.find(now, vlan, destination) else {
            return Ok(Path::Flood(vlan));
        };
        if to == port {
            return Err(DropCause::Reflection);
        }
        let member = self.bridge.member(vlan, to).ok_or(DropCause::NoRoute)?;
        dress(frame, vlan, priority, member.tagged);
        Ok(Path::Port(to))
    }

    /// Sends a frame to all ports of a VLAN but its own; each copy takes room for itself.
    pub(super) fn flood(&mut self, from: (PortId, u8), vlan: u16, frame: Box<Frame<B>>) {
        let (port, priority) = from;
        let others = self.bridge.members(vlan);
        let is_other = |member: &Member| {
            let up = self.ports.get(usize::from(member.port)).is_some_and(|at| at.up);
            member.port != port && up
        };
        let mut others: Vec<Member> = others.iter().copied().filter(is_other).collect();
        let Some(last) = others.pop() else {
            return self.drop_frame(port, priority, DropCause::NoRoute);
        };
        for member in others {
            let mut copy = frame.clone();
            dress(&mut copy, vlan, priority, member.tagged);
            self.enqueue(from, member.port, copy);
        }
        let mut frame = frame;
        dress(&mut frame, vlan, priority, last.tagged);
        self.enqueue(from, last.port, frame);
    }
}
