/* A region ends while a receive, or a send that was not polled, names it. */
#include "check.h"

static void commit(void)
{
	connect_world();
	struct ibv_mr *other = ibv_reg_mr(pd, memory, 4096, ALL_ACCESS);
	CHECK(other);
	post_recv(b, 5, memory, 64, other->lkey);
	expect("C007", "ibv_dereg_mr", 5, "MR lkey %#x", other->lkey);
	CHECK(ibv_dereg_mr(other) == 0);
	close_world();

	connect_world();
	CHECK(other = ibv_reg_mr(pd, memory, 4096, ALL_ACCESS));
	struct ibv_sge sge = { (uintptr_t)memory, 8, other->lkey };
	struct ibv_send_wr wr = send_wr(6, IBV_WR_RDMA_WRITE, &sge);
	wr.wr.rdma.remote_addr = (uintptr_t)memory + 4096;
	wr.wr.rdma.rkey = mr->rkey;
	post(a, &wr);
	expect("C007", "ibv_rereg_mr", 6, "MR lkey %#x", other->lkey);
	CHECK(ibv_rereg_mr(other, IBV_REREG_MR_CHANGE_ACCESS, NULL, NULL, 0, IBV_ACCESS_LOCAL_WRITE) == 0);
	struct ibv_wc wc = poll_one(cq);
	CHECK(wc.wr_id == 6);
	CHECK(ibv_dereg_mr(other) == 0);
	close_world();
}

static void miss(void)
{
	connect_world();
	struct ibv_mr *other = ibv_reg_mr(pd, memory, 4096, ALL_ACCESS);
	CHECK(other);
	post_recv(b, 5, memory, 64, other->lkey);
	struct ibv_sge sge = at(4096, 8);
	struct ibv_send_wr wr = send_wr(6, IBV_WR_SEND, &sge);
	post(a, &wr);
	poll_one(cq);
	poll_one(cq);
	CHECK(ibv_dereg_mr(other) == 0);
	/* A receive that was taken back by a reset. */
	CHECK(other = ibv_reg_mr(pd, memory, 4096, ALL_ACCESS));
	post_recv(b, 7, memory, 64, other->lkey);
	struct ibv_qp_attr attr = { .qp_state = IBV_QPS_RESET };
	CHECK(ibv_modify_qp(b, &attr, IBV_QP_STATE) == 0);
	CHECK(ibv_dereg_mr(other) == 0);
	close_world();
}
