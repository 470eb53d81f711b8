// check: result-not-awaited
// A mistake, planted: what a READ brings is sent on behind it, without a fence. With an argument there is one.

#include "common.h"

int main(int argc, char **argv UNUSED)
{
	int fixed = argc > 1;
	struct end e[2];
	open_both(e);
	connect_new(e, IBV_QPT_RC);
	OK(post_recv(e[1].qp, 1, at(&e[1], 8192, 4096)));
	OK(post_rdma(e[0].qp, IBV_WR_RDMA_READ, 2, at(&e[0], 0, 1000), address(&e[1], 0), e[1].mr->rkey));
	struct ibv_sge sge = at(&e[0], 500, 1000);
	struct ibv_send_wr wr = work(IBV_WR_SEND, 3, &sge);
	if (fixed)
		wr.send_flags |= IBV_SEND_FENCE;
	OK(post(e[0].qp, &wr));
	DONE(e[0].cq, 2, IBV_WC_SUCCESS);
	DONE(e[0].cq, 3, IBV_WC_SUCCESS);
	DONE(e[1].cq, 1, IBV_WC_SUCCESS);
	destroy_qps(e);
	close_both(e);
	return 0;
}
