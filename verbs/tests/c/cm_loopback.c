// Loopback addresses: an id that is bound to one has no device, and hears what is for any; to connect to one leads to the device's own.

#include "cm.h"

static struct rdma_event_channel *channel[2];

// Connects to a listener, and sends a message each way.
static void connect_to(struct rdma_cm_id *listener, struct sockaddr_in to, unsigned seed)
{
	struct rdma_cm_id *id[2];
	struct rdma_conn_param param = {.retry_count = 7, .rnr_retry_count = 7};
	to.sin_port = rdma_get_src_port(listener);
	OK(rdma_create_id(channel[0], &id[0], NULL, RDMA_PS_TCP));
	OK(rdma_resolve_addr(id[0], NULL, any(&to), 2000));
	EQ(EVENT_OF(channel[0], id[0], RDMA_CM_EVENT_ADDR_RESOLVED), 0);
	CHECK(id[0]->verbs);
	OK(rdma_resolve_route(id[0], 2000));
	EQ(EVENT_OF(channel[0], id[0], RDMA_CM_EVENT_ROUTE_RESOLVED), 0);
	give_qp(id[0], IBV_QPT_RC);
	OK(rdma_connect(id[0], &param));
	struct rdma_cm_event *event = EVENT(channel[1], RDMA_CM_EVENT_CONNECT_REQUEST);
	CHECK(event->listen_id == listener);
	id[1] = event->id;
	OK(rdma_ack_cm_event(event));
	CHECK(id[1]->verbs);
	give_qp(id[1], IBV_QPT_RC);
	OK(rdma_accept(id[1], &param));
	EQ(EVENT_OF(channel[0], id[0], RDMA_CM_EVENT_ESTABLISHED), 0);
	EQ(EVENT_OF(channel[1], id[1], RDMA_CM_EVENT_ESTABLISHED), 0);
	exchange_ids(id[0], id[1], seed);
	exchange_ids(id[1], id[0], seed + 1);
	destroy_with_qp(id[0]);
	destroy_with_qp(id[1]);
}

static struct rdma_cm_id *listener_at(struct sockaddr_in at)
{
	struct rdma_cm_id *id = listening(channel[1], RDMA_PS_TCP, at);
	CHECK(rdma_get_src_port(id) != 0);
	CHECK(!id->verbs);
	return id;
}

int main(void)
{
	struct sockaddr_in loopback = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
	struct sockaddr_in everywhere = {.sin_family = AF_INET};
	for (int i = 0; i < 2; i++)
		channel[i] = MADE(rdma_create_event_channel());

	PART("to one that listens at a loopback address, by the device's");
	struct rdma_cm_id *listener = listener_at(loopback);
	connect_to(listener, address_of(0, 0), 1);

	PART("the same by a loopback address: Linux has no route there with RoCE");
	connect_to(listener, loopback, 3);
	OK(rdma_destroy_id(listener));

	PART("the same to one that listens everywhere");
	listener = listener_at(everywhere);
	connect_to(listener, loopback, 5);
	OK(rdma_destroy_id(listener));

	PART("an id that is bound there finds its device when it is resolved");
	struct rdma_cm_id *id;
	OK(rdma_create_id(channel[0], &id, NULL, RDMA_PS_TCP));
	OK(rdma_bind_addr(id, any(&loopback)));
	CHECK(!id->verbs);
	loopback.sin_port = htons(7003);
	OK(rdma_resolve_addr(id, NULL, any(&loopback), 2000));
	EQ(EVENT_OF(channel[0], id, RDMA_CM_EVENT_ADDR_RESOLVED), 0);
	CHECK(id->verbs);
	OK(rdma_destroy_id(id));

	for (int i = 0; i < 2; i++)
		rdma_destroy_event_channel(channel[i]);
	return 0;
}
