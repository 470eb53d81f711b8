// Work of best effort by softnicdv.h: deadlines that end receives, READs and sends, strides, bitmaps, and what others refuse.
// run: --dev mem
// link: -libverbs -ldl

#define _GNU_SOURCE
#include <dlfcn.h>

#include "../../include/softnicdv.h"
#include "common.h"

static __typeof__(softnicdv_create_qp) *create;
static __typeof__(softnicdv_query_qp) *query;
static __typeof__(softnicdv_post_send) *bound_send;
static __typeof__(softnicdv_post_recv) *bound_recv;
static __typeof__(softnicdv_missing_ranges) *missing;

static struct ibv_qp *make(struct end *e, enum ibv_qp_type type, const char *transport)
{
	struct ibv_qp_init_attr plain = qp_options(e, type);
	struct ibv_qp_init_attr_ex init = {
		.send_cq = plain.send_cq,
		.recv_cq = plain.recv_cq,
		.qp_type = plain.qp_type,
		.cap = plain.cap,
		.pd = e->pd,
		.comp_mask = IBV_QP_INIT_ATTR_PD,
	};
	struct softnicdv_qp_init_attr dv = {.transport = transport};
	return create(e->context, &init, &dv);
}

static void connect_as(struct end e[2], enum ibv_qp_type type, const char *wishes[2], const char *must)
{
	for (int i = 0; i < 2; i++)
		e[i].qp = MADE(make(&e[i], type, wishes[i]));
	connect_with(e, ALL_RIGHTS, USUAL);
	for (int i = 0; i < 2; i++) {
		struct softnicdv_qp_attr attr = {.comp_mask = 0};
		uint64_t begin = now_ms();
		do {
			OK(query(e[i].qp, &attr));
			if (now_ms() - begin > LIMIT_MS)
				FAIL("it speaks `%s`, not `%s`", attr.transport, must);
			usleep(1000);
		} while (strcmp(attr.transport, must));
	}
}

static int recv_bound(struct end *e, uint64_t id, struct ibv_sge *sge, struct softnicdv_best_effort *bound)
{
	struct ibv_recv_wr wr = {.wr_id = id, .sg_list = sge, .num_sge = 1}, *bad;
	return bound_recv(e->qp, &wr, bound, &bad);
}

static int send_bound(struct end *e, struct ibv_send_wr *wr, struct softnicdv_best_effort *bound)
{
	struct ibv_send_wr *bad;
	return bound_send(e->qp, wr, bound, &bad);
}

static void partial(struct ibv_wc wc, unsigned int bytes, int why)
{
	EQ(wc.byte_len, bytes);
	EQ(!!(wc.wc_flags & SOFTNICDV_WC_PARTIAL), why != 0);
	EQ(wc.vendor_err, why);
}

int main(void)
{
	create = (__typeof__(create))dlsym(RTLD_DEFAULT, "softnicdv_create_qp");
	query = (__typeof__(query))dlsym(RTLD_DEFAULT, "softnicdv_query_qp");
	bound_send = (__typeof__(bound_send))dlsym(RTLD_DEFAULT, "softnicdv_post_send");
	bound_recv = (__typeof__(bound_recv))dlsym(RTLD_DEFAULT, "softnicdv_post_recv");
	missing = (__typeof__(missing))dlsym(RTLD_DEFAULT, "softnicdv_missing_ranges");
	if (!create || !query || !bound_send || !bound_recv || !missing)
		LEAVE_OUT("there is no softnicdv");
	struct end e[2];
	open_both(e);
	static const enum ibv_qp_type types[] = {IBV_QPT_RC, IBV_QPT_UC};
	for (int t = 0; t < 2; t++) {
		PART("a message that nobody sends ends with its deadline");
		connect_as(e, types[t], (const char *[]){"xp", "xp:tail=2"}, "xp");
		struct softnicdv_best_effort soon = {.timeout_ns = 2000000};
		struct ibv_sge to = at(&e[1], 0, 100000);
		OK(recv_bound(&e[1], 1, &to, &soon));
		partial(DONE(e[1].cq, 1, IBV_WC_SUCCESS), 0, SOFTNICDV_PARTIAL_EXPIRED);
		PART("the next one is whole, strided, and its bitmap says so");
		// The message that never came is the first one that is sent now.
		struct ibv_sge none = at(&e[0], 0, 0), from = at(&e[0], 0, 100000);
		struct ibv_send_wr lost = work(IBV_WR_SEND, 2, &none);
		OK(post(e[0].qp, &lost));
		DONE(e[0].cq, 2, IBV_WC_SUCCESS);
		fill(e[0].memory, 100000, 9);
		struct ibv_sge bits = at(&e[1], 200000, 100);
		struct softnicdv_best_effort mapped = {.timeout_ns = 5000000000ull, .bitmap = &bits};
		struct softnicdv_best_effort strided = {.timeout_ns = 5000000000ull, .stride = 16};
		OK(recv_bound(&e[1], 3, &to, &mapped));
		struct ibv_send_wr wr = work(IBV_WR_SEND, 4, &from);
		OK(send_bound(&e[0], &wr, &strided));
		partial(DONE(e[1].cq, 3, IBV_WC_SUCCESS), 100000, 0);
		DONE(e[0].cq, 4, IBV_WC_SUCCESS);
		CHECK(same(e[1].memory, 100000, 9));
		struct softnicdv_range ranges[4];
		size_t count = 99;
		OK(missing(e[1].qp, e[1].memory + 200000, 100, 100000, 16, ranges, 4, &count));
		EQ(count, 0);
		PART("an empty bitmap lacks every range, of which as many are written as there is room for");
		OK(missing(e[1].qp, NULL, 0, 100000, 1, ranges, 1, &count));
		CHECK(count >= 100000 / 4096 && ranges[0].offset == 0 && ranges[0].length >= 256);
		EQ(missing(e[1].qp, NULL, 0, 100000, 3, ranges, 1, &count), EINVAL);
		if (types[t] == IBV_QPT_RC) {
			PART("a READ");
			struct ibv_send_wr read = work(IBV_WR_RDMA_READ, 5, &from);
			read.wr.rdma.remote_addr = (uintptr_t)e[1].memory;
			read.wr.rdma.rkey = e[1].mr->rkey;
			OK(send_bound(&e[0], &read, &strided));
			partial(DONE(e[0].cq, 5, IBV_WC_SUCCESS), 100000, 0);
		}
		PART("what cannot be");
		struct softnicdv_best_effort odd = {.stride = 3}, wide = {.stride = 1 << 20}, masked = {.comp_mask = 1};
		EQ(send_bound(&e[0], &wr, &odd), EINVAL);
		EQ(send_bound(&e[0], &wr, &wide), EINVAL);
		EQ(send_bound(&e[0], &wr, &masked), EINVAL);
		EQ(send_bound(&e[0], &wr, &mapped), EINVAL);
		destroy_qps(e);
		PART("a peer that has it not");
		const char *plain = types[t] == IBV_QPT_RC ? "rc" : "uc";
		connect_as(e, types[t], (const char *[]){"xp", plain}, plain);
		EQ(send_bound(&e[0], &wr, &strided), EOPNOTSUPP);
		EQ(recv_bound(&e[0], 1, &from, &soon), EOPNOTSUPP);
		EQ(send_bound(&e[1], &wr, &strided), EOPNOTSUPP);
		destroy_qps(e);
	}
	close_both(e);
	return 0;
}
