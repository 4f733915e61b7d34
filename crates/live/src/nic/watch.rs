//! What can be asked of an open NIC from outside its process. Who may ask is not decided here.

use std::sync::{Arc, Weak};
use std::time::Duration;

use engine::QpReport;

use super::Shared;
use crate::info::DeviceInfo;
use crate::stat::{self, Snapshot, Watched};

/// Places of queue pairs looked at while the device is held: some microseconds.
const QPS_AT_ONCE: u32 = 32;

/// Lets the NIC be asked about, where the system permits it.
pub(super) fn serve(shared: &Arc<Shared>) -> Option<stat::Guard> {
    let nic: Weak<Shared> = Arc::downgrade(shared);
    stat::serve(nic, &shared.info.name).ok()
}

impl Watched for Shared {
    fn info(&self) -> &DeviceInfo {
        &self.info
    }

    fn snapshot(&self) -> Option<Snapshot> {
        let mut state = self.lock()?;
        let link = *state.link_counters();
        let device = state.device();
        let (objects, counters) = (device.objects(), *device.counters());
        drop(state);
        let uptime = Duration::from_nanos(self.clock.ns());
        Some(Snapshot { uptime, objects, counters, link })
    }

    fn report_qps(&self, from: u32, out: &mut Vec<QpReport>) -> Option<u32> {
        // Room first, so that nothing is allocated while the device is held.
        out.reserve(QPS_AT_ONCE as usize);
        self.lock()?.device().report_qps(from, QPS_AT_ONCE, out)
    }
}
