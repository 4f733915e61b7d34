//! Reception of datagrams: the 40-byte GRH area, no acknowledgement, no retry (transport rules, "UC
//! and UD").

use wire::{Encapsulation, Instant, Packet, Path};

use crate::counters::pair::{count, count_traffic};
use crate::memory::{HostMemory, Payload};
use crate::qp::acks::scatter;
use crate::qp::facts::{Facts, Shared};
use crate::qp::refusal::Broken;
use crate::qp::responder::Responder;
use crate::srq::RecvQueue;
use crate::work::{Completion, NetworkHeader, WcData, WcOpcode, WcStatus};

/// Bytes before a datagram in its receive buffer.
pub(crate) const GRH_AREA: usize = 40;

/// Bytes behind the IP header or GRH, through the ICRC.
fn ip_payload(packet: &Packet<Payload<'_>>) -> u16 {
    let udp = match packet.path.encapsulation {
        Encapsulation::RoceV2 => 8,
        Encapsulation::RoceV1 | Encapsulation::Infiniband => 0,
    };
    let headers = 12 + packet.ext.header_set().byte_len();
    (udp + headers + packet.payload.len().next_multiple_of(4) + 4) as u16
}

/// Takes a datagram into a receive request, or counts why not. A receive request whose memory
/// cannot be used ends the queue pair's service.
pub(crate) fn receive<M: HostMemory>(
    responder: &mut Responder,
    q: &Facts,
    recv: &mut RecvQueue,
    sh: &mut Shared<M>,
    now: Instant,
    packet: &Packet<Payload<'_>>,
) -> Result<(), Broken> {
    let Some(deth) = packet.ext.deth else {
        count!(sh, q.index, rx_wrong_opcode);
        return Ok(());
    };
    if deth.qkey != q.qkey {
        count!(sh, q.index, rx_wrong_qkey);
        return Ok(());
    }
    sh.gone.heard(packet.path.source, deth.source_qp);
    let length = packet.payload.len();
    let room = match q.srq {
        None => recv.front_room(),
        Some(id) => sh.srqs.get(id.0).and_then(|srq| srq.queue.front_room()),
    };
    if room.is_some_and(|room| (GRH_AREA + length) as u64 > room) {
        // The request stays for the next one, in a shared queue for whoever is next.
        count!(sh, q.index, rx_datagram_too_long);
        return Ok(());
    }
    if responder.take_receive(q, recv, sh).is_err() {
        count!(sh, q.index, out_of_buffer);
        return Ok(());
    }
    let grh = wire::packet::grh_area(&packet.path, ip_payload(packet));
    let sges = &responder.taken.sges;
    let placed = scatter(q, sh, sges, 0, Payload::Bytes(&grh))
        .and_then(|()| scatter(q, sh, sges, GRH_AREA as u64, packet.payload));
    if placed.is_err() {
        count!(sh, q.index, resp_local_protection_error);
        responder.fail_receive(q, sh, now, WcStatus::LocProtErr);
        return Err(Broken { event: None });
    }
    responder.holds_receive = false;
    let wr_id = responder.taken.wr_id;
    sh.counters.rx_accepted += 1;
    count_traffic!(sh, q.index, rx_send_requests);
    sh.counters.rx_bytes += length as u64;
    let entry = Completion {
        wr_id,
        status: WcStatus::Success,
        opcode: WcOpcode::Recv,
        byte_len: (GRH_AREA + length) as u32,
        data: packet.ext.imm.map_or(WcData::None, WcData::Imm),
        qp: q.qpn,
        src_qp: deth.source_qp,
        grh: true,
        network: network_header(&packet.path),
        solicited: packet.bth.solicited,
        sl: packet.path.priority,
        ..Completion::default()
    };
    sh.complete(q.recv_cq, now, entry);
    Ok(())
}

fn network_header(path: &Path) -> NetworkHeader {
    match path.encapsulation {
        Encapsulation::RoceV2 if path.destination.is_ipv4() => NetworkHeader::Ipv4,
        Encapsulation::RoceV2 => NetworkHeader::Ipv6,
        Encapsulation::RoceV1 | Encapsulation::Infiniband => NetworkHeader::Grh,
    }
}
