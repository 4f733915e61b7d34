//! Capture files made byte by byte, in all forms that a reader must know. Written from the formats'
//! descriptions alone.
#![allow(dead_code, reason = "each test binary uses a part")]

/// Byte order.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Order {
    Little,
    Big,
}

impl Order {
    pub(crate) fn u16(self, n: u16) -> [u8; 2] {
        if self == Self::Big { n.to_be_bytes() } else { n.to_le_bytes() }
    }
    pub(crate) fn u32(self, n: u32) -> [u8; 4] {
        if self == Self::Big { n.to_be_bytes() } else { n.to_le_bytes() }
    }
    pub(crate) fn u64(self, n: u64) -> [u8; 8] {
        if self == Self::Big { n.to_be_bytes() } else { n.to_le_bytes() }
    }
}

/// A pcap file of records: seconds, fraction, bytes, original length.
pub(crate) fn pcap(
    order: Order,
    magic: u32,
    link: u32,
    records: &[(u32, u32, Vec<u8>, u32)],
) -> Vec<u8> {
    let mut out = order.u32(magic).to_vec();
    out.extend(order.u16(2));
    out.extend(order.u16(4));
    for word in [0, 0, 65_535, link] {
        out.extend(order.u32(word));
    }
    for (seconds, fraction, bytes, original) in records {
        for word in [*seconds, *fraction, bytes.len() as u32, *original] {
            out.extend(order.u32(word));
        }
        if magic == 0xA1B2_CD34 {
            // Interface, protocol, packet type.
            out.extend([7; 8]);
        }
        out.extend(bytes);
    }
    out
}

/// A pcapng file that grows block by block.
pub(crate) struct Ng {
    pub(crate) order: Order,
    pub(crate) out: Vec<u8>,
}

/// An option: code and value.
pub(crate) type Choice<'a> = (u16, &'a [u8]);

impl Ng {
    pub(crate) fn new(order: Order) -> Self {
        let mut ng = Self { order, out: Vec::new() };
        ng.section(order);
        ng
    }

    pub(crate) fn section(&mut self, order: Order) {
        self.order = order;
        let mut body = order.u32(0x1A2B_3C4D).to_vec();
        body.extend(order.u16(1));
        body.extend(order.u16(0));
        body.extend(order.u64(u64::MAX));
        self.block(0x0A0D_0D0A, &body, &[]);
    }

    pub(crate) fn block(&mut self, kind: u32, body: &[u8], options: &[Choice<'_>]) {
        let order = self.order;
        let mut tail = Vec::new();
        for (code, value) in options {
            tail.extend(order.u16(*code));
            tail.extend(order.u16(value.len() as u16));
            tail.extend(*value);
            tail.resize(tail.len().next_multiple_of(4), 0);
        }
        if !options.is_empty() {
            tail.extend([0; 4]);
        }
        let len = 12 + body.len().next_multiple_of(4) + tail.len();
        self.out.extend(order.u32(kind));
        self.out.extend(order.u32(len as u32));
        self.out.extend(body);
        self.out.resize(self.out.len().next_multiple_of(4), 0);
        self.out.extend(tail);
        self.out.extend(order.u32(len as u32));
    }

    pub(crate) fn interface(&mut self, link: u16, snap: u32, options: &[Choice<'_>]) {
        let mut body = self.order.u16(link).to_vec();
        body.extend([0; 2]);
        body.extend(self.order.u32(snap));
        self.block(1, &body, options);
    }

    pub(crate) fn packet(
        &mut self,
        interface: u32,
        ticks: u64,
        bytes: &[u8],
        original: u32,
        options: &[Choice<'_>],
    ) {
        let words = [interface, (ticks >> 32) as u32, ticks as u32, bytes.len() as u32, original];
        let mut body: Vec<u8> = words.iter().flat_map(|word| self.order.u32(*word)).collect();
        body.extend(bytes);
        self.block(6, &body, options);
    }

    pub(crate) fn old_packet(&mut self, interface: u16, drops: u16, ticks: u64, bytes: &[u8]) {
        let mut body = self.order.u16(interface).to_vec();
        body.extend(self.order.u16(drops));
        let len = bytes.len() as u32;
        for word in [(ticks >> 32) as u32, ticks as u32, len, len] {
            body.extend(self.order.u32(word));
        }
        body.extend(bytes);
        self.block(2, &body, &[]);
    }

    pub(crate) fn simple(&mut self, original: u32, bytes: &[u8]) {
        let mut body = self.order.u32(original).to_vec();
        body.extend(bytes);
        self.block(3, &body, &[]);
    }

    pub(crate) fn statistics(&mut self, interface: u32, options: &[Choice<'_>]) {
        let mut body = self.order.u32(interface).to_vec();
        body.extend([0; 8]);
        self.block(5, &body, options);
    }
}
