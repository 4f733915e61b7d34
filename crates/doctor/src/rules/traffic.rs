//! Counters of the port and its link: a table of what each rule counts, and how much is too much.
//! One reading is judged by the share since the counters began, two by the growth in between.

use crate::catalogue::Rule;
use crate::finding::{Evidence, Finding};
use crate::host::{Counters, Growth};
use crate::rules::{Link, PortCase, grouped, grown};

/// What a rule counts.
struct Counted {
    rule: Rule,
    /// The counters that mean it, of whichever driver.
    names: &'static [&'static str],
    /// With one reading: at least so many …
    floor: u64,
    /// … and more than this share of the packets; 0 if the share does not matter.
    share: f64,
    /// With two readings: at least so many more.
    growth: u64,
    /// The command that looks further; `IF` and `DEV` stand for the names.
    remedy: &'static str,
}

/// Counters of the port: `counters` and `hw_counters`.
const PORT: &[Counted] = &[
    Counted {
        rule: Rule::OutOfSequence,
        names: &[
            "out_of_sequence",
            "packet_seq_err",
            "out_of_seq_request",
            "rcvd_seq_err",
            "seq_err_naks_rcvd",
            "oos_drop_count",
            "req_rx_pkt_seq_err",
            "resp_tx_pkt_seq_err",
        ],
        floor: 100,
        share: 1e-5,
        growth: 10,
        remedy: "ethtool -S IF | grep -E 'discard|drop', and the drop counters of the switch",
    },
    Counted {
        rule: Rule::Timeouts,
        names: &["local_ack_timeout_err", "to_retransmits", "tx_rdma_ack_timeout"],
        floor: 1000,
        share: 1e-6,
        growth: 10,
        remedy: "ethtool -S IF | grep -E 'discard|drop', and the drop counters of the switch",
    },
    Counted {
        rule: Rule::Rnr,
        names: &["rnr_nak_retry_err", "rcvd_rnr_err", "rnr_naks_rcvd"],
        floor: 1000,
        share: 1e-4,
        growth: 100,
        remedy: "post more receives in the program at the peer",
    },
    Counted {
        rule: Rule::ImpliedNak,
        names: &["implied_nak_seq_err", "req_rx_impl_nak_seq_err"],
        floor: 100,
        share: 1e-5,
        growth: 10,
        remedy: "ethtool -S IF | grep -E 'discard|drop', and at the switch towards this port",
    },
    Counted {
        rule: Rule::BadIcrc,
        names: &["rx_icrc_encapsulated"],
        floor: 1,
        share: 0.0,
        growth: 1,
        remedy: "tcpdump -i IF -w icrc.pcap udp port 4791; crocevia audit icrc.pcap",
    },
    Counted {
        rule: Rule::RetriesExceeded,
        names: &[
            "retry_exceeded_err",
            "retry_rnr_exceeded_err",
            "max_retry_exceeded",
            "req_transport_retries_exceeded",
            "req_rnr_retries_exceeded",
        ],
        floor: 1000,
        share: 1e-6,
        growth: 1,
        remedy: "ethtool -S IF | grep -E 'discard|drop', and the drop counters of the switch",
    },
    Counted {
        rule: Rule::OutOfBuffer,
        names: &["out_of_buffer"],
        floor: 100,
        share: 1e-5,
        growth: 10,
        remedy: "post more receives (a deeper receive queue or SRQ) in the program",
    },
    Counted {
        rule: Rule::Discards,
        names: &["rx_roce_discards"],
        floor: 100,
        share: 1e-6,
        growth: 10,
        remedy: "ethtool -S IF | grep -E 'discard|pause'",
    },
    Counted {
        rule: Rule::LinkErrors,
        names: &["symbol_error", "local_link_integrity_errors"],
        floor: 10,
        share: 1e-8,
        growth: 1,
        remedy: "ethtool -m IF; clean or replace cable and transceiver",
    },
];

/// Counters of the link: `ethtool -S`.
const LINK: &[Counted] = &[
    Counted {
        rule: Rule::LinkErrors,
        names: &[
            "rx_symbol_err_phy",
            "rx_crc_errors_phy",
            "rx_fcs_err_frames",
            "frames_rx_bad_fcs",
            "rx_fec_uncorrectable_blocks",
        ],
        floor: 10,
        share: 1e-8,
        growth: 1,
        remedy: "ethtool -m IF; clean or replace cable and transceiver",
    },
    Counted {
        rule: Rule::Discards,
        names: &[
            "rx_discards_phy",
            "rx_prio0_buf_discard",
            "rx_prio1_buf_discard",
            "rx_prio2_buf_discard",
            "rx_prio3_buf_discard",
            "rx_prio4_buf_discard",
            "rx_prio5_buf_discard",
            "rx_prio6_buf_discard",
            "rx_prio7_buf_discard",
            "rx_total_discard_pkts",
        ],
        floor: 100,
        share: 1e-6,
        growth: 10,
        remedy: "ethtool -S IF | grep -E 'discard|pci_stalled|pause'",
    },
    Counted {
        rule: Rule::PauseStorm,
        names: &[
            "tx_pause_storm_warning_events",
            "tx_pause_storm_error_events",
            "continuous_roce_pause_events",
        ],
        floor: 1,
        share: 0.0,
        growth: 1,
        remedy: "ethtool -S IF | grep -E 'pause_storm|pci_stalled'; dmesg; vmstat 1",
    },
];

