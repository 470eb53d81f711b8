// Processes that end by _exit right behind rdma_disconnect or rdma_reject: as with a kernel's connection manager their peers hear of it.
// run: --dev shm
// seconds: 60

#include <sys/wait.h>

#include "cm.h"

#define TIMES 10

static const struct rdma_conn_param param = {.responder_resources = 4, .initiator_depth = 4, .retry_count = 7, .rnr_retry_count = 7};

static void ended(pid_t child)
{
	int status = -1;
	CHECK(waitpid(child, &status, 0) == child);
	EQ(status, 0);
}

static void disconnects(void)
{
	PART("who disconnects and ends at once has told the peer");
	struct rdma_event_channel *channel = MADE(rdma_create_event_channel());
	struct sockaddr_in here = address_of(0, 0), there = here;
	struct rdma_cm_id *listener = listening(channel, RDMA_PS_TCP, there);
	there.sin_port = rdma_get_src_port(listener);
	for (int i = 0; i < TIMES; i++) {
		pid_t child = fork();
		CHECK(child >= 0);
		if (child == 0) {
			alarm(LIMIT_MS / 1000);
			struct rdma_event_channel *own = MADE(rdma_create_event_channel());
			struct rdma_cm_id *id = routed(own, RDMA_PS_TCP, here, there);
			struct rdma_conn_param asked = param;
			give_qp(id, IBV_QPT_RC);
			OK(rdma_connect(id, &asked));
			EQ(EVENT_OF(own, id, RDMA_CM_EVENT_ESTABLISHED), 0);
			OK(rdma_disconnect(id));
			_exit(0);
		}
		struct rdma_cm_event *event = EVENT(channel, RDMA_CM_EVENT_CONNECT_REQUEST);
		struct rdma_cm_id *id = event->id;
		struct rdma_conn_param accepted = param;
		OK(rdma_ack_cm_event(event));
		give_qp(id, IBV_QPT_RC);
		OK(rdma_accept(id, &accepted));
		EQ(EVENT_OF(channel, id, RDMA_CM_EVENT_ESTABLISHED), 0);
		EQ(EVENT_OF(channel, id, RDMA_CM_EVENT_DISCONNECTED), 0);
		ended(child);
		destroy_with_qp(id);
	}
	OK(rdma_destroy_id(listener));
	rdma_destroy_event_channel(channel);
}

static void rejects(void)
{
	PART("who rejects and ends at once has told the peer");
	struct rdma_event_channel *channel = MADE(rdma_create_event_channel());
	struct sockaddr_in here = address_of(0, 0), there = here;
	for (int i = 0; i < TIMES; i++) {
		int port[2];
		CHECK(pipe(port) == 0);
		pid_t child = fork();
		CHECK(child >= 0);
		if (child == 0) {
			alarm(LIMIT_MS / 1000);
			struct rdma_event_channel *own = MADE(rdma_create_event_channel());
			struct rdma_cm_id *listener = listening(own, RDMA_PS_TCP, here);
			uint16_t number = rdma_get_src_port(listener);
			CHECK(write(port[1], &number, sizeof(number)) == sizeof(number));
			struct rdma_cm_event *event = EVENT(own, RDMA_CM_EVENT_CONNECT_REQUEST);
			OK(rdma_reject(event->id, NULL, 0));
			_exit(0);
		}
		CHECK(read(port[0], &there.sin_port, sizeof(there.sin_port)) == sizeof(there.sin_port));
		struct rdma_cm_id *id = routed(channel, RDMA_PS_TCP, here, there);
		struct rdma_conn_param asked = param;
		give_qp(id, IBV_QPT_RC);
		OK(rdma_connect(id, &asked));
		EQ(EVENT_OF(channel, id, RDMA_CM_EVENT_REJECTED), 28);
		ended(child);
		destroy_with_qp(id);
		close(port[0]);
		close(port[1]);
	}
	rdma_destroy_event_channel(channel);
}

int main(void)
{
	disconnects();
	rejects();
	return 0;
}
