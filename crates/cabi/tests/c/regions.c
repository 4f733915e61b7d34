/* Registration of memory of every kind: from files, shared, of huge pages, read-only, with holes,
 * not there yet. What may be registered is reached by a peer; what may not is EFAULT. */
#define _GNU_SOURCE
#include "gone.h"

#include <fcntl.h>
#include <sys/shm.h>
#include <sys/stat.h>

static struct ibv_pd *pd;
static struct ibv_cq *cq;
static char plain[8192];
static struct ibv_mr *plain_mr;

/* One request between a plain buffer and a region, by a fresh pair of queue pairs. */
static enum ibv_wc_status ask(enum ibv_wr_opcode opcode, void *at, uint32_t length, uint32_t rkey)
{
	struct ibv_qp *one = make_qp(pd, cq, NULL, IBV_QPT_RC);
	struct ibv_qp *other = make_qp(pd, cq, NULL, IBV_QPT_RC);
	connect_pair(one, other);
	struct ibv_sge sge = { (uintptr_t)plain, length, plain_mr->lkey };
	struct ibv_send_wr wr = send_wr(1, opcode, &sge);
	if (opcode == IBV_WR_ATOMIC_FETCH_AND_ADD) {
		wr.wr.atomic.remote_addr = (uintptr_t)at;
		wr.wr.atomic.rkey = rkey;
		wr.wr.atomic.compare_add = 3;
	} else {
		wr.wr.rdma.remote_addr = (uintptr_t)at;
		wr.wr.rdma.rkey = rkey;
	}
	post(one, &wr);
	struct ibv_wc wc = poll_one(cq);
	CHECK(ibv_destroy_qp(one) == 0 && ibv_destroy_qp(other) == 0);
	return wc.status;
}

/* All that a peer may do with a region that may be written, at its beginning and its end. */
static void reach(char *at, size_t size)
{
	struct ibv_mr *mr = ibv_reg_mr(pd, at, size, ALL_ACCESS);
	CHECK(mr);
	char *const places[] = { at, at + size - sizeof(plain) };
	for (int i = 0; i < 2; i++) {
		char *place = places[i];
		memset(plain, 0x21 + i, sizeof(plain));
		CHECK(ask(IBV_WR_RDMA_WRITE, place, sizeof(plain), mr->rkey) == IBV_WC_SUCCESS);
		CHECK(memcmp(place, plain, sizeof(plain)) == 0);
		memset(place, 0x31 + i, sizeof(plain));
		CHECK(ask(IBV_WR_RDMA_READ, place, sizeof(plain), mr->rkey) == IBV_WC_SUCCESS);
		CHECK(memcmp(place, plain, sizeof(plain)) == 0);
		memset(place, 0, 8);
		CHECK(ask(IBV_WR_ATOMIC_FETCH_AND_ADD, place, 8, mr->rkey) == IBV_WC_SUCCESS);
		CHECK(*(uint64_t *)place == 3);
	}
	CHECK(ask(IBV_WR_RDMA_WRITE, at, 0, mr->rkey) == IBV_WC_SUCCESS);
	CHECK(ask(IBV_WR_RDMA_WRITE, at + size - 1, 2, mr->rkey) == IBV_WC_REM_ACCESS_ERR);
	CHECK(ibv_dereg_mr(mr) == 0);
}

static char *map(size_t size, int rights, int flags, int fd)
{
	void *at = mmap(NULL, size, rights, flags, fd, 0);
	return at == MAP_FAILED ? NULL : at;
}

