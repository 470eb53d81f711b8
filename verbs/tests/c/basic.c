// Every operation of RC and UC: data arrives as it was sent, whatever its length and its pieces; and what both ends are told of it.

#include "common.h"

// Around the path MTU of 1024, and none at all.
static const uint32_t LENGTHS[] = {0, 1, 3, 4, 63, 1023, 1024, 1025, 2047, 2048, 4096, 65535, 65536, 300000};
#define COUNT ((int)(sizeof(LENGTHS) / sizeof(LENGTHS[0])))

static void sends(struct end e[2])
{
	PART("SEND");
	for (int i = 0; i < COUNT; i++) {
		uint32_t length = LENGTHS[i];
		fill(e[0].memory, length, i);
		memset(e[1].memory, 0xee, length + 1);
		OK(post_recv(e[1].qp, 100 + i, at(&e[1], 0, MEMORY)));
		OK(post_send(e[0].qp, i, at(&e[0], 0, length)));
		struct ibv_wc sent = DONE(e[0].cq, i, IBV_WC_SUCCESS), received = DONE(e[1].cq, 100 + i, IBV_WC_SUCCESS);
		EQ(sent.opcode, IBV_WC_SEND);
		EQ(sent.qp_num, e[0].qp->qp_num);
		EQ(received.opcode, IBV_WC_RECV);
		EQ(received.qp_num, e[1].qp->qp_num);
		EQ(received.byte_len, length);
		EQ(received.wc_flags & (IBV_WC_WITH_IMM | IBV_WC_WITH_INV), 0);
		CHECK(same(e[1].memory, length, i));
		EQ(e[1].memory[length], 0xee);
	}
}

static void writes(struct end e[2])
{
	PART("WRITE");
	for (int i = 0; i < COUNT; i++) {
		uint32_t length = LENGTHS[i];
		fill(e[0].memory, length, 50 + i);
		memset(e[1].memory, 0xee, length + 8);
		OK(post_rdma(e[0].qp, IBV_WR_RDMA_WRITE, i, at(&e[0], 0, length), address(&e[1], 3), e[1].mr->rkey));
		EQ(DONE(e[0].cq, i, IBV_WC_SUCCESS).opcode, IBV_WC_RDMA_WRITE);
		if (e[0].qp->qp_type == IBV_QPT_UC) {
			// Nobody says when it is there; what comes behind it is.
			OK(post_recv(e[1].qp, 7, at(&e[1], MEMORY / 2, 8)));
			OK(post_send(e[0].qp, 7, at(&e[0], 0, 1)));
			DONE(e[0].cq, 7, IBV_WC_SUCCESS);
			DONE(e[1].cq, 7, IBV_WC_SUCCESS);
		}
		CHECK(same(e[1].memory + 3, length, 50 + i));
		EQ(e[1].memory[2], 0xee);
		EQ(e[1].memory[length + 3], 0xee);
	}
	NOTHING(e[1].cq, 20);
}

static void reads(struct end e[2])
{
	PART("READ");
	for (int i = 0; i < COUNT; i++) {
		uint32_t length = LENGTHS[i];
		fill(e[1].memory + 5, length, 90 + i);
		memset(e[0].memory, 0xee, length + 1);
		OK(post_rdma(e[0].qp, IBV_WR_RDMA_READ, i, at(&e[0], 0, length), address(&e[1], 5), e[1].mr->rkey));
		struct ibv_wc wc = DONE(e[0].cq, i, IBV_WC_SUCCESS);
		EQ(wc.opcode, IBV_WC_RDMA_READ);
		CHECK(same(e[0].memory, length, 90 + i));
		EQ(e[0].memory[length], 0xee);
	}
	NOTHING(e[1].cq, 20);
}

static void pieces(struct end e[2])
{
	PART("lists of pieces");
	fill(e[0].memory, 5000, 3);
	struct ibv_sge out[3] = {at(&e[0], 0, 1), at(&e[0], 1, 2999), at(&e[0], 3000, 2000)};
	struct ibv_sge in[3] = {at(&e[1], 0, 1500), at(&e[1], 100000, 7), at(&e[1], 200000, 60000)};
	struct ibv_recv_wr recv = {.wr_id = 8, .sg_list = in, .num_sge = 3}, *bad_recv;
	OK(ibv_post_recv(e[1].qp, &recv, &bad_recv));
	struct ibv_send_wr send = {.wr_id = 9, .sg_list = out, .num_sge = 3, .opcode = IBV_WR_SEND, .send_flags = IBV_SEND_SIGNALED};
	OK(post(e[0].qp, &send));
	DONE(e[0].cq, 9, IBV_WC_SUCCESS);
	EQ(DONE(e[1].cq, 8, IBV_WC_SUCCESS).byte_len, 5000);
	uint8_t whole[5000];
	memcpy(whole, e[1].memory, 1500);
	memcpy(whole + 1500, e[1].memory + 100000, 7);
	memcpy(whole + 1507, e[1].memory + 200000, 3493);
	CHECK(same(whole, 5000, 3));
	PART("no piece at all");
	recv = (struct ibv_recv_wr){.wr_id = 10};
	OK(ibv_post_recv(e[1].qp, &recv, &bad_recv));
	send = (struct ibv_send_wr){.wr_id = 11, .opcode = IBV_WR_SEND, .send_flags = IBV_SEND_SIGNALED};
	OK(post(e[0].qp, &send));
	DONE(e[0].cq, 11, IBV_WC_SUCCESS);
	EQ(DONE(e[1].cq, 10, IBV_WC_SUCCESS).byte_len, 0);
}

