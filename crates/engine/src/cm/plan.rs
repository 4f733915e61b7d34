//! How a queue pair has to be moved for a connection: what both sides agreed on, as attributes of
//! INIT, RTR and RTS.

use wire::{Mtu, Psn, QKey, Qpn};

use crate::attr::{AttrMask, QpAttr, QpState, QpType};
use crate::work::{Access, AddressVector};

/// One call of `modify_qp`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct QpStep {
    /// Attributes.
    pub attr: QpAttr,
    /// Which of them count.
    pub mask: AttrMask,
}

/// The three calls of `modify_qp` that take a queue pair from RESET (or INIT) to RTS.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct QpPlan {
    /// To INIT. May be repeated on a queue pair that is there already.
    pub init: QpStep,
    /// To RTR.
    pub rtr: QpStep,
    /// To RTS.
    pub rts: QpStep,
}

impl QpPlan {
    /// The steps in order.
    pub fn steps(&self) -> [QpStep; 3] {
        [self.init, self.rtr, self.rts]
    }
}

/// What a connection's queue pair is set to; grows as the exchange goes on.
#[derive(Clone, Copy, Debug)]
pub(super) struct Terms {
    pub(super) qp_type: QpType,
    pub(super) av: AddressVector,
    pub(super) mtu: Mtu,
    pub(super) remote_qpn: Qpn,
    /// Drawn here and told to the peer, who begins to send with it.
    pub(super) rq_psn: Psn,
    /// As the peer told.
    pub(super) sq_psn: Psn,
    pub(super) ack_timeout: u8,
    pub(super) retry_count: u8,
    pub(super) rnr_retry: u8,
    pub(super) min_rnr_timer: u8,
    /// `max_rd_atomic`.
    pub(super) initiator_depth: u8,
    /// `max_dest_rd_atomic`.
    pub(super) responder_resources: u8,
}

impl Terms {
    pub(super) fn plan(&self) -> QpPlan {
        let rc = self.qp_type == QpType::Rc;
        let init = AttrMask::STATE | AttrMask::PKEY_INDEX | AttrMask::PORT | AttrMask::ACCESS_FLAGS;
        let mut rtr = AttrMask::STATE
            | AttrMask::AV
            | AttrMask::PATH_MTU
            | AttrMask::DEST_QPN
            | AttrMask::RQ_PSN;
        let mut rts = AttrMask::STATE | AttrMask::SQ_PSN;
        if rc {
            rtr |= AttrMask::MAX_DEST_RD_ATOMIC | AttrMask::MIN_RNR_TIMER;
            rts |= AttrMask::TIMEOUT
                | AttrMask::RETRY_CNT
                | AttrMask::RNR_RETRY
                | AttrMask::MAX_QP_RD_ATOMIC;
        }
        let step = |state, mask| QpStep { attr: QpAttr { state, ..self.attr() }, mask };
        QpPlan {
            init: step(QpState::Init, init),
            rtr: step(QpState::Rtr, rtr),
            rts: step(QpState::Rts, rts),
        }
    }

    fn attr(&self) -> QpAttr {
        let mut access = Access::REMOTE_WRITE;
        if self.qp_type == QpType::Rc && self.responder_resources > 0 {
            access |= Access::REMOTE_READ | Access::REMOTE_ATOMIC;
        }
        QpAttr {
            state: QpState::Reset,
            cur_state: QpState::Reset,
            en_sqd_async_notify: false,
            access,
            pkey_index: 0,
            port: 1,
            qkey: QKey::new(0),
            av: self.av,
            path_mtu: self.mtu,
            dest_qp: self.remote_qpn,
            rq_psn: self.rq_psn,
            sq_psn: self.sq_psn,
            timeout: self.ack_timeout,
            retry_cnt: self.retry_count,
            rnr_retry: self.rnr_retry,
            min_rnr_timer: self.min_rnr_timer,
            max_rd_atomic: self.initiator_depth,
            max_dest_rd_atomic: self.responder_resources,
        }
    }
}
