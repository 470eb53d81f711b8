// Shared receive queues: several queue pairs take from one, in the order in which receives were posted; limits, and what is refused.

#include "common.h"

#define QPS 3

static int post_shared(struct ibv_srq *srq, uint64_t wr_id, struct ibv_sge sge)
{
	struct ibv_recv_wr wr = {.wr_id = wr_id, .sg_list = &sge, .num_sge = 1}, *bad;
	return ibv_post_srq_recv(srq, &wr, &bad);
}

static void shared(struct end e[2])
{
	PART("three queue pairs take from one queue");
	struct ibv_qp *senders[QPS], *receivers[QPS];
	for (int i = 0; i < QPS; i++) {
		connect_new(e, IBV_QPT_RC);
		senders[i] = e[0].qp;
		receivers[i] = e[1].qp;
	}
	for (int round = 0; round < 30; round++) {
		int q = (round * 7) % QPS;
		fill(e[0].memory, 2500, round);
		OK(post_shared(e[1].srq, round, at(&e[1], round % 4 * 4096, 4096)));
		OK(post_send(senders[q], 500 + round, at(&e[0], 0, 2500)));
		DONE(e[0].cq, 500 + round, IBV_WC_SUCCESS);
		struct ibv_wc wc = DONE(e[1].cq, round, IBV_WC_SUCCESS);
		EQ(wc.qp_num, receivers[q]->qp_num);
		EQ(wc.byte_len, 2500);
		CHECK(same(e[1].memory + round % 4 * 4096, 2500, round));
	}
	PART("who finds it empty waits, and goes on when there is something");
	OK(post_send(senders[0], 1, at(&e[0], 0, 8)));
	NOTHING(e[0].cq, 30);
	OK(post_shared(e[1].srq, 2, at(&e[1], 0, 64)));
	DONE(e[0].cq, 1, IBV_WC_SUCCESS);
	DONE(e[1].cq, 2, IBV_WC_SUCCESS);
	PART("a queue pair with it has no receives of its own");
	CHECK(post_recv(receivers[0], 3, at(&e[1], 0, 8)) != 0);
	PART("what one queue pair left, another takes");
	OK(post_shared(e[1].srq, 4, at(&e[1], 0, 64)));
	OK(to_state(receivers[0], IBV_QPS_ERR));
	NOTHING(e[1].cq, 20);
	OK(post_send(senders[1], 5, at(&e[0], 0, 8)));
	DONE(e[0].cq, 5, IBV_WC_SUCCESS);
	DONE(e[1].cq, 4, IBV_WC_SUCCESS);
	for (int i = 0; i < QPS; i++) {
		struct ibv_async_event event;
		// The one in the error state says so.
		if (i == 0) {
			OK(ibv_get_async_event(e[1].context, &event));
			EQ(event.event_type, IBV_EVENT_QP_LAST_WQE_REACHED);
			ibv_ack_async_event(&event);
		}
		OK(ibv_destroy_qp(senders[i]));
		OK(ibv_destroy_qp(receivers[i]));
	}
}

static void limits(struct end *e)
{
	PART("what is asked for is there, and told");
	struct ibv_srq_init_attr init = {.srq_context = e, .attr = {.max_wr = 10, .max_sge = 2}};
	struct ibv_srq *srq = MADE(ibv_create_srq(e->pd, &init));
	CHECK(srq->srq_context == e && srq->pd == e->pd && srq->context == e->context);
	CHECK(init.attr.max_wr >= 10 && init.attr.max_sge >= 2);
	struct ibv_srq_attr attr;
	OK(ibv_query_srq(srq, &attr));
	CHECK(attr.max_wr >= 10 && attr.max_sge >= 2);
	EQ(attr.srq_limit, 0);
	PART("a full queue: ENOMEM, after as many as it says that it holds");
	int posted = 0, refused;
	while ((refused = post_shared(srq, posted, at(e, 0, 8))) == 0)
		posted++;
	EQ(refused, ENOMEM);
	EQ(posted, attr.max_wr);
	PART("limits beyond the depth, and too many pieces: refused");
	attr.srq_limit = init.attr.max_wr + 1000;
	EQ(ibv_modify_srq(srq, &attr, IBV_SRQ_LIMIT), EINVAL);
	struct ibv_sge many[64];
	for (int i = 0; i < 64; i++)
		many[i] = at(e, 0, 8);
	struct ibv_srq *other = MADE(ibv_create_srq(e->pd, &init));
	struct ibv_recv_wr wr = {.wr_id = 1, .sg_list = many, .num_sge = 64}, *bad = NULL;
	CHECK(ibv_post_srq_recv(other, &wr, &bad) != 0);
	CHECK(bad == &wr);
	OK(ibv_destroy_srq(other));
	// With receives in it, but no queue pair.
	OK(ibv_destroy_srq(srq));
}

int main(void)
{
	struct end e[2];
	open_both(e);
	struct ibv_srq_init_attr init = {.attr = {.max_wr = 64, .max_sge = 1}};
	e[1].srq = MADE(ibv_create_srq(e[1].pd, &init));
	shared(e);
	OK(ibv_destroy_srq(e[1].srq));
	e[1].srq = NULL;
	limits(&e[0]);
	close_both(e);
	return 0;
}