static void files(void)
{
	char name[] = "/tmp/crocevia-region-XXXXXX";
	int fd = mkstemp(name);
	CHECK(fd >= 0 && ftruncate(fd, 65536) == 0);
	char *at = map(65536, PROT_READ | PROT_WRITE, MAP_SHARED, fd);
	CHECK(at);
	reach(at, 65536);
	/* It is the file that was written. */
	char back[8];
	CHECK(pread(fd, back, 8, 65536 - 8) == 8 && back[7] == 0x32);
	munmap(at, 65536);
	at = map(65536, PROT_READ | PROT_WRITE, MAP_PRIVATE, fd);
	CHECK(at);
	reach(at, 65536);
	munmap(at, 65536);
	/* Beyond its end there is nothing. */
	at = map(131072, PROT_READ | PROT_WRITE, MAP_SHARED, fd);
	CHECK(at);
	NOTHING(ibv_reg_mr(pd, at, 131072, ALL_ACCESS), EFAULT);
	munmap(at, 131072);
	/* Of a file that may only be read. */
	close(fd);
	fd = open(name, O_RDONLY);
	CHECK(fd >= 0 && unlink(name) == 0);
	at = map(65536, PROT_READ, MAP_SHARED, fd);
	CHECK(at);
	NOTHING(ibv_reg_mr(pd, at, 65536, IBV_ACCESS_LOCAL_WRITE), EFAULT);
	struct ibv_mr *mr = ibv_reg_mr(pd, at, 65536, IBV_ACCESS_REMOTE_READ);
	CHECK(mr && ask(IBV_WR_RDMA_READ, at, 4096, mr->rkey) == IBV_WC_SUCCESS);
	CHECK(memcmp(at, plain, 4096) == 0);
	CHECK(ibv_dereg_mr(mr) == 0);
	munmap(at, 65536);
	close(fd);
}

static void shared(void)
{
	int fd = memfd_create("region", MFD_CLOEXEC);
	CHECK(fd >= 0 && ftruncate(fd, 65536) == 0);
	char *at = map(65536, PROT_READ | PROT_WRITE, MAP_SHARED, fd);
	char *other = map(65536, PROT_READ, MAP_SHARED, fd);
	CHECK(at && other);
	reach(at, 65536);
	CHECK(memcmp(at, other, 65536) == 0);
	munmap(at, 65536);
	munmap(other, 65536);
	close(fd);

	char name[64];
	snprintf(name, sizeof(name), "/crocevia-region-%d", (int)getpid());
	fd = shm_open(name, O_RDWR | O_CREAT | O_EXCL, 0600);
	CHECK(fd >= 0 && shm_unlink(name) == 0 && ftruncate(fd, 65536) == 0);
	at = map(65536, PROT_READ | PROT_WRITE, MAP_SHARED, fd);
	CHECK(at);
	reach(at, 65536);
	munmap(at, 65536);
	close(fd);

	int id = shmget(IPC_PRIVATE, 65536, IPC_CREAT | 0600);
	CHECK(id >= 0);
	at = shmat(id, NULL, 0);
	CHECK(at != (void *)-1 && shmctl(id, IPC_RMID, NULL) == 0);
	reach(at, 65536);
	CHECK(shmdt(at) == 0);
}

static int huge_before;

static int write_huge(FILE *file, int pages)
{
	rewind(file);
	fprintf(file, "%d\n", pages);
	return fclose(file);
}

static void as_before(void)
{
	FILE *file = fopen("/proc/sys/vm/nr_hugepages", "r+");
	if (file)
		write_huge(file, huge_before);
}

/* Sets huge pages aside until the end, where that is allowed. */
static void set_aside(int pages)
{
	FILE *file = fopen("/proc/sys/vm/nr_hugepages", "r+");
	if (!file)
		return;
	CHECK(fscanf(file, "%d", &huge_before) == 1);
	CHECK(atexit(as_before) == 0);
	write_huge(file, huge_before + pages);
}

