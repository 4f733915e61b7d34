//! The faults of both directions and those that happen once, and their notation,
//! `loss=1%,tx.delay=20us,fail=qp_error@1000,seed=42`. The fields of one direction are `spec`'s.

use std::fmt;
use std::str::FromStr;

use wire::Span;

use super::shots::{Shot, ShotKind, When};
use super::spec::{FIELDS, SPAN, span, write_span};
use super::{Direction, FaultSpec};
use crate::error::Error;

/// One-shot faults that a direction takes; far more than anybody writes.
const MAX_SHOTS: usize = 256;

/// The faults of one direction.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
pub struct FaultSide {
    /// What happens to packets again and again.
    pub spec: FaultSpec,
    /// What happens once.
    pub shots: Vec<Shot>,
}

impl FaultSide {
    /// Whether nothing is done.
    pub fn is_none(&self) -> bool {
        self.spec.is_none() && self.shots.is_empty()
    }

    /// Reads a one-shot fault.
    fn add(&mut self, shown: &str, direction: Direction, value: &str) -> Result<(), Error> {
        if self.shots.len() >= MAX_SHOTS {
            return Err(Error::invalid(format!(
                "faults: {shown}: expected at most {MAX_SHOTS} for a direction, found `{value}` \
                 after them"
            )));
        }
        self.shots.push(shot(shown, direction, value)?);
        Ok(())
    }
}

/// The faults of a device. Written and read as `loss=1%,tx.delay=20us,fail=qp_error@1000,seed=42`;
/// see [`FaultPlan::from_str`](core::str::FromStr::from_str).
#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
pub struct FaultPlan {
    /// Of what it receives.
    pub rx: FaultSide,
    /// Of what it sends.
    pub tx: FaultSide,
}

impl FaultPlan {
    /// Whether nothing is done.
    pub fn is_none(&self) -> bool {
        self.rx.is_none() && self.tx.is_none()
    }

    /// The faults of a direction.
    pub fn side(&self, direction: Direction) -> &FaultSide {
        match direction {
            Direction::Rx => &self.rx,
            Direction::Tx => &self.tx,
        }
    }

    fn side_mut(&mut self, direction: Direction) -> &mut FaultSide {
        match direction {
            Direction::Rx => &mut self.rx,
            Direction::Tx => &mut self.tx,
        }
    }
}

impl FromStr for FaultPlan {
    type Err = Error;

    /// Reads fields separated by commas, in any order. A field is that of received packets, or,
    /// behind `tx.`, of sent ones (`rx.` may be written too). The fields of [`FaultSpec`] stand at
    /// most once for each direction; a `seed` without prefix is that of both.
    ///
    /// `fail=KIND@WHEN` may be repeated. WHEN is the number of a packet of that direction (the
    /// first is 1) or a time since the device was opened (`2s`); the fault strikes the first packet
    /// from then on that it fits. Kinds:
    ///
    /// | kind | what happens |
    /// | --- | --- |
    /// | `drop`, `dup`, `reorder`, `corrupt` | to that packet; `drop@WHEN/SPAN`: to all for SPAN |
    /// | `qp_error` | its queue pair fails: `QP_FATAL`, everything flushed |
    /// | `cq_overrun` | the completion queue of its work overruns: `CQ_ERR` |
    /// | `rnr` | the received SEND is answered with RNR NAK |
    /// | `nak_sequence`, `nak_invalid`, `nak_access`, `nak_operation` | the request is refused |
    /// | `port_down`, `port_up` | the link: `PORT_ERR`, `PORT_ACTIVE`; `port_down@WHEN/SPAN` |
    /// | `device_fatal` | every queue pair fails: `DEVICE_FATAL`; nothing passes any more |
    fn from_str(text: &str) -> Result<Self, Error> {
        let (mut plan, mut shared) = (Self::default(), FaultSpec::NONE);
        let mut seen: Vec<String> = Vec::new();
        for part in text.split(',').map(str::trim).filter(|part| !part.is_empty()) {
            let Some((shown, value)) = part.split_once('=') else {
                return Err(Error::invalid(format!(
                    "faults: expected FIELD=VALUE, found `{part}`; fields are {FIELDS}"
                )));
            };
            let (shown, value) = (shown.trim(), value.trim());
            let (named, field) = direction(shown);
            let direction = named.unwrap_or(Direction::Rx);
            let side = plan.side_mut(direction);
            if field == "fail" {
                side.add(shown, direction, value)?;
                continue;
            }
            let (name, spec) = match (named, field) {
                (None, "seed") => ("seed".to_owned(), &mut shared),
                _ => (format!("{direction}.{field}"), &mut side.spec),
            };
            if seen.contains(&name) {
                return Err(Error::invalid(format!(
                    "faults: expected each field once, found `{shown}` again with `{value}`"
                )));
            }
            spec.set(shown, field, value)?;
            seen.push(name);
        }
        for direction in [Direction::Rx, Direction::Tx] {
            if !seen.contains(&format!("{direction}.seed")) {
                plan.side_mut(direction).spec.seed = shared.seed;
            }
        }
        plan.rx.spec.check("")?;
        plan.tx.spec.check("tx.")?;
        Ok(plan)
    }
}

