/* One process of a pair that exchanges messages of every kind over a reliable connection, datagrams
 * beside them, until it is told to leave or is killed: what kill.py starts and kills. All that it
 * knows of others stands in a file that they map, the board; all that it finds it writes there:
 *
 *     pair BOARD INDEX INCARNATION [events]
 *
 * Processes 2n and 2n + 1 are a pair. Each message is checked byte for byte, each in its order. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <infiniband/verbs.h>
#include <poll.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#define SLOTS 16
#define RECEIVES 64
#define LARGEST 32768
#define DATAGRAM 512
#define DATAGRAMS 16
#define ROUNDS 4096
#define PAIRS 4

/* The board; kill.py knows its layout. */
struct record {
	uint64_t incarnation, stage, published, qpn, datagram_qpn, rkey, address, ready;
	uint64_t ended, status, ended_at, fault, sent, received, datagrams_sent, datagrams_received;
	uint64_t multicasts, last, datagram_wait, spare[13];
	/* Longest time between two completions, and between two looks at the queue, in a round. */
	uint32_t gap[ROUNDS], pause[ROUNDS];
};

struct board {
	uint64_t round, stop, timeout, retries, sessions[PAIRS], leave[2 * PAIRS], spare[48];
	struct record records[2 * PAIRS];
};

enum { RECEIVE = 1 << 8, DATAGRAM_OUT = 2 << 8, DATAGRAM_IN = 3 << 8, KIND = 0xFF00 };

/* One request that is outstanding, or what the next one of its slot has to look at. */
struct slot {
	enum ibv_wr_opcode opcode;
	uint64_t seed, counter;
	uint32_t length;
	int busy, read_back;
};

struct memory {
	char local[SLOTS][LARGEST], target[SLOTS][LARGEST], receive[RECEIVES][LARGEST];
	char out[DATAGRAMS][DATAGRAM], in[RECEIVES][DATAGRAM + 40];
	uint64_t counters[SLOTS];
};

static volatile struct board *board;
static volatile struct record *mine, *other;
static int me, events;
static uint64_t incarnation, random_state, sent_messages, received_messages, last_look;
static struct memory *memory;
static struct ibv_context *context;
static struct ibv_pd *pd;
static struct ibv_comp_channel *channel;
static struct ibv_cq *cq;
static struct ibv_mr *mr;
static struct ibv_qp *qp, *datagram_qp;
static struct ibv_ah *unicast, *multicast;
static struct slot slots[SLOTS];
static uint64_t datagram_since[DATAGRAMS];

static uint64_t now_ns(void)
{
	struct timespec now;
	clock_gettime(CLOCK_MONOTONIC, &now);
	return now.tv_sec * 1000000000ull + now.tv_nsec;
}

/* Ends with the line of what was not as it has to be. */
static void fault(int line, const char *what)
{
	if (!mine->fault)
		mine->fault = line;
	fprintf(stderr, "process %d: line %d: %s (errno %d)\n", me, line, what, errno);
	_exit(3);
}

#define CHECK(what) ((what) ? (void)0 : fault(__LINE__, #what))

static uint64_t draw(void)
{
	random_state ^= random_state << 13;
	random_state ^= random_state >> 7;
	return random_state ^= random_state << 17;
}

/* The bytes of a message that begins with a seed. */
static void fill(char *at, uint32_t length, uint64_t seed)
{
	for (uint32_t i = 0; i < length; i += 8) {
		uint64_t word = seed + i * 0x9E3779B97F4A7C15ull;
		memcpy(at + i, &word, length - i < 8 ? length - i : 8);
	}
}

static int holds(const char *at, uint32_t length, uint64_t seed)
{
	for (uint32_t i = 0; i < length; i += 8) {
		uint64_t word = seed + i * 0x9E3779B97F4A7C15ull;
		if (memcmp(at + i, &word, length - i < 8 ? length - i : 8))
			return 0;
	}
	return 1;
}

static int is_over(void)
{
	return board->stop || board->leave[me] == incarnation;
}

static uint64_t session(void)
{
	return board->sessions[me / 2];
}

