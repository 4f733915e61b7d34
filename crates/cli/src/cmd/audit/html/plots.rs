//! Which plots a page has: all traffic, then the conversations that findings name and the busiest.

use std::fmt::Write;

use audit::record::Time;
use audit::report::{Conversation, Report};
use audit::series::{Axis, Points, Series, TalkSeries, Way};

use super::escape;
use super::plot::{Curve, Plot, Shape};
use crate::cmd::audit::findings::Writer;
use crate::cmd::audit::screen::{self, Screen};
use crate::cmd::audit::tables;

/// Conversations with plots of their own.
const TALKS: usize = 8;
/// Marks of findings in a plot.
const MARKS: usize = 60;
/// Nanoseconds of a second.
const SECOND: f64 = 1e9;

/// All plots, under their headings.
pub(super) fn all(report: &Report, series: &Series) -> String {
    let Some(axis) = series.axis() else { return String::new() };
    let canvas = Canvas { axis, marks: marks(report, axis, None) };
    let mut out = String::from("<h2>Over time</h2>\n");
    out.push_str(&canvas.traffic(series));
    for talk in chosen(report, series) {
        let Some(of) = series.conversation(talk.id) else { continue };
        let marks = marks(report, axis, Some(talk));
        let _ = writeln!(out, "<h2>Conversation {}</h2>", talk.id);
        let _ = writeln!(out, "<p class=\"faint\">{}</p>", escape(&tables::ends(talk)));
        out.push_str(&Canvas { axis, marks }.talk(talk, of));
    }
    out
}

/// Those that findings name first, then the busiest.
fn chosen<'a>(report: &'a Report, series: &Series) -> Vec<&'a Conversation> {
    let writer = Writer::new(report, Screen::stdout());
    let named: Vec<u32> =
        report.findings.iter().filter_map(|f| writer.conversation(f.subject)).collect();
    let mut talks: Vec<&Conversation> =
        report.conversations.iter().filter(|t| series.conversation(t.id).is_some()).collect();
    talks.sort_by_key(|talk| named.iter().position(|id| *id == talk.id).unwrap_or(usize::MAX));
    talks.truncate(TALKS);
    talks
}

/// The findings' frames as moments to mark; of one conversation, or of all.
fn marks(report: &Report, axis: Axis, talk: Option<&Conversation>) -> Vec<(f64, String)> {
    let writer = Writer::new(report, Screen::stdout());
    let fits = |id: Option<u32>| talk.is_none_or(|talk| id == Some(talk.id));
    let findings = report.findings.iter().filter(|f| fits(writer.conversation(f.subject)));
    let all = findings.flat_map(|finding| {
        finding.sample.iter().map(move |at| {
            let (code, word) = (finding.rule.code(), finding.rule.word());
            (at.time.since(axis.start) as f64 / SECOND, format!("{code} {word}, frame {at}"))
        })
    });
    all.take(MARKS).collect()
}

/// The axis and what is marked on it.
struct Canvas {
    axis: Axis,
    marks: Vec<(f64, String)>,
}

impl Canvas {
    fn plot(&self, title: &str, unit: &'static str, curves: Vec<Curve>) -> String {
        let plot = Plot {
            title: title.to_owned(),
            unit,
            from: 0.0,
            to: self.axis.end.since(self.axis.start) as f64 / SECOND,
            width: self.axis.width as f64 / SECOND,
            curves,
            marks: self.marks.clone(),
        };
        plot.figure()
    }

    /// A value for each bucket, zeros behind the last that has something.
    fn steps<T: Copy + Default>(
        &self,
        (name, colour): (&str, usize),
        sums: &[T],
        value: impl Fn(T) -> f64,
    ) -> Curve {
        let width = self.axis.width;
        let many = self.axis.end.since(self.axis.start) / width + 1;
        let sum = |at: u64| sums.get(at as usize).copied().unwrap_or_default();
        let points = (0..many).map(|at| ((at * width) as f64 / SECOND, value(sum(at))));
        let points = points.collect();
        Curve { name: name.to_owned(), colour, shape: Shape::Steps, points }
    }

