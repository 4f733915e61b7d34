/* Faults that happen once, as a program sees them: the asynchronous event with its object, the
 * state of port and queue pair, the completions. Each in a child of its own, for they are read when
 * a device is opened. */
#include <poll.h>
#include <sys/wait.h>

#include "common.h"

static char memory[4096];

/* When the faults happen that do so at a time, in milliseconds after the device was opened. */
static int fault_ms;
/* Until when what is looked at now holds, if a fault is to end it. */
static double holds_until = 1e18;
/* The exit status of a child that came too late to see what it was to see. */
#define LATE 77

static void leaves(int status, void *unused)
{
	(void)unused;
	if (status != 0 && seconds() > holds_until)
		_exit(LATE);
}

struct pair {
	struct ibv_context *context;
	struct ibv_cq *cq;
	struct ibv_qp *a, *b;
	struct ibv_mr *mr;
};

/* `faults` may have %1$d where the time goes. */
static struct pair open_pair(const char *faults)
{
	char plan[64];
	snprintf(plan, sizeof(plan), faults, fault_ms);
	CHECK(setenv("CROCEVIA_FAULTS", plan, 1) == 0);
	struct pair p = { .context = open_first() };
	struct ibv_pd *pd = ibv_alloc_pd(p.context);
	p.cq = ibv_create_cq(p.context, 64, NULL, NULL, 0);
	p.mr = ibv_reg_mr(pd, memory, sizeof(memory), ALL_ACCESS);
	CHECK(pd && p.cq && p.mr);
	p.a = make_qp(pd, p.cq, NULL, IBV_QPT_RC);
	p.b = make_qp(pd, p.cq, NULL, IBV_QPT_RC);
	connect_pair(p.a, p.b);
	return p;
}

static void write_8(struct pair *p, uint64_t wr_id)
{
	struct ibv_sge sge = { (uintptr_t)memory, 8, p->mr->lkey };
	struct ibv_send_wr wr = send_wr(wr_id, IBV_WR_RDMA_WRITE, &sge);
	wr.wr.rdma.remote_addr = (uintptr_t)memory + 64;
	wr.wr.rdma.rkey = p->mr->rkey;
	post(p->a, &wr);
}

/* The next event, which must be of this type and come within five seconds, or when it is due. */
static struct ibv_async_event event(struct pair *p, enum ibv_event_type type)
{
	struct ibv_async_event got;
	struct pollfd fd = { .fd = p->context->async_fd, .events = POLLIN };
	CHECK(poll(&fd, 1, 5000 + 2 * fault_ms) == 1);
	CHECK(ibv_get_async_event(p->context, &got) == 0);
	if (got.event_type != type) {
		fprintf(stderr, "event %s, expected %s\n", ibv_event_type_str(got.event_type),
			ibv_event_type_str(type));
		exit(1);
	}
	ibv_ack_async_event(&got);
	return got;
}

static void no_event(struct pair *p)
{
	struct pollfd fd = { .fd = p->context->async_fd, .events = POLLIN };
	CHECK(poll(&fd, 1, 50) == 0);
}

static void check_port(struct pair *p, enum ibv_port_state state)
{
	struct ibv_port_attr attr;
	CHECK(ibv_query_port(p->context, 1, &attr) == 0);
	CHECK(attr.state == state);
}

static void check_qp(struct ibv_qp *qp, enum ibv_qp_state state)
{
	struct ibv_qp_attr attr;
	struct ibv_qp_init_attr init;
	CHECK(ibv_query_qp(qp, &attr, IBV_QP_STATE, &init) == 0);
	CHECK(attr.qp_state == state);
}

static void flushed(struct pair *p, uint64_t wr_id)
{
	struct ibv_wc wc = poll_one(p->cq);
	CHECK(wc.status == IBV_WC_WR_FLUSH_ERR && wc.wr_id == wr_id);
}

