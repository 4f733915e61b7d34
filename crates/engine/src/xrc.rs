//! Extended reliable connections (InfiniBand specification, annex A14): a queue pair that only
//! sends, one that only receives, and between them messages that name the shared receive queue they
//! are for. Queue and receiving queue pair have to be of one XRC domain; rights to memory are those
//! of the queue's protection domain. How they move packets is as for reliable connections, in `qp`.

use wire::{Instant, Operation, Packet, Position, Qpn, SrqNum};

use crate::attr::{QpCap, QpInit, QpState, QpType};
use crate::cq::CqId;
use crate::device::Device;
use crate::error::{Error, ErrorKind, PostError, Result};
use crate::limits;
use crate::memory::{HostMemory, Payload, PdId};
use crate::objects::no_such;
use crate::qp::QueuePair;
use crate::qp::facts::Shared;
use crate::srq::{SrqAttr, SrqId};
use crate::work::SendRequest;

/// Names an XRC domain of a device.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct XrcdId(pub u32);

/// An XRC domain.
#[derive(Debug, Default)]
pub(crate) struct Domain {
    users: u32,
}

/// What a queue pair that receives has in place of what names its own queues and domain.
const NONE: u32 = u32::MAX;

impl SrqId {
    /// The number by which XRC requests name the queue.
    pub fn number(self) -> SrqNum {
        SrqNum::new(self.0)
    }
}

impl<M: HostMemory> Device<M> {
    /// Opens an XRC domain.
    ///
    /// # Errors
    /// `Full` if there are too many.
    pub fn open_xrcd(&mut self) -> Result<XrcdId> {
        if self.xrcds.len() >= limits::MAX_XRCD as usize {
            return Err(crate::objects::full("XRC domains", limits::MAX_XRCD));
        }
        Ok(XrcdId(self.xrcds.insert(Domain::default())))
    }

    /// Closes it.
    ///
    /// # Errors
    /// `Busy` while a queue or a queue pair is in it.
    pub fn close_xrcd(&mut self, xrcd: XrcdId) -> Result<()> {
        match self.xrcds.get(xrcd.0) {
            None => Err(no_such("XRC domain")),
            Some(&Domain { users: 1.. }) => Err(Error::new(
                ErrorKind::Busy,
                "shared receive queues or queue pairs are still in the XRC domain",
            )),
            Some(_) => {
                self.xrcds.remove(xrcd.0);
                Ok(())
            }
        }
    }

    pub(crate) fn use_xrcd(&mut self, xrcd: XrcdId, change: i32) -> Result<()> {
        let domain = self.xrcds.get_mut(xrcd.0).ok_or_else(|| no_such("XRC domain"))?;
        domain.users = domain.users.saturating_add_signed(change);
        Ok(())
    }

    /// A shared receive queue for requests of an XRC domain, which complete into `cq`.
    ///
    /// # Errors
    /// As for other shared receive queues; `NotFound` for a domain that does not exist.
    pub fn create_xrc_srq(
        &mut self,
        pd: PdId,
        (xrcd, cq): (XrcdId, CqId),
        attr: &SrqAttr,
    ) -> Result<SrqId> {
        self.cq(cq)?;
        self.use_xrcd(xrcd, 1)?;
        let made = self.create_srq(pd, attr);
        let Ok(id) = made else {
            self.use_xrcd(xrcd, -1)?;
            return made;
        };
        self.cq(cq)?.users += 1;
        self.srq(id)?.xrc = Some((xrcd, cq));
        Ok(id)
    }

    /// A queue pair that receives for the shared receive queues of an XRC domain.
    ///
    /// # Errors
    /// `Full` if there are too many; `NotFound` for a domain that does not exist.
    pub fn create_xrc_receiver(&mut self, xrcd: XrcdId) -> Result<Qpn> {
        self.use_xrcd(xrcd, 1)?;
        let cap = QpCap {
            max_send_wr: 0,
            max_recv_wr: 0,
            max_send_sge: 0,
            max_recv_sge: 0,
            max_inline_data: 0,
        };
        let (pd, send_cq, recv_cq) = (PdId(NONE), CqId(NONE), CqId(NONE));
        let qp_type = QpType::XrcRecv;
        let init = QpInit { qp_type, pd, send_cq, recv_cq, srq: None, cap, sq_sig_all: false };
        match self.insert_qp(&init) {
            Ok(qpn) => {
                self.pair(qpn)?.xrc.domain = Some(xrcd);
                Ok(qpn)
            }
            Err(error) => {
                self.use_xrcd(xrcd, -1)?;
                Err(error)
            }
        }
    }

