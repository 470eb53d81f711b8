// check: event-not-acknowledged
// A mistake, planted: an event of a completion queue is taken and never acknowledged, so that the queue cannot be destroyed. With an argument
// it is.

#include "common.h"

int main(int argc, char **argv UNUSED)
{
	int fixed = argc > 1;
	struct end e[2];
	open_both(e);
	connect_new(e, IBV_QPT_RC);
	OK(ibv_req_notify_cq(e[0].cq, 0));
	OK(post_recv(e[1].qp, 1, at(&e[1], 0, 64)));
	OK(post_send(e[0].qp, 2, at(&e[0], 0, 64)));
	struct ibv_cq *cq;
	void *context;
	OK(ibv_get_cq_event(e[0].channel, &cq, &context));
	DONE(e[0].cq, 2, IBV_WC_SUCCESS);
	DONE(e[1].cq, 1, IBV_WC_SUCCESS);
	destroy_qps(e);
	// ibv_destroy_cq would wait for ever.
	if (!fixed)
		return 0;
	ibv_ack_cq_events(cq, 1);
	close_both(e);
	return 0;
}
