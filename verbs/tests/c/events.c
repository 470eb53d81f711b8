// Completion channels: when an event comes, when none does, and that a completion queue waits for its events to be acknowledged.

#include <fcntl.h>
#include <poll.h>

#include "common.h"

static int readable(int fd, int ms)
{
	struct pollfd p = {.fd = fd, .events = POLLIN};
	return poll(&p, 1, ms) == 1;
}

// Waits for the event of a queue, and acknowledges it.
static void event_of(struct end *e)
{
	struct ibv_cq *cq;
	void *context;
	CHECK(readable(e->channel->fd, LIMIT_MS));
	OK(ibv_get_cq_event(e->channel, &cq, &context));
	CHECK(cq == e->cq && context == e);
	ibv_ack_cq_events(cq, 1);
}

static void send_one(struct end e[2], int solicited)
{
	struct ibv_sge sge = at(&e[0], 0, 8);
	struct ibv_send_wr wr = work(IBV_WR_SEND, 1, &sge);
	wr.send_flags |= solicited ? IBV_SEND_SOLICITED : 0;
	OK(post_recv(e[1].qp, 2, at(&e[1], 0, 64)));
	OK(post(e[0].qp, &wr));
}

static void drain(struct end e[2])
{
	DONE(e[0].cq, 1, IBV_WC_SUCCESS);
	DONE(e[1].cq, 2, IBV_WC_SUCCESS);
}

static void simple(struct end e[2])
{
	PART("an event once it is asked for, and one only; nobody polls meanwhile");
	for (int i = 0; i < 50; i++) {
		OK(ibv_req_notify_cq(e[1].cq, 0));
		send_one(e, 0);
		event_of(&e[1]);
		drain(e);
	}
	send_one(e, 0);
	drain(e);
	CHECK(!readable(e[1].channel->fd, 50));

	PART("one event for many completions");
	OK(ibv_req_notify_cq(e[1].cq, 0));
	for (int i = 0; i < 5; i++)
		send_one(e, 0);
	event_of(&e[1]);
	for (int i = 0; i < 5; i++)
		drain(e);
	CHECK(!readable(e[1].channel->fd, 50));

	PART("the sender is told, too");
	OK(ibv_req_notify_cq(e[0].cq, 0));
	send_one(e, 0);
	event_of(&e[0]);
	drain(e);
}

static void solicited(struct end e[2])
{
	PART("only for what is solicited, and for what failed");
	OK(ibv_req_notify_cq(e[1].cq, 1));
	send_one(e, 0);
	drain(e);
	CHECK(!readable(e[1].channel->fd, 50));
	send_one(e, 1);
	event_of(&e[1]);
	drain(e);
	PART("asked for both, any is told");
	OK(ibv_req_notify_cq(e[1].cq, 0));
	OK(ibv_req_notify_cq(e[1].cq, 1));
	send_one(e, 0);
	event_of(&e[1]);
	drain(e);
}

// As with Mellanox's hardware: programs arm, and sleep without another poll.
static void missed(struct end e[2])
{
	PART("what came before the queue was armed, and is not polled, has its event at once, once");
	for (int i = 0; i < 3; i++)
		send_one(e, 0);
	for (int i = 0; i < 3; i++)
		DONE(e[0].cq, 1, IBV_WC_SUCCESS);
	for (int i = 0; i < 3; i++) {
		OK(ibv_req_notify_cq(e[1].cq, 0));
		event_of(&e[1]);
	}
	OK(ibv_req_notify_cq(e[1].cq, 0));
	CHECK(!readable(e[1].channel->fd, 50));
	for (int i = 0; i < 3; i++)
		DONE(e[1].cq, 2, IBV_WC_SUCCESS);
	send_one(e, 0);
	event_of(&e[1]);
	drain(e);
}

static void not_blocking(struct end e[2])
{
	PART("a channel that does not block: EAGAIN");
	int flags = fcntl(e[1].channel->fd, F_GETFL);
	CHECK(fcntl(e[1].channel->fd, F_SETFL, flags | O_NONBLOCK) == 0);
	struct ibv_cq *cq;
	void *context;
	errno = 0;
	EQ(ibv_get_cq_event(e[1].channel, &cq, &context), -1);
	EQ(errno, EAGAIN);
	CHECK(fcntl(e[1].channel->fd, F_SETFL, flags) == 0);
}

static void *ask(void *arg)
{
	struct end *e = arg;
	struct ibv_cq *cq;
	void *context;
	OK(ibv_get_cq_event(e->channel, &cq, &context));
	CHECK(cq == e->cq);
	ibv_ack_cq_events(cq, 1);
	return NULL;
}

static void blocking(struct end e[2])
{
	PART("a thread that sleeps in ibv_get_cq_event wakes up");
	for (int i = 0; i < 20; i++) {
		pthread_t thread;
		OK(ibv_req_notify_cq(e[1].cq, 0));
		CHECK(pthread_create(&thread, NULL, ask, &e[1]) == 0);
		if (i % 2)
			usleep(2000);
		send_one(e, 0);
		CHECK(pthread_join(thread, NULL) == 0);
		drain(e);
	}
}

