// Immediate data: with SEND and with WRITE, as it was given, in network byte order; and SEND that would invalidate what is none.

#include "common.h"

static void send_imm(struct end e[2])
{
	PART("SEND with immediate data");
	for (uint32_t i = 0; i < 3; i++) {
		static const uint32_t values[] = {0, 0x01020304, 0xffffffff};
		fill(e[0].memory, 3000, i);
		OK(post_recv(e[1].qp, i, at(&e[1], 0, 4096)));
		struct ibv_sge sge = at(&e[0], 0, 3000);
		struct ibv_send_wr wr = work(IBV_WR_SEND_WITH_IMM, 10 + i, &sge);
		wr.imm_data = htonl(values[i]);
		OK(post(e[0].qp, &wr));
		EQ(DONE(e[0].cq, 10 + i, IBV_WC_SUCCESS).opcode, IBV_WC_SEND);
		struct ibv_wc wc = DONE(e[1].cq, i, IBV_WC_SUCCESS);
		EQ(wc.opcode, IBV_WC_RECV);
		CHECK(wc.wc_flags & IBV_WC_WITH_IMM);
		EQ(ntohl(wc.imm_data), values[i]);
		EQ(wc.byte_len, 3000);
		CHECK(same(e[1].memory, 3000, i));
	}
}

static void write_imm(struct end e[2])
{
	PART("WRITE with immediate data: the receive says how long it was, and its own memory stays as it is");
	static const uint32_t lengths[] = {0, 1, 1024, 5000};
	for (int i = 0; i < 4; i++) {
		uint32_t length = lengths[i];
		fill(e[0].memory, length, 20 + i);
		memset(e[1].memory, 0xee, 64);
		OK(post_recv(e[1].qp, i, at(&e[1], 0, 64)));
		struct ibv_sge sge = at(&e[0], 0, length);
		struct ibv_send_wr wr = work(IBV_WR_RDMA_WRITE_WITH_IMM, 10 + i, &sge);
		wr.imm_data = htonl(0xdead0000 + i);
		wr.wr.rdma.remote_addr = address(&e[1], 8192);
		wr.wr.rdma.rkey = e[1].mr->rkey;
		OK(post(e[0].qp, &wr));
		EQ(DONE(e[0].cq, 10 + i, IBV_WC_SUCCESS).opcode, IBV_WC_RDMA_WRITE);
		struct ibv_wc wc = DONE(e[1].cq, i, IBV_WC_SUCCESS);
		EQ(wc.opcode, IBV_WC_RECV_RDMA_WITH_IMM);
		CHECK(wc.wc_flags & IBV_WC_WITH_IMM);
		EQ(ntohl(wc.imm_data), 0xdead0000 + i);
		EQ(wc.byte_len, length);
		CHECK(same(e[1].memory + 8192, length, 20 + i));
		for (int j = 0; j < 64; j++)
			EQ(e[1].memory[j], 0xee);
	}
	PART("without a receive it waits for one");
	struct ibv_sge sge = at(&e[0], 0, 8);
	struct ibv_send_wr wr = work(IBV_WR_RDMA_WRITE_WITH_IMM, 1, &sge);
	wr.wr.rdma.remote_addr = address(&e[1], 8192);
	wr.wr.rdma.rkey = e[1].mr->rkey;
	OK(post(e[0].qp, &wr));
	if (e[0].qp->qp_type == IBV_QPT_RC) {
		NOTHING(e[0].cq, 30);
		OK(post_recv(e[1].qp, 2, at(&e[1], 0, 64)));
		DONE(e[0].cq, 1, IBV_WC_SUCCESS);
		DONE(e[1].cq, 2, IBV_WC_SUCCESS);
	} else {
		DONE(e[0].cq, 1, IBV_WC_SUCCESS);
	}
}

static void bad_inv(struct end e[2])
{
	PART("SEND that invalidates a key that is none: it fails at both ends");
	connect_new(e, IBV_QPT_RC);
	OK(post_recv(e[1].qp, 1, at(&e[1], 0, 64)));
	struct ibv_sge sge = at(&e[0], 0, 8);
	struct ibv_send_wr wr = work(IBV_WR_SEND_WITH_INV, 2, &sge);
	wr.invalidate_rkey = ~e[1].mr->rkey;
	OK(post(e[0].qp, &wr));
	struct ibv_wc wc = NEXT(e[0].cq);
	EQ(wc.wr_id, 2);
	CHECK(wc.status != IBV_WC_SUCCESS);
	wc = NEXT(e[1].cq);
	EQ(wc.wr_id, 1);
	CHECK(wc.status != IBV_WC_SUCCESS);
	PART("a plain region is not to be invalidated from afar, and stays as it is");
	destroy_qps(e);
	connect_new(e, IBV_QPT_RC);
	OK(post_recv(e[1].qp, 1, at(&e[1], 0, 64)));
	wr.invalidate_rkey = e[1].mr->rkey;
	OK(post(e[0].qp, &wr));
	CHECK(NEXT(e[0].cq).status != IBV_WC_SUCCESS);
	CHECK(NEXT(e[1].cq).status != IBV_WC_SUCCESS);
	destroy_qps(e);
	connect_new(e, IBV_QPT_RC);
	OK(post_rdma(e[0].qp, IBV_WR_RDMA_WRITE, 3, at(&e[0], 0, 8), address(&e[1], 0), e[1].mr->rkey));
	DONE(e[0].cq, 3, IBV_WC_SUCCESS);
	destroy_qps(e);
}

int main(void)
{
	struct end e[2];
	open_both(e);
	connect_new(e, IBV_QPT_RC);
	send_imm(e);
	write_imm(e);
	destroy_qps(e);
	PART("UC");
	connect_new(e, IBV_QPT_UC);
	send_imm(e);
	write_imm(e);
	destroy_qps(e);
	bad_inv(e);
	close_both(e);
	return 0;
}
