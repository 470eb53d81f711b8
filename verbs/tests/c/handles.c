// Handles of objects: each kind's are all different; an object that is gone, that is another device's, or whose handle was overwritten is an error.

#include "common.h"

// An error that the kernel has for a handle that it does not know.
#define UNKNOWN(verb)                                                                                                            \
	do {                                                                                                                     \
		int error_ = (verb);                                                                                             \
		if (error_ != ENOENT && error_ != EINVAL)                                                                        \
			FAIL("%s is %d, neither ENOENT nor EINVAL", #verb, error_);                                              \
	} while (0)

#define NOT_MADE(verb)                                                                                                           \
	do {                                                                                                                     \
		errno = 0;                                                                                                       \
		CHECK((verb) == NULL);                                                                                           \
		CHECK(errno == ENOENT || errno == EINVAL);                                                                       \
	} while (0)

// While `field` is another one's, the verb is refused.
#define OVERWRITTEN(field, verb)                                                                                                 \
	do {                                                                                                                     \
		uint32_t right_ = (field);                                                                                       \
		(field) = right_ + 12345;                                                                                        \
		verb;                                                                                                            \
		(field) = right_;                                                                                                \
	} while (0)

static struct ibv_ah *make_ah(struct end e[2])
{
	struct ibv_ah_attr path = path_to(&e[0], &e[1]);
	return MADE(ibv_create_ah(e[0].pd, &path));
}

static struct ibv_srq *make_srq(struct end *e)
{
	struct ibv_srq_init_attr init = {.attr = {.max_wr = 10, .max_sge = 1}};
	return MADE(ibv_create_srq(e->pd, &init));
}

static void different(struct end e[2])
{
	PART("two objects of a kind have two handles");
	struct ibv_pd *pds[] = {MADE(ibv_alloc_pd(e[0].context)), MADE(ibv_alloc_pd(e[0].context))};
	struct ibv_mr *mr = MADE(ibv_reg_mr(e[0].pd, e[0].memory, 4096, 0));
	struct ibv_cq *cq = MADE(ibv_create_cq(e[0].context, 4, NULL, NULL, 0));
	struct ibv_srq *srqs[] = {make_srq(&e[0]), make_srq(&e[0])};
	struct ibv_qp *qps[] = {make_qp(&e[0], IBV_QPT_RC), make_qp(&e[0], IBV_QPT_RC)};
	struct ibv_ah *ahs[] = {make_ah(e), make_ah(e)};
	CHECK(pds[0]->handle != pds[1]->handle && pds[0]->handle != e[0].pd->handle);
	CHECK(mr->handle != e[0].mr->handle && cq->handle != e[0].cq->handle);
	CHECK(srqs[0]->handle != srqs[1]->handle && qps[0]->handle != qps[1]->handle && ahs[0]->handle != ahs[1]->handle);
	for (int i = 0; i < 2; i++) {
		OK(ibv_destroy_ah(ahs[i]));
		OK(ibv_destroy_qp(qps[i]));
		OK(ibv_destroy_srq(srqs[i]));
		OK(ibv_dealloc_pd(pds[i]));
	}
	OK(ibv_destroy_cq(cq));
	OK(ibv_dereg_mr(mr));
}

static void overwritten(struct end e[2])
{
	PART("a handle that was overwritten");
	struct ibv_pd *pd = MADE(ibv_alloc_pd(e[0].context));
	struct ibv_mr *mr = MADE(ibv_reg_mr(pd, e[0].memory, 4096, IBV_ACCESS_LOCAL_WRITE));
	struct ibv_cq *cq = MADE(ibv_create_cq(e[0].context, 4, NULL, NULL, 0));
	struct ibv_srq *srq = make_srq(&e[0]);
	struct ibv_qp *qp = make_qp(&e[0], IBV_QPT_RC);
	struct ibv_ah *ah = make_ah(e);
	struct ibv_mw *mw = MADE(ibv_alloc_mw(pd, IBV_MW_TYPE_1));
	struct ibv_ah_attr path = path_to(&e[0], &e[1]);
	struct ibv_srq_attr limit = {.srq_limit = 1};
	struct ibv_srq_init_attr srq_init = {.attr = {.max_wr = 10, .max_sge = 1}};
	struct ibv_qp_attr attr;
	struct ibv_qp_init_attr init = qp_options(&e[0], IBV_QPT_RC);
	OVERWRITTEN(pd->handle, UNKNOWN(ibv_dealloc_pd(pd)));
	OVERWRITTEN(pd->handle, NOT_MADE(ibv_reg_mr(pd, e[0].memory, 4096, 0)));
	OVERWRITTEN(pd->handle, NOT_MADE(ibv_create_qp(pd, &init)));
	OVERWRITTEN(pd->handle, NOT_MADE(ibv_create_ah(pd, &path)));
	OVERWRITTEN(pd->handle, NOT_MADE(ibv_create_srq(pd, &srq_init)));
	OVERWRITTEN(pd->handle, NOT_MADE(ibv_alloc_mw(pd, IBV_MW_TYPE_1)));
	OVERWRITTEN(mr->handle, UNKNOWN(ibv_dereg_mr(mr)));
	OVERWRITTEN(mr->handle, CHECK(ibv_rereg_mr(mr, IBV_REREG_MR_CHANGE_ACCESS, NULL, NULL, 0, 0) != 0));
	OVERWRITTEN(cq->handle, UNKNOWN(ibv_destroy_cq(cq)));
	OVERWRITTEN(cq->handle, UNKNOWN(ibv_resize_cq(cq, 10)));
	init.send_cq = cq;
	OVERWRITTEN(cq->handle, NOT_MADE(ibv_create_qp(pd, &init)));
	OVERWRITTEN(srq->handle, UNKNOWN(ibv_destroy_srq(srq)));
	OVERWRITTEN(srq->handle, UNKNOWN(ibv_modify_srq(srq, &limit, IBV_SRQ_LIMIT)));
	OVERWRITTEN(srq->handle, UNKNOWN(ibv_query_srq(srq, &limit)));
	OVERWRITTEN(qp->handle, UNKNOWN(ibv_destroy_qp(qp)));
	OVERWRITTEN(qp->handle, UNKNOWN(to_init(qp, 0)));
	OVERWRITTEN(qp->handle, UNKNOWN(ibv_query_qp(qp, &attr, IBV_QP_STATE, &init)));
	OVERWRITTEN(ah->handle, UNKNOWN(ibv_destroy_ah(ah)));
	OVERWRITTEN(mw->handle, UNKNOWN(ibv_dealloc_mw(mw)));
	PART("and put back");
	OK(ibv_dealloc_mw(mw));
	OK(ibv_destroy_ah(ah));
	OK(ibv_destroy_qp(qp));
	OK(ibv_destroy_srq(srq));
	OK(ibv_destroy_cq(cq));
	OK(ibv_dereg_mr(mr));
	OK(ibv_dealloc_pd(pd));
}

static void gone(struct end e[2])
{
	PART("an object that is gone");
	struct ibv_pd *pd = MADE(ibv_alloc_pd(e[0].context));
	struct ibv_mr *mr = MADE(ibv_reg_mr(pd, e[0].memory, 4096, 0));
	struct ibv_cq *cq = MADE(ibv_create_cq(e[0].context, 4, NULL, NULL, 0));
	struct ibv_comp_channel *channel = MADE(ibv_create_comp_channel(e[0].context));
	struct ibv_srq *srq = make_srq(&e[0]);
	struct ibv_qp *qp = make_qp(&e[0], IBV_QPT_RC);
	struct ibv_ah *ah = make_ah(e);
	OK(ibv_destroy_ah(ah));
	UNKNOWN(ibv_destroy_ah(ah));
	OK(ibv_destroy_qp(qp));
	UNKNOWN(ibv_destroy_qp(qp));
	UNKNOWN(to_init(qp, 0));
	OK(ibv_destroy_srq(srq));
	UNKNOWN(ibv_destroy_srq(srq));
	OK(ibv_destroy_cq(cq));
	UNKNOWN(ibv_destroy_cq(cq));
	OK(ibv_destroy_comp_channel(channel));
	UNKNOWN(ibv_destroy_comp_channel(channel));
	OK(ibv_dereg_mr(mr));
	UNKNOWN(ibv_dereg_mr(mr));
	OK(ibv_dealloc_pd(pd));
	UNKNOWN(ibv_dealloc_pd(pd));
	NOT_MADE(ibv_reg_mr(pd, e[0].memory, 4096, 0));
	PART("an object of another kind, and none");
	UNKNOWN(ibv_destroy_qp((struct ibv_qp *)e[0].cq));
	UNKNOWN(ibv_destroy_cq((struct ibv_cq *)e[0].pd));
	struct ibv_qp_init_attr init = qp_options(&e[0], IBV_QPT_RC);
	init.recv_cq = NULL;
	NOT_MADE(ibv_create_qp(e[0].pd, &init));
}

static void foreign(struct end e[2])
{
	if (e[0].context->device == e[1].context->device)
		return;
	PART("objects of another device");
	struct ibv_qp_init_attr init = qp_options(&e[0], IBV_QPT_RC);
	init.recv_cq = e[1].cq;
	NOT_MADE(ibv_create_qp(e[0].pd, &init));
	init = qp_options(&e[0], IBV_QPT_RC);
	init.srq = make_srq(&e[1]);
	NOT_MADE(ibv_create_qp(e[0].pd, &init));
	OK(ibv_destroy_srq(init.srq));
	CHECK(ibv_rereg_mr(e[0].mr, IBV_REREG_MR_CHANGE_PD, e[1].pd, NULL, 0, 0) != 0);
}

int main(void)
{
	struct end e[2];
	open_both(e);
	different(e);
	overwritten(e);
	gone(e);
	foreign(e);
	connect_new(e, IBV_QPT_RC);
	exchange(e, 1);
	destroy_qps(e);
	struct ibv_context *context = e[0].context;
	close_both(e);
	PART("a context that is closed");
	UNKNOWN(ibv_close_device(context));
	return 0;
}
