/* Receives whose buffers overlap, with each other and with a READ's. */
#include "check.h"

static void commit(void)
{
	connect_world();
	receive(a, 1, 0, 64);
	expect_a("C012", "ibv_post_recv", 2);
	receive(a, 2, 63, 64);
	close_world();

	connect_world();
	struct ibv_sge sge = at(1000, 100);
	struct ibv_send_wr wr = send_wr(3, IBV_WR_RDMA_READ, &sge);
	wr.wr.rdma.remote_addr = (uintptr_t)memory + 8192;
	wr.wr.rdma.rkey = mr->rkey;
	post(a, &wr);
	expect_a("C012", "ibv_post_recv", 4);
	receive(a, 4, 900, 101);
	poll_good(cq, 3);
	close_world();

	connect_world();
	struct ibv_sge list[2] = { at(0, 64), at(32, 64) };
	struct ibv_recv_wr within = { .wr_id = 5, .sg_list = list, .num_sge = 2 }, *bad;
	expect_a("C012", "ibv_post_recv", 5);
	CHECK(ibv_post_recv(a, &within, &bad) == 0);
	close_world();
}

static void miss(void)
{
	connect_world();
	/* Side by side; the very same one, as benchmarks do; and one that has been polled. */
	receive(b, 1, 0, 64);
	receive(b, 2, 64, 64);
	receive(b, 3, 64, 64);
	struct ibv_sge sge = at(4096, 8);
	struct ibv_send_wr wr = send_wr(4, IBV_WR_SEND, &sge);
	post(a, &wr);
	poll_one(cq);
	poll_one(cq);
	receive(b, 5, 1, 63);
	close_world();
}
