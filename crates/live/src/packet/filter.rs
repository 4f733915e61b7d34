//! What of an interface's traffic an audit is given: a classic filter program that the kernel runs
//! on each frame, so that nothing else is copied. It lets through RoCE, what may carry RoCE inside,
//! pauses and LLDP; what exactly a frame is, the reader finds out.

use libc::{
    BPF_ABS, BPF_ADD, BPF_ALU, BPF_AND, BPF_B, BPF_H, BPF_IMM, BPF_IND, BPF_JA, BPF_JEQ, BPF_JMP,
    BPF_JSET, BPF_K, BPF_LD, BPF_LDX, BPF_LSH, BPF_MISC, BPF_RET, BPF_RSH, BPF_TAX, BPF_X,
};
use socket2::SockFilter;

/// EtherTypes that are wanted whatever follows: RoCEv1, MAC control (pauses), LLDP.
const TYPES: [u32; 3] = [0x8915, 0x8808, 0x88CC];
/// EtherTypes of VLAN tags, today's and older.
const TAGS: [u32; 4] = [0x8100, 0x88A8, 0x9100, 0x9200];
/// UDP ports to which RoCE goes, and tunnels that may carry it: VXLAN (also the port that Linux
/// had for it first), GENEVE.
const PORTS: [u32; 4] = [4791, 4789, 8472, 6081];
const IPV4: u32 = 0x0800;
const IPV6: u32 = 0x86DD;
const UDP: u32 = 17;
const GRE: u32 = 47;
const FRAGMENT: u32 = 44;
/// More than any frame has.
const WHOLE: u32 = 0x4_0000;

/// Bytes before the network header of an untagged frame.
const ETHERNET: u32 = 14;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Place {
    /// The next instruction.
    Next,
    Tag1,
    Tag2,
    Network,
    V4,
    Frag4,
    V6,
    Frag6,
    Port,
    Accept,
    Reject,
}

use Place::{Accept, Frag4, Frag6, Network, Next, Port, Reject, Tag1, Tag2, V4, V6};

enum Step {
    Here(Place),
    Do(u32, u32),
    /// A condition with a constant: where to go if it holds, and if not.
    If(u32, u32, Place, Place),
    Goto(Place),
}

use Step::{Do, Goto, Here, If};

/// The program for frames that begin with an Ethernet header; tags that the kernel keeps beside the
/// frame do not disturb it.
pub(super) fn ethernet() -> Vec<SockFilter> {
    let mut steps = vec![Do(BPF_LDX | BPF_IMM, 0), Do(BPF_LD | BPF_H | BPF_ABS, 12)];
    // X is the length of the tags.
    steps.extend(TAGS.map(|tag| If(BPF_JEQ, tag, Tag1, Next)));
    steps.extend([
        Goto(Network),
        Here(Tag1),
        Do(BPF_LDX | BPF_IMM, 4),
        Do(BPF_LD | BPF_H | BPF_ABS, 16),
    ]);
    steps.extend(TAGS.map(|tag| If(BPF_JEQ, tag, Tag2, Next)));
    steps.extend([
        Goto(Network),
        Here(Tag2),
        Do(BPF_LDX | BPF_IMM, 8),
        Do(BPF_LD | BPF_H | BPF_ABS, 20),
    ]);
    // Frames with three tags are so rare that whatever they carry may pass.
    steps.extend(TAGS.map(|tag| If(BPF_JEQ, tag, Accept, Next)));
    steps.push(Here(Network));
    steps.extend(TYPES.map(|kind| If(BPF_JEQ, kind, Accept, Next)));
    steps.extend([If(BPF_JEQ, IPV4, V4, Next), If(BPF_JEQ, IPV6, V6, Reject)]);
    steps.extend(network(ETHERNET));
    assemble(&steps)
}

/// The program for packets that begin with an IP header.
pub(super) fn ip() -> Vec<SockFilter> {
    let mut steps = vec![
        Do(BPF_LDX | BPF_IMM, 0),
        Do(BPF_LD | BPF_B | BPF_ABS, 0),
        Do(BPF_ALU | BPF_RSH | BPF_K, 4),
        If(BPF_JEQ, 4, V4, Next),
        If(BPF_JEQ, 6, V6, Reject),
    ];
    steps.extend(network(0));
    assemble(&steps)
}

