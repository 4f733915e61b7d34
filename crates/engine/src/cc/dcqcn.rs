//! DCQCN's reaction point: a queue pair's rate under CNPs, in integers. Both forms are here, by
//! parameters: the paper's (Zhu et al., SIGCOMM 2015) and that of adapters' firmware, in which a
//! clock of its own moves alpha and another one looks whether to cut.

use wire::{Instant, Rate, Span};

/// What moves alpha down.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum AlphaClock {
    /// A clock that runs freely: each period moves alpha up if a CNP came in it, else down.
    Free,
    /// Time since the last CNP, which itself moves alpha up.
    SinceCnp,
}

/// How the target grows once both stages are past the threshold.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Hyper {
    /// By the same step each time.
    Constant,
    /// By one step more each time.
    Growing,
}

/// The parameters, under the names of adapters' firmware (`ecn/roce_rp` in sysfs).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Dcqcn {
    /// G of 1024: alpha moves to `G/1024 × alpha`, and up by `1 - G/1024` after a CNP.
    pub dce_tcp_g: u16,
    /// Period of alpha.
    pub dce_tcp_rtt: Span,
    /// Alpha at the first CNP, of 1024.
    pub initial_alpha_value: u16,
    /// How often it is looked whether to cut; zero: at each CNP.
    pub rate_reduce_monitor_period: Span,
    /// A cut takes `alpha × 2^(10 - gd)` of the rate: 11 is alpha/2.
    pub rpg_gd: u8,
    /// A cut takes at most so many per cent.
    pub rpg_min_dec_fac: u8,
    /// The rate that the first CNP sets; 0: it does not.
    pub rate_to_set_on_first_cnp: Rate,
    /// The lowest rate.
    pub rpg_min_rate: Rate,
    /// The highest; 0: that of the port.
    pub rpg_max_rate: Rate,
    /// The target follows the rate down at every cut.
    pub clamp_tgt_rate: bool,
    /// It does if the timer has raised the rate since the last cut.
    pub clamp_tgt_rate_after_time_inc: bool,
    /// The timer of increases.
    pub rpg_time_reset: Span,
    /// Bytes sent between increases; 0: only the timer counts.
    pub rpg_byte_reset: u64,
    /// Increases of each kind in fast recovery.
    pub rpg_threshold: u8,
    /// Step of the target in additive increase.
    pub rpg_ai_rate: Rate,
    /// Step in hyper increase.
    pub rpg_hai_rate: Rate,
    /// What moves alpha.
    pub alpha_clock: AlphaClock,
    /// How hyper increase grows.
    pub hyper: Hyper,
}

const MBPS: u64 = 1_000_000;

impl Dcqcn {
    /// As in the paper: K = T = 55 µs, B = 10 MB, F = 5, g = 1/256, R_AI = 40 Mb/s. R_HAI is not in
    /// it: the authors' simulator has 200 Mb/s.
    pub const PAPER: Self = Self {
        dce_tcp_g: 1020,
        dce_tcp_rtt: Span::from_us(55),
        initial_alpha_value: 1024,
        rate_reduce_monitor_period: Span::ZERO,
        rpg_gd: 11,
        rpg_min_dec_fac: 50,
        rate_to_set_on_first_cnp: Rate::from_bps(0),
        rpg_min_rate: Rate::from_bps(MBPS),
        rpg_max_rate: Rate::from_bps(0),
        clamp_tgt_rate: true,
        clamp_tgt_rate_after_time_inc: true,
        rpg_time_reset: Span::from_us(55),
        rpg_byte_reset: 10_000_000,
        rpg_threshold: 5,
        rpg_ai_rate: Rate::from_bps(40 * MBPS),
        rpg_hai_rate: Rate::from_bps(200 * MBPS),
        alpha_clock: AlphaClock::SinceCnp,
        hyper: Hyper::Growing,
    };

