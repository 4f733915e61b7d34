//! `crocevia doctor`: which host is read, once or twice, and how its report is shown. What is wrong
//! with it is decided in the crate `doctor`.

pub(crate) mod args;
mod directory;
mod record;
mod running;

use std::time::Instant;

use doctor::{Asked, Finding, Host, Recorder, Report, Rule, Samples, Severity, Source, is_name};

use self::args::DoctorArgs;
use self::directory::Directory;
use self::running::Running;
use crate::error::{Failure, Result};
use crate::render;

/// Exit code when there is nothing to read.
const UNREADABLE: u8 = 2;

/// Looks at a host.
pub(crate) fn run(args: &DoctorArgs) -> Result<()> {
    told(args).map_err(Failure::not_a_finding)
}

fn told(args: &DoctorArgs) -> Result<()> {
    if let Some(code) = &args.explain {
        return explain(code);
    }
    let asked = asked(args)?;
    if let (Some(before), Some(after)) = (&args.before, &args.after) {
        let (before, after) = (Directory::open(before)?, Directory::open(after)?);
        let earlier = gather(&before, &asked)?;
        let now = gather(&after, &asked)?;
        return show(args, Samples::two(&earlier, &now, None), &asked);
    }
    match &args.root {
        Some(root) => {
            let host = gather(&Directory::open(root)?, &asked)?;
            show(args, Samples::one(&host), &asked)
        }
        None => running(args, &asked),
    }
}

fn running(args: &DoctorArgs, asked: &Asked) -> Result<()> {
    let source = Running::new();
    let place = args.record.as_deref().map(record::Place::prepare).transpose()?;
    let start = Instant::now();
    let earlier = match args.interval {
        Some(interval) => {
            let earlier = gather(&source, asked)?;
            std::thread::sleep(interval.saturating_sub(start.elapsed()));
            Some((earlier, start))
        }
        None => None,
    };
    let between = start.elapsed();
    let host = match &place {
        Some(place) => {
            let recorder = Recorder::new(&source);
            let host = gather(&recorder, asked);
            let written = place.write(&recorder.finish())?;
            render::note(&format!("{written} written to {}", place.name()));
            host?
        }
        None => gather(&source, asked)?,
    };
    match &earlier {
        Some((before, _)) => {
            let seconds = Some(between.as_secs_f64());
            show(args, Samples::two(before, &host, seconds), asked)
        }
        None => show(args, Samples::one(&host), asked),
    }
}

fn asked(args: &DoctorArgs) -> Result<Asked> {
    for (what, name) in [("--interface", &args.interface), ("--device", &args.device)] {
        if let Some(name) = name
            && !is_name(name)
        {
            let expected = "expected a name such as eth0 or mlx5_0";
            return Err(Failure::usage(format!("{what} {name:?}: {expected}")));
        }
    }
    let (interface, device) = (args.interface.clone(), args.device.clone());
    Ok(Asked { interface, device, pid: args.pid })
}

/// Reads a host; one that has nothing of what is asked for is a failure.
fn gather(source: &dyn Source, asked: &Asked) -> Result<Host> {
    let host = Host::gather(source, asked);
    let unreadable = |message: String| Failure::Exit(UNREADABLE, message);
    if let Some(name) = &asked.device
        && host.device(name).is_none()
    {
        let names = source.list("sys/class/infiniband").unwrap_or_default();
        let there = if names.is_empty() { "none".to_owned() } else { names.join(", ") };
        return Err(unreadable(format!("no RoCE device {name}; RDMA devices here: {there}")));
    }
    if let Some(name) = &asked.interface
        && host.interface(name).is_none()
    {
        let names = source.list("sys/class/net").unwrap_or_default();
        let there = if names.is_empty() { "none".to_owned() } else { names.join(", ") };
        return Err(unreadable(format!("no interface {name}; interfaces here: {there}")));
    }
    if let (Some(pid), None, None) = (asked.pid, &host.process.memlock, &host.process.cpus) {
        return Err(unreadable(format!("no process {pid} whose limits or status can be read")));
    }
    if !host.readable {
        return Err(unreadable(
            "nothing of a host to read: expected sys/class/net or sys/class/infiniband there; \
             `crocevia doctor --record DIR` makes such a directory"
                .to_owned(),
        ));
    }
    Ok(host)
}

fn show(args: &DoctorArgs, samples: Samples<'_>, asked: &Asked) -> Result<()> {
    let report = Report::new(samples, asked);
    if args.json {
        render::json(&report)?;
    } else {
        render::text(&report.text())?;
    }
    // A note is worth knowing, and no reason for a script to stop.
    let is_bad = |finding: &Finding| finding.severity > Severity::Note;
    if report.findings.iter().any(is_bad) { Err(Failure::Findings) } else { Ok(()) }
}

fn explain(code: &str) -> Result<()> {
    if code == "all" {
        let lines: Vec<String> = Rule::ALL
            .iter()
            .map(|rule| {
                let (code, severity, title) = (rule.code(), rule.severity().word(), rule.title());
                format!("{code}  {severity:7}  {title}\n")
            })
            .collect();
        return render::text(&lines.concat());
    }
    match Rule::find(code) {
        Some(rule) => render::text(&rule.explain()),
        None => {
            let (first, last) = (Rule::ALL[0].code(), Rule::ALL[Rule::ALL.len() - 1].code());
            let expected = format!("expected a code from {first} to {last}");
            Err(Failure::usage(format!("--explain {code}: {expected}; `--explain all` lists them")))
        }
    }
}
