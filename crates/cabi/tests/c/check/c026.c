/* A READ on an unreliable connection. */
#include "check.h"

static void commit(void)
{
	open_world();
	struct ibv_qp *c = make_qp(pd, cq, NULL, IBV_QPT_UC), *d = make_qp(pd, cq, NULL, IBV_QPT_UC);
	connect_pair(c, d);
	struct ibv_sge sge = at(0, 8);
	struct ibv_send_wr wr = send_wr(1, IBV_WR_RDMA_READ, &sge);
	wr.wr.rdma.remote_addr = (uintptr_t)memory + 4096;
	wr.wr.rdma.rkey = mr->rkey;
	expect("C026", "ibv_post_send", 1, "QP %u", c->qp_num);
	refused(c, &wr, EINVAL);
	CHECK(ibv_destroy_qp(c) == 0 && ibv_destroy_qp(d) == 0);
	close_world();
}

static void miss(void)
{
	open_world();
	struct ibv_qp *c = make_qp(pd, cq, NULL, IBV_QPT_UC), *d = make_qp(pd, cq, NULL, IBV_QPT_UC);
	connect_pair(c, d);
	struct ibv_sge sge = at(0, 8);
	struct ibv_send_wr wr = send_wr(1, IBV_WR_RDMA_WRITE, &sge);
	wr.wr.rdma.remote_addr = (uintptr_t)memory + 4096;
	wr.wr.rdma.rkey = mr->rkey;
	post(c, &wr);
	poll_good(cq, 1);
	CHECK(ibv_destroy_qp(c) == 0 && ibv_destroy_qp(d) == 0);
	close_world();
}
