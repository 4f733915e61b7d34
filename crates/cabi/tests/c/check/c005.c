/* A GID index that names nothing, a destination of no or of another family. */
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

static void wrong(void)
{
	expect_a("C005", "ibv_modify_qp", -1);
	FAILS(ibv_modify_qp(a, &attr, RTR), EINVAL);
	close_world();
}

static void commit(void)
{
	to_init();
	attr.ah_attr.grh.sgid_index = 200;
	wrong();
	to_init();
	memset(&attr.ah_attr.grh.dgid, 0, 16);
	wrong();
	to_init();
	attr.ah_attr.grh.dgid.raw[0] = 0x20;
	wrong();
}

static void miss(void)
{
	to_init();
	CHECK(ibv_modify_qp(a, &attr, RTR) == 0);
	close_world();
}
