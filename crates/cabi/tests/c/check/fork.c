/* A child of a fork: what it leaves behind is its parent's, and it is not checked. */
#include <sys/wait.h>

#include "check.h"

static void in_child(int how)
{
	fflush(stdout);
	pid_t child = fork();
	CHECK(child >= 0);
	if (child == 0) {
		if (how == 1) {
			/* Its parent's handles are of no use to it, but do no harm. */
			struct ibv_wc wc;
			ibv_poll_cq(cq, 1, &wc);
			ibv_destroy_qp(a);
		}
		if (how == 2)
			_exit(0);
		exit(0);
	}
	int status;
	CHECK(waitpid(child, &status, 0) == child && status == 0);
}

static void commit(void)
{
	connect_world();
	in_child(0);
	struct ibv_sge sge = at(0, 64);
	struct ibv_send_wr wr = send_wr(1, IBV_WR_RDMA_WRITE, &sge);
	wr.wr.rdma.remote_addr = (uintptr_t)memory + 4096;
	wr.wr.rdma.rkey = mr->rkey;
	expect_a("C001", "ibv_poll_cq", 1);
	post(a, &wr);
	memory[0]++;
	poll_good(cq, 1);
	close_world();
}

static void miss(void)
{
	connect_world();
	for (int how = 0; how < 3; how++)
		in_child(how);
	close_world();
}
