/* Wrong arguments, wrong order, what is not offered: an errno each, and no crash. No traffic. */
#include <sys/mman.h>

#include "common.h"

static struct ibv_context *context;
static struct ibv_pd *pd;

static void test_null_and_foreign(void)
{
	char foreign[1024] = { 0 };
	struct ibv_port_attr port;
	union ibv_gid gid;
	struct ibv_gid_entry entry;
	NOTHING(ibv_open_device(NULL), EINVAL);
	NOTHING(ibv_open_device((struct ibv_device *)foreign), EINVAL);
	FAILS(ibv_close_device(NULL), EINVAL);
	FAILS(ibv_close_device((struct ibv_context *)foreign), EINVAL);
	NOTHING(ibv_alloc_pd(NULL), EINVAL);
	FAILS(ibv_dealloc_pd((struct ibv_pd *)foreign), EINVAL);
	FAILS(ibv_dereg_mr((struct ibv_mr *)foreign), EINVAL);
	FAILS(ibv_destroy_cq((struct ibv_cq *)foreign), EINVAL);
	FAILS(ibv_destroy_qp((struct ibv_qp *)foreign), EINVAL);
	FAILS(ibv_destroy_srq(NULL), EINVAL);
	FAILS(ibv_destroy_ah(NULL), EINVAL);
	FAILS(ibv_destroy_comp_channel(NULL), EINVAL);
	NOTHING(ibv_create_qp(pd, NULL), EINVAL);
	NOTHING(ibv_create_srq(pd, NULL), EINVAL);
	NOTHING(ibv_create_ah(pd, NULL), EINVAL);
	FAILS(ibv_modify_qp(NULL, NULL, 0), EINVAL);
	FAILS(ibv_query_device(context, NULL), EINVAL);
	FAILS(ibv_query_port(context, 2, &port), EINVAL);
	FAILS(ibv_query_port(context, 0, &port), EINVAL);
	FAILS(ibv_query_gid(context, 1, 1000, &gid), EINVAL);
	FAILS(ibv_query_gid(context, 1, -1, &gid), EINVAL);
	FAILS(ibv_query_gid_ex(context, 1, 200, &entry, 0), ENODATA);
	FAILS(ibv_get_cq_event(NULL, NULL, NULL), EINVAL);
	FAILS(ibv_get_async_event(NULL, NULL), EINVAL);
	ibv_ack_cq_events(NULL, 1);
	ibv_ack_async_event(NULL);
	/* A protection domain is no completion queue. */
	FAILS(ibv_destroy_cq((struct ibv_cq *)pd), EINVAL);
}

static void test_regions(void)
{
	static char memory[8192];
	NOTHING(ibv_reg_mr(pd, memory, 4096, IBV_ACCESS_REMOTE_WRITE), EINVAL);
	NOTHING(ibv_reg_mr(pd, memory, 4096, IBV_ACCESS_REMOTE_ATOMIC), EINVAL);
	NOTHING(ibv_reg_mr(pd, memory, 4096, 1 << 19), EINVAL);
	struct ibv_mr *mr = ibv_reg_mr(pd, memory, 4096,
				       IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_RELAXED_ORDERING);
	CHECK(mr);
	FAILS(ibv_dealloc_pd(pd), EBUSY);
	uint32_t lkey = mr->lkey;
	CHECK(ibv_rereg_mr(mr, 0, NULL, NULL, 0, 0) == IBV_REREG_MR_ERR_INPUT);
	CHECK(ibv_rereg_mr(mr, IBV_REREG_MR_CHANGE_TRANSLATION, NULL, memory, 8192, 0) == 0);
	CHECK(mr->length == 8192 && mr->lkey != lkey);
	CHECK(ibv_dereg_mr(mr) == 0);
	FAILS(ibv_dereg_mr(mr), EINVAL);
	CHECK((mr = ibv_reg_mr_iova(pd, memory, 4096, 0x10000, IBV_ACCESS_LOCAL_WRITE)));
	CHECK(ibv_dereg_mr(mr) == 0);
	NOTHING(ibv_reg_dmabuf_mr(pd, 0, 4096, 0, -1, IBV_ACCESS_LOCAL_WRITE), EOPNOTSUPP);
	NOTHING(ibv_alloc_null_mr(pd), EOPNOTSUPP);
	struct ibv_sge sge = { (uintptr_t)memory, 4096, 0 };
	CHECK(ibv_advise_mr(pd, IBV_ADVISE_MR_ADVICE_PREFETCH, 0, &sge, 1) == 0);
}

