/* Strict: the result of an atomic at an odd place. */
#include "check.h"

static void fetch(size_t offset)
{
	struct ibv_sge sge = at(offset, 8);
	struct ibv_send_wr wr = send_wr(1, IBV_WR_ATOMIC_FETCH_AND_ADD, &sge);
	wr.wr.atomic.remote_addr = (uintptr_t)memory + 4096;
	wr.wr.atomic.rkey = mr->rkey;
	post(a, &wr);
	poll_good(cq, 1);
}

static void commit(void)
{
	connect_world();
	expect_a("C102", "ibv_post_send", 1);
	fetch(4);
	close_world();
}

static void miss(void)
{
	connect_world();
	fetch(8);
	close_world();
}
