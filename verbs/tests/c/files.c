// The files that Linux has of a device in /sys and /dev, by every function that programs look for them with.

#define _GNU_SOURCE
#include <dirent.h>
#include <fcntl.h>
#include <glob.h>
#include <limits.h>
#include <sys/stat.h>

#include "common.h"

#define DEVICE "/sys/class/infiniband/softnic0"
#define PORT DEVICE "/ports/1"

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

static void says(const char *path, const char *text)
{
	char line[128];
	if (line_of(path, line, sizeof(line)) < 0)
		FAIL("%s: %s", path, strerror(errno));
	if (strcmp(line, text))
		FAIL("%s says `%s`, not `%s`", path, line, text);
}

static unsigned long long number(const char *path)
{
	char line[128];
	if (line_of(path, line, sizeof(line)) < 0)
		FAIL("%s: %s", path, strerror(errno));
	return strtoull(line, NULL, 0);
}

// Whether a folder has an entry of that name.
static int has(DIR *folder, const char *name)
{
	CHECK(folder);
	int found = 0;
	for (struct dirent *entry; (entry = readdir(folder));)
		found |= !strcmp(entry->d_name, name);
	closedir(folder);
	return found;
}

static void device_file(struct end *e)
{
	char path[512];
	struct stat st;
	PART("a device file that may be read and written");
	snprintf(path, sizeof(path), "/dev/infiniband/%s", e->context->device->dev_name);
	OK(stat(path, &st));
	CHECK(S_ISCHR(st.st_mode));
	OK(access(path, R_OK | W_OK));
	int fd = open(path, O_RDWR | O_CLOEXEC);
	CHECK(fd >= 0);
	close(fd);
	CHECK(has(opendir("/dev/infiniband"), "uverbs0"));

	PART("/sys/class/infiniband_verbs");
	says("/sys/class/infiniband_verbs/uverbs0/ibdev", "softnic0");
	says("/sys/class/infiniband_verbs/uverbs0/abi_version", "1");
	says("/sys/class/infiniband_verbs/abi_version", "6");
	snprintf(path, sizeof(path), "%u:%u", (unsigned)(st.st_rdev >> 8), (unsigned)(st.st_rdev & 0xff));
	says("/sys/class/infiniband_verbs/uverbs0/dev", path);
	snprintf(path, sizeof(path), "%s/ibdev", e->context->device->dev_path);
	says(path, "softnic0");
}

static void attributes(struct end *e)
{
	PART("attributes of the device");
	uint64_t guid = be64toh(ibv_get_device_guid(e->context->device));
	char text[64];
	snprintf(text, sizeof(text), "%04x:%04x:%04x:%04x", (unsigned)(guid >> 48), (unsigned)(guid >> 32 & 0xffff),
		 (unsigned)(guid >> 16 & 0xffff), (unsigned)(guid & 0xffff));
	says(DEVICE "/node_guid", text);
	says(DEVICE "/sys_image_guid", text);
	says(DEVICE "/node_type", "1: CA");
	says(DEVICE "/hca_type", "softnic");
	says(DEVICE "/board_id", "softnic");
	struct ibv_device_attr device;
	OK(ibv_query_device(e->context, &device));
	says(DEVICE "/fw_ver", device.fw_ver);
	CHECK(line_of(DEVICE "/node_desc", text, sizeof(text)) > 0);
	CHECK(line_of(DEVICE "/hw_rev", text, sizeof(text)) > 0);

	PART("attributes of the port");
	says(PORT "/state", "4: ACTIVE");
	says(PORT "/phys_state", "5: LinkUp");
	says(PORT "/rate", "100 Gb/sec (4X EDR)");
	says(PORT "/link_layer", "Ethernet");
	says(PORT "/lid", "0x0");
	says(PORT "/sm_lid", "0x0");
	says(PORT "/pkeys/0", "0xffff");
	struct ibv_port_attr port;
	OK(ibv_query_port(e->context, 1, &port));
	EQ(number(PORT "/cap_mask"), port.port_cap_flags);
	EQ(port.active_width, 2);
	EQ(port.active_speed, 32);

	PART("GIDs");
	for (int i = 0; i < port.gid_tbl_len; i++) {
		union ibv_gid gid;
		OK(ibv_query_gid(e->context, 1, i, &gid));
		char path[128], *end = text;
		for (int j = 0; j < 16; j += 2)
			end += sprintf(end, "%s%02x%02x", j ? ":" : "", gid.raw[j], gid.raw[j + 1]);
		snprintf(path, sizeof(path), PORT "/gids/%d", i);
		says(path, text);
		snprintf(path, sizeof(path), PORT "/gid_attrs/types/%d", i);
		if (gid.global.interface_id)
			says(path, "RoCE v2");
		else
			CHECK(access(path, F_OK) == -1 && errno == ENOENT);
	}
}

