// check: event-not-acknowledged
// A mistake, planted: an event of the connection manager is taken and never acknowledged, so that its id cannot be destroyed. With an argument
// it is, and so is a request by another thread than the one that destroys the listener.

#include "cm.h"

static void *acknowledge(void *event)
{
	usleep(20000);
	OK(rdma_ack_cm_event(event));
	return NULL;
}

int main(int argc, char **argv UNUSED)
{
	struct sockaddr_in here = address_of(0, 0), there = address_of(1, 0);
	struct rdma_event_channel *channel = MADE(rdma_create_event_channel());
	struct rdma_cm_id *listener = listening(channel, RDMA_PS_TCP, there), *id;
	OK(rdma_create_id(channel, &id, NULL, RDMA_PS_TCP));
	there.sin_port = rdma_get_src_port(listener);
	OK(rdma_resolve_addr(id, any(&here), any(&there), 2000));
	struct rdma_cm_event *event;
	OK(rdma_get_cm_event(channel, &event));
	EQ(event->event, RDMA_CM_EVENT_ADDR_RESOLVED);
	// rdma_destroy_id would wait for ever.
	if (argc == 1)
		return 0;
	OK(rdma_ack_cm_event(event));
	OK(rdma_resolve_route(id, 2000));
	EVENT_OF(channel, id, RDMA_CM_EVENT_ROUTE_RESOLVED);
	give_qp(id, IBV_QPT_RC);
	struct rdma_conn_param param = {.responder_resources = 1, .initiator_depth = 1};
	OK(rdma_connect(id, &param));
	OK(rdma_get_cm_event(channel, &event));
	EQ(event->event, RDMA_CM_EVENT_CONNECT_REQUEST);
	struct rdma_cm_id *request = event->id;
	pthread_t thread;
	OK(pthread_create(&thread, NULL, acknowledge, event));
	OK(rdma_destroy_id(listener));
	OK(pthread_join(thread, NULL));
	OK(rdma_destroy_id(request));
	destroy_with_qp(id);
	rdma_destroy_event_channel(channel);
	return 0;
}
