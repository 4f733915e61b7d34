/* Unreliable datagrams: address handles, the 40 bytes before a message, the answer to a sender. */
#include <arpa/inet.h>

#include "common.h"

enum { QKEY = 0x11111111, GRH = 40 };

static struct ibv_qp *ready(struct ibv_pd *pd, struct ibv_cq *cq)
{
	struct ibv_qp *qp = make_qp(pd, cq, NULL, IBV_QPT_UD);
	struct ibv_qp_attr attr;
	memset(&attr, 0, sizeof(attr));
	attr.qp_state = IBV_QPS_INIT;
	attr.port_num = 1;
	attr.qkey = QKEY;
	CHECK(ibv_modify_qp(qp, &attr,
			    IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_QKEY) == 0);
	attr.qp_state = IBV_QPS_RTR;
	CHECK(ibv_modify_qp(qp, &attr, IBV_QP_STATE) == 0);
	attr.qp_state = IBV_QPS_RTS;
	attr.sq_psn = 1;
	CHECK(ibv_modify_qp(qp, &attr, IBV_QP_STATE | IBV_QP_SQ_PSN) == 0);
	return qp;
}

int main(void)
{
	static char memory[4096];
	struct ibv_context *context = open_first();
	struct ibv_pd *pd = ibv_alloc_pd(context);
	struct ibv_cq *cq_a = ibv_create_cq(context, 16, NULL, NULL, 0);
	struct ibv_cq *cq_b = ibv_create_cq(context, 16, NULL, NULL, 0);
	struct ibv_mr *mr = ibv_reg_mr(pd, memory, sizeof(memory), ALL_ACCESS);
	CHECK(pd && cq_a && cq_b && mr);
	struct ibv_qp *a = ready(pd, cq_a), *b = ready(pd, cq_b);
	struct ibv_qp_attr attr = rtr_attr(context, 0);
	struct ibv_ah *ah = ibv_create_ah(pd, &attr.ah_attr), *back;
	CHECK(ah && ah->pd == pd);

	char *inbox = memory + 1024;
	post_recv(b, 1, inbox, 512, mr->lkey);
	strcpy(memory, "to whom it may concern");
	struct ibv_sge sge = { (uintptr_t)memory, 23, mr->lkey };
	struct ibv_send_wr wr = send_wr(2, IBV_WR_SEND_WITH_IMM, &sge), *bad;
	FAILS(ibv_post_send(a, &wr, &bad), EINVAL); /* Without destination. */
	wr.imm_data = htonl(17);
	wr.wr.ud.ah = ah;
	wr.wr.ud.remote_qpn = b->qp_num;
	wr.wr.ud.remote_qkey = QKEY;
	post(a, &wr);
	CHECK(poll_good(cq_a, 2).opcode == IBV_WC_SEND);
	struct ibv_wc wc = poll_good(cq_b, 1);
	CHECK(wc.opcode == IBV_WC_RECV && wc.byte_len == GRH + 23 && wc.src_qp == a->qp_num);
	CHECK(wc.wc_flags & IBV_WC_GRH && wc.wc_flags & IBV_WC_WITH_IMM);
	CHECK(ntohl(wc.imm_data) == 17 && strcmp(inbox + GRH, memory) == 0);

	/* UDP with an IPv4 header before it, in the way of adapters. */
	CHECK(wc.sl == 0xa && inbox[20] == 0x45);

	/* Answer the sender. */
	struct ibv_ah_attr sender;
	CHECK(ibv_init_ah_from_wc(context, 1, &wc, (struct ibv_grh *)inbox, &sender) == 0);
	CHECK(memcmp(&sender.grh.dgid, &attr.ah_attr.grh.dgid, 16) == 0 && sender.is_global);
	CHECK((back = ibv_create_ah_from_wc(pd, &wc, (struct ibv_grh *)inbox, 1)));
	post_recv(a, 3, inbox, 512, mr->lkey);
	wr = send_wr(4, IBV_WR_SEND, &sge);
	wr.wr.ud.ah = back;
	wr.wr.ud.remote_qpn = wc.src_qp;
	wr.wr.ud.remote_qkey = QKEY;
	post(b, &wr);
	poll_good(cq_b, 4);
	CHECK(poll_good(cq_a, 3).src_qp == b->qp_num);

	/* What datagrams do not have. */
	wr = send_wr(5, IBV_WR_RDMA_WRITE, &sge);
	wr.wr.ud.ah = ah;
	FAILS(ibv_post_send(a, &wr, &bad), EINVAL);
	wr.opcode = (enum ibv_wr_opcode)77;
	FAILS(ibv_post_send(a, &wr, &bad), EINVAL);
	FAILS(ibv_dealloc_pd(pd), EBUSY);

	CHECK(ibv_destroy_ah(ah) == 0 && ibv_destroy_ah(back) == 0);
	CHECK(ibv_destroy_qp(a) == 0 && ibv_destroy_qp(b) == 0);
	CHECK(ibv_dereg_mr(mr) == 0);
	CHECK(ibv_destroy_cq(cq_a) == 0 && ibv_destroy_cq(cq_b) == 0);
	CHECK(ibv_dealloc_pd(pd) == 0 && ibv_close_device(context) == 0);
	return 0;
}
