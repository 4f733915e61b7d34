/* The only thread waits for an event, and armed nothing. */
#include <fcntl.h>
#include <signal.h>

#include "check.h"

static struct ibv_comp_channel *channel;

static void open_channel(void)
{
	open_world();
	CHECK(ibv_destroy_qp(a) == 0 && ibv_destroy_qp(b) == 0 && ibv_destroy_cq(cq) == 0);
	CHECK(channel = ibv_create_comp_channel(context));
	CHECK(cq = ibv_create_cq(context, 16, NULL, channel, 0));
	a = make_qp(pd, cq, NULL, IBV_QPT_RC), b = make_qp(pd, cq, NULL, IBV_QPT_RC);
	connect_pair(a, b);
}

static void write_once(void)
{
	struct ibv_sge sge = at(0, 8);
	struct ibv_send_wr wr = send_wr(1, IBV_WR_RDMA_WRITE, &sge);
	wr.wr.rdma.remote_addr = (uintptr_t)memory + 4096;
	wr.wr.rdma.rkey = mr->rkey;
	post(a, &wr);
}

static void event(void)
{
	struct ibv_cq *which;
	void *unused;
	CHECK(ibv_get_cq_event(channel, &which, &unused) == 0);
	ibv_ack_cq_events(cq, 1);
	poll_good(cq, 1);
}

static void give_up(int signal)
{
	_exit(signal == SIGALRM ? 0 : 1);
}

static void commit(void)
{
	open_channel();
	CHECK(ibv_req_notify_cq(cq, 0) == 0);
	write_once();
	event();
	/* Not armed again. */
	write_once();
	expect("C024", "ibv_get_cq_event", -1, "completion channel fd %d", channel->fd);
	fflush(stdout);
	signal(SIGALRM, give_up);
	alarm(1);
	event();
	CHECK(!"it waits");
}

static void miss(void)
{
	open_channel();
	for (int i = 0; i < 3; i++) {
		CHECK(ibv_req_notify_cq(cq, 0) == 0);
		write_once();
		event();
	}
	/* Who does not block may look at any time. */
	CHECK(fcntl(channel->fd, F_SETFL, fcntl(channel->fd, F_GETFL) | O_NONBLOCK) == 0);
	struct ibv_cq *which;
	void *unused;
	FAILS(ibv_get_cq_event(channel, &which, &unused), EAGAIN);
	CHECK(ibv_destroy_qp(a) == 0 && ibv_destroy_qp(b) == 0 && ibv_destroy_cq(cq) == 0);
	CHECK(ibv_destroy_comp_channel(channel) == 0);
	CHECK(ibv_dereg_mr(mr) == 0 && ibv_dealloc_pd(pd) == 0 && ibv_close_device(context) == 0);
}