/* What a registration cannot reach, it refuses: no packet ends the process later. */
static void test_memory_that_is_not_there(void)
{
	size_t page = sysconf(_SC_PAGESIZE);
	char *memory = mmap(NULL, 4 * page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS,
			    -1, 0);
	CHECK(memory != MAP_FAILED);
	struct ibv_mr *mr = ibv_reg_mr(pd, memory + 5, 4 * page - 10, ALL_ACCESS);
	CHECK(mr);
	CHECK(munmap(memory + page, page) == 0);
	NOTHING(ibv_reg_mr(pd, memory, 4 * page, 0), EFAULT);
	NOTHING(ibv_reg_mr(pd, memory + page - 1, 2, 0), EFAULT);
	NOTHING(ibv_reg_mr_iova(pd, memory + page, page, 0, ALL_ACCESS), EFAULT);
	CHECK(ibv_rereg_mr(mr, IBV_REREG_MR_CHANGE_TRANSLATION, NULL, memory, 4 * page, 0) ==
		      IBV_REREG_MR_ERR_INPUT && errno == EFAULT);
	CHECK(ibv_dereg_mr(mr) == 0);
	/* Kernels before 5.14 cannot be asked for rights. */
	if (madvise(memory, page, 22 /* MADV_POPULATE_READ */) == 0) {
		CHECK(mprotect(memory + 3 * page, page, PROT_READ) == 0);
		NOTHING(ibv_reg_mr(pd, memory + 2 * page, 2 * page, ALL_ACCESS), EFAULT);
		CHECK((mr = ibv_reg_mr(pd, memory + 2 * page, 2 * page, IBV_ACCESS_REMOTE_READ)));
		CHECK(ibv_dereg_mr(mr) == 0);
		CHECK(mprotect(memory + 3 * page, page, PROT_NONE) == 0);
		NOTHING(ibv_reg_mr(pd, memory + 2 * page, 2 * page, IBV_ACCESS_REMOTE_READ), EFAULT);
	}
	CHECK((mr = ibv_reg_mr(pd, memory + page, page, IBV_ACCESS_ON_DEMAND)));
	CHECK(ibv_dereg_mr(mr) == 0);
	CHECK((mr = ibv_reg_mr(pd, NULL, 0, 0)));
	CHECK(ibv_dereg_mr(mr) == 0);
	CHECK(munmap(memory, 4 * page) == 0);
}