/// From the network header on, which begins `base` bytes behind X.
fn network(base: u32) -> Vec<Step> {
    let byte = |at: u32| Do(BPF_LD | BPF_B | BPF_IND, base + at);
    let word = |at: u32| Do(BPF_LD | BPF_H | BPF_IND, base + at);
    let mut steps = vec![
        Here(V4),
        byte(9),
        If(BPF_JEQ, UDP, Frag4, Next),
        If(BPF_JEQ, GRE, Accept, Reject),
        Here(Frag4),
        word(6),
        // Fragments behind the first have no port.
        If(BPF_JSET, 0x1FFF, Accept, Next),
        byte(0),
        Do(BPF_ALU | BPF_AND | BPF_K, 15),
        Do(BPF_ALU | BPF_LSH | BPF_K, 2),
        Do(BPF_ALU | BPF_ADD | BPF_X, 0),
        Do(BPF_MISC | BPF_TAX, 0),
        word(2),
        Goto(Port),
        Here(V6),
        byte(6),
        If(BPF_JEQ, GRE, Accept, Next),
        If(BPF_JEQ, FRAGMENT, Frag6, Next),
        If(BPF_JEQ, UDP, Next, Reject),
        word(42),
        Goto(Port),
        Here(Frag6),
        byte(40),
        If(BPF_JEQ, UDP, Accept, Next),
        If(BPF_JEQ, GRE, Accept, Reject),
        Here(Port),
    ];
    steps.extend(PORTS.map(|port| If(BPF_JEQ, port, Accept, Next)));
    let end = [Here(Reject), Do(BPF_RET | BPF_K, 0), Here(Accept), Do(BPF_RET | BPF_K, WHOLE)];
    steps.extend(end);
    steps
}

/// Steps as instructions; jumps go forward only.
fn assemble(steps: &[Step]) -> Vec<SockFilter> {
    let mut places = Vec::new();
    let mut count = 0;
    for step in steps {
        match step {
            Here(place) => places.push((*place, count)),
            _ => count += 1,
        }
    }
    let mut program: Vec<SockFilter> = Vec::with_capacity(count);
    for step in steps {
        let next = program.len() + 1;
        let ahead = |to: Place| {
            let at = places.iter().find(|(place, _)| *place == to).map_or(next, |(_, at)| *at);
            at - next
        };
        let instruction = match *step {
            Here(_) => continue,
            Do(code, k) => SockFilter::new(code as u16, 0, 0, k),
            If(test, k, yes, no) => {
                let code = (BPF_JMP | test | BPF_K) as u16;
                SockFilter::new(code, ahead(yes) as u8, ahead(no) as u8, k)
            }
            Goto(place) => SockFilter::new((BPF_JMP | BPF_JA) as u16, 0, 0, ahead(place) as u32),
        };
        program.push(instruction);
    }
    program
}

#[cfg(test)]
mod tests {
    use std::io::ErrorKind;
    use std::mem::MaybeUninit;

    use socket2::{Domain, Socket, Type};

    use super::*;

    /// A program run by the kernel: what it lets through from one end of a pair to the other.
    struct Gate {
        from: Socket,
        to: Socket,
    }

    impl Gate {
        fn new(program: &[SockFilter]) -> Self {
            let (from, to) = Socket::pair(Domain::UNIX, Type::DGRAM, None).expect("a pair");
            to.attach_filter(program).expect("a program that the kernel takes");
            to.set_nonblocking(true).expect("a socket");
            Self { from, to }
        }

        fn passes(&self, frame: &[u8]) -> bool {
            // The sender of a refused message is told nothing, or that it is not permitted.
            let _ = self.from.send(frame);
            let mut got = [MaybeUninit::uninit(); 4096];
            match self.to.recv(&mut got) {
                Ok(n) => {
                    assert_eq!(n, frame.len(), "whole or not at all");
                    true
                }
                Err(error) => {
                    assert_eq!(error.kind(), ErrorKind::WouldBlock);
                    false
                }
            }
        }
    }

    fn udp(port: u16) -> Vec<u8> {
        let mut bytes = vec![0xC0, 0];
        bytes.extend(port.to_be_bytes());
        bytes.extend([0; 40]);
        bytes
    }

