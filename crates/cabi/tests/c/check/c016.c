/* A receive before INIT. */
#include "check.h"

static void commit(void)
{
	open_world();
	struct ibv_sge sge = at(0, 8);
	struct ibv_recv_wr wr = { .wr_id = 1, .sg_list = &sge, .num_sge = 1 }, *bad;
	expect_a("C016", "ibv_post_recv", 1);
	FAILS(ibv_post_recv(a, &wr, &bad), EINVAL);
	close_world();
}

static void miss(void)
{
	open_world();
	struct ibv_qp_attr attr = { .qp_state = IBV_QPS_INIT, .port_num = 1 };
	CHECK(ibv_modify_qp(a, &attr,
			    IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT |
				    IBV_QP_ACCESS_FLAGS) == 0);
	receive(a, 1, 0, 8);
	close_world();
}