static void test_queues(void)
{
	struct ibv_comp_channel *channel = ibv_create_comp_channel(context);
	CHECK(channel && channel->context == context);
	NOTHING(ibv_create_cq(context, 0, NULL, NULL, 0), EINVAL);
	NOTHING(ibv_create_cq(context, -5, NULL, NULL, 0), EINVAL);
	NOTHING(ibv_create_cq(context, 16, NULL, NULL, 100000), EINVAL);
	struct ibv_cq *cq = ibv_create_cq(context, 16, &pd, channel, 0);
	CHECK(cq && cq->cq_context == &pd && cq->channel == channel);
	FAILS(ibv_destroy_comp_channel(channel), EBUSY);
	CHECK(ibv_resize_cq(cq, 100) == 0 && cq->cqe >= 100);
	FAILS(ibv_resize_cq(cq, -1), EINVAL);
	struct ibv_modify_cq_attr moderation = { IBV_CQ_ATTR_MODERATE, { 8, 100 } };
	CHECK(ibv_modify_cq(cq, &moderation) == 0);
	struct ibv_wc wc[4];
	CHECK(ibv_poll_cq(cq, 4, wc) == 0 && ibv_poll_cq(cq, 0, wc) == 0);
	CHECK(ibv_poll_cq(cq, -1, wc) < 0);

	struct ibv_srq_init_attr srq_attr = { .attr = { .max_wr = 8, .max_sge = 2 } };
	struct ibv_srq *srq = ibv_create_srq(pd, &srq_attr);
	CHECK(srq && srq_attr.attr.max_wr >= 8);
	struct ibv_qp *qp = make_qp(pd, cq, srq, IBV_QPT_RC);
	CHECK(qp->state == IBV_QPS_RESET && qp->qp_type == IBV_QPT_RC && qp->srq == srq);
	FAILS(ibv_destroy_cq(cq), EBUSY);
	FAILS(ibv_destroy_srq(srq), EBUSY);
	FAILS(ibv_dealloc_pd(pd), EBUSY);

	struct ibv_srq_attr limits = { .srq_limit = 1000 };
	FAILS(ibv_modify_srq(srq, &limits, IBV_SRQ_LIMIT), EINVAL);
	struct ibv_sge none = { 0, 0, 0 };
	struct ibv_recv_wr wanted = { .sg_list = &none, .num_sge = 1 }, *unwanted;
	for (int i = 0; i < 8; i++)
		CHECK(ibv_post_srq_recv(srq, &wanted, &unwanted) == 0);
	FAILS(ibv_post_srq_recv(srq, &wanted, &unwanted), ENOMEM);
	CHECK(unwanted == &wanted);
	limits.srq_limit = 4;
	CHECK(ibv_modify_srq(srq, &limits, IBV_SRQ_LIMIT) == 0);
	CHECK(ibv_query_srq(srq, &limits) == 0 && limits.srq_limit == 4);

	/* States and attributes. */
	struct ibv_qp_attr attr;
	memset(&attr, 0, sizeof(attr));
	attr.qp_state = IBV_QPS_RTS;
	FAILS(ibv_modify_qp(qp, &attr, IBV_QP_STATE), EINVAL);
	attr.qp_state = IBV_QPS_INIT;
	FAILS(ibv_modify_qp(qp, &attr, IBV_QP_STATE), EINVAL);
	attr.qp_state = 17;
	FAILS(ibv_modify_qp(qp, &attr, IBV_QP_STATE), EINVAL);
	FAILS(ibv_modify_qp(qp, &attr, 1 << 30), EINVAL);
	CHECK(qp->state == IBV_QPS_RESET);
	struct ibv_sge sge = { 0, 0, 0 };
	struct ibv_send_wr wr = send_wr(1, IBV_WR_SEND, &sge), *bad = NULL;
	FAILS(ibv_post_send(qp, &wr, &bad), EINVAL);
	CHECK(bad == &wr);
	struct ibv_recv_wr recv = { .sg_list = &sge, .num_sge = 1 }, *bad_recv = NULL;
	FAILS(ibv_post_recv(qp, &recv, &bad_recv), EINVAL);
	CHECK(bad_recv == &recv);
	/* Without a GRH nobody is reached over Ethernet. */
	attr = rtr_attr(context, 1);
	attr.ah_attr.is_global = 0;
	NOTHING(ibv_create_ah(pd, &attr.ah_attr), EINVAL);

	struct ibv_ece ece = { 1, 2, 3 };
	CHECK(ibv_query_ece(qp, &ece) == 0 && ece.vendor_id == 0);
	CHECK(ibv_set_ece(qp, &ece) == 0);
	ece.options = 1;
	FAILS(ibv_set_ece(qp, &ece), EOPNOTSUPP);

	CHECK(ibv_destroy_qp(qp) == 0);
	FAILS(ibv_destroy_qp(qp), EINVAL);
	CHECK(ibv_destroy_srq(srq) == 0);
	CHECK(ibv_destroy_cq(cq) == 0);
	CHECK(ibv_destroy_comp_channel(channel) == 0);
}

