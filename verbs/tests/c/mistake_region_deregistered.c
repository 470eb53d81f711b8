// check: region-in-use
// A mistake, planted: a region goes while a SEND from it waits for the peer's receive. With an argument it goes behind the completion.

#include "common.h"

int main(int argc, char **argv UNUSED)
{
	int fixed = argc > 1;
	struct end e[2];
	open_both(e);
	connect_new(e, IBV_QPT_RC);
	static uint8_t buffer[4096];
	struct ibv_mr *mr = MADE(ibv_reg_mr(e[0].pd, buffer, sizeof(buffer), 0));
	struct ibv_sge sge = {.addr = (uintptr_t)buffer, .length = 1000, .lkey = mr->lkey};
	OK(post_send(e[0].qp, 1, sge));
	if (!fixed)
		OK(ibv_dereg_mr(mr));
	OK(post_recv(e[1].qp, 2, at(&e[1], 0, 4096)));
	// However it ends.
	NEXT(e[0].cq);
	if (fixed)
		OK(ibv_dereg_mr(mr));
	destroy_qps(e);
	close_both(e);
	return 0;
}
