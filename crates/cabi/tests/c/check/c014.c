/* From RESET to RTS in one step. */
#include "check.h"

static void commit(void)
{
	open_world();
	struct ibv_qp_attr attr = { .qp_state = IBV_QPS_RTS, .sq_psn = 1 };
	expect_a("C014", "ibv_modify_qp", -1);
	FAILS(ibv_modify_qp(a, &attr, IBV_QP_STATE | IBV_QP_SQ_PSN), EINVAL);
	close_world();
}

static void miss(void)
{
	connect_world();
	/* To ERR and RESET from anywhere, and the way once more. */
	struct ibv_qp_attr attr = { .qp_state = IBV_QPS_ERR };
	CHECK(ibv_modify_qp(a, &attr, IBV_QP_STATE) == 0);
	attr.qp_state = IBV_QPS_RESET;
	CHECK(ibv_modify_qp(a, &attr, IBV_QP_STATE) == 0);
	connect_to(a, b->qp_num);
	close_world();
}
