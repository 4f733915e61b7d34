//! Tunnels and mirror headers: VXLAN, Geneve, GRE, ERSPAN, IP in IP, MPLS. What is inside begins
//! anew with an Ethernet or IP header.

use wire::ethernet::{TYPE_IPV4, TYPE_IPV6};
use wire::vxlan::{VXLAN_LEN, VXLAN_PORT};

use super::{Outside, Peeler, View};
use crate::event::{Event, What};

/// The port that Linux took for VXLAN before there was a standard.
const OLD_VXLAN_PORT: u16 = 8472;
const GENEVE_PORT: u16 = 6081;

/// A whole Ethernet frame, in GRE and Geneve.
const TYPE_BRIDGED: u16 = 0x6558;
/// ERSPAN types I and II; type III.
const TYPE_ERSPAN: u16 = 0x88BE;
const TYPE_ERSPAN3: u16 = 0x22EB;

/// More than any frame has: what is missing of a frame that a mirror has cut.
const UNKNOWN: usize = 1 << 17;

impl Peeler {
    /// A tunnel in UDP; `None` if the port is none of a tunnel's.
    pub(super) fn udp_tunnel(
        &mut self,
        port: u16,
        payload: View<'_>,
        outside: &mut Outside,
        events: &mut Vec<Event>,
    ) -> Option<What> {
        let Some(head) = payload.array::<VXLAN_LEN>(0) else { return Some(payload.short()) };
        match port {
            VXLAN_PORT | OLD_VXLAN_PORT if head[0] & 0x08 != 0 => {
                self.bridged(payload, VXLAN_LEN, outside, events)
            }
            GENEVE_PORT if head[0] >> 6 == 0 => {
                let len = 8 + usize::from(head[0] & 0x3F) * 4;
                match u16::from_be_bytes([head[2], head[3]]) {
                    TYPE_BRIDGED => self.bridged(payload, len, outside, events),
                    kind => self.routed(kind, payload, len, outside, events),
                }
            }
            _ => Some(What::Other),
        }
    }

    pub(super) fn gre(
        &mut self,
        payload: View<'_>,
        outside: &mut Outside,
        events: &mut Vec<Event>,
    ) -> Option<What> {
        let (Some(flags), Some(kind)) = (payload.u16(0), payload.u16(2)) else {
            return Some(payload.short());
        };
        if flags & 0x4007 != 0 {
            // Source routes and version 1 (PPTP).
            return Some(What::Other);
        }
        let fields = [0x8000, 0x2000, 0x1000].iter().filter(|bit| flags & *bit != 0).count();
        let mut len = 4 + fields * 4;
        match kind {
            TYPE_BRIDGED => self.bridged(payload, len, outside, events),
            TYPE_ERSPAN => {
                let mut inner = payload;
                // Type II has a sequence number and a header of its own, type I neither.
                if flags & 0x1000 != 0 {
                    let Some(head) = payload.array::<8>(len) else {
                        return Some(payload.short());
                    };
                    inner = mirrored(payload, head[2] & 0x04 != 0);
                    len += 8;
                }
                self.bridged(inner, len, outside, events)
            }
            TYPE_ERSPAN3 => {
                let Some(head) = payload.array::<12>(len) else { return Some(payload.short()) };
                let inner = mirrored(payload, head[2] & 0x04 != 0);
                len += if head[11] & 1 != 0 { 20 } else { 12 };
                match head[10] >> 2 & 0x1F {
                    0 => self.bridged(inner, len, outside, events),
                    2 => {
                        let Some(ip) = self.inner(inner, len, outside) else {
                            return Some(inner.short());
                        };
                        self.ip(ip, outside, events)
                    }
                    _ => Some(What::Other),
                }
            }
            kind => self.routed(kind, payload, len, outside, events),
        }
    }

    /// IP in IP.
    pub(super) fn nested(
        &mut self,
        payload: View<'_>,
        outside: &mut Outside,
        events: &mut Vec<Event>,
    ) -> Option<What> {
        let Some(inner) = self.inner(payload, 0, outside) else { return Some(payload.short()) };
        self.ip(inner, outside, events)
    }

    /// Behind a stack of MPLS labels: IP, or the frame of a pseudo-wire with its control word.
    pub(super) fn mpls(
        &mut self,
        mut labels: View<'_>,
        outside: &mut Outside,
        events: &mut Vec<Event>,
    ) -> Option<What> {
        for _ in 0..16 {
            let Some([_, _, low, _]) = labels.array::<4>(0) else { return Some(labels.short()) };
            let last = low & 1 != 0;
            let Some(behind) = labels.behind(4) else { return Some(labels.short()) };
            labels = behind;
            if last {
                return match labels.bytes.first() {
                    Some(0) => self.bridged(labels, 4, outside, events),
                    _ => self.ip(labels, outside, events),
                };
            }
        }
        Some(What::Other)
    }

    /// A frame behind `len` bytes of a tunnel's header.
    fn bridged(
        &mut self,
        payload: View<'_>,
        len: usize,
        outside: &mut Outside,
        events: &mut Vec<Event>,
    ) -> Option<What> {
        let Some(frame) = self.inner(payload, len, outside) else { return Some(payload.short()) };
        self.ethernet(frame, outside, events)
    }

    /// An IP packet behind `len` bytes of a tunnel's header.
    fn routed(
        &mut self,
        kind: u16,
        payload: View<'_>,
        len: usize,
        outside: &mut Outside,
        events: &mut Vec<Event>,
    ) -> Option<What> {
        if kind != TYPE_IPV4 && kind != TYPE_IPV6 {
            return Some(What::Other);
        }
        let Some(packet) = self.inner(payload, len, outside) else {
            return Some(payload.short());
        };
        self.ip(packet, outside, events)
    }

    fn inner<'a>(&self, payload: View<'a>, len: usize, outside: &mut Outside) -> Option<View<'a>> {
        let mut inner = payload.behind(len)?;
        if outside.fragment {
            inner.missing = UNKNOWN;
        }
        outside.tunnels += 1;
        outside.depth += 1;
        outside.len = inner.whole();
        outside.macs = None;
        outside.tag = None;
        Some(inner)
    }
}

/// The payload of a mirror header, which may say that it has cut the frame.
fn mirrored(payload: View<'_>, cut: bool) -> View<'_> {
    View { missing: if cut { UNKNOWN } else { payload.missing }, ..payload }
}
