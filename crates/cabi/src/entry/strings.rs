//! Names of enumeration values, and the arithmetic of link rates.

use core::ffi::{CStr, c_char, c_int};

fn pick(table: &[&'static CStr], index: u32, otherwise: &'static CStr) -> *const c_char {
    table.get(index as usize).copied().unwrap_or(otherwise).as_ptr()
}

pub(crate) extern "C" fn ibv_wc_status_str(status: u32) -> *const c_char {
    const NAMES: [&CStr; 24] = [
        c"success",
        c"local length error",
        c"local QP operation error",
        c"local EE context operation error",
        c"local protection error",
        c"Work Request Flushed Error",
        c"memory management operation error",
        c"bad response error",
        c"local access error",
        c"remote invalid request error",
        c"remote access error",
        c"remote operation error",
        c"transport retry counter exceeded",
        c"RNR retry counter exceeded",
        c"local RDD violation error",
        c"remote invalid RD request",
        c"aborted error",
        c"invalid EE context number",
        c"invalid EE context state",
        c"fatal error",
        c"response timeout error",
        c"general error",
        c"TM error",
        c"TM software rendezvous",
    ];
    pick(&NAMES, status, c"unknown")
}

pub(crate) extern "C" fn ibv_node_type_str(node_type: c_int) -> *const c_char {
    const NAMES: [&CStr; 8] = [
        c"unknown",
        c"InfiniBand channel adapter",
        c"InfiniBand switch",
        c"InfiniBand router",
        c"iWARP NIC",
        c"usNIC",
        c"usNIC UDP",
        c"unspecified",
    ];
    pick(&NAMES, node_type as u32, c"unknown")
}

pub(crate) extern "C" fn ibv_port_state_str(state: u32) -> *const c_char {
    const NAMES: [&CStr; 6] =
        [c"no state change (NOP)", c"down", c"init", c"armed", c"active", c"active defer"];
    pick(&NAMES, state, c"unknown")
}

pub(crate) extern "C" fn ibv_event_type_str(event: u32) -> *const c_char {
    const NAMES: [&CStr; 20] = [
        c"CQ error",
        c"local work queue catastrophic error",
        c"invalid request local work queue error",
        c"local access violation work queue error",
        c"communication established",
        c"send queue drained",
        c"path migrated",
        c"path migration request error",
        c"local catastrophic error",
        c"port active",
        c"port error",
        c"LID change",
        c"P_Key change",
        c"SM change",
        c"SRQ catastrophic error",
        c"SRQ limit reached",
        c"last WQE reached",
        c"client reregistration",
        c"GID table change",
        c"WQ fatal",
    ];
    pick(&NAMES, event, c"unknown")
}

/// Code of `enum ibv_rate`, multiple of 2.5 Gbit/s (0 where there is none), Mbit/s.
const RATES: [(u32, c_int, c_int); 23] = [
    (2, 1, 2500),
    (5, 2, 5000),
    (3, 4, 10000),
    (6, 8, 20000),
    (4, 12, 30000),
    (7, 16, 40000),
    (8, 24, 60000),
    (9, 32, 80000),
    (10, 48, 120000),
    (11, 6, 14062),
    (12, 22, 56250),
    (13, 45, 112500),
    (14, 67, 168750),
    (15, 10, 25781),
    (16, 40, 103125),
    (17, 80, 206250),
    (18, 120, 309375),
    (19, 11, 28125),
    (20, 20, 53125),
    (21, 160, 425000),
    (22, 240, 637500),
    (23, 320, 850000),
    (24, 480, 1275000),
];

pub(crate) extern "C" fn ibv_rate_to_mult(rate: u32) -> c_int {
    RATES.iter().find(|r| r.0 == rate).map_or(-1, |r| r.1)
}

pub(crate) extern "C" fn mult_to_ibv_rate(mult: c_int) -> u32 {
    RATES.iter().find(|r| r.1 == mult).map_or(0, |r| r.0)
}

pub(crate) extern "C" fn ibv_rate_to_mbps(rate: u32) -> c_int {
    RATES.iter().find(|r| r.0 == rate).map_or(-1, |r| r.2)
}

pub(crate) extern "C" fn mbps_to_ibv_rate(mbps: c_int) -> u32 {
    RATES.iter().find(|r| r.2 == mbps).map_or(0, |r| r.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_go_both_ways() {
        for (code, mult, mbps) in RATES {
            assert_eq!(mult_to_ibv_rate(mult), code);
            assert_eq!(mbps_to_ibv_rate(mbps), code);
            assert_eq!(ibv_rate_to_mult(code), mult);
            assert_eq!(ibv_rate_to_mbps(code), mbps);
        }
        assert_eq!(ibv_rate_to_mult(1), -1);
        assert_eq!(mbps_to_ibv_rate(123), 0);
    }

    #[test]
    fn foreign_values_have_a_name() {
        for value in [0, 23, 24, 1000, u32::MAX] {
            assert!(!ibv_wc_status_str(value).is_null());
            assert!(!ibv_event_type_str(value).is_null());
            assert!(!ibv_port_state_str(value).is_null());
        }
        assert!(!ibv_node_type_str(-1).is_null());
    }
}
