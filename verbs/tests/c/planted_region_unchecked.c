// run: --dev mem
// A mistake, planted: nobody looks whether memory could be registered. `softnic explore` finds it.

#include "common.h"

static char buffer[4096];

int main(void)
{
	struct end e[2];
	open_both(e);
	connect_new(e, IBV_QPT_RC);
	struct ibv_mr *mr = ibv_reg_mr(e[0].pd, buffer, sizeof(buffer), IBV_ACCESS_LOCAL_WRITE);
	struct ibv_sge sge = {.addr = (uintptr_t)buffer, .length = 1000, .lkey = mr->lkey};
	OK(post_recv(e[1].qp, 0, at(&e[1], 0, 4096)));
	OK(post_send(e[0].qp, 0, sge));
	DONE(e[0].cq, 0, IBV_WC_SUCCESS);
	DONE(e[1].cq, 0, IBV_WC_SUCCESS);
	destroy_qps(e);
	OK(ibv_dereg_mr(mr));
	close_both(e);
	printf("ok\n");
	return 0;
}
