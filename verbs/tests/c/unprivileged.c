// A program with the rights of another group than that of whoever started it: the environment does not say what the library opens and writes.
// run: --dev mem
// link: -ldl

#define _GNU_SOURCE

#include <dlfcn.h>
#include <fcntl.h>
#include <sys/auxv.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include "common.h"

static int devices(const char *library)
{
	void *handle = dlopen(library, RTLD_NOW);
	if (!handle)
		FAIL("%s", dlerror());
	struct ibv_device **(*list)(int *) = dlsym(handle, "ibv_get_device_list");
	CHECK(list);
	int count = -1;
	errno = 0;
	list(&count);
	return count;
}

int main(int argc, char **argv)
{
	if (argc == 2) {
		if (!getauxval(AT_SECURE))
			return 77;
		EQ(devices(argv[1]), 0);
		return 0;
	}
	PART("the program itself has devices");
	CHECK(devices("libibverbs.so.1") > 0);
	Dl_info info;
	CHECK(dladdr(dlsym(dlopen("libibverbs.so.1", RTLD_NOW), "ibv_get_device_list"), &info));

	PART("as another group it has none");
	char copy[256];
	snprintf(copy, sizeof copy, "%s/unprivileged.%d", getenv("TMPDIR") ? getenv("TMPDIR") : "/tmp", getpid());
	int from = open("/proc/self/exe", O_RDONLY), to = open(copy, O_WRONLY | O_CREAT | O_EXCL, 0755);
	CHECK(from >= 0 && to >= 0);
	char bytes[4096];
	for (ssize_t n; (n = read(from, bytes, sizeof bytes)) > 0;)
		CHECK(write(to, bytes, n) == n);
	int group = fchown(to, -1, 65534) == 0 && fchmod(to, 02755) == 0;
	close(to);
	pid_t child = fork();
	if (child == 0) {
		execl(copy, copy, info.dli_fname, NULL);
		_exit(77);
	}
	int status;
	CHECK(waitpid(child, &status, 0) == child);
	unlink(copy);
	if (!group || (WIFEXITED(status) && WEXITSTATUS(status) == 77))
		LEAVE_OUT("programs of other groups cannot be made or run here");
	CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 0);
	return 0;
}
