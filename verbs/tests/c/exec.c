// A program that the process starts by exec inherits none of the descriptors that belong to an open device.

#include <sys/wait.h>

#include "common.h"

// What a program that is started now finds open, by number and what it leads to.
static void inherited(char *to, size_t room)
{
	FILE *ls = popen("ls -l /proc/self/fd | sed 's/^.* \\([0-9]* -> \\)/\\1/' | grep -v 'pipe:\\|/proc/\\|^total'", "r");
	CHECK(ls);
	size_t length = fread(to, 1, room - 1, ls);
	to[length] = 0;
	// Nothing at all is no failure of grep's.
	pclose(ls);
}

int main(void)
{
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
