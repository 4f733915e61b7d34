//! `crocevia sim`: a scenario file is read, run, and its outcome shown. What happens in it is
//! decided in the crate `sim`.

pub(crate) mod args;
mod files;
mod tables;

use std::io::IsTerminal;
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressStyle};
use serde::Serialize;
use sim::scenario::Scenario;
use sim::summary::{FlowLine, Summary};
use sim::{Limits, Outcome, World};

use self::args::SimArgs;
use crate::error::{Failure, Result};
use crate::render;

/// Exit code for a file that is wrong.
const WRONG: u8 = 2;

/// A run as JSON.
#[derive(Serialize)]
struct Report<'a> {
    crocevia: &'a str,
    scenario: &'a str,
    seed: u64,
    summary: &'a Summary,
    stuck: &'a [String],
    flows: Vec<FlowLine>,
}

/// Runs a scenario.
pub(crate) fn run(args: &SimArgs) -> Result<()> {
    let name = args.file.display();
    let wrong = |message: String| Failure::Exit(WRONG, message);
    let text = std::fs::read_to_string(&args.file).map_err(|e| wrong(format!("{name}: {e}")))?;
    let scenario = Scenario::read(&text, args.seed)
        .map_err(|e| wrong(format!("{name}:{}: {}", e.line, e.message)))?;
    let available = std::thread::available_parallelism().map_or(1, usize::from);
    let threads = args.threads.unwrap_or(available).max(1);
    let world = World::new(&scenario.network, &scenario.plan, scenario.seed)
        .map_err(|e| wrong(format!("{name}: {e}")))?;
    let start = Instant::now();
    let outcome = watched(world, &scenario, threads, args.quiet);
    let took = start.elapsed();
    let summary = Summary::new(&scenario.network, &scenario.plan, &scenario.groups, &outcome);
    let stuck = stuck(&scenario, &outcome);
    if let Some(dir) = &args.csv {
        files::write(dir, &scenario, &outcome)?;
    }
    show(args, &scenario, &outcome, (&summary, &stuck), took)?;
    if stuck.is_empty() { Ok(()) } else { Err(Failure::Findings) }
}

fn show(
    args: &SimArgs,
    scenario: &Scenario,
    outcome: &Outcome,
    (summary, stuck): (&Summary, &[String]),
    took: Duration,
) -> Result<()> {
    let tables = || tables::show(scenario, summary, stuck, took);
    let Some(place) = &args.json else { return render::text(&tables()) };
    let report = Report {
        crocevia: env!("CARGO_PKG_VERSION"),
        scenario: &scenario.name,
        seed: scenario.seed,
        summary,
        stuck,
        flows: sim::summary::flows(&scenario.network, &scenario.plan, &scenario.groups, outcome),
    };
    if place.as_os_str() == "-" {
        return render::json(&report);
    }
    let mut body = serde_json::to_string_pretty(&report)
        .map_err(|error| Failure::failed(format!("the result has no JSON form: {error}")))?;
    body.push('\n');
    std::fs::write(place, body)
        .map_err(|e| Failure::failed(format!("{}: {e}", place.display())))?;
    render::text(&tables())
}

/// Runs with progress on a terminal: simulated time, flows that have ended, how long it will take.
fn watched(world: World, scenario: &Scenario, threads: usize, quiet: bool) -> Outcome {
    let limits = Limits { until: scenario.until, threads };
    let shown = !quiet && std::io::stderr().is_terminal();
    let bar = if shown { ProgressBar::new(scenario.until.as_ps()) } else { ProgressBar::hidden() };
    let style = "{elapsed_precise} {wide_bar} {percent}% of the time, {msg}, at most {eta} left";
    if let Ok(style) = ProgressStyle::with_template(style) {
        bar.set_style(style);
    }
    let flows = scenario.plan.flows.len();
    let mut last = Instant::now();
    let outcome = world.run(limits, &mut |now, ended| {
        if shown && last.elapsed() > Duration::from_millis(200) {
            last = Instant::now();
            bar.set_position(now.as_ps());
            bar.set_message(format!("{ended} of {flows} flows"));
        }
    });
    bar.finish_and_clear();
    outcome
}

/// What has not ended, by name: a sentence each, the first few.
fn stuck(scenario: &Scenario, outcome: &Outcome) -> Vec<String> {
    const SHOWN: usize = 10;
    let (network, plan) = (&scenario.network, &scenario.plan);
    let mut out = Vec::new();
    if let Some(ring) = &outcome.ring {
        let place =
            |(node, port): &(sim::NodeId, u16)| format!("{} port {port}", network.name(*node));
        let ports: Vec<String> = ring.ports.iter().map(place).collect();
        out.push(format!(
            "PFC deadlock of priority {}: each waits for the next, the last for the first: {}",
            ring.priority,
            ports.join(" -> ")
        ));
    }
    let name = |flow: u32| {
        let ends = plan.flows.get(flow as usize).and_then(|f| f.ends(plan));
        ends.map_or_else(String::new, |(a, b)| {
            format!("flow {flow} from {} to {}", network.name(a), network.name(b))
        })
    };
    let mut begun = vec![false; plan.flows.len()];
    let mut open = Vec::new();
    for record in &outcome.flows {
        if let Some(place) = begun.get_mut(record.flow as usize) {
            *place = true;
        }
        match record.failed {
            Some((at, status)) => open.push(format!(
                "{} failed at {:.3} us: {status:?}",
                name(record.flow),
                at.as_ps() as f64 / 1e6
            )),
            None if record.ended.is_none() => {
                open.push(format!("{} has not ended", name(record.flow)));
            }
            None => {}
        }
    }
    let never = begun.iter().filter(|begun| !**begun).count();
    if never > 0 {
        open.push(format!("{never} flows have not begun"));
    }
    let more = open.len().saturating_sub(SHOWN);
    out.extend(open.into_iter().take(SHOWN));
    if more > 0 {
        out.push(format!("and {more} more"));
    }
    out
}
