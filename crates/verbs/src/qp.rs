//! Queue pairs: the ends of connections, where work requests are posted.

use std::sync::Arc;

use engine::{
    AttrMask, Device, Error, PdId, PostError, QpAttr, QpCap, QpCounters, QpInit, QpReport, QpState,
    QpType, RecvRequest, Result, SendData, SendFlags, SendOp, SendRequest, SrqId, XrcdId,
};
use live::ProcessMemory;
use wire::{Gid, Instant, Psn, Qpn, RKey, SrqNum};

use crate::connect;
use crate::context::Context;
use crate::cq::Cq;
use crate::hub::Subject;
use crate::mw::Mw;
use crate::pd::PdInner;
use crate::srq::{Srq, SrqInner};
use crate::xrc::XrcdInner;

/// What a queue pair is made of.
#[derive(Clone, Copy)]
pub struct QpOptions<'a> {
    /// The service.
    pub qp_type: QpType,
    /// Where send requests complete.
    pub send_cq: &'a Cq,
    /// Where receive requests complete; may be the same.
    pub recv_cq: &'a Cq,
    /// Receive from this shared queue instead of an own one.
    pub srq: Option<&'a Srq>,
    /// Sizes.
    pub cap: QpCap,
    /// Every send request gives a completion, flagged `SIGNALED` or not.
    pub sq_sig_all: bool,
}

impl<'a> QpOptions<'a> {
    /// A queue pair of a service that completes everything into one queue, with room for 128
    /// requests of 4 pieces either way and 256 bytes of inline data.
    pub fn new(qp_type: QpType, cq: &'a Cq) -> Self {
        let cap = QpCap {
            max_send_wr: 128,
            max_recv_wr: 128,
            max_send_sge: 4,
            max_recv_sge: 4,
            max_inline_data: 256,
        };
        Self { qp_type, send_cq: cq, recv_cq: cq, srq: None, cap, sq_sig_all: false }
    }

    /// A reliable connection; sizes as [`new`](Self::new).
    pub fn rc(cq: &'a Cq) -> Self {
        Self::new(QpType::Rc, cq)
    }

    /// Unreliable datagrams; sizes as [`new`](Self::new).
    pub fn ud(cq: &'a Cq) -> Self {
        Self::new(QpType::Ud, cq)
    }
}

/// A queue pair: a send queue and a receive queue, and the state of the connection to the peer.
///
/// It keeps its domain and its queues alive. When it has been dropped or destroyed, the device
/// touches no memory for it any more. Its requests that were outstanding give no completion;
/// completions that are in its queues already stay there.
///
/// ```
/// use crocevia::{Access, ConnectOptions, Context, QpOptions, RecvRequest, SendData, SendFlags};
/// use crocevia::{SendOp, SendRequest};
/// # use crocevia::WcData;
///
/// let context = Context::open_addr("127.0.70.11")?;
/// let (pd, cq) = (context.alloc_pd()?, context.create_cq(16, None)?);
/// let qp = pd.create_qp(&QpOptions::rc(&cq))?;
/// # let peer_cq = context.create_cq(16, None)?;
/// # let peer = pd.create_qp(&QpOptions::rc(&peer_cq))?;
/// # peer.init(Access::empty())?;
/// # peer.post_recv(&RecvRequest { wr_id: 1, sges: &[] })?;
/// # peer.post_recv(&RecvRequest { wr_id: 2, sges: &[] })?;
///
/// // Receives are posted before connecting: the peer may send as soon as it is connected.
/// qp.init(Access::empty())?;
/// let memory = pd.alloc(4096, Access::empty())?;
/// qp.post_recv(&RecvRequest { wr_id: 1, sges: &[memory.sge(..)] })?;
///
/// // To the peer by any means, and its own from there.
/// let mine: String = qp.endpoint()?.to_string();
/// # let theirs = peer.endpoint()?.to_string();
/// # peer.connect(&mine.parse()?, &ConnectOptions::default())?;
/// qp.connect(&theirs.parse()?, &ConnectOptions::default())?;
///
/// // Requests in a list are posted under one lock and leave together; the last one tells of all.
/// let request = |wr_id, flags| {
///     let data = SendData::Inline(&[]);
///     SendRequest { wr_id, op: SendOp::SendImm(*b"0001"), flags, data, datagram: None }
/// };
/// qp.post_send_list([request(1, SendFlags::empty()), request(2, SendFlags::SIGNALED)])
///     .map_err(|(index, error)| format!("request {index}: {error}"))?;
/// assert_eq!(cq.wait(None).unwrap().wr_id, 2);
/// # assert_eq!(peer_cq.wait(None).unwrap().data, WcData::Imm(*b"0001"));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct Qp {
    context: Context,
    qpn: Qpn,
    cap: QpCap,
    qp_type: QpType,
    psn: Psn,
    destroyed: bool,
    kept: Kept,
}

