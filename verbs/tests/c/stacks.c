// SOFTNIC_STACKS: a signal has each thread say where it is, unless the program takes the signal itself.
// link: -libverbs -lrdmacm -rdynamic

#define _GNU_SOURCE

#include <signal.h>
#include <sys/wait.h>

#include "common.h"

static struct end end;
static volatile int spinning, sleeping, taken;

__attribute__((noinline)) void spins_here(void)
{
	struct ibv_wc wc;
	for (;;) {
		ibv_poll_cq(end.cq, 1, &wc);
		spinning = 1;
	}
}

static void *spin(void *arg)
{
	pthread_setname_np(pthread_self(), "a \"spinner\"");
	spins_here();
	return arg;
}

__attribute__((noinline)) void sleeps_here(void)
{
	for (;;) {
		sleeping = 1;
		sleep(1000);
	}
}

static void *sleep_on(void *arg)
{
	sleeps_here();
	return arg;
}

static void take(int signal)
{
	(void)signal;
	taken = 1;
}

// What is in the file of this process.
static const char *written(const char *folder)
{
	static char text[1 << 20];
	char path[300];
	snprintf(path, sizeof(path), "%s/%d.stacks", folder, getpid());
	FILE *file = fopen(path, "r");
	if (!file)
		return "";
	size_t len = fread(text, 1, sizeof(text) - 1, file);
	fclose(file);
	text[len] = 0;
	return text;
}

static int lines(const char *text)
{
	int count = 0;
	for (; *text; text++)
		count += *text == '\n';
	return count;
}

// The line that has this in it.
static const char *line_with(const char *text, const char *what)
{
	static char line[1 << 15];
	const char *found = strstr(text, what);
	if (!found)
		FAIL("no line has %s in it:\n%s", what, text);
	while (found > text && found[-1] != '\n')
		found--;
	snprintf(line, sizeof(line), "%.*s", (int)strcspn(found, "\n"), found);
	return line;
}

static void remove_all(const char *folder)
{
	char path[300];
	snprintf(path, sizeof(path), "%s/%d.stacks", folder, getpid());
	unlink(path);
	rmdir(folder);
}

int main(void)
{
	char folder[] = "/tmp/softnic-stacks-XXXXXX";
	CHECK(mkdtemp(folder));
	setenv("SOFTNIC_STACKS", folder, 1);

	PART("a program that takes the signal itself");
	pid_t child = fork();
	if (child == 0) {
		signal(SIGRTMAX - 3, take);
		open_end(&end, 0);
		raise(SIGRTMAX - 3);
		CHECK(taken && !*written(folder));
		_exit(0);
	}
	int status;
	CHECK(waitpid(child, &status, 0) == child);
	EQ(status, 0);

	PART("threads that hang");
	open_end(&end, 0);
	pthread_t spinner, sleeper;
	CHECK(pthread_create(&spinner, NULL, spin, NULL) == 0);
	CHECK(pthread_create(&sleeper, NULL, sleep_on, NULL) == 0);
	while (!spinning || !sleeping)
		usleep(1000);
	// Signals of real time queue: each is taken.
	const int rounds = 20;
	for (int round = 0; round < rounds; round++) {
		CHECK(pthread_kill(spinner, SIGRTMAX - 3) == 0);
		CHECK(pthread_kill(sleeper, SIGRTMAX - 3) == 0);
	}
	uint64_t begin = now_ms();
	while (lines(written(folder)) < 2 * rounds) {
		if (now_ms() - begin > LIMIT_MS)
			FAIL("not all stacks come:\n%s", written(folder));
		usleep(1000);
	}
	const char *line = line_with(written(folder), "\"function\":\"spins_here\"");
	CHECK(strstr(line, "\"name\":\"a \\\"spinner\\\"\"") && strstr(line, "libibverbs.so.1"));
	line = line_with(written(folder), "\"function\":\"sleeps_here\"");
	CHECK(strstr(line, "/stacks\",\"offset\":\"0x") && strstr(line, "libc"));

	PART("the thread that calls");
	raise(SIGRTMAX - 3);
	line_with(written(folder), "\"function\":\"main\"");
	remove_all(folder);
	// Threads of the program are where they are.
	_exit(0);
}
