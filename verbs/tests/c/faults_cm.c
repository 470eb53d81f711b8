// Faults of the connection manager, as a program sees them: events instead of what was asked for, late ones, and those that come by
// themselves.
// run: --dev mem
// seconds: 60

#include "cm.h"
#include "faults.h"

static struct rdma_event_channel *channel;
static struct rdma_conn_param param = {.responder_resources = 4, .initiator_depth = 4, .retry_count = 7, .rnr_retry_count = 7};

// An id with a queue pair, that is ready to connect to somebody who listens at the other end.
static struct rdma_cm_id *ready(struct rdma_cm_id **listener)
{
	struct sockaddr_in here = address_of(0, 0), there = address_of(1, 0);
	channel = MADE(rdma_create_event_channel());
	*listener = listening(channel, RDMA_PS_TCP, there);
	there.sin_port = rdma_get_src_port(*listener);
	struct rdma_cm_id *id = routed(channel, RDMA_PS_TCP, here, there);
	give_qp(id, IBV_QPT_RC);
	return id;
}

static int fails(enum rdma_cm_event_type kind)
{
	struct rdma_cm_id *listener, *id = ready(&listener);
	OK(rdma_connect(id, &param));
	int status = EVENT_OF(channel, id, kind);
	EQ(state_of(id->qp), IBV_QPS_ERR);
	destroy_with_qp(id);
	// Nobody asked who listens.
	struct pollfd fd = {.fd = channel->fd, .events = POLLIN};
	EQ(poll(&fd, 1, 20), 0);
	OK(rdma_destroy_id(listener));
	return status;
}

static void rejected(void)
{
	EQ(fails(RDMA_CM_EVENT_REJECTED), 28);
}

static void unreachable(void)
{
	EQ(fails(RDMA_CM_EVENT_UNREACHABLE), -ETIMEDOUT);
}

static void connect_error(void)
{
	EQ(fails(RDMA_CM_EVENT_CONNECT_ERROR), -EINVAL);
}

static void synchronous(void)
{
	// Without a channel the function waits for the event, and fails.
	struct sockaddr_in here = address_of(0, 0), there = address_of(1, 7001);
	struct rdma_cm_id *id;
	OK(rdma_create_id(NULL, &id, NULL, RDMA_PS_TCP));
	OK(rdma_resolve_addr(id, any(&here), any(&there), 2000));
	OK(rdma_resolve_route(id, 2000));
	give_qp(id, IBV_QPT_RC);
	MINUS(rdma_connect(id, &param), ECONNREFUSED);
	destroy_with_qp(id);
}

static void address_error(void)
{
	struct sockaddr_in here = address_of(0, 0), there = address_of(1, 7001);
	struct rdma_cm_id *id;
	channel = MADE(rdma_create_event_channel());
	OK(rdma_create_id(channel, &id, NULL, RDMA_PS_TCP));
	OK(rdma_resolve_addr(id, any(&here), any(&there), 2000));
	EQ(EVENT_OF(channel, id, RDMA_CM_EVENT_ADDR_ERROR), -ETIMEDOUT);
	// It may be tried again.
	OK(rdma_resolve_addr(id, any(&here), any(&there), 2000));
	EQ(EVENT_OF(channel, id, RDMA_CM_EVENT_ADDR_RESOLVED), 0);
	OK(rdma_resolve_route(id, 2000));
	EQ(EVENT_OF(channel, id, RDMA_CM_EVENT_ROUTE_ERROR), -ETIMEDOUT);
	OK(rdma_resolve_route(id, 2000));
	EQ(EVENT_OF(channel, id, RDMA_CM_EVENT_ROUTE_RESOLVED), 0);
	OK(rdma_destroy_id(id));
}

static void errnos(void)
{
	struct rdma_cm_id *id;
	channel = MADE(rdma_create_event_channel());
	MINUS(rdma_create_id(channel, &id, NULL, RDMA_PS_TCP), ENODEV);
	OK(rdma_create_id(channel, &id, NULL, RDMA_PS_TCP));
	OK(rdma_destroy_id(id));
}

