/* Keys that name nothing: one that never did, and one whose region has gone. */
#include "check.h"

static void commit(void)
{
	connect_world();
	struct ibv_mr *other = ibv_reg_mr(pd, memory, 4096, ALL_ACCESS);
	CHECK(other);
	uint32_t stale = other->lkey;
	CHECK(ibv_dereg_mr(other) == 0);
	expect_a("C009", "ibv_post_recv", 1);
	post_recv(a, 1, memory, 64, stale);
	close_world();

	connect_world();
	struct ibv_sge sge = at(0, 8);
	sge.lkey ^= 0x5a5a5a5a;
	struct ibv_send_wr wr = send_wr(2, IBV_WR_RDMA_WRITE, &sge);
	wr.wr.rdma.remote_addr = (uintptr_t)memory;
	wr.wr.rdma.rkey = mr->rkey;
	expect_a("C009", "ibv_post_send", 2);
	post(a, &wr);
	CHECK(poll_one(cq).status == IBV_WC_LOC_PROT_ERR);
	close_world();
}

static void miss(void)
{
	connect_world();
	/* The key of inline data is not looked at. */
	struct ibv_sge sge = at(0, 8);
	sge.lkey ^= 0x5a5a5a5a;
	struct ibv_send_wr wr = send_wr(2, IBV_WR_RDMA_WRITE, &sge);
	wr.send_flags |= IBV_SEND_INLINE;
	wr.wr.rdma.remote_addr = (uintptr_t)memory + 4096;
	wr.wr.rdma.rkey = mr->rkey;
	post(a, &wr);
	poll_good(cq, 2);
	receive(a, 3, 0, 64);
	close_world();
}