static void functions(void)
{
	struct stat st;
	struct statx stx;
	char line[128], path[PATH_MAX];

	PART("files, by every function");
	OK(stat(PORT "/state", &st));
	CHECK(S_ISREG(st.st_mode));
	OK(lstat(DEVICE, &st));
	CHECK(S_ISLNK(st.st_mode));
	OK(stat(DEVICE, &st));
	CHECK(S_ISDIR(st.st_mode));
	OK(fstatat(AT_FDCWD, PORT "/rate", &st, 0));
	OK(statx(AT_FDCWD, PORT "/rate", 0, STATX_BASIC_STATS, &stx));
	CHECK(S_ISREG(stx.stx_mode));
	OK(access(PORT "/rate", R_OK));
	OK(faccessat(AT_FDCWD, PORT "/rate", R_OK, 0));
	OK(euidaccess(PORT "/rate", R_OK));
	FILE *file = fopen(DEVICE "/hca_type", "r");
	CHECK(file && fgets(line, sizeof(line), file) && !strcmp(line, "softnic\n"));
	fclose(file);
	int folder = open(PORT, O_RDONLY | O_DIRECTORY), fd = openat(folder, "state", O_RDONLY);
	CHECK(folder >= 0 && fd >= 0 && read(fd, line, sizeof(line)) > 0);
	close(fd);
	close(folder);
	fd = openat(AT_FDCWD, PORT "/state", O_RDONLY);
	CHECK(fd >= 0);
	close(fd);

	PART("folders");
	CHECK(has(opendir("/sys/class/infiniband"), "softnic0"));
	CHECK(has(opendir("/sys/class/infiniband/"), "softnic0"));
	CHECK(has(opendir(DEVICE "/ports"), "1"));
	struct dirent **list;
	int count = scandir(PORT "/gids", &list, NULL, alphasort);
	EQ(count, 16 + 2);
	while (count)
		free(list[--count]);
	free(list);
	glob_t found;
	EQ(glob("/sys/class/infiniband/*/ports/*/stat?", 0, NULL, &found), 0);
	CHECK(found.gl_pathc >= 1 && !strcmp(found.gl_pathv[0], PORT "/state"));
	globfree(&found);

	PART("links");
	ssize_t length = readlink(DEVICE, path, sizeof(path) - 1);
	CHECK(length > 0);
	path[length] = 0;
	CHECK(!strncmp(path, "../../devices/", 14));
	CHECK(realpath(DEVICE "/device", path));
	CHECK(!strncmp(path, "/sys/devices/", 13));
	OK(access(path, F_OK));
	CHECK(realpath(DEVICE "/../..", path));
	CHECK(!strncmp(path, "/sys/devices/", 13));
	strcat(path, "/numa_node");
	CHECK(line_of(path, line, sizeof(line)) > 0);
	char *made = MADE(realpath("/sys/class/infiniband_verbs/uverbs0/device", NULL));
	char *again = MADE(canonicalize_file_name(DEVICE "/device"));
	CHECK(!strcmp(made, again));
	free(made);
	free(again);
}

static void counting(struct end e[2])
{
	PART("counters of now");
	unsigned long long packets = number(PORT "/counters/port_xmit_packets"), data = number(PORT "/counters/port_xmit_data");
	OK(post_recv(e[1].qp, 1, at(&e[1], 0, 4096)));
	OK(post_send(e[0].qp, 1, at(&e[0], 0, 4096)));
	DONE(e[0].cq, 1, IBV_WC_SUCCESS);
	DONE(e[1].cq, 1, IBV_WC_SUCCESS);
	CHECK(number(PORT "/counters/port_xmit_packets") > packets);
	CHECK(number(PORT "/counters/port_xmit_data") >= data + 4096 / 4);
	packets = number(PORT "/counters/port_xmit_packets");
	CHECK(number(PORT "/hw_counters/sent_pkts") >= packets);
	EQ(number(PORT "/counters/symbol_error"), 0);
	EQ(number(PORT "/hw_counters/rcvd_seq_err"), number(PORT "/hw_counters/packet_seq_err"));
	CHECK(has(opendir(PORT "/hw_counters"), "lifespan"));

	PART("counters for another process");
	FILE *other = popen("cat " PORT "/counters/port_xmit_packets", "r");
	char line[64] = "";
	CHECK(other && fgets(line, sizeof(line), other));
	EQ(pclose(other), 0);
	// Its own `mem` is another wire.
	if (strncmp(getenv("SOFTNIC_DEV"), "mem", 3))
		CHECK(strtoull(line, NULL, 10) >= packets);
	else
		EQ(strtoull(line, NULL, 10), 0);
}

int main(void)
{
	struct end e[2];
	open_both(e);
	connect_new(e, IBV_QPT_RC);
	device_file(&e[0]);
	attributes(&e[0]);
	functions();
	counting(e);

	PART("what there is not");
	struct stat st;
	static const char *const none[] = {
		"/dev/infiniband/uverbs99",
		"/dev/infiniband/rdma_cm",
		"/sys/class/infiniband/softnic99/ports/1/gid_attrs/types/0",
		"/sys/class/infiniband/softnic0/ports/2",
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
	char path[256];
	const char *folder = getenv("TMPDIR");
	snprintf(path, sizeof(path), "%s/softnic-files-%d", folder ? folder : "/tmp", getpid());
	int fd = open(path, O_CREAT | O_EXCL | O_WRONLY, 0600);
	CHECK(fd >= 0);
	OK(unlink(path));
	OK(fstat(fd, &st));
	EQ(st.st_mode & 0777, 0600);
	OK(close(fd));
	destroy_qps(e);
	close_both(e);
	return 0;
}
