//! What a device can be opened with, and the environment variables that say so.

use std::env;
use std::path::PathBuf;

use engine::faults::FaultPlan;
use engine::{Error, limits};
use wire::Span;

/// How to open a device.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Options {
    /// The address or interface to use (`CROCEVIA_ADDR`); see [`devices`](crate::devices).
    pub addr: Option<String>,
    /// Faults to inject (`CROCEVIA_FAULTS`).
    pub faults: Option<FaultPlan>,
    /// Bytes of socket receive buffer to ask for (`CROCEVIA_RCVBUF`); the largest allowed if
    /// absent.
    pub receive_buffer: Option<usize>,
    /// Where to write what is sent and received, as a pcapng file (`CROCEVIA_PCAP`). `%p` in the
    /// name stands for the process's number. A file that is not empty, or that another process
    /// captures to, is left alone: then the number goes before the name's extension. A named pipe
    /// is written while somebody reads it.
    pub pcap: Option<PathBuf>,
    /// Bytes to keep of each captured packet, from its Ethernet header
    /// (`CROCEVIA_PCAP_SNAPLEN`); all if absent.
    pub pcap_snap_len: Option<u32>,
    /// How long an owed ACK may wait for company.
    pub ack_delay: Span,
    /// Send end-to-end credits.
    pub credits: bool,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            addr: None,
            faults: None,
            receive_buffer: None,
            pcap: None,
            pcap_snap_len: None,
            ack_delay: limits::ACK_DELAY,
            credits: true,
        }
    }
}

impl Options {
    /// The defaults, changed by what the environment says.
    ///
    /// # Errors
    /// `Invalid` if a variable's value is not understood; the message names it.
    pub fn from_env() -> engine::Result<Self> {
        let mut options = Self::from_lookup(|name| env::var(name).ok())?;
        options.pcap = env::var_os("CROCEVIA_PCAP").filter(|v| !v.is_empty()).map(PathBuf::from);
        Ok(options)
    }

    fn from_lookup(get: impl Fn(&str) -> Option<String>) -> engine::Result<Self> {
        let get = |name| get(name).filter(|value| !value.trim().is_empty());
        let mut options = Self { addr: get("CROCEVIA_ADDR"), ..Self::default() };
        if let Some(text) = get("CROCEVIA_FAULTS") {
            let plan = text
                .parse::<FaultPlan>()
                .map_err(|e| Error::new(e.kind(), format!("CROCEVIA_FAULTS: {e}")))?;
            options.faults = Some(plan).filter(|plan| !plan.is_none());
        }
        if let Some(text) = get("CROCEVIA_RCVBUF") {
            options.receive_buffer = Some(bytes(&text)?);
        }
        if let Some(text) = get("CROCEVIA_PCAP_SNAPLEN") {
            options.pcap_snap_len = Some(snap_len(&text)?);
        }
        Ok(options)
    }
}

fn snap_len(text: &str) -> engine::Result<u32> {
    let value = text.trim().parse().ok().filter(|n| (64..=1 << 18).contains(n));
    value.ok_or_else(|| {
        Error::invalid(format!(
            "CROCEVIA_PCAP_SNAPLEN: expected 64 to 262144 bytes, such as 128, found `{text}`"
        ))
    })
}

fn bytes(text: &str) -> engine::Result<usize> {
    let text = text.trim();
    let (digits, unit) = match text.as_bytes().last() {
        Some(b'k' | b'K') => (&text[..text.len() - 1], 1 << 10),
        Some(b'm' | b'M') => (&text[..text.len() - 1], 1 << 20),
        _ => (text, 1),
    };
    let value = digits.parse::<usize>().ok().and_then(|n| n.checked_mul(unit));
    value.filter(|n| (4096..=1 << 30).contains(n)).ok_or_else(|| {
        Error::invalid(format!(
            "CROCEVIA_RCVBUF: expected 4k to 1024m bytes, such as 4m, found `{text}`"
        ))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(pairs: &[(&str, &str)]) -> engine::Result<Options> {
        Options::from_lookup(|name| {
            pairs.iter().find(|(key, _)| *key == name).map(|(_, value)| (*value).to_owned())
        })
    }

    #[test]
    fn environment() {
        assert_eq!(read(&[]).unwrap(), Options::default());
        let o = read(&[("CROCEVIA_ADDR", "127.0.0.2"), ("CROCEVIA_RCVBUF", "4m")]).unwrap();
        assert_eq!((o.addr.as_deref(), o.receive_buffer), (Some("127.0.0.2"), Some(4 << 20)));
        assert!(read(&[("CROCEVIA_FAULTS", "loss=1%")]).unwrap().faults.is_some());
        assert_eq!(read(&[("CROCEVIA_FAULTS", "seed=4")]).unwrap().faults, None);
        assert_eq!(read(&[("CROCEVIA_PCAP_SNAPLEN", "128")]).unwrap().pcap_snap_len, Some(128));
        for bad in [
            ("CROCEVIA_RCVBUF", "lots"),
            ("CROCEVIA_RCVBUF", "1"),
            ("CROCEVIA_FAULTS", "x"),
            ("CROCEVIA_PCAP_SNAPLEN", "63"),
            ("CROCEVIA_PCAP_SNAPLEN", "-1"),
        ] {
            assert!(read(&[bad]).unwrap_err().to_string().contains(bad.0), "{bad:?}");
        }
    }
}
