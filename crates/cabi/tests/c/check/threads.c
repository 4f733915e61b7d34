/* No false alarm where threads share a completion queue: each posts, all poll. */
#include <pthread.h>
#include <stdatomic.h>

#include "check.h"

#define THREADS 4
#define ROUNDS 2000
#define WINDOW 8

static struct ibv_qp *mine[THREADS], *peer[THREADS];
static atomic_int outstanding[THREADS], done[THREADS];

static void commit(void)
{
	/* As above, but one thread writes to what another has posted. */
	connect_world();
	struct ibv_sge sge = at(0, 64);
	struct ibv_send_wr wr = send_wr(1, IBV_WR_RDMA_WRITE, &sge);
	wr.wr.rdma.remote_addr = (uintptr_t)memory + 4096;
	wr.wr.rdma.rkey = mr->rkey;
	expect_a("C001", "ibv_poll_cq", 1);
	post(a, &wr);
	memset(memory, 7, 64);
	poll_good(cq, 1);
	close_world();
}

static void take(void)
{
	struct ibv_wc wc[4];
	int n = ibv_poll_cq(cq, 4, wc);
	CHECK(n >= 0);
	for (int i = 0; i < n; i++) {
		CHECK(wc[i].status == IBV_WC_SUCCESS);
		atomic_fetch_add(&done[wc[i].wr_id], 1);
		atomic_fetch_sub(&outstanding[wc[i].wr_id], 1);
	}
}

static void *work(void *argument)
{
	int me = (int)(intptr_t)argument;
	double end = seconds() + 100;
	for (int i = 0; i < ROUNDS; i++) {
		while (atomic_load(&outstanding[me]) > 0 || i % WINDOW)
			if (i % WINDOW == 0) {
				CHECK(seconds() < end);
				take();
			} else {
				break;
			}
		/* All have been polled: the buffers are the program's again. */
		char *at_me = memory + 8192 * me + 64 * (i % WINDOW);
		memset(at_me, i, 64);
		struct ibv_sge sge = { (uintptr_t)at_me, 64, mr->lkey };
		struct ibv_send_wr wr = send_wr(me, IBV_WR_RDMA_WRITE, &sge);
		wr.wr.rdma.remote_addr = (uintptr_t)memory + 500000 + 8192 * me;
		wr.wr.rdma.rkey = mr->rkey;
		atomic_fetch_add(&outstanding[me], 1);
		post(mine[me], &wr);
	}
	while (atomic_load(&done[me]) < ROUNDS) {
		CHECK(seconds() < end);
		take();
	}
	return NULL;
}

static void miss(void)
{
	open_world();
	pthread_t threads[THREADS];
	for (int i = 0; i < THREADS; i++) {
		mine[i] = make_qp(pd, cq, NULL, IBV_QPT_RC);
		peer[i] = make_qp(pd, cq, NULL, IBV_QPT_RC);
		connect_pair(mine[i], peer[i]);
	}
	for (int i = 0; i < THREADS; i++)
		CHECK(pthread_create(&threads[i], NULL, work, (void *)(intptr_t)i) == 0);
	for (int i = 0; i < THREADS; i++) {
		CHECK(pthread_join(threads[i], NULL) == 0);
	}
	for (int i = 0; i < THREADS; i++)
		CHECK(ibv_destroy_qp(mine[i]) == 0 && ibv_destroy_qp(peer[i]) == 0);
	close_world();
}