// A child begins anew, though no device was asked for before the fork.
static void child_counts_anew(void)
{
	MADE(rdma_create_event_channel());
	pid_t child = fork();
	CHECK(child >= 0);
	if (child == 0) {
		MADE(rdma_create_event_channel());
		CHECK(!rdma_create_event_channel() && errno == EMFILE);
		exit(0);
	}
	int status = -1;
	CHECK(waitpid(child, &status, 0) == child);
	EQ(status, 0);
	CHECK(!rdma_create_event_channel() && errno == EMFILE);
}

// Both ends, and what comes to each.
static void late(void)
{
	struct connected c = make_connection();
	struct timespec before, after;
	clock_gettime(CLOCK_MONOTONIC, &before);
	OK(rdma_disconnect(c.id[0]));
	EQ(EVENT_OF(c.channel[1], c.id[1], RDMA_CM_EVENT_DISCONNECTED), 0);
	clock_gettime(CLOCK_MONOTONIC, &after);
	CHECK((after.tv_sec - before.tv_sec) * 1000 + (after.tv_nsec - before.tv_nsec) / 1000000 >= 100);
	OK(rdma_disconnect(c.id[1]));
	EQ(EVENT_OF(c.channel[0], c.id[0], RDMA_CM_EVENT_DISCONNECTED), 0);
}

static void by_themselves(void)
{
	struct connected c = make_connection();
	// What librdmacm does by itself is no call of the program.
	struct ibv_mr *mr = MADE(ibv_reg_mr(c.id[0]->pd, &param, sizeof(param), 0));
	OK(ibv_dereg_mr(mr));
	static const enum rdma_cm_event_type kinds[] = {RDMA_CM_EVENT_ADDR_CHANGE, RDMA_CM_EVENT_ADDR_CHANGE,
							RDMA_CM_EVENT_DEVICE_REMOVAL};
	for (int i = 0; i < 3; i++) {
		EQ(EVENT_OF(c.channel[0], c.id[0], kinds[i]), 0);
		// Who listens is bound to a device, too.
		EQ(EVENT_OF(c.channel[1], c.listener, kinds[i]), 0);
		EQ(EVENT_OF(c.channel[1], c.id[1], kinds[i]), 0);
	}
	exchange_ids(c.id[0], c.id[1], 1);
}

// Shared receive queues that are gone are counted, and nothing is about them any more.
static void second_srq(void)
{
	struct rdma_cm_id *listener, *id = ready(&listener);
	struct ibv_srq_init_attr init = {.attr = {.max_wr = 4, .max_sge = 1}};
	struct ibv_device_attr device;
	OK(rdma_create_srq(id, NULL, &init));
	rdma_destroy_srq(id);
	OK(rdma_create_srq(id, NULL, &init));
	OK(ibv_query_device(id->verbs, &device));
	struct ibv_async_event event;
	OK(ibv_get_async_event(id->verbs, &event));
	EQ(event.event_type, IBV_EVENT_SRQ_LIMIT_REACHED);
	CHECK(event.element.srq == id->srq);
	ibv_ack_async_event(&event);
	rdma_destroy_srq(id);
	destroy_with_qp(id);
	OK(rdma_destroy_id(listener));
}

int main(void)
{
	PART("another event comes than what was asked for");
	WITH("cm.connect=REJECTED:28", rejected);
	WITH("cm.connect=UNREACHABLE", unreachable);
	WITH("cm.connect=CONNECT_ERROR", connect_error);
	WITH("cm.connect=REJECTED:8", synchronous);
	WITH("cm.resolve_addr#1=ADDR_ERROR,cm.resolve_route#1=ROUTE_ERROR", address_error);
	PART("a function fails with an errno");
	WITH("cm.create_id#1=ENODEV", errnos);
	PART("the child of a fork counts anew");
	WITH("cm.create_event_channel#2=EMFILE", child_counts_anew);
	PART("an event comes late");
	WITH("cm.DISCONNECTED#1=late:100ms", late);
	PART("an event of the second shared receive queue");
	WITH("event.SRQ_LIMIT_REACHED#1=query_device#1,event.SRQ_LIMIT_REACHED#2=query_device#1", second_srq);
	PART("events that nobody asked for, also twice");
	WITH("cm.ADDR_CHANGE=reg_mr#1,cm.ADDR_CHANGE=reg_mr#1,cm.DEVICE_REMOVAL=reg_mr#1", by_themselves);
	return 0;
}