static void test_descriptions(void)
{
	struct ibv_device_attr attr;
	CHECK(ibv_query_device(context, &attr) == 0);
	CHECK(attr.phys_port_cnt == 1 && attr.node_guid && attr.max_qp > 0 && attr.fw_ver[0]);
	CHECK(attr.node_guid == ibv_get_device_guid(context->device));
	struct ibv_device_attr_ex ex;
	CHECK(ibv_query_device_ex(context, NULL, &ex) == 0);
	CHECK(ex.phys_port_cnt_ex == 1 && ex.orig_attr.max_qp == attr.max_qp);
	struct ibv_port_attr port;
	CHECK(ibv_query_port(context, 1, &port) == 0);
	CHECK(port.state == IBV_PORT_ACTIVE && port.link_layer == IBV_LINK_LAYER_ETHERNET);
	CHECK(port.max_msg_sz == 1u << 31 && port.pkey_tbl_len == 1 && port.gid_tbl_len >= 1);
	struct ibv_gid_entry table[256];
	ssize_t count = ibv_query_gid_table(context, table, 256, 0);
	CHECK(count == port.gid_tbl_len);
	CHECK(ibv_query_gid_table(context, table, 0, 0) == -EINVAL);
	struct ibv_gid_entry entry;
	CHECK(ibv_query_gid_ex(context, 1, 0, &entry, 0) == 0);
	CHECK(entry.gid_type == IBV_GID_TYPE_ROCE_V2 && entry.ndev_ifindex > 0);
	__be16 pkey = 0;
	CHECK(ibv_query_pkey(context, 1, 0, &pkey) == 0 && pkey == 0xffff);
	CHECK(ibv_get_pkey_index(context, 1, 0xffff) == 0);
	CHECK(ibv_get_pkey_index(context, 1, 0x1234) == -1);
	CHECK(ibv_fork_init() == 0 && ibv_is_fork_initialized() == IBV_FORK_UNNEEDED);
	CHECK(strcmp(ibv_get_device_name(context->device), "crocevia0") == 0);
	CHECK(ibv_get_device_index(context->device) >= 0);
	struct ibv_values_ex values = { .comp_mask = IBV_VALUES_MASK_RAW_CLOCK };
	CHECK(ibv_query_rt_values_ex(context, &values) == 0);
}

static void test_domains(void)
{
	struct ibv_td_init_attr td_attr = { 0 };
	struct ibv_td *td = ibv_alloc_td(context, &td_attr);
	CHECK(td);
	struct ibv_parent_domain_init_attr attr = { .pd = pd, .td = td };
	struct ibv_pd *parent = ibv_alloc_parent_domain(context, &attr);
	CHECK(parent && parent->context == context);
	static char memory[64];
	struct ibv_mr *mr = ibv_reg_mr(parent, memory, sizeof(memory), IBV_ACCESS_LOCAL_WRITE);
	CHECK(mr && mr->pd == parent);
	FAILS(ibv_dealloc_pd(pd), EBUSY);
	CHECK(ibv_dereg_mr(mr) == 0);
	CHECK(ibv_dealloc_pd(parent) == 0 && ibv_dealloc_td(td) == 0);
}

int main(void)
{
	context = open_first();
	CHECK((pd = ibv_alloc_pd(context)));
	test_null_and_foreign();
	test_regions();
	test_memory_that_is_not_there();
	test_queues();
	test_descriptions();
	test_domains();
	CHECK(ibv_dealloc_pd(pd) == 0);
	CHECK(ibv_close_device(context) == 0);
	FAILS(ibv_close_device(context), EINVAL);

	/* The device closes with the last object that was left behind. */
	context = open_first();
	CHECK((pd = ibv_alloc_pd(context)));
	CHECK(ibv_close_device(context) == 0);
	FAILS(ibv_close_device(context), EINVAL);
	CHECK(ibv_dealloc_pd(pd) == 0);
	context = open_first();
	CHECK(ibv_close_device(context) == 0);
	return 0;
}
