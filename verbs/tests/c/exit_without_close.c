// Programs that end without closing anything: at once, with their own exit code, whatever is under way.

#include <signal.h>
#include <sys/time.h>
#include <sys/wait.h>

#include "common.h"

// Data under way, receives posted, channels armed.
static void busy(struct end e[2])
{
	open_both(e);
	connect_new(e, IBV_QPT_RC);
	exchange(e, 1);
	for (int i = 0; i < 10; i++) {
		OK(post_recv(e[0].qp, i, at(&e[0], 0, 8)));
		OK(post_rdma(e[0].qp, IBV_WR_RDMA_WRITE, i, at(&e[0], 0, 300000), address(&e[1], 0), e[1].mr->rkey));
	}
	// This one waits for a receive that never comes.
	OK(post_send(e[1].qp, 99, at(&e[1], 0, 64)));
	OK(ibv_req_notify_cq(e[0].cq, 0));
}

static void *poll_for_ever(void *arg)
{
	struct end *e = arg;
	struct ibv_wc wc;
	for (;;)
		ibv_poll_cq(e->cq, 1, &wc);
	return NULL;
}

static void *sleep_for_ever(void *arg)
{
	struct end *e = arg;
	struct ibv_cq *cq;
	void *context;
	for (;;)
		ibv_get_cq_event(e->channel, &cq, &context);
	return NULL;
}

static void *call_exit(void *arg)
{
	(void)arg;
	usleep(10 * 1000);
	exit(43);
	return NULL;
}

static struct end late[2];

// Runs when the library may be on its way out: it must neither crash nor hang.
static void at_the_end(void)
{
	struct ibv_wc wc;
	ibv_poll_cq(late[0].cq, 1, &wc);
	(void)post_send(late[0].qp, 1, at(&late[0], 0, 8));
}

static void returns(struct end e[2])
{
	(void)e;
	exit(41);
}

static void at_once(struct end e[2])
{
	(void)e;
	_exit(42);
}

static void from_a_thread(struct end e[2])
{
	pthread_t polling, sleeping, ending;
	CHECK(pthread_create(&polling, NULL, poll_for_ever, &e[0]) == 0);
	CHECK(pthread_create(&sleeping, NULL, sleep_for_ever, &e[1]) == 0);
	CHECK(pthread_create(&ending, NULL, call_exit, NULL) == 0);
	for (;;)
		pause();
}

static void with_handlers(struct end e[2])
{
	memcpy(late, e, sizeof(late));
	CHECK(atexit(at_the_end) == 0);
	exit(44);
}

static void exit_in_handler(int number)
{
	(void)number;
	exit(46);
}

// The signal finds the thread inside of the engine about every second time, so there is more than one.
static void by_a_signal(struct end e[2])
{
	struct itimerval soon = {.it_value = {.tv_usec = 20 * 1000}};
	signal(SIGALRM, exit_in_handler);
	CHECK(setitimer(ITIMER_REAL, &soon, NULL) == 0);
	poll_for_ever(&e[0]);
}

static void half_closed(struct end e[2])
{
	OK(ibv_destroy_qp(e[0].qp));
	ibv_close_device(e[1].context);
	exit(45);
}

static void aborts(struct end e[2])
{
	(void)e;
	signal(SIGABRT, SIG_DFL);
	abort();
}

static const struct {
	const char *name;
	void (*end)(struct end e[2]);
	int code; // negative: the signal
} WAYS[] = {
	{"exit", returns, 41},
	{"_exit", at_once, 42},
	{"exit in a thread, while others poll and sleep", from_a_thread, 43},
	{"a handler of atexit that calls verbs", with_handlers, 44},
	{"exit in a handler of a signal, in the midst of a verb", by_a_signal, 46},
	{"once more", by_a_signal, 46},
	{"and again", by_a_signal, 46},
	{"some objects gone, the device closed under others", half_closed, 45},
	{"abort", aborts, -SIGABRT},
};

int main(void)
{
	for (size_t i = 0; i < sizeof(WAYS) / sizeof(WAYS[0]); i++) {
		PART(WAYS[i].name);
		pid_t child = fork(); // no verb was called in this process
		CHECK(child >= 0);
		if (child == 0) {
			struct end e[2];
			busy(e);
			WAYS[i].end(e);
			_exit(9);
		}
		int status = 0;
		uint64_t end = now_ms() + LIMIT_MS;
		while (waitpid(child, &status, WNOHANG) == 0) {
			if (now_ms() > end) {
				kill(child, SIGKILL);
				FAIL("it does not end");
			}
			usleep(1000);
		}
		int code = WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
		EQ(code, WAYS[i].code);
	}
	return 0;
}
