/* What the checker's test programs share: a small world, and what they expect to be found.
 *
 * A program is called with `commit` or `miss`: it breaks one rule, or just does not. What is to be
 * found it says on standard output, a line each: code, call, object, wr_id or `-`. */
#ifndef CROCEVIA_CHECK_H
#define CROCEVIA_CHECK_H

#include <stdarg.h>

#include "../common.h"

#define ROOM (1 << 20)

static struct ibv_context *context;
static struct ibv_pd *pd;
static struct ibv_cq *cq;
static struct ibv_mr *mr;
static struct ibv_qp *a, *b;
static char *memory;

static void commit(void);
static void miss(void);

__attribute__((format(printf, 4, 5))) static inline void
expect(const char *code, const char *call, long long wr_id, const char *object, ...)
{
	char name[64], id[32] = "-";
	va_list list;
	va_start(list, object);
	vsnprintf(name, sizeof(name), object, list);
	va_end(list);
	if (wr_id >= 0)
		snprintf(id, sizeof(id), "%lld", wr_id);
	printf("EXPECT %s %s %s %s\n", code, call, id, name);
}

/* About the first queue pair. */
static inline void expect_a(const char *code, const char *call, long long wr_id)
{
	expect(code, call, wr_id, "QP %u", a->qp_num);
}

static inline struct ibv_sge at(size_t offset, uint32_t length)
{
	struct ibv_sge sge = { (uintptr_t)memory + offset, length, mr->lkey };
	return sge;
}

static inline void receive(struct ibv_qp *qp, uint64_t wr_id, size_t offset, uint32_t length)
{
	post_recv(qp, wr_id, memory + offset, length, mr->lkey);
}

/* Posts a request that is refused with `code`. */
__attribute__((noinline, unused)) static void refused(struct ibv_qp *qp, struct ibv_send_wr *wr, int code)
{
	struct ibv_send_wr *bad = NULL;
	FAILS(ibv_post_send(qp, wr, &bad), code);
	CHECK(bad == wr);
}

static inline void open_world(void)
{
	context = open_first();
	CHECK(memory = aligned_alloc(4096, ROOM));
	memset(memory, 1, ROOM);
	CHECK(pd = ibv_alloc_pd(context));
	CHECK(cq = ibv_create_cq(context, 64, NULL, NULL, 0));
	CHECK(mr = ibv_reg_mr(pd, memory, ROOM, ALL_ACCESS));
	CHECK(a = make_qp(pd, cq, NULL, IBV_QPT_RC));
	CHECK(b = make_qp(pd, cq, NULL, IBV_QPT_RC));
}

static inline void connect_world(void)
{
	open_world();
	connect_pair(a, b);
}

static inline void close_world(void)
{
	CHECK(ibv_destroy_qp(a) == 0 && ibv_destroy_qp(b) == 0);
	CHECK(ibv_destroy_cq(cq) == 0);
	CHECK(ibv_dereg_mr(mr) == 0);
	CHECK(ibv_dealloc_pd(pd) == 0);
	CHECK(ibv_close_device(context) == 0);
	free(memory);
}

int main(int argc, char **argv)
{
	CHECK(argc == 2);
	alarm(60);
	if (strcmp(argv[1], "commit") == 0)
		commit();
	else
		miss();
	return 0;
}

#endif
