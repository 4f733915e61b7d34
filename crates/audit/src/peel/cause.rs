//! What explains a wrong ICRC.

use super::transport::Carrier;
use crate::event::{IcrcCause, WrongIcrc};

/// Looks for what the sender did instead of the right thing. `body` is from the BTH through the
/// pad.
pub(super) fn explain(_carrier: &Carrier<'_>, _body: &[u8], stored: u32, right: u32) -> WrongIcrc {
    let cause = if stored == 0 {
        IcrcCause::Zero
    } else if stored.swap_bytes() == right {
        IcrcCause::ByteOrder
    } else {
        IcrcCause::Unknown
    };
    WrongIcrc { difference: right ^ stored, cause }
}
