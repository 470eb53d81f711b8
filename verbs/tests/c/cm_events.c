// Event channels: a descriptor to poll, events that are not acknowledged, ids that move to another channel.

#include <sys/wait.h>

#include "cm.h"

static int readable(struct rdma_event_channel *channel, int ms)
{
	struct pollfd fd = {.fd = channel->fd, .events = POLLIN};
	return poll(&fd, 1, ms) == 1;
}

static void polling(void)
{
	PART("the descriptor is readable exactly while there are events");
	struct rdma_event_channel *channel = MADE(rdma_create_event_channel());
	struct sockaddr_in here = address_of(0, 0), there = address_of(1, 7000);
	struct rdma_cm_id *id;
	struct rdma_cm_event *event;
	OK(rdma_create_id(channel, &id, &here, RDMA_PS_TCP));
	CHECK(id->context == &here && id->channel == channel && id->ps == RDMA_PS_TCP);
	CHECK(!readable(channel, 0));
	OK(rdma_resolve_addr(id, any(&here), any(&there), 2000));
	CHECK(readable(channel, LIMIT_MS));
	OK(rdma_get_cm_event(channel, &event));
	CHECK(!readable(channel, 0));
	OK(rdma_ack_cm_event(event));

	PART("who does not want to wait is told to come again");
	OK(fcntl(channel->fd, F_SETFL, fcntl(channel->fd, F_GETFL) | O_NONBLOCK));
	MINUS(rdma_get_cm_event(channel, &event), EAGAIN);
	OK(rdma_resolve_route(id, 2000));
	CHECK(readable(channel, LIMIT_MS));
	OK(rdma_get_cm_event(channel, &event));
	EQ(event->event, RDMA_CM_EVENT_ROUTE_RESOLVED);
	OK(rdma_ack_cm_event(event));

	PART("events of an id that is destroyed are not told");
	struct rdma_cm_id *other;
	OK(rdma_create_id(channel, &other, NULL, RDMA_PS_TCP));
	OK(rdma_resolve_addr(other, any(&here), any(&there), 2000));
	CHECK(readable(channel, LIMIT_MS));
	OK(rdma_destroy_id(other));
	CHECK(!readable(channel, 50));
	OK(rdma_destroy_id(id));
	rdma_destroy_event_channel(channel);
}

static volatile int destroyed;

static void *destroyer(void *id)
{
	OK(rdma_destroy_id(id));
	destroyed = 1;
	return NULL;
}

static void unacknowledged(void)
{
	PART("an id waits until its events are acknowledged");
	struct rdma_event_channel *channel = MADE(rdma_create_event_channel());
	struct sockaddr_in here = address_of(0, 0), there = address_of(1, 7000);
	struct rdma_cm_id *id;
	OK(rdma_create_id(channel, &id, NULL, RDMA_PS_TCP));
	OK(rdma_resolve_addr(id, any(&here), any(&there), 2000));
	struct rdma_cm_event *event = EVENT(channel, RDMA_CM_EVENT_ADDR_RESOLVED);
	pthread_t thread;
	OK(pthread_create(&thread, NULL, destroyer, id));
	usleep(50000);
	CHECK(!destroyed);
	OK(rdma_ack_cm_event(event));
	OK(pthread_join(thread, NULL));
	CHECK(destroyed);
	rdma_destroy_event_channel(channel);
}

static void migration(void)
{
	PART("an id takes its events along to another channel");
	struct rdma_event_channel *channel[2] = {MADE(rdma_create_event_channel()), MADE(rdma_create_event_channel())};
	struct sockaddr_in here = address_of(0, 0), there = address_of(1, 7000);
	struct rdma_cm_id *id;
	OK(rdma_create_id(channel[0], &id, NULL, RDMA_PS_TCP));
	OK(rdma_resolve_addr(id, any(&here), any(&there), 2000));
	CHECK(readable(channel[0], LIMIT_MS));
	OK(rdma_migrate_id(id, channel[1]));
	CHECK(!readable(channel[0], 0) && id->channel == channel[1]);
	EQ(EVENT_OF(channel[1], id, RDMA_CM_EVENT_ADDR_RESOLVED), 0);

	PART("and without one it waits for what it asks for");
	OK(rdma_migrate_id(id, NULL));
	OK(rdma_resolve_route(id, 2000));
	EQ(id->event->event, RDMA_CM_EVENT_ROUTE_RESOLVED);
	OK(rdma_destroy_id(id));
	for (int i = 0; i < 2; i++)
		rdma_destroy_event_channel(channel[i]);
}

static void unseen_request(void)
{
	PART("a request that nobody saw is refused when its listener goes");
	struct rdma_event_channel *channel[2] = {MADE(rdma_create_event_channel()), MADE(rdma_create_event_channel())};
	struct sockaddr_in here = address_of(0, 0), there = address_of(1, 0);
	struct rdma_cm_id *listener = listening(channel[1], RDMA_PS_TCP, there);
	there.sin_port = rdma_get_src_port(listener);
	struct rdma_cm_id *id = routed(channel[0], RDMA_PS_TCP, here, there);
	give_qp(id, IBV_QPT_RC);
	OK(rdma_connect(id, NULL));
	CHECK(readable(channel[1], LIMIT_MS));
	OK(rdma_destroy_id(listener));
	CHECK(!readable(channel[1], 0));
	EQ(EVENT_OF(channel[0], id, RDMA_CM_EVENT_REJECTED), 28);
	destroy_with_qp(id);
	for (int i = 0; i < 2; i++)
		rdma_destroy_event_channel(channel[i]);
}

static void forked(void)
{
	PART("the child of a fork has no connections, and the parent's go on");
	struct connected c = make_connection();
	pid_t child = fork();
	if (child == 0) {
		struct rdma_cm_id *id;
		struct rdma_cm_event *event;
		rdma_destroy_event_channel(MADE(rdma_create_event_channel()));
		MINUS(rdma_create_id(c.channel[0], &id, NULL, RDMA_PS_TCP), EIO);
		MINUS(rdma_get_cm_event(c.channel[0], &event), EIO);
		MINUS(rdma_disconnect(c.id[0]), EIO);
		MINUS(rdma_destroy_id(c.id[0]), EIO);
		rdma_destroy_event_channel(c.channel[0]);
		_exit(0);
	}
	int status = -1;
	CHECK(child > 0 && waitpid(child, &status, 0) == child);
	EQ(status, 0);
	exchange_ids(c.id[0], c.id[1], 5);
	end_connection(&c);
}

int main(void)
{
	polling();
	unacknowledged();
	migration();
	unseen_request();
	forked();
	return 0;
}
