/* A Java virtual machine in the process. It knows null pointers by SIGSEGV, with a handler of its
 * own, set before the device is opened or after: both find their faults, and only theirs. Without
 * such a machine the test is skipped. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <glob.h>
#include <sys/mman.h>
#include <sys/wait.h>

#include "common.h"

/* What is needed of the invocation interface (jni.h is part of the development kit only): the
 * places of functions in the tables, as the Java Native Interface specification numbers them. */
enum {
	FIND_CLASS = 6,
	EXCEPTION_CLEAR = 17,
	STATIC_METHOD = 113,
	CALL_STATIC = 116,
	IS_THROWN = 228
};
#define VERSION_8 0x00010008

struct option {
	const char *text;
	void *extra;
};

struct arguments {
	int version, count;
	struct option *options;
	unsigned char ignore_unknown;
};

typedef void **env_table;
static env_table *env;
static void *string_class, *value_of;

static void start_machine(const char *library)
{
	void *handle = dlopen(library, RTLD_NOW | RTLD_GLOBAL);
	CHECK(handle);
	int (*create)(void **, void **, void *) =
		(int (*)(void **, void **, void *))dlsym(handle, "JNI_CreateJavaVM");
	CHECK(create);
	struct option options[] = { { "-Xmx32m", NULL }, { "-Xrs", NULL } };
	struct arguments arguments = { VERSION_8, 2, options, 0 };
	void *machine;
	CHECK(create(&machine, (void **)&env, &arguments) == 0);
	void *(*find)(env_table *, const char *) =
		(void *(*)(env_table *, const char *))(*env)[FIND_CLASS];
	void *(*method)(env_table *, void *, const char *, const char *) =
		(void *(*)(env_table *, void *, const char *, const char *))(*env)[STATIC_METHOD];
	CHECK(string_class = find(env, "java/lang/String"));
	CHECK(value_of = method(env, string_class, "valueOf", "([C)Ljava/lang/String;"));
}

/* String.valueOf((char[]) null), interpreted at first and compiled later. */
static void null_pointers(int count)
{
	void *(*call)(env_table *, void *, void *, const uint64_t *) =
		(void *(*)(env_table *, void *, void *, const uint64_t *))(*env)[CALL_STATIC];
	unsigned char (*is_thrown)(env_table *) = (unsigned char (*)(env_table *))(*env)[IS_THROWN];
	void (*clear)(env_table *) = (void (*)(env_table *))(*env)[EXCEPTION_CLEAR];
	const uint64_t null = 0;
	for (int i = 0; i < count; i++) {
		call(env, string_class, value_of, &null);
		CHECK(is_thrown(env));
		clear(env);
	}
}

static struct ibv_context *context;
static struct ibv_pd *pd;
static struct ibv_cq *cq;

static void open_device(void)
{
	context = open_first();
	CHECK(pd = ibv_alloc_pd(context));
	CHECK(cq = ibv_create_cq(context, 64, NULL, NULL, 0));
}

/* A peer writes where memory was, and where it is. */
static void nic_faults(int count)
{
	static char plain[4096];
	struct ibv_mr *mine = ibv_reg_mr(pd, plain, sizeof(plain), ALL_ACCESS);
	CHECK(mine);
	for (int i = 0; i < count; i++) {
		int rights = PROT_READ | PROT_WRITE, flags = MAP_PRIVATE | MAP_ANONYMOUS;
		char *at = mmap(NULL, 8192, rights, flags, -1, 0);
		CHECK(at != MAP_FAILED);
		struct ibv_mr *mr = ibv_reg_mr(pd, at, 8192, ALL_ACCESS);
		CHECK(mr && munmap(at + 4096, 4096) == 0);
		struct ibv_qp *one = make_qp(pd, cq, NULL, IBV_QPT_RC);
		struct ibv_qp *other = make_qp(pd, cq, NULL, IBV_QPT_RC);
		connect_pair(one, other);
		struct ibv_sge sge = { (uintptr_t)plain, sizeof(plain), mine->lkey };
		struct ibv_send_wr wr = send_wr(1, IBV_WR_RDMA_WRITE, &sge);
		wr.wr.rdma.remote_addr = (uintptr_t)at;
		wr.wr.rdma.rkey = mr->rkey;
		post(one, &wr);
		poll_good(cq, 1);
		wr.wr.rdma.remote_addr = (uintptr_t)at + 4096;
		post(one, &wr);
		CHECK(poll_one(cq).status == IBV_WC_REM_OP_ERR);
		CHECK(ibv_destroy_qp(one) == 0 && ibv_destroy_qp(other) == 0);
		CHECK(ibv_dereg_mr(mr) == 0);
		munmap(at, 4096);
	}
	CHECK(ibv_dereg_mr(mine) == 0);
}

static void machine_first(const char *library)
{
	start_machine(library);
	null_pointers(10);
	open_device();
	nic_faults(1);
}

static void machine_later(const char *library)
{
	open_device();
	nic_faults(1);
	start_machine(library);
}

int main(void)
{
	glob_t found;
	if (glob("/usr/lib/jvm/*/lib/server/libjvm.so", 0, NULL, &found) != 0) {
		fprintf(stderr, "skipped: there is no Java virtual machine\n");
		return 0;
	}
	void (*const orders[])(const char *) = { machine_first, machine_later };
	for (int i = 0; i < 2; i++) {
		int status;
		pid_t child = fork();
		CHECK(child >= 0);
		if (child == 0) {
			orders[i](found.gl_pathv[0]);
			for (int round = 0; round < 10; round++) {
				null_pointers(2000);
				nic_faults(2);
			}
			_exit(0);
		}
		CHECK(waitpid(child, &status, 0) == child);
		CHECK(status == 0);
	}
	globfree(&found);
	return 0;
}
