/* Completion channels and asynchronous events: blocking, not blocking, cancelled, acknowledged. */
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>

#include "common.h"

static struct ibv_context *context;
static struct ibv_pd *pd;
static struct ibv_comp_channel *channel;
static struct ibv_mr *mr;
static char memory[4096];

static int readable(int fd, int milliseconds)
{
	struct pollfd p = { .fd = fd, .events = POLLIN };
	return poll(&p, 1, milliseconds);
}

static struct ibv_sge whole(uint32_t length)
{
	struct ibv_sge sge = { (uintptr_t)memory, length, mr->lkey };
	return sge;
}

static void *acknowledge_later(void *cq)
{
	usleep(200000);
	ibv_ack_cq_events(cq, 1);
	return NULL;
}

static void test_completion_events(void)
{
	struct ibv_cq *cq = ibv_create_cq(context, 16, &channel, channel, 0), *which;
	void *cq_context;
	struct ibv_qp *a = make_qp(pd, cq, NULL, IBV_QPT_RC), *b = make_qp(pd, cq, NULL, IBV_QPT_RC);
	connect_pair(a, b);
	CHECK(readable(channel->fd, 0) == 0);
	CHECK(ibv_req_notify_cq(cq, 0) == 0);
	post_recv(b, 1, memory, 64, mr->lkey);
	struct ibv_sge sge = whole(8);
	struct ibv_send_wr wr = send_wr(2, IBV_WR_SEND, &sge);
	post(a, &wr);
	CHECK(ibv_get_cq_event(channel, &which, &cq_context) == 0);
	CHECK(which == cq && cq_context == &channel);
	poll_one(cq);
	poll_one(cq);

	/* Not armed: nothing comes, and a descriptor that does not block says so. */
	post_recv(b, 1, memory, 64, mr->lkey);
	post(a, &wr);
	poll_one(cq);
	poll_one(cq);
	CHECK(fcntl(channel->fd, F_SETFL, fcntl(channel->fd, F_GETFL) | O_NONBLOCK) == 0);
	FAILS(ibv_get_cq_event(channel, &which, &cq_context), EAGAIN);

	/* Solicited only: a plain message raises nothing, a solicited one does. */
	CHECK(ibv_req_notify_cq(cq, 1) == 0);
	post_recv(b, 1, memory, 64, mr->lkey);
	post(a, &wr);
	poll_one(cq);
	poll_one(cq);
	CHECK(readable(channel->fd, 50) == 0);
	post_recv(b, 1, memory, 64, mr->lkey);
	wr.send_flags |= IBV_SEND_SOLICITED;
	post(a, &wr);
	CHECK(readable(channel->fd, 5000) == 1);
	CHECK(ibv_get_cq_event(channel, &which, &cq_context) == 0);
	poll_one(cq);
	poll_one(cq);
	CHECK(fcntl(channel->fd, F_SETFL, fcntl(channel->fd, F_GETFL) & ~O_NONBLOCK) == 0);

	CHECK(ibv_destroy_qp(a) == 0 && ibv_destroy_qp(b) == 0);
	/* Two events were taken, one is acknowledged: destruction waits for the other. */
	ibv_ack_cq_events(cq, 1);
	pthread_t thread;
	CHECK(pthread_create(&thread, NULL, acknowledge_later, cq) == 0);
	double start = seconds();
	CHECK(ibv_destroy_cq(cq) == 0);
	CHECK(seconds() - start > 0.1);
	CHECK(pthread_join(thread, NULL) == 0);
}

static int cleaned;

static void note_cleanup(void *unused)
{
	(void)unused;
	cleaned++;
}

static void *wait_for_cq_event(void *unused)
{
	struct ibv_cq *cq;
	void *cq_context;
	pthread_cleanup_push(note_cleanup, NULL);
	ibv_get_cq_event(channel, &cq, &cq_context);
	pthread_cleanup_pop(0);
	return unused;
}

static void *wait_for_async_event(void *unused)
{
	struct ibv_async_event event;
	pthread_cleanup_push(note_cleanup, NULL);
	ibv_get_async_event(context, &event);
	pthread_cleanup_pop(0);
	return unused;
}

