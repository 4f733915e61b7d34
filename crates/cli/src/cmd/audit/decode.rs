//! `crocevia audit decode`: packets as text, one a line or as trees. Nothing is judged. What a
//! header's fields are called is `wire::pretty`'s.

use std::io::{BufWriter, Write, stdout};
use std::path::Path;

use audit::capture::Block;
use audit::peel::Peeler;
use audit::record::{Record, Time};
use wire::pretty;

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
    let mut decoder = Decoder {
        filter,
        tree: args.tree,
        start: None,
        peeler: Peeler::default(),
        out: BufWriter::with_capacity(1 << 16, stdout()),
    };
    for (file, number) in args.files.iter().zip(0..) {
        decoder.file(file, number)?;
    }
    Ok(decoder.out.flush()?)
}

struct Decoder {
    filter: Option<Filter>,
    tree: bool,
    start: Option<Time>,
    peeler: Peeler,
    out: BufWriter<std::io::Stdout>,
}

impl Decoder {
    fn file(&mut self, path: &Path, number: u16) -> Result<()> {
        let mut reader = pipeline::open(path, number)?;
        let mut block = Block::default();
        loop {
            match reader.fill(&mut block) {
                Ok(true) => {}
                Ok(false) => return Ok(()),
                Err(damage) => {
                    render::note(&format!("{}: {damage}", screen::harmless(&pipeline::name(path))));
                    return Ok(());
                }
            }
            for record in block.records() {
                self.record(&record)?;
            }
        }
    }

    fn record(&mut self, record: &Record<'_>) -> Result<()> {
        let start = *self.start.get_or_insert(record.at.time);
        if let Some(filter) = &mut self.filter {
            let mut events = Vec::new();
            self.peeler.peel(record, &mut events);
            if !events.iter().any(|event| filter.shows_record(event)) {
                return Ok(());
            }
        }
        let time = screen::moment(record.at.time, start);
        let text = pretty::describe(pretty::Start::Ethernet, record.bytes);
        if self.tree {
            writeln!(self.out, "Frame {}, {time} s, {} bytes", record.at, record.bytes.len())?;
            writeln!(self.out, "{text}")?;
        } else {
            let first = text.lines().next().unwrap_or_default();
            writeln!(self.out, "{:>7} {time:>12} {first}", record.at.to_string())?;
        }
        Ok(())
    }
}
