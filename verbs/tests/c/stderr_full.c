// A library that has something to say, and nobody takes it: the program goes on.
// run: --dev mem

#include <fcntl.h>

#include "common.h"

int main(void)
{
	PART("there is no such device, and stderr is full");
	int full = open("/dev/full", O_WRONLY), err = dup(2);
	CHECK(full >= 0 && err >= 0 && dup2(full, 2) == 2);
	CHECK(setenv("SOFTNIC_DEV", "nonsense:x", 1) == 0);
	int count = -1;
	struct ibv_device **list = ibv_get_device_list(&count);
	CHECK(dup2(err, 2) == 2);
	CHECK(!list || !list[0]);
	return 0;
}
