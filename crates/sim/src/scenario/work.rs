//! From the workloads of a scenario file to connections and flows.

use toml::Spanned;
use wire::{Instant, Span};

use super::file::{Algorithm, File, VerbName, Work, Workload};
use super::{ScenarioError, Text};
use crate::draw::Sizes;
use crate::network::{Network, NodeId};
use crate::plan::{Plan, Verb};
use crate::workload::{AllReduce, Manner, Planner};

type Outcome<T> = Result<T, ScenarioError>;

/// Adds all workloads; their names.
pub(super) fn plan(
    at: Text<'_>,
    file: &File,
    network: &Network,
    plan: &mut Plan,
) -> Outcome<Vec<String>> {
    let mut groups = Vec::new();
    for (index, workload) in file.workload.iter().enumerate() {
        let w = workload.get_ref();
        let entry = Entry { at, workload, network };
        let manner = entry.manner(index as u16)?;
        let mut planner = Planner::new(plan, manner, file.seed, index as u64);
        entry.add(&mut planner)?;
        groups.push(w.name.clone().unwrap_or_else(|| format!("{:?}{index}", w.kind)));
    }
    Ok(groups)
}

/// A DSCP in a field.
pub(super) fn dscp(at: Text<'_>, field: &str, value: &Spanned<u8>) -> Outcome<u8> {
    bounded(at, field, value, 63)
}

fn bounded(at: Text<'_>, field: &str, value: &Spanned<u8>, most: u8) -> Outcome<u8> {
    let n = *value.get_ref();
    if n <= most {
        return Ok(n);
    }
    Err(at.error(value.span(), format!("{field}: expected 0 to {most}, found {n}")))
}

struct Entry<'a> {
    at: Text<'a>,
    workload: &'a Spanned<Workload>,
    network: &'a Network,
}

