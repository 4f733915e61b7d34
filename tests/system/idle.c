/* A process that has done this or that with a NIC, and now waits: what idle.py measures.
 *
 *     idle KIND
 *
 * KIND is one of those below. The program forks; parent and child each have a NIC on the same
 * address, and are connected. It prints `idle PID PID` when nothing more happens. */
#include <errno.h>
#include <infiniband/verbs.h>
#include <poll.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#define PAIRS 8
#define CHECK(what)                                                                          \
	do {                                                                                 \
		if (!(what)) {                                                               \
			fprintf(stderr, "%s:%d: %s (errno %d)\n", __FILE__, __LINE__, #what, \
				errno);                                                      \
			exit(1);                                                             \
		}                                                                            \
	} while (0)

enum kind { OPEN, CONNECTED, EVENT, TRAFFIC, DATAGRAMS, VANISHED, FOR_EVER, NO_RECEIVE, KINDS };
static const char *const names[] = { "open",      "connected", "event",    "traffic",
				     "datagrams", "vanished",  "for-ever", "no-receive" };

struct side {
	uint32_t qpn[PAIRS], datagram_qpn, rkey;
	uint64_t address;
	volatile int opened, stage;
};

static struct side *sides;
static int me;
static enum kind kind;
static char memory[65536] __attribute__((aligned(4096)));
static struct ibv_context *context;
static struct ibv_pd *pd;
static struct ibv_comp_channel *channel;
static struct ibv_cq *cq;
static struct ibv_mr *mr;
static struct ibv_qp *qps[PAIRS], *datagram_qp;
static struct ibv_ah *ah, *group_ah;

static void meet(int stage)
{
	sides[me].stage = stage;
	while (sides[!me].stage < stage)
		usleep(500);
}

static struct ibv_qp *make_qp(enum ibv_qp_type type)
{
	struct ibv_qp_init_attr init = {
		.send_cq = cq,
		.recv_cq = cq,
		.cap = { .max_send_wr = 512, .max_recv_wr = 512, .max_send_sge = 1, .max_recv_sge = 1 },
		.qp_type = type,
	};
	struct ibv_qp *qp = ibv_create_qp(pd, &init);
	CHECK(qp);
	struct ibv_qp_attr attr = { .qp_state = IBV_QPS_INIT, .port_num = 1, .qkey = 7,
				    .qp_access_flags = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE };
	int last = type == IBV_QPT_UD ? IBV_QP_QKEY : IBV_QP_ACCESS_FLAGS;
	CHECK(ibv_modify_qp(qp, &attr, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | last) == 0);
	return qp;
}

static void post_recv(struct ibv_qp *qp)
{
	struct ibv_sge sge = { (uintptr_t)memory, 4096, mr->lkey };
	struct ibv_recv_wr wr = { .sg_list = &sge, .num_sge = 1 }, *bad;
	CHECK(ibv_post_recv(qp, &wr, &bad) == 0);
}

static void connect_to(struct ibv_qp *qp, uint32_t dest, struct ibv_ah_attr av)
{
	struct ibv_qp_attr attr = { .qp_state = IBV_QPS_RTR, .path_mtu = IBV_MTU_4096, .dest_qp_num = dest,
				    .max_dest_rd_atomic = 4, .min_rnr_timer = 20, .ah_attr = av };
	CHECK(ibv_modify_qp(qp, &attr,
			    IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
				    IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER) == 0);
	attr.qp_state = IBV_QPS_RTS;
	attr.timeout = kind == FOR_EVER ? 0 : kind == VANISHED ? 12 : 15;
	attr.retry_cnt = kind == VANISHED ? 2 : 7;
	attr.rnr_retry = 3;
	attr.max_rd_atomic = 4;
	CHECK(ibv_modify_qp(qp, &attr,
			    IBV_QP_STATE | IBV_QP_SQ_PSN | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT |
				    IBV_QP_RNR_RETRY | IBV_QP_MAX_QP_RD_ATOMIC) == 0);
}

static void open_all(void)
{
	struct ibv_device **list = ibv_get_device_list(NULL);
	CHECK(list && list[0] && (context = ibv_open_device(list[0])));
	ibv_free_device_list(list);
	sides[me].opened = 1;
	if (kind == OPEN)
		return;
	CHECK((pd = ibv_alloc_pd(context)) && (channel = ibv_create_comp_channel(context)));
	CHECK((cq = ibv_create_cq(context, 8192, NULL, channel, 0)));
	CHECK((mr = ibv_reg_mr(pd, memory, sizeof(memory), IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE)));
	struct ibv_ah_attr av = { .is_global = 1, .port_num = 1, .grh = { .hop_limit = 64 } }, group;
	CHECK(ibv_query_gid(context, 1, 0, &av.grh.dgid) == 0);
	group = av;
	memcpy(group.grh.dgid.raw + 12, (char[]){ (char)239, 1, 22, 9 }, 4);
	for (int i = 0; i < PAIRS; i++)
		sides[me].qpn[i] = (qps[i] = make_qp(IBV_QPT_RC))->qp_num;
	datagram_qp = make_qp(IBV_QPT_UD);
	struct ibv_qp_attr attr = { .qp_state = IBV_QPS_RTR };
	CHECK(ibv_modify_qp(datagram_qp, &attr, IBV_QP_STATE) == 0);
	attr.qp_state = IBV_QPS_RTS;
	CHECK(ibv_modify_qp(datagram_qp, &attr, IBV_QP_STATE | IBV_QP_SQ_PSN) == 0);
	CHECK((ah = ibv_create_ah(pd, &av)) && (group_ah = ibv_create_ah(pd, &group)));
	if (kind == DATAGRAMS)
		CHECK(ibv_attach_mcast(datagram_qp, &group.grh.dgid, 0) == 0);
	sides[me].datagram_qpn = datagram_qp->qp_num;
	sides[me].rkey = mr->rkey;
	sides[me].address = (uintptr_t)memory;
	meet(1);
	for (int i = 0; i < PAIRS; i++)
		connect_to(qps[i], sides[!me].qpn[i], av);
	meet(2);
}

