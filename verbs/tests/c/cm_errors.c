// Mistakes: wrong states, wrong addresses, nobody there.
// seconds: 60

#include "cm.h"

static struct rdma_event_channel *channel;

static void states(void)
{
	PART("what does not fit the state is refused");
	struct sockaddr_in here = address_of(0, 0), there = address_of(1, 7001);
	struct rdma_cm_id *id, *other;
	struct rdma_conn_param param = {.retry_count = 7};
	OK(rdma_create_id(channel, &id, NULL, RDMA_PS_TCP));
	MINUS(rdma_resolve_route(id, 2000), EINVAL);
	MINUS(rdma_connect(id, &param), EINVAL);
	MINUS(rdma_accept(id, &param), EINVAL);
	MINUS(rdma_reject(id, NULL, 0), EINVAL);
	MINUS(rdma_disconnect(id), EINVAL);
	MINUS(rdma_establish(id), EINVAL);
	struct ibv_qp_init_attr init = {.qp_type = IBV_QPT_RC, .cap = {.max_send_wr = 1, .max_recv_wr = 1}};
	MINUS(rdma_create_qp(id, NULL, &init), EINVAL);
	MINUS(rdma_get_request(id, &other), EINVAL);
	OK(rdma_bind_addr(id, any(&here)));
	MINUS(rdma_bind_addr(id, any(&here)), EINVAL);
	OK(rdma_resolve_addr(id, NULL, any(&there), 2000));
	EQ(EVENT_OF(channel, id, RDMA_CM_EVENT_ADDR_RESOLVED), 0);
	MINUS(rdma_resolve_addr(id, NULL, any(&there), 2000), EINVAL);
	MINUS(rdma_listen(id, 1), EINVAL);
	MINUS(rdma_connect(id, &param), EINVAL);
	OK(rdma_resolve_route(id, 2000));
	EQ(EVENT_OF(channel, id, RDMA_CM_EVENT_ROUTE_RESOLVED), 0);
	char much[200] = {0};
	param.private_data = much;
	param.private_data_len = 57;
	give_qp(id, IBV_QPT_RC);
	MINUS(rdma_connect(id, &param), EINVAL);
	param.private_data_len = 0;
	param.initiator_depth = 17;
	MINUS(rdma_connect(id, &param), EINVAL);
	destroy_with_qp(id);
}

static void addresses(void)
{
	PART("addresses and ports that cannot be had");
	struct sockaddr_in here = address_of(0, 0), nobody = {.sin_family = AF_INET};
	struct sockaddr_storage odd = {.ss_family = AF_UNIX};
	struct rdma_cm_id *id, *other;
	CHECK(inet_pton(AF_INET, "192.0.2.77", &nobody.sin_addr) == 1);
	MINUS(rdma_create_id(channel, &id, NULL, 0x999), EPROTONOSUPPORT);
	OK(rdma_create_id(channel, &id, NULL, RDMA_PS_TCP));
	MINUS(rdma_bind_addr(id, any(&nobody)), EADDRNOTAVAIL);
	MINUS(rdma_bind_addr(id, (struct sockaddr *)&odd), EAFNOSUPPORT);
	OK(rdma_bind_addr(id, any(&here)));
	OK(rdma_listen(id, 1));
	here.sin_port = rdma_get_src_port(id);
	CHECK(here.sin_port != 0);
	OK(rdma_create_id(channel, &other, NULL, RDMA_PS_TCP));
	MINUS(rdma_bind_addr(other, any(&here)), EADDRINUSE);
	OK(rdma_destroy_id(id));
	OK(rdma_bind_addr(other, any(&here)));
	EQ(rdma_get_src_port(other), here.sin_port);
	OK(rdma_destroy_id(other));
	EQ(rdma_getaddrinfo("no number", "7000", &(struct rdma_addrinfo){.ai_flags = RAI_NUMERICHOST}, &(struct rdma_addrinfo *){0}) != 0,
	   1);
}

static void options(void)
{
	PART("options");
	struct rdma_cm_id *id;
	uint8_t tos = 32, timeout = 18, too_long = 40;
	int yes = 1;
	OK(rdma_create_id(channel, &id, NULL, RDMA_PS_TCP));
	OK(rdma_set_option(id, RDMA_OPTION_ID, RDMA_OPTION_ID_TOS, &tos, sizeof(tos)));
	OK(rdma_set_option(id, RDMA_OPTION_ID, RDMA_OPTION_ID_REUSEADDR, &yes, sizeof(yes)));
	OK(rdma_set_option(id, RDMA_OPTION_ID, RDMA_OPTION_ID_AFONLY, &yes, sizeof(yes)));
	OK(rdma_set_option(id, RDMA_OPTION_ID, RDMA_OPTION_ID_ACK_TIMEOUT, &timeout, sizeof(timeout)));
	MINUS(rdma_set_option(id, RDMA_OPTION_ID, RDMA_OPTION_ID_ACK_TIMEOUT, &too_long, 1), EINVAL);
	MINUS(rdma_set_option(id, RDMA_OPTION_ID, RDMA_OPTION_ID_TOS, &yes, sizeof(yes)), EINVAL);
	MINUS(rdma_set_option(id, RDMA_OPTION_ID, 99, &tos, sizeof(tos)), ENOSYS);
	OK(rdma_destroy_id(id));
}

static void nobody(void)
{
	PART("nobody listens: REJECTED, with the reason");
	struct sockaddr_in here = address_of(0, 0), there = address_of(1, 7002);
	struct rdma_cm_id *id = routed(channel, RDMA_PS_TCP, here, there);
	give_qp(id, IBV_QPT_RC);
	OK(rdma_connect(id, NULL));
	EQ(EVENT_OF(channel, id, RDMA_CM_EVENT_REJECTED), 8);
	EQ(state_of(id->qp), IBV_QPS_ERR);
	destroy_with_qp(id);

	PART("nobody is there: ADDR_ERROR, and the id can be used again");
	struct sockaddr_in gone = there;
	gone.sin_addr.s_addr = htonl(ntohl(there.sin_addr.s_addr) ^ 0x70);
	OK(rdma_create_id(channel, &id, NULL, RDMA_PS_TCP));
	OK(rdma_resolve_addr(id, any(&here), any(&gone), 1000));
	CHECK(EVENT_OF(channel, id, RDMA_CM_EVENT_ADDR_ERROR) < 0);
	OK(rdma_resolve_addr(id, any(&here), any(&there), 1000));
	EQ(EVENT_OF(channel, id, RDMA_CM_EVENT_ADDR_RESOLVED), 0);
	OK(rdma_destroy_id(id));
}

int main(void)
{
	channel = MADE(rdma_create_event_channel());
	states();
	addresses();
	options();
	nobody();
	rdma_destroy_event_channel(channel);
	return 0;
}
