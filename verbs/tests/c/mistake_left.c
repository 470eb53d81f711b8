// check: leak
// A mistake, planted: a device is left open. With an argument it is closed, later than anything else of the program: in a destructor, which
// runs behind the handlers of atexit(3).

#include "common.h"

static struct ibv_context *context;

__attribute__((destructor)) static void end(void)
{
	if (context && ibv_close_device(context))
		abort();
}

int main(int argc, char **argv UNUSED)
{
	int count;
	struct ibv_device **list = MADE(ibv_get_device_list(&count));
	struct ibv_context *opened = MADE(ibv_open_device(list[0]));
	ibv_free_device_list(list);
	if (argc > 1)
		context = opened;
	return 0;
}