static struct ibv_qp *make_qp(enum ibv_qp_type type)
{
	struct ibv_qp_init_attr init = {
		.send_cq = cq,
		.recv_cq = cq,
		.cap = { .max_send_wr = 64, .max_recv_wr = RECEIVES, .max_send_sge = 1, .max_recv_sge = 1 },
		.qp_type = type,
	};
	struct ibv_qp *made = ibv_create_qp(pd, &init);
	CHECK(made);
	struct ibv_qp_attr attr = { .qp_state = IBV_QPS_INIT, .port_num = 1, .qkey = 7,
				    .qp_access_flags = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE |
						       IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC };
	int last = type == IBV_QPT_UD ? IBV_QP_QKEY : IBV_QP_ACCESS_FLAGS;
	CHECK(ibv_modify_qp(made, &attr, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | last) == 0);
	return made;
}

static void receive(struct ibv_qp *of, uint64_t id, void *at, uint32_t length)
{
	struct ibv_sge sge = { (uintptr_t)at, length, mr->lkey };
	struct ibv_recv_wr wr = { .wr_id = id, .sg_list = &sge, .num_sge = 1 }, *bad;
	CHECK(ibv_post_recv(of, &wr, &bad) == 0);
}

static struct ibv_ah_attr address(int group)
{
	struct ibv_ah_attr attr = { .is_global = 1, .port_num = 1, .grh = { .hop_limit = 64 } };
	union ibv_gid *gid = &attr.grh.dgid;
	CHECK(ibv_query_gid(context, 1, 0, gid) == 0);
	int four = gid->raw[0] == 0;
	four = four && gid->raw[10] == 0xFF;
	if (group && four) {
		memcpy(gid->raw + 12, (char[]){ (char)239, 1, 22, 7 }, 4);
	} else if (group) {
		memset(gid, 0, sizeof(*gid));
		memcpy(gid->raw, (char[]){ (char)0xFF, 0x11 }, 2);
		gid->raw[15] = 22;
	}
	return attr;
}

static void open_all(void)
{
	struct ibv_device **list = ibv_get_device_list(NULL);
	CHECK(list && list[0]);
	context = ibv_open_device(list[0]);
	CHECK(context);
	ibv_free_device_list(list);
	mine->stage = 2;
	pd = ibv_alloc_pd(context);
	channel = ibv_create_comp_channel(context);
	CHECK(pd && channel);
	cq = ibv_create_cq(context, 512, NULL, channel, 0);
	CHECK(posix_memalign((void **)&memory, 4096, sizeof(*memory)) == 0);
	memset(memory, 0, sizeof(*memory));
	mr = ibv_reg_mr(pd, memory, sizeof(*memory),
			IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ |
				IBV_ACCESS_REMOTE_ATOMIC);
	CHECK(cq && mr);
	mine->stage = 3;
	datagram_qp = make_qp(IBV_QPT_UD);
	struct ibv_qp_attr attr = { .qp_state = IBV_QPS_RTR };
	CHECK(ibv_modify_qp(datagram_qp, &attr, IBV_QP_STATE) == 0);
	attr.qp_state = IBV_QPS_RTS;
	CHECK(ibv_modify_qp(datagram_qp, &attr, IBV_QP_STATE | IBV_QP_SQ_PSN) == 0);
	for (int i = 0; i < RECEIVES; i++)
		receive(datagram_qp, DATAGRAM_IN | i, memory->in[i], sizeof(memory->in[i]));
	struct ibv_ah_attr near = address(0), group = address(1);
	CHECK((unicast = ibv_create_ah(pd, &near)));
	multicast = ibv_create_ah(pd, &group);
	/* Where there is no route for groups there are none. */
	if (multicast && ibv_attach_mcast(datagram_qp, &group.grh.dgid, 0) != 0) {
		ibv_destroy_ah(multicast);
		multicast = NULL;
	}
	mine->stage = 4;
}

