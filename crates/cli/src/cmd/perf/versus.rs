//! `--vs`: the RDMA test beside its rivals over the same two addresses, in turn, for some rounds;
//! medians, spread and ratio, as a table and for JSON. How a rival is measured is in `rival`.

use std::fmt::{self, Write};

use clap::ValueEnum;
use serde::{Deserialize, Serialize};

use super::report::{Checked, Row};
use super::rival;
use super::session::Session;
use crate::error::Result;
use crate::render;

/// What RDMA is measured against.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Rival {
    Tcp,
    Udp,
}

impl Rival {
    /// The name on the command line.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Tcp => "tcp",
            Self::Udp => "udp",
        }
    }
}

/// The comparison that was asked for.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(crate) struct Vs {
    /// In the order of their names, each once.
    pub(crate) rivals: Vec<Rival>,
    /// How often each is measured, each size.
    pub(crate) rounds: u32,
}

impl Vs {
    /// `rivals` as they stand on the command line; `None` without any.
    pub(crate) fn new(mut rivals: Vec<Rival>, rounds: u32) -> Option<Self> {
        rivals.sort_unstable();
        rivals.dedup();
        (!rivals.is_empty()).then_some(Self { rivals, rounds })
    }
}

impl fmt::Display for Vs {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names: Vec<&str> = self.rivals.iter().map(|rival| rival.name()).collect();
        write!(f, "{} --rounds {}", names.join(","), self.rounds)
    }
}

/// What one round of a rival gave.
#[derive(Clone, Copy, PartialEq, Debug, Default, Serialize, Deserialize)]
pub(crate) struct Figure {
    /// In the unit of the RDMA test: MB/s (2^20 bytes), or µs.
    pub(crate) value: f64,
    /// Datagrams that did not arrive, or messages that were sent again.
    pub(crate) lost: u64,
}

/// One contender at one size.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub(crate) struct Line {
    pub(crate) bytes: u32,
    /// `rdma`, or a rival's name.
    pub(crate) over: String,
    pub(crate) median: f64,
    pub(crate) min: f64,
    pub(crate) max: f64,
    /// The rounds, in their order.
    pub(crate) rounds: Vec<f64>,
    /// Median of RDMA by that of the rival.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub(crate) ratio: Option<f64>,
    pub(crate) lost: u64,
}

/// The whole comparison.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
pub(crate) struct Table {
    /// `MB/s` (2^20 bytes) or `us`.
    pub(crate) unit: String,
    pub(crate) lines: Vec<Line>,
    /// What has no figure, and why.
    pub(crate) notes: Vec<String>,
}

impl Table {
    /// An empty table of latencies or bandwidths.
    pub(crate) fn new(is_latency: bool) -> Self {
        let unit = if is_latency { "us" } else { "MB/s" };
        Self { unit: unit.to_owned(), ..Self::default() }
    }

    /// As text, to stand below the results.
    pub(crate) fn text(&self) -> String {
        let latency = self.unit == "us";
        let unit = if latency { "usec" } else { "MB/sec" };
        let mut out = format!(
            " {:<10} {:<8} {:<18} {:<14} {:<14} {:<12} RDMA/rival\n",
            "#bytes",
            "over",
            format!("median[{unit}]"),
            format!("min[{unit}]"),
            format!("max[{unit}]"),
            "spread[%]"
        );
        for line in &self.lines {
            let spread = 100.0 * (line.max - line.min) / line.median.max(f64::MIN_POSITIVE);
            let ratio = line.ratio.map_or("-".to_owned(), |ratio| format!("{ratio:.3}"));
            let _ = writeln!(
                out,
                " {:<10} {:<8} {:<18.2} {:<14.2} {:<14.2} {spread:<12.1} {ratio}",
                line.bytes, line.over, line.median, line.min, line.max
            );
            if line.lost > 0 && line.over != "rdma" {
                let _ = writeln!(out, "  {}", lost(latency, line.lost));
            }
        }
        let rounds = self.lines.first().map_or(0, |line| line.rounds.len()) as u64;
        let faster = if latency { "below" } else { "above" };
        let _ = writeln!(
            out,
            " {} in turn; RDMA is faster where the ratio is {faster} 1; the row above is the \
             middle round",
            render::count(rounds, "round")
        );
        for note in &self.notes {
            let _ = writeln!(out, " {note}");
        }
        out
    }

    fn add(&mut self, bytes: u32, over: &str, figures: &[Figure], rdma: Option<f64>) -> f64 {
        let rounds: Vec<f64> = figures.iter().map(|figure| figure.value).collect();
        let mut sorted = rounds.clone();
        sorted.sort_by(f64::total_cmp);
        let half = sorted.len() / 2;
        let median = match sorted.get(half) {
            None => return 0.0,
            Some(&upper) if sorted.len() % 2 == 1 => upper,
            Some(&upper) => f64::midpoint(sorted[half - 1], upper),
        };
        self.lines.push(Line {
            bytes,
            over: over.to_owned(),
            median,
            min: sorted[0],
            max: sorted[sorted.len() - 1],
            rounds,
            ratio: rdma.filter(|_| median > 0.0).map(|rdma| rdma / median),
            lost: figures.iter().map(|figure| figure.lost).sum(),
        });
        median
    }
}

fn lost(latency: bool, n: u64) -> String {
    if latency {
        format!("{} sent again after 100 ms of silence; not in the times", render::count(n, "time"))
    } else {
        format!("{} lost on the way", render::count(n, "datagram"))
    }
}

/// Measures one size by all contenders in turn, RDMA by `rdma`. The middle row of RDMA's.
pub(crate) fn measure(
    session: &mut Session,
    size: u32,
    vs: &Vs,
    rdma: impl Fn(&mut Session, u32) -> Result<(Row, Checked)>,
    table: &mut Table,
) -> Result<(Row, Checked)> {
    let (mut rows, mut total) = (Vec::new(), Checked::default());
    let mut figures = vec![Vec::new(); vs.rivals.len()];
    for _ in 0..vs.rounds {
        let (row, checked) = rdma(session, size)?;
        total.messages += checked.messages;
        total.bytes += checked.bytes;
        rows.push(row);
        for (&rival, figures) in vs.rivals.iter().zip(&mut figures) {
            if rival::unfit(session, rival, size).is_none() {
                figures.push(rival::measure(session, rival, size)?);
            }
        }
    }
    let own: Vec<Figure> = rows.iter().map(figure).collect();
    let median = table.add(size, "rdma", &own, None);
    for (&rival, figures) in vs.rivals.iter().zip(&figures) {
        table.add(size, rival.name(), figures, Some(median));
        let note = rival::unfit(session, rival, size);
        table.notes.extend(note.filter(|note| !table.notes.contains(note)));
    }
    rows.sort_by(|a, b| figure(a).value.total_cmp(&figure(b).value));
    let middle = (rows.len() - 1) / 2;
    Ok((rows.swap_remove(middle), total))
}

/// What of a row is compared: the mean bandwidth, the median latency.
fn figure(row: &Row) -> Figure {
    match row {
        Row::Bw(bw) => Figure { value: bw.bw_average, lost: bw.lost },
        Row::Lat(lat) => Figure { value: lat.t_typical, lost: lat.lost },
    }
}