/// Packets received: the measure of shares.
const RECEIVED: &[&str] = &[
    "port_rcv_packets",
    "rcvd_pkts",
    "rx_pkts",
    "rx_rdma_ucast_pkts",
    "rx_packets_phy",
    "rx_total_frames",
    "frames_rx_all",
    "rx_packets",
];

/// A set of tables, now and before.
struct Tables<'a> {
    now: Vec<&'a Counters>,
    before: Option<Vec<&'a Counters>>,
    seconds: Option<f64>,
}

/// A counter as it is to be judged.
struct Reading {
    /// The events: all, or those in between.
    events: u64,
    /// Whether there may have been more.
    at_least: bool,
    from: String,
}

impl Tables<'_> {
    fn get(&self, name: &str) -> Option<Reading> {
        let (place, now) =
            self.now.iter().enumerate().find_map(|(i, table)| Some((i, table.get(name)?)))?;
        let Some(before) = &self.before else {
            return Some(Reading { events: now.value, at_least: false, from: now.from });
        };
        let grown = grown(name, before.get(place)?, self.now[place])?;
        let at_least = matches!(grown, Growth::AtLeast(_));
        Some(Reading { events: grown.sure(), at_least, from: now.from })
    }

    /// The packets received, by the first counter that has any.
    fn received(&self) -> Option<(&'static str, Reading)> {
        let counts = RECEIVED.iter().filter_map(|name| Some((*name, self.get(name)?)));
        counts.into_iter().find(|(_, reading)| reading.events > 0)
    }

    fn packets(&self) -> Option<u64> {
        self.received().map(|(_, reading)| reading.events)
    }

    /// What shares are of.
    fn measure(&self) -> Option<Evidence> {
        let (name, reading) = self.received()?;
        Some(Evidence::new(name, self.told(&reading), reading.from))
    }

    /// The events as text: how many, how often.
    fn told(&self, reading: &Reading) -> String {
        let least = if reading.at_least { "at least " } else { "" };
        let mut text = format!("{least}{}", grouped(reading.events));
        if self.before.is_some() {
            text.insert(0, '+');
            if let Some(seconds) = self.seconds.filter(|seconds| *seconds > 0.0) {
                let rate = reading.events as f64 / seconds;
                let rate = if rate < 10.0 { format!("{rate:.1}") } else { grouped(rate as u64) };
                text.push_str(&format!(" ({rate}/s)"));
            }
        }
        text
    }

    fn is_too_much(&self, counted: &Counted, events: u64) -> bool {
        let packets = self.packets();
        let beyond = match packets {
            Some(packets) => events as f64 > counted.share * packets as f64,
            // Without a measure only what is never right.
            None => counted.share == 0.0,
        };
        match self.before {
            Some(_) => events >= counted.growth && (packets.is_none() || beyond),
            None => events >= counted.floor && beyond,
        }
    }

    fn judge(&self, rules: &[Counted], (subject, interface): (&str, &str), out: &mut Vec<Finding>) {
        for counted in rules {
            let mut finding = Finding::new(counted.rule, subject);
            for name in counted.names {
                let Some(reading) = self.get(name) else { continue };
                if self.is_too_much(counted, reading.events) {
                    let told = self.told(&reading);
                    finding = finding.with(Evidence::new(*name, told, &reading.from));
                }
            }
            if !finding.found.is_empty() {
                finding.found.extend(self.measure());
                out.push(finding.mend(counted.remedy.replace("IF", interface)));
            }
        }
    }

    fn events(&self, name: &str) -> Option<u64> {
        self.get(name).map(|reading| reading.events)
    }

    fn evidence(&self, name: &str) -> Evidence {
        match self.get(name) {
            Some(reading) => Evidence::new(name, self.told(&reading), &reading.from),
            None => Evidence::new(name, "not there", ""),
        }
    }
}

pub(super) fn judge_port(case: &PortCase<'_>, out: &mut Vec<Finding>) {
    let tables = Tables {
        now: vec![&case.port.hw_counters, &case.port.counters],
        before: case.before().map(|port| vec![&port.hw_counters, &port.counters]),
        seconds: case.samples.seconds,
    };
    let subject = case.subject();
    tables.judge(PORT, (&subject, case.interface()), out);
    congestion(case, &tables, out);
    let flaps = ["link_downed"];
    flapping(&tables, &flaps, case.samples.now.uptime, (&subject, case.interface()), out);
}

