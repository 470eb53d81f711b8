// A device is closed and opened again by its name in the same process: it works each time, and leaves no descriptors,
// or no more each time than the first argument says.

#include <dirent.h>

#include "common.h"

#define ROUNDS 3

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

int main(int argc, char **argv)
{
	int left = 0, more = argc > 1 ? atoi(argv[1]) : 0;
	for (int round = 0; round < ROUNDS; round++) {
		struct end e[2];
		PART("open");
		open_both(e);
		connect_new(e, IBV_QPT_RC);
		PART("exchange");
		exchange(e, round);
		destroy_qps(e);
		PART("close");
		close_both(e);
		// What the first opening made for good, like DPDK itself, stays.
		if (round > 0)
			EQ(descriptors(), left + more);
		left = descriptors();
	}
	return 0;
}
