//! `crocevia demo`: two hosts, which are processes on two loopback addresses, and everything that
//! goes on between them, first on a clean link, then on one that loses packets, beside TCP. Each
//! step is a run of `crocevia perf` in two processes of its own, so that a step that hangs can be
//! ended.

mod steps;
mod tcp;

use std::io::{IsTerminal, stderr};
use std::time::{Duration, Instant};

use comfy_table::{Cell, CellAlignment, LineStyle, Table, TableStyle};
use indicatif::{ProgressBar, ProgressStyle};
use serde::Serialize;

use self::steps::{Figure, Host, Step};
use super::perf::pair;
use super::perf::plan::Test;
use crate::args::DemoArgs;
use crate::error::{Failure, Result};
use crate::render;

pub(crate) use self::tcp::peer as tcp_peer;

/// Time of a step.
const LONG: Duration = Duration::from_millis(1100);
const QUICK: Duration = Duration::from_millis(100);
/// The operations, with their tests of bandwidth and latency.
const OPERATIONS: [(&str, Test, Test); 4] = [
    ("RDMA WRITE", Test::WriteBw, Test::WriteLat),
    ("RDMA READ", Test::ReadBw, Test::ReadLat),
    ("SEND", Test::SendBw, Test::SendLat),
    ("FETCH-AND-ADD", Test::AtomicBw, Test::AtomicLat),
];

/// One line of the result.
#[derive(Serialize)]
struct Line {
    operation: &'static str,
    clean: Cells,
    /// `None` for TCP, whose packets do not pass the device that injects faults.
    faulty: Option<Cells>,
}

/// Bandwidth and latency on one kind of link.
#[derive(Serialize)]
struct Cells {
    bandwidth: Figure,
    latency: Figure,
}

#[derive(Serialize)]
struct Report<'a> {
    hosts: [String; 2],
    faults: &'a str,
    lines: &'a [Line],
    checked_bytes: u64,
    wrong_bytes: u64,
    seconds: f64,
}

/// Shows it.
pub(crate) fn run(args: &DemoArgs) -> Result<()> {
    super::parse_faults(&args.faults).map_err(|failure| failure.within("--faults"))?;
    let start = Instant::now();
    let pair = pair::addresses()?;
    let hosts =
        [("server", pair.server), ("client", pair.client)].map(|(role, addr)| Host { role, addr });
    if !args.json {
        introduce(&hosts)?;
    }
    let time = if args.quick { QUICK } else { LONG };
    let lines = play(&hosts, time, &args.faults, args.json)?;
    let checked = lines.iter().flat_map(Line::figures).map(|figure| figure.checked).sum();
    let seconds = start.elapsed().as_secs_f64();
    if args.json {
        return render::json(&Report {
            hosts: [pair.server, pair.client].map(|addr| addr.to_string()),
            faults: &args.faults,
            lines: &lines,
            checked_bytes: checked,
            wrong_bytes: 0,
            seconds,
        });
    }
    render::text(&format!(
        "{}\n\nBandwidth with messages of {}, latency with {} (fetch-and-add: 8 B). Latency of\n\
         READ and fetch-and-add is a whole round trip, of the others half of one.\n\
         {} went through, every byte was checked, 0 were wrong. {seconds:.0} seconds.\n\
         Next: crocevia perf --help, crocevia run -- ib_write_bw\n",
        table(&lines, &args.faults),
        render::bytes(steps::BW_SIZE.into()),
        render::bytes(steps::LAT_SIZE.into()),
        render::bytes(checked)
    ))
}

impl Line {
    fn figures(&self) -> impl Iterator<Item = &Figure> {
        let cells = std::iter::once(&self.clean).chain(&self.faulty);
        cells.flat_map(|cells| [&cells.bandwidth, &cells.latency])
    }
}

fn introduce(hosts: &[Host; 2]) -> Result<()> {
    let mut out =
        String::from("Two hosts on this machine, each a process with an RDMA device:\n\n");
    for Host { role, addr } in hosts {
        let devices = live::devices(Some(&addr.to_string()))?;
        let device = devices.first().ok_or_else(|| {
            Failure::failed(format!("{addr} has no device: is the loopback interface up?"))
        })?;
        out += &format!("  {role} {addr}:  {}\n", super::link::line(device));
    }
    out.push('\n');
    render::text(&out)
}

/// All steps, in the order of the table.
fn play(hosts: &[Host; 2], time: Duration, faults: &str, silent: bool) -> Result<Vec<Line>> {
    let steps = 2 * (2 * OPERATIONS.len() as u64 + 1);
    let bar = if silent || !stderr().is_terminal() {
        ProgressBar::hidden()
    } else {
        ProgressBar::new(steps)
    };
    if let Ok(style) = ProgressStyle::with_template("  [{bar:30}] {pos}/{len} {msg}") {
        bar.set_style(style.progress_chars("=> "));
    }
    let outcome = play_with(&bar, hosts, time, faults);
    bar.finish_and_clear();
    outcome
}

fn play_with(
    bar: &ProgressBar,
    hosts: &[Host; 2],
    time: Duration,
    faults: &str,
) -> Result<Vec<Line>> {
    let step = |test: Test, faults: Option<&str>| -> Result<Figure> {
        let link = faults.map_or(String::new(), |faults| format!(" with {faults}"));
        let name = format!("{}{link}", test.name());
        bar.set_message(name.clone());
        let figure = Step { hosts, test, time, faults }.run();
        bar.inc(1);
        figure.map_err(|failure| failure.within(&format!("step {name}")))
    };
    let mut lines = Vec::new();
    for (operation, bw, lat) in OPERATIONS {
        let clean = Cells { bandwidth: step(bw, None)?, latency: step(lat, None)? };
        let faulty =
            Cells { bandwidth: step(bw, Some(faults))?, latency: step(lat, Some(faults))? };
        lines.push(Line { operation, clean, faulty: Some(faulty) });
    }
    bar.set_message("TCP");
    let (bandwidth, latency) = tcp::measure(hosts, time).map_err(|f| f.within("step TCP"))?;
    lines.push(Line { operation: "TCP", clean: Cells { bandwidth, latency }, faulty: None });
    Ok(lines)
}

fn table(lines: &[Line], faults: &str) -> Table {
    let mut table = Table::new();
    let rule = LineStyle::none().fill('─').junction('─');
    let style = TableStyle::new().top_border(rule).header_separator(rule).bottom_border(rule);
    table.load_style(style);
    let right = |text: String| Cell::new(text).set_alignment(CellAlignment::Right);
    table.set_header(vec![
        Cell::new("between\nthe two hosts"),
        right("bandwidth\nclean link".into()),
        right("latency µs\nmedian / 99 %".into()),
        right(format!("bandwidth\n{faults}")),
        right("latency µs\nmedian / 99 %".into()),
        right("bytes\nchecked".into()),
    ]);
    for line in lines {
        let checked: u64 = line.figures().map(|figure| figure.checked).sum();
        let mut row = vec![Cell::new(line.operation)];
        for cells in [Some(&line.clean), line.faulty.as_ref()] {
            let texts = cells.map_or(["-".to_owned(), "-".to_owned()], |cells| {
                [&cells.bandwidth, &cells.latency].map(Figure::to_string)
            });
            row.extend(texts.map(right));
        }
        row.push(right(render::bytes(checked)));
        table.add_row(row);
    }
    table
}
