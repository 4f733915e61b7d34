/* The same rules behind the ibv_wr_* interface and the extended completion queue. */
#include "check.h"

static struct ibv_cq_ex *queue;
static struct ibv_qp_ex *ax;

static void open_extended(void)
{
	open_world();
	CHECK(ibv_destroy_qp(a) == 0 && ibv_destroy_qp(b) == 0 && ibv_destroy_cq(cq) == 0);
	struct ibv_cq_init_attr_ex cq_attr = { .cqe = 64 };
	CHECK(queue = ibv_create_cq_ex(context, &cq_attr));
	cq = ibv_cq_ex_to_cq(queue);
	struct ibv_qp_init_attr_ex attr = {
		.send_cq = cq,
		.recv_cq = cq,
		.cap = { 32, 32, 4, 4, 128 },
		.qp_type = IBV_QPT_RC,
		.comp_mask = IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_SEND_OPS_FLAGS,
		.pd = pd,
		.send_ops_flags = IBV_QP_EX_WITH_RDMA_WRITE,
	};
	CHECK(a = ibv_create_qp_ex(context, &attr));
	CHECK(ax = ibv_qp_to_qp_ex(a));
	b = make_qp(pd, cq, NULL, IBV_QPT_RC);
	connect_pair(a, b);
}

static void begin(uint64_t wr_id)
{
	ax->wr_id = wr_id;
	ax->wr_flags = IBV_SEND_SIGNALED;
	ibv_wr_rdma_write(ax, mr->rkey, (uintptr_t)memory + 500000);
}

/* Posts two in one go, touches a byte, takes both completions. */
static void two_writes(size_t touched)
{
	ibv_wr_start(ax);
	begin(1);
	ibv_wr_set_sge(ax, mr->lkey, (uintptr_t)memory, 64);
	begin(2);
	struct ibv_sge list[2] = { at(128, 64), at(256, 64) };
	ibv_wr_set_sge_list(ax, 2, list);
	CHECK(ibv_wr_complete(ax) == 0);
	memory[touched]++;
	struct ibv_poll_cq_attr attr = { 0 };
	double end = seconds() + 10;
	while (ibv_start_poll(queue, &attr) == ENOENT)
		CHECK(seconds() < end);
	CHECK(queue->wr_id == 1 && queue->status == IBV_WC_SUCCESS);
	while (ibv_next_poll(queue) == ENOENT) {
		ibv_end_poll(queue);
		while (ibv_start_poll(queue, &attr) == ENOENT)
			CHECK(seconds() < end);
		CHECK(queue->wr_id == 2);
		break;
	}
	CHECK(queue->wr_id == 2 && queue->status == IBV_WC_SUCCESS);
	ibv_end_poll(queue);
}

static void too_long(uint64_t wr_id, size_t length)
{
	ibv_wr_start(ax);
	begin(wr_id);
	ibv_wr_set_inline_data(ax, memory, length);
	expect_a("C013", "ibv_wr_complete", wr_id);
	CHECK(ibv_wr_complete(ax) == EINVAL);
}

static void commit(void)
{
	open_extended();
	expect_a("C001", "ibv_start_poll", 1);
	two_writes(63);
	too_long(3, 129);
	too_long(4, 100000);
	ibv_wr_start(ax);
	begin(5);
	ibv_wr_set_sge(ax, mr->lkey + 1, (uintptr_t)memory, 64);
	expect_a("C009", "ibv_wr_complete", 5);
	CHECK(ibv_wr_complete(ax) == 0);
	CHECK(poll_one(cq).status == IBV_WC_LOC_PROT_ERR);
	uint32_t number = a->qp_num;
	CHECK(ibv_destroy_qp(a) == 0);
	ibv_wr_start(ax);
	begin(6);
	expect("C020", "ibv_wr_complete", -1, "QP %u", number);
	CHECK(ibv_wr_complete(ax) == EINVAL);
	a = make_qp(pd, cq, NULL, IBV_QPT_RC);
	close_world();
}

static void miss(void)
{
	open_extended();
	two_writes(64);
	two_writes(320);
	ibv_wr_start(ax);
	begin(3);
	ibv_wr_set_inline_data(ax, memory, 128);
	CHECK(ibv_wr_complete(ax) == 0);
	memory[0]++;
	poll_good(cq, 3);
	/* What was given up was never posted. */
	ibv_wr_start(ax);
	begin(4);
	ibv_wr_set_sge(ax, mr->lkey + 1, (uintptr_t)memory, 64);
	ibv_wr_abort(ax);
	close_world();
}
