// check: datagram-receive-too-short
// A mistake, planted: receives for datagrams are as long as the data, without the 40 bytes before them. With an argument they have these.

#include "common.h"

int main(int argc, char **argv UNUSED)
{
	uint32_t header = argc > 1 ? 40 : 0;
	struct end e;
	open_end(&e, 0);
	e.qp = make_qp(&e, IBV_QPT_UD);
	struct ibv_qp_attr attr = {.qp_state = IBV_QPS_INIT, .port_num = 1, .qkey = QKEY};
	OK(ibv_modify_qp(e.qp, &attr, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_QKEY));
	for (int i = 0; i < 4; i++)
		OK(post_recv(e.qp, i, at(&e, 1024 * i, 16 + header)));
	OK(ibv_destroy_qp(e.qp));
	close_end(&e);
	return 0;
}