static void *poll_for_ever(void *cq)
{
	struct ibv_wc wc;
	pthread_cleanup_push(note_cleanup, NULL);
	for (;;) {
		ibv_poll_cq(cq, 1, &wc);
		pthread_testcancel();
	}
	pthread_cleanup_pop(0);
	return NULL;
}

/* A thread that is blocked in the library, or busy in it, may be cancelled. */
static void cancel(void *(*body)(void *), void *argument)
{
	pthread_t thread;
	void *result;
	int before = cleaned;
	CHECK(pthread_create(&thread, NULL, body, argument) == 0);
	usleep(100000);
	CHECK(pthread_cancel(thread) == 0);
	CHECK(pthread_join(thread, &result) == 0);
	CHECK(result == PTHREAD_CANCELED && cleaned == before + 1);
}

static void test_cancellation(void)
{
	struct ibv_cq *cq = ibv_create_cq(context, 16, NULL, channel, 0);
	CHECK(cq);
	cancel(wait_for_cq_event, NULL);
	cancel(wait_for_async_event, NULL);
	cancel(poll_for_ever, cq);
	CHECK(ibv_destroy_cq(cq) == 0); /* Nothing was left locked. */
}

static struct ibv_async_event expect_async(enum ibv_event_type type)
{
	struct ibv_async_event event;
	CHECK(readable(context->async_fd, 5000) == 1);
	CHECK(ibv_get_async_event(context, &event) == 0);
	if (event.event_type != type) {
		fprintf(stderr, "event `%s`, expected `%s`\n", ibv_event_type_str(event.event_type),
			ibv_event_type_str(type));
		exit(1);
	}
	return event;
}

/* A shared receive queue tells when it runs low, and when a queue pair in ERR takes no more. */
static void test_async_events(void)
{
	struct ibv_cq *cq = ibv_create_cq(context, 64, NULL, NULL, 0);
	struct ibv_srq_init_attr init = { .attr = { .max_wr = 8, .max_sge = 1 } };
	struct ibv_srq *srq = ibv_create_srq(pd, &init);
	struct ibv_qp *a = make_qp(pd, cq, NULL, IBV_QPT_RC), *b = make_qp(pd, cq, srq, IBV_QPT_RC);
	connect_pair(a, b);
	struct ibv_sge sge = whole(64);
	struct ibv_recv_wr recv = { .wr_id = 5, .sg_list = &sge, .num_sge = 1 }, *bad;
	for (int i = 0; i < 2; i++)
		CHECK(ibv_post_srq_recv(srq, &recv, &bad) == 0);
	struct ibv_srq_attr attr = { .srq_limit = 2 };
	CHECK(ibv_modify_srq(srq, &attr, IBV_SRQ_LIMIT) == 0);
	struct ibv_sge bytes = whole(8);
	struct ibv_send_wr wr = send_wr(6, IBV_WR_SEND, &bytes);
	post(a, &wr);
	poll_one(cq);
	poll_one(cq);
	struct ibv_async_event event = expect_async(IBV_EVENT_SRQ_LIMIT_REACHED);
	CHECK(event.element.srq == srq);
	ibv_ack_async_event(&event);

	struct ibv_qp_attr error = { .qp_state = IBV_QPS_ERR };
	CHECK(ibv_modify_qp(b, &error, IBV_QP_STATE) == 0);
	event = expect_async(IBV_EVENT_QP_LAST_WQE_REACHED);
	CHECK(event.element.qp == b);
	ibv_ack_async_event(&event);
	CHECK(ibv_destroy_qp(a) == 0 && ibv_destroy_qp(b) == 0);
	CHECK(ibv_destroy_srq(srq) == 0 && ibv_destroy_cq(cq) == 0);
}

int main(void)
{
	context = open_first();
	CHECK((pd = ibv_alloc_pd(context)));
	CHECK((channel = ibv_create_comp_channel(context)));
	CHECK((mr = ibv_reg_mr(pd, memory, sizeof(memory), ALL_ACCESS)));
	test_cancellation();
	test_completion_events();
	test_async_events();
	CHECK(ibv_dereg_mr(mr) == 0);
	CHECK(ibv_destroy_comp_channel(channel) == 0);
	CHECK(ibv_dealloc_pd(pd) == 0 && ibv_close_device(context) == 0);
	return 0;
}
