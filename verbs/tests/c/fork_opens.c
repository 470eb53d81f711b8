// Children of fork(2) that open the device anew: each has a NIC of its own, and talks to its parent by it. What the parent opened stays the parent's.
// run: --dev shm
// seconds: 60

#include <sys/socket.h>
#include <sys/wait.h>

#include "cm.h"

static void exits_well(pid_t child)
{
	int status;
	for (uint64_t end = now_ms() + LIMIT_MS; now_ms() < end; usleep(1000)) {
		if (waitpid(child, &status, WNOHANG) != child)
			continue;
		if (!WIFEXITED(status) || WEXITSTATUS(status) != 0)
			FAIL("the child ends with status %#x", status);
		return;
	}
	FAIL("the child does not end");
}

// The process of a queue pair, by the upper bits of its number.
static uint32_t process_of(uint32_t qpn)
{
	return qpn >> 14;
}

// Both ends of a socket call this: each makes a queue pair, and it is connected with the other's, which is another process's.
static void connect_over(int socket, struct end *e)
{
	uint32_t far = 0;
	e->qp = make_qp(e, IBV_QPT_RC);
	CHECK(write(socket, &e->qp->qp_num, sizeof(far)) == sizeof(far));
	CHECK(read(socket, &far, sizeof(far)) == sizeof(far));
	CHECK(process_of(far) != process_of(e->qp->qp_num));
	OK(to_init(e->qp, ALL_RIGHTS));
	OK(to_rtr(e->qp, e, e, far));
	OK(to_rts(e->qp, USUAL));
	OK(post_recv(e->qp, 1, at(e, 4096, 4096)));
	char ready = 0;
	CHECK(write(socket, &ready, 1) == 1 && read(socket, &ready, 1) == 1);
}

// Sends a message and gets the other's.
static void say(struct end *e, unsigned mine, unsigned others)
{
	fill(e->memory, 3000, mine);
	OK(post_send(e->qp, 2, at(e, 0, 3000)));
	for (int i = 0; i < 2; i++) {
		struct ibv_wc wc = NEXT(e->cq);
		CHECK(wc.status == IBV_WC_SUCCESS && (wc.wr_id == 1 || wc.wr_id == 2));
	}
	CHECK(same(e->memory + 4096, 3000, others));
}

// In a child: nothing of the parent's can be used or closed.
static void refused(struct end *e)
{
	struct ibv_wc wc;
	struct ibv_cq *cq;
	struct ibv_async_event event;
	struct ibv_port_attr port;
	union ibv_gid gid;
	void *context;
	EQ(post_send(e->qp, 1, at(e, 0, 8)), EIO);
	EQ(post_recv(e->qp, 1, at(e, 0, 8)), EIO);
	EQ(ibv_poll_cq(e->cq, 1, &wc), -1);
	EQ(ibv_req_notify_cq(e->cq, 0), EIO);
	MINUS(ibv_get_cq_event(e->channel, &cq, &context), EIO);
	MINUS(ibv_get_async_event(e->context, &event), EIO);
	MINUS(ibv_query_gid(e->context, 1, 0, &gid), EIO);
	EQ(ibv_query_port(e->context, 1, &port), EIO);
	REFUSED(ibv_alloc_pd(e->context), EIO);
	REFUSED(ibv_create_comp_channel(e->context), EIO);
	REFUSED(ibv_create_cq(e->context, 16, NULL, NULL, 0), EIO);
	REFUSED(ibv_reg_mr(e->pd, e->memory, 4096, IBV_ACCESS_LOCAL_WRITE), EIO);
	EQ(to_state(e->qp, IBV_QPS_ERR), EIO);
	EQ(ibv_destroy_qp(e->qp), EIO);
	EQ(ibv_dereg_mr(e->mr), EIO);
	EQ(ibv_destroy_cq(e->cq), EIO);
	EQ(ibv_destroy_comp_channel(e->channel), EIO);
	EQ(ibv_dealloc_pd(e->pd), EIO);
	EQ(ibv_close_device(e->context), EIO);
	ibv_ack_cq_events(e->cq, 1);
}

// A process with a device open has a child that opens it too; `deep` more generations do the same.
static void child_and_parent(struct end *e, int deep)
{
	int pair[2];
	CHECK(socketpair(AF_UNIX, SOCK_STREAM, 0, pair) == 0);
	struct end talking = *e;
	pid_t child = fork();
	CHECK(child >= 0);
	if (child == 0) {
		alarm(LIMIT_MS / 1000);
		close(pair[0]);
		refused(e);
		struct end own;
		open_end(&own, 0);
		connect_over(pair[1], &own);
		say(&own, 10 + deep, 20 + deep);
		refused(e);
		if (deep > 0)
			child_and_parent(&own, deep - 1);
		OK(ibv_destroy_qp(own.qp));
		close_end(&own);
		exit(0);
	}
	close(pair[1]);
	connect_over(pair[0], &talking);
	say(&talking, 20 + deep, 10 + deep);
	exits_well(child);
	close(pair[0]);
	OK(ibv_destroy_qp(talking.qp));
}

