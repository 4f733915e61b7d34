//! Address handles: destinations of datagrams.

use std::sync::Arc;

use engine::{AddressVector, Datagram, Error, Result};
use wire::{QKey, Qpn};

use crate::context::Context;
use crate::pd::PdInner;

/// An address handle: how to reach a peer with datagrams.
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
