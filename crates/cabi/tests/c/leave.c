/* A receiver that ends at once when it has its message, without handlers and without clean-up: its
 * sender completes all the same. Each receiver is a child of a fork with a NIC of its own on the
 * sender's address. */
#include <sys/wait.h>

#include "common.h"

#define ROUNDS 60

struct end {
	struct ibv_cq *cq;
	struct ibv_qp *qp;
	struct ibv_mr *mr;
};

static char memory[256];

static struct end open_end(struct ibv_context *context)
{
	struct ibv_pd *pd = ibv_alloc_pd(context);
	struct end end = { .cq = ibv_create_cq(context, 16, NULL, NULL, 0) };
	end.mr = ibv_reg_mr(pd, memory, sizeof(memory), IBV_ACCESS_LOCAL_WRITE);
	CHECK(pd && end.cq && end.mr);
	end.qp = make_qp(pd, end.cq, NULL, IBV_QPT_RC);
	return end;
}

/* Tells the own number, learns the other's, connects. */
static void meet(struct end *end, int in, int out)
{
	uint32_t other;
	CHECK(write(out, &end->qp->qp_num, 4) == 4);
	CHECK(read(in, &other, 4) == 4);
	CHECK(other != end->qp->qp_num);
	connect_to(end->qp, other);
}

static void receiver(int round, int in, int out)
{
	struct end end = open_end(open_first());
	meet(&end, in, out);
	post_recv(end.qp, 1, memory, sizeof(memory), end.mr->lkey);
	CHECK(write(out, "r", 1) == 1);
	poll_good(end.cq, 1);
	if (round % 2)
		_Exit(7);
	_exit(7);
}

int main(void)
{
	struct ibv_context *context = open_first();
	for (int round = 0; round < ROUNDS; round++) {
		int down[2], up[2], status;
		char ready;
		CHECK(pipe(down) == 0 && pipe(up) == 0);
		pid_t child = fork();
		CHECK(child >= 0);
		if (child == 0)
			receiver(round, down[0], up[1]);
		close(down[0]), close(up[1]);
		struct end end = open_end(context);
		meet(&end, up[0], down[1]);
		CHECK(read(up[0], &ready, 1) == 1);
		struct ibv_sge sge = { (uintptr_t)memory, 64, end.mr->lkey };
		struct ibv_send_wr wr = send_wr(2, IBV_WR_SEND, &sge);
		post(end.qp, &wr);
		poll_good(end.cq, 2);
		CHECK(waitpid(child, &status, 0) == child);
		CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 7);
		CHECK(ibv_destroy_qp(end.qp) == 0);
		close(down[1]), close(up[0]);
	}
	/* Nothing of a NIC runs here: it just ends. */
	pid_t child = fork();
	if (child == 0)
		_exit(8);
	int status;
	CHECK(waitpid(child, &status, 0) == child && WEXITSTATUS(status) == 8);
	return 0;
}
