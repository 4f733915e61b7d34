/* An address without GRH, for a queue pair and for an address handle. */
#include "check.h"

#define INIT (IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS)
#define RTR                                                                                  \
	(IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |      \
	 IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER)

static void address(int is_global)
{
	open_world();
	struct ibv_qp_attr attr = { .qp_state = IBV_QPS_INIT, .port_num = 1 };
	CHECK(ibv_modify_qp(a, &attr, INIT) == 0);
	attr = rtr_attr(context, b->qp_num);
	attr.ah_attr.is_global = is_global;
	if (is_global) {
		CHECK(ibv_modify_qp(a, &attr, RTR) == 0);
		struct ibv_ah *ah = ibv_create_ah(pd, &attr.ah_attr);
		CHECK(ah && ibv_destroy_ah(ah) == 0);
	} else {
		expect_a("C004", "ibv_modify_qp", -1);
		FAILS(ibv_modify_qp(a, &attr, RTR), EINVAL);
		expect("C004", "ibv_create_ah", -1, "PD %u", pd->handle);
		NOTHING(ibv_create_ah(pd, &attr.ah_attr), EINVAL);
	}
	close_world();
}

static void commit(void)
{
	address(0);
}

static void miss(void)
{
	address(1);
}
