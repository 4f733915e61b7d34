/* Programs with handlers of their own for SIGSEGV and SIGBUS, or none: faults of the NIC's copies
 * never reach them, all others do, as the program has asked. Each scene is a process of its own. */
#define _GNU_SOURCE
#include "gone.h"

#include <dlfcn.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>

static struct ibv_context *context;
static struct ibv_pd *pd;
static struct ibv_cq *cq;

static void open_all(void)
{
	context = open_first();
	pd = ibv_alloc_pd(context);
	cq = ibv_create_cq(context, 64, NULL, NULL, 0);
	CHECK(pd && cq);
}

/* The NIC meets memory that has gone: when it writes for a peer, and when it reads to send. */
static void nic_faults(enum way way)
{
	for (int far = 0; far < 2; far++) {
		struct piece a = make_piece(pd, way), b = make_piece(pd, way);
		struct ibv_qp *one = make_qp(pd, cq, NULL, IBV_QPT_RC);
		struct ibv_qp *other = make_qp(pd, cq, NULL, IBV_QPT_RC);
		connect_pair(one, other);
		take(far ? &b : &a, way);
		struct ibv_sge sge = { (uintptr_t)a.at + 4096, 64, a.mr->lkey };
		struct ibv_send_wr wr = send_wr(1, IBV_WR_RDMA_WRITE, &sge);
		wr.wr.rdma.remote_addr = (uintptr_t)b.at + 4096;
		wr.wr.rdma.rkey = b.mr->rkey;
		post(one, &wr);
		struct ibv_wc wc = poll_one(cq);
		CHECK(wc.status == (far ? IBV_WC_REM_OP_ERR : IBV_WC_LOC_PROT_ERR));
		struct ibv_async_event event = { .event_type = IBV_EVENT_COMM_EST };
		while (far && event.event_type == IBV_EVENT_COMM_EST) {
			CHECK(ibv_get_async_event(context, &event) == 0);
			ibv_ack_async_event(&event);
		}
		CHECK(!far || event.event_type == IBV_EVENT_QP_ACCESS_ERR);
		CHECK(ibv_destroy_qp(one) == 0 && ibv_destroy_qp(other) == 0);
		end_piece(&a);
		end_piece(&b);
	}
}

/* The program's own faults: a page that cannot be written until its handler lets it. */
static volatile int calls;
static char *volatile page;
static volatile sig_atomic_t last_signal;
static sigjmp_buf jump;

