/* Every operation of a reliable connection, over ibv_post_send and ibv_poll_cq. */
#include <arpa/inet.h>

#include "common.h"

enum { SIZE = 1 << 16, HALF = SIZE / 2 };

static struct ibv_cq *cq_a, *cq_b;
static struct ibv_qp *a, *b;
static struct ibv_mr *mr;
static unsigned char *memory;

static struct ibv_sge piece(size_t offset, uint32_t length)
{
	struct ibv_sge sge = { (uintptr_t)memory + offset, length, mr->lkey };
	return sge;
}

static void fill(unsigned char seed)
{
	for (size_t i = 0; i < HALF; i++) {
		memory[i] = (unsigned char)(i * 7 + seed);
		memory[HALF + i] = 0;
	}
}

static void test_send(void)
{
	fill(1);
	post_recv(b, 100, memory + HALF, HALF, mr->lkey);
	struct ibv_sge sge = piece(0, 5000);
	struct ibv_send_wr wr = send_wr(1, IBV_WR_SEND_WITH_IMM, &sge);
	wr.imm_data = htonl(0xdeadbeef);
	post(a, &wr);
	CHECK(poll_good(cq_a, 1).opcode == IBV_WC_SEND);
	struct ibv_wc wc = poll_good(cq_b, 100);
	CHECK(wc.opcode == IBV_WC_RECV && wc.byte_len == 5000);
	CHECK(wc.wc_flags & IBV_WC_WITH_IMM && ntohl(wc.imm_data) == 0xdeadbeef);
	CHECK(wc.qp_num == b->qp_num);
	CHECK(memcmp(memory, memory + HALF, 5000) == 0 && memory[HALF + 5000] == 0);
}

static void test_inline_and_lists(void)
{
	struct ibv_send_wr *bad = NULL;
	post_recv(b, 101, memory + HALF, HALF, mr->lkey);
	char first[] = "inline ", second[] = "in two pieces";
	struct ibv_sge pieces[2] = { { (uintptr_t)first, 7, 0 }, { (uintptr_t)second, 14, 0 } };
	struct ibv_send_wr wr = send_wr(2, IBV_WR_SEND, pieces);
	wr.num_sge = 2;
	wr.send_flags |= IBV_SEND_INLINE;
	post(a, &wr);
	memset(first, 'x', sizeof(first)); /* The bytes were taken when it was posted. */
	memset(second, 'x', sizeof(second));
	poll_good(cq_a, 2);
	CHECK(poll_good(cq_b, 101).byte_len == 21);
	CHECK(strcmp((char *)memory + HALF, "inline in two pieces") == 0);

	/* A list: unsignaled, signaled, refused, never looked at. */
	post_recv(b, 102, memory + HALF, HALF, mr->lkey);
	post_recv(b, 103, memory + HALF, HALF, mr->lkey);
	struct ibv_sge sge = piece(0, 8), many[5] = { sge, sge, sge, sge, sge };
	struct ibv_send_wr list[4] = { send_wr(3, IBV_WR_SEND, &sge), send_wr(4, IBV_WR_SEND, &sge),
				       send_wr(5, IBV_WR_SEND, many), send_wr(6, IBV_WR_SEND, &sge) };
	list[0].send_flags = 0;
	list[2].num_sge = 5;
	for (int i = 0; i < 3; i++)
		list[i].next = &list[i + 1];
	FAILS(ibv_post_send(a, list, &bad), EINVAL);
	CHECK(bad == &list[2]);
	poll_good(cq_a, 4);
	poll_good(cq_b, 102);
	poll_good(cq_b, 103);
	struct ibv_wc wc;
	CHECK(ibv_poll_cq(cq_a, 1, &wc) == 0);

	/* More inline than asked for. */
	sge.length = 4096;
	wr = send_wr(7, IBV_WR_SEND, &sge);
	wr.send_flags |= IBV_SEND_INLINE;
	FAILS(ibv_post_send(a, &wr, &bad), EINVAL);
	CHECK(bad == &wr);
}

static void test_rdma(void)
{
	fill(2);
	struct ibv_sge sge = piece(0, 20000);
	struct ibv_send_wr wr = send_wr(10, IBV_WR_RDMA_WRITE, &sge);
	wr.wr.rdma.remote_addr = (uintptr_t)memory + HALF;
	wr.wr.rdma.rkey = mr->rkey;
	post(a, &wr);
	CHECK(poll_good(cq_a, 10).opcode == IBV_WC_RDMA_WRITE);
	CHECK(memcmp(memory, memory + HALF, 20000) == 0);

	post_recv(b, 104, memory, 0, mr->lkey);
	wr = send_wr(11, IBV_WR_RDMA_WRITE_WITH_IMM, &sge);
	wr.wr.rdma.remote_addr = (uintptr_t)memory + HALF;
	wr.wr.rdma.rkey = mr->rkey;
	wr.imm_data = htonl(5);
	post(a, &wr);
	poll_good(cq_a, 11);
	struct ibv_wc wc = poll_good(cq_b, 104);
	CHECK(wc.opcode == IBV_WC_RECV_RDMA_WITH_IMM && ntohl(wc.imm_data) == 5);
	CHECK(wc.byte_len == 20000);

	fill(3);
	memcpy(memory + HALF, memory, HALF);
	memset(memory, 0, HALF);
	sge = piece(0, 30000);
	wr = send_wr(12, IBV_WR_RDMA_READ, &sge);
	wr.wr.rdma.remote_addr = (uintptr_t)memory + HALF;
	wr.wr.rdma.rkey = mr->rkey;
	post(a, &wr);
	wc = poll_good(cq_a, 12);
	CHECK(wc.opcode == IBV_WC_RDMA_READ);
	CHECK(memcmp(memory, memory + HALF, 30000) == 0);
}

