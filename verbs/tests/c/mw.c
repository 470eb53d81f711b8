// Memory windows of both types: bound, used, out of bounds, invalidated, and in the way of their region's end.

#include "common.h"

#define WINDOW_AT 4096
#define WINDOW_LENGTH 1000

static struct ibv_mr *bindable;

static int write_to(struct end e[2], uint64_t wr_id, size_t offset, uint32_t length, uint32_t rkey)
{
	return post_rdma(e[0].qp, IBV_WR_RDMA_WRITE, wr_id, at(&e[0], 0, length), address(&e[1], offset), rkey);
}

// New queue pairs in the place of those that an error ended.
static void again(struct end e[2])
{
	destroy_qps(e);
	connect_new(e, IBV_QPT_RC);
}

static void works(struct end e[2], uint32_t rkey)
{
	fill(e[0].memory, WINDOW_LENGTH, rkey);
	memset(e[1].memory + WINDOW_AT - 8, 0xee, WINDOW_LENGTH + 16);
	OK(write_to(e, 1, WINDOW_AT, WINDOW_LENGTH, rkey));
	DONE(e[0].cq, 1, IBV_WC_SUCCESS);
	CHECK(same(e[1].memory + WINDOW_AT, WINDOW_LENGTH, rkey));
	EQ(e[1].memory[WINDOW_AT - 1], 0xee);
	EQ(e[1].memory[WINDOW_AT + WINDOW_LENGTH], 0xee);
}

static void does_not(struct end e[2], size_t offset, uint32_t length, uint32_t rkey)
{
	OK(write_to(e, 1, offset, length, rkey));
	DONE(e[0].cq, 1, IBV_WC_REM_ACCESS_ERR);
}

static void type_1(struct end e[2])
{
	PART("type 1, bound by ibv_bind_mw");
	struct ibv_mw *mw = ibv_alloc_mw(e[1].pd, IBV_MW_TYPE_1);
	if (!mw) {
		CHECK(errno == EOPNOTSUPP || errno == ENOSYS);
		PART("there are none");
		return;
	}
	connect_new(e, IBV_QPT_RC);
	struct ibv_mw_bind bind = {
		.wr_id = 5,
		.send_flags = IBV_SEND_SIGNALED,
		.bind_info = {bindable, address(&e[1], WINDOW_AT), WINDOW_LENGTH, IBV_ACCESS_REMOTE_WRITE},
	};
	OK(ibv_bind_mw(e[1].qp, mw, &bind));
	EQ(DONE(e[1].cq, 5, IBV_WC_SUCCESS).opcode, IBV_WC_BIND_MW);
	works(e, mw->rkey);
	PART("bound with a right of one's own, which is the region's anyway");
	bind.bind_info.mw_access_flags |= IBV_ACCESS_LOCAL_WRITE;
	OK(ibv_bind_mw(e[1].qp, mw, &bind));
	DONE(e[1].cq, 5, IBV_WC_SUCCESS);
	uint32_t first = mw->rkey;
	works(e, first);
	PART("with addresses from 0 on: EINVAL, and the window stays");
	bind.bind_info.mw_access_flags |= IBV_ACCESS_ZERO_BASED;
	EQ(ibv_bind_mw(e[1].qp, mw, &bind), EINVAL);
	bind.bind_info.mw_access_flags &= ~IBV_ACCESS_ZERO_BASED;
	EQ(mw->rkey, first);
	works(e, first);
	PART("a region with a window on it is not deregistered: EBUSY");
	EQ(ibv_dereg_mr(bindable), EBUSY);
	PART("beyond its bounds");
	does_not(e, WINDOW_AT, WINDOW_LENGTH + 1, first);
	again(e);
	PART("without the right");
	OK(post_rdma(e[0].qp, IBV_WR_RDMA_READ, 1, at(&e[0], 0, 8), address(&e[1], WINDOW_AT), first));
	DONE(e[0].cq, 1, IBV_WC_REM_ACCESS_ERR);
	again(e);
	PART("bound anew it has another key, and the old one is none");
	OK(ibv_bind_mw(e[1].qp, mw, &bind));
	DONE(e[1].cq, 5, IBV_WC_SUCCESS);
	CHECK(mw->rkey != first);
	works(e, mw->rkey);
	does_not(e, WINDOW_AT, 8, first);
	again(e);
	PART("bound to no bytes it is no window any more");
	uint32_t second = mw->rkey;
	bind.bind_info.length = 0;
	OK(ibv_bind_mw(e[1].qp, mw, &bind));
	DONE(e[1].cq, 5, IBV_WC_SUCCESS);
	does_not(e, WINDOW_AT, 8, second);
	again(e);
	PART("a region that may not have windows");
	bind.bind_info.length = 8;
	bind.bind_info.mr = e[1].mr;
	if (ibv_bind_mw(e[1].qp, mw, &bind) == 0)
		CHECK(NEXT(e[1].cq).status != IBV_WC_SUCCESS);
	destroy_qps(e);
	OK(ibv_dealloc_mw(mw));
}

