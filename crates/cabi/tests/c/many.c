/* What a connected queue pair costs that is never used: two processes connect very many with each
 * other, 128 requests deep either way, and each tells how far its resident memory has grown. The
 * arguments are the number of queue pairs, and how many of them are used once at the end. */
#include <sys/wait.h>

#include "common.h"

#define DEPTH 128
/* Bytes for each queue pair, of both processes together. */
#define MOST 4096

struct side {
	struct ibv_context *context;
	struct ibv_pd *pd;
	struct ibv_cq *cq;
	struct ibv_mr *mr;
	struct ibv_qp **qps;
	uint32_t *numbers;
	int in, out;
};

static char memory[4096];

/* Bytes of this process that are in memory. */
static long resident(void)
{
	FILE *file = fopen("/proc/self/smaps_rollup", "r");
	char line[256];
	long kilobytes = -1;
	CHECK(file);
	while (kilobytes < 0 && fgets(line, sizeof(line), file))
		sscanf(line, "Rss: %ld kB", &kilobytes);
	fclose(file);
	CHECK(kilobytes > 0);
	return kilobytes * 1024;
}

static void transfer(int fd, void *at, size_t size, int out)
{
	for (size_t done = 0; done < size;) {
		char *next = (char *)at + done;
		ssize_t n = out ? write(fd, next, size - done) : read(fd, next, size - done);
		CHECK(n > 0);
		done += n;
	}
}

/* Both have come so far. */
static void meet(struct side *side)
{
	char byte = 0;
	transfer(side->out, &byte, 1, 1);
	transfer(side->in, &byte, 1, 0);
}

static struct ibv_qp *make(struct side *side)
{
	struct ibv_qp_init_attr attr = {
		.send_cq = side->cq,
		.recv_cq = side->cq,
		.cap = { .max_send_wr = DEPTH,
			 .max_recv_wr = DEPTH,
			 .max_send_sge = 1,
			 .max_recv_sge = 1 },
		.qp_type = IBV_QPT_RC,
	};
	struct ibv_qp *qp = ibv_create_qp(side->pd, &attr);
	CHECK(qp);
	return qp;
}

/* Sends one message over each of the first queue pairs, with as many at a time as fit. */
static void use(struct side *side, int used, int sends)
{
	struct ibv_sge sge = { (uintptr_t)memory, 64, side->mr->lkey };
	for (int done = 0; done < used; done++) {
		if (sends) {
			struct ibv_send_wr wr = send_wr(done, IBV_WR_SEND, &sge);
			meet(side);
			post(side->qps[done], &wr);
		} else {
			post_recv(side->qps[done], done, memory, 64, side->mr->lkey);
			meet(side);
		}
		poll_good(side->cq, done);
	}
}

/* One process; bytes of growth for each queue pair. */
static long run(struct side *side, int count, int used, int sends)
{
	side->context = open_first();
	side->pd = ibv_alloc_pd(side->context);
	side->cq = ibv_create_cq(side->context, DEPTH, NULL, NULL, 0);
	side->mr = ibv_reg_mr(side->pd, memory, sizeof(memory), ALL_ACCESS);
	side->qps = calloc(count, sizeof(*side->qps));
	side->numbers = calloc(count, sizeof(*side->numbers));
	CHECK(side->pd && side->cq && side->mr && side->qps && side->numbers);
	memset(side->qps, 0xFF, count * sizeof(*side->qps));
	memset(side->numbers, 0xFF, count * sizeof(*side->numbers));
	/* What one of them brings once is not counted. */
	struct ibv_qp *first = make(side);
	connect_to(first, 0x123456);
	CHECK(ibv_destroy_qp(first) == 0);
	meet(side);

	long before = resident();
	for (int i = 0; i < count; i++) {
		side->qps[i] = make(side);
		side->numbers[i] = side->qps[i]->qp_num;
	}
	transfer(side->out, side->numbers, count * sizeof(*side->numbers), 1);
	transfer(side->in, side->numbers, count * sizeof(*side->numbers), 0);
	for (int i = 0; i < count; i++)
		connect_to(side->qps[i], side->numbers[i]);
	meet(side);
	long growth = (resident() - before) / count;
	use(side, used, sends);
	if (used)
		printf("%s: used once, %ld bytes a queue pair\n", sends ? "sender" : "receiver",
		       (resident() - before) / count);
	meet(side);
	for (int i = 0; i < count; i++)
		CHECK(ibv_destroy_qp(side->qps[i]) == 0);
	CHECK(ibv_dereg_mr(side->mr) == 0 && ibv_destroy_cq(side->cq) == 0);
	CHECK(ibv_dealloc_pd(side->pd) == 0 && ibv_close_device(side->context) == 0);
	return growth;
}

int main(int argc, char **argv)
{
	int count = argc > 1 ? atoi(argv[1]) : 10000, used = argc > 2 ? atoi(argv[2]) : 0;
	int down[2], up[2], told[2], status;
	long near, far;
	CHECK(count > 0 && used <= count);
	CHECK(pipe(down) == 0 && pipe(up) == 0 && pipe(told) == 0);
	fflush(NULL);
	pid_t child = fork();
	CHECK(child >= 0);
	if (child == 0) {
		struct side side = { .in = down[0], .out = up[1] };
		close(down[1]), close(up[0]);
		far = run(&side, count, used, 0);
		transfer(told[1], &far, sizeof(far), 1);
		return 0;
	}
	struct side side = { .in = up[0], .out = down[1] };
	close(down[0]), close(up[1]), close(told[1]);
	double start = seconds();
	near = run(&side, count, used, 1);
	transfer(told[0], &far, sizeof(far), 0);
	CHECK(waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) == 0);
	printf("%d queue pairs, connected, %d deep: %ld and %ld bytes each, %ld of both (%.1f s)\n",
	       count, DEPTH, near, far, near + far, seconds() - start);
	CHECK(near + far < MOST);
	return 0;
}