/* Memory of another user's, who lets us read it, write it, and cuts it short. */
static void of_another_user(void)
{
	if (geteuid() != 0) {
		fprintf(stderr, "skipped: memory of another user needs root\n");
		return;
	}
	char name[64];
	snprintf(name, sizeof(name), "/crocevia-foreign-%d", (int)getpid());
	CHECK(seteuid(65534) == 0);
	int fd = shm_open(name, O_RDWR | O_CREAT | O_EXCL, 0644);
	CHECK(fd >= 0 && ftruncate(fd, 65536) == 0 && fchmod(fd, 0644) == 0);
	CHECK(seteuid(0) == 0);
	struct stat stat;
	CHECK(fstat(fd, &stat) == 0 && stat.st_uid == 65534);
	int reading = shm_open(name, O_RDONLY, 0), both = shm_open(name, O_RDWR, 0);
	CHECK(reading >= 0 && both >= 0 && shm_unlink(name) == 0);
	char *at = map(65536, PROT_READ, MAP_SHARED, reading);
	CHECK(at);
	NOTHING(ibv_reg_mr(pd, at, 65536, ALL_ACCESS), EFAULT);
	struct ibv_mr *mr = ibv_reg_mr(pd, at, 65536, IBV_ACCESS_REMOTE_READ);
	CHECK(mr && ask(IBV_WR_RDMA_READ, at, 4096, mr->rkey) == IBV_WC_SUCCESS);
	CHECK(ibv_dereg_mr(mr) == 0);
	munmap(at, 65536);
	at = map(65536, PROT_READ | PROT_WRITE, MAP_SHARED, both);
	CHECK(at);
	reach(at, 65536);
	mr = ibv_reg_mr(pd, at, 65536, ALL_ACCESS);
	CHECK(mr);
	CHECK(ftruncate(fd, 4096) == 0);
	CHECK(ask(IBV_WR_RDMA_WRITE, at + 8192, 8, mr->rkey) == IBV_WC_REM_OP_ERR);
	CHECK(ask(IBV_WR_RDMA_WRITE, at, 4096, mr->rkey) == IBV_WC_SUCCESS);
	CHECK(ibv_dereg_mr(mr) == 0);
	munmap(at, 65536);
	close(reading);
	close(both);
	close(fd);
}

static void huge_pages(void)
{
	set_aside(4);
	size_t size = 4 << 20;
	int rights = PROT_READ | PROT_WRITE, flags = MAP_PRIVATE | MAP_ANONYMOUS;
	char *at = map(size, rights, flags | MAP_HUGETLB, -1);
	if (at) {
		reach(at, size);
		/* Taken away as whole. */
		struct ibv_mr *mr = ibv_reg_mr(pd, at, size, ALL_ACCESS);
		CHECK(mr && munmap(at, size) == 0);
		CHECK(ask(IBV_WR_RDMA_WRITE, at, 8, mr->rkey) == IBV_WC_REM_OP_ERR);
		CHECK(ibv_dereg_mr(mr) == 0);
	} else {
		fprintf(stderr, "skipped: huge pages are not set aside (errno %d)\n", errno);
	}
	int fd = memfd_create("huge", MFD_CLOEXEC | MFD_HUGETLB);
	at = fd >= 0 && ftruncate(fd, size) == 0 ? map(size, rights, MAP_SHARED, fd) : NULL;
	if (at) {
		reach(at, size);
		munmap(at, size);
	}
	close(fd);
	/* Those that the kernel makes by itself. */
	char *area = map(size + (2 << 20), rights, flags, -1);
	CHECK(area);
	at = (char *)(((uintptr_t)area + (2 << 20) - 1) & ~(uintptr_t)((2 << 20) - 1));
	madvise(at, size, MADV_HUGEPAGE);
	reach(at, size);
	struct ibv_mr *mr = ibv_reg_mr(pd, at, size, ALL_ACCESS);
	CHECK(mr && munmap(at + (1 << 20), 4096) == 0);
	CHECK(ask(IBV_WR_RDMA_WRITE, at + (1 << 20) - 8, 8, mr->rkey) == IBV_WC_SUCCESS);
	CHECK(ask(IBV_WR_RDMA_WRITE, at + (1 << 20) - 8, 9, mr->rkey) == IBV_WC_REM_OP_ERR);
	CHECK(ask(IBV_WR_RDMA_WRITE, at + (1 << 20) + 4096, 8, mr->rkey) == IBV_WC_SUCCESS);
	CHECK(ibv_dereg_mr(mr) == 0);
	munmap(area, size + (2 << 20));
}

