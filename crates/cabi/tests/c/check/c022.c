/* The peer has no receive, and the sender does not wait for one. */
#include "check.h"

static void commit(void)
{
	connect_world();
	struct ibv_qp_attr attr = { .qp_state = IBV_QPS_RESET };
	CHECK(ibv_modify_qp(a, &attr, IBV_QP_STATE) == 0);
	attr.qp_state = IBV_QPS_INIT, attr.port_num = 1;
	CHECK(ibv_modify_qp(a, &attr,
			    IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT |
				    IBV_QP_ACCESS_FLAGS) == 0);
	attr = rtr_attr(context, b->qp_num);
	CHECK(ibv_modify_qp(a, &attr,
			    IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN |
				    IBV_QP_RQ_PSN | IBV_QP_MAX_DEST_RD_ATOMIC |
				    IBV_QP_MIN_RNR_TIMER) == 0);
	attr.qp_state = IBV_QPS_RTS, attr.sq_psn = 77, attr.timeout = 14, attr.retry_cnt = 7;
	attr.rnr_retry = 1, attr.max_rd_atomic = 1;
	CHECK(ibv_modify_qp(a, &attr,
			    IBV_QP_STATE | IBV_QP_SQ_PSN | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT |
				    IBV_QP_RNR_RETRY | IBV_QP_MAX_QP_RD_ATOMIC) == 0);
	struct ibv_sge sge = at(0, 8);
	struct ibv_send_wr wr = send_wr(1, IBV_WR_SEND, &sge);
	expect_a("C022", "ibv_poll_cq", 1);
	post(a, &wr);
	CHECK(poll_one(cq).status == IBV_WC_RNR_RETRY_EXC_ERR);
	close_world();
}

static void miss(void)
{
	connect_world();
	/* Late, but within what the sender grants. */
	struct ibv_sge sge = at(0, 8);
	struct ibv_send_wr wr = send_wr(1, IBV_WR_SEND, &sge);
	post(a, &wr);
	usleep(20000);
	receive(b, 2, 4096, 8);
	poll_one(cq);
	poll_one(cq);
	close_world();
}
