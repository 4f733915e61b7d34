//! Between the C structures and the nouns of the `crocevia` crate. Nothing here calls the device.

use core::ffi::c_int;

use crocevia::{
    Access, AddressVector, AttrMask, BindWindow, Completion, Datagram, Gid, LKey, Mtu,
    NetworkHeader, PostError, Psn, QKey, QpAttr, QpCap, QpState, QpType, Qpn, RKey, RecvRequest,
    Remote, SendData, SendFlags, SendOp, SendRequest, Sge, WcData, limits,
};

use crate::abi::*;
use crate::errno::{Done, Fail};
use crate::handle::{AhHandle, MrHandle, MwHandle, trust};

/// Result of a conversion on the data path.
pub(crate) type Post<T> = Result<T, PostError>;

/// Room for the scatter-gather entries and the inline bytes of one work request.
pub(crate) struct Scratch {
    few: [Sge; 4],
    many: Vec<Sge>,
    bytes: Vec<u8>,
}

impl Scratch {
    #[inline]
    pub(crate) fn new() -> Self {
        const NONE: Sge = Sge { addr: 0, length: 0, lkey: LKey::new(0) };
        Self { few: [NONE; 4], many: Vec::new(), bytes: Vec::new() }
    }

    #[inline]
    fn sges(&mut self, list: &[ibv_sge]) -> &[Sge] {
        if let Some(few) = self.few.get_mut(..list.len()) {
            for (to, from) in few.iter_mut().zip(list) {
                *to = sge(from);
            }
            return few;
        }
        self.many.clear();
        self.many.extend(list.iter().map(sge));
        &self.many
    }

    /// The bytes that an inline request names, in one piece.
    ///
    /// # Safety
    /// Each entry names readable memory.
    unsafe fn inline(&mut self, list: &[ibv_sge]) -> Post<&[u8]> {
        let total: u64 = list.iter().map(|sge| u64::from(sge.length)).sum();
        if total > u64::from(limits::MAX_INLINE) {
            return Err(PostError::Inline);
        }
        self.bytes.clear();
        for sge in list.iter().filter(|sge| sge.length > 0) {
            // SAFETY: by contract readable.
            self.bytes.extend_from_slice(unsafe {
                core::slice::from_raw_parts(sge.addr as *const u8, sge.length as usize)
            });
        }
        Ok(&self.bytes)
    }
}

#[inline]
pub(crate) fn sge(from: &ibv_sge) -> Sge {
    Sge { addr: from.addr, length: from.length, lkey: LKey::new(from.lkey) }
}

/// The entries of a list.
///
/// # Safety
/// `list` points to `count` entries, if `count` is positive.
#[inline]
unsafe fn entries<'a>(list: *const ibv_sge, count: c_int) -> Post<&'a [ibv_sge]> {
    match usize::try_from(count) {
        Ok(0) => Ok(&[]),
        Ok(n) if n <= limits::MAX_SGE as usize && !list.is_null() => {
            // SAFETY: by contract, and not null.
            Ok(unsafe { core::slice::from_raw_parts(list, n) })
        }
        _ => Err(PostError::TooManySges),
    }
}

/// A receive request.
///
/// # Safety
/// `wr` is as `ibv_post_recv` wants it.
#[inline]
pub(crate) unsafe fn recv_request<'a>(
    wr: &ibv_recv_wr,
    scratch: &'a mut Scratch,
) -> Post<RecvRequest<'a>> {
    // SAFETY: by contract.
    let list = unsafe { entries(wr.sg_list, wr.num_sge) }?;
    Ok(RecvRequest { wr_id: wr.wr_id, sges: scratch.sges(list) })
}

