// Extended queue pairs: work requests by ibv_wr_*, one after the other between start and complete, or none of them after abort.

#include "common.h"

#define OPS                                                                                                                      \
	(IBV_QP_EX_WITH_SEND | IBV_QP_EX_WITH_SEND_WITH_IMM | IBV_QP_EX_WITH_RDMA_WRITE | IBV_QP_EX_WITH_RDMA_WRITE_WITH_IMM |   \
	 IBV_QP_EX_WITH_RDMA_READ | IBV_QP_EX_WITH_ATOMIC_CMP_AND_SWP | IBV_QP_EX_WITH_ATOMIC_FETCH_AND_ADD)

static struct ibv_qp *make(struct end *e, enum ibv_qp_type type, uint64_t ops)
{
	struct ibv_qp_init_attr_ex init = {
		.send_cq = e->cq,
		.recv_cq = e->cq,
		.qp_type = type,
		.cap = {.max_send_wr = DEPTH, .max_recv_wr = DEPTH, .max_send_sge = 4, .max_recv_sge = 4, .max_inline_data = 32},
		.comp_mask = IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_SEND_OPS_FLAGS,
		.pd = e->pd,
		.send_ops_flags = ops,
	};
	struct ibv_qp *qp = ibv_create_qp_ex(e->context, &init);
	if (qp)
		CHECK(init.cap.max_send_wr >= DEPTH && qp->pd == e->pd && qp->qp_type == type);
	return qp;
}

static void begin(struct ibv_qp_ex *qp, uint64_t wr_id, unsigned flags)
{
	qp->wr_id = wr_id;
	qp->wr_flags = flags;
}

static void every_operation(struct end e[2], struct ibv_qp_ex *qp)
{
	uint32_t rkey = e[1].mr->rkey, lkey = e[0].mr->lkey;
	PART("each operation, all posted at once");
	fill(e[0].memory, 4000, 1);
	fill(e[1].memory + 8192, 2000, 2);
	memset(e[1].memory + 4096, 0, 16);
	OK(post_recv(e[1].qp, 100, at(&e[1], 0, 4096)));
	OK(post_recv(e[1].qp, 101, at(&e[1], 65536, 4096)));
	OK(post_recv(e[1].qp, 102, at(&e[1], 0, 0)));
	ibv_wr_start(qp);
	begin(qp, 1, IBV_SEND_SIGNALED);
	ibv_wr_send(qp);
	ibv_wr_set_sge(qp, lkey, address(&e[0], 0), 3000);
	begin(qp, 2, IBV_SEND_SIGNALED);
	ibv_wr_send_imm(qp, htonl(22));
	struct ibv_sge list[2] = {at(&e[0], 0, 1000), at(&e[0], 1000, 3000)};
	ibv_wr_set_sge_list(qp, 2, list);
	begin(qp, 3, 0);
	ibv_wr_rdma_write(qp, rkey, address(&e[1], 131072));
	ibv_wr_set_sge(qp, lkey, address(&e[0], 0), 4000);
	begin(qp, 4, IBV_SEND_SIGNALED);
	ibv_wr_rdma_write_imm(qp, rkey, address(&e[1], 140000), htonl(44));
	ibv_wr_set_sge(qp, lkey, address(&e[0], 0), 500);
	begin(qp, 5, IBV_SEND_SIGNALED);
	ibv_wr_rdma_read(qp, rkey, address(&e[1], 8192));
	ibv_wr_set_sge(qp, lkey, address(&e[0], 65536), 2000);
	begin(qp, 6, IBV_SEND_SIGNALED);
	ibv_wr_atomic_fetch_add(qp, rkey, address(&e[1], 4096), 7);
	ibv_wr_set_sge(qp, lkey, address(&e[0], 70000), 8);
	begin(qp, 7, IBV_SEND_SIGNALED);
	ibv_wr_atomic_cmp_swp(qp, rkey, address(&e[1], 4096), 7, 9);
	ibv_wr_set_sge(qp, lkey, address(&e[0], 70008), 8);
	OK(ibv_wr_complete(qp));
	static const enum ibv_wc_opcode opcodes[] = {IBV_WC_SEND, IBV_WC_SEND, 0, IBV_WC_RDMA_WRITE, IBV_WC_RDMA_READ,
						     IBV_WC_FETCH_ADD, IBV_WC_COMP_SWAP};
	for (int i = 1; i <= 7; i++)
		if (i != 3)
			EQ(DONE(e[0].cq, i, IBV_WC_SUCCESS).opcode, opcodes[i - 1]);
	EQ(DONE(e[1].cq, 100, IBV_WC_SUCCESS).byte_len, 3000);
	struct ibv_wc wc = DONE(e[1].cq, 101, IBV_WC_SUCCESS);
	EQ(wc.byte_len, 4000);
	EQ(ntohl(wc.imm_data), 22);
	wc = DONE(e[1].cq, 102, IBV_WC_SUCCESS);
	EQ(wc.opcode, IBV_WC_RECV_RDMA_WITH_IMM);
	EQ(ntohl(wc.imm_data), 44);
	EQ(wc.byte_len, 500);
	CHECK(same(e[1].memory, 3000, 1) && same(e[1].memory + 65536, 4000, 1) && same(e[1].memory + 131072, 4000, 1));
	CHECK(same(e[1].memory + 140000, 500, 1) && same(e[0].memory + 65536, 2000, 2));
	uint64_t words[2];
	memcpy(words, e[0].memory + 70000, 16);
	CHECK(words[0] == 0 && words[1] == 7);
	memcpy(words, e[1].memory + 4096, 8);
	EQ(words[0], 9);
}