    /// `words` 32-bit words of header, `fragment` the field with flags and offset.
    fn ipv4(words: u8, protocol: u8, fragment: u16, payload: &[u8]) -> Vec<u8> {
        let mut bytes = vec![0; usize::from(words) * 4];
        bytes[0] = 0x40 | words;
        bytes[6..8].copy_from_slice(&fragment.to_be_bytes());
        bytes[9] = protocol;
        bytes.extend(payload);
        bytes
    }

    fn ipv6(next: u8, payload: &[u8]) -> Vec<u8> {
        let mut bytes = vec![0; 40];
        bytes[0] = 0x60;
        bytes[6] = next;
        bytes.extend(payload);
        bytes
    }

    fn frame(tags: &[u16], kind: u16, payload: &[u8]) -> Vec<u8> {
        let mut bytes = vec![2; 12];
        for tag in tags {
            bytes.extend(tag.to_be_bytes());
            bytes.extend([0x60, 0x05]);
        }
        bytes.extend(kind.to_be_bytes());
        bytes.extend(payload);
        bytes
    }

    /// IP packets that are wanted, and such that are nearly so.
    fn packets() -> (Vec<Vec<u8>>, Vec<Vec<u8>>) {
        let wanted = vec![
            ipv4(5, 17, 0x4000, &udp(4791)),
            ipv4(5, 17, 0x2000, &udp(4791)),
            ipv4(5, 17, 0x2001, &[9; 30]),
            ipv4(15, 17, 0, &udp(4791)),
            ipv4(5, 17, 0, &udp(4789)),
            ipv4(5, 17, 0, &udp(6081)),
            ipv4(5, 47, 0, &[0; 20]),
            ipv6(17, &udp(4791)),
            ipv6(17, &udp(4789)),
            ipv6(44, &[17, 0, 0, 8, 1, 2, 3, 4, 5, 6]),
            ipv6(47, &[0; 20]),
        ];
        let others = vec![
            ipv4(5, 17, 0, &udp(4790)),
            ipv4(6, 17, 0, &[&[0; 2], &udp(4791)[..]].concat()),
            ipv4(5, 6, 0, &udp(4791)),
            ipv4(5, 6, 0x2001, &[9; 30]),
            ipv4(5, 1, 0, &[0; 30]),
            ipv4(5, 17, 0, &[1]),
            ipv6(17, &udp(53)),
            ipv6(6, &udp(4791)),
            ipv6(58, &[0; 30]),
            ipv6(44, &[6, 0, 0, 8, 1, 2, 3, 4, 5, 6]),
        ];
        (wanted, others)
    }

    fn kind_of(packet: &[u8]) -> u16 {
        if packet[0] >> 4 == 4 { 0x0800 } else { 0x86DD }
    }

    #[test]
    fn what_an_audit_needs_passes_with_any_tags_and_nothing_else() {
        let gate = Gate::new(&ethernet());
        let (wanted, others) = packets();
        for tags in [&[][..], &[0x8100], &[0x88A8, 0x8100], &[0x9100], &[0x8100, 0x8100]] {
            for kind in [0x8915, 0x8808, 0x88CC] {
                assert!(gate.passes(&frame(tags, kind, &[1; 46])), "{tags:x?} {kind:#x}");
            }
            for kind in [0x0806, 0x8809, 0x8916, 0x0600, 0] {
                assert!(!gate.passes(&frame(tags, kind, &[1; 46])), "{tags:x?} {kind:#x}");
            }
            for packet in &wanted {
                let bytes = frame(tags, kind_of(packet), packet);
                assert!(gate.passes(&bytes), "{tags:x?} {packet:x?}");
            }
            for packet in &others {
                let bytes = frame(tags, kind_of(packet), packet);
                assert!(!gate.passes(&bytes), "{tags:x?} {packet:x?}");
            }
        }
        assert!(gate.passes(&frame(&[0x88A8, 0x8100, 0x8100], 0x0806, &[0; 46])));
        for len in 0..34 {
            assert!(!gate.passes(&frame(&[], 0x0800, &ipv4(5, 17, 0, &udp(4791)))[..len]));
        }
    }

    #[test]
    fn packets_without_a_link_header_are_told_by_their_version() {
        let gate = Gate::new(&ip());
        let (wanted, others) = packets();
        assert!(wanted.iter().all(|packet| gate.passes(packet)));
        assert!(!others.iter().any(|packet| gate.passes(packet)));
        assert!(!gate.passes(&[0x50; 64]));
        assert!(!gate.passes(&[]));
    }
}
