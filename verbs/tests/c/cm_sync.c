// Ids without a channel wait for what they ask for; endpoints are such ids, made from names.

#include "cm.h"

static char node[2][INET_ADDRSTRLEN], port[8];

static void *server(void *listener)
{
	struct rdma_cm_id *id;
	OK(rdma_get_request(listener, &id));
	CHECK(id->qp && id->event && id->event->event == RDMA_CM_EVENT_CONNECT_REQUEST);
	EQ(id->event->param.conn.private_data_len, 56);
	CHECK(!memcmp(id->event->param.conn.private_data, "hello", 5));
	static uint8_t got[64];
	struct ibv_mr *mr = MADE(rdma_reg_msgs(id, got, sizeof(got)));
	OK(rdma_post_recv(id, NULL, got, sizeof(got), mr));
	OK(rdma_accept(id, NULL));
	EQ(id->event->event, RDMA_CM_EVENT_ESTABLISHED);
	struct ibv_wc wc;
	EQ(rdma_get_recv_comp(id, &wc), 1);
	EQ(wc.status, IBV_WC_SUCCESS);
	CHECK(!memcmp(got, "message", 7));
	OK(rdma_disconnect(id));
	OK(rdma_dereg_mr(mr));
	rdma_destroy_ep(id);
	return NULL;
}

static struct ibv_qp_init_attr qp_init(void)
{
	struct ibv_qp_init_attr init = {
		.cap = {.max_send_wr = 4, .max_recv_wr = 4, .max_send_sge = 1, .max_recv_sge = 1, .max_inline_data = 16},
		.sq_sig_all = 1,
	};
	return init;
}

static void endpoints(void)
{
	PART("endpoints from names");
	struct rdma_addrinfo hints = {.ai_port_space = RDMA_PS_TCP, .ai_flags = RAI_PASSIVE | RAI_NUMERICHOST}, *found;
	OK(rdma_getaddrinfo(node[1], "0", &hints, &found));
	CHECK(found->ai_src_len == sizeof(struct sockaddr_in) && !found->ai_dst_len && found->ai_qp_type == IBV_QPT_RC);
	struct ibv_qp_init_attr init = qp_init();
	struct rdma_cm_id *listener, *id;
	OK(rdma_create_ep(&listener, found, NULL, &init));
	rdma_freeaddrinfo(found);
	OK(rdma_listen(listener, 0));
	snprintf(port, sizeof(port), "%d", ntohs(rdma_get_src_port(listener)));
	pthread_t thread;
	OK(pthread_create(&thread, NULL, server, listener));

	struct sockaddr_in here = address_of(0, 0);
	struct rdma_addrinfo ask = {.ai_port_space = RDMA_PS_TCP, .ai_src_addr = any(&here), .ai_src_len = sizeof(here)};
	OK(rdma_getaddrinfo(node[1], port, &ask, &found));
	CHECK(found->ai_dst_len == sizeof(struct sockaddr_in) && found->ai_src_len == sizeof(struct sockaddr_in));
	init = qp_init();
	OK(rdma_create_ep(&id, found, NULL, &init));
	rdma_freeaddrinfo(found);
	CHECK(id->qp && id->verbs && id->route.num_paths == 1);
	struct rdma_conn_param param = {.private_data = "hello", .private_data_len = 5, .rnr_retry_count = 7, .retry_count = 7};
	OK(rdma_connect(id, &param));
	EQ(id->event->event, RDMA_CM_EVENT_ESTABLISHED);
	OK(rdma_post_send(id, NULL, "message", 8, NULL, IBV_SEND_INLINE));
	struct ibv_wc wc;
	EQ(rdma_get_send_comp(id, &wc), 1);
	EQ(wc.status, IBV_WC_SUCCESS);
	OK(rdma_disconnect(id));
	OK(pthread_join(thread, NULL));
	rdma_destroy_ep(id);

	PART("a refusal is ECONNREFUSED");
	struct rdma_cm_id *other;
	OK(rdma_getaddrinfo(node[1], "1", &ask, &found));
	init = qp_init();
	OK(rdma_create_ep(&other, found, NULL, &init));
	rdma_freeaddrinfo(found);
	MINUS(rdma_connect(other, NULL), ECONNREFUSED);
	EQ(other->event->event, RDMA_CM_EVENT_REJECTED);
	rdma_destroy_ep(other);
	rdma_destroy_ep(listener);
}

static void shared_receives(void)
{
	PART("a shared receive queue of the id's");
	struct rdma_cm_id *id;
	struct sockaddr_in here = address_of(0, 0);
	OK(rdma_create_id(NULL, &id, NULL, RDMA_PS_TCP));
	OK(rdma_bind_addr(id, any(&here)));
	struct ibv_srq_init_attr init = {.attr = {.max_wr = 4, .max_sge = 1}};
	OK(rdma_create_srq(id, NULL, &init));
	CHECK(id->srq && id->pd);
	struct ibv_qp_init_attr qp = qp_init();
	qp.qp_type = IBV_QPT_RC;
	OK(rdma_create_qp(id, NULL, &qp));
	CHECK(id->qp->srq == id->srq);
	rdma_destroy_ep(id);
}

int main(void)
{
	for (int i = 0; i < 2; i++) {
		struct sockaddr_in a = address_of(i, 0);
		CHECK(inet_ntop(AF_INET, &a.sin_addr, node[i], sizeof(node[i])));
	}
	endpoints();
	shared_receives();
	return 0;
}
