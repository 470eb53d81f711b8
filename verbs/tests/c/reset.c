// A queue pair that is reset takes its completions with it: whoever connects it anew sees nothing of before. Those of others stay.

#include "common.h"

int main(void)
{
	struct end e[2], other[2];
	open_both(e);
	connect_new(e, IBV_QPT_RC);
	memcpy(other, e, sizeof(e));
	connect_new(other, IBV_QPT_RC);
	PART("two queue pairs fail, and their receives are flushed into one completion queue");
	for (int i = 0; i < 3; i++) {
		OK(post_recv(e[0].qp, i, at(&e[0], 0, 64)));
		OK(post_recv(other[0].qp, 10 + i, at(&e[0], 0, 64)));
	}
	OK(to_state(e[0].qp, IBV_QPS_ERR));
	OK(to_state(other[0].qp, IBV_QPS_ERR));
	PART("one is reset");
	OK(to_state(e[0].qp, IBV_QPS_RESET));
	for (int i = 0; i < 3; i++)
		DONE(e[0].cq, 10 + i, IBV_WC_WR_FLUSH_ERR);
	NOTHING(e[0].cq, 20);
	PART("connected anew it works");
	OK(to_state(e[1].qp, IBV_QPS_RESET));
	connect_with(e, ALL_RIGHTS, USUAL);
	exchange(e, 1);
	PART("what was done before a reset and not taken is gone, too");
	OK(post_recv(e[1].qp, 20, at(&e[1], 0, 64)));
	OK(post_send(e[0].qp, 21, at(&e[0], 0, 8)));
	DONE(e[1].cq, 20, IBV_WC_SUCCESS);
	// The answer is on its way.
	usleep(20 * 1000);
	OK(to_state(e[0].qp, IBV_QPS_RESET));
	OK(to_state(e[1].qp, IBV_QPS_RESET));
	connect_with(e, ALL_RIGHTS, USUAL);
	exchange(e, 2);
	NOTHING(e[0].cq, 20);
	destroy_qps(other);
	destroy_qps(e);
	close_both(e);
	return 0;
}
