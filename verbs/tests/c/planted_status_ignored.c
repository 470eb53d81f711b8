// run: --dev mem
// A mistake, planted: nobody looks at the status of completions, so that work that failed counts as done. `softnic explore` finds it.

#include "common.h"

int main(void)
{
	struct end e[2];
	open_both(e);
	connect_new(e, IBV_QPT_RC);
	for (int i = 0; i < 3; i++) {
		OK(post_rdma(e[0].qp, IBV_WR_RDMA_WRITE, i, at(&e[0], 0, 3000), address(&e[1], 0), e[1].mr->rkey));
		NEXT(e[0].cq);
	}
	destroy_qps(e);
	close_both(e);
	printf("ok\n");
	return 0;
}
