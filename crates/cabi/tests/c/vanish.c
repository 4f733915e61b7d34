/* Peers that vanish: killed, stopped, without their queue pair. Requests end with RETRY_EXC after
 * the time that the queue pair was given, or never where that is without end; and whatever goes on,
 * each call that destroys something returns. */
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>

#include "common.h"

#define PAIRS 16
#define CROWD 400
#define BYTES 65536

/* Memory that both processes see, for what they tell each other. */
struct board {
	uint32_t near[CROWD], far[CROWD], rkey, datagrams;
	uint64_t address;
	volatile int connected, near_ready, over, written;
};

enum task { WAITS, WRITES, TAKES_DATAGRAMS };

static struct board *board;
static struct ibv_context *context;
static struct ibv_pd *pd;
static struct ibv_cq *cq;
static struct ibv_mr *mr;
static struct ibv_qp *qps[CROWD];
static char memory[2 * BYTES] __attribute__((aligned(4096)));

/* The call returns zero, and soon. */
#define RETURNS(call)                                                                       \
	do {                                                                                \
		double start_ = seconds();                                                  \
		int result_ = (call);                                                       \
		if (result_ != 0 || seconds() - start_ > 2) {                               \
			fprintf(stderr, "%s:%d: %s gave %d after %.1f s\n", __FILE__,       \
				__LINE__, #call, result_, seconds() - start_);              \
			exit(1);                                                            \
		}                                                                           \
	} while (0)

static void wait_for(volatile int *flag, int value)
{
	double end = seconds() + 20;
	while (*flag != value) {
		CHECK(seconds() < end);
		usleep(500);
	}
}

static void open_all(int count)
{
	context = open_first();
	pd = ibv_alloc_pd(context);
	cq = ibv_create_cq(context, 4096, NULL, NULL, 0);
	mr = ibv_reg_mr(pd, memory, sizeof(memory), ALL_ACCESS);
	CHECK(pd && cq && mr);
	for (int i = 0; i < count; i++)
		qps[i] = make_qp(pd, cq, NULL, IBV_QPT_RC);
}

static void close_all(void)
{
	RETURNS(ibv_dereg_mr(mr));
	RETURNS(ibv_destroy_cq(cq));
	RETURNS(ibv_dealloc_pd(pd));
	RETURNS(ibv_close_device(context));
}

/* Far WRITEs, eight at a time on each queue pair, for as long as they succeed. */
static void write_on(int count)
{
	int lost = 0;
	struct ibv_sge sge = { (uintptr_t)memory, BYTES, mr->lkey };
	struct ibv_send_wr wr = send_wr(0, IBV_WR_RDMA_WRITE, &sge);
	wr.wr.rdma.remote_addr = board->address;
	wr.wr.rdma.rkey = board->rkey;
	for (int i = 0; i < 8 * count; i++)
		post(qps[i % count], &wr);
	while (!board->over && lost < 8 * count) {
		struct ibv_wc wc;
		struct ibv_send_wr *bad;
		if (ibv_poll_cq(cq, 1, &wc) != 1)
			continue;
		board->written++;
		if (wc.status != IBV_WC_SUCCESS)
			lost++;
		else
			for (int i = 0; i < count; i++)
				if (qps[i]->qp_num == wc.qp_num)
					ibv_post_send(qps[i], &wr, &bad);
	}
}

/* A datagram queue pair with as many receive requests as it takes. */
static struct ibv_qp *make_datagrams(int depth)
{
	struct ibv_qp_init_attr init = {
		.send_cq = cq,
		.recv_cq = cq,
		.cap = { .max_send_wr = depth, .max_recv_wr = depth, .max_send_sge = 1, .max_recv_sge = 1 },
		.qp_type = IBV_QPT_UD,
	};
	struct ibv_qp_attr attr = { .qp_state = IBV_QPS_INIT, .port_num = 1, .qkey = 5 };
	struct ibv_qp *qp = ibv_create_qp(pd, &init);
	CHECK(qp);
	CHECK(ibv_modify_qp(qp, &attr, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_QKEY) == 0);
	attr.qp_state = IBV_QPS_RTR;
	CHECK(ibv_modify_qp(qp, &attr, IBV_QP_STATE) == 0);
	attr.qp_state = IBV_QPS_RTS;
	CHECK(ibv_modify_qp(qp, &attr, IBV_QP_STATE | IBV_QP_SQ_PSN) == 0);
	for (int i = 0; i < depth; i++)
		post_recv(qp, i, memory, 256, mr->lkey);
	return qp;
}

static void take_datagrams(void)
{
	struct ibv_qp *qp = make_datagrams(512);
	struct ibv_wc wc;
	board->datagrams = qp->qp_num;
	board->connected = 1;
	for (;;)
		if (ibv_poll_cq(cq, 1, &wc) == 1)
			post_recv(qp, 0, memory, 256, mr->lkey);
}

static void far_side(int count, enum task task)
{
	open_all(count);
	for (int i = 0; i < count; i++)
		board->far[i] = qps[i]->qp_num;
	wait_for(&board->near_ready, 1);
	if (task == TAKES_DATAGRAMS)
		take_datagrams();
	for (int i = 0; i < count; i++) {
		connect_patient(qps[i], board->near[i], 12, 3);
		for (int j = 0; j < 8; j++)
			post_recv(qps[i], j, memory, BYTES, mr->lkey);
	}
	board->connected = 1;
	if (task == WRITES)
		write_on(count);
	wait_for(&board->over, 1);
	for (int i = 0; i < count; i++)
		RETURNS(ibv_destroy_qp(qps[i]));
	board->over = 2;
	sleep(50);
	_exit(0);
}

/* A process with as many queue pairs as this one, which are connected to them. */
static pid_t start(int count, enum task task, int timeout, int retries)
{
	memset(board, 0, sizeof(*board));
	fflush(NULL);
	pid_t child = fork();
	CHECK(child >= 0);
	if (child == 0) {
		alarm(55);
		far_side(count, task);
	}
	open_all(count);
	for (int i = 0; i < count; i++)
		board->near[i] = qps[i]->qp_num;
	board->rkey = mr->rkey;
	board->address = (uintptr_t)memory + BYTES;
	board->near_ready = 1;
	wait_for(&board->connected, 1);
	for (int i = 0; i < count; i++)
		connect_patient(qps[i], board->far[i], timeout, retries);
	return child;
}

static void end(pid_t child)
{
	kill(child, SIGKILL);
	CHECK(waitpid(child, NULL, 0) == child);
}

/* One request of each kind in turn. */
static void ask(int i)
{
	static const enum ibv_wr_opcode kinds[] = { IBV_WR_RDMA_WRITE, IBV_WR_RDMA_READ, IBV_WR_SEND,
						    IBV_WR_ATOMIC_FETCH_AND_ADD };
	struct ibv_sge sge = { (uintptr_t)memory, i % 4 == 3 ? 8 : 1 + i * 4001 % BYTES, mr->lkey };
	struct ibv_send_wr wr = send_wr(i, kinds[i % 4], &sge);
	wr.wr.rdma.remote_addr = board->address;
	if (i % 4 == 3)
		wr.wr.atomic.remote_addr = board->address;
	wr.wr.rdma.rkey = 0x1234;
	if (i % 4 == 3)
		wr.wr.atomic.rkey = 0x1234;
	post(qps[i], &wr);
}

static double patience(int timeout, int retries)
{
	/* A NIC in software does not wait for less than 16.8 ms (code 12). */
	return 4.096e-6 * (1 << (timeout < 12 ? 12 : timeout)) * (retries + 1);
}

enum end { KILLED, STOPPED, DESTROYED, ENDS };

/* All requests end as they have to, within the time. */
static void given_up(int count, int timeout, int retries, enum end how)
{
	pid_t child = start(count, WAITS, timeout, retries);
	if (how == KILLED)
		end(child);
	else if (how == STOPPED)
		kill(child, SIGSTOP), usleep(50000);
	else
		board->over = 1, wait_for(&board->over, 2);
	double begin = seconds(), least = patience(timeout, retries);
	for (int i = 0; i < count; i++)
		ask(i);
	for (int i = 0; i < count; i++) {
		struct ibv_wc wc = poll_one(cq);
		double took = seconds() - begin;
		if (wc.status != IBV_WC_RETRY_EXC_ERR || took < 0.9 * least || took > 2 * least + 1) {
			fprintf(stderr, "timeout %d, %d retries, end %d: %s after %.3f s, not %.3f\n",
				timeout, retries, how, ibv_wc_status_str(wc.status), took, least);
			exit(1);
		}
	}
	for (int i = 0; i < count; i++)
		RETURNS(ibv_destroy_qp(qps[i]));
	close_all();
	if (how != KILLED) {
		kill(child, SIGCONT);
		end(child);
	}
}

/* The program sleeps in the library meanwhile. */
static void given_up_while_asleep(void)
{
	pid_t child = start(1, WAITS, 13, 3);
	struct ibv_comp_channel *channel = ibv_create_comp_channel(context);
	struct ibv_cq *armed = ibv_create_cq(context, 16, NULL, channel, 0), *which;
	struct ibv_qp *qp = make_qp(pd, armed, NULL, IBV_QPT_RC);
	void *unused;
	connect_patient(qp, board->far[0] ^ 0x100, 13, 3);
	end(child);
	CHECK(ibv_req_notify_cq(armed, 0) == 0);
	struct ibv_sge sge = { (uintptr_t)memory, 64, mr->lkey };
	struct ibv_send_wr wr = send_wr(1, IBV_WR_SEND, &sge);
	double begin = seconds();
	post(qp, &wr);
	CHECK(ibv_get_cq_event(channel, &which, &unused) == 0);
	CHECK(seconds() - begin < 2 * patience(13, 3) + 1);
	CHECK(poll_one(armed).status == IBV_WC_RETRY_EXC_ERR);
	ibv_ack_cq_events(armed, 1);
	RETURNS(ibv_destroy_qp(qp));
	RETURNS(ibv_destroy_cq(armed));
	RETURNS(ibv_destroy_comp_channel(channel));
	RETURNS(ibv_destroy_qp(qps[0]));
	close_all();
}

/* Timeout code 0: for ever. */
static void never_given_up(void)
{
	pid_t child = start(PAIRS, WAITS, 0, 7);
	struct ibv_wc wc;
	end(child);
	for (int i = 0; i < PAIRS; i++)
		ask(i);
	double until = seconds() + 1.5;
	while (seconds() < until)
		CHECK(ibv_poll_cq(cq, 1, &wc) == 0);
	for (int i = 0; i < PAIRS / 2; i++) {
		struct ibv_qp_attr attr = { .qp_state = IBV_QPS_ERR };
		CHECK(ibv_modify_qp(qps[i], &attr, IBV_QP_STATE) == 0);
		wc = poll_one(cq);
		CHECK(wc.status == IBV_WC_WR_FLUSH_ERR && wc.wr_id == (uint64_t)i);
	}
	for (int i = 0; i < PAIRS; i++)
		RETURNS(ibv_destroy_qp(qps[i]));
	close_all();
}

static volatile int polling;

static void *poll_on(void *of)
{
	struct ibv_wc wc;
	while (polling)
		ibv_poll_cq(of, 1, &wc);
	return NULL;
}

/* Everything goes, in several orders, while both sides send, another thread polls, and the other
 * side may be killed. */
static void destroyed_in_traffic(int round)
{
	pid_t child = start(4, WRITES, 12, 1);
	pthread_t poller;
	polling = 1;
	CHECK(pthread_create(&poller, NULL, poll_on, cq) == 0);
	for (int i = 0; i < 4; i++)
		for (int j = 0; j < 8; j++)
			ask(i);
	double until = seconds() + 10;
	while (board->written < 16 && seconds() < until)
		usleep(100);
	CHECK(board->written >= 16);
	if (round & 1)
		kill(child, SIGKILL);
	if (round & 2)
		RETURNS(ibv_dereg_mr(mr));
	for (int i = 0; i < 4; i++)
		RETURNS(ibv_destroy_qp(qps[(i * 3 + round) % 4]));
	polling = 0;
	CHECK(pthread_join(poller, NULL) == 0);
	if (round & 4) {
		/* The device closes with the last of its objects. */
		int result = ibv_close_device(context);
		CHECK(result == 0 || result == EBUSY);
		if (!(round & 2))
			RETURNS(ibv_dereg_mr(mr));
		RETURNS(ibv_destroy_cq(cq));
		RETURNS(ibv_dealloc_pd(pd));
	} else {
		RETURNS(ibv_destroy_cq(cq));
		if (!(round & 2))
			RETURNS(ibv_dereg_mr(mr));
		RETURNS(ibv_dealloc_pd(pd));
		RETURNS(ibv_close_device(context));
	}
	board->over = 1;
	end(child);
}

static void send_datagrams(struct ibv_qp *qp, struct ibv_ah *ah, uint32_t to, int count, int id)
{
	struct ibv_sge sge = { (uintptr_t)memory + BYTES, 64, mr->lkey };
	struct ibv_send_wr wr = send_wr(id, IBV_WR_SEND, &sge);
	wr.wr.ud.ah = ah;
	wr.wr.ud.remote_qpn = to;
	wr.wr.ud.remote_qkey = 5;
	for (int i = 0; i < count; i++)
		post(qp, &wr);
}

/* Who serves several peers by one datagram queue pair is not held up for long by one that has been
 * killed, and not time and again. */
static void datagrams_to_the_dead(void)
{
	pid_t child = start(0, TAKES_DATAGRAMS, 0, 0);
	struct ibv_qp *server = make_datagrams(2048), *living = make_datagrams(64);
	struct ibv_ah_attr av = { .is_global = 1, .port_num = 1, .grh = { .hop_limit = 64 } };
	CHECK(ibv_query_gid(context, 1, 0, &av.grh.dgid) == 0);
	struct ibv_ah *ah = ibv_create_ah(pd, &av);
	CHECK(ah);
	send_datagrams(server, ah, board->datagrams, 1000, 1);
	for (int i = 0; i < 1000; i++)
		poll_good(cq, 1);
	end(child);
	/* Each time again would be a third of a second. */
	double later = 0;
	for (int turn = 0; turn < 10; turn++) {
		double begin = seconds(), took;
		send_datagrams(server, ah, board->datagrams, 600, 1);
		send_datagrams(server, ah, living->qp_num, 1, 2);
		for (int left = 602; left; left--) {
			struct ibv_wc wc = poll_one(cq);
			CHECK(wc.status == IBV_WC_SUCCESS);
		}
		took = seconds() - begin;

		later += turn ? took : 0;
		if (turn == 0)
			CHECK(took < 3);
	}
	CHECK(later < 1.3);
	RETURNS(ibv_destroy_ah(ah));
	RETURNS(ibv_destroy_qp(server));
	RETURNS(ibv_destroy_qp(living));
	close_all();
}

static void *acknowledge(void *event)
{
	usleep(200000);
	ibv_ack_async_event(event);
	return NULL;
}

static struct ibv_async_event next_event(enum ibv_event_type type)
{
	struct ibv_async_event event;
	struct pollfd fd = { .fd = context->async_fd, .events = POLLIN };
	CHECK(poll(&fd, 1, 5000) == 1 && ibv_get_async_event(context, &event) == 0);
	CHECK(event.event_type == type);
	return event;
}

/* By contract a queue pair and a shared queue wait for the acknowledgement of their events
 * (ibv_get_async_event(3)), and then go. */
static void events_unacknowledged(void)
{
	open_all(2);
	struct ibv_srq_init_attr init = { .attr = { .max_wr = 8, .max_sge = 1 } };
	struct ibv_srq *srq = ibv_create_srq(pd, &init);
	struct ibv_srq_attr low = { .srq_limit = 4 };
	pthread_t thread;
	CHECK(srq && ibv_modify_srq(srq, &low, IBV_SRQ_LIMIT) == 0);
	struct ibv_async_event event = next_event(IBV_EVENT_SRQ_LIMIT_REACHED);
	double begin = seconds();
	CHECK(pthread_create(&thread, NULL, acknowledge, &event) == 0);
	RETURNS(ibv_destroy_srq(srq));
	CHECK(seconds() - begin > 0.15 && pthread_join(thread, NULL) == 0);

	connect_pair(qps[0], qps[1]);
	struct ibv_sge sge = { (uintptr_t)memory, 64, mr->lkey };
	struct ibv_send_wr wr = send_wr(1, IBV_WR_RDMA_WRITE, &sge);
	wr.wr.rdma.remote_addr = (uintptr_t)memory;
	wr.wr.rdma.rkey = mr->rkey ^ 0x1000000;
	post(qps[0], &wr);
	CHECK(poll_one(cq).status == IBV_WC_REM_ACCESS_ERR);
	event = next_event(IBV_EVENT_QP_ACCESS_ERR);
	begin = seconds();
	CHECK(pthread_create(&thread, NULL, acknowledge, &event) == 0);
	RETURNS(ibv_destroy_qp(qps[1]));
	CHECK(seconds() - begin > 0.15 && pthread_join(thread, NULL) == 0);
	RETURNS(ibv_destroy_qp(qps[0]));
	close_all();
}

int main(void)
{
	static const int times[][2] = { { 8, 2 }, { 12, 0 }, { 12, 7 }, { 14, 1 }, { 15, 0 }, { 16, 2 } };
	alarm(58);
	board = mmap(NULL, sizeof(*board), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	CHECK(board != MAP_FAILED);
	for (size_t i = 0; i < sizeof(times) / sizeof(times[0]); i++)
		given_up(PAIRS, times[i][0], times[i][1], KILLED);
	for (enum end how = STOPPED; how < ENDS; how++)
		given_up(PAIRS, 13, 3, how);
	given_up(CROWD, 13, 3, KILLED);
	given_up_while_asleep();
	never_given_up();
	for (int round = 0; round < 8; round++)
		destroyed_in_traffic(round);
	datagrams_to_the_dead();
	events_unacknowledged();
	return 0;
}
