// Regions that change: other rights, other memory, another protection domain; regions with another address than their memory.

#include "common.h"

static struct ibv_mr *mr;

// A WRITE to the region ends so.
static void writes(struct end e[2], uint64_t to, enum ibv_wc_status status)
{
	connect_new(e, IBV_QPT_RC);
	OK(post_rdma(e[0].qp, IBV_WR_RDMA_WRITE, 1, at(&e[0], 0, 100), to, mr->rkey));
	DONE(e[0].cq, 1, status);
	destroy_qps(e);
}

static void rereg(struct end e[2])
{
	PART("other rights");
	uint8_t *memory = e[1].memory, *other = e[1].memory + MEMORY / 2;
	mr = MADE(ibv_reg_mr(e[1].pd, memory, 4096, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_READ));
	writes(e, address(&e[1], 0), IBV_WC_REM_ACCESS_ERR);
	int refused = ibv_rereg_mr(mr, IBV_REREG_MR_CHANGE_ACCESS, NULL, NULL, 0, ALL_RIGHTS);
	if (refused && (errno == EOPNOTSUPP || errno == ENOSYS)) {
		PART("there is no ibv_rereg_mr");
		OK(ibv_dereg_mr(mr));
		return;
	}
	EQ(refused, 0);
	writes(e, address(&e[1], 0), IBV_WC_SUCCESS);
	PART("other memory");
	fill(e[0].memory, 100, 5);
	EQ(ibv_rereg_mr(mr, IBV_REREG_MR_CHANGE_TRANSLATION, NULL, other, 8192, 0), 0);
	CHECK(mr->addr == other && mr->length == 8192);
	writes(e, (uintptr_t)other + 8000, IBV_WC_SUCCESS);
	CHECK(same(other + 8000, 100, 5));
	writes(e, (uintptr_t)memory, IBV_WC_REM_ACCESS_ERR);
	PART("another protection domain");
	struct ibv_pd *pd = MADE(ibv_alloc_pd(e[1].context));
	EQ(ibv_rereg_mr(mr, IBV_REREG_MR_CHANGE_PD, pd, NULL, 0, 0), 0);
	CHECK(mr->pd == pd);
	writes(e, (uintptr_t)other, IBV_WC_REM_ACCESS_ERR);
	EQ(ibv_dealloc_pd(pd), EBUSY);
	EQ(ibv_rereg_mr(mr, IBV_REREG_MR_CHANGE_PD, e[1].pd, NULL, 0, 0), 0);
	OK(ibv_dealloc_pd(pd));
	writes(e, (uintptr_t)other, IBV_WC_SUCCESS);
	PART("what cannot be, and leaves the region as it is");
	EQ(ibv_rereg_mr(mr, 0, NULL, NULL, 0, 0), IBV_REREG_MR_ERR_CMD);
	EQ(errno, EINVAL);
	EQ(ibv_rereg_mr(mr, IBV_REREG_MR_CHANGE_PD, e[1].pd, NULL, 0, ALL_RIGHTS), IBV_REREG_MR_ERR_INPUT);
	EQ(ibv_rereg_mr(mr, IBV_REREG_MR_CHANGE_PD, NULL, NULL, 0, 0), IBV_REREG_MR_ERR_CMD);
	EQ(ibv_rereg_mr(mr, 1 << 20, NULL, NULL, 0, 0), IBV_REREG_MR_ERR_INPUT);
	EQ(ibv_rereg_mr(mr, IBV_REREG_MR_CHANGE_TRANSLATION, NULL, NULL, 0, 0), IBV_REREG_MR_ERR_INPUT);
	EQ(ibv_rereg_mr(mr, IBV_REREG_MR_CHANGE_ACCESS, NULL, NULL, 0, IBV_ACCESS_REMOTE_WRITE), IBV_REREG_MR_ERR_CMD);
	writes(e, (uintptr_t)other, IBV_WC_SUCCESS);
	OK(ibv_dereg_mr(mr));
}

static void iova(struct end e[2])
{
	PART("a region with an address of its own");
	uint64_t iova = 0x123456789000;
	mr = MADE(ibv_reg_mr_iova(e[1].pd, e[1].memory, 4096, iova, ALL_RIGHTS));
	fill(e[0].memory, 100, 6);
	memset(e[1].memory, 0, 4096);
	writes(e, iova + 1000, IBV_WC_SUCCESS);
	CHECK(same(e[1].memory + 1000, 100, 6));
	writes(e, iova + 4000, IBV_WC_REM_ACCESS_ERR);
	writes(e, address(&e[1], 0), IBV_WC_REM_ACCESS_ERR);
	PART("its lkey takes that address, too");
	fill(e[1].memory, 64, 7);
	connect_new(e, IBV_QPT_RC);
	OK(post_recv(e[0].qp, 1, at(&e[0], 0, 64)));
	struct ibv_sge sge = {.addr = iova, .length = 64, .lkey = mr->lkey};
	OK(post_send(e[1].qp, 2, sge));
	DONE(e[1].cq, 2, IBV_WC_SUCCESS);
	DONE(e[0].cq, 1, IBV_WC_SUCCESS);
	CHECK(same(e[0].memory, 64, 7));
	destroy_qps(e);
	OK(ibv_dereg_mr(mr));
	PART("two regions of the same memory have keys of their own");
	struct ibv_mr *twice = MADE(ibv_reg_mr(e[1].pd, e[1].memory, 4096, ALL_RIGHTS));
	mr = MADE(ibv_reg_mr(e[1].pd, e[1].memory, 4096, ALL_RIGHTS));
	CHECK(mr->rkey != twice->rkey);
	OK(ibv_dereg_mr(twice));
	writes(e, address(&e[1], 0), IBV_WC_SUCCESS);
	OK(ibv_dereg_mr(mr));
}

int main(void)
{
	struct end e[2];
	open_both(e);
	rereg(e);
	iova(e);
	close_both(e);
	return 0;
}
