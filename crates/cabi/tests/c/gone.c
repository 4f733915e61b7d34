/* Registered memory that is unmapped, protected or cut off its file: the request that touches it
 * fails at the side that has to know, the program goes on. The first argument allows a lost answer:
 * then a requester may give up instead of hearing why. */
#define _GNU_SOURCE
#include "gone.h"

#include <poll.h>

static struct ibv_context *context;
static struct ibv_pd *pd;
static struct ibv_cq *near_cq, *far_cq;
static int lossy;

/* The next asynchronous event of a queue pair; 0 if none comes within a while. */
static int event_of(struct ibv_qp *qp, int wait_ms)
{
	struct pollfd fd = { .fd = context->async_fd, .events = POLLIN };
	while (poll(&fd, 1, wait_ms) == 1) {
		struct ibv_async_event event;
		CHECK(ibv_get_async_event(context, &event) == 0);
		ibv_ack_async_event(&event);
		if (event.element.qp == qp && event.event_type != IBV_EVENT_COMM_EST)
			return event.event_type;
	}
	return 0;
}

static void expect(struct ibv_wc wc, enum ibv_wc_status status, const char *what, enum way way)
{
	if (wc.status == status || (lossy && wc.status == IBV_WC_RETRY_EXC_ERR))
		return;
	fprintf(stderr, "%s, %s: %s instead of %s\n", what, way_names[way],
		ibv_wc_status_str(wc.status), ibv_wc_status_str(status));
	exit(1);
}

static enum ibv_qp_state state_of(struct ibv_qp *qp)
{
	struct ibv_qp_attr attr;
	struct ibv_qp_init_attr init;
	CHECK(ibv_query_qp(qp, &attr, IBV_QP_STATE, &init) == 0);
	return attr.qp_state;
}

/* What is asked of whose memory. */
struct kind {
	const char *name;
	enum ibv_wr_opcode opcode;
	uint32_t length;
	int far; /* The far side's memory goes, else the near side's. */
	int writes;
};

static const struct kind kinds[] = {
	{ "far WRITE", IBV_WR_RDMA_WRITE, 3000, 1, 1 },
	{ "far READ", IBV_WR_RDMA_READ, 3000, 1, 0 },
	{ "far SEND", IBV_WR_SEND, 3000, 1, 1 },
	{ "far FETCH_ADD", IBV_WR_ATOMIC_FETCH_AND_ADD, 8, 1, 1 },
	{ "far CMP_SWAP", IBV_WR_ATOMIC_CMP_AND_SWP, 8, 1, 1 },
	{ "near WRITE", IBV_WR_RDMA_WRITE, 3000, 0, 0 },
	{ "near READ", IBV_WR_RDMA_READ, 3000, 0, 1 },
	{ "near SEND", IBV_WR_SEND, 3000, 0, 0 },
	{ "near FETCH_ADD", IBV_WR_ATOMIC_FETCH_AND_ADD, 8, 0, 1 },
	{ "near CMP_SWAP", IBV_WR_ATOMIC_CMP_AND_SWP, 8, 0, 1 },
};

static void touch(const struct kind *kind, enum way way, size_t offset)
{
	struct piece a = make_piece(pd, way), b = make_piece(pd, way);
	struct ibv_qp *near = make_qp(pd, near_cq, NULL, IBV_QPT_RC);
	struct ibv_qp *far = make_qp(pd, far_cq, NULL, IBV_QPT_RC);
	connect_pair(near, far);
	int message = kind->opcode == IBV_WR_SEND;
	if (message)
		post_recv(far, 7, b.at + offset, kind->length, b.mr->lkey);
	take(kind->far ? &b : &a, way);
	struct ibv_sge sge = { (uintptr_t)a.at + offset, kind->length, a.mr->lkey };
	struct ibv_send_wr wr = send_wr(1, kind->opcode, &sge);
	if (kind->length == 8) {
		wr.wr.atomic.remote_addr = (uintptr_t)b.at + offset;
		wr.wr.atomic.rkey = b.mr->rkey;
	} else {
		wr.wr.rdma.remote_addr = (uintptr_t)b.at + offset;
		wr.wr.rdma.rkey = b.mr->rkey;
	}
	post(near, &wr);
	struct ibv_wc wc = poll_one(near_cq);
	CHECK(wc.wr_id == 1);
	if (way == READ_ONLY && !kind->writes) {
		CHECK(wc.status == IBV_WC_SUCCESS);
		if (message)
			poll_good(far_cq, 7);
	} else if (kind->far) {
		expect(wc, IBV_WC_REM_OP_ERR, kind->name, way);
		CHECK(state_of(near) == IBV_QPS_ERR);
		if (message) {
			wc = poll_one(far_cq);
			CHECK(wc.wr_id == 7 && wc.status == IBV_WC_LOC_PROT_ERR);
		} else {
			CHECK(event_of(far, 5000) == IBV_EVENT_QP_ACCESS_ERR);
		}
		CHECK(state_of(far) == IBV_QPS_ERR);
	} else {
		expect(wc, IBV_WC_LOC_PROT_ERR, kind->name, way);
		CHECK(state_of(near) == IBV_QPS_ERR);
		CHECK(state_of(far) == IBV_QPS_RTS);
	}
	CHECK(ibv_destroy_qp(near) == 0 && ibv_destroy_qp(far) == 0);
	end_piece(&a);
	end_piece(&b);
}

