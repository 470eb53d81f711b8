// What the tests of faults share: each part is a process of its own, with faults of its own.

#ifndef SOFTNIC_TESTS_FAULTS_H
#define SOFTNIC_TESTS_FAULTS_H

#include <signal.h>
#include <sys/wait.h>

#include "common.h"

// Runs `part` in a child with these faults; how it ended.
static UNUSED int with_faults(const char *faults, void (*part)(void))
{
	pid_t child = fork();
	CHECK(child >= 0);
	if (child == 0) {
		CHECK(setenv("SOFTNIC_FAULT", faults, 1) == 0);
		part();
		exit(0);
	}
	int status = -1;
	CHECK(waitpid(child, &status, 0) == child);
	return status;
}

// The same with a script.
static UNUSED int with_script(const char *script, void (*part)(void))
{
	const char *folder = getenv("TMPDIR");
	char name[512], faults[600];
	snprintf(name, sizeof(name), "%s/faults-XXXXXX", folder ? folder : "/tmp");
	int fd = mkstemp(name);
	CHECK(fd >= 0 && write(fd, script, strlen(script)) == (ssize_t)strlen(script));
	close(fd);
	snprintf(faults, sizeof(faults), "@%s", name);
	int status = with_faults(faults, part);
	unlink(name);
	return status;
}

#define WITH(faults, part) EQ(with_faults(faults, part), 0)
#define SCRIPT(script, part) EQ(with_script(script, part), 0)

#endif
