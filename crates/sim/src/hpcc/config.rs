//! The HPCC simulator's config file: `KEY value …` in each line; unknown keys are passed over, as
//! it does.

use engine::Dcqcn;
use switch::{EcnAt, EcnProfile};
use wire::{Rate, Span};

use super::{InputError, wrong};
use crate::units;

/// A config file, with the simulator's defaults.
#[derive(Clone, PartialEq, Debug)]
pub struct Config {
    /// Congestion control: 1 is DCQCN, 3 HPCC, 7 TIMELY, 8 DCTCP, 10 PINT; else none.
    pub mode: u32,
    /// Payload of a full packet.
    pub payload: u32,
    /// When it stops.
    pub stop: Span,
    /// Switches mark.
    pub marking: bool,
    /// DCQCN's parameters.
    pub dcqcn: Dcqcn,
    /// Least time between CNPs; zero: each mark is told of.
    pub cnp_interval: Span,
    /// Acknowledgements have a class of their own.
    pub ack_high_priority: bool,
    /// Packets between acknowledgements.
    pub ack_interval: u64,
    /// Chance that a link loses a packet, in parts of 10^9.
    pub error_ppb: u32,
    /// Bytes of a switch's buffer.
    pub buffer: u64,
    /// The named files: topology, flows, and those written.
    pub files: Files,
    /// Window of time in which queues are sampled.
    pub queues: (Span, Span),
    kmax: Vec<(Rate, u64)>,
    kmin: Vec<(Rate, u64)>,
    pmax: Vec<(Rate, u32)>,
}

/// File names of a config.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Files {
    /// `TOPOLOGY_FILE`.
    pub topology: String,
    /// `FLOW_FILE`.
    pub flows: String,
    /// `FCT_OUTPUT_FILE`.
    pub fct: String,
    /// `PFC_OUTPUT_FILE`.
    pub pfc: String,
    /// `QLEN_MON_FILE`.
    pub qlen: String,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            mode: 1,
            payload: 1000,
            stop: Span::from_ms(3010),
            marking: true,
            dcqcn: Dcqcn {
                dce_tcp_g: 1024,
                dce_tcp_rtt: Span::from_us(55),
                initial_alpha_value: 1024,
                rpg_min_rate: Rate::from_bps(100_000_000),
                rpg_threshold: 5,
                rpg_time_reset: Span::from_us(1500),
                ..Dcqcn::VENDOR
            },
            cnp_interval: Span::ZERO,
            ack_high_priority: false,
            ack_interval: 1,
            error_ppb: 0,
            buffer: 16 << 20,
            files: Files::default(),
            queues: (Span::ZERO, Span::ZERO),
            kmax: Vec::new(),
            kmin: Vec::new(),
            pmax: Vec::new(),
        }
    }
}

/// A value of a key.
struct Value<'a> {
    key: &'a str,
    words: &'a [&'a str],
}

impl Value<'_> {
    fn word(&self) -> Result<&str, String> {
        self.words.first().copied().ok_or_else(|| format!("{}: a value is missing", self.key))
    }

    fn read<T>(&self, read: impl Fn(&str) -> Result<T, String>) -> Result<T, String> {
        read(self.word()?).map_err(|message| format!("{}: {message}", self.key))
    }

    fn number(&self) -> Result<u64, String> {
        self.read(super::number)
    }

    fn unit(&self, unit: &str) -> Result<Span, String> {
        self.read(|word| units::span(&format!("{word}{unit}")))
    }

    /// `n`, then n pairs of a rate in bit/s and a value.
    fn map<T>(&self, read: impl Fn(&str) -> Result<T, String>) -> Result<Vec<(Rate, T)>, String> {
        let count: usize = self.read(super::number)?;
        let pairs = self.words.get(1..).unwrap_or_default();
        if pairs.len() < 2 * count {
            let n = pairs.len();
            return Err(format!("{}: expected {count} pairs, found {n} values", self.key));
        }
        let pair = |pair: &[&str]| {
            let rate = Rate::from_bps(super::number(pair[0])?);
            Ok((rate, read(pair[1])?))
        };
        let all: Result<_, String> = pairs.chunks_exact(2).take(count).map(pair).collect();
        all.map_err(|message| format!("{}: {message}", self.key))
    }
}

/// g, a decimal fraction, as DCE_TCP_G has it.
fn gain(word: &str) -> Result<u16, String> {
    let ppb = u64::from(units::fraction(word)?);
    Ok(1024 - ((ppb * 1024 + 500_000_000) / 1_000_000_000) as u16)
}