impl Entry<'_> {
    fn w(&self) -> &Workload {
        self.workload.get_ref()
    }

    fn missing(&self, field: &str) -> ScenarioError {
        let message = format!("workload.{field}: missing, {:?} needs it", self.w().kind);
        self.at.error(self.workload.span(), message)
    }

    fn manner(&self, group: u16) -> Outcome<Manner> {
        let (w, plain) = (self.w(), Manner::default());
        let small = |field: &str, value: &Option<Spanned<u8>>, most: u8, none: u8| match value {
            Some(value) => bounded(self.at, field, value, most),
            None => Ok(none),
        };
        Ok(Manner {
            verb: match w.verb {
                VerbName::Write => Verb::Write,
                VerbName::Read => Verb::Read,
                VerbName::Send => Verb::Send,
            },
            dscp: small("workload.dscp", &w.dscp, 63, plain.dscp)?,
            timeout: small("workload.timeout", &w.timeout, 31, plain.timeout)?,
            retries: small("workload.retries", &w.retries, 7, plain.retries)?,
            start: Instant::ZERO + w.start.map_or(Span::ZERO, |s| s.0),
            group,
        })
    }

    /// Hosts that a field names: names, `h0..h7` (both included), `rack1*`.
    fn hosts(&self, field: &str, list: &Option<Spanned<Vec<String>>>) -> Outcome<Vec<NodeId>> {
        let list = list.as_ref().ok_or_else(|| self.missing(field))?;
        let mut out = Vec::new();
        for name in list.get_ref() {
            let found = find(self.network, name);
            if found.is_empty() {
                let hosts = self.network.hosts.len();
                let first = self.network.hosts.first().map_or("", |h| h.name.as_str());
                let last = self.network.hosts.last().map_or("", |h| h.name.as_str());
                let message = format!(
                    "workload.{field}: there is no host `{name}`; the {hosts} hosts are {first} \
                     to {last}"
                );
                return Err(self.at.error(list.span(), message));
            }
            out.extend(found);
        }
        Ok(out)
    }

    /// The hosts of the field `hosts`, or all.
    fn members(&self) -> Outcome<Vec<NodeId>> {
        match &self.w().hosts {
            None => Ok((0..self.network.hosts.len() as u32).map(NodeId).collect()),
            some => self.hosts("hosts", some),
        }
    }

    fn bytes(&self) -> Outcome<u64> {
        self.w().bytes.map(|b| b.0).ok_or_else(|| self.missing("bytes"))
    }

    fn add(&self, planner: &mut Planner<'_>) -> Outcome<()> {
        let w = self.w();
        match w.kind {
            Work::Stream => {
                let (from, to) = (self.hosts("from", &w.from)?, self.hosts("to", &w.to)?);
                let shape = (w.message.map_or(0, |m| m.0) as u32, w.depth.unwrap_or(1));
                for index in 0..from.len().max(to.len()) {
                    let (a, b) = (from[index % from.len()], to[index % to.len()]);
                    self.differ(a, b)?;
                    planner.stream(a, b, self.bytes()?, shape);
                }
            }
            Work::Incast => {
                for sink in self.hosts("to", &w.to)? {
                    planner.incast(&self.hosts("from", &w.from)?, sink, self.bytes()?);
                }
            }
            Work::Permutation => planner.permutation(&self.members()?, self.bytes()?),
            Work::Poisson => self.poisson(planner)?,
            Work::AllReduce => {
                let algorithm = match w.algorithm {
                    Algorithm::Ring => AllReduce::Ring,
                    Algorithm::HalvingDoubling => AllReduce::HalvingDoubling,
                    Algorithm::Tree => AllReduce::Tree,
                };
                let done = planner.all_reduce(&self.members()?, self.bytes()?, algorithm);
                done.map_err(|m| self.at.error(self.workload.span(), format!("workload: {m}")))?;
            }
            Work::AllToAll => planner.all_to_all(&self.members()?, self.bytes()?),
            Work::RequestResponse => {
                let bytes = (self.bytes()?, w.response.map_or(64, |b| b.0));
                let think = w.think.map_or(Span::ZERO, |t| t.0);
                let (from, to) = (self.hosts("from", &w.from)?, self.hosts("to", &w.to)?);
                for (index, &client) in from.iter().enumerate() {
                    let server = to[index % to.len()];
                    self.differ(client, server)?;
                    planner.request_response((client, server), bytes, w.count.unwrap_or(1), think);
                }
            }
            Work::Storage => self.storage(planner)?,
        }
        Ok(())
    }

    fn differ(&self, a: NodeId, b: NodeId) -> Outcome<()> {
        if a != b {
            return Ok(());
        }
        let message = format!("workload: from {} to itself", self.network.name(a));
        Err(self.at.error(self.workload.span(), message))
    }

    fn poisson(&self, planner: &mut Planner<'_>) -> Outcome<()> {
        let w = self.w();
        let name = w.sizes.as_ref().ok_or_else(|| self.missing("sizes"))?;
        let sizes = Sizes::named(name.get_ref()).ok_or_else(|| {
            let message = format!(
                "workload.sizes: expected web-search, hadoop or storage, found `{}`",
                name.get_ref()
            );
            self.at.error(name.span(), message)
        })?;
        let load = w.load.ok_or_else(|| self.missing("load"))?;
        let lasts = w.lasts.ok_or_else(|| self.missing("lasts"))?;
        let hosts = self.members()?;
        let first = hosts.first().map_or(0, |h| h.0);
        let cable = self.network.cables.iter().find(|c| c.a.0 == first || c.b.0 == first);
        let Some(rate) = cable.map(|c| c.rate) else { return Ok(()) };
        planner.poisson(&hosts, sizes, (rate, load.0), lasts.0);
        Ok(())
    }

    /// Clients `from`, servers `to`; a server's replicas are the servers behind it, in turn.
    fn storage(&self, planner: &mut Planner<'_>) -> Outcome<()> {
        let w = self.w();
        let (from, to) = (self.hosts("from", &w.from)?, self.hosts("to", &w.to)?);
        let copies = w.replicas.unwrap_or(2) as usize;
        if copies >= to.len() {
            let message = format!(
                "workload.replicas: {copies} besides the first need {} servers in `to`, found {}",
                copies + 1,
                to.len()
            );
            return Err(self.at.error(self.workload.span(), message));
        }
        for (index, &client) in from.iter().enumerate() {
            let server = to[index % to.len()];
            self.differ(client, server)?;
            let replicas: Vec<_> = (1..=copies).map(|c| to[(index + c) % to.len()]).collect();
            planner.storage(client, server, &replicas, (self.bytes()?, w.count.unwrap_or(1)));
        }
        Ok(())
    }
}

fn find(network: &Network, name: &str) -> Vec<NodeId> {
    let all = network.hosts.iter().enumerate();
    let id = |(index, _): (usize, &crate::HostSpec)| NodeId(index as u32);
    if let Some((first, last)) = name.split_once("..") {
        let place = |name: &str| network.hosts.iter().position(|h| h.name == name);
        let (Some(first), Some(last)) = (place(first), place(last)) else { return Vec::new() };
        return (first..=last).map(|index| NodeId(index as u32)).collect();
    }
    match name.strip_suffix('*') {
        Some(prefix) => all.filter(|(_, h)| h.name.starts_with(prefix)).map(id).collect(),
        None => all.filter(|(_, h)| h.name == name).map(id).collect(),
    }
}
