//! `crocevia audit decode`: packets as text, one a line or as trees. Nothing is judged. Lines are
//! made of what the auditor peels out of a frame, so that trains, tunnels and cut frames have
//! theirs; trees of the frame's bytes. What a header's fields are called is `wire::pretty`'s.

use std::fmt::Write as _;
use std::io::{BufWriter, Write, stdout};
use std::path::Path;

use audit::capture::Block;
use audit::event::{Event, Icrc, IcrcCause, What};
use audit::peel::Peeler;
use audit::record::{Link, Record, Time};
use indicatif::ProgressBar;
use wire::frame::parse_frame;
use wire::pretty::{self, Line, Lldp, MadText, PathText, PauseText, Start};

use super::filter::{self, Filter};
use super::{pipeline, screen};
use crate::args::DecodeArgs;
use crate::error::{Failure, Result};
use crate::render;

/// Prints the packets of all captures, one file after the other.
pub(super) fn run(args: &DecodeArgs) -> Result<()> {
    let mut filter = args.filter.as_deref().map(Filter::parse).transpose()?;
    if filter.as_ref().is_some_and(Filter::names_conversations) {
        return Err(Failure::usage(
            "--filter: decode does not judge, so it knows no conversations: expected host, src, \
             dst, qp, time or frame",
        ));
    }
    if let Some(range) = &args.frame {
        filter = Some(filter::with_frames(filter, range)?);
    }
    let out = BufWriter::with_capacity(1 << 16, stdout());
    let mut decoder = Decoder::new(filter, args.tree, out);
    let mut whole = true;
    for (file, number) in args.files.iter().zip(0..) {
        whole &= decoder.file(file, number)?;
    }
    decoder.end()?;
    if whole { Ok(()) } else { Err(Failure::Findings) }
}

/// Prints packets to `out`.
pub(super) struct Decoder<W> {
    filter: Option<Filter>,
    tree: bool,
    start: Option<Time>,
    peeler: Peeler,
    events: Vec<Event>,
    out: W,
}

impl<W: Write> Decoder<W> {
    /// With `tree` each packet's fields, else a line for each.
    pub(super) fn new(filter: Option<Filter>, tree: bool, out: W) -> Self {
        let (peeler, events) = (Peeler::default(), Vec::new());
        Self { filter, tree, start: None, peeler, events, out }
    }

    /// Where it was printed to, all of it.
    pub(super) fn end(mut self) -> Result<W> {
        self.out.flush()?;
        Ok(self.out)
    }

    /// Prints a file's packets; false if it is damaged.
    fn file(&mut self, path: &Path, number: u16) -> Result<bool> {
        let mut reader = pipeline::open(path, number, &ProgressBar::hidden())?;
        let mut block = Block::default();
        loop {
            match reader.fill(&mut block) {
                Ok(true) => {}
                Ok(false) => return Ok(true),
                Err(damage) => {
                    self.out.flush()?;
                    render::note(&format!("{}: {damage}", screen::harmless(&pipeline::name(path))));
                    return Ok(false);
                }
            }
            for record in block.records() {
                self.record(&record)?;
            }
        }
    }

    /// Prints a record's packets.
    pub(super) fn record(&mut self, record: &Record<'_>) -> Result<()> {
        let start = *self.start.get_or_insert(record.at.time);
        self.events.clear();
        self.peeler.peel(record, &mut self.events);
        if let Some(filter) = &mut self.filter {
            self.events.retain(|event| filter.shows_record(event));
            if self.events.is_empty() {
                return Ok(());
            }
        }
        let time = screen::moment(record.at.time, start);
        if self.tree {
            return self.trees(record, &time);
        }
        for event in &self.events {
            let part = if event.part > 0 { format!(".{}", event.part) } else { String::new() };
            let number = format!("{}{part}", record.at);
            writeln!(self.out, "{number:>7} {time:>12} {}", line(event, record))?;
        }
        Ok(())
    }

    fn trees(&mut self, record: &Record<'_>, time: &str) -> Result<()> {
        let (at, kept, had) = (record.at, record.bytes.len(), record.original_len);
        write!(self.out, "Frame {at}, {time} s, {had} bytes")?;
        if record.is_cut() {
            write!(self.out, ", cut to {kept}")?;
        }
        writeln!(self.out)?;
        let is_train = self.events.iter().any(|event| event.part > 0);
        if is_train || record.is_cut() {
            let why = if is_train { "a train" } else { "cut" };
            writeln!(self.out, "It is {why}; what was read of it:")?;
            for event in &self.events {
                writeln!(self.out, "    {}", line(event, record))?;
            }
        } else if let Some(start) = begins(record.link) {
            self.out.write_all(pretty::describe(start, record.bytes).as_bytes())?;
        } else {
            writeln!(self.out, "Link type {:?} is not read", record.link)?;
        }
        Ok(writeln!(self.out)?)
    }
}

