//! One step of the demonstration: a measurement by `crocevia perf` between two processes, its data
//! checked, its result read from the client's JSON.

use std::fmt;
use std::io::Read;
use std::net::IpAddr;
use std::process::Stdio;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::super::perf::pair::{self, Server};
use super::super::perf::plan::{Amount, Ask, Sizes, Test};
use super::super::perf::report::{BwRow, Checked, LatRow, Row};
use crate::error::{Failure, Result};

/// Bytes of a message where bandwidth is measured.
pub(super) const BW_SIZE: u32 = 64 << 10;
/// Bytes of a message where latency is measured.
pub(super) const LAT_SIZE: u32 = 64;
/// A step may take this much longer than its time.
const GRACE: Duration = Duration::from_secs(15);

/// A host of the demonstration.
pub(super) struct Host {
    pub(super) role: &'static str,
    pub(super) addr: IpAddr,
}

/// What a step found.
#[derive(Clone, Copy, PartialEq, Debug, Serialize)]
pub(super) struct Figure {
    #[serde(flatten)]
    pub(super) value: Value,
    /// Bytes whose value was compared.
    pub(super) checked: u64,
}

/// The number that a step is for.
#[derive(Clone, Copy, PartialEq, Debug, Serialize)]
#[serde(untagged)]
pub(super) enum Value {
    Bandwidth { gbit_per_s: f64 },
    Rate { operations_per_s: f64 },
    Latency { median_us: f64, p99_us: f64 },
}

impl fmt::Display for Figure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.value {
            Value::Bandwidth { gbit_per_s } => write!(f, "{gbit_per_s:.2} Gbit/s"),
            Value::Rate { operations_per_s } if operations_per_s >= 1e6 => {
                write!(f, "{:.2} M/s", operations_per_s / 1e6)
            }
            Value::Rate { operations_per_s } => write!(f, "{:.0} k/s", operations_per_s / 1e3),
            Value::Latency { median_us, p99_us } => write!(f, "{median_us:.1} / {p99_us:.1}"),
        }
    }
}

/// A measurement to be made.
pub(super) struct Step<'a> {
    pub(super) hosts: &'a [Host; 2],
    pub(super) test: Test,
    pub(super) time: Duration,
    pub(super) faults: Option<&'a str>,
}

/// What of the client's JSON counts here.
#[derive(Deserialize)]
struct Output {
    results: Vec<Row>,
    checked: Option<Checked>,
}

impl Step<'_> {
    /// Measures.
    pub(super) fn run(&self) -> Result<Figure> {
        let [server, client] = self.hosts;
        let is_atomic = matches!(self.test, Test::AtomicBw | Test::AtomicLat);
        let size = if self.test.is_latency() { LAT_SIZE } else { BW_SIZE };
        let ask = Ask {
            sizes: (!is_atomic).then_some(Sizes::One(size)),
            amount: Some(Amount::Seconds(self.time.as_secs_f64())),
            check: Some(true),
            ..Ask::new(self.test)
        };
        let arguments = pair::arguments(&ask, 0);
        // An empty specification is none, whatever the environment says.
        let environment = [("CROCEVIA_FAULTS", self.faults.unwrap_or(""))];
        let mut server = Server::start(server.addr, &arguments, &environment)?;
        let result = self.client(&mut server, client.addr, &arguments, &environment);
        let (figure, result) = match result {
            Ok(figure) => (Some(figure), Ok(())),
            Err(failure) => (None, Err(failure)),
        };
        server.finish(result)?;
        figure.ok_or_else(|| Failure::failed("no result"))
    }

    fn client(
        &self,
        server: &mut Server,
        addr: IpAddr,
        arguments: &[std::ffi::OsString],
        environment: &[(&str, &str)],
    ) -> Result<Figure> {
        let mut command = pair::own_program()?;
        command.args(arguments).arg(server.address.ip().to_string());
        command.args(["-p", &server.address.port().to_string(), "--json", "--addr"]);
        command.arg(addr.to_string()).envs(environment.iter().copied());
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command
            .spawn()
            .map_err(|error| Failure::failed(format!("the client could not start: {error}")))?;
        let limit = self.time + GRACE;
        match pair::wait(&mut child, limit) {
            Some(true) => {}
            Some(false) => return Err(Failure::failed(pair::parting_words(&mut child))),
            None => {
                let _ = child.kill();
                let _ = child.wait();
                return Err(Failure::failed(format!("not done after {} s", limit.as_secs())));
            }
        }
        // The result is far shorter than what a pipe holds, so the child never waited for this.
        let mut text = String::new();
        if let Some(stdout) = &mut child.stdout {
            let _ = stdout.read_to_string(&mut text);
        }
        let output: Output = serde_json::from_str(&text)
            .map_err(|error| Failure::failed(format!("the client's result is unclear: {error}")))?;
        figure(self.test, output).ok_or_else(|| Failure::failed("the client has no result"))
    }
}

fn figure(test: Test, output: Output) -> Option<Figure> {
    let value = match output.results.first()? {
        Row::Bw(BwRow { msg_rate, .. }) if test == Test::AtomicBw => {
            Value::Rate { operations_per_s: msg_rate * 1e6 }
        }
        Row::Bw(BwRow { bytes, msg_rate, .. }) => {
            Value::Bandwidth { gbit_per_s: msg_rate * f64::from(*bytes) * 8.0 / 1e3 }
        }
        Row::Lat(LatRow { t_typical, p99, .. }) => {
            Value::Latency { median_us: *t_typical, p99_us: *p99 }
        }
    };
    Some(Figure { value, checked: output.checked?.bytes })
}
