/* The ibv_wr_* interface and the extended completion queue. */
#include <arpa/inet.h>

#include "common.h"

enum { SIZE = 1 << 14, HALF = SIZE / 2 };

static struct ibv_context *context;
static struct ibv_pd *pd;
static struct ibv_cq_ex *cq;
static struct ibv_cq *recv_cq;
static struct ibv_qp *a, *b;
static struct ibv_qp_ex *ax;
static struct ibv_mr *mr;
static unsigned char *memory;

static const uint64_t RC_OPS =
	IBV_QP_EX_WITH_RDMA_WRITE | IBV_QP_EX_WITH_RDMA_WRITE_WITH_IMM | IBV_QP_EX_WITH_SEND |
	IBV_QP_EX_WITH_SEND_WITH_IMM | IBV_QP_EX_WITH_RDMA_READ |
	IBV_QP_EX_WITH_ATOMIC_CMP_AND_SWP | IBV_QP_EX_WITH_ATOMIC_FETCH_AND_ADD |
	IBV_QP_EX_WITH_LOCAL_INV | IBV_QP_EX_WITH_BIND_MW | IBV_QP_EX_WITH_SEND_WITH_INV;

static struct ibv_qp *make_extended(enum ibv_qp_type type, uint64_t ops)
{
	struct ibv_qp_init_attr_ex attr = {
		.send_cq = ibv_cq_ex_to_cq(cq),
		.recv_cq = recv_cq,
		.cap = { 32, 32, 4, 4, 128 },
		.qp_type = type,
		.comp_mask = IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_SEND_OPS_FLAGS,
		.pd = pd,
		.send_ops_flags = ops,
	};
	return ibv_create_qp_ex(context, &attr);
}

/* Takes one completion; the queue stays between start_poll and end_poll. */
static void start(uint64_t wr_id)
{
	struct ibv_poll_cq_attr attr = { 0 };
	double end = seconds() + 10;
	int result;
	while ((result = ibv_start_poll(cq, &attr)) == ENOENT)
		CHECK(seconds() < end);
	CHECK(result == 0);
	CHECK(cq->status == IBV_WC_SUCCESS);
	CHECK(cq->wr_id == wr_id);
	CHECK(ibv_wc_read_qp_num(cq) == a->qp_num);
	CHECK(ibv_wc_read_vendor_err(cq) == 0);
}

static void begin(uint64_t wr_id)
{
	ibv_wr_start(ax);
	ax->wr_id = wr_id;
	ax->wr_flags = IBV_SEND_SIGNALED;
}

static void test_send(void)
{
	memset(memory, 'm', HALF);
	for (int i = 0; i < 4; i++)
		post_recv(b, 100 + i, memory + HALF + i * 64, 64, mr->lkey);
	/* Four requests, posted by one call. */
	begin(1);
	ibv_wr_send(ax);
	ibv_wr_set_sge(ax, mr->lkey, (uintptr_t)memory, 10);
	ax->wr_id = 2;
	ibv_wr_send_imm(ax, htonl(99));
	struct ibv_sge list[2] = { { (uintptr_t)memory, 3, mr->lkey },
				   { (uintptr_t)memory + 100, 4, mr->lkey } };
	ibv_wr_set_sge_list(ax, 2, list);
	ax->wr_id = 3;
	ibv_wr_send(ax);
	char text[] = "inline", more[] = " list";
	ibv_wr_set_inline_data(ax, text, 6);
	ax->wr_id = 4;
	ibv_wr_send(ax);
	struct ibv_data_buf buffers[2] = { { text, 6 }, { more, 6 } };
	ibv_wr_set_inline_data_list(ax, 2, buffers);
	CHECK(ibv_wr_complete(ax) == 0);
	memset(text, 'x', sizeof(text));

	start(1);
	CHECK(ibv_wc_read_opcode(cq) == IBV_WC_SEND);
	uint64_t before = ibv_wc_read_completion_ts(cq);
	double end = seconds() + 10;
	for (uint64_t id = 2; id <= 4; id++) {
		int result;
		while ((result = ibv_next_poll(cq)) == ENOENT)
			CHECK(seconds() < end);
		CHECK(result == 0 && cq->wr_id == id && cq->status == IBV_WC_SUCCESS);
		CHECK(ibv_wc_read_completion_ts(cq) >= before);
	}
	CHECK(ibv_next_poll(cq) == ENOENT);
	ibv_end_poll(cq);

	CHECK(poll_good(recv_cq, 100).byte_len == 10);
	struct ibv_wc wc = poll_good(recv_cq, 101);
	CHECK(wc.byte_len == 7 && ntohl(wc.imm_data) == 99);
	CHECK(poll_good(recv_cq, 102).byte_len == 6);
	CHECK(memcmp(memory + HALF + 128, "inline", 6) == 0);
	CHECK(poll_good(recv_cq, 103).byte_len == 12);
	CHECK(strcmp((char *)memory + HALF + 192, "inline list") == 0);
}

