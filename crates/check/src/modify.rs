//! Moves of a queue pair: its own table of what is legal (ibv_modify_qp(3)), asked only when the
//! device has refused a call, to say why in the words of verbs.

use crate::checker::Checker;
use crate::finding::{Call, Finding};
use crate::object::{Handle, Service};
use crate::rule::Rule;

/// The states of a queue pair, numbered as in `ibv_qp_state`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[allow(missing_docs)]
pub enum State {
    Reset,
    Init,
    Rtr,
    Rts,
    Sqd,
    Sqe,
    Err,
}

impl State {
    /// By its number.
    pub fn from_number(number: u32) -> Option<Self> {
        use State::*;
        [Reset, Init, Rtr, Rts, Sqd, Sqe, Err].get(number as usize).copied()
    }

    fn name(self) -> &'static str {
        match self {
            Self::Reset => "RESET",
            Self::Init => "INIT",
            Self::Rtr => "RTR",
            Self::Rts => "RTS",
            Self::Sqd => "SQD",
            Self::Sqe => "SQE",
            Self::Err => "ERR",
        }
    }
}

/// Bits of `ibv_qp_attr_mask`.
#[allow(missing_docs)]
pub mod attribute {
    pub const STATE: u32 = 1;
    pub const CUR_STATE: u32 = 1 << 1;
    pub const ACCESS_FLAGS: u32 = 1 << 3;
    pub const PKEY_INDEX: u32 = 1 << 4;
    pub const PORT: u32 = 1 << 5;
    pub const QKEY: u32 = 1 << 6;
    pub const AV: u32 = 1 << 7;
    pub const PATH_MTU: u32 = 1 << 8;
    pub const TIMEOUT: u32 = 1 << 9;
    pub const RETRY_CNT: u32 = 1 << 10;
    pub const RNR_RETRY: u32 = 1 << 11;
    pub const RQ_PSN: u32 = 1 << 12;
    pub const MAX_QP_RD_ATOMIC: u32 = 1 << 13;
    pub const MIN_RNR_TIMER: u32 = 1 << 15;
    pub const SQ_PSN: u32 = 1 << 16;
    pub const MAX_DEST_RD_ATOMIC: u32 = 1 << 17;
    pub const DEST_QPN: u32 = 1 << 20;
}

const NAMES: &[(u32, &str)] = &[
    (attribute::CUR_STATE, "IBV_QP_CUR_STATE"),
    (1 << 2, "IBV_QP_EN_SQD_ASYNC_NOTIFY"),
    (attribute::ACCESS_FLAGS, "IBV_QP_ACCESS_FLAGS"),
    (attribute::PKEY_INDEX, "IBV_QP_PKEY_INDEX"),
    (attribute::PORT, "IBV_QP_PORT"),
    (attribute::QKEY, "IBV_QP_QKEY"),
    (attribute::AV, "IBV_QP_AV"),
    (attribute::PATH_MTU, "IBV_QP_PATH_MTU"),
    (attribute::TIMEOUT, "IBV_QP_TIMEOUT"),
    (attribute::RETRY_CNT, "IBV_QP_RETRY_CNT"),
    (attribute::RNR_RETRY, "IBV_QP_RNR_RETRY"),
    (attribute::RQ_PSN, "IBV_QP_RQ_PSN"),
    (attribute::MAX_QP_RD_ATOMIC, "IBV_QP_MAX_QP_RD_ATOMIC"),
    (1 << 14, "IBV_QP_ALT_PATH"),
    (attribute::MIN_RNR_TIMER, "IBV_QP_MIN_RNR_TIMER"),
    (attribute::SQ_PSN, "IBV_QP_SQ_PSN"),
    (attribute::MAX_DEST_RD_ATOMIC, "IBV_QP_MAX_DEST_RD_ATOMIC"),
    (1 << 18, "IBV_QP_PATH_MIG_STATE"),
    (1 << 19, "IBV_QP_CAP"),
    (attribute::DEST_QPN, "IBV_QP_DEST_QPN"),
    (1 << 25, "IBV_QP_RATE_LIMIT"),
];

