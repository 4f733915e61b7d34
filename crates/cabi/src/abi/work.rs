//! Work requests, completions and what goes with them: memory of the caller's.

use core::ffi::{c_int, c_uint, c_void};

use super::{ibv_ah, ibv_mr, ibv_mw, layout};

/// `struct ibv_sge`.
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct ibv_sge {
    pub addr: u64,
    pub length: u32,
    pub lkey: u32,
}

/// `struct ibv_data_buf`.
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct ibv_data_buf {
    pub addr: *mut c_void,
    pub length: usize,
}

/// `struct ibv_mw_bind_info`.
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct ibv_mw_bind_info {
    pub mr: *mut ibv_mr,
    pub addr: u64,
    pub length: u64,
    pub mw_access_flags: c_uint,
}

/// `struct ibv_mw_bind`.
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct ibv_mw_bind {
    pub wr_id: u64,
    pub send_flags: c_uint,
    pub bind_info: ibv_mw_bind_info,
}

/// `wr.rdma` of [`ibv_send_wr`].
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct wr_rdma {
    pub remote_addr: u64,
    pub rkey: u32,
}

/// `wr.atomic` of [`ibv_send_wr`].
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct wr_atomic {
    pub remote_addr: u64,
    pub compare_add: u64,
    pub swap: u64,
    pub rkey: u32,
}

/// `wr.ud` of [`ibv_send_wr`].
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct wr_ud {
    pub ah: *mut ibv_ah,
    pub remote_qpn: u32,
    pub remote_qkey: u32,
}

/// `wr` of [`ibv_send_wr`].
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) union wr_union {
    pub rdma: wr_rdma,
    pub atomic: wr_atomic,
    pub ud: wr_ud,
}

/// `bind_mw` of [`ibv_send_wr`].
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct wr_bind_mw {
    pub mw: *mut ibv_mw,
    pub rkey: u32,
    pub bind_info: ibv_mw_bind_info,
}

/// `tso` of [`ibv_send_wr`].
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct wr_tso {
    pub hdr: *mut c_void,
    pub hdr_sz: u16,
    pub mss: u16,
}

/// The last union of [`ibv_send_wr`].
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) union wr_tail {
    pub bind_mw: wr_bind_mw,
    pub tso: wr_tso,
}

/// `struct ibv_send_wr`.
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct ibv_send_wr {
    pub wr_id: u64,
    pub next: *mut ibv_send_wr,
    pub sg_list: *mut ibv_sge,
    pub num_sge: c_int,
    pub opcode: u32,
    pub send_flags: c_uint,
    /// Immediate data in network byte order, or the key to invalidate.
    pub imm_data: u32,
    pub wr: wr_union,
    pub remote_srqn: u32,
    pub tail: wr_tail,
}

impl ibv_send_wr {
    /// `wr.rdma`.
    #[inline]
    pub(crate) fn rdma(&self) -> wr_rdma {
        // SAFETY: every member of the unions is plain data, for which any bytes are a value.
        unsafe { self.wr.rdma }
    }

    /// `wr.atomic`.
    #[inline]
    pub(crate) fn atomic(&self) -> wr_atomic {
        // SAFETY: as above.
        unsafe { self.wr.atomic }
    }

    /// `wr.ud`.
    #[inline]
    pub(crate) fn ud(&self) -> wr_ud {
        // SAFETY: as above.
        unsafe { self.wr.ud }
    }

    /// `bind_mw`.
    #[inline]
    pub(crate) fn bind_mw(&self) -> &wr_bind_mw {
        // SAFETY: as above.
        unsafe { &self.tail.bind_mw }
    }
}

/// `struct ibv_recv_wr`.
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct ibv_recv_wr {
    pub wr_id: u64,
    pub next: *mut ibv_recv_wr,
    pub sg_list: *mut ibv_sge,
    pub num_sge: c_int,
}

/// `struct ibv_wc`.
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct ibv_wc {
    pub wr_id: u64,
    pub status: u32,
    pub opcode: u32,
    pub vendor_err: u32,
    pub byte_len: u32,
    /// Immediate data in network byte order, or the key that was invalidated.
    pub imm_data: u32,
    pub qp_num: u32,
    pub src_qp: u32,
    pub wc_flags: c_uint,
    pub pkey_index: u16,
    pub slid: u16,
    pub sl: u8,
    pub dlid_path_bits: u8,
}

/// `struct ibv_poll_cq_attr`.
#[repr(C)]
pub(crate) struct ibv_poll_cq_attr {
    pub comp_mask: u32,
}

/// `struct ibv_grh`: the 40 bytes before a received datagram.
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct ibv_grh {
    pub version_tclass_flow: u32,
    pub paylen: u16,
    pub next_hdr: u8,
    pub hop_limit: u8,
    pub sgid: [u8; 16],
    pub dgid: [u8; 16],
}

layout! {
    WORK:
    ibv_sge: 16, length @ 8, lkey @ 12;
    ibv_data_buf: 16, length @ 8;
    ibv_mw_bind_info: 32, addr @ 8, length @ 16, mw_access_flags @ 24;
    ibv_mw_bind: 48, send_flags @ 8, bind_info @ 16;
    ibv_send_wr: 128, next @ 8, sg_list @ 16, num_sge @ 24, opcode @ 28, send_flags @ 32,
        imm_data @ 36, wr @ 40, remote_srqn @ 72, tail @ 80;
    ibv_recv_wr: 32, next @ 8, sg_list @ 16, num_sge @ 24;
    ibv_wc: 48, status @ 8, opcode @ 12, vendor_err @ 16, byte_len @ 20, imm_data @ 24,
        qp_num @ 28, src_qp @ 32, wc_flags @ 36, pkey_index @ 40, slid @ 42, sl @ 44,
        dlid_path_bits @ 45;
    ibv_grh: 40, paylen @ 4, next_hdr @ 6, hop_limit @ 7, sgid @ 8, dgid @ 24;
}
