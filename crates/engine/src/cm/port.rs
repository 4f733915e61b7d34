//! Between a connection manager and a device: management datagrams through the device's general
//! services queue pair. Pure like both: the driver says when, and reads the received bytes out of
//! host memory, which the device only writes.

use std::sync::Arc;

use wire::mad::MAD_LEN;
use wire::{Gid, Instant, Psn, QKey, Qpn};

use super::Cm;
use super::request::{MadFrom, OutgoingMad};
use crate::attr::{AttrMask, QpAttr, QpCap, QpInit, QpState, QpType};
use crate::cq::{Cq, CqId};
use crate::device::Device;
use crate::error::{Error, ErrorKind, PostError, Result};
use crate::memory::{HostMemory, PdId, RegionAttr, RegionKeys};
use crate::work::{
    Access, AddressVector, Completion, Datagram, RecvRequest, SendData, SendFlags, SendOp,
    SendRequest, Sge, WcStatus,
};

/// The bytes before a received datagram that say where it came from.
const GRH_AREA: usize = 40;
/// Bytes of a receive slot: GRH area and datagram, rounded up.
const SLOT: u64 = 320;
/// Name of the send requests; receive requests are named by their slot.
const SEND: u64 = u64::MAX;

/// The general services queue pair of a device, its completion queue and its receive buffers.
#[derive(Debug)]
pub struct Port {
    pd: PdId,
    region: RegionKeys,
    cq_id: CqId,
    cq: Arc<Cq>,
    qpn: Qpn,
    /// Host address of the receive slots.
    base: u64,
    /// Send requests that may be posted.
    room: u16,
}

impl Port {
    /// Bytes of host memory that `slots` receive slots need.
    pub const fn memory_needed(slots: u16) -> u64 {
        slots as u64 * SLOT
    }

    /// Makes the queue pair, ready to send, with `slots` receive requests in the
    /// [`memory_needed`](Self::memory_needed) bytes from host address `base` on. They must stay
    /// readable and writable until [`close`](Self::close).
    pub fn open<M: HostMemory>(
        device: &mut Device<M>,
        now: Instant,
        base: u64,
        slots: u16,
    ) -> Result<Self> {
        let pd = device.alloc_pd()?;
        Self::in_domain(device, now, pd, base, slots).inspect_err(|_| {
            let _ = device.dealloc_pd(pd);
        })
    }

    fn in_domain<M: HostMemory>(
        device: &mut Device<M>,
        now: Instant,
        pd: PdId,
        base: u64,
        slots: u16,
    ) -> Result<Self> {
        let region = device.reg_mr(&RegionAttr {
            pd,
            addr: base,
            length: Self::memory_needed(slots),
            iova: base,
            access: Access::LOCAL_WRITE,
        })?;
        let on_region = |device: &mut Device<M>| {
            let (cq_id, cq) = device.create_cq(u32::from(slots) * 2)?;
            Self::on_queue(device, pd, cq_id, slots)
                .map(|qpn| Self { pd, region, cq_id, cq, qpn, base, room: slots })
                .inspect_err(|_| {
                    let _ = device.destroy_cq(cq_id);
                })
        };
        let mut port = on_region(device).inspect_err(|_| {
            let _ = device.dereg_mr(region.id);
        })?;
        port.start(device, now, slots).inspect_err(|_| port.close(device))?;
        Ok(port)
    }

    fn on_queue<M: HostMemory>(
        device: &mut Device<M>,
        pd: PdId,
        cq: CqId,
        slots: u16,
    ) -> Result<Qpn> {
        let cap = QpCap {
            max_send_wr: u32::from(slots),
            max_recv_wr: u32::from(slots),
            max_send_sge: 1,
            max_recv_sge: 1,
            max_inline_data: MAD_LEN as u32,
        };
        let init = QpInit {
            qp_type: QpType::Gsi,
            pd,
            send_cq: cq,
            recv_cq: cq,
            srq: None,
            cap,
            sq_sig_all: true,
        };
        Ok(device.create_qp(&init)?.0)
    }