static void test_atomics(void)
{
	uint64_t *local = (uint64_t *)memory, *remote = (uint64_t *)(memory + HALF);
	*remote = 40;
	struct ibv_sge sge = piece(0, 8);
	struct ibv_send_wr wr = send_wr(20, IBV_WR_ATOMIC_FETCH_AND_ADD, &sge);
	wr.wr.atomic.remote_addr = (uintptr_t)remote;
	wr.wr.atomic.rkey = mr->rkey;
	wr.wr.atomic.compare_add = 2;
	post(a, &wr);
	CHECK(poll_good(cq_a, 20).opcode == IBV_WC_FETCH_ADD);
	CHECK(*local == 40 && *remote == 42);
	wr = send_wr(21, IBV_WR_ATOMIC_CMP_AND_SWP, &sge);
	wr.wr.atomic.remote_addr = (uintptr_t)remote;
	wr.wr.atomic.rkey = mr->rkey;
	wr.wr.atomic.compare_add = 42;
	wr.wr.atomic.swap = 7;
	post(a, &wr);
	CHECK(poll_good(cq_a, 21).opcode == IBV_WC_COMP_SWAP);
	CHECK(*local == 42 && *remote == 7);
}

static void test_query(void)
{
	struct ibv_qp_attr attr;
	struct ibv_qp_init_attr init;
	CHECK(ibv_query_qp(a, &attr, IBV_QP_STATE, &init) == 0);
	CHECK(attr.qp_state == IBV_QPS_RTS && attr.dest_qp_num == b->qp_num);
	CHECK(attr.path_mtu == IBV_MTU_1024 && attr.ah_attr.is_global);
	CHECK(attr.qp_access_flags == ALL_ACCESS && attr.retry_cnt == 7 && attr.timeout == 14);
	CHECK(init.send_cq == cq_a && init.recv_cq == cq_a && init.qp_type == IBV_QPT_RC);
	CHECK(ibv_query_qp_data_in_order(a, IBV_WR_RDMA_WRITE, 0) == 1);
}

/* A wrong key fails the request, moves the queue pair to ERR and flushes the rest. */
static void test_error(void)
{
	struct ibv_sge sge = piece(0, 8);
	struct ibv_send_wr wr = send_wr(30, IBV_WR_RDMA_WRITE, &sge), after;
	wr.wr.rdma.remote_addr = (uintptr_t)memory + HALF;
	wr.wr.rdma.rkey = mr->rkey ^ 0x55555555;
	after = send_wr(31, IBV_WR_RDMA_WRITE, &sge);
	after.wr = wr.wr;
	wr.next = &after;
	post(a, &wr);
	struct ibv_wc wc = poll_one(cq_a);
	CHECK(wc.wr_id == 30 && wc.status == IBV_WC_REM_ACCESS_ERR);
	wc = poll_one(cq_a);
	CHECK(wc.wr_id == 31 && wc.status == IBV_WC_WR_FLUSH_ERR);
	struct ibv_qp_attr attr;
	struct ibv_qp_init_attr init;
	CHECK(ibv_query_qp(a, &attr, IBV_QP_STATE, &init) == 0);
	CHECK(attr.qp_state == IBV_QPS_ERR && a->state == IBV_QPS_ERR);
}

int main(void)
{
	struct ibv_context *context = open_first();
	struct ibv_pd *pd = ibv_alloc_pd(context);
	CHECK(pd && pd->context == context);
	CHECK((cq_a = ibv_create_cq(context, 64, NULL, NULL, 0)) && cq_a->cqe >= 64);
	CHECK((cq_b = ibv_create_cq(context, 64, NULL, NULL, 0)));
	CHECK(posix_memalign((void **)&memory, 4096, SIZE) == 0);
	CHECK((mr = ibv_reg_mr(pd, memory, SIZE, ALL_ACCESS)));
	CHECK(mr->addr == memory && mr->length == SIZE && mr->pd == pd);
	a = make_qp(pd, cq_a, NULL, IBV_QPT_RC);
	b = make_qp(pd, cq_b, NULL, IBV_QPT_RC);
	connect_pair(a, b);
	test_send();
	test_inline_and_lists();
	test_rdma();
	test_atomics();
	test_query();
	test_error();
	CHECK(ibv_destroy_qp(a) == 0 && ibv_destroy_qp(b) == 0);
	CHECK(ibv_dereg_mr(mr) == 0);
	CHECK(ibv_destroy_cq(cq_a) == 0 && ibv_destroy_cq(cq_b) == 0);
	CHECK(ibv_dealloc_pd(pd) == 0);
	CHECK(ibv_close_device(context) == 0);
	free(memory);
	return 0;
}