/// What a record begins with, if that is known.
fn begins(link: Link) -> Option<Start> {
    Some(match link {
        Link::Ethernet => Start::Ethernet,
        Link::Infiniband => Start::Infiniband,
        Link::RawIp => Start::RawIp,
        Link::Cooked => Start::Cooked,
        Link::Cooked2 => Start::Cooked2,
        Link::Erf => Start::Erf,
        Link::Other(_) => return None,
    })
}

/// An event in a line.
fn line(event: &Event, record: &Record<'_>) -> String {
    let mut text = String::new();
    if event.tunnels > 0 {
        let _ = write!(text, "in {}: ", render::count(event.tunnels.into(), "tunnel"));
    }
    if let Some((priority, vlan)) = event.tag {
        let _ = write!(text, "vlan {vlan} prio {priority} ");
    }
    let _ = match &event.what {
        What::Packet(packet) => {
            let _ = write!(text, "{} ", PathText(&wire_path(&packet.path)));
            let len = packet.payload_len as usize;
            let _ = write!(text, "{}", pretty::headers(&packet.bth, &packet.ext, len));
            if let Some(mad) = &packet.mad {
                let _ = write!(text, " {}", MadText(mad));
            }
            write!(text, " icrc {}", verdict(packet.icrc))
        }
        What::Refused { path, reason, icrc, .. } => {
            let path = wire_path(path);
            write!(text, "{} refused: {reason}, icrc {}", PathText(&path), verdict(*icrc))
        }
        What::Damaged { path, reason } => {
            if let Some(path) = path {
                let _ = write!(text, "{} ", PathText(&wire_path(path)));
            }
            write!(text, "dropped: {reason}, len {}", event.len)
        }
        What::Pause(control) => {
            if let Some((source, _)) = event.macs {
                let _ = write!(text, "{source} ");
            }
            write!(text, "{}", PauseText(control))
        }
        What::Lldp(bytes) => {
            if let Some((source, _)) = event.macs {
                let _ = write!(text, "{source} ");
            }
            write!(text, "{}", Lldp(bytes))
        }
        What::Other | What::Unread => write!(text, "{}", other(event, record)),
    };
    text
}

/// A frame that is no RoCE, or was not read.
fn other(event: &Event, record: &Record<'_>) -> String {
    match parse_frame(record.bytes) {
        Ok(frame) if record.link == Link::Ethernet && event.tunnels == 0 => {
            let line = Line(&frame).to_string();
            // The tag stands before it already.
            line.split_once("prio ").and_then(|(_, rest)| rest.split_once(' ')).map_or(
                line.clone(),
                |(_, rest)| {
                    if event.tag.is_some() { rest.to_owned() } else { line.clone() }
                },
            )
        }
        _ if record.is_cut() => format!("cut to {} of {} bytes", record.bytes.len(), event.len),
        _ => format!("{:?}, {} bytes", record.link, event.len),
    }
}

fn verdict(icrc: Icrc) -> String {
    match icrc {
        Icrc::Right => "ok".to_owned(),
        Icrc::Cut => "cut".to_owned(),
        Icrc::Wrong(wrong) => match wrong.cause {
            IcrcCause::Unknown => format!("BAD (off by {:#010x})", wrong.difference),
            IcrcCause::Unmasked(field) => format!("BAD ({field} not masked)"),
            IcrcCause::NoLrhBytes => "BAD (without the eight bytes of ones)".to_owned(),
            IcrcCause::ByteOrder => "BAD (byte order)".to_owned(),
            IcrcCause::Zero => "BAD (0: not filled in)".to_owned(),
        },
    }
}

fn wire_path(path: &audit::event::Path) -> wire::Path {
    wire::Path {
        encapsulation: path.encapsulation,
        source: path.source,
        destination: path.destination,
        traffic_class: path.traffic_class,
        hop_limit: path.hop_limit,
        flow_label: path.flow_label,
        source_port: path.source_port,
        priority: 0,
    }
}