static void close_all(void)
{
	struct ibv_ah_attr group = address(1);
	if (multicast)
		CHECK(ibv_detach_mcast(datagram_qp, &group.grh.dgid, 0) == 0 && ibv_destroy_ah(multicast) == 0);
	CHECK(ibv_destroy_ah(unicast) == 0 && ibv_destroy_qp(datagram_qp) == 0);
	CHECK(ibv_dereg_mr(mr) == 0 && ibv_destroy_cq(cq) == 0);
	CHECK(ibv_destroy_comp_channel(channel) == 0);
	CHECK(ibv_dealloc_pd(pd) == 0 && ibv_close_device(context) == 0);
}

static void send_datagram(struct ibv_ah *to, uint32_t qpn)
{
	int i = 0;
	while (i < DATAGRAMS && datagram_since[i])
		i++;
	if (i == DATAGRAMS || !to || !qpn)
		return;
	datagram_since[i] = now_ns();
	fill(memory->out[i], DATAGRAM, draw());
	struct ibv_sge sge = { (uintptr_t)memory->out[i], DATAGRAM, mr->lkey };
	struct ibv_send_wr wr = { .wr_id = DATAGRAM_OUT | i, .sg_list = &sge, .num_sge = 1,
				  .opcode = IBV_WR_SEND, .send_flags = IBV_SEND_SIGNALED }, *bad;
	wr.wr.ud.ah = to;
	wr.wr.ud.remote_qpn = qpn;
	wr.wr.ud.remote_qkey = 7;
	CHECK(ibv_post_send(datagram_qp, &wr, &bad) == 0);
	mine->datagrams_sent++;
}

static void start(int i)
{
	static const uint32_t lengths[] = { 0, 1, 8, 64, 1000, 4096, 4097, 16384, LARGEST };
	static const enum ibv_wr_opcode opcodes[] = {
		IBV_WR_RDMA_WRITE, IBV_WR_RDMA_WRITE_WITH_IMM, IBV_WR_SEND, IBV_WR_SEND_WITH_IMM,
		IBV_WR_ATOMIC_FETCH_AND_ADD, IBV_WR_ATOMIC_CMP_AND_SWP,
	};
	struct slot *s = &slots[i];
	struct ibv_sge sge = { (uintptr_t)memory->local[i], 0, mr->lkey };
	struct ibv_send_wr wr = { .wr_id = i, .sg_list = &sge, .num_sge = 1,
				  .send_flags = IBV_SEND_SIGNALED }, *bad;
	uint64_t far = other->address;
	s->opcode = s->read_back ? IBV_WR_RDMA_READ : opcodes[draw() % 6];
	if (!s->read_back)
		s->length = lengths[draw() % 9];
	s->busy = 1;
	wr.opcode = s->opcode;
	wr.wr.rdma.remote_addr = far + offsetof(struct memory, target[i]);
	wr.wr.rdma.rkey = other->rkey;
	switch (s->opcode) {
	case IBV_WR_RDMA_READ:
		memset(memory->local[i], 0, s->length);
		break;
	case IBV_WR_ATOMIC_FETCH_AND_ADD:
	case IBV_WR_ATOMIC_CMP_AND_SWP:
		s->length = 8;
		wr.wr.atomic.remote_addr = far + offsetof(struct memory, counters[i]);
		wr.wr.atomic.compare_add = s->opcode == IBV_WR_ATOMIC_FETCH_AND_ADD ? 1 : s->counter;
		wr.wr.atomic.swap = s->counter + 1;
		wr.wr.atomic.rkey = other->rkey;
		break;
	case IBV_WR_RDMA_WRITE:
		s->seed = draw();
		fill(memory->local[i], s->length, s->seed);
		break;
	default:
		/* The messages that the peer is told of count. */
		s->seed = sent_messages++;
		wr.imm_data = htobe32(s->seed);
		fill(memory->local[i], s->length, s->seed);
	}
	sge.length = s->length;
	CHECK(ibv_post_send(qp, &wr, &bad) == 0);
}

