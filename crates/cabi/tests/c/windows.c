/* Memory windows: type 1 by ibv_bind_mw, type 2 by a work request; invalidation. */
#include "common.h"

static char memory[8192];
static struct ibv_mr *mr;
static struct ibv_cq *cq;

/* Writes 8 bytes through a key; the status of the completion. */
static enum ibv_wc_status write_through(struct ibv_qp *qp, uint32_t rkey)
{
	struct ibv_sge sge = { (uintptr_t)memory, 8, mr->lkey };
	struct ibv_send_wr wr = send_wr(50, IBV_WR_RDMA_WRITE, &sge);
	wr.wr.rdma.remote_addr = (uintptr_t)memory + 4096;
	wr.wr.rdma.rkey = rkey;
	post(qp, &wr);
	return poll_one(cq).status;
}

int main(void)
{
	struct ibv_context *context = open_first();
	struct ibv_pd *pd = ibv_alloc_pd(context);
	CHECK(pd && (cq = ibv_create_cq(context, 64, NULL, NULL, 0)));
	CHECK((mr = ibv_reg_mr(pd, memory, sizeof(memory),
			       IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_MW_BIND)));
	struct ibv_qp *a = make_qp(pd, cq, NULL, IBV_QPT_RC), *b = make_qp(pd, cq, NULL, IBV_QPT_RC);
	connect_pair(a, b);

	struct ibv_mw *one = ibv_alloc_mw(pd, IBV_MW_TYPE_1), *two = ibv_alloc_mw(pd, IBV_MW_TYPE_2);
	CHECK(one && two && one->type == IBV_MW_TYPE_1 && one->pd == pd);
	NOTHING(ibv_alloc_mw(pd, (enum ibv_mw_type)3), EINVAL);

	struct ibv_mw_bind bind = {
		.wr_id = 1,
		.send_flags = IBV_SEND_SIGNALED,
		.bind_info = { mr, (uintptr_t)memory + 4096, 4096, IBV_ACCESS_REMOTE_WRITE },
	};
	uint32_t unbound = one->rkey;
	CHECK(ibv_bind_mw(b, one, &bind) == 0);
	CHECK(one->rkey != unbound);
	CHECK(poll_good(cq, 1).opcode == IBV_WC_BIND_MW);
	memcpy(memory, "type one", 8);
	CHECK(write_through(a, one->rkey) == IBV_WC_SUCCESS);
	CHECK(memcmp(memory + 4096, "type one", 8) == 0);
	FAILS(ibv_dereg_mr(mr), EBUSY);

	struct ibv_send_wr wr = send_wr(2, IBV_WR_BIND_MW, NULL), *bad;
	wr.bind_mw.mw = two;
	wr.bind_mw.rkey = ibv_inc_rkey(two->rkey);
	wr.bind_mw.bind_info = bind.bind_info;
	post(b, &wr);
	CHECK(poll_good(cq, 2).opcode == IBV_WC_BIND_MW);
	CHECK(two->rkey == wr.bind_mw.rkey);
	memcpy(memory, "type two", 8);
	CHECK(write_through(a, two->rkey) == IBV_WC_SUCCESS);
	CHECK(memcmp(memory + 4096, "type two", 8) == 0);

	/* The peer takes the right away with its message. */
	post_recv(b, 3, memory, 64, mr->lkey);
	wr = send_wr(4, IBV_WR_SEND_WITH_INV, NULL);
	wr.invalidate_rkey = two->rkey;
	post(a, &wr);
	for (int i = 0; i < 2; i++) {
		struct ibv_wc wc = poll_one(cq);
		CHECK(wc.status == IBV_WC_SUCCESS);
		if (wc.wr_id == 3)
			CHECK(wc.wc_flags & IBV_WC_WITH_INV && wc.invalidated_rkey == two->rkey);
	}
	CHECK(write_through(a, two->rkey) == IBV_WC_REM_ACCESS_ERR);

	wr = send_wr(5, IBV_WR_BIND_MW, NULL);
	FAILS(ibv_post_send(b, &wr, &bad), EINVAL); /* Without a window. */
	CHECK(ibv_dealloc_mw(one) == 0 && ibv_dealloc_mw(two) == 0);
	CHECK(ibv_destroy_qp(a) == 0 && ibv_destroy_qp(b) == 0);
	CHECK(ibv_dereg_mr(mr) == 0);
	CHECK(ibv_destroy_cq(cq) == 0 && ibv_dealloc_pd(pd) == 0 && ibv_close_device(context) == 0);
	return 0;
}