    /// As adapters come (ConnectX-4 and later). What unit the byte counter's 32767 has in firmware
    /// is not public: it is left out, and the timer drives increases.
    pub const VENDOR: Self = Self {
        dce_tcp_g: 1019,
        dce_tcp_rtt: Span::from_us(1),
        initial_alpha_value: 1023,
        rate_reduce_monitor_period: Span::from_us(4),
        rpg_gd: 11,
        rpg_min_dec_fac: 50,
        rate_to_set_on_first_cnp: Rate::from_bps(0),
        rpg_min_rate: Rate::from_bps(MBPS),
        rpg_max_rate: Rate::from_bps(0),
        clamp_tgt_rate: false,
        clamp_tgt_rate_after_time_inc: true,
        rpg_time_reset: Span::from_us(300),
        rpg_byte_reset: 0,
        rpg_threshold: 1,
        rpg_ai_rate: Rate::from_bps(5 * MBPS),
        rpg_hai_rate: Rate::from_bps(50 * MBPS),
        alpha_clock: AlphaClock::Free,
        hyper: Hyper::Constant,
    };

    /// The recipe that the HPCC simulator's scripts give for a port of this rate.
    pub const fn hpcc_sim(line: Rate) -> Self {
        let gbps = line.as_bps() / 1_000_000_000;
        Self {
            dce_tcp_g: 1020,
            initial_alpha_value: 1024,
            rpg_min_rate: Rate::from_bps(1000 * MBPS),
            rpg_ai_rate: Rate::from_bps(5 * MBPS * gbps / 25),
            rpg_hai_rate: Rate::from_bps(50 * MBPS * gbps / 25),
            ..Self::VENDOR
        }
    }
}

/// Fraction bits of alpha.
const FRACTION: u32 = 32;
/// Periods without a CNP after which nothing of alpha is left, whatever its gain (2^-32 is passed
/// after 22.2 / g of them).
const FORGOTTEN: u64 = 1 << 16;

/// A queue pair's limiter, from its first CNP on.
#[derive(Clone, Debug)]
pub(crate) struct Limiter {
    rate: u64,
    target: u64,
    line: u64,
    /// Of 2^32.
    alpha: u64,
    /// When the clocks began, and how many periods alpha has gone through.
    origin: Instant,
    periods: u64,
    /// A CNP has come in the present period.
    came: bool,
    /// When it is looked next whether to cut: set while there is something to see.
    check: Option<Instant>,
    /// When the timer raises the rate next.
    raise: Option<Instant>,
    /// Increases by timer and by bytes since the last cut.
    stages: (u32, u32),
    bytes: u64,
}

impl Limiter {
    /// The limiter of a queue pair at its first CNP.
    pub(crate) fn new(p: &Dcqcn, port: Rate, now: Instant) -> Self {
        let line = match p.rpg_max_rate.as_bps() {
            0 => port.as_bps(),
            most => most.min(port.as_bps()),
        };
        let alpha = u64::from(p.initial_alpha_value.min(1024)) << (FRACTION - 10);
        let set = p.rate_to_set_on_first_cnp.as_bps();
        let rate = if set == 0 { line } else { set.clamp(p.rpg_min_rate.as_bps(), line) };
        let mut limiter = Self {
            rate,
            target: line,
            line,
            alpha,
            origin: now,
            periods: 0,
            came: false,
            check: None,
            raise: None,
            stages: (0, 0),
            bytes: 0,
        };
        if p.rate_reduce_monitor_period == Span::ZERO {
            limiter.notified(p, now);
        } else if limiter.is_limited() {
            limiter.raise = Some(now + p.rpg_time_reset);
        }
        limiter
    }

    /// The rate now.
    pub(crate) fn rate(&self) -> Rate {
        Rate::from_bps(self.rate)
    }

    /// Whether it keeps its queue pair from sending at the line's rate.
    pub(crate) fn is_limited(&self) -> bool {
        self.rate < self.line || self.target < self.line
    }

    /// When [`timeout`](Self::timeout) is to be called.
    pub(crate) fn deadline(&self) -> Option<Instant> {
        [self.check, self.raise].into_iter().flatten().reduce(Instant::earlier)
    }

    /// A CNP has come.
    pub(crate) fn notified(&mut self, p: &Dcqcn, now: Instant) {
        self.pass(p, now);
        let period = p.rate_reduce_monitor_period.as_ps();
        match now.since(self.origin).as_ps().checked_div(period) {
            None => self.cut(p, now),
            Some(gone) => {
                let next = self.origin + Span::from_ps((gone + 1) * period);
                self.check.get_or_insert(next);
            }
        }
        match p.alpha_clock {
            AlphaClock::Free => self.came = true,
            AlphaClock::SinceCnp => {
                self.alpha = raised(self.alpha, p.dce_tcp_g);
                (self.origin, self.periods) = (now, 0);
            }
        }
    }