    fn start<M: HostMemory>(
        &mut self,
        device: &mut Device<M>,
        now: Instant,
        slots: u16,
    ) -> Result<()> {
        let to = |state| QpAttr {
            state,
            cur_state: QpState::Reset,
            en_sqd_async_notify: false,
            access: Access::empty(),
            pkey_index: 0,
            port: 1,
            qkey: QKey::GSI,
            av: AddressVector {
                is_global: true,
                dgid: Gid::default(),
                sgid_index: 0,
                traffic_class: 0,
                hop_limit: 0,
                flow_label: 0,
                sl: 0,
            },
            path_mtu: wire::Mtu::B256,
            dest_qp: Qpn::GSI,
            rq_psn: Psn::new(0),
            sq_psn: Psn::new(0),
            timeout: 0,
            retry_cnt: 0,
            rnr_retry: 0,
            min_rnr_timer: 0,
            max_rd_atomic: 0,
            max_dest_rd_atomic: 0,
        };
        let init = AttrMask::STATE | AttrMask::PKEY_INDEX | AttrMask::QKEY;
        device.modify_qp(now, self.qpn, &to(QpState::Init), init)?;
        for slot in 0..slots {
            self.receive_into(device, now, slot)
                .map_err(|e| Error::invalid(format!("general services queue pair: {e}")))?;
        }
        device.modify_qp(now, self.qpn, &to(QpState::Rtr), AttrMask::STATE)?;
        device.modify_qp(now, self.qpn, &to(QpState::Rts), AttrMask::STATE | AttrMask::SQ_PSN)
    }

    /// Gives everything back. The memory is free afterwards.
    pub fn close<M: HostMemory>(&mut self, device: &mut Device<M>) {
        let _ = device.destroy_qp(self.qpn);
        let _ = device.destroy_cq(self.cq_id);
        let _ = device.dereg_mr(self.region.id);
        let _ = device.dealloc_pd(self.pd);
    }

    /// The completion queue: armed, its event says when [`pump`](Self::pump) has something to do.
    pub fn cq(&self) -> (CqId, &Arc<Cq>) {
        (self.cq_id, &self.cq)
    }

    /// Hands received datagrams to the connection manager and posts what it has to send, as far as
    /// the send queue takes it. `read` copies bytes out of host memory. Whether anything was done;
    /// if so, drain the device and the connection manager's events, then call again.
    ///
    /// The device's `COMM_EST` events go to [`Cm::handle_comm_est`], by the driver.
    pub fn pump<M: HostMemory>(
        &mut self,
        device: &mut Device<M>,
        cm: &mut Cm,
        now: Instant,
        mut read: impl FnMut(u64, &mut [u8]),
    ) -> bool {
        let mut worked = false;
        while let Some(done) = self.cq.poll_one() {
            worked = true;
            if done.wr_id == SEND {
                self.room += 1;
                continue;
            }
            let Ok(slot) = u16::try_from(done.wr_id) else { continue };
            let mut bytes = [0; GRH_AREA + MAD_LEN];
            if done.status == WcStatus::Success && done.byte_len as usize == bytes.len() {
                read(self.base + u64::from(slot) * SLOT, &mut bytes);
                if let Some(from) = sender(device, &done, &bytes) {
                    cm.handle_mad(now, &from, &bytes[GRH_AREA..]);
                }
            }
            if done.status != WcStatus::WrFlushErr {
                let _ = self.receive_into(device, now, slot);
            }
        }
        while self.room > 0 {
            let Some(mad) = cm.poll_mad() else { break };
            worked = true;
            // A datagram that cannot be posted (its GID has gone) is as good as lost on the wire.
            if self.post(device, now, &mad).is_ok() {
                self.room -= 1;
            }
        }
        worked
    }

    fn post<M: HostMemory>(
        &self,
        device: &mut Device<M>,
        now: Instant,
        mad: &OutgoingMad,
    ) -> std::result::Result<(), PostError> {
        let datagram = Datagram { av: mad.av, dest_qp: Qpn::GSI, qkey: QKey::GSI };
        let request = SendRequest {
            wr_id: SEND,
            op: SendOp::Send,
            flags: SendFlags::SIGNALED,
            data: SendData::Inline(&mad.payload),
            datagram: Some(datagram),
        };
        device.post_send(now, self.qpn, &request)
    }