/// A send request.
///
/// # Safety
/// `wr` is as `ibv_post_send` wants it: lists, handles and inline data are valid.
#[inline]
pub(crate) unsafe fn send_request<'a>(
    qp_type: QpType,
    wr: &ibv_send_wr,
    scratch: &'a mut Scratch,
) -> Post<SendRequest<'a>> {
    // SAFETY: by contract.
    let (op, list) = unsafe { (send_op(wr)?, entries(wr.sg_list, wr.num_sge)?) };
    let flags = send_flags(wr.send_flags)?;
    let data = if wr.send_flags & SEND_INLINE != 0 {
        match list {
            // SAFETY: by contract the bytes are readable, and there are some.
            [one] if one.length > 0 => SendData::Inline(unsafe {
                core::slice::from_raw_parts(one.addr as *const u8, one.length as usize)
            }),
            // SAFETY: by contract.
            _ => SendData::Inline(unsafe { scratch.inline(list) }?),
        }
    } else {
        SendData::Sges(scratch.sges(list))
    };
    let datagram = match qp_type {
        QpType::Ud | QpType::Gsi if !matches!(op, SendOp::LocalInvalidate(_)) => {
            let ud = wr.ud();
            // SAFETY: by contract.
            Some(unsafe { datagram(ud.ah, ud.remote_qpn, ud.remote_qkey) }?)
        }
        _ => None,
    };
    Ok(SendRequest { wr_id: wr.wr_id, op, flags, data, datagram })
}

/// The destination that an address handle and two numbers make.
///
/// # Safety
/// `ah` is null or a live address handle.
#[inline]
pub(crate) unsafe fn datagram(ah: *mut ibv_ah, qpn: u32, qkey: u32) -> Post<Datagram> {
    if ah.is_null() {
        return Err(PostError::Destination);
    }
    // SAFETY: by contract.
    let handle = unsafe { trust::<AhHandle>(ah) };
    Ok(handle.ah.get().to(Qpn::new(qpn), QKey::new(qkey)))
}

/// The flags of a request, `INLINE` aside.
#[inline]
pub(crate) fn send_flags(bits: u32) -> Post<SendFlags> {
    SendFlags::from_bits(bits & !SEND_INLINE).ok_or(PostError::Operation)
}

/// # Safety
/// The members that the opcode names are valid.
#[inline]
unsafe fn send_op(wr: &ibv_send_wr) -> Post<SendOp> {
    let imm = wr.imm_data.to_ne_bytes();
    let rdma = || {
        let rdma = wr.rdma();
        Remote { addr: rdma.remote_addr, rkey: RKey::new(rdma.rkey) }
    };
    Ok(match wr.opcode {
        wr::RDMA_WRITE => SendOp::Write(rdma()),
        wr::RDMA_WRITE_WITH_IMM => SendOp::WriteImm(rdma(), imm),
        wr::SEND => SendOp::Send,
        wr::SEND_WITH_IMM => SendOp::SendImm(imm),
        wr::SEND_WITH_INV => SendOp::SendInvalidate(RKey::new(wr.imm_data)),
        wr::RDMA_READ => SendOp::Read(rdma()),
        wr::ATOMIC_CMP_AND_SWP => {
            let a = wr.atomic();
            let remote = Remote { addr: a.remote_addr, rkey: RKey::new(a.rkey) };
            SendOp::CompareSwap { remote, compare: a.compare_add, swap: a.swap }
        }
        wr::ATOMIC_FETCH_AND_ADD => {
            let a = wr.atomic();
            let remote = Remote { addr: a.remote_addr, rkey: RKey::new(a.rkey) };
            SendOp::FetchAdd { remote, add: a.compare_add }
        }
        wr::LOCAL_INV => SendOp::LocalInvalidate(RKey::new(wr.imm_data)),
        wr::BIND_MW => {
            let bind = wr.bind_mw();
            // SAFETY: window and region are valid by contract.
            SendOp::BindWindow(unsafe { bind_window(bind.mw, bind.rkey, &bind.bind_info) }?)
        }
        _ => return Err(PostError::Operation),
    })
}

/// A request to bind a window.
///
/// # Safety
/// `mw` is null or a live window, `info.mr` is null or a live region.
pub(crate) unsafe fn bind_window(
    mw: *mut ibv_mw,
    rkey: u32,
    info: &ibv_mw_bind_info,
) -> Post<BindWindow> {
    if mw.is_null() || (info.mr.is_null() && info.length > 0) {
        return Err(PostError::Operation);
    }
    // SAFETY: by contract.
    let mw = unsafe { trust::<MwHandle>(mw) }.mw.get().id();
    let lkey = if info.mr.is_null() {
        LKey::new(0)
    } else {
        // SAFETY: by contract.
        unsafe { trust::<MrHandle>(info.mr) }.mr.get().lkey()
    };
    let access = access(info.mw_access_flags).map_err(|_| PostError::Operation)?;
    Ok(BindWindow { mw, rkey: RKey::new(rkey), lkey, addr: info.addr, length: info.length, access })
}