/// The direction that a field names, and the rest of its name.
fn direction(field: &str) -> (Option<Direction>, &str) {
    for direction in [Direction::Rx, Direction::Tx] {
        let name = field.strip_prefix(match direction {
            Direction::Rx => "rx.",
            Direction::Tx => "tx.",
        });
        if let Some(name) = name {
            return (Some(direction), name.trim());
        }
    }
    (None, field)
}

/// Reads `KIND@WHEN` or `KIND@WHEN/SPAN`.
fn shot(shown: &str, direction: Direction, value: &str) -> Result<Shot, Error> {
    let refused = |expected: &str| {
        Err(Error::invalid(format!("faults: {shown}: expected {expected}, found `{value}`")))
    };
    let Some((name, when)) = value.split_once('@') else {
        return refused("KIND@WHEN such as qp_error@1000 or port_down@2s/50ms");
    };
    let Some(kind) = ShotKind::ALL.into_iter().find(|kind| kind.name() == name.trim()) else {
        let names = ShotKind::ALL.map(ShotKind::name).join(", ");
        return refused(&format!("one of {names} before the @"));
    };
    if kind.is_answer() && direction == Direction::Tx {
        return refused(&format!("a kind that fits sent packets: {kind} answers a received one"));
    }
    let (when, lasts) = match when.split_once('/') {
        None => (when, None),
        Some((when, lasts)) => (when, Some(lasts)),
    };
    let number = when.trim().parse::<u64>().ok().filter(|&number| number > 0);
    let when = match (number, span(when.trim())) {
        (Some(number), _) => When::Packet(number),
        // A bare 0 is no number of a packet; as a time it would be written 0s.
        (None, Some(after)) if when.trim() != "0" => When::Time(after),
        _ => return refused(&format!("the number of a packet from 1 on, or {SPAN}, behind the @")),
    };
    let lasts = match lasts.map(|text| span(text.trim())) {
        None => None,
        Some(Some(span)) if span > Span::ZERO && kind.lasts() => Some(span),
        Some(Some(_)) if !kind.lasts() => {
            return refused(&format!("no duration: {kind} happens at once"));
        }
        Some(_) => return refused(&format!("{SPAN}, above 0, behind the /")),
    };
    Ok(Shot { kind, when, lasts })
}

impl fmt::Display for Shot {
    /// `port_down@2s/50ms`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}@", self.kind)?;
        match self.when {
            When::Packet(number) => write!(f, "{number}")?,
            When::Time(after) => write_span(f, after)?,
        }
        if let Some(lasts) = self.lasts {
            f.write_str("/")?;
            write_span(f, lasts)?;
        }
        Ok(())
    }
}

impl fmt::Display for FaultPlan {
    /// Writes what [`FromStr`] reads: what differs from a perfect wire, and the seeds.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (prefix, side) in [("", &self.rx), ("tx.", &self.tx)] {
            side.spec.write(prefix, f)?;
            for shot in &side.shots {
                write!(f, "{prefix}fail={shot},")?;
            }
        }
        write!(f, "seed={}", self.rx.spec.seed)?;
        if self.tx.spec.seed != self.rx.spec.seed {
            write!(f, ",tx.seed={}", self.tx.spec.seed)?;
        }
        Ok(())
    }
}
