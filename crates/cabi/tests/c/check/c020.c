/* Handles are used after their objects' end: destroyed again, posted to, polled, named. */
#include "check.h"

static void commit(void)
{
	connect_world();
	struct ibv_sge sge = at(0, 8);
	struct ibv_recv_wr wr = { .wr_id = 1, .sg_list = &sge, .num_sge = 1 }, *bad;
	uint32_t lkey = mr->lkey, number = a->qp_num, queue = cq->handle;
	close_world();
	expect("C020", "ibv_dereg_mr", -1, "MR lkey %#x", lkey);
	FAILS(ibv_dereg_mr(mr), EINVAL);
	expect("C020", "ibv_post_recv", -1, "QP %u", number);
	FAILS(ibv_post_recv(a, &wr, &bad), EINVAL);
	expect("C020", "ibv_poll_cq", -1, "CQ %u", queue);
	struct ibv_wc wc;
	CHECK(ibv_poll_cq(cq, 1, &wc) == -1);
	expect("C020", "ibv_destroy_qp", -1, "QP %u", number);
	FAILS(ibv_destroy_qp(a), EINVAL);
	expect("C020", "ibv_alloc_pd", -1, "device context");
	NOTHING(ibv_alloc_pd(context), EINVAL);
}

static void miss(void)
{
	/* New objects, perhaps at the old ones' addresses. */
	for (int i = 0; i < 20; i++) {
		connect_world();
		close_world();
	}
	/* What never was an object is no finding. */
	char foreign[256] = { 0 };
	FAILS(ibv_dereg_mr((struct ibv_mr *)foreign), EINVAL);
}
