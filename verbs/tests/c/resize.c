// A completion queue of another size: what is in it stays, and it holds what was asked for.

#include "common.h"

static void send_many(struct end e[2], int from, int count)
{
	for (int i = from; i < from + count; i++) {
		OK(post_recv(e[1].qp, i, at(&e[1], 0, 64)));
		OK(post_send(e[0].qp, i, at(&e[0], 0, 8)));
		DONE(e[0].cq, i, IBV_WC_SUCCESS);
	}
}

int main(void)
{
	struct end e[2];
	open_both(e);
	struct ibv_cq *usual = e[1].cq;
	e[1].cq = MADE(ibv_create_cq(e[1].context, 16, NULL, NULL, 0));
	int before = e[1].cq->cqe;
	CHECK(before >= 16);
	connect_new(e, IBV_QPT_RC);
	send_many(e, 0, 10);
	PART("larger");
	int refused = ibv_resize_cq(e[1].cq, 200);
	if (refused == EOPNOTSUPP || refused == ENOSYS)
		LEAVE_OUT("completion queues keep their size here");
	OK(refused);
	CHECK(e[1].cq->cqe >= 200);
	for (int done = 0, sent = 10; sent < 190; sent += 30) {
		send_many(e, sent, 30);
		// Ten are left behind each time, so that in the end there are more than it held at first.
		for (int i = 0; i < 20; i++)
			DONE(e[1].cq, done++, IBV_WC_SUCCESS);
	}
	for (int i = 120; i < 190; i++)
		DONE(e[1].cq, i, IBV_WC_SUCCESS);
	NOTHING(e[1].cq, 20);
	PART("smaller than what is in it: EINVAL, and nothing is lost");
	send_many(e, 0, 50);
	// Wait for the last of them: the sender may know before it is there.
	usleep(20 * 1000);
	EQ(ibv_resize_cq(e[1].cq, 20), EINVAL);
	for (int i = 0; i < 50; i++)
		DONE(e[1].cq, i, IBV_WC_SUCCESS);
	PART("smaller, when it is empty");
	OK(ibv_resize_cq(e[1].cq, 20));
	CHECK(e[1].cq->cqe >= 20);
	exchange(e, 7);
	PART("smaller than what was posted and needs no answer: EINVAL");
	struct end u[2] = {e[0], e[1]};
	u[0].cq = MADE(ibv_create_cq(e[0].context, 8, NULL, NULL, 0));
	connect_new(u, IBV_QPT_UC);
	for (int i = 0; i < 8; i++)
		OK(post_send(u[0].qp, i, at(&e[0], 0, 8)));
	EQ(ibv_resize_cq(u[0].cq, 7), EINVAL);
	for (int i = 0; i < 8; i++)
		DONE(u[0].cq, i, IBV_WC_SUCCESS);
	destroy_qps(u);
	OK(ibv_destroy_cq(u[0].cq));
	PART("sizes that cannot be");
	struct ibv_device_attr attr;
	OK(ibv_query_device(e[1].context, &attr));
	EQ(ibv_resize_cq(e[1].cq, attr.max_cqe + 1), EINVAL);
	EQ(ibv_resize_cq(e[1].cq, 0), EINVAL);
	exchange(e, 8);
	destroy_qps(e);
	OK(ibv_destroy_cq(e[1].cq));
	e[1].cq = usual;
	close_both(e);
	return 0;
}