// Posts a bind, of a region that may not have windows: how it ends.
static void fails_to_bind(struct end *e, struct ibv_mw *mw)
{
	struct ibv_mw_bind_info info = {e->mr, address(e, WINDOW_AT), WINDOW_LENGTH, IBV_ACCESS_REMOTE_WRITE};
	if (mw->type == IBV_MW_TYPE_1) {
		struct ibv_mw_bind bind = {.wr_id = 4, .send_flags = IBV_SEND_SIGNALED, .bind_info = info};
		OK(ibv_bind_mw(e->qp, mw, &bind));
	} else {
		struct ibv_send_wr wr = {.wr_id = 4, .opcode = IBV_WR_BIND_MW, .send_flags = IBV_SEND_SIGNALED};
		wr.bind_mw.mw = mw;
		wr.bind_mw.rkey = ibv_inc_rkey(mw->rkey);
		wr.bind_mw.bind_info = info;
		OK(post(e->qp, &wr));
	}
	CHECK(NEXT(e->cq).status != IBV_WC_SUCCESS);
}

// Binds a window of type 2 by a work request, with the next key of its own.
static uint32_t bind_2(struct end *e, struct ibv_mw *mw, int rights)
{
	uint32_t rkey = ibv_inc_rkey(mw->rkey);
	struct ibv_send_wr wr = {.wr_id = 6, .opcode = IBV_WR_BIND_MW, .send_flags = IBV_SEND_SIGNALED};
	wr.bind_mw.mw = mw;
	wr.bind_mw.rkey = rkey;
	wr.bind_mw.bind_info.mr = bindable;
	wr.bind_mw.bind_info.addr = address(e, WINDOW_AT);
	wr.bind_mw.bind_info.length = WINDOW_LENGTH;
	wr.bind_mw.bind_info.mw_access_flags = rights;
	OK(post(e->qp, &wr));
	EQ(DONE(e->cq, 6, IBV_WC_SUCCESS).opcode, IBV_WC_BIND_MW);
	mw->rkey = rkey;
	return rkey;
}

static void after_failure(struct end e[2], enum ibv_mw_type type)
{
	PART("a bind that fails leaves a window that can be bound");
	struct ibv_mw *mw = ibv_alloc_mw(e[1].pd, type);
	if (!mw)
		return;
	connect_new(e, IBV_QPT_RC);
	for (int i = 0; i < 3; i++) {
		fails_to_bind(&e[1], mw);
		again(e);
	}
	if (type == IBV_MW_TYPE_1) {
		struct ibv_mw_bind bind = {
			.wr_id = 5,
			.send_flags = IBV_SEND_SIGNALED,
			.bind_info = {bindable, address(&e[1], WINDOW_AT), WINDOW_LENGTH, IBV_ACCESS_REMOTE_WRITE},
		};
		OK(ibv_bind_mw(e[1].qp, mw, &bind));
		DONE(e[1].cq, 5, IBV_WC_SUCCESS);
	} else {
		bind_2(&e[1], mw, IBV_ACCESS_REMOTE_WRITE);
	}
	works(e, mw->rkey);
	destroy_qps(e);
	OK(ibv_dealloc_mw(mw));
}

