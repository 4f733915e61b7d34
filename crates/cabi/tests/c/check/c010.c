/* A receive into a region that the device may not write, a send from another domain. */
#include "check.h"

static void commit(void)
{
	connect_world();
	struct ibv_mr *other = ibv_reg_mr(pd, memory, 4096, IBV_ACCESS_REMOTE_READ);
	CHECK(other);
	expect_a("C010", "ibv_post_recv", 1);
	post_recv(a, 1, memory, 64, other->lkey);
	CHECK(ibv_destroy_qp(a) == 0 && ibv_destroy_qp(b) == 0);
	a = make_qp(pd, cq, NULL, IBV_QPT_RC), b = make_qp(pd, cq, NULL, IBV_QPT_RC);
	CHECK(ibv_dereg_mr(other) == 0);
	close_world();

	connect_world();
	struct ibv_pd *another = ibv_alloc_pd(context);
	CHECK(another);
	CHECK(other = ibv_reg_mr(another, memory, 4096, ALL_ACCESS));
	struct ibv_sge sge = { (uintptr_t)memory, 8, other->lkey };
	struct ibv_send_wr wr = send_wr(2, IBV_WR_RDMA_WRITE, &sge);
	wr.wr.rdma.remote_addr = (uintptr_t)memory;
	wr.wr.rdma.rkey = mr->rkey;
	expect_a("C010", "ibv_post_send", 2);
	post(a, &wr);
	CHECK(poll_one(cq).status == IBV_WC_LOC_PROT_ERR);
	CHECK(ibv_dereg_mr(other) == 0 && ibv_dealloc_pd(another) == 0);
	close_world();
}

static void miss(void)
{
	connect_world();
	/* What is only sent needs no right. */
	struct ibv_mr *other = ibv_reg_mr(pd, memory, 4096, 0);
	CHECK(other);
	struct ibv_sge sge = { (uintptr_t)memory, 8, other->lkey };
	struct ibv_send_wr wr = send_wr(2, IBV_WR_RDMA_WRITE, &sge);
	wr.wr.rdma.remote_addr = (uintptr_t)memory + 4096;
	wr.wr.rdma.rkey = mr->rkey;
	post(a, &wr);
	poll_good(cq, 2);
	CHECK(ibv_dereg_mr(other) == 0);
	close_world();
}
