//! How objects print: what they are called, not what they hold.

use std::fmt::{Debug, Formatter, Result};

use crate::{Ah, CompChannel, Context, Cq, Mr, Mw, Pd, Qp, Srq, Xrcd};

impl Debug for Context {
    fn fmt(&self, f: &mut Formatter<'_>) -> Result {
        f.debug_tuple("Context").field(&self.device().name).finish()
    }
}

impl Debug for Pd {
    fn fmt(&self, f: &mut Formatter<'_>) -> Result {
        f.debug_tuple("Pd").field(&self.id().0).finish()
    }
}

impl Debug for Mr {
    fn fmt(&self, f: &mut Formatter<'_>) -> Result {
        f.debug_struct("Mr")
            .field("iova", &format_args!("{:#x}", self.iova()))
            .field("len", &self.len())
            .field("lkey", &self.lkey())
            .field("rkey", &self.rkey())
            .field("access", &self.access())
            .finish_non_exhaustive()
    }
}

impl Debug for Mw {
    fn fmt(&self, f: &mut Formatter<'_>) -> Result {
        f.debug_struct("Mw").field("id", &self.id().0).field("kind", &self.kind()).finish()
    }
}

impl Debug for CompChannel {
    fn fmt(&self, f: &mut Formatter<'_>) -> Result {
        f.debug_struct("CompChannel").field("fd", &self.fd()).finish()
    }
}

impl Debug for Cq {
    fn fmt(&self, f: &mut Formatter<'_>) -> Result {
        f.debug_struct("Cq")
            .field("id", &self.id().0)
            .field("capacity", &self.capacity())
            .finish_non_exhaustive()
    }
}

impl Debug for Srq {
    fn fmt(&self, f: &mut Formatter<'_>) -> Result {
        f.debug_tuple("Srq").field(&self.id().0).finish()
    }
}

impl Debug for Xrcd {
    fn fmt(&self, f: &mut Formatter<'_>) -> Result {
        f.debug_tuple("Xrcd").field(&self.id().0).finish()
    }
}

impl Debug for Qp {
    fn fmt(&self, f: &mut Formatter<'_>) -> Result {
        // Not the state: asking for it takes the device's lock, which a batch may hold.
        f.debug_struct("Qp")
            .field("qpn", &self.qpn())
            .field("type", &self.qp_type())
            .finish_non_exhaustive()
    }
}

impl Debug for Ah {
    fn fmt(&self, f: &mut Formatter<'_>) -> Result {
        f.debug_tuple("Ah").field(&self.av().dgid).finish()
    }
}
