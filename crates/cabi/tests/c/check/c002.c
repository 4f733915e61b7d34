/* More completions are outstanding than the queue holds. */
#include "check.h"

static void several(int count)
{
	open_world();
	CHECK(ibv_destroy_qp(a) == 0 && ibv_destroy_qp(b) == 0 && ibv_destroy_cq(cq) == 0);
	CHECK(cq = ibv_create_cq(context, 8, NULL, NULL, 0));
	a = make_qp(pd, cq, NULL, IBV_QPT_RC), b = make_qp(pd, cq, NULL, IBV_QPT_RC);
	connect_pair(a, b);
	if (count > cq->cqe)
		expect("C002", "ibv_post_send", 8, "CQ %u", cq->handle);
	struct ibv_sge sge = at(0, 8);
	for (int i = 0; i < count; i++) {
		struct ibv_send_wr wr = send_wr(i, IBV_WR_RDMA_WRITE, &sge);
		wr.wr.rdma.remote_addr = (uintptr_t)memory + 4096;
		wr.wr.rdma.rkey = mr->rkey;
		post(a, &wr);
	}
	for (int i = 0; i < count && count <= cq->cqe; i++)
		poll_good(cq, i);
	close_world();
}

static void commit(void)
{
	several(9);
}

static void miss(void)
{
	several(8);
}
