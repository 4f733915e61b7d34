/* The buffer of a WRITE changes between post and poll. */
#include "check.h"

#define LARGE 300000

static void write_and_touch(uint32_t length, size_t touched, int signal_second)
{
	struct ibv_sge sge = at(0, length), other = at(400000, 8);
	struct ibv_send_wr wr = send_wr(1, IBV_WR_RDMA_WRITE, &sge);
	wr.wr.rdma.remote_addr = (uintptr_t)memory + 500000;
	wr.wr.rdma.rkey = mr->rkey;
	if (signal_second)
		wr.send_flags = 0;
	post(a, &wr);
	if (signal_second) {
		/* The completion of the second implies that of the first. */
		struct ibv_send_wr second = send_wr(2, IBV_WR_RDMA_WRITE, &other);
		second.wr.rdma = wr.wr.rdma;
		post(a, &second);
	}
	memory[touched]++;
	poll_good(cq, signal_second ? 2 : 1);
}

static void commit(void)
{
	connect_world();
	expect_a("C001", "ibv_poll_cq", 1);
	write_and_touch(8, 7, 0);
	close_world();
	connect_world();
	expect_a("C001", "ibv_poll_cq", 1);
	write_and_touch(LARGE, LARGE - 1, 0);
	close_world();
	connect_world();
	expect_a("C001", "ibv_poll_cq", 1);
	write_and_touch(5000, 4096, 1);
	close_world();
}

static void miss(void)
{
	connect_world();
	/* Beside the buffer, and what was sent inline. */
	write_and_touch(8, 8, 0);
	write_and_touch(LARGE, LARGE, 0);
	write_and_touch(5000, 5000, 1);
	struct ibv_sge sge = at(0, 64);
	struct ibv_send_wr wr = send_wr(3, IBV_WR_RDMA_WRITE, &sge);
	wr.send_flags |= IBV_SEND_INLINE;
	wr.wr.rdma.remote_addr = (uintptr_t)memory + 500000;
	wr.wr.rdma.rkey = mr->rkey;
	post(a, &wr);
	memory[0]++;
	poll_good(cq, 3);
	/* A READ changes its buffer: that is what it is for. */
	struct ibv_send_wr fetch = send_wr(4, IBV_WR_RDMA_READ, &sge);
	fetch.wr.rdma = wr.wr.rdma;
	memset(memory + 500000, 9, 64);
	post(a, &fetch);
	poll_good(cq, 4);
	CHECK(memory[0] == 9);
	memory[0]++;
	close_world();
}
