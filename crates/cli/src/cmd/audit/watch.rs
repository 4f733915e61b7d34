//! Who looks on while captures are judged: what the pipeline tells, and may be told. Each form of
//! output that needs more than the report has its own.

use audit::talk::Remark;
use audit::{Auditor, Event};

use super::filter::Filter;
use super::live::View;
use crate::error::Result;

/// Looks on.
pub(super) trait Watch {
    /// The audit begins; the place to listen to its findings.
    fn begin(&mut self, _auditor: &mut Auditor) {}

    /// Whether it writes while it looks on, so that a progress bar would be in its way.
    fn streams(&self) -> bool {
        false
    }

    /// What limits the audit.
    fn filter(&mut self) -> Option<&mut Filter> {
        None
    }

    /// Whether an event is to be judged. Others count as if they were not in the capture.
    fn wants(&mut self, event: &Event) -> bool {
        self.filter().is_none_or(|filter| filter.wants(event))
    }

    /// An event was judged.
    ///
    /// # Errors
    /// The audit is to end: whoever reads the output has gone, or it cannot be written.
    fn seen(&mut self, _event: &Event, _remark: Option<&Remark>) -> Result<()> {
        Ok(())
    }

    /// All that has come so far of a live capture was judged.
    ///
    /// # Errors
    /// As for `seen`.
    fn so_far(&mut self) -> Result<()> {
        Ok(())
    }

    /// The view of a live capture, if it is one.
    fn view(&mut self) -> Option<&mut View> {
        None
    }
}

/// Limits, and looks at nothing.
#[derive(Debug)]
pub(super) struct Plain {
    pub(super) filter: Option<Filter>,
}

impl Watch for Plain {
    fn filter(&mut self) -> Option<&mut Filter> {
        self.filter.as_mut()
    }
}