impl Config {
    /// Reads a config file.
    pub fn read(text: &str) -> Result<Self, InputError> {
        let mut config = Self::default();
        for (index, line) in text.lines().enumerate() {
            let words: Vec<&str> = line.split_whitespace().collect();
            let Some((key, words)) = words.split_first() else { continue };
            let value = Value { key, words };
            config.set(&value).map_err(|message| wrong(index + 1, message))?;
        }
        for (key, name) in
            [("TOPOLOGY_FILE", &config.files.topology), ("FLOW_FILE", &config.files.flows)]
        {
            if name.is_empty() {
                return Err(wrong(0, format!("{key}: missing; expected the name of a file")));
            }
        }
        Ok(config)
    }

    fn set(&mut self, v: &Value<'_>) -> Result<(), String> {
        match v.key {
            "CC_MODE" => self.mode = v.number()? as u32,
            "PACKET_PAYLOAD_SIZE" => self.payload = v.number()?.clamp(1, 4096) as u32,
            "SIMULATOR_STOP_TIME" => self.stop = v.unit("s")?,
            "ENABLE_QCN" => self.marking = v.number()? != 0,
            "ACK_HIGH_PRIO" => self.ack_high_priority = v.number()? != 0,
            "ERROR_RATE_PER_LINK" => self.error_ppb = v.read(units::fraction)?,
            "L2_ACK_INTERVAL" => self.ack_interval = v.number()?.max(1),
            "BUFFER_SIZE" => self.buffer = v.number()? << 20,
            "CNP_INTERVAL" => self.cnp_interval = v.unit("us")?,
            "QLEN_MON_START" => self.queues.0 = v.unit("ns")?,
            "QLEN_MON_END" => self.queues.1 = v.unit("ns")?,
            "TOPOLOGY_FILE" => v.word()?.clone_into(&mut self.files.topology),
            "FLOW_FILE" => v.word()?.clone_into(&mut self.files.flows),
            "FCT_OUTPUT_FILE" => v.word()?.clone_into(&mut self.files.fct),
            "PFC_OUTPUT_FILE" => v.word()?.clone_into(&mut self.files.pfc),
            "QLEN_MON_FILE" => v.word()?.clone_into(&mut self.files.qlen),
            "KMAX_MAP" => self.kmax = v.map(super::number)?,
            "KMIN_MAP" => self.kmin = v.map(super::number)?,
            "PMAX_MAP" => self.pmax = v.map(units::fraction)?,
            _ => self.set_dcqcn(v)?,
        }
        Ok(())
    }

    fn set_dcqcn(&mut self, v: &Value<'_>) -> Result<(), String> {
        let p = &mut self.dcqcn;
        match v.key {
            "ALPHA_RESUME_INTERVAL" => p.dce_tcp_rtt = v.unit("us")?,
            "RATE_DECREASE_INTERVAL" => p.rate_reduce_monitor_period = v.unit("us")?,
            "RP_TIMER" => p.rpg_time_reset = v.unit("us")?,
            "FAST_RECOVERY_TIMES" => p.rpg_threshold = v.number()?.min(255) as u8,
            "EWMA_GAIN" => p.dce_tcp_g = v.read(gain)?,
            "RATE_AI" => p.rpg_ai_rate = v.read(units::rate)?,
            "RATE_HAI" => p.rpg_hai_rate = v.read(units::rate)?,
            "MIN_RATE" => p.rpg_min_rate = v.read(units::rate)?,
            "CLAMP_TARGET_RATE" => p.clamp_tgt_rate = v.number()? != 0,
            _ => {}
        }
        Ok(())
    }

    /// The marking of a port of this rate.
    pub(super) fn marks(&self, rate: Rate) -> Result<EcnProfile, String> {
        fn of<T: Copy>(key: &str, map: &[(Rate, T)], rate: Rate) -> Result<T, String> {
            let found = map.iter().find(|(r, _)| *r == rate).map(|(_, value)| *value);
            found.ok_or_else(|| format!("{key}: no value for ports of {} bit/s", rate.as_bps()))
        }
        Ok(EcnProfile {
            kmin: of("KMIN_MAP", &self.kmin, rate)? * 1000,
            kmax: of("KMAX_MAP", &self.kmax, rate)? * 1000,
            pmax_ppb: of("PMAX_MAP", &self.pmax, rate)?,
            at: EcnAt::Dequeue,
            average_shift: 0,
        })
    }
}
