/* A send in INIT. */
#include "check.h"

static void commit(void)
{
	open_world();
	struct ibv_qp_attr attr = { .qp_state = IBV_QPS_INIT, .port_num = 1 };
	CHECK(ibv_modify_qp(a, &attr,
			    IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT |
				    IBV_QP_ACCESS_FLAGS) == 0);
	struct ibv_sge sge = at(0, 8);
	struct ibv_send_wr wr = send_wr(1, IBV_WR_SEND, &sge);
	expect_a("C017", "ibv_post_send", 1);
	refused(a, &wr, EINVAL);
	close_world();
}

static void miss(void)
{
	connect_world();
	/* In ERR it is taken, and flushed. */
	struct ibv_qp_attr attr = { .qp_state = IBV_QPS_ERR };
	CHECK(ibv_modify_qp(a, &attr, IBV_QP_STATE) == 0);
	struct ibv_sge sge = at(0, 8);
	struct ibv_send_wr wr = send_wr(1, IBV_WR_SEND, &sge);
	post(a, &wr);
	CHECK(poll_one(cq).status == IBV_WC_WR_FLUSH_ERR);
	close_world();
}