static void send(struct ibv_qp *qp, enum ibv_wr_opcode opcode, struct ibv_ah *to, uint32_t qpn)
{
	struct ibv_sge sge = { (uintptr_t)memory, 4000, mr->lkey };
	struct ibv_send_wr wr = { .sg_list = &sge, .num_sge = 1, .opcode = opcode,
				  .send_flags = IBV_SEND_SIGNALED }, *bad;
	if (to) {
		wr.wr.ud.ah = to;
		wr.wr.ud.remote_qpn = qpn;
		wr.wr.ud.remote_qkey = 7;
	} else {
		wr.wr.rdma.remote_addr = sides[!me].address;
		wr.wr.rdma.rkey = sides[!me].rkey;
	}
	CHECK(ibv_post_send(qp, &wr, &bad) == 0);
}

/* Waits for completions with this status, asleep like a program that takes events. */
static void take(int count, enum ibv_wc_status status)
{
	while (count > 0) {
		struct ibv_wc wc;
		if (ibv_poll_cq(cq, 1, &wc) == 1) {
			CHECK(wc.status == (wc.qp_num == datagram_qp->qp_num ? IBV_WC_SUCCESS : status) ||
			      wc.status == IBV_WC_WR_FLUSH_ERR);
			count--;
			continue;
		}
		CHECK(ibv_req_notify_cq(cq, 0) == 0);
		struct pollfd fd = { .fd = channel->fd, .events = POLLIN };
		struct ibv_cq *which;
		void *unused;
		if (poll(&fd, 1, 20) == 1) {
			CHECK(ibv_get_cq_event(channel, &which, &unused) == 0);
			ibv_ack_cq_events(cq, 1);
		}
	}
}

static void work(void)
{
	switch (kind) {
	case TRAFFIC:
		for (int i = 0; i < 2000; i++) {
			send(qps[i % PAIRS], IBV_WR_RDMA_WRITE, NULL, 0);
			if (i % 32 == 31)
				take(32, IBV_WC_SUCCESS);
		}
		take(2000 % 32, IBV_WC_SUCCESS);
		break;
	case DATAGRAMS:
		for (int i = 0; i < 200; i++)
			post_recv(datagram_qp);
		meet(3);
		for (int i = 0; i < 50; i++)
			send(datagram_qp, IBV_WR_SEND, i % 2 ? ah : group_ah,
			     i % 2 ? sides[!me].datagram_qpn : 0xFFFFFF);
		take(50, IBV_WC_SUCCESS);
		break;
	case VANISHED:
	case FOR_EVER:
		/* The child goes; datagrams to it have nobody to say that they were taken. */
		if (me == 1)
			kill(getpid(), SIGKILL);
		CHECK(wait(NULL) > 0);
		for (int i = 0; i < 400; i++)
			send(datagram_qp, IBV_WR_SEND, ah, sides[1].datagram_qpn);
		for (int i = 0; i < PAIRS; i++)
			for (int j = 0; j < 8; j++)
				send(qps[i], IBV_WR_RDMA_WRITE, NULL, 0);
		if (kind == VANISHED)
			take(400 + 8 * PAIRS, IBV_WC_RETRY_EXC_ERR);
		break;
	case NO_RECEIVE:
		if (me == 0)
			for (int i = 0; i < PAIRS; i++)
				send(qps[i], IBV_WR_SEND, NULL, 0);
		if (me == 0)
			take(PAIRS, IBV_WC_RNR_RETRY_EXC_ERR);
		break;
	default:
		break;
	}
}

int main(int argc, char **argv)
{
	for (kind = 0; kind < KINDS && (argc < 2 || strcmp(argv[1], names[kind]) != 0); kind++)
		continue;
	if (kind == KINDS)
		return 2;
	sides = mmap(NULL, 2 * sizeof(*sides), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	CHECK(sides != MAP_FAILED);
	/* The parent's NIC is there first. */
	pid_t parent = getpid(), child = fork();
	CHECK(child >= 0);
	me = child == 0;
	if (me) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		while (!sides[0].opened)
			usleep(500);
	}
	open_all();
	work();
	if (kind != VANISHED && kind != FOR_EVER)
		meet(4);
	if (!me) {
		printf("idle %d %d\n", parent, child);
		fflush(stdout);
	}
	if (kind == EVENT) {
		struct ibv_cq *which;
		void *unused;
		CHECK(ibv_req_notify_cq(cq, 0) == 0);
		ibv_get_cq_event(channel, &which, &unused);
	}
	for (;;)
		pause();
}
