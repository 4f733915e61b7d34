//! Ready-made configurations of known kinds of switches. What is assumed of them stands beside each
//! value; other switches are made by hand.

use wire::{Mac, Rate, Span};

use crate::config::{
    Alpha, Bandwidth, Buffer, EcnAt, EcnProfile, PfcPriority, PortConfig, Scheduling, SwitchConfig,
    Trust,
};
use crate::options::Options;
use crate::thresholds::{SharedBuffer, hpcc_headroom, mlx5_headroom};

/// The priority that RDMA has by custom.
const RDMA: usize = 3;
/// That of CNPs.
const CNP: usize = 6;

fn switch(mac: Mac, buffer: Buffer, ports: Vec<PortConfig>) -> SwitchConfig {
    SwitchConfig {
        seed: 1,
        mac,
        ports,
        buffer,
        trust: Trust::Dscp,
        dscp_map: SwitchConfig::DSCP_MAP,
        class_of: SwitchConfig::CLASS_OF,
    }
}

/// CNPs first, the others evenly.
fn turns() -> [Scheduling; 8] {
    let mut turns = [Scheduling::Weighted(Bandwidth(10)); 8];
    turns[CNP] = Scheduling::Strict;
    turns
}

fn port(rate: Rate, pfc: PfcPriority, ecn: EcnProfile) -> PortConfig {
    let mut port =
        PortConfig { rate, pfc: [None; 8], link_pause: false, ecn: [None; 8], scheduling: turns() };
    port.pfc[RDMA] = Some(pfc);
    port.ecn[RDMA] = Some(ecn);
    port
}

/// The switch of the DCQCN paper: 32 ports of 40 Gb/s, 12 MB, headroom of 22.4 KB, beta 8 (of 8
/// priorities: an ingress may take all that is free), resume two frames below, marks from 5 to
/// 200 KB at 1 %. Cells of 208 bytes are those of its chip.
pub fn trident2(mac: Mac) -> SwitchConfig {
    let paper = SharedBuffer::TRIDENT2;
    let pfc = PfcPriority {
        headroom: paper.flight,
        xoff: None,
        xon_offset: 2 * paper.mtu,
        quanta: 0xFFFF,
    };
    let ecn = EcnProfile {
        kmin: 5_000,
        kmax: 200_000,
        pmax_ppb: 10_000_000,
        at: EcnAt::Enqueue,
        average_shift: 0,
    };
    let buffer = Buffer {
        total: paper.buffer,
        reserve: 0,
        alpha: Alpha { numerator: 1, denominator: 1 },
        egress_alpha: Some(Alpha { numerator: 1, denominator: 1 }),
        cell: 208,
    };
    switch(mac, buffer, vec![port(Rate::from_gbps(40), pfc, ecn); 32])
}

/// A switch like those of the Spectrum family: 32 ports of 100 Gb/s, 16 MB in cells of 96 bytes,
/// headroom as the driver's formula for 40 m and jumbo frames, an ingress may take as much as is
/// free, marks from 150 to 1500 KB with certainty at the end.
pub fn spectrum(mac: Mac) -> SwitchConfig {
    let rate = Rate::from_gbps(100);
    let headroom = mlx5_headroom(rate, 40, 9216);
    let pfc = PfcPriority { headroom, xoff: None, xon_offset: 19_456, quanta: 0xFFFF };
    let ecn = EcnProfile {
        kmin: 150_000,
        kmax: 1_500_000,
        pmax_ppb: 1_000_000_000,
        at: EcnAt::Dequeue,
        average_shift: 0,
    };
    let buffer = Buffer {
        total: 16 << 20,
        reserve: 10_240,
        alpha: Alpha { numerator: 1, denominator: 1 },
        egress_alpha: Some(Alpha { numerator: 2, denominator: 1 }),
        cell: 96,
    };
    switch(mac, buffer, vec![port(rate, pfc, ecn); 32])
}

/// The HPCC simulator's switch with ports of these rates and delays, on a network whose NICs run at
/// `nic`: a reserve of 4 KiB, headroom of three delays, a threshold of an eighth of what is free
/// (at ports of twice that rate a quarter, and so on), resume 3 KiB below, endless pauses, and
/// marks at dequeue.
pub fn hpcc(
    mac: Mac,
    total: u64,
    nic: Rate,
    ports: &[(Rate, Span)],
    ecn: EcnProfile,
) -> (SwitchConfig, Options) {
    let shift = |rate: Rate| {
        let doublings = (rate.as_bps() / nic.as_bps().max(1)).max(1).ilog2();
        Alpha { numerator: 1, denominator: 1 << 3_u32.saturating_sub(doublings) }
    };
    let of = |&(rate, delay): &(Rate, Span)| {
        let headroom = hpcc_headroom(rate, delay);
        let pfc = PfcPriority { headroom, xoff: None, xon_offset: 3 * 1024, quanta: 0xFFFF };
        port(rate, pfc, ecn)
    };
    let buffer = Buffer {
        total,
        reserve: 4096,
        alpha: Alpha { numerator: 1, denominator: 8 },
        egress_alpha: None,
        cell: 0,
    };
    let options = Options {
        endless_pauses: true,
        port_alpha: ports.iter().map(|port| Some(shift(port.0))).collect(),
        ..Options::default()
    };
    (switch(mac, buffer, ports.iter().map(of).collect()), options)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::switch::Switch;

    #[test]
    fn they_work() {
        let mac = Mac([2, 0, 0, 0, 0, 0]);
        for config in [trident2(mac), spectrum(mac)] {
            assert_eq!(Switch::<()>::new(config).err(), None);
        }
        let link = |gbps| (Rate::from_gbps(gbps), Span::from_us(1));
        let ports = [link(25), link(100), link(400)];
        let ecn = EcnProfile {
            kmin: 100_000,
            kmax: 400_000,
            pmax_ppb: 200_000_000,
            at: EcnAt::Dequeue,
            average_shift: 0,
        };
        let (config, options) = hpcc(mac, 32 << 20, Rate::from_gbps(25), &ports, ecn);
        let room = config.ports.iter().flat_map(|p| p.pfc[RDMA]).map(|pfc| pfc.headroom);
        assert_eq!(room.collect::<Vec<_>>(), [9_375, 37_500, 150_000]);
        let alphas = options.port_alpha.iter().flatten().map(|alpha| alpha.denominator);
        assert_eq!(alphas.collect::<Vec<_>>(), [8, 2, 1]);
        assert_eq!(Switch::<()>::with_options(config, options).err(), None);
    }
}