static void by_verbs(struct end e[2])
{
	PART("a child opens the device anew and talks to its parent, and so does a child of the child");
	for (int i = 0; i < 3; i++) {
		child_and_parent(&e[0], i);
		exchange(e, 100 + i);
	}
}

static void by_address(struct end e[2])
{
	PART("a child connects to its parent by librdmacm");
	struct rdma_event_channel *channel = MADE(rdma_create_event_channel());
	struct sockaddr_in here = address_of(0, 0);
	struct rdma_cm_id *listener = listening(channel, RDMA_PS_TCP, here);
	struct sockaddr_in there = here;
	there.sin_port = rdma_get_src_port(listener);
	// A loopback address that is the device's own is one as any other.
	CHECK(listener->verbs && listener->pd);
	struct rdma_conn_param param = {.responder_resources = 4, .initiator_depth = 4, .retry_count = 7, .rnr_retry_count = 7};
	static uint8_t bytes[4096];
	struct ibv_wc wc;
	pid_t child = fork();
	CHECK(child >= 0);
	if (child == 0) {
		alarm(LIMIT_MS / 1000);
		struct rdma_cm_id *id;
		MINUS(rdma_create_id(channel, &id, NULL, RDMA_PS_TCP), EIO);
		MINUS(rdma_listen(listener, 8), EIO);
		MINUS(rdma_destroy_id(listener), EIO);
		rdma_destroy_event_channel(channel);
		struct rdma_event_channel *own = MADE(rdma_create_event_channel());
		OK(rdma_create_id(own, &id, NULL, RDMA_PS_TCP));
		MINUS(rdma_bind_addr(id, any(&there)), EADDRINUSE);
		OK(rdma_destroy_id(id));
		id = routed(own, RDMA_PS_TCP, here, there);
		give_qp(id, IBV_QPT_RC);
		struct ibv_mr *mr = MADE(rdma_reg_msgs(id, bytes, sizeof(bytes)));
		OK(rdma_connect(id, &param));
		EQ(EVENT_OF(own, id, RDMA_CM_EVENT_ESTABLISHED), 0);
		fill(bytes, 3000, 7);
		OK(rdma_post_send(id, NULL, bytes, 3000, mr, 0));
		EQ(rdma_get_send_comp(id, &wc), 1);
		EQ(wc.status, IBV_WC_SUCCESS);
		OK(rdma_disconnect(id));
		EQ(EVENT_OF(own, id, RDMA_CM_EVENT_DISCONNECTED), 0);
		OK(rdma_dereg_mr(mr));
		destroy_with_qp(id);
		rdma_destroy_event_channel(own);
		exit(0);
	}
	struct rdma_cm_event *event = EVENT(channel, RDMA_CM_EVENT_CONNECT_REQUEST);
	struct rdma_cm_id *id = event->id;
	OK(rdma_ack_cm_event(event));
	give_qp(id, IBV_QPT_RC);
	struct ibv_mr *mr = MADE(rdma_reg_msgs(id, bytes, sizeof(bytes)));
	OK(rdma_post_recv(id, NULL, bytes, sizeof(bytes), mr));
	OK(rdma_accept(id, &param));
	EQ(EVENT_OF(channel, id, RDMA_CM_EVENT_ESTABLISHED), 0);
	EQ(rdma_get_recv_comp(id, &wc), 1);
	EQ(wc.status, IBV_WC_SUCCESS);
	CHECK(same(bytes, 3000, 7));
	EQ(EVENT_OF(channel, id, RDMA_CM_EVENT_DISCONNECTED), 0);
	OK(rdma_disconnect(id));
	exits_well(child);
	OK(rdma_dereg_mr(mr));
	destroy_with_qp(id);
	OK(rdma_destroy_id(listener));
	rdma_destroy_event_channel(channel);
	exchange(e, 200);
}

static volatile int stop;

// Holds every lock of the library now and then.
static void *call_verbs(void *arg)
{
	(void)arg;
	while (!stop) {
		struct end e;
		open_end(&e, 0);
		close_end(&e);
		struct rdma_event_channel *channel = MADE(rdma_create_event_channel());
		rdma_destroy_event_channel(channel);
	}
	return NULL;
}

static void locks_at_the_fork(struct end e[2])
{
	PART("whatever threads of the parent do at the moment of the fork, the child opens the device");
	pthread_t threads[2];
	for (int i = 0; i < 2; i++)
		CHECK(pthread_create(&threads[i], NULL, call_verbs, NULL) == 0);
	for (int i = 0; i < 30; i++) {
		pid_t child = fork();
		CHECK(child >= 0);
		if (child == 0) {
			alarm(LIMIT_MS / 1000);
			struct end own;
			open_end(&own, 0);
			close_end(&own);
			int count;
			rdma_free_devices(MADE(rdma_get_devices(&count)));
			exit(0);
		}
		exits_well(child);
	}
	stop = 1;
	for (int i = 0; i < 2; i++)
		CHECK(pthread_join(threads[i], NULL) == 0);
	exchange(e, 300);
}

int main(void)
{
	struct end e[2];
	open_both(e);
	connect_new(e, IBV_QPT_RC);
	by_verbs(e);
	by_address(e);
	locks_at_the_fork(e);
	destroy_qps(e);
	close_both(e);
	return 0;
}