static void read_only(void)
{
	char *at = map(65536, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1);
	CHECK(at);
	const int writing[] = { IBV_ACCESS_LOCAL_WRITE,
				IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE,
				IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_ATOMIC, ALL_ACCESS };
	for (size_t i = 0; i < sizeof(writing) / sizeof(writing[0]); i++) {
		NOTHING(ibv_reg_mr(pd, at, 65536, writing[i]), EFAULT);
		NOTHING(ibv_reg_mr(pd, at, 1, writing[i]), EFAULT);
	}
	struct ibv_mr *mr = ibv_reg_mr(pd, at, 65536, IBV_ACCESS_REMOTE_READ);
	CHECK(mr);
	CHECK(ask(IBV_WR_RDMA_READ, at, 8192, mr->rkey) == IBV_WC_SUCCESS && plain[0] == 0);
	CHECK(ask(IBV_WR_RDMA_WRITE, at, 8, mr->rkey) == IBV_WC_REM_ACCESS_ERR);
	CHECK(ibv_rereg_mr(mr, IBV_REREG_MR_CHANGE_TRANSLATION | IBV_REREG_MR_CHANGE_ACCESS, pd, at,
			   65536, ALL_ACCESS) != 0);
	CHECK(ibv_dereg_mr(mr) == 0);
	/* Constants of the program. */
	static const char text[] = "constant";
	mr = ibv_reg_mr(pd, (void *)text, sizeof(text), 0);
	CHECK(mr && ibv_dereg_mr(mr) == 0);
	CHECK(mprotect(at, 65536, PROT_NONE) == 0);
	NOTHING(ibv_reg_mr(pd, at, 65536, 0), EFAULT);
	CHECK(mprotect(at, 65536, PROT_READ | PROT_WRITE) == 0);
	reach(at, 65536);
	/* A hole. */
	CHECK(munmap(at + 8192, 4096) == 0);
	NOTHING(ibv_reg_mr(pd, at, 65536, 0), EFAULT);
	munmap(at, 65536);
	NOTHING(ibv_reg_mr(pd, at, 65536, 0), EFAULT);
	NOTHING(ibv_reg_mr(pd, (void *)(uintptr_t)-4096, 65536, 0), EINVAL);
}

/* Memory that is there when it is reached: a range to come, and all there is. */
static void on_demand(void)
{
	char *at = map(1 << 20, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1);
	CHECK(at);
	struct ibv_mr *mr = ibv_reg_mr(pd, at, 1 << 20, ALL_ACCESS | IBV_ACCESS_ON_DEMAND);
	CHECK(mr);
	CHECK(ask(IBV_WR_RDMA_WRITE, at, 8192, mr->rkey) == IBV_WC_REM_OP_ERR);
	CHECK(mprotect(at, 65536, PROT_READ | PROT_WRITE) == 0);
	CHECK(ask(IBV_WR_RDMA_WRITE, at, 8192, mr->rkey) == IBV_WC_SUCCESS);
	CHECK(ask(IBV_WR_RDMA_READ, at + 65536, 8192, mr->rkey) == IBV_WC_REM_OP_ERR);
	CHECK(ibv_dereg_mr(mr) == 0);
	mr = ibv_reg_mr(pd, NULL, SIZE_MAX, ALL_ACCESS | IBV_ACCESS_ON_DEMAND);
	CHECK(mr);
	CHECK(ask(IBV_WR_RDMA_WRITE, at, 8192, mr->rkey) == IBV_WC_SUCCESS);
	CHECK(ask(IBV_WR_RDMA_WRITE, at + 65536 - 1, 2, mr->rkey) == IBV_WC_REM_OP_ERR);
	CHECK(ask(IBV_WR_RDMA_READ, NULL, 8, mr->rkey) == IBV_WC_REM_OP_ERR);
	CHECK(ask(IBV_WR_RDMA_READ, (void *)0x7ffffffff000, 8, mr->rkey) == IBV_WC_REM_OP_ERR);
	CHECK(ask(IBV_WR_RDMA_READ, (void *)0x8000000000000000, 8, mr->rkey) == IBV_WC_REM_OP_ERR);
	CHECK(ibv_dereg_mr(mr) == 0);
	munmap(at, 1 << 20);
}

