// run: --dev mem
// A mistake, planted: behind an error two successes are waited for, which never come. `softnic explore` finds it.

#include "common.h"

static void wait_for_both(struct ibv_cq *cq)
{
	struct ibv_wc wc;
	for (int done = 0; done < 2; usleep(100)) {
		if (ibv_poll_cq(cq, 1, &wc) != 1)
			continue;
		if (wc.status == IBV_WC_SUCCESS)
			done++;
		else
			fprintf(stderr, "work request %d failed\n", (int)wc.wr_id);
	}
}

int main(void)
{
	struct end e[2];
	open_both(e);
	connect_new(e, IBV_QPT_RC);
	for (int i = 0; i < 2; i++) {
		OK(post_recv(e[1].qp, i, at(&e[1], 4096 * i, 4096)));
		OK(post_send(e[0].qp, i, at(&e[0], 0, 1000)));
	}
	wait_for_both(e[0].cq);
	destroy_qps(e);
	close_both(e);
	printf("ok\n");
	return 0;
}
