/* Atomics on what is no aligned word. */
#include "check.h"

static struct ibv_sge sge;

static struct ibv_send_wr add(uint64_t wr_id, size_t offset, uint32_t length)
{
	sge = at(0, length);
	struct ibv_send_wr wr = send_wr(wr_id, IBV_WR_ATOMIC_FETCH_AND_ADD, &sge);
	wr.wr.atomic.remote_addr = (uintptr_t)memory + 4096 + offset;
	wr.wr.atomic.rkey = mr->rkey;
	wr.wr.atomic.compare_add = 1;
	return wr;
}

static void commit(void)
{
	connect_world();
	struct ibv_send_wr wr = add(1, 4, 8);
	expect_a("C011", "ibv_post_send", 1);
	refused(a, &wr, EINVAL);
	wr = add(2, 8, 4);
	expect_a("C011", "ibv_post_send", 2);
	refused(a, &wr, EINVAL);
	close_world();
}

static void miss(void)
{
	connect_world();
	struct ibv_send_wr wr = add(1, 8, 8);
	post(a, &wr);
	poll_good(cq, 1);
	/* The result may lie anywhere. */
	wr = add(2, 16, 8);
	sge.addr += 4;
	post(a, &wr);
	poll_good(cq, 2);
	close_world();
}
