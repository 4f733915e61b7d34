//! The port itself: whether it has a link, how fast, and PCI Express behind it.

use crate::catalogue::{Rule, Severity};
use crate::finding::{Evidence, Finding};
use crate::host::{Asked, Device, Interface};
use crate::rules::PortCase;

pub(super) fn judge(case: &PortCase<'_>, ports: usize, asked: &Asked, out: &mut Vec<Finding>) {
    down(case, ports, asked, out);
    if case.device.is_software() {
        return;
    }
    for interface in &case.physical {
        slow(case, interface, out);
    }
    pcie(case, out);
}

fn down(case: &PortCase<'_>, ports: usize, asked: &Asked, out: &mut Vec<Finding>) {
    let Some(state) = &case.port.state else { return };
    if case.port.is_active() {
        return;
    }
    let own = |name: &String| case.logical.iter().chain(&case.physical).any(|i| i.name == *name);
    let asked_for = asked.device.is_some() || asked.interface.as_ref().is_some_and(own);
    if ports > 1 && !asked_for && !(case.is_wanted() && case.has_address()) {
        // One of several, with nothing that says that it is to be used.
        return;
    }
    let mut finding = Finding::new(Rule::PortDown, case.subject());
    finding = finding.with(Evidence::of("state", state));
    if let Some(phys) = &case.port.phys_state {
        finding = finding.with(Evidence::of("physical state", phys));
    }
    for interface in &case.physical {
        if let Some(state) = &interface.operstate {
            finding = finding.with(Evidence::of(format!("{} is", interface.name), state));
        }
    }
    let others_up = ports > 1 && !asked_for;
    let name = case.interface();
    let set_down = case
        .physical
        .iter()
        .any(|interface| interface.admin_up.as_ref().is_some_and(|seen| !seen.value));
    let remedy = if set_down {
        format!("ip link set dev {name} up")
    } else {
        format!("ethtool {name}; ethtool -m {name} (cable, transceiver, switch port)")
    };
    let severity = if others_up { Severity::Warning } else { Severity::Error };
    out.push(finding.at(severity).mend(remedy));
}

fn slow(case: &PortCase<'_>, interface: &Interface, out: &mut Vec<Finding>) {
    let Some(modes) = &interface.modes else { return };
    let Some(speed) = interface.speed.as_ref().or(case.port.rate.as_ref()) else { return };
    let Some(supported) = modes.value.supported else { return };
    if !case.port.is_active() || speed.value >= supported {
        return;
    }
    let held_back = modes.value.advertised.is_some_and(|advertised| advertised < supported);
    let best = modes.value.partner.map(|partner| partner.min(supported));
    if best.is_some_and(|best| best <= speed.value) && !held_back {
        // The other side has no more.
        return;
    }
    let rate = |mbps: u64| format!("{} Gb/s", mbps as f64 / 1000.0);
    let mut finding = Finding::new(Rule::LinkSlow, case.subject())
        .with(Evidence::new("speed", rate(speed.value), &speed.from))
        .with(Evidence::new("supported", rate(supported), &modes.from));
    for (what, mode) in
        [("offered", modes.value.advertised), ("offered by the peer", modes.value.partner)]
    {
        if let Some(mode) = mode {
            finding = finding.with(Evidence::new(what, rate(mode), &modes.from));
        }
    }
    let sure = held_back || best.is_some_and(|best| best > speed.value);
    let severity = if sure { Severity::Warning } else { Severity::Note };
    let name = &interface.name;
    out.push(finding.at(severity).mend(format!("ethtool -s {name} autoneg on; ethtool {name}")));
}

fn pcie(case: &PortCase<'_>, out: &mut Vec<Finding>) {
    let pcie = &case.device.pcie;
    let address = case.device.pci.as_deref().unwrap_or("PCI");
    let remedy =
        format!("lspci -vv -s {address} | grep -E 'LnkCap|LnkSta'; move or reseat the card");
    let (Some(speed), Some(width)) = (&pcie.speed, &pcie.width) else { return };
    let link = [
        Evidence::new("speed", format!("{} GT/s", speed.value), &speed.from),
        Evidence::new("lanes", width.value.to_string(), &width.from),
    ];
    let most = [
        pcie.max_speed
            .as_ref()
            .map(|max| Evidence::new("at best", format!("{} GT/s", max.value), &max.from)),
        pcie.max_width
            .as_ref()
            .map(|max| Evidence::new("lanes at best", max.value.to_string(), &max.from)),
    ];
    let finding = |rule| {
        let mut finding = Finding::new(rule, case.subject());
        finding.found.extend(link.clone());
        finding.found.extend(most.iter().flatten().cloned());
        finding.mend(remedy.clone())
    };
    let rate = case.port.rate.as_ref().filter(|_| case.port.is_active());
    if let (Some(gbps), Some(rate)) = (pcie.gbps(), rate)
        && gbps * 1000.0 < rate.value as f64
    {
        let carries = format!("{gbps:.0} Gb/s");
        let mut found = finding(Rule::PcieTooSlow);
        found.found.push(Evidence::new("which carry", carries, &speed.from));
        let rate_gbps = format!("{} Gb/s", rate.value as f64 / 1000.0);
        out.push(found.with(Evidence::new("port", rate_gbps, &rate.from)));
    } else if pcie.max_width.as_ref().is_some_and(|max| width.value < max.value) {
        out.push(finding(Rule::PcieReduced));
    } else if pcie.max_speed.as_ref().is_some_and(|max| speed.value < max.value)
        && let (Some(gbps), Some(together)) = (pcie.gbps(), ports_of_card(case))
        && gbps * 1000.0 < together as f64
    {
        let evidence = [
            Evidence::new("which carry", format!("{gbps:.0} Gb/s"), &speed.from),
            Evidence::new("ports of the card", format!("{} Gb/s", together / 1000), "their rates"),
        ];
        let mut found = finding(Rule::PcieReduced);
        found.found.extend(evidence);
        out.push(found);
    }
}

/// The rates of all ports with a link of the card, whose functions differ behind the dot of the PCI
/// address, Mb/s.
fn ports_of_card(case: &PortCase<'_>) -> Option<u64> {
    fn card(device: &Device) -> Option<&str> {
        Some(device.pci.as_deref()?.split('.').next().unwrap_or_default())
    }
    let own = card(case.device)?;
    let devices = case.samples.now.devices.iter().filter(|device| card(device) == Some(own));
    let ports = devices.flat_map(|device| &device.ports).filter(|port| port.is_active());
    Some(ports.filter_map(|port| port.rate.as_ref()).map(|rate| rate.value).sum())
}