    /// Opens a queue pair that receives once more; it goes when it has been destroyed as often as
    /// it was created and opened.
    ///
    /// # Errors
    /// `NotFound` if the XRC domain has no such queue pair.
    pub fn open_xrc_receiver(&mut self, xrcd: XrcdId, qp: Qpn) -> Result<()> {
        match self.pair(qp) {
            Ok(pair) if pair.xrc.domain == Some(xrcd) => {
                pair.xrc.reopened += 1;
                Ok(())
            }
            _ => Err(no_such(
                "receiving queue pair of this XRC domain (which other processes do not share)",
            )),
        }
    }

    fn pair(&mut self, qp: Qpn) -> Result<&mut QueuePair> {
        let index = self.by_qpn.get(&qp.get()).copied();
        index.and_then(|i| self.qps.get_mut(i)).ok_or_else(|| no_such("queue pair"))
    }

    /// Whether destroying the queue pair only undoes one opening of it.
    pub(crate) fn closes_xrc_receiver(&mut self, qp: Qpn) -> bool {
        let Ok(pair) = self.pair(qp) else { return false };
        let shared = pair.xrc.reopened > 0;
        pair.xrc.reopened -= u32::from(shared);
        shared
    }

    /// Appends a send request for a shared receive queue of the peer's. Every request of an XRC
    /// queue pair is for one: its domain says what the request may reach.
    pub fn post_send_xrc(
        &mut self,
        now: Instant,
        qp: Qpn,
        wr: &SendRequest<'_>,
        srq: SrqNum,
    ) -> std::result::Result<(), PostError> {
        self.post_send_for(now, qp, wr, Some(srq))
    }
}

/// What a queue pair has of XRC.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Xrc {
    pub(crate) domain: Option<XrcdId>,
    /// Times that it was opened besides its creation.
    reopened: u32,
    /// Whom the message in progress is for.
    message: Option<SrqId>,
}

impl QueuePair {
    /// Takes from a request whom it is for: the queue's protection domain and completion queue are
    /// those of the request. Without one the responder finds it invalid.
    pub(crate) fn choose_srq<M>(
        &mut self,
        sh: &Shared<M>,
        operation: Operation,
        packet: &Packet<Payload<'_>>,
    ) {
        let named = packet.ext.xrc_srq.map(|number| SrqId(number.get()));
        let of_domain = |id: SrqId| {
            let srq = sh.srqs.get(id.0)?;
            let (domain, cq) = srq.xrc?;
            (Some(domain) == self.xrc.domain).then_some((id, srq.pd, cq))
        };
        let mut found = named.and_then(of_domain);
        let expected = packet.bth.psn.expand(self.responder.expected) == self.responder.expected;
        if expected {
            if matches!(operation.position(), Position::First | Position::Only) {
                self.xrc.message = named;
            } else if self.xrc.message != named {
                found = None;
            }
        }
        self.facts.srq = found.map(|(id, ..)| id);
        if let Some((_, pd, cq)) = found {
            self.facts.pd = pd;
            // What is held by a message goes back where it came from, whatever is repeated.
            if expected {
                self.facts.recv_cq = cq;
            }
        }
    }
}

impl QpType {
    /// Whether packets are acknowledged and sent again.
    pub fn is_reliable(self) -> bool {
        matches!(self, Self::Rc | Self::XrcSend | Self::XrcRecv)
    }

    /// Whether it has one peer, named by its attributes.
    pub fn is_connected(self) -> bool {
        !matches!(self, Self::Ud | Self::Gsi)
    }

    /// Whether it posts send requests that READ and do what else reliable connections do.
    pub(crate) fn requests_reliably(self) -> bool {
        matches!(self, Self::Rc | Self::XrcSend)
    }
}

/// Whether the state is one in which a queue pair does not send.
pub(crate) fn is_silent(state: QpState) -> bool {
    matches!(state, QpState::Reset | QpState::Init | QpState::Rtr)
}
