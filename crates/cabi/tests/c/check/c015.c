/* A move that lacks an attribute, and one that has one too many. */
#include "check.h"

#define INIT (IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS)

static void commit(void)
{
	struct ibv_qp_attr attr = { .qp_state = IBV_QPS_INIT, .port_num = 1 };
	open_world();
	expect_a("C015", "ibv_modify_qp", -1);
	FAILS(ibv_modify_qp(a, &attr, INIT & ~IBV_QP_PORT), EINVAL);
	close_world();
	open_world();
	expect_a("C015", "ibv_modify_qp", -1);
	FAILS(ibv_modify_qp(a, &attr, INIT | IBV_QP_QKEY), EINVAL);
	close_world();
}

static void miss(void)
{
	struct ibv_qp_attr attr = { .qp_state = IBV_QPS_INIT, .port_num = 1 };
	open_world();
	CHECK(ibv_modify_qp(a, &attr, INIT) == 0);
	CHECK(ibv_modify_qp(a, &attr, IBV_QP_STATE | IBV_QP_PORT) == 0);
	close_world();
}
