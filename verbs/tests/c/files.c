// What UCX looks for before it uses a device: the device's file, and what kind of GIDs it has, as files of the kernel's.

#include <fcntl.h>
#include <sys/stat.h>

#include "common.h"

// Reads a file of one line; its length, or -1.
static int line_of(const char *path, char *out, size_t size)
{
	int fd = open(path, O_RDONLY);
	if (fd < 0)
		return -1;
	ssize_t length = read(fd, out, size - 1);
	close(fd);
	CHECK(length > 0 && out[length - 1] == '\n');
	out[length - 1] = 0;
	return (int)length - 1;
}

int main(void)
{
	struct end e;
	open_end(&e, 0);
	const char *name = ibv_get_device_name(e.context->device);
	char path[256], line[64];
	struct stat st;

	PART("a device file that may be read and written");
	snprintf(path, sizeof(path), "/dev/infiniband/%s", e.context->device->dev_name);
	OK(stat(path, &st));
	CHECK(S_ISCHR(st.st_mode));
	OK(access(path, R_OK | W_OK));

	PART("the kind of the GID");
	snprintf(path, sizeof(path), "/sys/class/infiniband/%s/ports/1/gid_attrs/types/%d", name, e.gid_index);
	CHECK(line_of(path, line, sizeof(line)) > 0);
	if (strcmp(line, "RoCE v2"))
		FAIL("the type of GID %d is `%s`", e.gid_index, line);
	OK(stat(path, &st));
	CHECK(S_ISREG(st.st_mode));

	PART("what there is not");
	static const char *const none[] = {
		"/dev/infiniband/uverbs99",
		"/sys/class/infiniband/softnic99/ports/1/gid_attrs/types/0",
		"/sys/class/infiniband/softnic0/ports/1/gid_attrs/types/4000",
		"/no/such/file",
	};
	for (size_t i = 0; i < sizeof(none) / sizeof(*none); i++) {
		errno = 0;
		EQ(stat(none[i], &st), -1);
		EQ(errno, ENOENT);
		errno = 0;
		EQ(open(none[i], O_RDONLY), -1);
		EQ(errno, ENOENT);
	}

	PART("all other files are as they were");
	OK(stat("/", &st));
	CHECK(S_ISDIR(st.st_mode));
	const char *folder = getenv("TMPDIR");
	snprintf(path, sizeof(path), "%s/softnic-files-%d", folder ? folder : "/tmp", getpid());
	int fd = open(path, O_CREAT | O_EXCL | O_WRONLY, 0600);
	CHECK(fd >= 0);
	OK(unlink(path));
	OK(fstat(fd, &st));
	EQ(st.st_mode & 0777, 0600);
	OK(close(fd));
	close_end(&e);
	return 0;
}