static void inline_data(struct end e[2])
{
	PART("inline data is taken when it is posted, and needs no key");
	uint8_t bytes[32];
	fill(bytes, 32, 4);
	struct ibv_sge sges[2] = {{.addr = (uintptr_t)bytes, .length = 20}, {.addr = (uintptr_t)bytes + 20, .length = 12}};
	struct ibv_send_wr wr = {.wr_id = 1, .sg_list = sges, .num_sge = 2, .opcode = IBV_WR_SEND};
	wr.send_flags = IBV_SEND_SIGNALED | IBV_SEND_INLINE;
	OK(post(e[0].qp, &wr));
	memset(bytes, 0, 32);
	// Only now can it arrive.
	OK(post_recv(e[1].qp, 2, at(&e[1], 0, 64)));
	DONE(e[0].cq, 1, IBV_WC_SUCCESS);
	EQ(DONE(e[1].cq, 2, IBV_WC_SUCCESS).byte_len, 32);
	CHECK(same(e[1].memory, 32, 4));
}

static void unsignaled(struct end e[2])
{
	PART("work that asked for no completion has none, in order");
	for (int round = 0; round < 20; round++) {
		for (int i = 0; i < 10; i++) {
			OK(post_recv(e[1].qp, i, at(&e[1], 0, 64)));
			struct ibv_sge sge = at(&e[0], 0, 8);
			struct ibv_send_wr wr = work(IBV_WR_SEND, round * 10 + i, &sge);
			wr.send_flags = i == 9 ? IBV_SEND_SIGNALED : 0;
			OK(post(e[0].qp, &wr));
		}
		DONE(e[0].cq, round * 10 + 9, IBV_WC_SUCCESS);
		for (int i = 0; i < 10; i++)
			DONE(e[1].cq, i, IBV_WC_SUCCESS);
	}
	NOTHING(e[0].cq, 20);
}

static void fence(struct end e[2])
{
	PART("a SEND behind a fence has what the READ before it brought");
	for (int round = 0; round < 50; round++) {
		fill(e[1].memory, 2000, round);
		memset(e[0].memory, 0, 2000);
		OK(post_recv(e[1].qp, 3, at(&e[1], 4096, 4096)));
		OK(post_rdma(e[0].qp, IBV_WR_RDMA_READ, 1, at(&e[0], 0, 2000), address(&e[1], 0), e[1].mr->rkey));
		struct ibv_sge sge = at(&e[0], 0, 2000);
		struct ibv_send_wr wr = work(IBV_WR_SEND, 2, &sge);
		wr.send_flags |= IBV_SEND_FENCE;
		OK(post(e[0].qp, &wr));
		DONE(e[0].cq, 1, IBV_WC_SUCCESS);
		DONE(e[0].cq, 2, IBV_WC_SUCCESS);
		DONE(e[1].cq, 3, IBV_WC_SUCCESS);
		CHECK(same(e[1].memory + 4096, 2000, round));
	}
}

static void sig_all(struct end e[2])
{
	PART("sq_sig_all: every work request has a completion");
	for (int i = 0; i < 2; i++) {
		struct ibv_qp_init_attr init = qp_options(&e[i], IBV_QPT_RC);
		init.sq_sig_all = 1;
		e[i].qp = MADE(ibv_create_qp(e[i].pd, &init));
	}
	connect_with(e, ALL_RIGHTS, USUAL);
	for (int i = 0; i < 5; i++) {
		struct ibv_sge sge = at(&e[0], 0, 8);
		struct ibv_send_wr wr = work(IBV_WR_RDMA_WRITE, i, &sge);
		wr.send_flags = 0;
		wr.wr.rdma.remote_addr = address(&e[1], 0);
		wr.wr.rdma.rkey = e[1].mr->rkey;
		OK(post(e[0].qp, &wr));
	}
	for (int i = 0; i < 5; i++)
		DONE(e[0].cq, i, IBV_WC_SUCCESS);
	destroy_qps(e);
}

static void both_on_one_device(void)
{
	PART("two queue pairs of one device");
	struct end e[2];
	open_end(&e[0], 0);
	open_end(&e[1], 0);
	connect_new(e, IBV_QPT_RC);
	exchange(e, 1);
	destroy_qps(e);
	close_both(e);
}

static void with_itself(void)
{
	PART("a queue pair that is connected to itself");
	struct end e;
	open_end(&e, 0);
	e.qp = make_qp(&e, IBV_QPT_RC);
	OK(to_init(e.qp, ALL_RIGHTS));
	OK(to_rtr(e.qp, &e, &e, e.qp->qp_num));
	OK(to_rts(e.qp, USUAL));
	fill(e.memory, 2000, 1);
	OK(post_rdma(e.qp, IBV_WR_RDMA_WRITE, 1, at(&e, 0, 2000), address(&e, 5000), e.mr->rkey));
	DONE(e.cq, 1, IBV_WC_SUCCESS);
	CHECK(same(e.memory + 5000, 2000, 1));
	OK(ibv_destroy_qp(e.qp));
	close_end(&e);
}

int main(void)
{
	struct end e[2];
	open_both(e);
	connect_new(e, IBV_QPT_RC);
	sends(e);
	writes(e);
	reads(e);
	pieces(e);
	inline_data(e);
	unsignaled(e);
	fence(e);
	destroy_qps(e);
	PART("UC");
	connect_new(e, IBV_QPT_UC);
	sends(e);
	writes(e);
	pieces(e);
	destroy_qps(e);
	sig_all(e);
	close_both(e);
	both_on_one_device();
	with_itself();
	return 0;
}