static char *shut_page(void)
{
	char *at = mmap(NULL, 4096, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	CHECK(at != MAP_FAILED);
	return at;
}

static void opens_page(int signal, siginfo_t *info, void *frame)
{
	(void)frame;
	calls++;
	last_signal = signal;
	if (info->si_addr != page + 100)
		_exit(90);
	mprotect(page, 4096, PROT_READ | PROT_WRITE);
}

static void own_fault(void)
{
	int before = calls;
	page = shut_page();
	((volatile char *)page)[100] = 5;
	CHECK(calls == before + 1 && last_signal == SIGSEGV && page[100] == 5);
	munmap(page, 4096);
}

static void set_handler(void (*handler)(int, siginfo_t *, void *), int flags)
{
	struct sigaction action = { .sa_sigaction = handler, .sa_flags = flags | SA_SIGINFO };
	sigemptyset(&action.sa_mask);
	CHECK(sigaction(SIGSEGV, &action, NULL) == 0);
	CHECK(sigaction(SIGBUS, &action, NULL) == 0);
}

static void check_handler(void *handler)
{
	struct sigaction now;
	CHECK(sigaction(SIGSEGV, NULL, &now) == 0);
	CHECK((void *)now.sa_sigaction == handler);
}

static void all_nic_faults(void)
{
	int before = calls;
	for (enum way way = 0; way < WAYS; way++)
		if (way != READ_ONLY)
			nic_faults(way);
	CHECK(calls == before);
}

static void handler_before(void)
{
	set_handler(opens_page, 0);
	open_all();
	all_nic_faults();
	check_handler((void *)opens_page);
	own_fault();
	all_nic_faults();
}

static void handler_after(void)
{
	open_all();
	all_nic_faults();
	check_handler((void *)SIG_DFL);
	set_handler(opens_page, 0);
	check_handler((void *)opens_page);
	all_nic_faults();
	own_fault();
	all_nic_faults();
}

static void jumps(int signal)
{
	calls++;
	last_signal = signal;
	siglongjmp(jump, 1);
}

static void jump_out(int save)
{
	int before = calls;
	char *at = shut_page();
	if (sigsetjmp(jump, save) == 0) {
		((volatile char *)at)[0] = 1;
		exit(1);
	}
	CHECK(calls == before + 1);
	munmap(at, 4096);
}

static void old_style_before(void)
{
	CHECK(signal(SIGSEGV, jumps) == SIG_DFL);
	open_all();
	all_nic_faults();
	jump_out(1);
	CHECK(signal(SIGSEGV, SIG_DFL) == jumps);
	all_nic_faults();
}

static void old_style_after(void)
{
	open_all();
	all_nic_faults();
	CHECK(signal(SIGSEGV, jumps) == SIG_DFL);
	CHECK(signal(SIGBUS, jumps) == SIG_DFL);
	for (int i = 0; i < 3; i++) {
		jump_out(1);
		all_nic_faults();
	}
	/* A file that has been cut. */
	struct piece piece = make_piece(pd, TRUNCATE);
	take(&piece, TRUNCATE);
	if (sigsetjmp(jump, 1) == 0) {
		piece.at[5000] = 1;
		exit(1);
	}
	CHECK(last_signal == SIGBUS);
	end_piece(&piece);
}

/* The thread goes on with the signal blocked, as after the handler of a program that saved no
 * mask. */
static void jumps_with_signal_blocked(void)
{
	open_all();
	CHECK(signal(SIGSEGV, jumps) == SIG_DFL);
	jump_out(0);
	sigset_t set;
	CHECK(pthread_sigmask(SIG_BLOCK, NULL, &set) == 0 && sigismember(&set, SIGSEGV) == 1);
	usleep(3000);
	all_nic_faults();
}

static char other_stack[65536];
static volatile int told;

static void looks_around(int signal, siginfo_t *info, void *frame)
{
	sigset_t set;
	char here;
	calls++;
	pthread_sigmask(SIG_BLOCK, NULL, &set);
	told = (sigismember(&set, SIGUSR1) ? 1 : 0) | (sigismember(&set, signal) ? 2 : 0) |
	       (&here >= other_stack && &here < other_stack + sizeof(other_stack) ? 4 : 0);
	last_signal = signal;
	(void)frame;
	if (info->si_addr == page + 100)
		mprotect(page, 4096, PROT_READ | PROT_WRITE);
}

static void flags_and_masks(void)
{
	open_all();
	all_nic_faults();
	stack_t stack = { .ss_sp = other_stack, .ss_size = sizeof(other_stack) };
	CHECK(sigaltstack(&stack, NULL) == 0);
	for (int bits = 0; bits < 8; bits++) {
		struct sigaction action = { .sa_sigaction = looks_around };
		sigemptyset(&action.sa_mask);
		if (bits & 1)
			sigaddset(&action.sa_mask, SIGUSR1);
		action.sa_flags = SA_SIGINFO | (bits & 2 ? 0 : SA_NODEFER) |
				  (bits & 4 ? SA_ONSTACK : 0);
		CHECK(sigaction(SIGSEGV, &action, NULL) == 0);
		nic_faults(PROTECT);
		own_fault();
		CHECK(told == bits);
		struct sigaction now;
		CHECK(sigaction(SIGSEGV, NULL, &now) == 0);
		CHECK((now.sa_flags & (SA_NODEFER | SA_ONSTACK | SA_SIGINFO)) == action.sa_flags);
		CHECK(sigismember(&now.sa_mask, SIGUSR1) == (bits & 1));
	}
	/* It serves once. */
	set_handler(looks_around, SA_RESETHAND);
	nic_faults(PROTECT);
	own_fault();
	check_handler((void *)SIG_DFL);
	nic_faults(PROTECT);
}

/* A handler set past our names, as by a plugin host that has bound to the C library. */
static void handler_unseen(void)
{
	open_all();
	all_nic_faults();
	void *libc = dlopen("libc.so.6", RTLD_NOW);
	int (*real)(int, const struct sigaction *, struct sigaction *) = dlsym(libc, "sigaction");
	CHECK(real && real != sigaction);
	struct sigaction action = { .sa_sigaction = opens_page, .sa_flags = SA_SIGINFO }, old;
	sigemptyset(&action.sa_mask);
	CHECK(real(SIGSEGV, &action, &old) == 0 && real(SIGBUS, &action, NULL) == 0);
	CHECK((void *)old.sa_sigaction != (void *)SIG_DFL);
	/* The NIC looks every millisecond. */
	usleep(3000);
	all_nic_faults();
	own_fault();
	/* It puts back what it found. */
	CHECK(real(SIGSEGV, &old, NULL) == 0 && real(SIGBUS, &old, NULL) == 0);
	usleep(3000);
	all_nic_faults();
	set_handler(opens_page, 0);
	own_fault();
	all_nic_faults();
}

static void *polls_blocked(void *argument)
{
	sigset_t all;
	sigfillset(&all);
	CHECK(pthread_sigmask(SIG_SETMASK, &all, NULL) == 0);
	all_nic_faults();
	return argument;
}

static void thread_with_all_blocked(void)
{
	open_all();
	all_nic_faults();
	pthread_t thread;
	for (int i = 0; i < 3; i++) {
		CHECK(pthread_create(&thread, NULL, polls_blocked, NULL) == 0);
		CHECK(pthread_join(thread, NULL) == 0);
		all_nic_faults();
	}
	polls_blocked(NULL);
}

static volatile pid_t taker;

static void notes_thread(int signal)
{
	last_signal = signal;
	calls++;
	taker = syscall(SYS_gettid);
}

/* A signal that somebody sends is for the program's threads, and waits if they block it. */
static void sent_by_somebody(void)
{
	open_all();
	all_nic_faults();
	CHECK(signal(SIGSEGV, notes_thread) == SIG_DFL);
	CHECK(kill(getpid(), SIGSEGV) == 0);
	for (int i = 0; i < 1000 && calls == 0; i++)
		usleep(1000);
	CHECK(calls == 1 && taker == getpid());
	sigset_t set;
	sigemptyset(&set);
	sigaddset(&set, SIGSEGV);
	CHECK(pthread_sigmask(SIG_BLOCK, &set, NULL) == 0);
	for (int i = 0; i < 3; i++) {
		CHECK(kill(getpid(), SIGSEGV) == 0);
		usleep(20000);
		siginfo_t info;
		struct timespec wait = { .tv_sec = 5 };
		CHECK(sigtimedwait(&set, &info, &wait) == SIGSEGV);
		CHECK(info.si_pid == getpid() && calls == 1);
	}
	all_nic_faults();
	CHECK(pthread_sigmask(SIG_UNBLOCK, &set, NULL) == 0);
	all_nic_faults();
}

/* Crashes: the process ends as it would without us. */
static void quiet_crash(void)
{
	struct rlimit none = { 0, 0 };
	setrlimit(RLIMIT_CORE, &none);
	open_all();
	all_nic_faults();
}

static void crash(void)
{
	quiet_crash();
	*(volatile char *)shut_page() = 1;
}

static void crash_of_a_file(void)
{
	quiet_crash();
	struct piece piece = make_piece(pd, TRUNCATE);
	take(&piece, TRUNCATE);
	piece.at[5000] = 1;
}

static void crash_ignored(void)
{
	quiet_crash();
	CHECK(signal(SIGSEGV, SIG_IGN) == SIG_DFL);
	CHECK(raise(SIGSEGV) == 0);
	all_nic_faults();
	*(volatile char *)shut_page() = 1;
}

static void crash_raised(void)
{
	quiet_crash();
	raise(SIGSEGV);
}

static void crash_blocked(void)
{
	quiet_crash();
	sigset_t set;
	sigfillset(&set);
	CHECK(pthread_sigmask(SIG_SETMASK, &set, NULL) == 0);
	*(volatile char *)shut_page() = 1;
}

static void reports(int signal_number)
{
	calls++;
	signal(signal_number, SIG_DFL);
}

static void crash_reported(void)
{
	quiet_crash();
	CHECK(signal(SIGSEGV, reports) == SIG_DFL);
	*(volatile char *)shut_page() = 1;
}

static void crash_of_an_address(void)
{
	quiet_crash();
	/* Not canonical: a general protection fault, without an address. */
	*(volatile char *)0x8000000000000000 = 1;
}

static const struct {
	const char *name;
	void (*run)(void);
	int signal;
} scenes[] = {
	{ "handler before", handler_before, 0 },
	{ "handler after", handler_after, 0 },
	{ "signal before", old_style_before, 0 },
	{ "signal after", old_style_after, 0 },
	{ "signal blocked by a jump", jumps_with_signal_blocked, 0 },
	{ "flags and masks", flags_and_masks, 0 },
	{ "handler unseen", handler_unseen, 0 },
	{ "thread with all blocked", thread_with_all_blocked, 0 },
	{ "sent by somebody", sent_by_somebody, 0 },
	{ "crash", crash, SIGSEGV },
	{ "crash of a file", crash_of_a_file, SIGBUS },
	{ "crash ignored", crash_ignored, SIGSEGV },
	{ "crash raised", crash_raised, SIGSEGV },
	{ "crash blocked", crash_blocked, SIGSEGV },
	{ "crash reported", crash_reported, SIGSEGV },
	{ "crash of an address", crash_of_an_address, SIGSEGV },
};

int main(int argc, char **argv)
{
	for (size_t i = 0; i < sizeof(scenes) / sizeof(scenes[0]); i++) {
		if (argc > 1 && strcmp(argv[1], scenes[i].name) != 0)
			continue;
		pid_t child = fork();
		CHECK(child >= 0);
		if (child == 0) {
			alarm(30);
			scenes[i].run();
			exit(0);
		}
		int status;
		CHECK(waitpid(child, &status, 0) == child);
		int right = scenes[i].signal ?
				    WIFSIGNALED(status) && WTERMSIG(status) == scenes[i].signal :
				    WIFEXITED(status) && WEXITSTATUS(status) == 0;
		if (!right) {
			fprintf(stderr, "%s: status %#x\n", scenes[i].name, status);
			return 1;
		}
	}
	return 0;
}
