/* Inline data of one byte too many. */
#include "check.h"

__attribute__((noinline)) static void inline_write(uint32_t length)
{
	struct ibv_qp_attr attr;
	struct ibv_qp_init_attr init;
	CHECK(ibv_query_qp(a, &attr, IBV_QP_CAP, &init) == 0);
	struct ibv_sge sge = at(0, init.cap.max_inline_data + length);
	struct ibv_send_wr wr = send_wr(1, IBV_WR_RDMA_WRITE, &sge);
	wr.send_flags |= IBV_SEND_INLINE;
	wr.wr.rdma.remote_addr = (uintptr_t)memory + 4096;
	wr.wr.rdma.rkey = mr->rkey;
	if (length) {
		expect_a("C013", "ibv_post_send", 1);
		refused(a, &wr, EINVAL);
	} else {
		post(a, &wr);
		poll_good(cq, 1);
	}
}

static void commit(void)
{
	connect_world();
	inline_write(1);
	close_world();
}

static void miss(void)
{
	connect_world();
	inline_write(0);
	close_world();
}
