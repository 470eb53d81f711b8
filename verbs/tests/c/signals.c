// Signals that a program blocks after it opened a device, and takes by signalfd: none may go to a thread of the library.

#define _GNU_SOURCE

#include <dirent.h>
#include <poll.h>
#include <signal.h>
#include <sys/signalfd.h>

#include "common.h"

// Signals that no thread can block: SIGKILL, SIGSTOP, and those that the C library keeps for itself.
#define UNBLOCKABLE (1ull << 8 | 1ull << 18 | 1ull << 31 | 1ull << 32)

// Each thread of the process but this one blocks all signals.
static int others_block_all(void)
{
	DIR *dir = opendir("/proc/self/task");
	CHECK(dir);
	int others = 0;
	for (struct dirent *entry; (entry = readdir(dir));) {
		if (entry->d_name[0] == '.' || atoi(entry->d_name) == gettid())
			continue;
		char path[64], line[256];
		snprintf(path, sizeof path, "/proc/self/task/%.16s/status", entry->d_name);
		FILE *status = fopen(path, "r");
		CHECK(status);
		unsigned long long blocked = 0;
		while (fgets(line, sizeof line, status))
			sscanf(line, "SigBlk: %llx", &blocked);
		fclose(status);
		EQ(blocked | UNBLOCKABLE, ~0ull);
		others++;
	}
	closedir(dir);
	return others;
}

int main(void)
{
	struct end e[2];
	open_both(e);
	PART("threads of the library block all signals");
	CHECK(others_block_all() > 0);

	PART("a signal that is blocked after the device was opened comes by signalfd alone");
	sigset_t usr2;
	sigemptyset(&usr2);
	sigaddset(&usr2, SIGUSR2);
	CHECK(sigprocmask(SIG_BLOCK, &usr2, NULL) == 0);
	int fd = signalfd(-1, &usr2, 0);
	CHECK(fd >= 0);
	connect_new(e, IBV_QPT_RC);
	for (int i = 0; i < 100; i++) {
		CHECK(kill(getpid(), SIGUSR2) == 0);
		exchange(e, i);
		struct signalfd_siginfo info;
		CHECK(read(fd, &info, sizeof info) == sizeof info && info.ssi_signo == SIGUSR2);
	}
	destroy_qps(e);
	close_both(e);
	return 0;
}
