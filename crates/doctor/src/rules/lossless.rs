//! PFC, pause, trust and DCBX of a link: whether RoCE's priority is lossless, and no other.

use crate::catalogue::Rule;
use crate::finding::{Evidence, Finding};
use crate::parse::mlnx_qos::{DcbxMode, Trust};
use crate::rules::{Link, list, priorities, set_pfc};

/// The priority that practice gives to RoCE where nothing else is known.
const USUAL: u8 = 1 << 3;
/// Lossless priorities that switches have buffer for.
const MOST: u32 = 2;

pub(super) fn judge(link: &Link<'_>, out: &mut Vec<Finding>) {
    let Some(pfc) = link.pfc() else { return };
    pause(link, out);
    if pfc.value == 0 {
        return;
    }
    width(link, out);
    trust(link, out);
    mapping(link, out);
    dcbx(link, out);
}

fn is_up(link: &Link<'_>) -> bool {
    link.port.is_none_or(|(_, port)| port.is_active())
}

fn pause(link: &Link<'_>, out: &mut Vec<Finding>) {
    let Some(pfc) = link.pfc() else { return };
    let name = &link.interface.name;
    let pause = link.interface.pause.as_ref();
    let on = |rx: bool| if rx { "on" } else { "off" };
    let evidence = pause.map(|seen| {
        let text = format!("rx {}, tx {}", on(seen.value.rx), on(seen.value.tx));
        Evidence::new("global pause", text, &seen.from)
    });
    let some = pause.is_some_and(|seen| seen.value.rx || seen.value.tx);
    let both = pause.is_some_and(|seen| seen.value.rx && seen.value.tx);
    let enabled = Evidence::new("PFC on priorities", list(&priorities(pfc.value)), &pfc.from);
    let off = format!("ethtool -A {name} autoneg off rx off tx off");
    if pfc.value != 0 && some {
        let mut finding = Finding::new(Rule::PauseAndPfc, link.subject()).with(enabled);
        finding.found.extend(evidence);
        out.push(finding.mend(off));
    } else if pfc.value == 0 && both {
        let mut finding = Finding::new(Rule::GlobalPause, link.subject()).with(enabled);
        finding.found.extend(evidence);
        out.push(finding.mend(format!("{off}; {}", set_pfc(link, wanted(link)))));
    } else if pfc.value == 0 && is_up(link) {
        let mut finding = Finding::new(Rule::NoPfc, link.subject()).with(enabled);
        finding.found.extend(evidence);
        let trust = link.interface.qos.trust.as_ref().map(|seen| seen.value);
        let pfc = set_pfc(link, wanted(link));
        let remedy = if link.is_mlx5() && trust == Some(Trust::Pcp) && !link.has_vlan {
            format!("mlnx_qos -i {name} --trust dscp; {pfc}")
        } else {
            pfc
        };
        out.push(finding.mend(format!("{remedy} (and the same on the switch)")));
    }
}

/// The priorities that should have PFC: those of the neighbour where they are few and RoCE's is
/// among them, else where RoCE's ToS leads, else the usual one.
fn wanted(link: &Link<'_>) -> u8 {
    let roce = link.roce_priority().map_or(USUAL, |priority| 1 << priority.value);
    let neighbour = link.interface.qos.neighbour.as_ref().and_then(|seen| seen.value.pfc);
    neighbour.filter(|mask| mask & roce != 0 && mask.count_ones() <= MOST).unwrap_or(roce)
}

fn width(link: &Link<'_>, out: &mut Vec<Finding>) {
    let Some(pfc) = link.pfc() else { return };
    if pfc.value.count_ones() <= MOST {
        return;
    }
    out.push(
        Finding::new(Rule::PfcTooWide, link.subject())
            .with(Evidence::new("PFC on priorities", list(&priorities(pfc.value)), &pfc.from))
            .mend(set_pfc(link, wanted(link))),
    );
}

