/* A piece that begins in its region and ends behind it. */
#include "check.h"

static void commit(void)
{
	connect_world();
	struct ibv_sge sge = at(ROOM - 7, 8);
	struct ibv_recv_wr wr = { .wr_id = 1, .sg_list = &sge, .num_sge = 1 }, *bad;
	expect_a("C008", "ibv_post_recv", 1);
	CHECK(ibv_post_recv(a, &wr, &bad) == 0);
	close_world();

	connect_world();
	sge = at(ROOM - 7, 8);
	struct ibv_send_wr send = send_wr(2, IBV_WR_RDMA_WRITE, &sge);
	send.wr.rdma.remote_addr = (uintptr_t)memory;
	send.wr.rdma.rkey = mr->rkey;
	expect_a("C008", "ibv_post_send", 2);
	post(a, &send);
	CHECK(poll_one(cq).status == IBV_WC_LOC_PROT_ERR);
	close_world();
}

static void miss(void)
{
	connect_world();
	struct ibv_sge list[2] = { at(ROOM - 8, 8), at(0, 8) };
	struct ibv_recv_wr wr = { .wr_id = 1, .sg_list = list, .num_sge = 2 }, *bad;
	CHECK(ibv_post_recv(a, &wr, &bad) == 0);
	/* A piece of nothing may lie anywhere. */
	struct ibv_sge nothing = { 1, 0, 77 };
	struct ibv_recv_wr empty = { .wr_id = 2, .sg_list = &nothing, .num_sge = 1 };
	CHECK(ibv_post_recv(a, &empty, &bad) == 0);
	close_world();
}
