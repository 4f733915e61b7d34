//! Memory windows of an end: bound by a work request, used by the peer, ended by the peer's SEND
//! with invalidate, by an invalidation of our own or by a bind of length zero; then bound again.

use engine::{
    BindWindow, MwId, QpType, SendData, SendFlags, SendOp, SendRequest, WcOpcode, WindowType,
};
use wire::RKey;

use crate::end::{Effect, Posted};
use crate::pair::setup::REMOTE;
use crate::run::Run;

/// Where a window is in its life.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Phase {
    /// Not bound.
    Idle,
    /// A bind is posted.
    Binding,
    /// The peer may use it.
    Bound,
    /// The peer's SEND with invalidate is on its way.
    Dying,
    /// Our own invalidation waits until the peer has done with it.
    Leaving,
    /// Our own invalidation is posted.
    Unbinding,
}

/// A window of an end.
#[derive(Debug)]
pub(crate) struct Window {
    pub(crate) id: MwId,
    pub(crate) kind: WindowType,
    pub(crate) rkey: RKey,
    pub(crate) phase: Phase,
    /// Host address and length of what it shows.
    pub(crate) addr: u64,
    pub(crate) length: u64,
    /// Requests of the peer through it that are not known to be done.
    pub(crate) users: u32,
}

impl Run {
    pub(crate) fn build_windows(&mut self, e: usize) {
        let end = &self.ends[e];
        if end.service != QpType::Rc {
            return;
        }
        let (host, pd) = (end.host, self.sites[end.host].pd);
        for _ in 0..self.plan.links[end.link].side[end.side].windows {
            let kind = self.dice.pick(&[WindowType::Type1, WindowType::Type2]);
            let device = &mut self.world.hosts[host].device;
            let (id, rkey) = device.alloc_mw(pd, kind).expect("a window");
            let window =
                Window { id, kind, rkey, phase: Phase::Idle, addr: 0, length: 0, users: 0 };
            self.ends[e].windows.push(window);
        }
    }

    /// Moves the windows of an end on, at times; whether anything was posted.
    pub(crate) fn tend_windows(&mut self, e: usize) -> bool {
        let mut any = false;
        for w in 0..self.ends[e].windows.len() {
            let end = &self.ends[e];
            let peer = &self.ends[end.peer];
            // Binding goes on only while the peer has something to do.
            let wanted = peer.left > 0;
            let room = (end.posted.len() as u32) < end.cap.max_send_wr;
            let window = &end.windows[w];
            match window.phase {
                Phase::Idle if wanted && room && self.dice.percent(20) => {
                    self.bind(e, w);
                    any = true;
                }
                Phase::Bound if self.dice.percent(3) => {
                    self.ends[e].windows[w].phase = Phase::Leaving;
                }
                Phase::Leaving if window.users == 0 && room => {
                    self.unbind(e, w);
                    any = true;
                }
                _ => {}
            }
        }
        any
    }

    fn bind(&mut self, e: usize, w: usize) {
        let end = &self.ends[e];
        let target = end.target;
        let id = end.windows[w].id;
        let device = &mut self.world.hosts[end.host].device;
        let rkey = match end.windows[w].kind {
            WindowType::Type1 => device.next_mw_rkey(id).expect("a key"),
            WindowType::Type2 => {
                let old = end.windows[w].rkey.get();
                RKey::new(old & !0xFF | (old.wrapping_add(1) & 0xFF))
            }
        };
        let length = self.dice.range(1..=target.length);
        let addr = target.addr + self.dice.below(target.length - length + 1);
        let window = &mut self.ends[e].windows[w];
        (window.rkey, window.addr, window.length) = (rkey, addr, length);
        window.phase = Phase::Binding;
        let bind = BindWindow {
            mw: id,
            rkey,
            lkey: target.lkey,
            addr: target.named(addr),
            length,
            access: REMOTE,
        };
        self.post_local(e, SendOp::BindWindow(bind), WcOpcode::BindMw, Effect::Bound { window: w });
    }

    fn unbind(&mut self, e: usize, w: usize) {
        let end = &self.ends[e];
        let window = &end.windows[w];
        let (id, rkey, lkey) = (window.id, window.rkey, end.target.lkey);
        let (op, opcode) = match window.kind {
            WindowType::Type2 => (SendOp::LocalInvalidate(rkey), WcOpcode::LocalInv),
            WindowType::Type1 => {
                let device = &mut self.world.hosts[end.host].device;
                let rkey = device.next_mw_rkey(id).expect("a key");
                let (addr, length) = (end.target.iova, 0);
                let bind = BindWindow { mw: id, rkey, lkey, addr, length, access: REMOTE };
                (SendOp::BindWindow(bind), WcOpcode::BindMw)
            }
        };
        self.ends[e].windows[w].phase = Phase::Unbinding;
        self.post_local(e, op, opcode, Effect::Unbound { window: w });
    }

    fn post_local(&mut self, e: usize, op: SendOp, opcode: WcOpcode, effect: Effect) {
        let end = &mut self.ends[e];
        let wr_id = end.next_wr;
        end.next_wr += 1;
        let wr = SendRequest {
            wr_id,
            op,
            flags: SendFlags::SIGNALED,
            data: SendData::Sges(&[]),
            datagram: None,
        };
        let device = &mut self.world.hosts[end.host].device;
        device.post_send(self.world.now, end.qpn, &wr).expect("room in the send queue");
        end.posted.push_back(Posted { wr_id, opcode, signaled: true, effect, through: None });
        self.report.count(end.service, opcode, 0);
    }
}