fn names(mask: u32) -> String {
    let list: Vec<_> = NAMES.iter().filter(|(bit, _)| mask & bit != 0).map(|(_, n)| *n).collect();
    list.join(", ")
}

/// What a peer's address is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Address {
    /// Whether it has a GRH.
    pub is_global: bool,
    /// Index of the own GID.
    pub sgid_index: u8,
    /// The peer's GID.
    pub dgid: [u8; 16],
}

/// What the port offers.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Port {
    /// Its GIDs by index; zero where there is none.
    pub gids: Vec<[u8; 16]>,
    /// Its `active_mtu`, as in `ibv_mtu`.
    pub active_mtu: u32,
}

/// A call of ibv_modify_qp(3).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Move {
    /// `attr_mask`.
    pub mask: u32,
    /// `qp_state`, if the mask names it.
    pub to: u32,
    /// `ah_attr`.
    pub address: Address,
    /// `path_mtu`.
    pub path_mtu: u32,
}

fn is_ipv4(gid: &[u8; 16]) -> bool {
    gid[..10] == [0; 10] && gid[10..12] == [0xFF; 2]
}

fn is_multicast(gid: &[u8; 16]) -> bool {
    gid[0] == 0xFF || (is_ipv4(gid) && gid[12] & 0xF0 == 0xE0)
}

/// What is wrong with an address, if anything.
fn wrong_address(address: &Address, port: &Port) -> Option<(Rule, String)> {
    if !address.is_global {
        return Some((Rule::NoGrh, "is_global is 0".to_owned()));
    }
    let zero = [0; 16];
    let index = address.sgid_index;
    let Some(own) = port.gids.get(usize::from(index)).filter(|gid| **gid != zero) else {
        let count = port.gids.len();
        let found = format!("sgid_index {index}, where the table has {count} GID(s), from 0");
        return Some((Rule::BadGid, found));
    };
    if address.dgid == zero {
        return Some((Rule::BadGid, "dgid is zero".to_owned()));
    }
    if is_ipv4(own) != is_ipv4(&address.dgid) && !is_multicast(&address.dgid) {
        let family = |gid| if is_ipv4(gid) { "IPv4" } else { "IPv6" };
        let found = format!(
            "sgid_index {index} is an {} address, dgid an {} one",
            family(own),
            family(&address.dgid)
        );
        return Some((Rule::BadGid, found));
    }
    None
}

/// Attributes that a move requires, and those that it takes besides; `None` if there is no such
/// move.
fn rules(from: State, to: State, service: Service) -> Option<(u32, u32)> {
    use attribute::*;
    let rc = service == Service::Rc;
    let datagram = service == Service::Ud;
    let own = if datagram { QKEY } else { ACCESS_FLAGS };
    let alternate = if datagram { 0 } else { 1 << 14 };
    let migration = if datagram { 0 } else { 1 << 18 };
    let rnr = if rc { MIN_RNR_TIMER } else { 0 };
    let to_rts = CUR_STATE | own | alternate | migration | rnr;
    Some(match (from, to) {
        (_, State::Reset) => (0, 0),
        (State::Reset, State::Err) => return None,
        (_, State::Err) => (0, 0),
        (State::Reset, State::Init) => (PKEY_INDEX | PORT | own, 0),
        (State::Init, State::Init) => (0, PKEY_INDEX | PORT | own),
        (State::Init, State::Rtr) => {
            let connected = AV | PATH_MTU | DEST_QPN | RQ_PSN;
            let required = match service {
                Service::Rc => connected | MAX_DEST_RD_ATOMIC | MIN_RNR_TIMER,
                Service::Uc => connected,
                Service::Ud => 0,
            };
            (required, PKEY_INDEX | own | alternate)
        }
        (State::Rtr, State::Rts) => {
            let rc_only = TIMEOUT | RETRY_CNT | RNR_RETRY | MAX_QP_RD_ATOMIC;
            (SQ_PSN | if rc { rc_only } else { 0 }, to_rts)
        }
        (State::Rts | State::Sqd, State::Rts) => (0, to_rts),
        (State::Rts, State::Sqd) => (0, 1 << 2),
        (State::Sqd, State::Sqd) => (0, u32::MAX),
        (State::Sqe, State::Rts) if !rc => (0, to_rts),
        _ => return None,
    })
}