static void test_rdma_and_atomics(void)
{
	uint64_t *remote = (uint64_t *)(memory + HALF), *local = (uint64_t *)memory;
	memset(memory, 7, 512);
	begin(10);
	ibv_wr_rdma_write(ax, mr->rkey, (uintptr_t)remote);
	ibv_wr_set_sge(ax, mr->lkey, (uintptr_t)memory, 512);
	CHECK(ibv_wr_complete(ax) == 0);
	start(10);
	CHECK(ibv_wc_read_opcode(cq) == IBV_WC_RDMA_WRITE);
	ibv_end_poll(cq);
	CHECK(memcmp(memory, remote, 512) == 0);

	post_recv(b, 110, memory, 0, mr->lkey);
	begin(11);
	ibv_wr_rdma_write_imm(ax, mr->rkey, (uintptr_t)remote, htonl(3));
	ibv_wr_set_sge(ax, mr->lkey, (uintptr_t)memory, 16);
	CHECK(ibv_wr_complete(ax) == 0);
	start(11);
	ibv_end_poll(cq);
	CHECK(ntohl(poll_good(recv_cq, 110).imm_data) == 3);

	*remote = 5;
	begin(12);
	ibv_wr_rdma_read(ax, mr->rkey, (uintptr_t)remote);
	ibv_wr_set_sge(ax, mr->lkey, (uintptr_t)local, 8);
	CHECK(ibv_wr_complete(ax) == 0);
	start(12);
	CHECK(ibv_wc_read_opcode(cq) == IBV_WC_RDMA_READ);
	ibv_end_poll(cq);
	CHECK(*local == 5);

	begin(13);
	ibv_wr_atomic_fetch_add(ax, mr->rkey, (uintptr_t)remote, 10);
	ibv_wr_set_sge(ax, mr->lkey, (uintptr_t)local, 8);
	CHECK(ibv_wr_complete(ax) == 0);
	start(13);
	ibv_end_poll(cq);
	CHECK(*local == 5 && *remote == 15);

	begin(14);
	ibv_wr_atomic_cmp_swp(ax, mr->rkey, (uintptr_t)remote, 15, 1);
	ibv_wr_set_sge(ax, mr->lkey, (uintptr_t)local, 8);
	CHECK(ibv_wr_complete(ax) == 0);
	start(14);
	CHECK(ibv_wc_read_opcode(cq) == IBV_WC_COMP_SWAP);
	ibv_end_poll(cq);
	CHECK(*local == 15 && *remote == 1);
}

