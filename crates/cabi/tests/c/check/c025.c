/* More pieces than the queue pair was made for. */
#include "check.h"

static void pieces(int count)
{
	struct ibv_sge list[5];
	for (int i = 0; i < 5; i++)
		list[i] = at(64 * i, 64);
	struct ibv_send_wr wr = send_wr(1, IBV_WR_RDMA_WRITE, list);
	wr.num_sge = count;
	wr.wr.rdma.remote_addr = (uintptr_t)memory + 4096;
	wr.wr.rdma.rkey = mr->rkey;
	if (count > 4) {
		expect_a("C025", "ibv_post_send", 1);
		refused(a, &wr, EINVAL);
	} else {
		post(a, &wr);
		poll_good(cq, 1);
	}
}

static void commit(void)
{
	connect_world();
	pieces(5);
	close_world();
}

static void miss(void)
{
	connect_world();
	pieces(4);
	close_world();
}