static void inline_data(struct end e[2], struct ibv_qp_ex *qp)
{
	PART("inline data, in one piece and in several");
	uint8_t data[32];
	fill(data, 32, 3);
	struct ibv_data_buf pieces[2] = {{data, 5}, {data + 5, 27}};
	for (int i = 0; i < 2; i++)
		OK(post_recv(e[1].qp, i, at(&e[1], i * 64, 64)));
	ibv_wr_start(qp);
	begin(qp, 10, IBV_SEND_SIGNALED);
	ibv_wr_send(qp);
	ibv_wr_set_inline_data(qp, data, 32);
	begin(qp, 11, IBV_SEND_SIGNALED);
	ibv_wr_send(qp);
	ibv_wr_set_inline_data_list(qp, 2, pieces);
	OK(ibv_wr_complete(qp));
	memset(data, 0, 32);
	for (int i = 0; i < 2; i++) {
		DONE(e[0].cq, 10 + i, IBV_WC_SUCCESS);
		EQ(DONE(e[1].cq, i, IBV_WC_SUCCESS).byte_len, 32);
		CHECK(same(e[1].memory + i * 64, 32, 3));
	}
}

static void aborted(struct end e[2], struct ibv_qp_ex *qp)
{
	PART("after ibv_wr_abort nothing of it is done");
	OK(post_recv(e[1].qp, 1, at(&e[1], 0, 64)));
	ibv_wr_start(qp);
	begin(qp, 20, IBV_SEND_SIGNALED);
	ibv_wr_send(qp);
	ibv_wr_set_sge(qp, e[0].mr->lkey, address(&e[0], 0), 8);
	ibv_wr_abort(qp);
	NOTHING(e[0].cq, 20);
	NOTHING(e[1].cq, 20);
	PART("more than the queue holds: an error, and nothing of it is done");
	ibv_wr_start(qp);
	for (int i = 0; i < 4 * DEPTH; i++) {
		begin(qp, 1000 + i, IBV_SEND_SIGNALED);
		ibv_wr_send(qp);
		ibv_wr_set_sge(qp, e[0].mr->lkey, address(&e[0], 0), 8);
	}
	CHECK(ibv_wr_complete(qp) != 0);
	NOTHING(e[0].cq, 20);
	NOTHING(e[1].cq, 20);
	PART("and it goes on, by either way");
	ibv_wr_start(qp);
	begin(qp, 21, IBV_SEND_SIGNALED);
	ibv_wr_send(qp);
	ibv_wr_set_sge(qp, e[0].mr->lkey, address(&e[0], 0), 8);
	OK(ibv_wr_complete(qp));
	DONE(e[0].cq, 21, IBV_WC_SUCCESS);
	DONE(e[1].cq, 1, IBV_WC_SUCCESS);
	exchange(e, 5);
}

