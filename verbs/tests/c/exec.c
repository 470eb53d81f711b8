// A program that the process starts by exec inherits none of the descriptors that belong to an open device.

#define _GNU_SOURCE

#include "common.h"

#include <dirent.h>
#include <fcntl.h>
#include <spawn.h>
#include <sys/wait.h>

extern char **environ;

// In the program that was started: what it has open beyond the usual three, and where that leads.
static int list(void)
{
	DIR *dir = opendir("/proc/self/fd");
	CHECK(dir);
	for (struct dirent *entry; (entry = readdir(dir));) {
		int fd = atoi(entry->d_name);
		char target[512] = "";
		if (fd > 2 && fd != dirfd(dir) && readlinkat(dirfd(dir), entry->d_name, target, sizeof(target) - 1) > 0)
			printf("%d -> %s\n", fd, target);
	}
	closedir(dir);
	return 0;
}

// What a program that is started now finds open: this one again.
static void inherited(char *to, size_t room)
{
	int ends[2], status;
	CHECK(pipe2(ends, O_CLOEXEC) == 0);
	posix_spawn_file_actions_t actions;
	posix_spawn_file_actions_init(&actions);
	posix_spawn_file_actions_adddup2(&actions, ends[1], 1);
	char *words[] = {"exec", "--list", NULL};
	pid_t child;
	EQ(posix_spawn(&child, "/proc/self/exe", &actions, NULL, words, environ), 0);
	posix_spawn_file_actions_destroy(&actions);
	close(ends[1]);
	size_t length = 0;
	for (ssize_t n; length < room - 1 && (n = read(ends[0], to + length, room - 1 - length)) > 0;)
		length += n;
	to[length] = 0;
	close(ends[0]);
	CHECK(waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) == 0);
}

int main(int argc, char **argv)
{
	if (argc > 1 && !strcmp(argv[1], "--list"))
		return list();
	static char before[65536], during[65536], after[65536];
	struct end e[2];
	inherited(before, sizeof(before));
	PART("open");
	open_both(e);
	connect_new(e, IBV_QPT_RC);
	exchange(e, 1);
	inherited(during, sizeof(during));
	if (strcmp(before, during))
		FAIL("a program that was started inherits\n%snot only\n%s", during, before);
	// It was not disturbed.
	exchange(e, 2);
	destroy_qps(e);
	PART("close");
	close_both(e);
	inherited(after, sizeof(after));
	CHECK(!strcmp(before, after));
	return 0;
}
