//! Link layers: Ethernet with its tags. What they carry is for `network`.

use wire::ethernet::{
    TYPE_CUSTOMER_TAG, TYPE_IPV4, TYPE_IPV6, TYPE_LLDP, TYPE_MAC_CONTROL, TYPE_ROCE_V1,
    TYPE_SERVICE_TAG,
};
use wire::frame::Body;
use wire::{Mac, frame};

use super::{Outside, Peeler, View};
use crate::event::{Event, What};

/// Tag types of the time before 802.1ad.
const TYPE_OLD_SERVICE_TAGS: [u16; 2] = [0x9100, 0x9200];
/// Tags of one frame that are read.
const MAX_TAGS: usize = 4;

impl Peeler {
    pub(super) fn ethernet(
        &mut self,
        frame: View<'_>,
        outside: &mut Outside,
        events: &mut Vec<Event>,
    ) -> Option<What> {
        let Some([d0, d1, d2, d3, d4, d5, s0, s1, s2, s3, s4, s5, t0, t1]) = frame.array(0) else {
            return Some(frame.short());
        };
        let source = Mac([*s0, *s1, *s2, *s3, *s4, *s5]);
        outside.macs = Some((source, Mac([*d0, *d1, *d2, *d3, *d4, *d5])));
        outside.tag = None;
        outside.len = frame.whole();
        let mut kind = u16::from_be_bytes([*t0, *t1]);
        let mut at = 14;
        while is_tag(kind) && at < 14 + 4 * MAX_TAGS {
            let (Some(control), Some(next)) = (frame.u16(at), frame.u16(at + 2)) else {
                return Some(frame.short());
            };
            outside.tag.get_or_insert(((control >> 13) as u8, control & 0xFFF));
            kind = next;
            at += 4;
        }
        let Some(behind) = frame.behind(at) else { return Some(frame.short()) };
        match kind {
            TYPE_MAC_CONTROL => Some(mac_control(frame)),
            TYPE_LLDP => {
                Some(if frame.missing > 0 { What::Unread } else { What::Lldp(behind.bytes.into()) })
            }
            kind => self.network(kind, behind, outside, events),
        }
    }

    /// What an Ethernet type says that follows.
    pub(super) fn network(
        &mut self,
        kind: u16,
        view: View<'_>,
        outside: &mut Outside,
        events: &mut Vec<Event>,
    ) -> Option<What> {
        match kind {
            TYPE_IPV4 => self.ipv4(view, outside, events),
            TYPE_IPV6 => self.ipv6(view, outside, events),
            TYPE_ROCE_V1 => self.roce_v1(view, outside, events),
            _ => Some(What::Other),
        }
    }
}

fn is_tag(kind: u16) -> bool {
    kind == TYPE_CUSTOMER_TAG || kind == TYPE_SERVICE_TAG || TYPE_OLD_SERVICE_TAGS.contains(&kind)
}

fn mac_control(frame: View<'_>) -> What {
    match frame::parse_frame(frame.bytes) {
        Ok(frame) => match frame.body {
            Body::MacControl(control) => What::Pause(control),
            _ => What::Other,
        },
        Err(_) if frame.missing > 0 => What::Unread,
        Err(reason) => What::Damaged { path: None, reason },
    }
}
