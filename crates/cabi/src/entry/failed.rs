//! What the log says when a completion with an error is handed out: a status is one word, and its
//! cause lies at the other end or on the way. What the device has counted tells which.

use std::fmt;

use crocevia::{Completion, Counters, Cq, LinkCounters, WcStatus};

use crate::log::{self, Level};

/// Says why a request failed, if that is said at all.
#[cold]
pub(super) fn report(cq: &Cq, completion: &Completion) {
    let level = match completion.status {
        WcStatus::Success | WcStatus::WrFlushErr => return,
        WcStatus::RetryExcErr => Level::Error,
        // Some programs ask for these on purpose.
        _ => Level::Warn,
    };
    if log::enabled(level) {
        let context = cq.context();
        let counted = (context.counters(), context.link_counters());
        log::say(level, "ibv_poll_cq", &Report { completion, counted });
    }
}

struct Report<'a> {
    completion: &'a Completion,
    counted: (Counters, LinkCounters),
}

impl fmt::Display for Report<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { completion, counted: (device, link) } = self;
        write!(f, "QP {}: {:?}", completion.qp, completion.status)?;
        if completion.status != WcStatus::RetryExcErr {
            return Ok(());
        }
        f.write_str(
            ": the peer did not answer: is its process alive, its queue pair in RTR, its address \
             reachable? This device has counted",
        )?;
        let counts = [
            (device.local_ack_timeout_err, "time-outs"),
            (device.packet_seq_err, "NAKs for a lost packet"),
            (device.implied_nak_seq_err, "gaps in responses"),
            (device.retransmitted_packets, "packets sent again"),
            (device.tx_probes, "probes"),
            (device.rx_packets, "packets received"),
            (device.rx_wrong_state, "for a queue pair that was not ready"),
            (device.rx_unknown_qp, "for none that there is"),
            (link.rx_kernel_drops, "datagrams that the kernel dropped, the buffer being full"),
            (link.rx_icrc_encapsulated, "packets with a wrong ICRC"),
            (link.tx_refused, "packets that the kernel would not send"),
            (link.tx_blocked, "times that the socket was full"),
        ];
        let mut first = true;
        for (count, what) in counts.into_iter().filter(|(count, _)| *count > 0) {
            write!(f, "{} {count} {what}", if first { "" } else { "," })?;
            first = false;
        }
        if first {
            f.write_str(" nothing")?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn said(status: WcStatus, device: Counters, link: LinkCounters) -> String {
        let completion = Completion { status, ..Completion::default() };
        Report { completion: &completion, counted: (device, link) }.to_string()
    }

    #[test]
    fn what_was_counted_is_named_and_what_was_not_is_left_out() {
        let device = Counters { local_ack_timeout_err: 8, rx_packets: 3, ..Counters::default() };
        let link = LinkCounters { rx_kernel_drops: 2, ..LinkCounters::default() };
        let text = said(WcStatus::RetryExcErr, device, link);
        let end = "counted 8 time-outs, 3 packets received, 2 datagrams that the kernel dropped, \
                   the buffer being full";
        assert!(text.ends_with(end), "{text}");
        let text = said(WcStatus::RetryExcErr, Counters::default(), LinkCounters::default());
        assert!(text.ends_with("counted nothing"), "{text}");
    }

    #[test]
    fn other_failures_are_named() {
        let text = said(WcStatus::RemAccessErr, Counters::default(), LinkCounters::default());
        assert!(text.ends_with("RemAccessErr"), "{text}");
    }
}