/// What a queue pair keeps alive.
enum Kept {
    Own {
        send_cq: Cq,
        recv_cq: Cq,
        srq: Option<Arc<SrqInner>>,
        pd: Arc<PdInner>,
    },
    /// One that receives for XRC has nothing else of its own.
    Domain(Arc<XrcdInner>),
}

impl Qp {
    pub(crate) fn new(pd: &Arc<PdInner>, options: &QpOptions<'_>) -> Result<Self> {
        let context = pd.context().clone();
        let queues = [options.send_cq.context(), options.recv_cq.context()];
        let srq_context = options.srq.map(Srq::context);
        if queues.into_iter().chain(srq_context).any(|other| !other.is_same(&context)) {
            return Err(Error::invalid(
                "the protection domain and the queues of a queue pair must belong to one device: \
                 make them from the same Context",
            ));
        }
        let srq = options.srq.map(|srq| Arc::clone(srq.shared()));
        let init = QpInit {
            qp_type: options.qp_type,
            pd: pd.id(),
            send_cq: options.send_cq.id(),
            recv_cq: options.recv_cq.id(),
            srq: srq.as_ref().map(|srq| srq.id()),
            cap: options.cap,
            sq_sig_all: options.sq_sig_all,
        };
        let (qpn, cap) = context.nic().control(|dev, _| {
            let made = dev.create_qp(&init)?;
            context.hub().add(Subject::Qp(made.0));
            Result::Ok(made)
        })?;
        Ok(Self {
            context,
            qpn,
            cap,
            qp_type: options.qp_type,
            psn: connect::random_psn(),
            destroyed: false,
            kept: Kept::Own {
                send_cq: options.send_cq.clone(),
                recv_cq: options.recv_cq.clone(),
                srq,
                pd: Arc::clone(pd),
            },
        })
    }

    /// One that receives in an XRC domain: a new one, or another handle of one.
    pub(crate) fn xrc_receiver(xrcd: &Arc<XrcdInner>, opened: Option<Qpn>) -> Result<Self> {
        let context = xrcd.context().clone();
        let (qpn, cap) = context.nic().control(|dev, _| {
            let qpn = match opened {
                Some(qpn) => dev.open_xrc_receiver(xrcd.id(), qpn).map(|()| qpn)?,
                None => dev.create_xrc_receiver(xrcd.id())?,
            };
            if opened.is_none() {
                context.hub().add(Subject::Qp(qpn));
            }
            dev.query_qp(qpn).map(|(_, init)| (qpn, init.cap))
        })?;
        Ok(Self {
            context,
            qpn,
            cap,
            qp_type: QpType::XrcRecv,
            psn: connect::random_psn(),
            destroyed: false,
            kept: Kept::Domain(Arc::clone(xrcd)),
        })
    }

    /// The device.
    pub fn context(&self) -> &Context {
        &self.context
    }

    /// The queue pair's number, by which peers reach it.
    pub fn qpn(&self) -> Qpn {
        self.qpn
    }

    /// The sizes granted.
    pub fn cap(&self) -> QpCap {
        self.cap
    }

    /// The service.
    pub fn qp_type(&self) -> QpType {
        self.qp_type
    }

    /// Where send requests complete; one that receives for XRC sends none.
    pub fn send_cq(&self) -> Option<&Cq> {
        match &self.kept {
            Kept::Own { send_cq, .. } => Some(send_cq),
            Kept::Domain(_) => None,
        }
    }

    /// Where receive requests complete; for XRC each shared receive queue has its own.
    pub fn recv_cq(&self) -> Option<&Cq> {
        match &self.kept {
            Kept::Own { recv_cq, .. } => Some(recv_cq),
            Kept::Domain(_) => None,
        }
    }

    /// Whether it receives from a shared receive queue.
    pub fn has_srq(&self) -> bool {
        match &self.kept {
            Kept::Own { srq, .. } => srq.is_some(),
            Kept::Domain(_) => true,
        }
    }

    /// The PSN that [`endpoint`](Self::endpoint) gives: drawn at random for this queue pair.
    pub fn psn(&self) -> Psn {
        self.psn
    }

    /// The protection domain's name within its device; for XRC each shared receive queue has one.
    pub fn pd_id(&self) -> Option<PdId> {
        match &self.kept {
            Kept::Own { pd, .. } => Some(pd.id()),
            Kept::Domain(_) => None,
        }
    }

    /// The XRC domain's name within its device, if it receives in one.
    pub fn xrcd_id(&self) -> Option<XrcdId> {
        match &self.kept {
            Kept::Own { .. } => None,
            Kept::Domain(xrcd) => Some(xrcd.id()),
        }
    }

