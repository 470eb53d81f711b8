// Datagrams by address: which queue pair serves a port, and messages to it.

#include "cm.h"

#define GRH 40

static void serve(void)
{
	PART("a port leads to a datagram queue pair, and its Q_Key");
	struct rdma_event_channel *channel[2] = {MADE(rdma_create_event_channel()), MADE(rdma_create_event_channel())};
	struct sockaddr_in here = address_of(0, 0), there = address_of(1, 0);
	struct rdma_cm_id *listener = listening(channel[1], RDMA_PS_UDP, there);
	there.sin_port = rdma_get_src_port(listener);
	struct rdma_cm_id *id = routed(channel[0], RDMA_PS_UDP, here, there);
	give_qp(id, IBV_QPT_UD);
	EQ(state_of(id->qp), IBV_QPS_RTS);
	char hello[180], welcome[136];
	memset(hello, 'h', sizeof(hello));
	memset(welcome, 'w', sizeof(welcome));
	struct rdma_conn_param param = {.private_data = hello, .private_data_len = sizeof(hello)};
	OK(rdma_connect(id, &param));
	struct rdma_cm_event *event = EVENT(channel[1], RDMA_CM_EVENT_CONNECT_REQUEST);
	struct rdma_cm_id *passive = event->id;
	CHECK(event->listen_id == listener && passive->ps == RDMA_PS_UDP);
	EQ(event->param.ud.private_data_len, sizeof(hello));
	CHECK(!memcmp(event->param.ud.private_data, hello, sizeof(hello)));
	give_qp(passive, IBV_QPT_UD);
	struct rdma_conn_param answer = {.private_data = welcome, .private_data_len = sizeof(welcome)};
	answer.qp_num = passive->qp->qp_num;
	OK(rdma_accept(passive, &answer));
	OK(rdma_ack_cm_event(event));
	event = EVENT(channel[0], RDMA_CM_EVENT_ESTABLISHED);
	EQ(event->status, 0);
	EQ(event->param.ud.qp_num, passive->qp->qp_num);
	EQ(event->param.ud.qkey, RDMA_UDP_QKEY);
	EQ(event->param.ud.private_data_len, sizeof(welcome));
	CHECK(!memcmp(event->param.ud.private_data, welcome, sizeof(welcome)));

	PART("a datagram goes there");
	static uint8_t out[1000], in[2048];
	struct ibv_mr *sent = MADE(rdma_reg_msgs(id, out, sizeof(out))), *got = MADE(rdma_reg_msgs(passive, in, sizeof(in)));
	struct ibv_ah *ah = MADE(ibv_create_ah(id->pd, &event->param.ud.ah_attr));
	fill(out, sizeof(out), 3);
	OK(rdma_post_recv(passive, NULL, in, sizeof(in), got));
	OK(rdma_post_ud_send(id, NULL, out, sizeof(out), sent, 0, ah, event->param.ud.qp_num));
	struct ibv_wc wc;
	EQ(rdma_get_send_comp(id, &wc), 1);
	EQ(wc.status, IBV_WC_SUCCESS);
	EQ(rdma_get_recv_comp(passive, &wc), 1);
	EQ(wc.byte_len, sizeof(out) + GRH);
	CHECK(same(in + GRH, sizeof(out), 3));
	EQ(wc.src_qp, id->qp->qp_num);
	OK(rdma_ack_cm_event(event));
	OK(ibv_destroy_ah(ah));
	OK(rdma_dereg_mr(sent));
	OK(rdma_dereg_mr(got));
	destroy_with_qp(passive);
	destroy_with_qp(id);

	PART("who is refused, or asks where nobody serves, is told so");
	id = routed(channel[0], RDMA_PS_UDP, here, there);
	OK(rdma_connect(id, &param));
	event = EVENT(channel[1], RDMA_CM_EVENT_CONNECT_REQUEST);
	passive = event->id;
	OK(rdma_ack_cm_event(event));
	OK(rdma_reject(passive, NULL, 0));
	OK(rdma_destroy_id(passive));
	EQ(EVENT_OF(channel[0], id, RDMA_CM_EVENT_UNREACHABLE), 2);
	OK(rdma_destroy_id(id));
	OK(rdma_destroy_id(listener));
	id = routed(channel[0], RDMA_PS_UDP, here, there);
	OK(rdma_connect(id, &param));
	EQ(EVENT_OF(channel[0], id, RDMA_CM_EVENT_UNREACHABLE), 1);
	OK(rdma_destroy_id(id));
	for (int i = 0; i < 2; i++)
		rdma_destroy_event_channel(channel[i]);
}

int main(void)
{
	serve();
	return 0;
}
