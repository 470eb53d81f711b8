// Programs that fork, exit or are killed while their connections move to the backup: nothing hangs, and those that live go on.
// run: --dev mem --backup mem --fault down=1s+1h
// seconds: 120

#include <signal.h>
#include <sys/wait.h>

#include "common.h"

// When the default path goes, from the opening of the device on; and between when and when after that work requests have used up their retries
// and the handshake takes place: 134 ms, and a bit more on a busy machine.
#define CUT_MS 1000
#define FIRST_MS 100
#define LAST_MS 220

// Eight times 17 ms.
static const struct patience SHORT = {12, 7, 7};

static void begin(struct end e[2])
{
	open_both(e);
	for (int i = 0; i < 2; i++)
		e[i].qp = make_qp(&e[i], IBV_QPT_RC);
	connect_with(e, ALL_RIGHTS, SHORT);
}

// Messages to and fro until then.
static unsigned exchange_until(struct end e[2], uint64_t end)
{
	unsigned n = 0;
	for (; now_ms() < end; n++)
		exchange(e, n % 1000);
	return n;
}

static volatile int stop;

static void *poll_for_ever(void *arg)
{
	struct end *e = arg;
	for (unsigned n = 0; !stop; n++)
		exchange(e, n % 1000);
	return NULL;
}

// In a thread, so that this one may end the program wherever that thread is.
static void exchange_aside(struct end e[2], uint64_t end)
{
	pthread_t thread;
	CHECK(pthread_create(&thread, NULL, poll_for_ever, e) == 0);
	while (now_ms() < end)
		usleep(200);
}

static void exits(struct end e[2], uint64_t end)
{
	exchange_aside(e, end);
	exit(41);
}

static void exits_at_once(struct end e[2], uint64_t end)
{
	exchange_aside(e, end);
	_exit(42);
}

static void is_killed(struct end e[2], uint64_t end)
{
	exchange_aside(e, end);
	raise(SIGKILL);
}

static void closes(struct end e[2], uint64_t end)
{
	exchange_until(e, end);
	// Work is on its way.
	OK(post_recv(e[1].qp, 1, at(&e[1], 0, 4096)));
	OK(post_send(e[0].qp, 1, at(&e[0], 0, 64)));
	destroy_qps(e);
	close_both(e);
	exit(43);
}

// One that forks all the time, and whose children call verbs and end: it goes on by its backup, and is told so.
static void forks(struct end e[2], uint64_t end)
{
	while (now_ms() < end || stop == 0) {
		pid_t child = fork();
		CHECK(child >= 0);
		if (child == 0) {
			struct ibv_wc wc;
			if (ibv_poll_cq(e[0].cq, 1, &wc) > 0)
				_exit(9);
			_exit(0);
		}
		exchange(e, 7);
		int status;
		EQ(waitpid(child, &status, 0), child);
		EQ(status, 0);
		struct ibv_qp_attr attr;
		struct ibv_qp_init_attr init;
		OK(ibv_query_qp(e[0].qp, &attr, IBV_QP_STATE, &init));
		EQ(attr.qp_state, IBV_QPS_RTS);
		stop = now_ms() > end;
	}
	struct ibv_async_event event;
	OK(ibv_get_async_event(e[0].context, &event));
	EQ(event.event_type, IBV_EVENT_PATH_MIG);
	ibv_ack_async_event(&event);
	exchange(e, 8);
	destroy_qps(e);
	close_both(e);
	exit(44);
}

static const struct {
	const char *name;
	void (*end)(struct end e[2], uint64_t end);
	int code; // negative: the signal
} WAYS[] = {
	{"exit", exits, 41},
	{"_exit", exits_at_once, 42},
	{"SIGKILL", is_killed, -SIGKILL},
	{"closed in order", closes, 43},
};

static int run(void (*way)(struct end e[2], uint64_t end), uint64_t after_ms)
{
	pid_t child = fork(); // no verb was called in this process
	CHECK(child >= 0);
	if (child == 0) {
		struct end e[2];
		uint64_t end = now_ms() + after_ms;
		begin(e);
		way(e, end);
		_exit(9);
	}
	int status = 0;
	uint64_t end = now_ms() + 2 * LIMIT_MS;
	while (waitpid(child, &status, WNOHANG) == 0) {
		if (now_ms() > end) {
			kill(child, SIGKILL);
			FAIL("it does not end, %d ms after its beginning", (int)after_ms);
		}
		usleep(1000);
	}
	return WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
}

int main(void)
{
	for (size_t i = 0; i < sizeof(WAYS) / sizeof(WAYS[0]); i++) {
		PART(WAYS[i].name);
		for (int ms = FIRST_MS; ms < LAST_MS; ms += 30)
			EQ(run(WAYS[i].end, CUT_MS + ms), WAYS[i].code);
	}
	PART("fork");
	EQ(run(forks, CUT_MS + 2 * LAST_MS), 44);
	return 0;
}
