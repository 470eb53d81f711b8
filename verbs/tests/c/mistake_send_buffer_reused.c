// check: send-buffer-changed
// A mistake, planted: the next message is written into the buffer of the last one, which has not completed yet. With an argument it waits.

#include "common.h"

int main(int argc, char **argv UNUSED)
{
	int fixed = argc > 1;
	struct end e[2];
	open_both(e);
	connect_new(e, IBV_QPT_RC);
	// Of its own, that no peer may write.
	uint8_t *buffer = aligned_alloc(4096, 4096);
	memset(buffer, 0, 4096);
	struct ibv_mr *mr = MADE(ibv_reg_mr(e[0].pd, buffer, 4096, 0));
	for (int i = 0; i < 4; i++) {
		OK(post_recv(e[1].qp, i, at(&e[1], 4096 * i, 4096)));
		struct ibv_sge sge = {.addr = (uintptr_t)buffer, .length = 1000, .lkey = mr->lkey};
		struct ibv_send_wr wr = work(IBV_WR_SEND, i, &sge);
		OK(post(e[0].qp, &wr));
		if (!fixed)
			buffer[17] = i + 1;
		DONE(e[0].cq, i, IBV_WC_SUCCESS);
		buffer[17] = i + 1;
		DONE(e[1].cq, i, IBV_WC_SUCCESS);
	}
	destroy_qps(e);
	OK(ibv_dereg_mr(mr));
	free(buffer);
	close_both(e);
	return 0;
}
