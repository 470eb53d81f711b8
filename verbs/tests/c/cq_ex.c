// Extended completion queues: polled one by one, with what was asked for to be read of each.

#include "common.h"

static struct ibv_cq_ex *make(struct end *e, uint64_t flags)
{
	struct ibv_cq_init_attr_ex init = {.cqe = 100, .cq_context = e, .channel = e->channel, .wc_flags = flags};
	return ibv_create_cq_ex(e->context, &init);
}

// The next completion is under way of being read.
static void start(struct ibv_cq_ex *cq)
{
	struct ibv_poll_cq_attr attr = {0};
	uint64_t end = now_ms() + LIMIT_MS;
	int ret;
	while ((ret = ibv_start_poll(cq, &attr)) == ENOENT) {
		CHECK(now_ms() < end);
		sched_yield();
	}
	OK(ret);
}

static void read_all(struct end e[2], struct ibv_cq_ex *cq)
{
	PART("an empty queue: ENOENT");
	struct ibv_poll_cq_attr attr = {0};
	EQ(ibv_start_poll(cq, &attr), ENOENT);
	attr.comp_mask = 1u << 31;
	EQ(ibv_start_poll(cq, &attr), EINVAL);

	PART("what is there to be read of a receive");
	OK(post_recv(e[1].qp, 5, at(&e[1], 0, 4096)));
	struct ibv_sge sge = at(&e[0], 0, 3000);
	struct ibv_send_wr wr = work(IBV_WR_SEND_WITH_IMM, 6, &sge);
	wr.imm_data = htonl(0x01020304);
	OK(post(e[0].qp, &wr));
	DONE(e[0].cq, 6, IBV_WC_SUCCESS);
	start(cq);
	EQ(cq->wr_id, 5);
	EQ(cq->status, IBV_WC_SUCCESS);
	EQ(ibv_wc_read_opcode(cq), IBV_WC_RECV);
	EQ(ibv_wc_read_byte_len(cq), 3000);
	EQ(ibv_wc_read_qp_num(cq), e[1].qp->qp_num);
	CHECK(ibv_wc_read_wc_flags(cq) & IBV_WC_WITH_IMM);
	EQ(ntohl(ibv_wc_read_imm_data(cq)), 0x01020304);
	EQ(ibv_next_poll(cq), ENOENT);
	ibv_end_poll(cq);

	PART("several in one go, in their order");
	for (int i = 0; i < 10; i++) {
		OK(post_recv(e[1].qp, i, at(&e[1], 0, 4096)));
		OK(post_send(e[0].qp, i, at(&e[0], 0, 10 + i)));
		DONE(e[0].cq, i, IBV_WC_SUCCESS);
	}
	for (int seen = 0; seen < 10;) {
		start(cq);
		int more;
		do {
			EQ(cq->wr_id, seen);
			EQ(ibv_wc_read_byte_len(cq), 10 + seen);
			seen++;
		} while ((more = ibv_next_poll(cq)) == 0);
		EQ(more, ENOENT);
		ibv_end_poll(cq);
	}

	PART("the plain way is still there");
	struct ibv_cq *plain = ibv_cq_ex_to_cq(cq);
	CHECK(plain->cq_context == &e[1] && plain->context == e[1].context && plain->cqe >= 100);
	OK(ibv_req_notify_cq(plain, 0));
	OK(post_recv(e[1].qp, 7, at(&e[1], 0, 64)));
	OK(post_send(e[0].qp, 8, at(&e[0], 0, 8)));
	DONE(e[0].cq, 8, IBV_WC_SUCCESS);
	struct ibv_cq *which;
	void *context;
	OK(ibv_get_cq_event(e[1].channel, &which, &context));
	CHECK(which == plain && context == &e[1]);
	ibv_ack_cq_events(which, 1);
	DONE(plain, 7, IBV_WC_SUCCESS);

	PART("a receive that failed");
	OK(post_recv(e[1].qp, 9, at(&e[1], 0, 64)));
	OK(to_state(e[1].qp, IBV_QPS_ERR));
	start(cq);
	EQ(cq->wr_id, 9);
	EQ(cq->status, IBV_WC_WR_FLUSH_ERR);
	EQ(ibv_wc_read_qp_num(cq), e[1].qp->qp_num);
	(void)ibv_wc_read_vendor_err(cq);
	ibv_end_poll(cq);
}

static void timestamps(struct end e[2])
{
	struct ibv_device_attr_ex attr;
	OK(ibv_query_device_ex(e[1].context, NULL, &attr));
	struct ibv_cq_ex *cq = make(&e[1], IBV_WC_STANDARD_FLAGS | IBV_WC_EX_WITH_COMPLETION_TIMESTAMP);
	if (!attr.completion_timestamp_mask) {
		PART("no timestamps are offered, and a queue with them is refused");
		CHECK(!cq && (errno == EOPNOTSUPP || errno == EINVAL));
		return;
	}
	PART("timestamps do not go back");
	CHECK(cq);
	struct ibv_cq *plain = e[1].cq;
	e[1].cq = ibv_cq_ex_to_cq(cq);
	connect_new(e, IBV_QPT_RC);
	uint64_t last = 0;
	for (int i = 0; i < 10; i++) {
		OK(post_recv(e[1].qp, i, at(&e[1], 0, 64)));
		OK(post_send(e[0].qp, i, at(&e[0], 0, 8)));
		DONE(e[0].cq, i, IBV_WC_SUCCESS);
		start(cq);
		uint64_t at_ = ibv_wc_read_completion_ts(cq);
		CHECK(at_ >= last);
		last = at_;
		ibv_end_poll(cq);
	}
	CHECK(last > 0);
	destroy_qps(e);
	OK(ibv_destroy_cq(e[1].cq));
	e[1].cq = plain;
}

int main(void)
{
	struct end e[2];
	open_both(e);
	struct ibv_cq_ex *cq = MADE(make(&e[1], IBV_WC_STANDARD_FLAGS));
	struct ibv_cq *plain = e[1].cq;
	e[1].cq = ibv_cq_ex_to_cq(cq);
	connect_new(e, IBV_QPT_RC);
	read_all(e, cq);
	EQ(ibv_destroy_cq(e[1].cq), EBUSY);
	destroy_qps(e);
	OK(ibv_destroy_cq(e[1].cq));
	e[1].cq = plain;
	PART("flags that nobody knows");
	CHECK(!make(&e[1], 1ull << 60));
	timestamps(e);
	close_both(e);
	return 0;
}
