/* An event is taken and never acknowledged; the queue is then destroyed, or left. */
#include <pthread.h>
#include <signal.h>

#include "check.h"

static struct ibv_comp_channel *channel;

static void one_event(void)
{
	open_world();
	CHECK(ibv_destroy_qp(a) == 0 && ibv_destroy_qp(b) == 0 && ibv_destroy_cq(cq) == 0);
	CHECK(channel = ibv_create_comp_channel(context));
	CHECK(cq = ibv_create_cq(context, 16, NULL, channel, 0));
	a = make_qp(pd, cq, NULL, IBV_QPT_RC), b = make_qp(pd, cq, NULL, IBV_QPT_RC);
	connect_pair(a, b);
	CHECK(ibv_req_notify_cq(cq, 0) == 0);
	struct ibv_sge sge = at(0, 8);
	struct ibv_send_wr wr = send_wr(1, IBV_WR_RDMA_WRITE, &sge);
	wr.wr.rdma.remote_addr = (uintptr_t)memory + 4096;
	wr.wr.rdma.rkey = mr->rkey;
	post(a, &wr);
	struct ibv_cq *which;
	void *unused;
	CHECK(ibv_get_cq_event(channel, &which, &unused) == 0);
	poll_good(cq, 1);
	CHECK(ibv_destroy_qp(a) == 0 && ibv_destroy_qp(b) == 0);
}

/* The destruction waits for ever: what was to be seen has been said by then. */
static void give_up(int signal)
{
	_exit(signal == SIGALRM ? 0 : 1);
}

static void commit(void)
{
	one_event();
	expect("C019", "ibv_destroy_cq", -1, "CQ %u", cq->handle);
	fflush(stdout);
	signal(SIGALRM, give_up);
	alarm(2);
	ibv_destroy_cq(cq);
	CHECK(!"it waits");
}

static void *acknowledge_later(void *unused)
{
	usleep(200000);
	ibv_ack_cq_events(cq, 1);
	return unused;
}

static void finish(void)
{
	CHECK(ibv_destroy_comp_channel(channel) == 0);
	CHECK(ibv_dereg_mr(mr) == 0 && ibv_dealloc_pd(pd) == 0 && ibv_close_device(context) == 0);
}

static void miss(void)
{
	one_event();
	ibv_ack_cq_events(cq, 1);
	CHECK(ibv_destroy_cq(cq) == 0);
	finish();
	/* Another thread does it, while the destruction waits. */
	one_event();
	pthread_t thread;
	CHECK(pthread_create(&thread, NULL, acknowledge_later, NULL) == 0);
	CHECK(ibv_destroy_cq(cq) == 0);
	CHECK(pthread_join(thread, NULL) == 0);
	finish();
}