static void finished(int i)
{
	struct slot *s = &slots[i];
	CHECK(s->busy);
	s->busy = 0;
	mine->sent++;
	if (s->opcode == IBV_WR_RDMA_READ)
		CHECK(holds(memory->local[i], s->length, s->seed));
	if (s->opcode == IBV_WR_ATOMIC_FETCH_AND_ADD || s->opcode == IBV_WR_ATOMIC_CMP_AND_SWP)
		CHECK(memcmp(memory->local[i], &s->counter, 8) == 0 && ++s->counter);
	s->read_back = s->opcode == IBV_WR_RDMA_WRITE || s->opcode == IBV_WR_RDMA_WRITE_WITH_IMM;
}

static void arrived(const struct ibv_wc *wc)
{
	int i = wc->wr_id & 0xFF;
	uint64_t n = received_messages++;
	mine->received++;
	if (wc->wc_flags & IBV_WC_WITH_IMM)
		CHECK(be32toh(wc->imm_data) == (uint32_t)n);
	if (wc->opcode == IBV_WC_RECV)
		CHECK(holds(memory->receive[i], wc->byte_len, n));
	receive(qp, RECEIVE | i, memory->receive[i], LARGEST);
}

static void datagram(const struct ibv_wc *wc)
{
	int i = wc->wr_id & 0xFF;
	CHECK(wc->status == IBV_WC_SUCCESS);
	if ((wc->wr_id & KIND) == DATAGRAM_OUT) {
		uint64_t took = now_ns() - datagram_since[i];
		datagram_since[i] = 0;
		if (took > mine->datagram_wait)
			mine->datagram_wait = took;
		return;
	}
	uint64_t seed;
	memcpy(&seed, memory->in[i] + 40, 8);
	CHECK(wc->byte_len == DATAGRAM + 40 && holds(memory->in[i] + 40, DATAGRAM, seed));
	mine->datagrams_received++;
	mine->multicasts += wc->src_qp != other->datagram_qpn;
	receive(datagram_qp, DATAGRAM_IN | i, memory->in[i], sizeof(memory->in[i]));
}

static void note(volatile uint32_t *most, uint64_t ns)
{
	if (ns / 1000 > *most)
		*most = ns / 1000;
}

/* Takes what has completed; the status of the first request that failed. */
static enum ibv_wc_status take(void)
{
	struct ibv_wc wc[32];
	uint64_t now = now_ns();
	if (last_look)
		note(&mine->pause[board->round % ROUNDS], now - last_look);
	last_look = now;
	int n = ibv_poll_cq(cq, 32, wc);
	CHECK(n >= 0);
	for (int i = 0; i < n; i++) {
		uint64_t kind = wc[i].wr_id & KIND;
		if (kind == DATAGRAM_OUT || kind == DATAGRAM_IN) {
			datagram(&wc[i]);
			continue;
		}
		if (wc[i].status != IBV_WC_SUCCESS)
			return wc[i].status;
		now = now_ns();
		if (mine->last)
			note(&mine->gap[board->round % ROUNDS], now - mine->last);
		mine->last = now;
		if (kind == RECEIVE)
			arrived(&wc[i]);
		else
			finished(wc[i].wr_id);
	}
	if (n == 0 && events) {
		CHECK(ibv_req_notify_cq(cq, 0) == 0);
		struct pollfd fd = { .fd = channel->fd, .events = POLLIN };
		if (cq && poll(&fd, 1, 2) == 1) {
			struct ibv_cq *which;
			void *unused;
			CHECK(ibv_get_cq_event(channel, &which, &unused) == 0);
			ibv_ack_cq_events(cq, 1);
		}
		last_look = 0;
	}
	return IBV_WC_SUCCESS;
}

/* Waits until the partner has come so far in the session; 0 if there is another one. */
static int await(volatile uint64_t *field, uint64_t of)
{
	while (*field != of) {
		if (is_over() || session() != of)
			return 0;
		CHECK(take() == IBV_WC_SUCCESS);
		usleep(200);
	}
	return 1;
}

