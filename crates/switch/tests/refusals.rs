//! Configurations that cannot work: the sentence names the field, the value and what was expected.

mod rig;

use rig::config;
use switch::{
    Alpha, Bandwidth, EcnAt, EcnProfile, Mirror, Options, PortVlans, Scheduling, Switch,
    SwitchConfig, Watchdog,
};
use wire::{Rate, Span};

fn refused(change: impl Fn(&mut SwitchConfig, &mut Options)) -> String {
    let (mut config, mut options) = (config(2, 100_000, 20_000), Options::default());
    change(&mut config, &mut options);
    match Switch::<()>::with_options(config, options) {
        Ok(_) => panic!("it is accepted"),
        Err(sentence) => sentence,
    }
}

#[test]
fn of_the_configuration() {
    assert_eq!(
        refused(|c, _| c.buffer.total = 48_191),
        "buffer.total: 48191 bytes, expected at least the 48192 bytes that headroom and reserve of \
         all ports' lossless priorities take"
    );
    assert_eq!(
        refused(|c, _| c.buffer.alpha = Alpha { numerator: 1, denominator: 0 }),
        "buffer.alpha.denominator: 0, expected 1 or more"
    );
    assert_eq!(
        refused(|c, _| c.buffer.egress_alpha = Some(Alpha { numerator: 0, denominator: 2 })),
        "buffer.egress_alpha.numerator: 0 leaves no shared buffer, expected 1 or more"
    );
    assert_eq!(
        refused(|c, _| c.ports[1].rate = Rate::from_bps(0)),
        "ports[1].rate: 0 bit/s, expected a rate above 0"
    );
    assert_eq!(refused(|c, _| c.class_of[2] = 8), "class_of[2]: 8, expected 0 to 7");
    assert_eq!(refused(|c, _| c.dscp_map[63] = 9), "dscp_map[63]: 9, expected 0 to 7");
    assert_eq!(
        refused(|c, _| c.buffer.cell = 1 << 20),
        "buffer.cell: 1048576 bytes, expected at most 65536"
    );
    assert_eq!(
        refused(|c, _| c.ports[0].scheduling[5] = Scheduling::Weighted(Bandwidth(0))),
        "ports[0].scheduling[5]: a weight of 0, expected 1 to 255"
    );
}

#[test]
fn of_pauses_and_marks() {
    let pfc = |change: fn(&mut switch::PfcPriority)| {
        refused(|c, _| change(c.ports[1].pfc[3].as_mut().expect("lossless")))
    };
    assert_eq!(
        pfc(|pfc| pfc.quanta = 0),
        "ports[1].pfc[3].quanta: 0 would end a pause, expected 1 to 65535"
    );
    assert_eq!(
        pfc(|pfc| pfc.xoff = Some(3_071)),
        "ports[1].pfc[3].xon_offset: 3072 bytes, expected at most the 3071 bytes of xoff"
    );
    assert_eq!(
        pfc(|pfc| pfc.xoff = Some(51_809)),
        "ports[1].pfc[3].xoff: 51809 bytes, expected at most the 51808 bytes that are shared"
    );
    let ecn = |change: fn(&mut EcnProfile)| {
        let mut ecn = EcnProfile {
            kmin: 5_000,
            kmax: 200_000,
            pmax_ppb: 10_000_000,
            at: EcnAt::Enqueue,
            average_shift: 0,
        };
        change(&mut ecn);
        refused(|c, _| c.ports[0].ecn[3] = Some(ecn))
    };
    assert_eq!(
        ecn(|ecn| ecn.kmin = 200_001),
        "ports[0].ecn[3].kmin: 200001 bytes, expected at most kmax, 200000 bytes"
    );
    assert_eq!(
        ecn(|ecn| ecn.pmax_ppb = 1_000_000_001),
        "ports[0].ecn[3].pmax_ppb: 1000000001, expected at most 1000000000 (certainty)"
    );
    assert_eq!(
        ecn(|ecn| ecn.average_shift = 32),
        "ports[0].ecn[3].average_shift: 32, expected 0 to 31"
    );
}

#[test]
fn of_the_options() {
    let vlans = |untagged, tagged: &[u16]| PortVlans { untagged, tagged: tagged.to_vec() };
    assert_eq!(
        refused(|_, o| o.vlans = vec![vlans(Some(1), &[])]),
        "vlans: 1 values, expected none or one for each of 2 ports"
    );
    assert_eq!(
        refused(|_, o| o.vlans = vec![vlans(Some(1), &[]), vlans(None, &[4095])]),
        "vlans[1].untagged, .tagged: VLAN 4095, expected 1 to 4094"
    );
    assert_eq!(
        refused(|_, o| o.vlans = vec![vlans(Some(1), &[1]), vlans(None, &[])]),
        "vlans[0].untagged, .tagged: VLAN 1 twice, expected each once"
    );
    assert_eq!(
        refused(|_, o| o.port_alpha = vec![Some(Alpha { numerator: 1, denominator: 0 })]),
        "port_alpha[0].denominator: 0, expected 1 or more"
    );
    assert_eq!(
        refused(|_, o| o.mirrors = vec![Mirror { of: 0, to: 2 }]),
        "mirrors[0]: of 0 to 2, expected two different ports below 2, and one mirror for a port"
    );
    assert_eq!(
        refused(|_, o| {
            o.watchdog = Some(Watchdog { poll: Span::from_ms(201), ..Watchdog::SONIC });
        }),
        "watchdog.detection: 200000us, expected at least watchdog.poll, 201000us"
    );
}
