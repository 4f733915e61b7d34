//! A side of a connection: an open NIC with one of each object, and the calls of an application.
#![allow(dead_code, unreachable_pub)] // Each test uses its part.

use std::net::Ipv4Addr;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use engine::{
    Access, AddressVector, AttrMask, Completion, Cq, CqId, Event, MrId, PdId, QpAttr, QpCap,
    QpInit, QpState, QpType, RecvRequest, RegionAttr, RegionKeys, Remote, SendData, SendFlags,
    SendOp, SendRequest, Sge, WcStatus,
};
use live::{EventSink, Nic, Options, Region, devices};
use wire::{Gid, Psn, QKey, Qpn};

/// How long a test waits for what must come.
pub const PATIENCE: Duration = Duration::from_secs(20);

/// An address of this test process only.
pub fn own(last: u8) -> Ipv4Addr {
    let pid = std::process::id();
    Ipv4Addr::new(127, 128 + (pid >> 8) as u8 % 64, pid as u8, last)
}

/// Remembers events, and keeps a NIC until the first one if it is given one.
#[derive(Default)]
pub struct Events {
    list: Mutex<Vec<Event>>,
    pub keeper: Mutex<Option<Arc<Nic>>>,
}

impl EventSink for Events {
    fn event(&self, event: Event) {
        self.list.lock().unwrap().push(event);
        let kept = self.keeper.lock().unwrap().take();
        drop(kept);
    }
}

impl Events {
    pub fn take(&self) -> Vec<Event> {
        std::mem::take(&mut *self.list.lock().unwrap())
    }
}

/// One side.
pub struct Side {
    pub nic: Arc<Nic>,
    pub events: Arc<Events>,
    pub gid: Gid,
    pub pd: PdId,
    pub cq_id: CqId,
    pub cq: Arc<Cq>,
    pub qp: Qpn,
    pub region: Region,
    pub keys: RegionKeys,
}

impl Side {
    /// A side on an address of its own, with a region of `len` bytes.
    pub fn open(addr: Ipv4Addr, faults: &str, len: usize) -> Self {
        let faults = (!faults.is_empty()).then(|| faults.parse().unwrap());
        Self::open_with(addr, &Options { faults, ..Options::default() }, len)
    }

    /// The same with any options.
    pub fn open_with(addr: Ipv4Addr, options: &Options, len: usize) -> Self {
        let mut info = devices(Some(&addr.to_string())).unwrap().remove(0);
        info.gids.truncate(1);
        let events = Arc::new(Events::default());
        let nic = Nic::open(&info, options, Arc::clone(&events) as _).unwrap();
        let region = Region::allocate(len).unwrap();
        let (pd, keys, cq_id, cq, qp) = nic.control(|device, _| {
            let pd = device.alloc_pd().unwrap();
            let keys = device
                .reg_mr(&RegionAttr {
                    pd,
                    addr: region.addr(),
                    length: len as u64,
                    iova: region.addr(),
                    access: Access::LOCAL_WRITE
                        | Access::REMOTE_WRITE
                        | Access::REMOTE_READ
                        | Access::REMOTE_ATOMIC,
                })
                .unwrap();
            let (cq_id, cq) = device.create_cq(4096).unwrap();
            let cap = QpCap {
                max_send_wr: 1024,
                max_recv_wr: 1024,
                max_send_sge: 2,
                max_recv_sge: 2,
                max_inline_data: 256,
            };
            let init = QpInit {
                qp_type: QpType::Rc,
                pd,
                send_cq: cq_id,
                recv_cq: cq_id,
                srq: None,
                cap,
                sq_sig_all: false,
            };
            let (qp, _) = device.create_qp(&init).unwrap();
            (pd, keys, cq_id, cq, qp)
        });
        Self { nic, events, gid: info.gids[0].gid, pd, cq_id, cq, qp, region, keys }
    }

    /// Whether nobody receives on an address.
    pub fn is_free(addr: Ipv4Addr) -> bool {
        std::net::UdpSocket::bind((addr, wire::ROCE_PORT)).is_ok()
    }

