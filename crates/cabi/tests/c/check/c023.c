/* A list that the queue could not hold if it were empty. */
#include "check.h"

#define DEPTH 32

static void list(int count)
{
	struct ibv_recv_wr wrs[DEPTH + 1], *bad;
	struct ibv_sge sges[DEPTH + 1];
	for (int i = 0; i < count; i++) {
		sges[i] = at(64 * i, 64);
		wrs[i] = (struct ibv_recv_wr){ .wr_id = i, .sg_list = &sges[i], .num_sge = 1,
					       .next = i + 1 < count ? &wrs[i + 1] : NULL };
	}
	if (count > DEPTH) {
		expect_a("C023", "ibv_post_recv", -1);
		FAILS(ibv_post_recv(a, wrs, &bad), ENOMEM);
		CHECK(bad == &wrs[DEPTH]);
	} else {
		CHECK(ibv_post_recv(a, wrs, &bad) == 0);
	}
}

static void commit(void)
{
	connect_world();
	list(DEPTH + 1);
	close_world();
}

static void miss(void)
{
	connect_world();
	list(DEPTH);
	close_world();
}