impl Checker {
    /// A call of ibv_modify_qp(3) has been made; `errno` is what it gave, 0 for success.
    pub fn moved(&mut self, call: Call, qp: Handle, asked: &Move, port: &Port, errno: i32) {
        let Some(from) = self.state(qp) else { return };
        if errno == 0 {
            if asked.mask & attribute::STATE != 0
                && let Some(to) = State::from_number(asked.to)
            {
                self.entered(qp, to);
            }
            return;
        }
        let service = self.pairs.get(&qp).map_or(Service::Rc, |pair| pair.facts.service);
        let (rule, found) = refusal(from, service, asked, port, errno);
        let origin = self.objects.get(&qp).map(|tracked| tracked.made);
        let object = self.name(qp);
        self.report(Finding { rule, call, object, wr_id: None, found, origin });
    }

    /// A queue pair has another state.
    fn entered(&mut self, qp: Handle, to: State) {
        let Some(pair) = self.pairs.get_mut(&qp) else { return };
        pair.state = to;
        if to == State::Rts || to == State::Reset {
            pair.failed = false;
        }
        if to == State::Reset {
            let facts = pair.facts;
            let sends = std::mem::take(&mut pair.sends);
            let receives = std::mem::take(&mut pair.receives);
            self.drop_requests(&facts, sends, receives);
        }
    }

    /// An address handle was asked for and refused.
    pub fn address_refused(&mut self, call: Call, pd: Handle, address: &Address, port: &Port) {
        let Some((rule, found)) = wrong_address(address, port) else { return };
        let object = self.name(pd);
        self.report(Finding { rule, call, object, wr_id: None, found, origin: None });
    }
}

/// Why a move was refused.
fn refusal(from: State, service: Service, asked: &Move, port: &Port, errno: i32) -> (Rule, String) {
    use attribute::*;
    let has = |bit| asked.mask & bit != 0;
    let to = if has(STATE) { State::from_number(asked.to) } else { Some(from) };
    let Some(to) = to else {
        return (Rule::WrongTransition, format!("state {} does not exist", asked.to));
    };
    let step = format!("from {} to {}", from.name(), to.name());
    let Some((required, optional)) = rules(from, to, service) else {
        return (Rule::WrongTransition, format!("a move {step}"));
    };
    let given = asked.mask & !STATE;
    let missing = required & !given;
    if missing != 0 {
        return (Rule::WrongAttributes, format!("{step}: missing {}", names(missing)));
    }
    let superfluous = given & !(required | optional);
    if superfluous != 0 {
        return (Rule::WrongAttributes, format!("{step}: superfluous {}", names(superfluous)));
    }
    if has(AV)
        && let Some((rule, found)) = wrong_address(&asked.address, port)
    {
        return (rule, format!("{step}: {found}"));
    }
    if has(PATH_MTU) && asked.path_mtu > port.active_mtu {
        let bytes = |code: u32| 128_u64.checked_shl(code).unwrap_or(0);
        let (path, active) = (bytes(asked.path_mtu), bytes(port.active_mtu));
        let found = format!("{step}: path_mtu {path}, active_mtu {active}");
        return (Rule::BadMtu, found);
    }
    (Rule::WrongAttributes, format!("{step}: a value is out of range (errno {errno})"))
}