static void low_byte(struct end e[2])
{
	PART("of the key of type 2 the low byte is the program's, and the window has the new key when it is bound");
	struct ibv_mw *mw = ibv_alloc_mw(e[1].pd, IBV_MW_TYPE_2);
	if (!mw)
		return;
	connect_new(e, IBV_QPT_RC);
	uint32_t first = mw->rkey;
	struct ibv_send_wr wr = {.wr_id = 6, .opcode = IBV_WR_BIND_MW, .send_flags = IBV_SEND_SIGNALED};
	wr.bind_mw.mw = mw;
	wr.bind_mw.rkey = 0xa5a5a500 | ((first + 7) & 0xff);
	wr.bind_mw.bind_info.mr = bindable;
	wr.bind_mw.bind_info.addr = address(&e[1], WINDOW_AT);
	wr.bind_mw.bind_info.length = WINDOW_LENGTH;
	wr.bind_mw.bind_info.mw_access_flags = IBV_ACCESS_REMOTE_WRITE;
	OK(post(e[1].qp, &wr));
	DONE(e[1].cq, 6, IBV_WC_SUCCESS);
	EQ(mw->rkey, (first & ~0xffu) | ((first + 7) & 0xff));
	works(e, mw->rkey);
	destroy_qps(e);
	OK(ibv_dealloc_mw(mw));
}

static void type_2(struct end e[2])
{
	PART("type 2, bound by a work request");
	struct ibv_mw *mw = ibv_alloc_mw(e[1].pd, IBV_MW_TYPE_2);
	if (!mw) {
		CHECK(errno == EOPNOTSUPP || errno == ENOSYS || errno == EINVAL);
		PART("there are none");
		return;
	}
	connect_new(e, IBV_QPT_RC);
	uint32_t rkey = bind_2(&e[1], mw, IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ);
	works(e, rkey);
	PART("a region with a window on it is not deregistered: EBUSY");
	EQ(ibv_dereg_mr(bindable), EBUSY);
	PART("invalidated by a SEND of the peer, which is told at the receiver");
	OK(post_recv(e[1].qp, 7, at(&e[1], 0, 64)));
	struct ibv_sge sge = at(&e[0], 0, 8);
	struct ibv_send_wr send = work(IBV_WR_SEND_WITH_INV, 8, &sge);
	send.invalidate_rkey = rkey;
	OK(post(e[0].qp, &send));
	DONE(e[0].cq, 8, IBV_WC_SUCCESS);
	struct ibv_wc wc = DONE(e[1].cq, 7, IBV_WC_SUCCESS);
	CHECK(wc.wc_flags & IBV_WC_WITH_INV);
	EQ(wc.invalidated_rkey, rkey);
	does_not(e, WINDOW_AT, 8, rkey);
	again(e);
	PART("bound anew, and invalidated here");
	rkey = bind_2(&e[1], mw, IBV_ACCESS_REMOTE_WRITE);
	works(e, rkey);
	struct ibv_send_wr local = {.wr_id = 9, .opcode = IBV_WR_LOCAL_INV, .send_flags = IBV_SEND_SIGNALED, .invalidate_rkey = rkey};
	OK(post(e[1].qp, &local));
	EQ(DONE(e[1].cq, 9, IBV_WC_SUCCESS).opcode, IBV_WC_LOCAL_INV);
	does_not(e, WINDOW_AT, 8, rkey);
	again(e);
	PART("only the queue pair that it was bound on may use it (2B), or its domain (2A)");
	bind_2(&e[1], mw, IBV_ACCESS_REMOTE_WRITE);
	OK(ibv_dealloc_mw(mw));
	PART("a window that is gone is in nobody's way");
	destroy_qps(e);
}

int main(void)
{
	struct end e[2];
	open_both(e);
	bindable = ibv_reg_mr(e[1].pd, e[1].memory, MEMORY, ALL_RIGHTS | IBV_ACCESS_MW_BIND);
	if (!bindable)
		LEAVE_OUT("no memory windows");
	type_1(e);
	type_2(e);
	after_failure(e, IBV_MW_TYPE_1);
	after_failure(e, IBV_MW_TYPE_2);
	low_byte(e);
	OK(ibv_dereg_mr(bindable));
	close_both(e);
	return 0;
}
