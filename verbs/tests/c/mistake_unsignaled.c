// check: send-queue-stuck
// A mistake, planted: no WRITE asks for a completion, so the queue is never known to have room again. With an argument each 16th does.

#include "common.h"

int main(int argc, char **argv UNUSED)
{
	int fixed = argc > 1;
	struct end e[2];
	open_both(e);
	connect_new(e, IBV_QPT_RC);
	for (int i = 0; i < 4096; i++) {
		struct ibv_sge sge = at(&e[0], 0, 8);
		struct ibv_send_wr wr = work(IBV_WR_RDMA_WRITE, i, &sge);
		wr.wr.rdma.remote_addr = address(&e[1], 0);
		wr.wr.rdma.rkey = e[1].mr->rkey;
		int asks = fixed && i % 16 == 15;
		wr.send_flags = asks ? IBV_SEND_SIGNALED : 0;
		// On other NICs the queue is full now, and stays so.
		if (post(e[0].qp, &wr) != 0)
			break;
		if (asks)
			DONE(e[0].cq, i, IBV_WC_SUCCESS);
	}
	destroy_qps(e);
	close_both(e);
	return 0;
}
