/* What the test programs share: checks, an open device, connected pairs of queue pairs. */
#ifndef CROCEVIA_TEST_COMMON_H
#define CROCEVIA_TEST_COMMON_H

#include <errno.h>
#include <infiniband/verbs.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define CHECK(what)                                                                          \
	do {                                                                                 \
		errno = 0;                                                                   \
		if (!(what)) {                                                               \
			fprintf(stderr, "%s:%d: %s (errno %d)\n", __FILE__, __LINE__, #what, \
				errno);                                                      \
			exit(1);                                                             \
		}                                                                            \
	} while (0)

/* Checks that a call fails with an errno, whichever way it reports it. */
#define FAILS(call, code)                                                                    \
	do {                                                                                 \
		errno = 0;                                                                   \
		int result_ = (call);                                                        \
		int errno_ = result_ == -1 ? errno : result_;                                \
		if (errno_ != (code)) {                                                      \
			fprintf(stderr, "%s:%d: %s gave %d (errno %d), not %d\n", __FILE__,  \
				__LINE__, #call, result_, errno, (code));                    \
			exit(1);                                                             \
		}                                                                            \
	} while (0)

#define NOTHING(call, code)                                                                  \
	do {                                                                                 \
		errno = 0;                                                                   \
		void *made_ = (call);                                                        \
		if (made_ || errno != (code)) {                                              \
			fprintf(stderr, "%s:%d: %s gave %p (errno %d), not NULL (%d)\n",     \
				__FILE__, __LINE__, #call, made_, errno, (code));            \
			exit(1);                                                             \
		}                                                                            \
	} while (0)

static inline struct ibv_context *open_first(void)
{
	int count = 0;
	struct ibv_device **list = ibv_get_device_list(&count);
	CHECK(list && count > 0);
	struct ibv_context *context = ibv_open_device(list[0]);
	CHECK(context);
	ibv_free_device_list(list);
	return context;
}

static inline double seconds(void)
{
	struct timespec now;
	clock_gettime(CLOCK_MONOTONIC, &now);
	return now.tv_sec + now.tv_nsec * 1e-9;
}

/* Polls one completion; fails after twenty seconds. */
static inline struct ibv_wc poll_one(struct ibv_cq *cq)
{
	struct ibv_wc wc;
	double end = seconds() + 20;
	for (;;) {
		int n = ibv_poll_cq(cq, 1, &wc);
		CHECK(n >= 0);
		if (n == 1)
			return wc;
		if (seconds() > end) {
			fprintf(stderr, "no completion within twenty seconds\n");
			exit(1);
		}
	}
}

static inline struct ibv_wc poll_good(struct ibv_cq *cq, uint64_t wr_id)
{
	struct ibv_wc wc = poll_one(cq);
	if (wc.status != IBV_WC_SUCCESS || wc.wr_id != wr_id) {
		fprintf(stderr, "completion of %llu with %s, expected %llu\n",
			(unsigned long long)wc.wr_id, ibv_wc_status_str(wc.status),
			(unsigned long long)wr_id);
		exit(1);
	}
	return wc;
}

#define ALL_ACCESS                                                                           \
	(IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ |         \
	 IBV_ACCESS_REMOTE_ATOMIC)

static inline struct ibv_qp_attr rtr_attr(struct ibv_context *context, uint32_t dest)
{
	struct ibv_qp_attr attr;
	union ibv_gid gid;
	CHECK(ibv_query_gid(context, 1, 0, &gid) == 0);
	memset(&attr, 0, sizeof(attr));
	attr.qp_state = IBV_QPS_RTR;
	attr.path_mtu = IBV_MTU_1024;
	attr.dest_qp_num = dest;
	attr.rq_psn = 77;
	attr.max_dest_rd_atomic = 4;
	attr.min_rnr_timer = 1;
	attr.ah_attr.is_global = 1;
	attr.ah_attr.grh.dgid = gid;
	attr.ah_attr.grh.sgid_index = 0;
	attr.ah_attr.grh.hop_limit = 64;
	attr.ah_attr.port_num = 1;
	return attr;
}

/* Moves a queue pair to RTS towards another, which is given up after so many retries. */
static inline void connect_patient(struct ibv_qp *qp, uint32_t dest, int timeout, int retries)
{
	int rc = qp->qp_type == IBV_QPT_RC;
	struct ibv_qp_attr attr;
	memset(&attr, 0, sizeof(attr));
	attr.qp_state = IBV_QPS_INIT;
	attr.port_num = 1;
	attr.qp_access_flags = ALL_ACCESS;
	CHECK(ibv_modify_qp(qp, &attr,
			    IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT |
				    IBV_QP_ACCESS_FLAGS) == 0);
	CHECK(qp->state == IBV_QPS_INIT);
	attr = rtr_attr(qp->context, dest);
	int mask = IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN;
	if (rc)
		mask |= IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER;
	CHECK(ibv_modify_qp(qp, &attr, mask) == 0);
	memset(&attr, 0, sizeof(attr));
	attr.qp_state = IBV_QPS_RTS;
	attr.sq_psn = 77;
	attr.timeout = timeout;
	attr.retry_cnt = retries;
	attr.rnr_retry = 7;
	attr.max_rd_atomic = 4;
	mask = IBV_QP_STATE | IBV_QP_SQ_PSN;
	if (rc)
		mask |= IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY |
			IBV_QP_MAX_QP_RD_ATOMIC;
	CHECK(ibv_modify_qp(qp, &attr, mask) == 0);
}

static inline void connect_to(struct ibv_qp *qp, uint32_t dest)
{
	connect_patient(qp, dest, 14, 7);
}

static inline void connect_pair(struct ibv_qp *a, struct ibv_qp *b)
{
	connect_to(a, b->qp_num);
	connect_to(b, a->qp_num);
}

static inline struct ibv_qp *make_qp(struct ibv_pd *pd, struct ibv_cq *cq, struct ibv_srq *srq,
				     enum ibv_qp_type type)
{
	struct ibv_qp_init_attr attr = {
		.send_cq = cq,
		.recv_cq = cq,
		.srq = srq,
		.cap = { .max_send_wr = 32,
			 .max_recv_wr = 32,
			 .max_send_sge = 4,
			 .max_recv_sge = 4,
			 .max_inline_data = 128 },
		.qp_type = type,
	};
	struct ibv_qp *qp = ibv_create_qp(pd, &attr);
	CHECK(qp);
	CHECK(attr.cap.max_send_wr >= 32 && attr.cap.max_inline_data >= 128);
	return qp;
}

static inline void post_recv(struct ibv_qp *qp, uint64_t wr_id, void *at, uint32_t length,
			     uint32_t lkey)
{
	struct ibv_sge sge = { .addr = (uintptr_t)at, .length = length, .lkey = lkey };
	struct ibv_recv_wr wr = { .wr_id = wr_id, .sg_list = &sge, .num_sge = 1 }, *bad;
	CHECK(ibv_post_recv(qp, &wr, &bad) == 0);
}

static inline struct ibv_send_wr send_wr(uint64_t wr_id, enum ibv_wr_opcode opcode,
					 struct ibv_sge *sge)
{
	struct ibv_send_wr wr;
	memset(&wr, 0, sizeof(wr));
	wr.wr_id = wr_id;
	wr.opcode = opcode;
	wr.sg_list = sge;
	wr.num_sge = sge ? 1 : 0;
	wr.send_flags = IBV_SEND_SIGNALED;
	return wr;
}

static inline void post(struct ibv_qp *qp, struct ibv_send_wr *wr)
{
	struct ibv_send_wr *bad;
	CHECK(ibv_post_send(qp, wr, &bad) == 0);
}

#endif
