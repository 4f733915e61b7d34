//! Address handles: destinations of datagrams.

use std::sync::Arc;

use engine::{AddressVector, Datagram, Error, Result};
use wire::{QKey, Qpn};

use crate::context::Context;
use crate::pd::PdInner;

/// An address handle: how to reach a peer with datagrams.
///
/// A received datagram stands behind 40 bytes that hold the sender's network header: the buffer of
/// the receive must be 40 bytes longer than the message.
///
/// ```
/// use crocevia::{AddressVector, QKey, QpOptions, RecvRequest, SendData, SendFlags, SendOp};
/// use crocevia::{Access, SendRequest};
/// # use crocevia::Context;
/// # let context = Context::open_addr("127.0.70.10")?;
/// # let (pd, cq) = (context.alloc_pd()?, context.create_cq(16, None)?);
/// # let peer_cq = context.create_cq(16, None)?;
///
/// let qkey = QKey::new(0x1234);
/// let (qp, peer) = (pd.create_qp(&QpOptions::ud(&cq))?, pd.create_qp(&QpOptions::ud(&peer_cq))?);
/// qp.activate_datagram(qkey)?;
/// peer.activate_datagram(qkey)?;
/// let memory = pd.alloc(40 + 5, Access::empty())?;
/// peer.post_recv(&RecvRequest { wr_id: 1, sges: &[memory.sge(..)] })?;
///
/// let ah = pd.create_ah(&AddressVector {
///     is_global: true,
///     dgid: context.gid(0)?,
///     sgid_index: 0,
///     traffic_class: 0,
///     hop_limit: 0,
///     flow_label: 0,
///     sl: 0,
/// })?;
/// qp.post_send(&SendRequest {
///     wr_id: 2,
///     op: SendOp::Send,
///     flags: SendFlags::SIGNALED,
///     data: SendData::Inline(b"hello"),
///     datagram: Some(ah.to(peer.qpn(), qkey)),
/// })?;
///
/// let received = peer_cq.wait(None).unwrap();
/// assert_eq!((received.byte_len, received.src_qp), (45, qp.qpn()));
/// let mut message = [0; 5];
/// memory.region().read(40, &mut message);
/// assert_eq!(&message, b"hello");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct Ah {
    pd: Arc<PdInner>,
    av: AddressVector,
}

impl Ah {
    pub(crate) fn new(pd: &Arc<PdInner>, av: &AddressVector) -> Result<Self> {
        if !av.is_global {
            return Err(Error::invalid(
                "the address vector has no GRH (is_global is off): RoCE addresses peers by GID; \
                 set is_global and the GID",
            ));
        }
        pd.context().gid(av.sgid_index).map_err(|error| Error::invalid(error.to_string()))?;
        pd.add_handle();
        Ok(Self { pd: Arc::clone(pd), av: *av })
    }

    /// The device.
    pub fn context(&self) -> &Context {
        self.pd.context()
    }

    /// What the handle holds.
    pub fn av(&self) -> &AddressVector {
        &self.av
    }

    /// The destination of a datagram to a queue pair of that peer.
    pub fn to(&self, dest_qp: Qpn, qkey: QKey) -> Datagram {
        Datagram { av: self.av, dest_qp, qkey }
    }

    /// Destroys the handle, as dropping it does. Datagrams posted with it still leave.
    pub fn destroy(self) {}
}

impl Drop for Ah {
    fn drop(&mut self) {
        self.pd.remove_handle();
    }
}
