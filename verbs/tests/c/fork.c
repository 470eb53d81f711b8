// fork(2) after ibv_fork_init: children that end, run another program or call verbs do not disturb what the parent does.

#include <sys/wait.h>

#include "common.h"

// The child's exit status; it must end by itself.
static int wait_for(pid_t child)
{
	int status;
	for (uint64_t end = now_ms() + LIMIT_MS; now_ms() < end; usleep(1000)) {
		if (waitpid(child, &status, WNOHANG) == child)
			return status;
	}
	FAIL("the child does not end");
}

static void exits_well(pid_t child)
{
	int status = wait_for(child);
	if (!WIFEXITED(status) || WEXITSTATUS(status) != 0)
		FAIL("the child ends with status %#x", status);
}

static void initialised(void)
{
	PART("ibv_fork_init, before and after there is a device");
	OK(ibv_fork_init());
	CHECK(ibv_is_fork_initialized() == IBV_FORK_ENABLED || ibv_is_fork_initialized() == IBV_FORK_UNNEEDED);
	struct end e;
	open_end(&e, 0);
	OK(ibv_fork_init());
	close_end(&e);
}

static void children_that_end(struct end e[2])
{
	PART("children that end by _exit and by exit");
	for (int i = 0; i < 10; i++) {
		pid_t child = fork();
		CHECK(child >= 0);
		if (child == 0) {
			if (i % 2)
				_exit(0);
			exit(0);
		}
		exchange(e, i);
		exits_well(child);
		exchange(e, i);
	}
}

// How many descriptors a program has that is run from here.
static int descriptors_of_a_child(void)
{
	FILE *shell = popen("ls /proc/self/fd | wc -l", "r");
	int count = 0;
	CHECK(shell && fscanf(shell, "%d", &count) == 1 && pclose(shell) == 0);
	return count;
}

static int descriptors_before;

static void children_that_run_something_else(struct end e[2])
{
	PART("children that run another program; nothing of ours is open there");
	for (int i = 0; i < 10; i++) {
		pid_t child = fork();
		CHECK(child >= 0);
		if (child == 0) {
			execl("/bin/true", "true", NULL);
			_exit(9);
		}
		exchange(e, i);
		exits_well(child);
	}
	EQ(descriptors_of_a_child(), descriptors_before);
}

static void children_that_write(struct end e[2])
{
	PART("registered memory is the parent's own, whatever a child writes");
	fill(e[0].memory, 8192, 1);
	memset(e[1].memory, 0, 8192);
	pid_t child = fork();
	CHECK(child >= 0);
	if (child == 0) {
		memset(e[0].memory, 0xcc, 8192);
		memset(e[1].memory, 0xdd, 8192);
		usleep(100 * 1000);
		_exit(0);
	}
	usleep(20 * 1000);
	OK(post_rdma(e[0].qp, IBV_WR_RDMA_WRITE, 1, at(&e[0], 0, 8192), address(&e[1], 0), e[1].mr->rkey));
	DONE(e[0].cq, 1, IBV_WC_SUCCESS);
	CHECK(same(e[1].memory, 8192, 1));
	exits_well(child);
}

// In a child: verbs give an error, and do not hang.
static void call_verbs(struct end e[2])
{
	alarm(LIMIT_MS / 2000);
	struct ibv_wc wc;
	if (post_send(e[0].qp, 1, at(&e[0], 0, 8)) == 0)
		_exit(20);
	if (post_recv(e[0].qp, 1, at(&e[0], 0, 8)) == 0)
		_exit(21);
	if (ibv_poll_cq(e[0].cq, 1, &wc) > 0)
		_exit(22);
	if (ibv_alloc_pd(e[0].context))
		_exit(23);
	if (ibv_reg_mr(e[0].pd, e[0].memory, 4096, IBV_ACCESS_LOCAL_WRITE))
		_exit(24);
	if (ibv_create_cq(e[0].context, 16, NULL, NULL, 0))
		_exit(25);
	struct ibv_qp_init_attr init = qp_options(&e[0], IBV_QPT_RC);
	if (ibv_create_qp(e[0].pd, &init))
		_exit(26);
	if (to_state(e[0].qp, IBV_QPS_ERR) == 0)
		_exit(27);
	if (ibv_destroy_qp(e[0].qp) == 0)
		_exit(28);
	_exit(0);
}

static void children_that_call_verbs(struct end e[2])
{
	PART("children that call verbs have errors");
	for (int i = 0; i < 3; i++) {
		pid_t child = fork();
		CHECK(child >= 0);
		if (child == 0)
			call_verbs(e);
		exchange(e, i);
		exits_well(child);
	}
	EQ(state_of(e[0].qp), IBV_QPS_RTS);
}

static volatile int stop;

static void *forks(void *arg)
{
	(void)arg;
	for (int i = 0; i < 30; i++) {
		pid_t child = fork();
		CHECK(child >= 0);
		if (child == 0)
			_exit(0);
		exits_well(child);
	}
	stop = 1;
	return NULL;
}

static void during_traffic(struct end e[2])
{
	PART("forks while data is under way");
	pthread_t thread;
	CHECK(pthread_create(&thread, NULL, forks, NULL) == 0);
	for (unsigned i = 0; !stop; i++)
		exchange(e, i % 1000);
	CHECK(pthread_join(thread, NULL) == 0);
}

static void before_any(void)
{
	PART("a child of a process that used no device yet has devices of its own");
	pid_t child = fork();
	CHECK(child >= 0);
	if (child == 0) {
		alarm(LIMIT_MS / 1000);
		struct end e[2];
		open_both(e);
		connect_new(e, IBV_QPT_RC);
		exchange(e, 1);
		exit(0);
	}
	exits_well(child);
}

int main(void)
{
	descriptors_before = descriptors_of_a_child();
	before_any();
	initialised();
	struct end e[2];
	open_both(e);
	connect_new(e, IBV_QPT_RC);
	children_that_end(e);
	children_that_run_something_else(e);
	children_that_write(e);
	children_that_call_verbs(e);
	during_traffic(e);
	destroy_qps(e);
	close_both(e);
	return 0;
}