    /// Moves the state and the attributes that `mask` names.
    ///
    /// # Errors
    /// `Invalid` if the transition does not exist, or does not take or lacks an attribute; the
    /// message says which. Nothing has changed then.
    pub fn modify(&self, attr: &QpAttr, mask: AttrMask) -> Result<()> {
        self.context.nic().with(|dev, now| dev.modify_qp(now, self.qpn, attr, mask))
    }

    /// The attributes, and what the queue pair was made of.
    ///
    /// # Errors
    /// None while the queue pair exists.
    pub fn query(&self) -> Result<(QpAttr, QpInit)> {
        self.context.nic().control(|dev, _| dev.query_qp(self.qpn))
    }

    /// What it has counted since it was created, and how it stands: PSNs, queues, retries. Names
    /// and meanings are in `docs/counters.md`.
    ///
    /// # Errors
    /// `NotFound` if it has been destroyed.
    pub fn report(&self) -> Result<QpReport> {
        self.context.nic().control(|dev, _| dev.report_qp(self.qpn))
    }

    /// What it has counted since it was created; nothing in a child of a fork.
    pub fn counters(&self) -> QpCounters {
        self.report().map(|report| report.counters).unwrap_or_default()
    }

    /// The state.
    pub fn state(&self) -> QpState {
        self.query().map_or(QpState::Err, |(attr, _)| attr.state)
    }

    /// Appends a send request; what it asks for begins at once.
    ///
    /// # Errors
    /// Why it was refused; nothing has been posted then.
    pub fn post_send(&self, wr: &SendRequest<'_>) -> std::result::Result<(), PostError> {
        self.context.nic().with(|dev, now| dev.post_send(now, self.qpn, wr))
    }

    /// Appends a send request for a shared receive queue of the peer's
    /// ([`number`](crate::Srq::number)), which says what READs, WRITEs and atomics may reach, too.
    ///
    /// # Errors
    /// Why it was refused; `Destination` if the service is not `XrcSend`.
    pub fn post_send_xrc(
        &self,
        wr: &SendRequest<'_>,
        srq: SrqNum,
    ) -> std::result::Result<(), PostError> {
        self.context.nic().with(|dev, now| dev.post_send_xrc(now, self.qpn, wr, srq))
    }

    /// Appends send requests under one lock, and sends once for all of them.
    ///
    /// # Errors
    /// The index of the first one that was refused, and why; those before it are posted.
    pub fn post_send_list<'a>(
        &self,
        wrs: impl IntoIterator<Item = SendRequest<'a>>,
    ) -> std::result::Result<(), (usize, PostError)> {
        self.send_batch(|batch| {
            wrs.into_iter().enumerate().try_for_each(|(i, wr)| batch.push(&wr).map_err(|e| (i, e)))
        })
    }

    /// Appends send requests one by one under one lock, and sends once for all of them; for callers
    /// that make them as they go. The closure must not call the device in any other way.
    pub fn send_batch<R>(&self, f: impl FnOnce(&mut SendBatch<'_>) -> R) -> R {
        self.context.nic().with(|dev, now| f(&mut SendBatch { dev, now, qpn: self.qpn }))
    }

    /// Appends a receive request.
    ///
    /// # Errors
    /// Why it was refused; nothing has been posted then.
    pub fn post_recv(&self, wr: &RecvRequest<'_>) -> std::result::Result<(), PostError> {
        self.context.nic().control(|dev, now| dev.post_recv(now, self.qpn, wr))
    }

    /// Appends receive requests under one lock.
    ///
    /// # Errors
    /// The index of the first one that was refused, and why; those before it are posted.
    pub fn post_recv_list<'a>(
        &self,
        wrs: impl IntoIterator<Item = RecvRequest<'a>>,
    ) -> std::result::Result<(), (usize, PostError)> {
        self.recv_batch(|batch| {
            wrs.into_iter().enumerate().try_for_each(|(i, wr)| batch.push(&wr).map_err(|e| (i, e)))
        })
    }

    /// Appends receive requests one by one under one lock, for callers that make them as they go.
    /// The closure must not call the device in any other way.
    pub fn recv_batch<R>(&self, f: impl FnOnce(&mut RecvBatch<'_>) -> R) -> R {
        let target = RecvTarget::Qp(self.qpn);
        self.context.nic().control(|dev, now| f(&mut RecvBatch { dev, now, target }))
    }

    /// Binds a type 1 window under a fresh key: draws the key and posts the request. A `length` of
    /// 0 in `binding` unbinds. The key counts when the request has completed.
    ///
    /// # Errors
    /// Why it was refused; the window is then bound as it was.
    pub fn bind_mw(
        &self,
        wr_id: u64,
        flags: SendFlags,
        mw: &Mw,
        mut binding: engine::BindWindow,
    ) -> std::result::Result<RKey, PostError> {
        self.context.nic().with(|dev, now| {
            binding.mw = mw.id();
            binding.rkey = dev.next_mw_rkey(mw.id()).map_err(|_| PostError::Operation)?;
            let wr = SendRequest {
                wr_id,
                op: SendOp::BindWindow(binding),
                flags,
                data: SendData::Sges(&[]),
                datagram: None,
            };
            dev.post_send(now, self.qpn, &wr).map(|()| binding.rkey)
        })
    }

    /// Attaches a datagram queue pair to a multicast group: it receives a copy of what anybody on
    /// the device's network sends to the group, on this machine or another one, itself included.
    /// The group may be an IPv4 one (`::ffff:a.b.c.d`) or an IPv6 one; a device with addresses of
    /// the other family only takes part in the group that stands in for it there (an IPv6 group is
    /// carried over IPv4 by one under 239.0.0.0/8).
    ///
    /// # Errors
    /// `Invalid` if the GID is no multicast group, or the service not datagrams; `Full` if there
    /// are too many groups, members of one, or descriptors; `System` as the system says.
    pub fn attach_mcast(&self, group: Gid) -> Result<()> {
        self.context.nic().attach_mcast(self.qpn, group)
    }

    /// Detaches it.
    ///
    /// # Errors
    /// `Invalid` if it is not attached.
    pub fn detach_mcast(&self, group: Gid) -> Result<()> {
        self.context.nic().detach_mcast(self.qpn, group)
    }

    /// Destroys the queue pair, and waits until the events taken about it are acknowledged. What it
    /// owes its peer still leaves. Dropping it does the same without waiting.
    ///
    /// # Errors
    /// If the device refuses; the queue pair is handed back.
    pub fn destroy(mut self) -> std::result::Result<(), (Self, Error)> {
        match self.end() {
            Ok(()) => {
                self.context.hub().wait_acknowledged(Subject::Qp(self.qpn));
                Ok(())
            }
            Err(error) => Err((self, error)),
        }
    }

    fn end(&mut self) -> Result<()> {
        self.context.nic().with(|dev, _| {
            dev.destroy_qp(self.qpn)?;
            // Others may have it open still.
            if dev.query_qp(self.qpn).is_err() {
                self.context.hub().remove(Subject::Qp(self.qpn));
            }
            self.destroyed = true;
            Ok::<(), Error>(())
        })?;
        if self.qp_type == QpType::Ud {
            self.context.nic().leave_groups();
        }
        Ok(())
    }
}

