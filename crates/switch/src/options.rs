//! What may be set beside a configuration, with defaults that leave everything off. Whether it can
//! work is for `validate`.

use wire::Span;

use crate::config::{Alpha, SwitchConfig};

/// Further properties of a switch.
#[derive(Clone, PartialEq, Debug)]
pub struct Options {
    /// Pauses never expire and are not refreshed: only a resume ends one (as in the HPCC
    /// simulator). Both for what the switch sends and for what it obeys.
    pub endless_pauses: bool,
    /// In place of the buffer's alpha at single ports, by index; missing or none: the buffer's.
    pub port_alpha: Vec<Option<Alpha>>,
    /// How long a learned address is kept without a sign of it.
    pub ageing: Span,
}

impl Default for Options {
    fn default() -> Self {
        Self { endless_pauses: false, port_alpha: Vec::new(), ageing: SwitchConfig::AGEING }
    }
}