pub(super) fn judge_link(link: &Link<'_>, out: &mut Vec<Finding>) {
    let tables = Tables {
        now: vec![&link.interface.statistics],
        before: link.before().map(|interface| vec![&interface.statistics]),
        seconds: link.samples.seconds,
    };
    let subject = link.subject();
    let name = &link.interface.name;
    tables.judge(LINK, (&subject, name), out);
    let flaps = ["link_down_events_phy", "link_down_events"];
    flapping(&tables, &flaps, link.samples.now.uptime, (&subject, name), out);
    stalls(link, out);
}

/// The commands that switch congestion control on, or one part of it where these are two.
fn enable(case: &PortCase<'_>, part: &str) -> String {
    if case.device.is_bnxt() {
        let (device, port) = (&case.device.name, case.port.number);
        let base = format!("/sys/kernel/config/bnxt_re/{device}");
        return format!(
            "mkdir -p {base}; cd {base}/ports/{port}/cc && echo 1 > ecn_enable && echo 1 > apply"
        );
    }
    let priority = case.roce_priority().map_or_else(|| "PRIO".to_owned(), |p| p.to_string());
    format!("echo 1 > /sys/class/net/{}/ecn/{part}/enable/{priority}", case.interface())
}

/// Marks and CNPs: whether the chain from one to the other holds here.
fn congestion(case: &PortCase<'_>, tables: &Tables<'_>, out: &mut Vec<Finding>) {
    const SOME: u64 = 100;
    let pairs =
        [("np_ecn_marked_roce_packets", "np_cnp_sent"), ("rx_ecn_marked_pkts", "tx_cnp_pkts")];
    let there = pairs.into_iter().find(|(marked, _)| tables.events(marked).is_some());
    let (marked, sent) = there.unwrap_or(pairs[0]);
    let (handled, ignored) = ("rp_cnp_handled", "rp_cnp_ignored");
    let enable = |part: &str| enable(case, part);
    if let (Some(marks), Some(cnps)) = (tables.events(marked), tables.events(sent)) {
        let finding = |rule| {
            let mut finding = Finding::new(rule, case.subject())
                .with(tables.evidence(marked))
                .with(tables.evidence(sent));
            finding.found.extend(tables.measure());
            finding
        };
        let packets = tables.packets().unwrap_or(u64::MAX);
        if marks >= SOME && cnps == 0 {
            out.push(finding(Rule::NoCnp).mend(enable("roce_np")));
        } else if tables.before.is_some()
            && marks >= 10 * SOME
            && marks as f64 > 0.3 * packets as f64
        {
            out.push(finding(Rule::CnpNoEffect).mend(
                "at the senders: grep . /sys/class/infiniband/*/ports/*/hw_counters/rp_cnp_*",
            ));
        }
    }
    if let (Some(taken), Some(left)) = (tables.events(handled), tables.events(ignored))
        && left >= SOME
        && left > taken / 10
    {
        out.push(
            Finding::new(Rule::CnpIgnored, case.subject())
                .with(tables.evidence(ignored))
                .with(tables.evidence(handled))
                .mend(enable("roce_rp")),
        );
    }
}

/// Lost links: any in between, or ten and one a day.
fn flapping(
    tables: &Tables<'_>,
    names: &[&str],
    uptime: Option<f64>,
    (subject, interface): (&str, &str),
    out: &mut Vec<Finding>,
) {
    const FLOOR: u64 = 10;
    for name in names {
        let Some(events) = tables.events(name) else { continue };
        let often = match (&tables.before, uptime) {
            (Some(_), _) => events >= 1,
            (None, Some(seconds)) => events >= FLOOR && events as f64 >= seconds / 86_400.0,
            (None, None) => false,
        };
        if often {
            let mut evidence = tables.evidence(name);
            if let (None, Some(seconds)) = (&tables.before, uptime) {
                evidence.value = format!("{events} in {:.1} days", seconds / 86_400.0);
            }
            let remedy = format!("dmesg | grep -i {interface}; ethtool -m {interface}");
            out.push(Finding::new(Rule::LinkFlaps, subject).with(evidence).mend(remedy));
        }
    }
}

/// Percent of the last second in which PCI Express did not take what the NIC had.
fn stalls(link: &Link<'_>, out: &mut Vec<Finding>) {
    const PERCENT: u64 = 5;
    let mut finding = Finding::new(Rule::PcieStalls, link.subject());
    for name in ["outbound_pci_stalled_rd", "outbound_pci_stalled_wr"] {
        let Some(seen) = link.interface.statistics.get(name) else { continue };
        if (PERCENT + 1..=100).contains(&seen.value) {
            let told = format!("{} % of the last second", seen.value);
            finding = finding.with(Evidence::new(name, told, &seen.from));
        }
    }
    if !finding.found.is_empty() {
        let pci = link.port.and_then(|(device, _)| device.pci.as_deref()).unwrap_or("PCI");
        out.push(finding.mend(format!("lspci -vv -s {pci} | grep -E 'LnkSta|MaxReadReq'")));
    }
}
