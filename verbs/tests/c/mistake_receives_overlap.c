// check: receive-overlap
// A mistake, planted: slots for messages are shorter than the receives that are posted for them. With an argument they are long enough.

#include "common.h"

int main(int argc, char **argv UNUSED)
{
	uint32_t slot = argc > 1 ? 256 : 200;
	struct end e[2];
	open_both(e);
	connect_new(e, IBV_QPT_RC);
	for (int i = 0; i < 4; i++)
		OK(post_recv(e[1].qp, i, at(&e[1], slot * i, 256)));
	for (int i = 0; i < 4; i++) {
		OK(post_send(e[0].qp, i, at(&e[0], 0, 100)));
		DONE(e[0].cq, i, IBV_WC_SUCCESS);
		DONE(e[1].cq, i, IBV_WC_SUCCESS);
	}
	destroy_qps(e);
	close_both(e);
	return 0;
}
