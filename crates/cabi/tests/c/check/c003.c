/* Nothing but unsignaled requests, as many as the queue holds and one more. */
#include "check.h"

#define DEPTH 32

static void unsignaled(int count, int signaled)
{
	struct ibv_sge sge = at(0, 8);
	for (int i = 0; i < count; i++) {
		struct ibv_send_wr wr = send_wr(i, IBV_WR_RDMA_WRITE, &sge), *bad;
		wr.send_flags = i == signaled ? IBV_SEND_SIGNALED : 0;
		wr.wr.rdma.remote_addr = (uintptr_t)memory + 4096;
		wr.wr.rdma.rkey = mr->rkey;
		/* Whether the last one finds room depends on the peer, on some adapters not even on it. */
		int result = ibv_post_send(a, &wr, &bad);
		CHECK(result == 0 || (i == DEPTH && result == ENOMEM));
	}
	if (signaled >= 0)
		poll_good(cq, signaled);
}

static void commit(void)
{
	connect_world();
	expect_a("C003", "ibv_post_send", DEPTH);
	unsignaled(DEPTH + 1, -1);
	close_world();
}

static void miss(void)
{
	connect_world();
	unsignaled(DEPTH, DEPTH - 1);
	unsignaled(DEPTH, 0);
	/* As many as fit, and none behind them. */
	unsignaled(1, -1);
	close_world();
}