    /// Bytes of a bucket as Gbit/s.
    fn rate(&self, bytes: u64) -> f64 {
        bytes as f64 * 8.0 / self.axis.width as f64
    }

    fn traffic(&self, series: &Series) -> String {
        let load = series.load();
        let each = format!("packets in each {}", screen::span(self.axis.width as f64 / 1e3));
        let mut out = self.plot(
            "Throughput on the wire, all traffic",
            "Gbit/s",
            vec![self.steps(("all", 0), load, |load| self.rate(load.bytes))],
        );
        out += &self.plot(
            &format!("Losses, {each}"),
            "",
            vec![
                self.steps(("packets sent again", 1), load, |load| load.again as f64),
                self.steps(("NAKs", 4), load, |load| load.naks as f64),
            ],
        );
        out += &self.plot(
            &format!("Congestion, {each}"),
            "",
            vec![
                self.steps(("CE marks", 1), load, |load| load.ce as f64),
                self.steps(("CNPs", 3), load, |load| load.cnp as f64),
                self.steps(("pauses", 4), load, |load| load.pauses as f64),
            ],
        );
        out
    }

    fn talk(&self, talk: &Conversation, series: &TalkSeries) -> String {
        let (a, b) = (&talk.a.address, &talk.b.address);
        let names = [format!("{a} > {b}"), format!("{b} > {a}")];
        let ways = || names.iter().zip([&series.forward, &series.backward]).zip(0..);
        let payload = |((name, way), colour): ((&String, &Way), usize)| {
            self.steps((name, colour), way.payload.sums(), |bytes| self.rate(bytes))
        };
        let mut out =
            self.plot("Payload, repetitions left out", "Gbit/s", ways().map(payload).collect());
        let trips = ways().flat_map(|((name, way), colour)| self.round_trips(name, way, colour));
        out += &self.plot("From request to answer at the point of capture", "µs", trips.collect());
        for ((name, way), colour) in ways() {
            out += &self.psns(name, way, colour);
        }
        out
    }

    /// Mean and longest time of each bucket that has any.
    fn round_trips(&self, name: &str, way: &Way, colour: usize) -> Vec<Curve> {
        let trips =
            || way.round_trip.sums().iter().zip(0u64..).filter(|(spread, _)| spread.count > 0);
        let time = |at: u64| (at * self.axis.width) as f64 / SECOND;
        let mean = trips().map(|(s, at)| (time(at), s.sum as f64 / s.count as f64 / 1e3)).collect();
        let most = trips().map(|(s, at)| (time(at), s.most as f64 / 1e3)).collect();
        let name = |what: &str| format!("{name}, {what}");
        vec![
            Curve { name: name("mean"), colour, shape: Shape::Line, points: mean },
            Curve { name: name("longest"), colour: colour + 2, shape: Shape::Dots, points: most },
        ]
    }

    /// PSNs of requests, counted from the lowest, those sent again marked.
    fn psns(&self, name: &str, way: &Way, colour: usize) -> String {
        let all = way.psn.points().iter().chain(way.again.points());
        let Some(least) = all.map(|(_, psn)| *psn).min() else { return String::new() };
        let place = |(time, psn): &(Time, u64)| {
            (time.since(self.axis.start) as f64 / SECOND, (psn - least) as f64 + 1.0)
        };
        let curve = |what: &str, points: &Points, colour: usize, shape: Shape| {
            let every = match points.stride() {
                1 => String::new(),
                n => format!(", one of {n}"),
            };
            let points = points.points().iter().map(place).collect();
            Curve { name: format!("{what}{every}"), colour, shape, points }
        };
        let curves = vec![
            curve("sent", &way.psn, colour, Shape::Dots),
            curve("sent again", &way.again, 4, Shape::Crosses),
        ];
        self.plot(&format!("PSN of requests, {name}"), "", curves)
    }
}
