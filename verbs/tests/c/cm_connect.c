// Connections by address: private data both ways, data, refusals, ends, and connections without a queue pair of the id's.
// seconds: 60

#include "cm.h"

static void talk(void)
{
	PART("a connection carries data both ways");
	struct connected c = make_connection();
	CHECK(c.id[0]->verbs && c.id[0]->port_num == 1 && c.id[0]->route.num_paths == 1 && c.id[0]->route.path_rec);
	struct sockaddr_in *peer = (struct sockaddr_in *)rdma_get_peer_addr(c.id[1]);
	struct sockaddr_in *own = (struct sockaddr_in *)rdma_get_local_addr(c.id[0]);
	EQ(peer->sin_addr.s_addr, own->sin_addr.s_addr);
	EQ(peer->sin_port, rdma_get_src_port(c.id[0]));
	EQ(rdma_get_dst_port(c.id[1]), rdma_get_src_port(c.id[0]));
	EQ(rdma_get_src_port(c.id[1]), rdma_get_src_port(c.listener));
	exchange_ids(c.id[0], c.id[1], 1);
	exchange_ids(c.id[1], c.id[0], 2);

	PART("one side ends it, the other agrees, and the numbers rest");
	OK(rdma_disconnect(c.id[0]));
	EQ(state_of(c.id[0]->qp), IBV_QPS_ERR);
	EQ(EVENT_OF(c.channel[1], c.id[1], RDMA_CM_EVENT_DISCONNECTED), 0);
	OK(rdma_disconnect(c.id[1]));
	EQ(EVENT_OF(c.channel[0], c.id[0], RDMA_CM_EVENT_DISCONNECTED), 0);
	for (int i = 0; i < 2; i++)
		EQ(EVENT_OF(c.channel[i], c.id[i], RDMA_CM_EVENT_TIMEWAIT_EXIT), 0);
	end_connection(&c);
}

static void private_data(void)
{
	PART("private data and parameters go both ways");
	struct rdma_event_channel *channel[2] = {MADE(rdma_create_event_channel()), MADE(rdma_create_event_channel())};
	struct sockaddr_in here = address_of(0, 0), there = address_of(1, 0), everywhere = {.sin_family = AF_INET};
	struct rdma_cm_id *listener = listening(channel[1], RDMA_PS_TCP, everywhere);
	CHECK(!listener->verbs);
	there.sin_port = rdma_get_src_port(listener);
	struct rdma_cm_id *id = routed(channel[0], RDMA_PS_TCP, here, there);
	give_qp(id, IBV_QPT_RC);
	char hello[56], welcome[196];
	memset(hello, 'h', sizeof(hello));
	memset(welcome, 'w', sizeof(welcome));
	struct rdma_conn_param param = {
		.private_data = hello, .private_data_len = sizeof(hello), .responder_resources = 3, .initiator_depth = 5,
		.flow_control = 1, .retry_count = 6, .rnr_retry_count = 4,
	};
	OK(rdma_connect(id, &param));
	struct rdma_cm_event *event = EVENT(channel[1], RDMA_CM_EVENT_CONNECT_REQUEST);
	struct rdma_cm_id *passive = event->id;
	CHECK(event->listen_id == listener && passive->verbs && passive->channel == channel[1]);
	EQ(event->param.conn.private_data_len, sizeof(hello));
	CHECK(!memcmp(event->param.conn.private_data, hello, sizeof(hello)));
	EQ(event->param.conn.responder_resources, 5);
	EQ(event->param.conn.initiator_depth, 3);
	EQ(event->param.conn.retry_count, 6);
	EQ(event->param.conn.rnr_retry_count, 4);
	EQ(event->param.conn.qp_num, id->qp->qp_num);
	give_qp(passive, IBV_QPT_RC);
	struct rdma_conn_param answer = {
		.private_data = welcome, .private_data_len = sizeof(welcome), .responder_resources = RDMA_MAX_RESP_RES,
		.initiator_depth = RDMA_MAX_INIT_DEPTH, .rnr_retry_count = 2,
	};
	OK(rdma_accept(passive, &answer));
	OK(rdma_ack_cm_event(event));
	event = EVENT(channel[0], RDMA_CM_EVENT_ESTABLISHED);
	EQ(event->param.conn.private_data_len, sizeof(welcome));
	CHECK(!memcmp(event->param.conn.private_data, welcome, sizeof(welcome)));
	EQ(event->param.conn.responder_resources, 3);
	EQ(event->param.conn.initiator_depth, 5);
	EQ(event->param.conn.qp_num, passive->qp->qp_num);
	OK(rdma_ack_cm_event(event));
	struct ibv_qp_attr attr;
	struct ibv_qp_init_attr init;
	OK(ibv_query_qp(id->qp, &attr, IBV_QP_STATE, &init));
	EQ(attr.qp_state, IBV_QPS_RTS);
	EQ(attr.max_rd_atomic, 5);
	EQ(attr.max_dest_rd_atomic, 3);
	EQ(attr.rnr_retry, 2);
	EQ(attr.dest_qp_num, passive->qp->qp_num);
	OK(ibv_query_qp(passive->qp, &attr, IBV_QP_STATE, &init));
	EQ(attr.retry_cnt, 6);
	EQ(attr.rnr_retry, 4);
	EQ(attr.max_rd_atomic, 3);
	EQ(attr.max_dest_rd_atomic, 5);

	PART("who destroys its id ends the connection");
	destroy_with_qp(passive);
	EQ(EVENT_OF(channel[0], id, RDMA_CM_EVENT_DISCONNECTED), 0);

	PART("a refusal has its reason, and private data");
	struct rdma_cm_id *other = routed(channel[0], RDMA_PS_TCP, here, there);
	give_qp(other, IBV_QPT_RC);
	OK(rdma_connect(other, &param));
	event = EVENT(channel[1], RDMA_CM_EVENT_CONNECT_REQUEST);
	passive = event->id;
	OK(rdma_reject(passive, welcome, 148));
	OK(rdma_ack_cm_event(event));
	OK(rdma_destroy_id(passive));
	event = EVENT(channel[0], RDMA_CM_EVENT_REJECTED);
	CHECK(event->id == other);
	EQ(event->status, 28);
	EQ(event->param.conn.private_data_len, 148);
	CHECK(!memcmp(event->param.conn.private_data, welcome, 148));
	OK(rdma_ack_cm_event(event));

	destroy_with_qp(other);
	destroy_with_qp(id);
	OK(rdma_destroy_id(listener));
	for (int i = 0; i < 2; i++)
		rdma_destroy_event_channel(channel[i]);
}

