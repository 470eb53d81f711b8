// What the tests of librdmacm share: the addresses of both ends, events that must come, ids that get as far as a test wants.

#ifndef SOFTNIC_TESTS_CM_H
#define SOFTNIC_TESTS_CM_H

#include <fcntl.h>
#include <poll.h>

#include <rdma/rdma_cma.h>
#include <rdma/rdma_verbs.h>

#include "common.h"

// A function that returns -1 and says why in errno.
#define MINUS(call, why)                                                                                                         \
	do {                                                                                                                     \
		errno = 0;                                                                                                       \
		if ((call) != -1)                                                                                                \
			FAIL("%s is not refused", #call);                                                                        \
		if (errno != (why))                                                                                              \
			FAIL("%s is refused with %d (%s), not %s", #call, errno, strerror(errno), #why);                         \
	} while (0)

// The IPv4 address of a device, with a port.
static UNUSED struct sockaddr_in address_of(int which, int port)
{
	static const uint8_t mapped[12] = {[10] = 0xff, [11] = 0xff};
	int count = 0;
	struct ibv_context **list = MADE(rdma_get_devices(&count));
	struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons(port)};
	union ibv_gid gid;
	CHECK(count > 0);
	for (int i = 0;; i++) {
		CHECK(ibv_query_gid(list[which < count ? which : count - 1], 1, i, &gid) == 0);
		if (!memcmp(gid.raw, mapped, sizeof(mapped)))
			break;
	}
	memcpy(&address.sin_addr, gid.raw + 12, 4);
	rdma_free_devices(list);
	return address;
}

static UNUSED struct sockaddr *any(struct sockaddr_in *address)
{
	return (struct sockaddr *)address;
}

// The next event, which must be this one; it is not acknowledged.
#define EVENT(channel, kind) next_event(channel, kind, __FILE__, __LINE__)

static UNUSED struct rdma_cm_event *next_event(struct rdma_event_channel *channel, enum rdma_cm_event_type kind, const char *file,
					       int line)
{
	struct pollfd fd = {.fd = channel->fd, .events = POLLIN};
	struct rdma_cm_event *event = NULL;
	if (poll(&fd, 1, LIMIT_MS) != 1 || rdma_get_cm_event(channel, &event)) {
		fprintf(stderr, "%s:%d: no event comes, %s was to\n", file, line, rdma_event_str(kind));
		_exit(1);
	}
	if (event->event != kind) {
		fprintf(stderr, "%s:%d: %s comes (status %d), not %s\n", file, line, rdma_event_str(event->event), event->status,
			rdma_event_str(kind));
		_exit(1);
	}
	return event;
}

// The same, acknowledged; its status.
#define EVENT_OF(channel, id_, kind)                                                                                             \
	({                                                                                                                       \
		struct rdma_cm_event *event_ = EVENT(channel, kind);                                                             \
		CHECK(event_->id == (id_));                                                                                      \
		int status_ = event_->status;                                                                                    \
		OK(rdma_ack_cm_event(event_));                                                                                   \
		status_;                                                                                                         \
	})

// An id whose route to an address is known.
static UNUSED struct rdma_cm_id *routed(struct rdma_event_channel *channel, enum rdma_port_space ps, struct sockaddr_in from,
					struct sockaddr_in to)
{
	struct rdma_cm_id *id;
	OK(rdma_create_id(channel, &id, NULL, ps));
	OK(rdma_resolve_addr(id, any(&from), any(&to), 2000));
	EQ(EVENT_OF(channel, id, RDMA_CM_EVENT_ADDR_RESOLVED), 0);
	OK(rdma_resolve_route(id, 2000));
	EQ(EVENT_OF(channel, id, RDMA_CM_EVENT_ROUTE_RESOLVED), 0);
	return id;
}

static UNUSED struct rdma_cm_id *listening(struct rdma_event_channel *channel, enum rdma_port_space ps, struct sockaddr_in at)
{
	struct rdma_cm_id *id;
	OK(rdma_create_id(channel, &id, NULL, ps));
	OK(rdma_bind_addr(id, any(&at)));
	OK(rdma_listen(id, 8));
	return id;
}

// A queue pair with everything left to the library.
static UNUSED void give_qp(struct rdma_cm_id *id, enum ibv_qp_type type)
{
	struct ibv_qp_init_attr init = {
		.qp_type = type,
		.sq_sig_all = 1,
		.cap = {.max_send_wr = 16, .max_recv_wr = 16, .max_send_sge = 1, .max_recv_sge = 1},
	};
	OK(rdma_create_qp(id, NULL, &init));
	CHECK(id->qp && id->pd && id->send_cq && id->recv_cq && id->send_cq_channel && id->recv_cq_channel);
}

static UNUSED void destroy_with_qp(struct rdma_cm_id *id)
{
	rdma_destroy_qp(id);
	CHECK(!id->qp && !id->send_cq && !id->recv_cq);
	OK(rdma_destroy_id(id));
}

// Two ids that are connected.
struct connected {
	struct rdma_event_channel *channel[2];
	struct rdma_cm_id *listener, *id[2];
};

static UNUSED struct connected make_connection(void)
{
	struct connected c;
	struct sockaddr_in here = address_of(0, 0), there = address_of(1, 0);
	for (int i = 0; i < 2; i++)
		c.channel[i] = MADE(rdma_create_event_channel());
	c.listener = listening(c.channel[1], RDMA_PS_TCP, there);
	there.sin_port = rdma_get_src_port(c.listener);
	CHECK(there.sin_port != 0);
	c.id[0] = routed(c.channel[0], RDMA_PS_TCP, here, there);
	give_qp(c.id[0], IBV_QPT_RC);
	struct rdma_conn_param param = {.responder_resources = 4, .initiator_depth = 4, .retry_count = 7, .rnr_retry_count = 7};
	OK(rdma_connect(c.id[0], &param));
	struct rdma_cm_event *event = EVENT(c.channel[1], RDMA_CM_EVENT_CONNECT_REQUEST);
	c.id[1] = event->id;
	OK(rdma_ack_cm_event(event));
	give_qp(c.id[1], IBV_QPT_RC);
	OK(rdma_accept(c.id[1], &param));
	EQ(EVENT_OF(c.channel[0], c.id[0], RDMA_CM_EVENT_ESTABLISHED), 0);
	EQ(EVENT_OF(c.channel[1], c.id[1], RDMA_CM_EVENT_ESTABLISHED), 0);
	return c;
}

static UNUSED void end_connection(struct connected *c)
{
	destroy_with_qp(c->id[0]);
	destroy_with_qp(c->id[1]);
	OK(rdma_destroy_id(c->listener));
	for (int i = 0; i < 2; i++)
		rdma_destroy_event_channel(c->channel[i]);
}

// A message from one id to the other.
static UNUSED void exchange_ids(struct rdma_cm_id *from, struct rdma_cm_id *to, unsigned seed)
{
	static uint8_t out[3000], in[4096];
	struct ibv_mr *sent = MADE(rdma_reg_msgs(from, out, sizeof(out))), *got = MADE(rdma_reg_msgs(to, in, sizeof(in)));
	struct ibv_wc wc;
	fill(out, sizeof(out), seed);
	OK(rdma_post_recv(to, NULL, in, sizeof(in), got));
	OK(rdma_post_send(from, NULL, out, sizeof(out), sent, 0));
	EQ(rdma_get_send_comp(from, &wc), 1);
	EQ(wc.status, IBV_WC_SUCCESS);
	EQ(rdma_get_recv_comp(to, &wc), 1);
	EQ(wc.status, IBV_WC_SUCCESS);
	EQ(wc.byte_len, sizeof(out));
	CHECK(same(in, sizeof(out), seed));
	OK(rdma_dereg_mr(sent));
	OK(rdma_dereg_mr(got));
}

#endif
