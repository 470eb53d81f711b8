// File descriptors: a completion queue takes none, and one channel serves for many queues.

#include <dirent.h>

#include "common.h"

#define QUEUES 300

static int descriptors(void)
{
	DIR *dir = opendir("/proc/self/fd");
	CHECK(dir);
	int count = 0;
	while (readdir(dir))
		count++;
	closedir(dir);
	return count;
}

int main(void)
{
	struct end e;
	open_end(&e, 0);
	struct ibv_comp_channel *channels[] = {NULL, e.channel};
	for (int with = 0; with < 2; with++) {
		PART(with ? "queues of one channel" : "queues without a channel");
		struct ibv_cq *cqs[QUEUES];
		int before = descriptors();
		for (int i = 0; i < QUEUES; i++)
			cqs[i] = MADE(ibv_create_cq(e.context, 4, NULL, channels[with], 0));
		EQ(descriptors(), before);
		// Without a channel nobody is told, and that is no error.
		OK(ibv_req_notify_cq(cqs[0], 0));
		for (int i = 0; i < QUEUES; i++)
			OK(ibv_destroy_cq(cqs[i]));
	}
	close_end(&e);
	return 0;
}