    fn receive_into<M: HostMemory>(
        &self,
        device: &mut Device<M>,
        now: Instant,
        slot: u16,
    ) -> std::result::Result<(), PostError> {
        let sge = Sge {
            addr: self.base + u64::from(slot) * SLOT,
            length: (GRH_AREA + MAD_LEN) as u32,
            lkey: self.region.lkey,
        };
        device.post_recv(now, self.qpn, &RecvRequest { wr_id: u64::from(slot), sges: &[sge] })
    }
}

impl<M: HostMemory> Device<M> {
    /// The first request of the peer shall raise `COMM_EST` on this connected queue pair even if it
    /// comes in RTS, not only in RTR. For the passive side of a connection, between RTS and the
    /// REP: the event stands for an RTU that is late or lost.
    pub fn expect_peer(&mut self, qp: Qpn) -> Result<()> {
        let index = self.by_qpn.get(&qp.get()).copied();
        let found = index
            .and_then(|index| self.qps.get_mut(index))
            .ok_or_else(|| Error::new(ErrorKind::NotFound, format!("no queue pair {qp}")))?;
        found.expects_peer = true;
        Ok(())
    }
}

/// Where a received datagram came from; `None` if that is no place to answer.
fn sender<M: HostMemory>(device: &Device<M>, done: &Completion, bytes: &[u8]) -> Option<MadFrom> {
    if done.src_qp != Qpn::GSI || !done.grh {
        return None;
    }
    let area = bytes.first_chunk::<GRH_AREA>()?;
    let (source, local, traffic_class) = addresses(area)?;
    let sgid_index = device.gids().iter().position(|entry| entry.gid == local)?;
    let av = AddressVector {
        is_global: true,
        dgid: source,
        sgid_index: u8::try_from(sgid_index).ok()?,
        // An answer has the priority of what it answers, not its congestion mark.
        traffic_class: traffic_class & 0xFC,
        hop_limit: 0,
        flow_label: 0,
        sl: done.sl,
    };
    Some(MadFrom { av, local })
}

/// Source, destination and traffic class out of a GRH area: an IPv6 header or GRH, or an IPv4
/// header behind 20 bytes of nothing.
fn addresses(area: &[u8; GRH_AREA]) -> Option<(Gid, Gid, u8)> {
    let v4 = |at: usize| {
        let octets = [area[at], area[at + 1], area[at + 2], area[at + 3]];
        Gid::from_ip(octets.into())
    };
    let gid = |at: usize| {
        let mut bytes = [0; 16];
        bytes.copy_from_slice(&area[at..at + 16]);
        Gid(bytes)
    };
    if area[..20] == [0; 20] && area[20] >> 4 == 4 {
        return Some((v4(32), v4(36), area[21]));
    }
    (area[0] >> 4 == 6).then(|| (gid(8), gid(24), area[0] << 4 | area[1] >> 4))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_of_both_families() {
        let mut area = [0; GRH_AREA];
        area[20] = 0x45;
        area[21] = 0x68;
        area[32..36].copy_from_slice(&[10, 77, 1, 1]);
        area[36..40].copy_from_slice(&[10, 77, 1, 2]);
        let ip = |s: &str| Gid::from_ip(s.parse().unwrap());
        assert_eq!(addresses(&area), Some((ip("10.77.1.1"), ip("10.77.1.2"), 0x68)));

        let mut area = [0; GRH_AREA];
        area[0] = 0x66;
        area[1] = 0x80;
        area[8..24].copy_from_slice(&ip("fd77:1::1").0);
        area[24..40].copy_from_slice(&ip("fd77:1::2").0);
        assert_eq!(addresses(&area), Some((ip("fd77:1::1"), ip("fd77:1::2"), 0x68)));

        assert_eq!(addresses(&[0; GRH_AREA]), None);
    }
}
