//! The states of a queue pair: the one table of legal moves with the attributes that each requires
//! and allows (transport rules, "Queue pairs"; ibv_modify_qp(3)).

use crate::attr::{AttrMask, QpState, QpType};
use crate::error::{Error, Result};

/// Required and optional attributes of a move; `None` if the move is not legal.
pub(crate) fn rules(from: QpState, to: QpState, kind: QpType) -> Option<(AttrMask, AttrMask)> {
    use QpState::*;
    type A = AttrMask;
    let none = A::empty();
    let datagram = matches!(kind, QpType::Ud | QpType::Gsi);
    let rc = kind.is_reliable();
    let pick = |rc_mask: A, uc_mask: A, ud_mask: A| match kind {
        QpType::Rc | QpType::XrcSend | QpType::XrcRecv => rc_mask,
        QpType::Uc => uc_mask,
        QpType::Ud | QpType::Gsi => ud_mask,
    };
    let connected = |mask: A| if datagram { none } else { mask };
    let identity = pick(A::ACCESS_FLAGS, A::ACCESS_FLAGS, A::QKEY);
    Some(match (from, to) {
        (_, Reset) => (none, none),
        (Reset, Err) => return None,
        (_, Err) => (none, none),
        (Reset, Init) if kind == QpType::Gsi => (A::PKEY_INDEX | A::QKEY, none),
        (Reset, Init) => (A::PKEY_INDEX | A::PORT | identity, none),
        (Init, Init) => (none, A::PKEY_INDEX | A::PORT | identity),
        (Init, Rtr) => {
            let uc = A::AV | A::PATH_MTU | A::DEST_QPN | A::RQ_PSN;
            let responder = A::MAX_DEST_RD_ATOMIC | A::MIN_RNR_TIMER;
            let optional = A::PKEY_INDEX | identity | connected(A::ALT_PATH);
            // Who does not answer requests needs not be told how, but may be.
            match kind {
                QpType::XrcSend => (uc, optional | responder),
                _ => (pick(uc | responder, uc, none), optional),
            }
        }
        (Rtr, Rts) => {
            let rc_only = A::TIMEOUT | A::RETRY_CNT | A::RNR_RETRY | A::MAX_QP_RD_ATOMIC;
            match kind {
                // Who makes no requests likewise.
                QpType::XrcRecv => (A::SQ_PSN | A::TIMEOUT, to_rts(kind) | rc_only),
                _ => (A::SQ_PSN | if rc { rc_only } else { none }, to_rts(kind)),
            }
        }
        (Rts, Rts) | (Sqd, Rts) => (none, to_rts(kind)),
        (Rts, Sqd) => (none, A::EN_SQD_ASYNC_NOTIFY),
        (Sqd, Sqd) => {
            let uc = A::AV | A::PKEY_INDEX | A::ACCESS_FLAGS | A::ALT_PATH | A::PATH_MIG_STATE;
            let rc = uc
                | A::PORT
                | A::TIMEOUT
                | A::RETRY_CNT
                | A::RNR_RETRY
                | A::MAX_QP_RD_ATOMIC
                | A::MAX_DEST_RD_ATOMIC
                | A::MIN_RNR_TIMER;
            (none, pick(rc, uc, A::PKEY_INDEX | A::QKEY))
        }
        (Sqe, Rts) if !rc => (none, A::CUR_STATE | pick(none, A::ACCESS_FLAGS, A::QKEY)),
        _ => return None,
    })
}

/// Optional attributes of the moves into RTS.
fn to_rts(kind: QpType) -> AttrMask {
    type A = AttrMask;
    let connected = A::ACCESS_FLAGS | A::ALT_PATH | A::PATH_MIG_STATE;
    A::CUR_STATE
        | match kind {
            QpType::Rc | QpType::XrcSend | QpType::XrcRecv => connected | A::MIN_RNR_TIMER,
            QpType::Uc => connected,
            QpType::Ud | QpType::Gsi => A::QKEY,
        }
}

/// Checks a move; the sentence names what is missing or superfluous.
pub(crate) fn check(from: QpState, to: QpState, kind: QpType, mask: AttrMask) -> Result<()> {
    let Some((required, optional)) = rules(from, to, kind) else {
        return Err(Error::invalid(format!(
            "a {kind:?} queue pair cannot move from {from:?} to {to:?}: the way is \
             Reset, Init, Rtr, Rts"
        )));
    };
    let given = mask - AttrMask::STATE;
    let missing = required - given;
    if !missing.is_empty() {
        return Err(Error::invalid(format!(
            "{from:?} to {to:?} of a {kind:?} queue pair requires {}: missing {}",
            names(required),
            names(missing)
        )));
    }
    let superfluous = given - required - optional;
    if !superfluous.is_empty() {
        return Err(Error::invalid(format!(
            "{from:?} to {to:?} of a {kind:?} queue pair does not take {}: it takes {}",
            names(superfluous),
            names(required | optional)
        )));
    }
    Ok(())
}

fn names(mask: AttrMask) -> String {
    if mask.is_empty() {
        return "nothing but the state".to_owned();
    }
    let list: Vec<_> = mask.iter_names().map(|(name, _)| name).collect();
    list.join(", ")
}