// Moves a queue pair of the program's own on.
static void move(struct rdma_cm_id *id, struct ibv_qp *qp)
{
	for (int state = IBV_QPS_INIT; state <= IBV_QPS_RTS; state++) {
		struct ibv_qp_attr attr = {.qp_state = state};
		int mask;
		OK(rdma_init_qp_attr(id, &attr, &mask));
		OK(ibv_modify_qp(qp, &attr, mask));
	}
}

static void own_queue_pairs(void)
{
	PART("with queue pairs of its own the program makes them ready, and says so");
	struct rdma_event_channel *channel[2] = {MADE(rdma_create_event_channel()), MADE(rdma_create_event_channel())};
	struct sockaddr_in here = address_of(0, 0), there = address_of(1, 0);
	struct rdma_cm_id *listener = listening(channel[1], RDMA_PS_TCP, there);
	there.sin_port = rdma_get_src_port(listener);
	struct rdma_cm_id *id = routed(channel[0], RDMA_PS_TCP, here, there);
	struct end e[2];
	open_both(e);
	for (int i = 0; i < 2; i++)
		e[i].qp = make_qp(&e[i], IBV_QPT_RC);
	struct rdma_conn_param param = {.responder_resources = 1, .initiator_depth = 1, .retry_count = 7, .rnr_retry_count = 7};
	param.qp_num = e[0].qp->qp_num;
	OK(rdma_connect(id, &param));
	struct rdma_cm_event *event = EVENT(channel[1], RDMA_CM_EVENT_CONNECT_REQUEST);
	struct rdma_cm_id *passive = event->id;
	OK(rdma_ack_cm_event(event));
	move(passive, e[1].qp);
	param.qp_num = e[1].qp->qp_num;
	OK(rdma_accept(passive, &param));
	EQ(EVENT_OF(channel[0], id, RDMA_CM_EVENT_CONNECT_RESPONSE), 0);
	move(id, e[0].qp);
	OK(rdma_establish(id));
	EQ(EVENT_OF(channel[1], passive, RDMA_CM_EVENT_ESTABLISHED), 0);
	exchange(e, 7);
	destroy_qps(e);
	OK(rdma_destroy_id(id));
	OK(rdma_destroy_id(passive));
	OK(rdma_destroy_id(listener));
	close_both(e);
	for (int i = 0; i < 2; i++)
		rdma_destroy_event_channel(channel[i]);
}

static void many(void)
{
	PART("a hundred connections, one after the other");
	for (unsigned i = 0; i < 100; i++) {
		struct connected c = make_connection();
		exchange_ids(c.id[i % 2], c.id[1 - i % 2], i);
		end_connection(&c);
	}
}

int main(void)
{
	talk();
	private_data();
	own_queue_pairs();
	many();
	return 0;
}
