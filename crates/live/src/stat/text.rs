//! An answer as lines of text: what a device, its link and its queue pairs have counted. A reader
//! skips what it does not know, so that a command understands processes of other versions.

use std::fmt::Write;
use std::time::Duration;

use engine::{QpReport, QpState, QpType};
use wire::Gid;

use super::{END, HELLO, Snapshot};
use crate::info::DeviceInfo;

/// What a device of a process has told.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct DeviceStat {
    /// The process.
    pub pid: u32,
    /// Its user.
    pub uid: u32,
    /// Name of its program, as the system has it.
    pub command: String,
    /// The device, such as `crocevia0`.
    pub device: String,
    /// The interface beneath.
    pub netdev: String,
    /// Addresses of the device, in the order of the GID table.
    pub addresses: Vec<String>,
    /// Active MTU of the port, in bytes.
    pub mtu: u64,
    /// How long the device has been open.
    pub uptime: Duration,
    /// How many objects of each kind there are.
    pub objects: Vec<(String, u64)>,
    /// Counters of the device, as [`engine::Counters`].
    pub counters: Vec<(String, u64)>,
    /// Counters of its link, as [`LinkCounters`](crate::LinkCounters).
    pub link: Vec<(String, u64)>,
    /// Its queue pairs, if they were asked for.
    pub qps: Vec<QpStat>,
}

/// What a queue pair has told.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct QpStat {
    /// Its number.
    pub qpn: u32,
    /// What it is and how it stands, as names and values: `type`, `state`, `peer`, PSNs, queues.
    pub facts: Vec<(String, String)>,
    /// Its counters, as [`engine::QpCounters`].
    pub counters: Vec<(String, u64)>,
}

impl DeviceStat {
    /// A counter of the device; 0 if it has none of this name.
    pub fn counter(&self, name: &str) -> u64 {
        find(&self.counters, name)
    }

    /// A counter of its link; 0 if it has none of this name.
    pub fn link_counter(&self, name: &str) -> u64 {
        find(&self.link, name)
    }
}

impl QpStat {
    /// A counter; 0 if it has none of this name.
    pub fn counter(&self, name: &str) -> u64 {
        find(&self.counters, name)
    }

    /// What it tells of itself under this name.
    pub fn fact(&self, name: &str) -> Option<&str> {
        self.facts.iter().find(|(n, _)| n == name).map(|(_, value)| value.as_str())
    }
}

fn find(counters: &[(String, u64)], name: &str) -> u64 {
    counters.iter().find(|(n, _)| n == name).map_or(0, |(_, value)| *value)
}

/// The lines about process and device, without their end.
pub(super) fn head(out: &mut String, command: &str, info: &DeviceInfo, snapshot: &Snapshot) {
    let _ = writeln!(out, "{HELLO}\ncommand {}", clean(command));
    let _ = writeln!(out, "device {}\nnetdev {}", clean(&info.name), clean(&info.netdev.name));
    for entry in info.gids.iter().filter(|entry| !entry.gid.is_zero()) {
        let _ = writeln!(out, "address {}", entry.gid.to_ip());
    }
    let _ = writeln!(out, "mtu {}\nuptime_ns {}", info.mtu.bytes(), snapshot.uptime.as_nanos());
    let o = &snapshot.objects;
    for (name, value) in
        [("qps", o.qps), ("cqs", o.cqs), ("srqs", o.srqs), ("departed_qps", o.departed)]
    {
        let _ = writeln!(out, "objects {name} {value}");
    }
    for (name, value) in snapshot.counters.iter() {
        let _ = writeln!(out, "counter {name} {value}");
    }
    for (name, value) in snapshot.link.iter() {
        let _ = writeln!(out, "link {name} {value}");
    }
}

/// The line about a queue pair; counters that are 0 are left out.
pub(super) fn qp(out: &mut String, qp: &QpReport) {
    let kind = match qp.qp_type {
        QpType::Rc => "RC",
        QpType::Uc => "UC",
        QpType::Ud => "UD",
        QpType::Gsi => "GSI",
        QpType::XrcSend => "XRC_SEND",
        QpType::XrcRecv => "XRC_RECV",
    };
    let state = match qp.state {
        QpState::Reset => "RESET",
        QpState::Init => "INIT",
        QpState::Rtr => "RTR",
        QpState::Rts => "RTS",
        QpState::Sqd => "SQD",
        QpState::Sqe => "SQE",
        QpState::Err => "ERR",
    };
    let _ = write!(out, "qp {} type={kind} state={state} mtu={}", qp.qpn.get(), qp.mtu);
    if let Some((own, peer)) = qp.path {
        let _ = write!(out, " local={} peer={}", address(own), address(peer));
    }
    if let Some(peer) = qp.dest_qp {
        let _ = write!(out, " peer_qpn={}", peer.get());
    }
    let _ = write!(
        out,
        " sq_psn={} acked_psn={} rq_psn={} msn={} in_flight={} send_queue={} send_queue_max={}",
        qp.next.get(),
        qp.unacknowledged.get(),
        qp.expected.get(),
        qp.msn.get(),
        qp.in_flight,
        qp.send_queue.0,
        qp.send_queue.1,
    );
    let _ = match qp.srq {
        Some(srq) => write!(out, " srq={}", srq.0),
        None => {
            let (posted, most) = qp.recv_queue;
            write!(out, " recv_queue={posted} recv_queue_max={most}")
        }
    };
    let _ = write!(
        out,
        " send_cq={} recv_cq={} retries_left={} peer_not_ready={}",
        qp.send_cq.0,
        qp.recv_cq.0,
        qp.retries_left,
        u8::from(qp.peer_not_ready)
    );
    out.push_str(" counters");
    for (name, value) in qp.counters.iter().filter(|(_, value)| *value > 0) {
        let _ = write!(out, " {name}={value}");
    }
    out.push('\n');
}