impl Drop for Qp {
    fn drop(&mut self) {
        if !self.destroyed {
            let _ = self.end();
        }
    }
}

/// Send requests being posted under one lock; see [`Qp::send_batch`].
pub struct SendBatch<'a> {
    dev: &'a mut Device<ProcessMemory>,
    now: Instant,
    qpn: Qpn,
}

impl SendBatch<'_> {
    /// Send requests that still fit, for callers that post several or none.
    pub fn room(&self) -> usize {
        self.dev.send_room(self.qpn)
    }

    /// Appends a send request.
    ///
    /// # Errors
    /// Why it was refused; those before it are posted.
    pub fn push(&mut self, wr: &SendRequest<'_>) -> std::result::Result<(), PostError> {
        self.dev.post_send(self.now, self.qpn, wr)
    }

    /// Appends a send request for a shared receive queue; see [`Qp::post_send_xrc`].
    ///
    /// # Errors
    /// Why it was refused; those before it are posted.
    pub fn push_xrc(
        &mut self,
        wr: &SendRequest<'_>,
        srq: SrqNum,
    ) -> std::result::Result<(), PostError> {
        self.dev.post_send_xrc(self.now, self.qpn, wr, srq)
    }
}

/// Receive requests being posted under one lock; see [`Qp::recv_batch`] and [`Srq::batch`].
pub struct RecvBatch<'a> {
    dev: &'a mut Device<ProcessMemory>,
    now: Instant,
    target: RecvTarget,
}

#[derive(Clone, Copy)]
enum RecvTarget {
    Qp(Qpn),
    Srq(SrqId),
}

impl<'a> RecvBatch<'a> {
    pub(crate) fn shared(dev: &'a mut Device<ProcessMemory>, now: Instant, srq: SrqId) -> Self {
        Self { dev, now, target: RecvTarget::Srq(srq) }
    }

    /// Appends a receive request.
    ///
    /// # Errors
    /// Why it was refused; those before it are posted.
    pub fn push(&mut self, wr: &RecvRequest<'_>) -> std::result::Result<(), PostError> {
        match self.target {
            RecvTarget::Qp(qpn) => self.dev.post_recv(self.now, qpn, wr),
            RecvTarget::Srq(srq) => self.dev.post_srq_recv(srq, wr),
        }
    }
}