/* A registration that ends, and memory that goes, while a peer reads it. */
static void under_a_read(int unmap)
{
	size_t size = 8 << 20;
	int flags = MAP_PRIVATE | MAP_ANONYMOUS;
	char *from = map(size, PROT_READ | PROT_WRITE, flags, -1);
	char *to = map(size, PROT_READ | PROT_WRITE, flags, -1);
	CHECK(from && to);
	memset(from, 0x55, size);
	struct ibv_mr *from_mr = ibv_reg_mr(pd, from, size, ALL_ACCESS);
	struct ibv_mr *to_mr = ibv_reg_mr(pd, to, size, ALL_ACCESS);
	CHECK(from_mr && to_mr);
	int failed = 0;
	for (int round = 0; round < 20; round++) {
		struct ibv_qp *one = make_qp(pd, cq, NULL, IBV_QPT_RC);
		struct ibv_qp *other = make_qp(pd, cq, NULL, IBV_QPT_RC);
		connect_pair(one, other);
		struct ibv_sge sge = { (uintptr_t)to, size, to_mr->lkey };
		struct ibv_send_wr wr = send_wr(1, IBV_WR_RDMA_READ, &sge);
		wr.wr.rdma.remote_addr = (uintptr_t)from;
		wr.wr.rdma.rkey = from_mr->rkey;
		post(one, &wr);
		struct ibv_wc wc;
		for (int i = 0; i < round && ibv_poll_cq(cq, 0, &wc) == 0; i++)
			usleep(50);
		if (unmap) {
			CHECK(munmap(from, size) == 0);
		} else {
			CHECK(ibv_dereg_mr(from_mr) == 0);
			munmap(from, size);
		}
		wc = poll_one(cq);
		CHECK(wc.status == (unmap ? IBV_WC_REM_OP_ERR : IBV_WC_REM_ACCESS_ERR) ||
		      wc.status == IBV_WC_SUCCESS);
		failed += wc.status != IBV_WC_SUCCESS;
		if (unmap)
			CHECK(ibv_dereg_mr(from_mr) == 0);
		CHECK(ibv_destroy_qp(one) == 0 && ibv_destroy_qp(other) == 0);
		from = map(size, PROT_READ | PROT_WRITE, flags, -1);
		CHECK(from);
		from_mr = ibv_reg_mr(pd, from, size, ALL_ACCESS);
		CHECK(from_mr);
	}
	CHECK(failed > 0);
	CHECK(ibv_dereg_mr(from_mr) == 0 && ibv_dereg_mr(to_mr) == 0);
	munmap(from, size);
	munmap(to, size);
}

int main(void)
{
	struct ibv_context *context = open_first();
	pd = ibv_alloc_pd(context);
	cq = ibv_create_cq(context, 64, NULL, NULL, 0);
	plain_mr = ibv_reg_mr(pd, plain, sizeof(plain), ALL_ACCESS);
	CHECK(pd && cq && plain_mr);
	struct ibv_device_attr_ex attr;
	CHECK(ibv_query_device_ex(context, NULL, &attr) == 0);
	CHECK(attr.odp_caps.general_caps & IBV_ODP_SUPPORT);
	CHECK(attr.odp_caps.general_caps & IBV_ODP_SUPPORT_IMPLICIT);
	files();
	shared();
	of_another_user();
	huge_pages();
	read_only();
	on_demand();
	under_a_read(0);
	under_a_read(1);
	CHECK(ibv_dereg_mr(plain_mr) == 0 && ibv_destroy_cq(cq) == 0);
	CHECK(ibv_dealloc_pd(pd) == 0 && ibv_close_device(context) == 0);
	return 0;
}