fn address(gid: Gid) -> String {
    gid.to_ip().to_string()
}

/// The last line.
pub(super) fn end(out: &mut String) {
    out.push_str(END);
    out.push('\n');
}

/// Text for one line, and for a terminal: whatever could be a command to either is replaced.
pub(super) fn clean(text: &str) -> String {
    text.chars().map(|c| if c.is_control() { '?' } else { c }).collect()
}

/// Longest text taken from a process.
const LONGEST: usize = 256;

/// Why bytes are no answer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum NotAnAnswer {
    /// They are the beginning of one.
    Cut,
    /// They mean something else, or nothing.
    Foreign,
}

/// The answer that bytes are. Process and user are not the answer's to tell.
pub(super) fn parse(bytes: &[u8]) -> Result<DeviceStat, NotAnAnswer> {
    let text = String::from_utf8_lossy(bytes);
    let Some((first, rest)) = text.split_once('\n') else {
        return Err(match HELLO.starts_with(&*text) {
            true => NotAnAnswer::Cut,
            false => NotAnAnswer::Foreign,
        });
    };
    if first != HELLO {
        return Err(NotAnAnswer::Foreign);
    }
    let body = rest.strip_suffix('\n').and_then(|rest| rest.strip_suffix(END));
    let body = body.filter(|body| body.ends_with('\n')).ok_or(NotAnAnswer::Cut)?;
    parse_lines(body.lines()).ok_or(NotAnAnswer::Foreign)
}

fn parse_lines<'a>(lines: impl Iterator<Item = &'a str>) -> Option<DeviceStat> {
    let mut stat = DeviceStat::default();
    for line in lines {
        let (key, rest) = line.split_once(' ').unwrap_or((line, ""));
        let text = || clean(rest).chars().take(LONGEST).collect::<String>();
        match key {
            "command" => stat.command = text(),
            "device" => stat.device = text(),
            "netdev" => stat.netdev = text(),
            "address" => stat.addresses.push(text()),
            "mtu" => stat.mtu = rest.parse().ok()?,
            "uptime_ns" => stat.uptime = Duration::from_nanos(rest.parse().ok()?),
            "objects" => stat.objects.push(named(rest, ' ')?),
            "counter" => stat.counters.push(named(rest, ' ')?),
            "link" => stat.link.push(named(rest, ' ')?),
            "qp" => stat.qps.push(parse_qp(rest)?),
            _ => {}
        }
    }
    Some(stat)
}

fn parse_qp(line: &str) -> Option<QpStat> {
    let (qpn, rest) = line.split_once(' ')?;
    let mut words = rest.split(' ');
    let facts = words.by_ref().take_while(|word| *word != "counters").map(|word| {
        let (name, value) = word.split_once('=')?;
        Some((name_of(name)?, clean(value).chars().take(LONGEST).collect()))
    });
    let facts = facts.collect::<Option<Vec<(String, String)>>>()?;
    // What a queue pair has not counted is not in its line.
    let mut counters: Vec<(String, u64)> = engine::QpCounters::default()
        .iter()
        .map(|(name, value)| (name.to_owned(), value))
        .collect();
    for word in words.filter(|word| !word.is_empty()) {
        let (name, value) = named(word, '=')?;
        match counters.iter_mut().find(|(n, _)| *n == name) {
            Some(counter) => counter.1 = value,
            None => counters.push((name, value)),
        }
    }
    Some(QpStat { qpn: qpn.parse().ok()?, facts, counters })
}

fn named(text: &str, separator: char) -> Option<(String, u64)> {
    let (name, value) = text.split_once(separator)?;
    Some((name_of(name)?, value.parse().ok()?))
}

/// A name as our own are: it becomes a member of JSON and a part of a metric's name.
fn name_of(name: &str) -> Option<String> {
    let good = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_';
    let starts = name.starts_with(|c: char| c.is_ascii_lowercase());
    (starts && name.len() <= LONGEST && name.chars().all(good)).then(|| name.to_owned())
}