static void connect_to(uint32_t dest)
{
	struct ibv_qp_attr attr = { .qp_state = IBV_QPS_RTR, .path_mtu = IBV_MTU_4096, .dest_qp_num = dest,
				    .max_dest_rd_atomic = 8, .min_rnr_timer = 1, .ah_attr = address(0) };
	CHECK(ibv_modify_qp(qp, &attr,
			    IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
				    IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER) == 0);
	attr.qp_state = IBV_QPS_RTS;
	attr.timeout = board->timeout;
	attr.retry_cnt = board->retries;
	attr.rnr_retry = 7;
	attr.max_rd_atomic = 8;
	CHECK(ibv_modify_qp(qp, &attr,
			    IBV_QP_STATE | IBV_QP_SQ_PSN | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT |
				    IBV_QP_RNR_RETRY | IBV_QP_MAX_QP_RD_ATOMIC) == 0);
}

/* Traffic, until something fails or the process is to leave. */
static void exchange(uint64_t of)
{
	uint64_t looks = 0, before = mine->sent, registered = mine->sent;
	enum ibv_wc_status status = IBV_WC_SUCCESS;
	last_look = mine->last = 0;
	while (status == IBV_WC_SUCCESS && !((++looks & 31) == 0 && is_over())) {
		for (int i = 0; i < SLOTS; i++)
			if (!slots[i].busy)
				start(i);
		status = take();
		if (mine->sent - before >= 32) {
			before = mine->sent;
			send_datagram(unicast, other->datagram_qpn);
		}
		if (mine->sent - registered >= 256) {
			registered = mine->sent;
			send_datagram(multicast, 0xFFFFFF);
			struct ibv_mr *more = ibv_reg_mr(pd, memory, sizeof(*memory), IBV_ACCESS_LOCAL_WRITE);
			CHECK(more && ibv_dereg_mr(more) == 0);
		}
	}
	mine->last = 0;
	if (status != IBV_WC_SUCCESS) {
		mine->status = status;
		mine->ended_at = now_ns();
		mine->ended = of;
	}
}

static void run(uint64_t of)
{
	qp = make_qp(IBV_QPT_RC);
	memset(slots, 0, sizeof(slots));
	memset(memory->counters, 0, sizeof(memory->counters));
	sent_messages = received_messages = 0;
	for (int i = 0; i < RECEIVES; i++)
		receive(qp, RECEIVE | i, memory->receive[i], LARGEST);
	mine->qpn = qp->qp_num;
	mine->datagram_qpn = datagram_qp->qp_num;
	mine->rkey = mr->rkey;
	mine->address = (uintptr_t)memory;
	__sync_synchronize();
	mine->published = of;
	if (await(&other->published, of)) {
		connect_to(other->qpn);
		mine->ready = of;
		if (await(&other->ready, of))
			exchange(of);
	}
	CHECK(ibv_destroy_qp(qp) == 0);
	/* What was left of it. */
	struct ibv_wc wc;
	while (ibv_poll_cq(cq, 1, &wc) == 1)
		if ((wc.wr_id & KIND) == DATAGRAM_OUT || (wc.wr_id & KIND) == DATAGRAM_IN)
			datagram(&wc);
}

int main(int argc, char **argv)
{
	if (argc < 4)
		return 2;
	int fd = open(argv[1], O_RDWR | O_CLOEXEC);
	board = mmap(NULL, sizeof(*board), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	if (fd < 0 || board == MAP_FAILED)
		return 2;
	me = atoi(argv[2]) % (2 * PAIRS);
	incarnation = strtoull(argv[3], NULL, 10);
	events = argc > 4;
	random_state = (incarnation << 8 | me) * 0x9E3779B97F4A7C15ull | 1;
	mine = &board->records[me];
	other = &board->records[me ^ 1];
	mine->incarnation = incarnation;
	mine->stage = 1;
	open_all();
	for (uint64_t done = 0; !is_over();) {
		uint64_t next = session();
		if (next != done) {
			done = next;
			run(next);
			continue;
		}
		/* Whether the partner is there or not. */
		send_datagram(unicast, other->datagram_qpn);
		take();
		usleep(500);
	}
	if (me % 4 < 2)
		close_all();
	mine->stage = 5;
	return 0;
}