// Each is done before the next is posted, so there is room for every one of them.
static void batches(struct end e[2], struct ibv_qp_ex *qp)
{
	PART("batch after batch, many times as many as the queue holds");
	for (int round = 0; round < 100; round++) {
		ibv_wr_start(qp);
		for (int i = 0; i < 10; i++) {
			begin(qp, round, i == 9 ? IBV_SEND_SIGNALED : 0);
			ibv_wr_rdma_write(qp, e[1].mr->rkey, address(&e[1], 0));
			ibv_wr_set_sge(qp, e[0].mr->lkey, address(&e[0], 0), 8);
		}
		OK(ibv_wr_complete(qp));
		DONE(e[0].cq, round, IBV_WC_SUCCESS);
	}
}

static void datagrams(struct end e[2])
{
	PART("UD: the address of each");
	e[0].qp = MADE(make(&e[0], IBV_QPT_UD, IBV_QP_EX_WITH_SEND));
	e[1].qp = make_qp(&e[1], IBV_QPT_UD);
	connect_with(e, 0, USUAL);
	struct ibv_ah_attr path = path_to(&e[0], &e[1]);
	struct ibv_ah *ah = MADE(ibv_create_ah(e[0].pd, &path));
	struct ibv_qp_ex *qp = MADE(ibv_qp_to_qp_ex(e[0].qp));
	OK(post_recv(e[1].qp, 1, at(&e[1], 0, 2048)));
	fill(e[0].memory, 700, 6);
	ibv_wr_start(qp);
	begin(qp, 2, IBV_SEND_SIGNALED);
	ibv_wr_send(qp);
	ibv_wr_set_ud_addr(qp, ah, e[1].qp->qp_num, QKEY);
	ibv_wr_set_sge(qp, e[0].mr->lkey, address(&e[0], 0), 700);
	OK(ibv_wr_complete(qp));
	DONE(e[0].cq, 2, IBV_WC_SUCCESS);
	EQ(DONE(e[1].cq, 1, IBV_WC_SUCCESS).byte_len, 740);
	CHECK(same(e[1].memory + 40, 700, 6));
	OK(ibv_destroy_ah(ah));
	destroy_qps(e);
}

int main(void)
{
	struct end e[2];
	open_both(e);
	e[0].qp = MADE(make(&e[0], IBV_QPT_RC, OPS));
	e[1].qp = make_qp(&e[1], IBV_QPT_RC);
	connect_with(e, ALL_RIGHTS, USUAL);
	struct ibv_qp_ex *qp = MADE(ibv_qp_to_qp_ex(e[0].qp));
	CHECK(&qp->qp_base == e[0].qp);
	every_operation(e, qp);
	inline_data(e, qp);
	aborted(e, qp);
	batches(e, qp);
	PART("a plain queue pair has no extended one");
	CHECK(!ibv_qp_to_qp_ex(e[1].qp));
	destroy_qps(e);
	PART("operations that its type does not have are refused");
	CHECK(!make(&e[0], IBV_QPT_UD, IBV_QP_EX_WITH_RDMA_READ));
	CHECK(!make(&e[0], IBV_QPT_RC, 1ull << 60));
	datagrams(e);
	close_both(e);
	return 0;
}
