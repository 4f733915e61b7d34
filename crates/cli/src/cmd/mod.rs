//! The commands, one file (or folder) each.

pub(crate) mod audit;
pub(crate) mod demo;
pub(crate) mod devinfo;
pub(crate) mod doctor;
pub(crate) mod gids;
pub(crate) mod link;
pub(crate) mod perf;
pub(crate) mod run;
pub(crate) mod sim;
pub(crate) mod stat;

use crocevia::DeviceInfo;

use engine::faults::FaultPlan;

use crate::error::{Failure, Result};

/// The devices that `--addr`, or without it `CROCEVIA_ADDR`, selects.
pub(crate) fn devices(addr: Option<&str>) -> Result<Vec<DeviceInfo>> {
    Ok(match addr {
        Some(_) => live::devices(addr)?,
        None => crocevia::devices()?,
    })
}

/// A fault specification, or what is wrong with it.
pub(crate) fn parse_faults(spec: &str) -> Result<FaultPlan> {
    spec.parse().map_err(|error| Failure::usage(format!("{error}")))
}