    /// Connects to a peer.
    pub fn connect(&self, peer: &Self, timeout: u8) {
        let av = AddressVector {
            is_global: true,
            dgid: peer.gid,
            sgid_index: 0,
            traffic_class: 0,
            hop_limit: 64,
            flow_label: 0,
            sl: 0,
        };
        let attr = QpAttr {
            state: QpState::Init,
            cur_state: QpState::Reset,
            en_sqd_async_notify: false,
            access: Access::REMOTE_WRITE | Access::REMOTE_READ | Access::REMOTE_ATOMIC,
            pkey_index: 0,
            port: 1,
            qkey: QKey::new(0),
            av,
            path_mtu: self.nic.info().mtu.min(peer.nic.info().mtu),
            dest_qp: peer.qp,
            rq_psn: Psn::new(7),
            sq_psn: Psn::new(7),
            timeout,
            retry_cnt: 7,
            rnr_retry: 7,
            min_rnr_timer: 1,
            max_rd_atomic: 16,
            max_dest_rd_atomic: 16,
        };
        let steps = [
            (QpState::Init, AttrMask::PKEY_INDEX | AttrMask::PORT | AttrMask::ACCESS_FLAGS),
            (
                QpState::Rtr,
                AttrMask::AV
                    | AttrMask::PATH_MTU
                    | AttrMask::DEST_QPN
                    | AttrMask::RQ_PSN
                    | AttrMask::MAX_DEST_RD_ATOMIC
                    | AttrMask::MIN_RNR_TIMER,
            ),
            (
                QpState::Rts,
                AttrMask::SQ_PSN
                    | AttrMask::TIMEOUT
                    | AttrMask::RETRY_CNT
                    | AttrMask::RNR_RETRY
                    | AttrMask::MAX_QP_RD_ATOMIC,
            ),
        ];
        self.nic.with(|device, now| {
            for (state, mask) in steps {
                let attr = QpAttr { state, ..attr };
                device.modify_qp(now, self.qp, &attr, mask | AttrMask::STATE).unwrap();
            }
        });
    }

    /// A part of the region.
    pub fn sge(&self, offset: usize, length: usize) -> Sge {
        Sge {
            addr: self.region.addr() + offset as u64,
            length: length as u32,
            lkey: self.keys.lkey,
        }
    }

    /// A place in the region as peers name it.
    pub fn remote(&self, offset: usize) -> Remote {
        Remote { addr: self.region.addr() + offset as u64, rkey: self.keys.rkey }
    }

    /// Posts a signaled request.
    pub fn post(&self, wr_id: u64, op: SendOp, sge: Sge) {
        let request = SendRequest {
            wr_id,
            op,
            flags: SendFlags::SIGNALED,
            data: SendData::Sges(&[sge]),
            datagram: None,
        };
        self.nic.with(|device, now| device.post_send(now, self.qp, &request)).unwrap();
    }

    /// Posts a receive.
    pub fn receive(&self, wr_id: u64, sge: Sge) {
        let request = RecvRequest { wr_id, sges: &[sge] };
        self.nic.with(|device, now| device.post_recv(now, self.qp, &request)).unwrap();
    }

    /// The next completion, polled for.
    pub fn completion(&self) -> Completion {
        let start = Instant::now();
        loop {
            if let Some(completion) = self.cq.poll_one() {
                return completion;
            }
            self.nic.progress();
            assert!(start.elapsed() < PATIENCE, "nothing completes: {}", self.state());
        }
    }

    /// The next completion, which the NIC's own thread has to bring about.
    pub fn completion_without_polling(&self) -> Completion {
        let start = Instant::now();
        loop {
            if let Some(completion) = self.cq.poll_one() {
                return completion;
            }
            std::thread::sleep(Duration::from_micros(50));
            assert!(start.elapsed() < PATIENCE, "nothing completes: {}", self.state());
        }
    }

    /// The next completion, which must be a success.
    pub fn success(&self, wr_id: u64) -> Completion {
        let completion = self.completion();
        let found = (completion.status, completion.wr_id);
        assert_eq!(found, (WcStatus::Success, wr_id), "{}", self.state());
        completion
    }

    pub fn counters(&self) -> engine::Counters {
        self.nic.control(|device, _| *device.counters())
    }

    /// Nothing was lost, damaged or out of order. (A probe may have been sent when a machine was
    /// too busy to answer.)
    pub fn assert_calm(&self) {
        let (c, link) = (self.counters(), self.nic.link_counters());
        let trouble = c.packet_seq_err + c.implied_nak_seq_err + c.local_ack_timeout_err;
        assert_eq!(trouble, 0, "{}", self.state());
        let drops = link.rx_icrc_encapsulated + link.rx_icrc_solved + link.rx_kernel_drops;
        assert_eq!(drops, 0, "{}", self.state());
    }

    fn state(&self) -> String {
        format!("{:?} {:?}", self.counters(), self.nic.link_counters())
    }

    /// Names what is registered, for tests that unregister it.
    pub fn mr(&self) -> MrId {
        self.keys.id
    }
}

/// Two connected sides with regions of `len` bytes.
pub fn pair(a: Ipv4Addr, b: Ipv4Addr, faults: &str, len: usize) -> (Side, Side) {
    let (one, two) = (Side::open(a, faults, len), Side::open(b, faults, len));
    // 1 s, which no busy machine takes to schedule a thread; 16.8 ms where packets are lost on
    // purpose.
    let timeout = if faults.is_empty() { 18 } else { 12 };
    one.connect(&two, timeout);
    two.connect(&one, timeout);
    (one, two)
}

/// Bytes that differ from place to place.
pub fn pattern(len: usize, seed: u8) -> Vec<u8> {
    (0..len).map(|i| (i as u32).wrapping_mul(2_654_435_761).to_be_bytes()[0] ^ seed).collect()
}

/// Bytes of a region.
pub fn bytes(region: &Region, offset: usize, len: usize) -> Vec<u8> {
    let mut out = vec![0; len];
    region.read(offset, &mut out);
    out
}
