// Asynchronous events: which come, by what, and that objects wait for theirs to be acknowledged.

#include <fcntl.h>
#include <poll.h>

#include "common.h"

static int readable(struct end *e, int ms)
{
	struct pollfd p = {.fd = e->context->async_fd, .events = POLLIN};
	return poll(&p, 1, ms) == 1;
}

// The next event, which must be this one; not acknowledged yet.
static struct ibv_async_event expect(struct end *e, enum ibv_event_type type)
{
	struct ibv_async_event event;
	if (!readable(e, LIMIT_MS))
		FAIL("no event comes, where %s should", ibv_event_type_str(type));
	OK(ibv_get_async_event(e->context, &event));
	if (event.event_type != type)
		FAIL("the event is %s, not %s", ibv_event_type_str(event.event_type), ibv_event_type_str(type));
	return event;
}

static void none(struct end *e)
{
	int flags = fcntl(e->context->async_fd, F_GETFL);
	CHECK(fcntl(e->context->async_fd, F_SETFL, flags | O_NONBLOCK) == 0);
	struct ibv_async_event event;
	errno = 0;
	if (ibv_get_async_event(e->context, &event) == 0)
		FAIL("there is an event: %s", ibv_event_type_str(event.event_type));
	EQ(errno, EAGAIN);
	CHECK(fcntl(e->context->async_fd, F_SETFL, flags) == 0);
}

static void established(struct end e[2])
{
	PART("IBV_EVENT_COMM_EST: a packet comes before the queue pair is ready to send");
	for (int i = 0; i < 2; i++) {
		e[i].qp = make_qp(&e[i], IBV_QPT_RC);
		OK(to_init(e[i].qp, ALL_RIGHTS));
	}
	for (int i = 0; i < 2; i++)
		OK(to_rtr(e[i].qp, &e[i], &e[1 - i], e[1 - i].qp->qp_num));
	OK(to_rts(e[0].qp, USUAL));
	OK(post_recv(e[1].qp, 1, at(&e[1], 0, 64)));
	OK(post_send(e[0].qp, 2, at(&e[0], 0, 8)));
	DONE(e[0].cq, 2, IBV_WC_SUCCESS);
	DONE(e[1].cq, 1, IBV_WC_SUCCESS);
	struct ibv_async_event event = expect(&e[1], IBV_EVENT_COMM_EST);
	CHECK(event.element.qp == e[1].qp);
	ibv_ack_async_event(&event);
	OK(to_rts(e[1].qp, USUAL));
	none(&e[0]);
	none(&e[1]);
	destroy_qps(e);
}

static void violation(struct end e[2])
{
	PART("IBV_EVENT_QP_ACCESS_ERR: the peer asked for memory that it may not touch");
	connect_new(e, IBV_QPT_RC);
	OK(post_rdma(e[0].qp, IBV_WR_RDMA_WRITE, 1, at(&e[0], 0, 8), address(&e[1], 0), ~e[1].mr->rkey));
	DONE(e[0].cq, 1, IBV_WC_REM_ACCESS_ERR);
	struct ibv_async_event event = expect(&e[1], IBV_EVENT_QP_ACCESS_ERR);
	CHECK(event.element.qp == e[1].qp);
	ibv_ack_async_event(&event);
	// Who has a completion that says so needs no event.
	none(&e[0]);
	destroy_qps(e);
}

static void last_wqe(struct end e[2])
{
	PART("IBV_EVENT_QP_LAST_WQE_REACHED: a queue pair with a shared receive queue in the error state");
	struct ibv_srq_init_attr init = {.attr = {.max_wr = 16, .max_sge = 1}};
	e[1].srq = MADE(ibv_create_srq(e[1].pd, &init));
	connect_new(e, IBV_QPT_RC);
	OK(to_state(e[1].qp, IBV_QPS_ERR));
	struct ibv_async_event event = expect(&e[1], IBV_EVENT_QP_LAST_WQE_REACHED);
	CHECK(event.element.qp == e[1].qp);
	ibv_ack_async_event(&event);
	destroy_qps(e);
	OK(ibv_destroy_srq(e[1].srq));
	e[1].srq = NULL;
}