    /// The queue pair has sent `bytes` bytes of the link's.
    pub(crate) fn sent(&mut self, p: &Dcqcn, bytes: u64) {
        if p.rpg_byte_reset == 0 || !self.is_limited() {
            return;
        }
        self.bytes += bytes;
        while self.bytes >= p.rpg_byte_reset {
            self.bytes -= p.rpg_byte_reset;
            self.increase(p);
            self.stages.1 += 1;
        }
    }

    /// Runs the clocks that are due.
    pub(crate) fn timeout(&mut self, p: &Dcqcn, now: Instant) {
        if let Some(at) = self.check.filter(|at| at.is_due(now)) {
            self.check = None;
            self.pass(p, at);
            self.cut(p, at);
        }
        while let Some(at) = self.raise.filter(|at| at.is_due(now)) {
            self.increase(p);
            self.stages.0 += 1;
            let again = self.is_limited() && p.rpg_time_reset != Span::ZERO;
            self.raise = again.then(|| at + p.rpg_time_reset);
        }
    }

    /// Moves alpha through the periods that have passed.
    fn pass(&mut self, p: &Dcqcn, now: Instant) {
        let period = p.dce_tcp_rtt.as_ps().max(1);
        let passed = now.since(self.origin).as_ps() / period;
        let mut left = passed.saturating_sub(self.periods);
        if left > 0 && std::mem::take(&mut self.came) {
            self.alpha = raised(self.alpha, p.dce_tcp_g);
            left -= 1;
        }
        self.alpha = faded(self.alpha, p.dce_tcp_g, left);
        self.periods = passed.max(self.periods);
    }

    fn cut(&mut self, p: &Dcqcn, now: Instant) {
        if p.clamp_tgt_rate || (p.clamp_tgt_rate_after_time_inc && self.stages.0 > 0) {
            self.target = self.rate;
        }
        let part = u128::from(self.rate) * u128::from(self.alpha);
        let shift = (FRACTION - 10) + u32::from(p.rpg_gd.min(64));
        let most = u128::from(self.rate) * u128::from(p.rpg_min_dec_fac.min(100)) / 100;
        let less = (part >> shift).min(most) as u64;
        self.rate = (self.rate - less).max(p.rpg_min_rate.as_bps()).min(self.line);
        self.stages = (0, 0);
        self.bytes = 0;
        self.raise = (p.rpg_time_reset != Span::ZERO).then(|| now + p.rpg_time_reset);
    }

    fn increase(&mut self, p: &Dcqcn) {
        let (time, bytes) = self.stages;
        let bytes = if p.rpg_byte_reset == 0 { time } else { bytes };
        let threshold = u32::from(p.rpg_threshold);
        let step = if time.max(bytes) < threshold {
            0
        } else if time.min(bytes) > threshold {
            let times = match p.hyper {
                Hyper::Constant => 1,
                Hyper::Growing => time.min(bytes) - threshold,
            };
            p.rpg_hai_rate.as_bps().saturating_mul(u64::from(times))
        } else {
            p.rpg_ai_rate.as_bps()
        };
        self.target = self.target.saturating_add(step).min(self.line);
        // Half of what is missing, rounded up, so that the target is reached.
        self.rate += (self.target - self.rate.min(self.target)).div_ceil(2);
        self.rate = self.rate.min(self.line);
    }
}

fn raised(alpha: u64, g: u16) -> u64 {
    let g = u64::from(g.min(1024));
    ((alpha * g) >> 10) + ((1024 - g) << (FRACTION - 10))
}

/// Alpha after `n` periods without a CNP.
fn faded(mut alpha: u64, g: u16, n: u64) -> u64 {
    let g = u64::from(g.min(1024));
    if n > FORGOTTEN && g < 1024 {
        return 0;
    }
    if n <= 4 {
        for _ in 0..n {
            alpha = (alpha * g) >> 10;
        }
        return alpha;
    }
    let (mut factor, mut n) = (u128::from(g) << (FRACTION - 10), n);
    let mut all = 1_u128 << FRACTION;
    while n > 0 {
        if n & 1 == 1 {
            all = (all * factor) >> FRACTION;
        }
        factor = (factor * factor) >> FRACTION;
        n >>= 1;
    }
    ((u128::from(alpha) * all) >> FRACTION) as u64
}

#[cfg(test)]
mod tests;
