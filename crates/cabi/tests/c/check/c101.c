/* Strict: one buffer for two receives, a send from where a receive goes. */
#include "check.h"

static void commit(void)
{
	connect_world();
	receive(a, 1, 0, 64);
	expect_a("C101", "ibv_post_recv", 2);
	receive(a, 2, 0, 64);
	struct ibv_sge sge = at(32, 8);
	struct ibv_send_wr wr = send_wr(3, IBV_WR_RDMA_WRITE, &sge);
	wr.wr.rdma.remote_addr = (uintptr_t)memory + 4096;
	wr.wr.rdma.rkey = mr->rkey;
	expect_a("C101", "ibv_post_send", 3);
	post(a, &wr);
	poll_good(cq, 3);
	close_world();
}

static void miss(void)
{
	connect_world();
	receive(a, 1, 0, 64);
	receive(a, 2, 64, 64);
	/* Two sends from one buffer disturb nobody. */
	struct ibv_sge sge = at(128, 8);
	struct ibv_send_wr wr = send_wr(3, IBV_WR_RDMA_WRITE, &sge);
	wr.wr.rdma.remote_addr = (uintptr_t)memory + 4096;
	wr.wr.rdma.rkey = mr->rkey;
	post(a, &wr);
	post(a, &wr);
	poll_good(cq, 3);
	poll_good(cq, 3);
	close_world();
}