/* Unreliable connections: the side whose memory has gone is told, the other is not. */
static void unreliable(enum way way)
{
	struct piece a = make_piece(pd, way), b = make_piece(pd, way);
	struct ibv_qp *near = make_qp(pd, near_cq, NULL, IBV_QPT_UC);
	struct ibv_qp *far = make_qp(pd, far_cq, NULL, IBV_QPT_UC);
	connect_pair(near, far);
	post_recv(far, 7, b.at + 4096, 64, b.mr->lkey);
	take(&b, way);
	struct ibv_sge sge = { (uintptr_t)a.at, 64, a.mr->lkey };
	struct ibv_send_wr wr = send_wr(1, IBV_WR_SEND, &sge);
	post(near, &wr);
	poll_good(near_cq, 1);
	if (!lossy) {
		struct ibv_wc wc = poll_one(far_cq);
		CHECK(wc.wr_id == 7 && wc.status == IBV_WC_LOC_PROT_ERR);
	}
	take(&a, way);
	sge.addr += 4096;
	post(near, &wr);
	struct ibv_wc wc = poll_one(near_cq);
	CHECK(wc.status == (way == READ_ONLY ? IBV_WC_SUCCESS : IBV_WC_LOC_PROT_ERR));
	CHECK(ibv_destroy_qp(near) == 0 && ibv_destroy_qp(far) == 0);
	while (ibv_poll_cq(far_cq, 1, &wc) == 1)
		continue;
	end_piece(&a);
	end_piece(&b);
}

/* What is mapped anew at the place of what was unmapped is reached: nobody can tell. */
static void mapped_anew(void)
{
	struct piece a = make_piece(pd, UNMAP), b = make_piece(pd, UNMAP);
	struct ibv_qp *near = make_qp(pd, near_cq, NULL, IBV_QPT_RC);
	struct ibv_qp *far = make_qp(pd, far_cq, NULL, IBV_QPT_RC);
	connect_pair(near, far);
	take(&b, UNMAP);
	char *again = mmap(b.at + 4096, 4096, PROT_READ | PROT_WRITE,
			   MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
	CHECK(again == b.at + 4096);
	struct ibv_sge sge = { (uintptr_t)a.at, 64, a.mr->lkey };
	struct ibv_send_wr wr = send_wr(1, IBV_WR_RDMA_WRITE, &sge);
	wr.wr.rdma.remote_addr = (uintptr_t)again;
	wr.wr.rdma.rkey = b.mr->rkey;
	post(near, &wr);
	poll_good(near_cq, 1);
	CHECK(again[0] == 0x11 && again[64] == 0);
	CHECK(ibv_destroy_qp(near) == 0 && ibv_destroy_qp(far) == 0);
	end_piece(&a);
	end_piece(&b);
}

int main(int argc, char **argv)
{
	lossy = argc > 1 && strcmp(argv[1], "lossy") == 0;
	context = open_first();
	pd = ibv_alloc_pd(context);
	near_cq = ibv_create_cq(context, 64, NULL, NULL, 0);
	far_cq = ibv_create_cq(context, 64, NULL, NULL, 0);
	CHECK(pd && near_cq && far_cq);
	for (enum way way = 0; way < WAYS; way++) {
		for (size_t i = 0; i < sizeof(kinds) / sizeof(kinds[0]); i++) {
			touch(&kinds[i], way, 4096);
			/* Begins in what is there; atomics are words and do not. */
			if (kinds[i].length > 8)
				touch(&kinds[i], way, 4096 - 1500);
		}
		unreliable(way);
	}
	mapped_anew();
	CHECK(ibv_destroy_cq(near_cq) == 0 && ibv_destroy_cq(far_cq) == 0);
	CHECK(ibv_dealloc_pd(pd) == 0 && ibv_close_device(context) == 0);
	return 0;
}