static void limit(struct end e[2])
{
	PART("IBV_EVENT_SRQ_LIMIT_REACHED, once for each time that it is armed");
	struct ibv_srq_init_attr init = {.attr = {.max_wr = 16, .max_sge = 1}};
	struct ibv_srq *srq = MADE(ibv_create_srq(e[1].pd, &init));
	e[1].srq = srq;
	connect_new(e, IBV_QPT_RC);
	for (int round = 0; round < 2; round++) {
		struct ibv_sge sge = at(&e[1], 0, 64);
		for (int i = 0; i < 4; i++) {
			struct ibv_recv_wr wr = {.wr_id = i, .sg_list = &sge, .num_sge = 1}, *bad;
			OK(ibv_post_srq_recv(srq, &wr, &bad));
		}
		struct ibv_srq_attr attr = {.srq_limit = 3};
		OK(ibv_modify_srq(srq, &attr, IBV_SRQ_LIMIT));
		OK(ibv_query_srq(srq, &attr));
		EQ(attr.srq_limit, 3);
		for (int i = 0; i < 4; i++) {
			OK(post_send(e[0].qp, i, at(&e[0], 0, 8)));
			DONE(e[0].cq, i, IBV_WC_SUCCESS);
			NEXT(e[1].cq);
			if (i == 0)
				none(&e[1]);
		}
		struct ibv_async_event event = expect(&e[1], IBV_EVENT_SRQ_LIMIT_REACHED);
		CHECK(event.element.srq == srq);
		ibv_ack_async_event(&event);
		none(&e[1]);
		OK(ibv_query_srq(srq, &attr));
		EQ(attr.srq_limit, 0);
	}
	destroy_qps(e);
	OK(ibv_destroy_srq(srq));
	e[1].srq = NULL;
}

static struct ibv_async_event taken;
static volatile int acknowledged;

static void *acknowledge(void *arg)
{
	(void)arg;
	usleep(200 * 1000);
	acknowledged = 1;
	ibv_ack_async_event(&taken);
	return NULL;
}

static void destroyed(struct end e[2])
{
	PART("ibv_destroy_qp waits until another thread has acknowledged its events");
	struct ibv_srq_init_attr init = {.attr = {.max_wr = 16, .max_sge = 1}};
	e[1].srq = MADE(ibv_create_srq(e[1].pd, &init));
	connect_new(e, IBV_QPT_RC);
	OK(to_state(e[1].qp, IBV_QPS_ERR));
	taken = expect(&e[1], IBV_EVENT_QP_LAST_WQE_REACHED);
	pthread_t thread;
	CHECK(pthread_create(&thread, NULL, acknowledge, NULL) == 0);
	OK(ibv_destroy_qp(e[1].qp));
	CHECK(acknowledged);
	CHECK(pthread_join(thread, NULL) == 0);
	OK(ibv_destroy_qp(e[0].qp));
	PART("an event that nobody took goes with its queue pair");
	connect_new(e, IBV_QPT_RC);
	OK(to_state(e[1].qp, IBV_QPS_ERR));
	CHECK(readable(&e[1], LIMIT_MS));
	destroy_qps(e);
	none(&e[1]);
	OK(ibv_destroy_srq(e[1].srq));
	e[1].srq = NULL;
}

static void overrun(struct end e[2])
{
	PART("IBV_EVENT_CQ_ERR: a completion that finds no room");
	struct ibv_cq *small = MADE(ibv_create_cq(e[1].context, 1, NULL, NULL, 0));
	struct ibv_qp_init_attr init = qp_options(&e[1], IBV_QPT_RC);
	init.cap.max_recv_wr = small->cqe + 2;
	init.recv_cq = small;
	e[1].qp = MADE(ibv_create_qp(e[1].pd, &init));
	OK(to_init(e[1].qp, ALL_RIGHTS));
	for (int i = 0; i < small->cqe + 2; i++)
		OK(post_recv(e[1].qp, i, at(&e[1], 0, 8)));
	OK(to_state(e[1].qp, IBV_QPS_ERR));
	struct ibv_async_event event = expect(&e[1], IBV_EVENT_CQ_ERR);
	CHECK(event.element.cq == small);
	ibv_ack_async_event(&event);
	// The queue pair may have one of its own.
	if (readable(&e[1], 100)) {
		event = expect(&e[1], IBV_EVENT_QP_FATAL);
		CHECK(event.element.qp == e[1].qp);
		ibv_ack_async_event(&event);
	}
	OK(ibv_destroy_qp(e[1].qp));
	OK(ibv_destroy_cq(small));
}

int main(void)
{
	struct end e[2];
	open_both(e);
	none(&e[0]);
	none(&e[1]);
	established(e);
	violation(e);
	last_wqe(e);
	limit(e);
	destroyed(e);
	overrun(e);
	close_both(e);
	return 0;
}
