/* Messages of nothing, of one byte, and of 4 MiB in 32 pieces. */
#include "check.h"

#define HUGE_SIZE (4 << 20)
#define PIECES 32

static struct ibv_qp_init_attr init;

static void run(uint32_t length, int touched)
{
	char *source = aligned_alloc(4096, HUGE_SIZE), *sink = aligned_alloc(4096, HUGE_SIZE);
	CHECK(source && sink);
	memset(source, 3, HUGE_SIZE);
	open_world();
	CHECK(ibv_destroy_qp(a) == 0 && ibv_destroy_qp(b) == 0);
	init = (struct ibv_qp_init_attr){ .send_cq = cq, .recv_cq = cq, .qp_type = IBV_QPT_RC,
					  .cap = { 8, 8, PIECES, PIECES, 0 } };
	CHECK(a = ibv_create_qp(pd, &init));
	CHECK(b = ibv_create_qp(pd, &init));
	connect_pair(a, b);
	struct ibv_mr *from = ibv_reg_mr(pd, source, HUGE_SIZE, ALL_ACCESS);
	struct ibv_mr *to = ibv_reg_mr(pd, sink, HUGE_SIZE, ALL_ACCESS);
	CHECK(from && to);
	struct ibv_sge list[PIECES];
	for (int i = 0; i < PIECES; i++)
		list[i] = (struct ibv_sge){ (uintptr_t)source + (uint64_t)i * (length / PIECES),
					    length / PIECES, from->lkey };
	list[0].length += length % PIECES;
	struct ibv_send_wr wr = send_wr(1, IBV_WR_RDMA_WRITE, list);
	wr.num_sge = length ? PIECES : 0;
	wr.wr.rdma.remote_addr = (uintptr_t)sink;
	wr.wr.rdma.rkey = to->rkey;
	if (touched >= 0)
		expect_a("C001", "ibv_poll_cq", 1);
	post(a, &wr);
	if (touched >= 0)
		source[touched]++;
	poll_good(cq, 1);
	CHECK(ibv_dereg_mr(from) == 0 && ibv_dereg_mr(to) == 0);
	close_world();
	free(source), free(sink);
}

static void commit(void)
{
	run(1, 0);
	run(HUGE_SIZE, HUGE_SIZE - 1);
	run(HUGE_SIZE, HUGE_SIZE / 2 + 4097);
}

static void miss(void)
{
	run(0, -1);
	run(1, -1);
	run(HUGE_SIZE, -1);
}
