// Multicast groups by address.

#include "cm.h"

#define GRH 40

int main(void)
{
	struct rdma_event_channel *channel = MADE(rdma_create_event_channel());
	struct sockaddr_in group = {.sin_family = AF_INET}, own[2] = {address_of(0, 0), address_of(1, 0)};
	CHECK(inet_pton(AF_INET, "239.1.2.3", &group.sin_addr) == 1);
	struct rdma_cm_id *id[2];
	struct ibv_ah *ah = NULL;
	static int mine;

	PART("who joins hears of it: a way to the group, and its Q_Key");
	for (int i = 0; i < 2; i++) {
		OK(rdma_create_id(channel, &id[i], NULL, RDMA_PS_UDP));
		OK(rdma_bind_addr(id[i], any(&own[i])));
		OK(rdma_resolve_addr(id[i], any(&own[i]), any(&group), 2000));
		EQ(EVENT_OF(channel, id[i], RDMA_CM_EVENT_ADDR_RESOLVED), 0);
		give_qp(id[i], IBV_QPT_UD);
		OK(rdma_join_multicast(id[i], any(&group), &mine));
		struct rdma_cm_event *event = EVENT(channel, RDMA_CM_EVENT_MULTICAST_JOIN);
		EQ(event->status, 0);
		CHECK(event->id == id[i] && event->param.ud.private_data == &mine);
		EQ(event->param.ud.qp_num, 0xffffff);
		EQ(event->param.ud.qkey, RDMA_UDP_QKEY);
		CHECK(!memcmp(event->param.ud.ah_attr.grh.dgid.raw + 12, &group.sin_addr, 4));
		if (i == 0)
			ah = MADE(ibv_create_ah(id[0]->pd, &event->param.ud.ah_attr));
		OK(rdma_ack_cm_event(event));
	}
	MINUS(rdma_join_multicast(id[0], any(&group), NULL), EADDRINUSE);
	MINUS(rdma_join_multicast(id[0], any(&own[1]), NULL), EINVAL);

	PART("what is sent to the group comes to its members");
	static uint8_t out[100], in[2048];
	struct ibv_mr *sent = MADE(rdma_reg_msgs(id[0], out, sizeof(out))), *got = MADE(rdma_reg_msgs(id[1], in, sizeof(in)));
	struct ibv_wc wc;
	fill(out, sizeof(out), 9);
	OK(rdma_post_recv(id[1], NULL, in, sizeof(in), got));
	OK(rdma_post_ud_send(id[0], NULL, out, sizeof(out), sent, 0, ah, 0xffffff));
	EQ(rdma_get_send_comp(id[0], &wc), 1);
	EQ(wc.status, IBV_WC_SUCCESS);
	EQ(rdma_get_recv_comp(id[1], &wc), 1);
	EQ(wc.byte_len, sizeof(out) + GRH);
	CHECK(same(in + GRH, sizeof(out), 9));

	PART("who left hears nothing");
	OK(rdma_leave_multicast(id[1], any(&group)));
	MINUS(rdma_leave_multicast(id[1], any(&group)), EADDRNOTAVAIL);
	OK(rdma_post_recv(id[1], NULL, in, sizeof(in), got));
	OK(rdma_post_ud_send(id[0], NULL, out, sizeof(out), sent, 0, ah, 0xffffff));
	EQ(rdma_get_send_comp(id[0], &wc), 1);
	NOTHING(id[1]->recv_cq, 30);

	PART("a queue pair of a member can go");
	OK(ibv_destroy_ah(ah));
	OK(rdma_dereg_mr(sent));
	OK(rdma_dereg_mr(got));
	for (int i = 0; i < 2; i++)
		destroy_with_qp(id[i]);
	rdma_destroy_event_channel(channel);
	return 0;
}
