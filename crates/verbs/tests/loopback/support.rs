//! What the tests stand on: pairs of connected ends, requests in one line, completions that come or
//! fail the test.

use std::time::Duration;

use crocevia::{
    Access, Completion, ConnectOptions, Context, Cq, Mr, Pd, Qp, QpCap, QpOptions, QpType,
    RecvRequest, SendData, SendFlags, SendOp, SendRequest, Sge, WcStatus,
};

/// How long a test waits for what must come.
pub(crate) const SOON: Duration = Duration::from_secs(20);
/// How long a test waits for what must not come.
pub(crate) const NEVER: Duration = Duration::from_millis(50);

pub(crate) const ALL: Access = Access::LOCAL_WRITE
    .union(Access::REMOTE_WRITE)
    .union(Access::REMOTE_READ)
    .union(Access::REMOTE_ATOMIC)
    .union(Access::MW_BIND);

/// One end of a connection, on a device of its own.
pub(crate) struct End {
    pub(crate) qp: Qp,
    pub(crate) cq: Cq,
    pub(crate) pd: Pd,
    pub(crate) context: Context,
}

/// Two connected ends.
pub(crate) struct Pair {
    pub(crate) a: End,
    pub(crate) b: End,
}

pub(crate) fn open(last: u8) -> Context {
    Context::open_addr(&format!("127.0.0.{last}")).expect("the device opens")
}

pub(crate) const CAP: QpCap = QpCap {
    max_send_wr: 64,
    max_recv_wr: 64,
    max_send_sge: 8,
    max_recv_sge: 8,
    max_inline_data: 512,
};

impl End {
    pub(crate) fn new(context: &Context, qp_type: QpType) -> Self {
        Self::with(context, qp_type, |_| {})
    }

    pub(crate) fn with(
        context: &Context,
        qp_type: QpType,
        change: impl FnOnce(&mut QpOptions<'_>),
    ) -> Self {
        let pd = context.alloc_pd().expect("a domain");
        let cq = context.create_cq(256, None).expect("a completion queue");
        let mut options = QpOptions { cap: CAP, ..QpOptions::new(qp_type, &cq) };
        change(&mut options);
        let qp = pd.create_qp(&options).expect("a queue pair");
        Self { qp, cq, pd, context: context.clone() }
    }

    /// `len` registered bytes with every right, filled with a pattern that depends on `salt`.
    pub(crate) fn memory(&self, len: usize, salt: u8) -> Mr {
        let mr = self.pd.alloc(len, ALL).expect("memory");
        mr.region().write(0, &pattern(len, salt));
        mr
    }

    pub(crate) fn post_recv(&self, wr_id: u64, sges: &[Sge]) {
        self.qp.post_recv(&RecvRequest { wr_id, sges }).expect("the receive is taken");
    }

    /// Posts a signaled request.
    pub(crate) fn post(&self, wr_id: u64, op: SendOp, sges: &[Sge]) {
        self.qp.post_send(&request(wr_id, op, sges)).expect("the request is taken");
    }

    /// Posts a signaled request and takes its completion, which must be a success.
    pub(crate) fn run(&self, op: SendOp, sges: &[Sge]) -> Completion {
        self.post(0xD0, op, sges);
        let completion = self.success();
        assert_eq!(completion.wr_id, 0xD0);
        completion
    }

    pub(crate) fn completion(&self) -> Completion {
        self.cq.wait(Some(SOON)).expect("a completion comes")
    }

    pub(crate) fn success(&self) -> Completion {
        let completion = self.completion();
        assert_eq!(completion.status, WcStatus::Success, "{completion:?}");
        completion
    }

    pub(crate) fn failure(&self, status: WcStatus) -> Completion {
        let completion = self.completion();
        assert_eq!(completion.status, status, "{completion:?}");
        completion
    }

    pub(crate) fn nothing(&self) {
        assert_eq!(self.cq.wait(Some(NEVER)), None);
    }
}

impl Pair {
    pub(crate) fn rc(a: &Context, b: &Context) -> Self {
        Self::connected(a, b, QpType::Rc, &ConnectOptions::default())
    }

    pub(crate) fn connected(
        a: &Context,
        b: &Context,
        qp_type: QpType,
        options: &ConnectOptions,
    ) -> Self {
        let pair = Self { a: End::new(a, qp_type), b: End::new(b, qp_type) };
        Qp::pair(&pair.a.qp, &pair.b.qp, options).expect("they connect");
        pair
    }
}

/// A signaled request on registered memory.
pub(crate) fn request<'a>(wr_id: u64, op: SendOp, sges: &'a [Sge]) -> SendRequest<'a> {
    SendRequest {
        wr_id,
        op,
        flags: SendFlags::SIGNALED,
        data: SendData::Sges(sges),
        datagram: None,
    }
}

pub(crate) fn pattern(len: usize, salt: u8) -> Vec<u8> {
    (0..len).map(|i| (i as u8).wrapping_mul(31) ^ (i >> 8) as u8 ^ salt).collect()
}

pub(crate) fn bytes(mr: &Mr, start: usize, len: usize) -> Vec<u8> {
    let mut out = vec![0; len];
    mr.region().read(start, &mut out);
    out
}

/// Zero, one, around the path MTU of loopback (4096), several packets, and 1 MiB.
pub(crate) const SIZES: [usize; 8] = [0, 1, 4095, 4096, 4097, 8192, 100_003, 1 << 20];
