//! Priorities, classes, PFC and buffers of a port, from mlnx_qos where that is, else from dcb; what
//! the neighbour says, from lldptool.

use crate::parse::dcb;
use crate::parse::lldptool::{self, Neighbour};
use crate::parse::mlnx_qos::{self, DcbxMode, Trust, Tsa};
use crate::reader::{Reader, Seen};

/// The receive buffers of a port.
#[derive(Clone, Debug)]
pub struct Headroom {
    /// The buffer of each priority.
    pub buffer_of: [u8; 8],
    /// Bytes of each buffer.
    pub bytes: Vec<u64>,
}

/// The settings, each with its place.
#[derive(Clone, Debug, Default)]
pub struct Qos {
    /// Who speaks DCBX.
    pub dcbx: Option<Seen<DcbxMode>>,
    /// What tells a packet's priority.
    pub trust: Option<Seen<Trust>>,
    /// The priority of each DSCP, as far as it is known.
    pub dscp_priority: Option<Seen<[Option<u8>; 64]>>,
    /// Priorities with PFC, as a mask.
    pub pfc: Option<Seen<u8>>,
    /// Receive buffers.
    pub headroom: Option<Seen<Headroom>>,
    /// The length of cable that buffers are made for, metres.
    pub cable_m: Option<Seen<f64>>,
    /// The class of each priority.
    pub class_of: Option<Seen<[u8; 8]>>,
    /// How classes are scheduled.
    pub schedule: Option<Seen<[Option<Tsa>; 8]>>,
    /// What lldpad announces of this port.
    pub announced: Option<Seen<Neighbour>>,
    /// What the neighbour announces.
    pub neighbour: Option<Seen<Neighbour>>,
}

impl Qos {
    /// The priority of a DSCP on a port that trusts it.
    pub fn priority_of(&self, dscp: u8) -> Option<Seen<u8>> {
        let trust = self.trust.as_ref()?;
        if trust.value == Trust::Pcp {
            return None;
        }
        match &self.dscp_priority {
            Some(map) => Some(map.map(map.value[usize::from(dscp & 63)]?)),
            // Devices map by the class selector unless told otherwise.
            None => Some(Seen { value: (dscp & 63) >> 3, from: trust.from.clone() }),
        }
    }

    /// Whether anything at all was read.
    pub fn is_known(&self) -> bool {
        self.pfc.is_some() || self.trust.is_some() || self.schedule.is_some()
    }

    pub(crate) fn read(reader: &Reader<'_>, interface: &str, mlx5: bool) -> Self {
        let mut qos = Self::default();
        if mlx5 {
            qos.ask_mlnx_qos(reader, interface);
        }
        if qos.pfc.is_none() {
            qos.ask_dcb(reader, interface, mlx5);
        }
        let tlvs = |command: &[&str]| {
            let seen = reader.output(command)?;
            let announced = lldptool::parse(&seen.value)?;
            Some(seen.map(announced))
        };
        qos.neighbour = tlvs(&["lldptool", "-t", "-n", "-i", interface]);
        if qos.neighbour.is_some() {
            qos.announced = tlvs(&["lldptool", "-t", "-i", interface]);
        }
        qos
    }

    fn ask_mlnx_qos(&mut self, reader: &Reader<'_>, interface: &str) {
        let Some(seen) = reader.output(&["mlnx_qos", "-i", interface]) else { return };
        let found = mlnx_qos::parse(&seen.value);
        if found.pfc.is_none() {
            reader
                .note(&seen.from, "no line `enabled` of eight numbers under `PFC configuration:`");
        }
        self.dcbx = found.dcbx.map(|value| seen.map(value));
        self.trust = found.trust.map(|value| seen.map(value));
        self.dscp_priority = found.dscp_priority.map(|value| seen.map(value));
        self.pfc = found.pfc.map(|value| seen.map(value));
        self.cable_m = found.cable_m.map(|value| seen.map(value));
        self.class_of = found.priority_tc.map(|value| seen.map(value));
        self.schedule = found.tsa.map(|value| seen.map(value));
        if let (Some(buffer_of), Some(bytes)) = (found.priority_buffer, found.buffer_bytes) {
            self.headroom = Some(seen.map(Headroom { buffer_of, bytes }));
        }
    }

    fn ask_dcb(&mut self, reader: &Reader<'_>, interface: &str, mlx5: bool) {
        let show = |object| reader.output(&["dcb", object, "show", "dev", interface]);
        let Some(seen) = show("pfc") else { return };
        self.pfc = reader.parsed(&seen, dcb::pfc(&seen.value), "prio-pfc 0:off 1:off …");
        if let Some(seen) = show("ets") {
            let (class_of, schedule) = dcb::ets(&seen.value);
            self.class_of = class_of.map(|value| seen.map(value));
            self.schedule = schedule.map(|value| seen.map(value));
        }
        let entries = show("app").map(|seen| {
            let entries = dcb::app(&seen.value).unwrap_or_default();
            seen.map(entries)
        });
        if let Some(seen) = entries.filter(|seen| !seen.value.is_empty()) {
            // Drivers trust DSCP as soon as there is an entry. A DSCP without one has priority 0;
            // with mlx5 the one that the firmware had for it, which nobody tells.
            let mut map = [if mlx5 { None } else { Some(0) }; 64];
            for (dscp, priority) in &seen.value {
                map[*dscp] = Some(*priority);
            }
            self.dscp_priority = Some(seen.map(map));
            self.trust = Some(seen.map(Trust::Dscp));
        }
        if !mlx5 && let Some(seen) = show("apptrust") {
            self.trust = dcb::trust(&seen.value).map(|trust| seen.map(trust));
        }
        if self.dcbx.is_none()
            && let Some(seen) = show("dcbx")
        {
            self.dcbx = dcb::dcbx(&seen.value).map(|mode| seen.map(mode));
        }
        if let Some(seen) = show("buffer")
            && let (Some(buffer_of), Some(bytes)) = dcb::buffer(&seen.value)
        {
            self.headroom = Some(seen.map(Headroom { buffer_of, bytes }));
        }
    }
}
