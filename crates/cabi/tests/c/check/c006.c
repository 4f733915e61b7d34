/* A path MTU above the port's. */
#include "check.h"

#define INIT (IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS)
#define RTR                                                                                  \
	(IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |      \
	 IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER)

static struct ibv_qp_attr attr;

static void to_init(void)
{
	open_world();
	struct ibv_qp_attr init = { .qp_state = IBV_QPS_INIT, .port_num = 1 };
	CHECK(ibv_modify_qp(a, &init, INIT) == 0);
	attr = rtr_attr(context, b->qp_num);
}

static enum ibv_mtu active(void)
{
	struct ibv_port_attr port;
	CHECK(ibv_query_port(context, 1, &port) == 0);
	return port.active_mtu;
}

static void commit(void)
{
	to_init();
	attr.path_mtu = active() + 1;
	expect_a("C006", "ibv_modify_qp", -1);
	FAILS(ibv_modify_qp(a, &attr, RTR), EINVAL);
	close_world();
}

static void miss(void)
{
	to_init();
	attr.path_mtu = active();
	CHECK(ibv_modify_qp(a, &attr, RTR) == 0);
	close_world();
}