fn trust(link: &Link<'_>, out: &mut Vec<Finding>) {
    let (Some(pfc), Some(trust)) = (link.pfc(), &link.interface.qos.trust) else { return };
    let untagged_is_lossless = pfc.value & 1 != 0;
    if trust.value != Trust::Pcp || link.has_vlan || untagged_is_lossless {
        return;
    }
    let name = &link.interface.name;
    let mut finding = Finding::new(Rule::TrustPcp, link.subject())
        .with(Evidence::new("trust state", "pcp", &trust.from))
        .with(Evidence::new("PFC on priorities", list(&priorities(pfc.value)), &pfc.from));
    if let Some(tos) = link.tos() {
        let dscp = format!("{} (DSCP {})", tos.value, tos.value >> 2);
        finding = finding.with(Evidence::new("RoCE's ToS", dscp, &tos.from));
    }
    out.push(finding.mend(if link.is_mlx5() {
        format!("mlnx_qos -i {name} --trust dscp")
    } else {
        format!("dcb apptrust set dev {name} order dscp pcp")
    }));
}

fn mapping(link: &Link<'_>, out: &mut Vec<Finding>) {
    let Some(pfc) = link.pfc() else { return };
    let Some((_, port)) = link.port else { return };
    let qos = &link.interface.qos;
    let Some(tos) = port.tos() else { return };
    let dscp = tos.value >> 2;
    let Some(priority) = qos.priority_of(dscp) else { return };
    if pfc.value & 1 << priority.value != 0 {
        return;
    }
    let name = &link.interface.name;
    let lossless = pfc.value.trailing_zeros();
    let finding = |rule| {
        Finding::new(rule, link.subject())
            .with(Evidence::new("RoCE's ToS", format!("{} (DSCP {dscp})", tos.value), &tos.from))
            .with(Evidence::new(
                format!("priority of DSCP {dscp}"),
                priority.value.to_string(),
                &priority.from,
            ))
            .with(Evidence::new("PFC on priorities", list(&priorities(pfc.value)), &pfc.from))
    };
    if tos.value == 0 {
        // A DSCP that leads to the lossless priority, with ECT(0).
        let dscp = (1..64)
            .find(|dscp| qos.priority_of(*dscp).is_some_and(|p| pfc.value & 1 << p.value != 0));
        let usual = qos.priority_of(26).is_some_and(|p| pfc.value & 1 << p.value != 0);
        let dscp = if usual { Some(26) } else { dscp };
        let remedy = match dscp {
            Some(dscp) => format!("echo {} > {}", (dscp << 2) | 2, tos.from),
            None => format!("mlnx_qos -i {name} --dscp2prio set,26,{lossless}"),
        };
        out.push(finding(Rule::TosUnset).mend(remedy));
    } else {
        out.push(finding(Rule::RoceNotLossless).mend(if link.is_mlx5() {
            format!("mlnx_qos -i {name} --dscp2prio set,{dscp},{lossless}")
        } else {
            format!("dcb app replace dev {name} dscp-prio {dscp}:{lossless}")
        }));
    }
}

fn dcbx(link: &Link<'_>, out: &mut Vec<Finding>) {
    let Some(pfc) = link.pfc() else { return };
    let qos = &link.interface.qos;
    let name = &link.interface.name;
    if let (Some(mode), Some(own)) = (&qos.dcbx, &qos.announced)
        && mode.value == DcbxMode::Firmware
    {
        out.push(
            Finding::new(Rule::DcbxTwice, link.subject())
                .with(Evidence::new("DCBX mode", "the firmware's", &mode.from))
                .with(Evidence::new("lldpad", "announces PFC too", &own.from))
                .mend(format!("lldptool set-lldp -i {name} adminStatus=disabled")),
        );
    }
    let Some(neighbour) = &qos.neighbour else { return };
    if let Some(theirs) = neighbour.value.pfc
        && theirs != pfc.value
    {
        out.push(
            Finding::new(Rule::DcbxPeer, link.subject())
                .with(Evidence::new("PFC here on", list(&priorities(pfc.value)), &pfc.from))
                .with(Evidence::new("PFC there on", list(&priorities(theirs)), &neighbour.from))
                .mend(set_pfc(link, theirs)),
        );
    }
}
