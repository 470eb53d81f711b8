// check: stale-rkey
// A mistake, planted: a region goes while the peer still has its key, and writes. With an argument it goes afterwards.

#include "common.h"

int main(int argc, char **argv UNUSED)
{
	int fixed = argc > 1;
	struct end e[2];
	open_both(e);
	connect_new(e, IBV_QPT_RC);
	static uint8_t window[4096];
	struct ibv_mr *mr = MADE(ibv_reg_mr(e[1].pd, window, sizeof(window), ALL_RIGHTS));
	uint32_t rkey = mr->rkey;
	if (!fixed)
		OK(ibv_dereg_mr(mr));
	OK(post_rdma(e[0].qp, IBV_WR_RDMA_WRITE, 1, at(&e[0], 0, 64), (uintptr_t)window + 128, rkey));
	DONE(e[0].cq, 1, fixed ? IBV_WC_SUCCESS : IBV_WC_REM_ACCESS_ERR);
	if (fixed)
		OK(ibv_dereg_mr(mr));
	destroy_qps(e);
	close_both(e);
	return 0;
}