static void test_abort_and_errors(void)
{
	begin(20);
	ibv_wr_send(ax);
	ibv_wr_set_sge(ax, mr->lkey, (uintptr_t)memory, 8);
	ibv_wr_abort(ax);
	struct ibv_poll_cq_attr attr = { 0 };
	CHECK(ibv_start_poll(cq, &attr) == ENOENT);

	/* Data before any request. */
	ibv_wr_start(ax);
	ibv_wr_set_sge(ax, mr->lkey, (uintptr_t)memory, 8);
	CHECK(ibv_wr_complete(ax) == EINVAL);
	/* More inline than the queue pair has. */
	begin(21);
	ibv_wr_send(ax);
	ibv_wr_set_inline_data(ax, memory, 4096);
	CHECK(ibv_wr_complete(ax) == EINVAL);
	CHECK(ibv_start_poll(cq, &attr) == ENOENT);
	/* More than fits: none is posted. */
	begin(22);
	for (int i = 0; i < 33; i++) {
		ibv_wr_send(ax);
		ibv_wr_set_sge(ax, mr->lkey, (uintptr_t)memory, 8);
	}
	CHECK(ibv_wr_complete(ax) == ENOMEM);
	CHECK(ibv_start_poll(cq, &attr) == ENOENT);
	attr.comp_mask = 1;
	CHECK(ibv_start_poll(cq, &attr) == EINVAL);
}

static void test_refusals(void)
{
	NOTHING(make_extended(IBV_QPT_RC, IBV_QP_EX_WITH_TSO), EOPNOTSUPP);
	NOTHING(make_extended(IBV_QPT_RC, IBV_QP_EX_WITH_ATOMIC_WRITE), EOPNOTSUPP);
	NOTHING(make_extended(IBV_QPT_UC, IBV_QP_EX_WITH_RDMA_READ), EOPNOTSUPP);
	NOTHING(make_extended(IBV_QPT_UD, IBV_QP_EX_WITH_RDMA_WRITE), EOPNOTSUPP);
	NOTHING(make_extended(IBV_QPT_RAW_PACKET, IBV_QP_EX_WITH_SEND), EOPNOTSUPP);
	struct ibv_cq_init_attr_ex attr = { .cqe = 16, .wc_flags = IBV_WC_EX_WITH_CVLAN };
	NOTHING(ibv_create_cq_ex(context, &attr), EOPNOTSUPP);
	attr.wc_flags = IBV_WC_EX_WITH_TM_INFO;
	NOTHING(ibv_create_cq_ex(context, &attr), EOPNOTSUPP);
	attr.wc_flags = 0;
	attr.comp_mask = IBV_CQ_INIT_ATTR_MASK_FLAGS;
	attr.flags = IBV_CREATE_CQ_ATTR_IGNORE_OVERRUN;
	NOTHING(ibv_create_cq_ex(context, &attr), EOPNOTSUPP);
	CHECK(ibv_qp_to_qp_ex(b) == NULL); /* Made without send_ops_flags. */
}

int main(void)
{
	context = open_first();
	CHECK((pd = ibv_alloc_pd(context)));
	struct ibv_cq_init_attr_ex attr = {
		.cqe = 64,
		.wc_flags = IBV_WC_STANDARD_FLAGS | IBV_WC_EX_WITH_COMPLETION_TIMESTAMP |
			    IBV_WC_EX_WITH_COMPLETION_TIMESTAMP_WALLCLOCK,
	};
	CHECK((cq = ibv_create_cq_ex(context, &attr)));
	CHECK((recv_cq = ibv_create_cq(context, 64, NULL, NULL, 0)));
	CHECK(posix_memalign((void **)&memory, 4096, SIZE) == 0);
	CHECK((mr = ibv_reg_mr(pd, memory, SIZE, ALL_ACCESS)));
	CHECK((a = make_extended(IBV_QPT_RC, RC_OPS)));
	CHECK((ax = ibv_qp_to_qp_ex(a)) && (void *)ax == (void *)a);
	b = make_qp(pd, recv_cq, NULL, IBV_QPT_RC);
	connect_pair(a, b);
	test_send();
	test_rdma_and_atomics();
	test_abort_and_errors();
	test_refusals();
	CHECK(ibv_destroy_qp(a) == 0 && ibv_destroy_qp(b) == 0);
	CHECK(ibv_dereg_mr(mr) == 0);
	CHECK(ibv_destroy_cq(ibv_cq_ex_to_cq(cq)) == 0 && ibv_destroy_cq(recv_cq) == 0);
	CHECK(ibv_dealloc_pd(pd) == 0 && ibv_close_device(context) == 0);
	free(memory);
	return 0;
}