// A target that never calls a verb is served all the same.
static void passive(struct end e[2])
{
	PART("WRITE and READ while the other end sleeps in poll(2)");
	CHECK(!readable(e[1].channel->fd, 50));
	for (int i = 0; i < 20; i++) {
		fill(e[0].memory, 5000, i);
		OK(post_rdma(e[0].qp, IBV_WR_RDMA_WRITE, 1, at(&e[0], 0, 5000), address(&e[1], 0), e[1].mr->rkey));
		OK(post_rdma(e[0].qp, IBV_WR_RDMA_READ, 2, at(&e[0], 8192, 5000), address(&e[1], 0), e[1].mr->rkey));
		DONE(e[0].cq, 1, IBV_WC_SUCCESS);
		DONE(e[0].cq, 2, IBV_WC_SUCCESS);
		CHECK(same(e[0].memory + 8192, 5000, i));
	}
}

static void flushed(struct end e[2])
{
	PART("a receive that is flushed has its event, asked for as solicited");
	OK(ibv_req_notify_cq(e[1].cq, 1));
	OK(post_recv(e[1].qp, 3, at(&e[1], 0, 64)));
	OK(to_state(e[1].qp, IBV_QPS_ERR));
	event_of(&e[1]);
	DONE(e[1].cq, 3, IBV_WC_WR_FLUSH_ERR);
}

static void several(struct end *e)
{
	PART("two queues of one channel; a queue without one");
	int which[2] = {0, 1};
	struct ibv_cq *cqs[2], *cq;
	void *context;
	for (int i = 0; i < 2; i++)
		cqs[i] = MADE(ibv_create_cq(e->context, 16, &which[i], e->channel, 0));
	EQ(ibv_destroy_comp_channel(e->channel), EBUSY);
	for (int i = 1; i >= 0; i--) {
		struct ibv_qp_init_attr init = qp_options(e, IBV_QPT_RC);
		init.recv_cq = cqs[i];
		struct ibv_qp *qp = MADE(ibv_create_qp(e->pd, &init));
		OK(to_init(qp, ALL_RIGHTS));
		OK(post_recv(qp, 1, at(e, 0, 8)));
		OK(ibv_req_notify_cq(cqs[i], 0));
		OK(to_state(qp, IBV_QPS_ERR));
		CHECK(readable(e->channel->fd, LIMIT_MS));
		OK(ibv_get_cq_event(e->channel, &cq, &context));
		CHECK(cq == cqs[i] && context == &which[i]);
		ibv_ack_cq_events(cq, 1);
		OK(ibv_destroy_qp(qp));
	}
	for (int i = 0; i < 2; i++)
		OK(ibv_destroy_cq(cqs[i]));
	cq = MADE(ibv_create_cq(e->context, 16, NULL, NULL, 0));
	CHECK(!cq->channel);
	OK(ibv_destroy_cq(cq));
}

static struct ibv_cq *unacknowledged;
static volatile int acknowledged;

static void *acknowledge(void *arg)
{
	(void)arg;
	usleep(200 * 1000);
	acknowledged = 1;
	ibv_ack_cq_events(unacknowledged, 1);
	return NULL;
}

static void destroyed(struct end *e)
{
	PART("ibv_destroy_cq waits until another thread has acknowledged all events");
	unacknowledged = MADE(ibv_create_cq(e->context, 16, NULL, e->channel, 0));
	struct ibv_qp_init_attr init = qp_options(e, IBV_QPT_RC);
	init.recv_cq = unacknowledged;
	struct ibv_qp *qp = MADE(ibv_create_qp(e->pd, &init));
	OK(to_init(qp, ALL_RIGHTS));
	OK(post_recv(qp, 1, at(e, 0, 8)));
	OK(ibv_req_notify_cq(unacknowledged, 0));
	OK(to_state(qp, IBV_QPS_ERR));
	struct ibv_cq *cq;
	void *context;
	OK(ibv_get_cq_event(e->channel, &cq, &context));
	CHECK(cq == unacknowledged);
	OK(ibv_destroy_qp(qp));
	pthread_t thread;
	CHECK(pthread_create(&thread, NULL, acknowledge, NULL) == 0);
	OK(ibv_destroy_cq(unacknowledged));
	CHECK(acknowledged);
	CHECK(pthread_join(thread, NULL) == 0);
	PART("an event that nobody took goes with its queue");
	cq = MADE(ibv_create_cq(e->context, 16, NULL, e->channel, 0));
	init.recv_cq = cq;
	qp = MADE(ibv_create_qp(e->pd, &init));
	OK(to_init(qp, ALL_RIGHTS));
	OK(post_recv(qp, 1, at(e, 0, 8)));
	OK(ibv_req_notify_cq(cq, 0));
	OK(to_state(qp, IBV_QPS_ERR));
	CHECK(readable(e->channel->fd, LIMIT_MS));
	OK(ibv_destroy_qp(qp));
	OK(ibv_destroy_cq(cq));
	CHECK(!readable(e->channel->fd, 50));
}

int main(void)
{
	struct end e[2];
	open_both(e);
	connect_new(e, IBV_QPT_RC);
	simple(e);
	solicited(e);
	missed(e);
	not_blocking(e);
	blocking(e);
	passive(e);
	flushed(e);
	destroy_qps(e);
	several(&e[0]);
	destroyed(&e[0]);
	close_both(e);
	return 0;
}
