/* A completion queue goes before its queue pairs, a domain before its region. */
#include "check.h"

static void commit(void)
{
	connect_world();
	expect("C021", "ibv_destroy_cq", -1, "CQ %u", cq->handle);
	FAILS(ibv_destroy_cq(cq), EBUSY);
	expect("C021", "ibv_dealloc_pd", -1, "PD %u", pd->handle);
	FAILS(ibv_dealloc_pd(pd), EBUSY);
	close_world();
}

static void miss(void)
{
	connect_world();
	close_world();
}