/// Rights; those in the optional range may be ignored, and are.
pub(crate) fn access(bits: u32) -> Done<Access> {
    Access::from_bits(bits & !ACCESS_OPTIONAL_RANGE)
        .ok_or_else(|| Fail::invalid(format!("access flags {bits:#x} contain unknown bits")))
}

/// A completion.
#[inline]
pub(crate) fn wc(from: &Completion) -> ibv_wc {
    let (imm_data, wc_flags) = imm_and_flags(from);
    ibv_wc {
        wr_id: from.wr_id,
        status: from.status as u32,
        opcode: from.opcode as u32,
        vendor_err: from.vendor_err,
        byte_len: from.byte_len,
        imm_data,
        qp_num: from.qp.get(),
        src_qp: from.src_qp.get(),
        wc_flags,
        pkey_index: 0,
        slid: 0,
        sl: service_level(from),
        dlid_path_bits: 0,
    }
}

/// What adapters put into the service level of a datagram received over Ethernet, and programs
/// (UCX) look at: bit 3 for UDP, below it the kind of the header in the 40 bytes before the data.
#[inline]
pub(crate) fn service_level(from: &Completion) -> u8 {
    const UDP: u8 = 1 << 3;
    match (from.grh, from.network) {
        (true, NetworkHeader::Ipv6) => UDP | 1,
        (true, NetworkHeader::Ipv4) => UDP | 2,
        _ => 0,
    }
}

/// The immediate data or key of a completion, and its flags.
#[inline]
pub(crate) fn imm_and_flags(from: &Completion) -> (u32, u32) {
    let (imm, flags) = match from.data {
        WcData::None => (0, 0),
        WcData::Imm(bytes) => (u32::from_ne_bytes(bytes), wc_flag::WITH_IMM),
        WcData::Invalidated(rkey) => (rkey.get(), wc_flag::WITH_INV),
    };
    (imm, flags | if from.grh { wc_flag::GRH } else { 0 })
}

/// An address vector.
pub(crate) fn address_vector(from: &ibv_ah_attr) -> AddressVector {
    AddressVector {
        is_global: from.is_global != 0,
        dgid: Gid(from.grh.dgid.raw),
        sgid_index: from.grh.sgid_index,
        traffic_class: from.grh.traffic_class,
        hop_limit: from.grh.hop_limit,
        flow_label: from.grh.flow_label & 0xF_FFFF,
        sl: from.sl,
    }
}

/// An address vector as C programs see it.
pub(crate) fn ah_attr(from: &AddressVector) -> ibv_ah_attr {
    ibv_ah_attr {
        grh: ibv_global_route {
            dgid: ibv_gid { raw: from.dgid.0 },
            flow_label: from.flow_label,
            sgid_index: from.sgid_index,
            hop_limit: from.hop_limit,
            traffic_class: from.traffic_class,
        },
        dlid: 0,
        sl: from.sl,
        src_path_bits: 0,
        static_rate: 0,
        is_global: u8::from(from.is_global),
        port_num: 1,
    }
}

pub(crate) fn qp_type(value: u32) -> Done<QpType> {
    match value {
        QPT_RC => Ok(QpType::Rc),
        QPT_UC => Ok(QpType::Uc),
        QPT_UD => Ok(QpType::Ud),
        QPT_XRC_SEND => Ok(QpType::XrcSend),
        QPT_XRC_RECV => Ok(QpType::XrcRecv),
        other => Err(Fail::unsupported(format!(
            "queue pair type {other}: RC (2), UC (3), UD (4) and XRC (9, 10) are offered"
        ))),
    }
}

pub(crate) fn qp_type_value(qp_type: QpType) -> u32 {
    match qp_type {
        QpType::Rc => QPT_RC,
        QpType::Uc => QPT_UC,
        QpType::Ud | QpType::Gsi => QPT_UD,
        QpType::XrcSend => QPT_XRC_SEND,
        QpType::XrcRecv => QPT_XRC_RECV,
    }
}

