/* The library is loaded at run time and closed again: with everything destroyed, with a device open
 * and requests under way, and while a thread of the program is in it. */
#include <dlfcn.h>
#include <pthread.h>

#include "common.h"

static char memory[65536];
static volatile int polling;

/* The functions that are no inline ones, by their names in the library. */
#define FIND(name) __typeof__(&name) find_##name = (__typeof__(&name))dlsym(library, #name)

struct open {
	struct ibv_context *context;
	struct ibv_cq *cq;
	struct ibv_qp *qps[2];
	struct ibv_mr *mr;
};

static void *load(void)
{
	void *library = dlopen("libibverbs.so.1", RTLD_NOW | RTLD_LOCAL);
	if (!library)
		fprintf(stderr, "%s\n", dlerror());
	CHECK(library);
	return library;
}

static void move(void *library, struct ibv_qp *qp, struct ibv_qp_attr *attr, int mask)
{
	int (*modify)(struct ibv_qp *, struct ibv_qp_attr *, int) = dlsym(library, "ibv_modify_qp");
	CHECK(modify(qp, attr, mask) == 0);
}

static void join(void *library, struct ibv_qp *qp, uint32_t dest, union ibv_gid gid)
{
	struct ibv_qp_attr attr = { .qp_state = IBV_QPS_INIT, .port_num = 1,
				    .qp_access_flags = ALL_ACCESS };
	move(library, qp, &attr,
	     IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS);
	attr.qp_state = IBV_QPS_RTR;
	attr.path_mtu = IBV_MTU_1024;
	attr.dest_qp_num = dest;
	attr.ah_attr = (struct ibv_ah_attr){ .is_global = 1, .port_num = 1,
					     .grh = { .dgid = gid, .hop_limit = 64 } };
	attr.max_dest_rd_atomic = attr.max_rd_atomic = 4;
	move(library, qp, &attr,
	     IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
		     IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER);
	attr.qp_state = IBV_QPS_RTS;
	attr.timeout = 14;
	attr.retry_cnt = attr.rnr_retry = 7;
	move(library, qp, &attr,
	     IBV_QP_STATE | IBV_QP_SQ_PSN | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY |
		     IBV_QP_MAX_QP_RD_ATOMIC);
}

static struct open open_with(void *library)
{
	struct open open;
	FIND(ibv_get_device_list);
	FIND(ibv_open_device);
	FIND(ibv_alloc_pd);
	FIND(ibv_create_cq);
	FIND(ibv_create_qp);
	struct ibv_mr *(*reg)(struct ibv_pd *, void *, size_t, int) = dlsym(library, "ibv_reg_mr");
	int (*query_gid)(struct ibv_context *, uint8_t, int, union ibv_gid *) =
		dlsym(library, "ibv_query_gid");
	union ibv_gid gid;
	CHECK(find_ibv_get_device_list && find_ibv_open_device && find_ibv_alloc_pd && reg);
	CHECK(find_ibv_create_cq && find_ibv_create_qp && query_gid);
	struct ibv_device **list = find_ibv_get_device_list(NULL);
	CHECK(list && list[0]);
	open.context = find_ibv_open_device(list[0]);
	CHECK(open.context);
	struct ibv_pd *pd = find_ibv_alloc_pd(open.context);
	open.cq = find_ibv_create_cq(open.context, 64, NULL, NULL, 0);
	open.mr = reg(pd, memory, sizeof(memory), ALL_ACCESS);
	CHECK(pd && open.cq && open.mr && query_gid(open.context, 1, 0, &gid) == 0);
	for (int i = 0; i < 2; i++) {
		struct ibv_qp_init_attr init = {
			.send_cq = open.cq,
			.recv_cq = open.cq,
			.cap = { .max_send_wr = 16, .max_recv_wr = 16, .max_send_sge = 1 },
			.qp_type = IBV_QPT_RC,
		};
		open.qps[i] = find_ibv_create_qp(pd, &init);
		CHECK(open.qps[i]);
	}
	for (int i = 0; i < 2; i++)
		join(library, open.qps[i], open.qps[1 - i]->qp_num, gid);
	return open;
}

static void close_with(void *library, struct open *open)
{
	struct ibv_pd *pd = open->mr->pd;
	FIND(ibv_destroy_qp);
	FIND(ibv_destroy_cq);
	FIND(ibv_dereg_mr);
	FIND(ibv_dealloc_pd);
	FIND(ibv_close_device);
	CHECK(find_ibv_destroy_qp(open->qps[0]) == 0 && find_ibv_destroy_qp(open->qps[1]) == 0);
	CHECK(find_ibv_dereg_mr(open->mr) == 0 && find_ibv_destroy_cq(open->cq) == 0);
	CHECK(find_ibv_dealloc_pd(pd) == 0 && find_ibv_close_device(open->context) == 0);
}

static void write_some(struct open *open, int count)
{
	struct ibv_sge sge = { (uintptr_t)memory, sizeof(memory) / 2, open->mr->lkey };
	struct ibv_send_wr wr = send_wr(1, IBV_WR_RDMA_WRITE, &sge);
	wr.wr.rdma.remote_addr = (uintptr_t)memory + sizeof(memory) / 2;
	wr.wr.rdma.rkey = open->mr->rkey;
	for (int i = 0; i < count; i++)
		post(open->qps[0], &wr);
}

static void *poll_on(void *of)
{
	struct open *open = of;
	int taken = 0;
	while (polling) {
		struct ibv_wc wc;
		int n = ibv_poll_cq(open->cq, 1, &wc);
		CHECK(n >= 0 && (n == 0 || wc.status == IBV_WC_SUCCESS));
		taken += n;
	}
	CHECK(taken == 16);
	return NULL;
}

int main(void)
{
	alarm(50);
	for (int round = 0; round < 20; round++) {
		void *library = load();
		struct open open = open_with(library);
		write_some(&open, 4);
		for (int i = 0; i < 4; i++)
			poll_good(open.cq, 1);
		close_with(library, &open);
		CHECK(dlclose(library) == 0);
	}
	/* The device stays open, with work under way and a thread in the library. */
	void *library = load();
	struct open open = open_with(library);
	pthread_t poller;
	polling = 1;
	CHECK(pthread_create(&poller, NULL, poll_on, &open) == 0);
	write_some(&open, 16);
	CHECK(dlclose(library) == 0);
	usleep(200000);
	polling = 0;
	CHECK(pthread_join(poller, NULL) == 0);
	/* It is found again as it was left. */
	library = load();
	write_some(&open, 4);
	for (int i = 0; i < 4; i++)
		poll_good(open.cq, 1);
	struct open more = open_with(library);
	close_with(library, &more);
	/* Closed once more, and the process ends with the device open. */
	write_some(&open, 8);
	CHECK(dlclose(library) == 0);
	return 0;
}