/* No call of the program drives the device while the port changes. */
static void port(void)
{
	double opened = seconds(), span = fault_ms * 1e-3;
	holds_until = opened + span;
	struct pair p = open_pair("fail=port_down@%1$dms/%1$dms");
	check_port(&p, IBV_PORT_ACTIVE);
	write_8(&p, 1);
	poll_good(p.cq, 1);
	CHECK(event(&p, IBV_EVENT_PORT_ERR).element.port_num == 1);
	CHECK(seconds() >= opened + span);
	holds_until = opened + 2 * span;
	check_port(&p, IBV_PORT_DOWN);
	write_8(&p, 2);
	struct ibv_wc wc;
	CHECK(ibv_poll_cq(p.cq, 1, &wc) == 0);
	CHECK(event(&p, IBV_EVENT_PORT_ACTIVE).element.port_num == 1);
	CHECK(seconds() >= opened + 2 * span);
	holds_until = 1e18;
	check_port(&p, IBV_PORT_ACTIVE);
	poll_good(p.cq, 2);
}

static void qp_error(void)
{
	struct pair p = open_pair("tx.fail=qp_error@3");
	/* One packet there and its acknowledgement back are two that this device sends, if it is
	 * not so slow that it asks once more. */
	holds_until = seconds() + 500e-6;
	write_8(&p, 1);
	poll_good(p.cq, 1);
	write_8(&p, 2);
	CHECK(event(&p, IBV_EVENT_QP_FATAL).element.qp == p.a);
	flushed(&p, 2);
	check_qp(p.a, IBV_QPS_ERR);
	check_qp(p.b, IBV_QPS_RTS);
	write_8(&p, 3);
	flushed(&p, 3);
	no_event(&p);
}

static void cq_overrun(void)
{
	struct pair p = open_pair("tx.fail=cq_overrun@1");
	write_8(&p, 1);
	CHECK(event(&p, IBV_EVENT_CQ_ERR).element.cq == p.cq);
	event(&p, IBV_EVENT_QP_FATAL);
	event(&p, IBV_EVENT_QP_FATAL);
	check_qp(p.a, IBV_QPS_ERR);
	check_qp(p.b, IBV_QPS_ERR);
}

static void device_fatal(void)
{
	holds_until = seconds() + fault_ms * 1e-3;
	struct pair p = open_pair("fail=device_fatal@%dms");
	post_recv(p.b, 5, memory, 8, p.mr->lkey);
	event(&p, IBV_EVENT_DEVICE_FATAL);
	holds_until = 1e18;
	flushed(&p, 5);
	check_qp(p.a, IBV_QPS_ERR);
	check_port(&p, IBV_PORT_DOWN);
	write_8(&p, 6);
	flushed(&p, 6);
	no_event(&p);
}

/* The refused request's own end sees its event, the other one the error. */
static void refused(void)
{
	struct pair p = open_pair("fail=nak_access@1");
	write_8(&p, 1);
	CHECK(event(&p, IBV_EVENT_QP_ACCESS_ERR).element.qp == p.b);
	struct ibv_wc wc = poll_one(p.cq);
	CHECK(wc.status == IBV_WC_REM_ACCESS_ERR && wc.wr_id == 1);
	check_qp(p.b, IBV_QPS_ERR);
}

/* The exit status of a case, run in a child. */
static int run(void (*test)(void))
{
	int status;
	pid_t child = fork();
	CHECK(child >= 0);
	if (child == 0) {
		CHECK(on_exit(leaves, NULL) == 0);
		test();
		exit(0);
	}
	CHECK(waitpid(child, &status, 0) == child);
	return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

int main(void)
{
	void (*cases[])(void) = { port, qp_error, cq_overrun, device_fatal, refused };
	for (unsigned i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		int status = LATE;
		/* A machine that is too busy to look in time gets more of it. */
		for (fault_ms = 300; status == LATE && fault_ms < 10000; fault_ms *= 3)
			status = run(cases[i]);
		if (status != 0)
			fprintf(stderr, "case %u: %d\n", i, status);
		CHECK(status == 0);
	}
	/* What is no plan is told when a device is opened, and not followed. */
	CHECK(setenv("CROCEVIA_FAULTS", "fail=qp_error", 1) == 0);
	int count = 0;
	struct ibv_device **list = ibv_get_device_list(&count);
	CHECK(!list || count == 0 || !ibv_open_device(list[0]));
	return 0;
}