pub(crate) fn qp_cap(from: &ibv_qp_cap) -> QpCap {
    QpCap {
        max_send_wr: from.max_send_wr,
        max_recv_wr: from.max_recv_wr,
        max_send_sge: from.max_send_sge,
        max_recv_sge: from.max_recv_sge,
        max_inline_data: from.max_inline_data,
    }
}

pub(crate) fn qp_cap_value(from: &QpCap) -> ibv_qp_cap {
    ibv_qp_cap {
        max_send_wr: from.max_send_wr,
        max_recv_wr: from.max_recv_wr,
        max_send_sge: from.max_send_sge,
        max_recv_sge: from.max_recv_sge,
        max_inline_data: from.max_inline_data,
    }
}

fn qp_state(value: u32) -> Done<QpState> {
    Ok(match value {
        0 => QpState::Reset,
        1 => QpState::Init,
        2 => QpState::Rtr,
        3 => QpState::Rts,
        4 => QpState::Sqd,
        5 => QpState::Sqe,
        6 => QpState::Err,
        other => return Err(Fail::invalid(format!("queue pair state {other} does not exist"))),
    })
}

/// Attributes to be set. Those that the mask leaves out are not looked at.
pub(crate) fn qp_attr(from: &ibv_qp_attr, mask: c_int) -> Done<(QpAttr, AttrMask)> {
    let mask = AttrMask::from_bits(mask as u32)
        .ok_or_else(|| Fail::invalid(format!("attribute mask {mask:#x} contains unknown bits")))?;
    let has = |bit| mask.contains(bit);
    let state = if has(AttrMask::STATE) { qp_state(from.qp_state)? } else { QpState::Reset };
    let cur_state =
        if has(AttrMask::CUR_STATE) { qp_state(from.cur_qp_state)? } else { QpState::Reset };
    let path_mtu = if has(AttrMask::PATH_MTU) {
        u8::try_from(from.path_mtu).ok().and_then(Mtu::from_code).ok_or_else(|| {
            Fail::invalid(format!("path MTU {} is not one of 1 (256) to 5 (4096)", from.path_mtu))
        })?
    } else {
        Mtu::B256
    };
    let access =
        if has(AttrMask::ACCESS_FLAGS) { access(from.qp_access_flags)? } else { Access::empty() };
    let attr = QpAttr {
        state,
        cur_state,
        en_sqd_async_notify: from.en_sqd_async_notify != 0,
        access,
        pkey_index: from.pkey_index,
        port: from.port_num,
        qkey: QKey::new(from.qkey),
        av: address_vector(&from.ah_attr),
        path_mtu,
        dest_qp: Qpn::new(from.dest_qp_num),
        rq_psn: Psn::new(from.rq_psn),
        sq_psn: Psn::new(from.sq_psn),
        timeout: from.timeout,
        retry_cnt: from.retry_cnt,
        rnr_retry: from.rnr_retry,
        min_rnr_timer: from.min_rnr_timer,
        max_rd_atomic: from.max_rd_atomic,
        max_dest_rd_atomic: from.max_dest_rd_atomic,
    };
    Ok((attr, mask))
}

/// Attributes as C programs see them.
pub(crate) fn qp_attr_value(from: &QpAttr, cap: &QpCap) -> ibv_qp_attr {
    // SAFETY: plain integers and arrays of them; all zero is a value.
    let mut to: ibv_qp_attr = unsafe { core::mem::zeroed() };
    to.qp_state = from.state as u32;
    to.cur_qp_state = from.state as u32;
    to.path_mtu = u32::from(from.path_mtu.code());
    to.qkey = from.qkey.get();
    to.rq_psn = from.rq_psn.get();
    to.sq_psn = from.sq_psn.get();
    to.dest_qp_num = from.dest_qp.get();
    to.qp_access_flags = from.access.bits();
    to.cap = qp_cap_value(cap);
    to.ah_attr = ah_attr(&from.av);
    to.pkey_index = from.pkey_index;
    to.en_sqd_async_notify = u8::from(from.en_sqd_async_notify);
    to.max_rd_atomic = from.max_rd_atomic;
    to.max_dest_rd_atomic = from.max_dest_rd_atomic;
    to.min_rnr_timer = from.min_rnr_timer;
    to.port_num = from.port;
    to.timeout = from.timeout;
    to.retry_cnt = from.retry_cnt;
    to.rnr_retry = from.rnr_retry;
    to
}
