/* Objects of each kind are left behind. */
#include "check.h"

static void commit(void)
{
	connect_world();
	struct ibv_comp_channel *channel = ibv_create_comp_channel(context);
	struct ibv_srq_init_attr init = { .attr = { .max_wr = 4, .max_sge = 1 } };
	struct ibv_srq *srq = ibv_create_srq(pd, &init);
	struct ibv_qp_attr attr = rtr_attr(context, 0);
	CHECK(channel && srq && ibv_create_ah(pd, &attr.ah_attr));
	expect("C018", "exit", -1, "device context");
	expect("C018", "exit", -1, "PD %u", pd->handle);
	expect("C018", "exit", -1, "CQ %u", cq->handle);
	expect("C018", "exit", -1, "MR lkey %#x", mr->lkey);
	expect("C018", "exit", -1, "QP %u", a->qp_num);
	expect("C018", "exit", -1, "QP %u", b->qp_num);
	expect("C018", "exit", -1, "completion channel fd %d", channel->fd);
	expect("C018", "exit", -1, "SRQ %u", srq->handle);
	expect("C018", "exit", -1, "AH");
}

static void at_end(void)
{
	close_world();
}

static void miss(void)
{
	/* A handler that runs at the very end destroys all. */
	CHECK(atexit(at_end) == 0);
	connect_world();
}
