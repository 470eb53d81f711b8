// What the C tests share: two ends with a queue pair each, checks that say where they failed, and polling that does not wait for ever.
//
// On `mem` the ends are softnic0 and softnic1; where there is one device, both are on it.

#ifndef SOFTNIC_TESTS_COMMON_H
#define SOFTNIC_TESTS_COMMON_H

#include <arpa/inet.h>
#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include <infiniband/verbs.h>

// ---- checks ----

#define FAIL(...)                                                                                                                \
	do {                                                                                                                     \
		fprintf(stderr, "%s:%d: ", __FILE__, __LINE__);                                                                  \
		fprintf(stderr, __VA_ARGS__);                                                                                    \
		fprintf(stderr, "\n");                                                                                           \
		_exit(1);                                                                                                        \
	} while (0)

#define CHECK(what)                                                                                                              \
	do {                                                                                                                     \
		if (!(what))                                                                                                     \
			FAIL("%s does not hold (errno %d: %s)", #what, errno, strerror(errno));                                  \
	} while (0)

// Two numbers that must be the same.
#define EQ(is, must)                                                                                                             \
	do {                                                                                                                     \
		long long is_ = (long long)(is), must_ = (long long)(must);                                                      \
		if (is_ != must_)                                                                                                \
			FAIL("%s is %lld, not %lld (%s)", #is, is_, must_, #must);                                               \
	} while (0)

// A verb that must return 0; what it returns otherwise is an errno.
#define OK(call)                                                                                                                 \
	do {                                                                                                                     \
		int ret_ = (call);                                                                                               \
		if (ret_)                                                                                                        \
			FAIL("%s returns %d (%s)", #call, ret_, strerror(ret_ < 0 ? errno : ret_));                              \
	} while (0)

// A verb that must make something.
#define MADE(call)                                                                                                               \
	({                                                                                                                       \
		errno = 0;                                                                                                       \
		__typeof__(call) made_ = (call);                                                                                 \
		if (!made_)                                                                                                      \
			FAIL("%s makes nothing: %s", #call, strerror(errno));                                                    \
		made_;                                                                                                           \
	})

// A verb that must make nothing, and say why in errno.
#define REFUSED(call, why)                                                                                                       \
	do {                                                                                                                     \
		errno = 0;                                                                                                       \
		if (call)                                                                                                        \
			FAIL("%s is not refused", #call);                                                                        \
		if (errno != (why))                                                                                              \
			FAIL("%s is refused with %d (%s), not %s", #call, errno, strerror(errno), #why);                         \
	} while (0)

// The part of a test that begins; the last one printed is the one that failed.
#define PART(name) (printf("%s\n", name), fflush(stdout))

// Leaves the test out.
#define LEAVE_OUT(why)                                                                                                           \
	do {                                                                                                                     \
		printf("%s\n", why);                                                                                             \
		fflush(stdout);                                                                                                  \
		_exit(77);                                                                                                       \
	} while (0)

// ---- time ----

#define UNUSED __attribute__((unused))

// Long enough for the slowest machine; no test that passes waits for it.
#define LIMIT_MS 10000

static UNUSED uint64_t now_ms(void)
{
	struct timespec t;
	clock_gettime(CLOCK_MONOTONIC, &t);
	return (uint64_t)t.tv_sec * 1000 + (uint64_t)t.tv_nsec / 1000000;
}

// ---- two ends ----

#define MEMORY (1 << 20)
#define DEPTH 64
#define QKEY 0x11223344
#define ALL_RIGHTS (IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC)

struct end {
	struct ibv_context *context;
	struct ibv_pd *pd;
	struct ibv_comp_channel *channel;
	struct ibv_cq *cq;
	struct ibv_srq *srq; // of queue pairs that are made from now on, if there is one
	struct ibv_mr *mr;
	uint8_t *memory;
	struct ibv_qp *qp;
	union ibv_gid gid;
	int gid_index;
};

// The first GID that is an IPv4 address.
static UNUSED void find_gid(struct end *e)
{
	static const uint8_t mapped[12] = {[10] = 0xff, [11] = 0xff};
	for (int i = 0; i < 16; i++) {
		if (ibv_query_gid(e->context, 1, i, &e->gid))
			break;
		if (!memcmp(e->gid.raw, mapped, sizeof(mapped))) {
			e->gid_index = i;
			return;
		}
	}
	FAIL("no GID is an IPv4 address");
}

static UNUSED void open_end(struct end *e, int which)
{
	int count = 0;
	struct ibv_device **list = MADE(ibv_get_device_list(&count));
	if (count == 0)
		FAIL("there is no device");
	memset(e, 0, sizeof(*e));
	e->context = MADE(ibv_open_device(list[which < count ? which : count - 1]));
	ibv_free_device_list(list);
	find_gid(e);
	e->pd = MADE(ibv_alloc_pd(e->context));
	e->channel = MADE(ibv_create_comp_channel(e->context));
	e->cq = MADE(ibv_create_cq(e->context, 1024, e, e->channel, 0));
	CHECK(posix_memalign((void **)&e->memory, 4096, MEMORY) == 0);
	memset(e->memory, 0, MEMORY);
	e->mr = MADE(ibv_reg_mr(e->pd, e->memory, MEMORY, ALL_RIGHTS));
}

static UNUSED struct ibv_qp_init_attr qp_options(struct end *e, enum ibv_qp_type type)
{
	struct ibv_qp_init_attr init = {
		.send_cq = e->cq,
		.recv_cq = e->cq,
		.srq = e->srq,
		.qp_type = type,
		.cap = {.max_send_wr = DEPTH, .max_recv_wr = DEPTH, .max_send_sge = 4, .max_recv_sge = 4, .max_inline_data = 32},
	};
	return init;
}

static UNUSED struct ibv_qp *make_qp(struct end *e, enum ibv_qp_type type)
{
	struct ibv_qp_init_attr init = qp_options(e, type);
	return MADE(ibv_create_qp(e->pd, &init));
}

static UNUSED int to_init(struct ibv_qp *qp, int rights)
{
	struct ibv_qp_attr attr = {.qp_state = IBV_QPS_INIT, .pkey_index = 0, .port_num = 1, .qp_access_flags = rights, .qkey = QKEY};
	int mask = IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT;
	return ibv_modify_qp(qp, &attr, mask | (qp->qp_type == IBV_QPT_UD ? IBV_QP_QKEY : IBV_QP_ACCESS_FLAGS));
}

static UNUSED struct ibv_ah_attr path_to(const struct end *from, const struct end *to)
{
	struct ibv_ah_attr path = {
		.is_global = 1,
		.port_num = 1,
		.grh = {.dgid = to->gid, .sgid_index = from->gid_index, .hop_limit = 64},
	};
	return path;
}

// How patient a connection is.
struct patience {
	int timeout, retry, rnr_retry;
};

// 67 ms a try; a receiver without receives is waited for without end.
#define USUAL ((struct patience){14, 7, 7})

static UNUSED int to_rtr(struct ibv_qp *qp, const struct end *from, const struct end *to, uint32_t qpn)
{
	struct ibv_qp_attr attr = {
		.qp_state = IBV_QPS_RTR,
		.path_mtu = IBV_MTU_1024,
		.dest_qp_num = qpn,
		.rq_psn = 0xfffff0,
		.max_dest_rd_atomic = 4,
		.min_rnr_timer = 1,
		.ah_attr = path_to(from, to),
	};
	int mask = IBV_QP_STATE;
	if (qp->qp_type != IBV_QPT_UD)
		mask |= IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN;
	if (qp->qp_type == IBV_QPT_RC)
		mask |= IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER;
	return ibv_modify_qp(qp, &attr, mask);
}

static UNUSED int to_rts(struct ibv_qp *qp, struct patience p)
{
	struct ibv_qp_attr attr = {
		.qp_state = IBV_QPS_RTS,
		.sq_psn = 0xfffff0,
		.max_rd_atomic = 4,
		.timeout = p.timeout,
		.retry_cnt = p.retry,
		.rnr_retry = p.rnr_retry,
	};
	int mask = IBV_QP_STATE | IBV_QP_SQ_PSN;
	if (qp->qp_type == IBV_QPT_RC)
		mask |= IBV_QP_MAX_QP_RD_ATOMIC | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY;
	return ibv_modify_qp(qp, &attr, mask);
}

static UNUSED int to_state(struct ibv_qp *qp, enum ibv_qp_state state)
{
	struct ibv_qp_attr attr = {.qp_state = state};
	return ibv_modify_qp(qp, &attr, IBV_QP_STATE);
}

static UNUSED enum ibv_qp_state state_of(struct ibv_qp *qp)
{
	struct ibv_qp_attr attr;
	struct ibv_qp_init_attr init;
	OK(ibv_query_qp(qp, &attr, IBV_QP_STATE, &init));
	return attr.qp_state;
}

// Connects the queue pairs of both ends.
static UNUSED void connect_with(struct end e[2], int rights, struct patience p)
{
	for (int i = 0; i < 2; i++)
		OK(to_init(e[i].qp, rights));
	for (int i = 0; i < 2; i++)
		OK(to_rtr(e[i].qp, &e[i], &e[1 - i], e[1 - i].qp->qp_num));
	for (int i = 0; i < 2; i++)
		OK(to_rts(e[i].qp, p));
}

// New queue pairs at both ends, connected.
static UNUSED void connect_new(struct end e[2], enum ibv_qp_type type)
{
	for (int i = 0; i < 2; i++)
		e[i].qp = make_qp(&e[i], type);
	connect_with(e, ALL_RIGHTS, USUAL);
}

static UNUSED void open_both(struct end e[2])
{
	open_end(&e[0], 0);
	open_end(&e[1], 1);
}

static UNUSED void destroy_qps(struct end e[2])
{
	for (int i = 0; i < 2; i++)
		OK(ibv_destroy_qp(e[i].qp));
}

static UNUSED void close_end(struct end *e)
{
	OK(ibv_dereg_mr(e->mr));
	OK(ibv_destroy_cq(e->cq));
	OK(ibv_destroy_comp_channel(e->channel));
	OK(ibv_dealloc_pd(e->pd));
	OK(ibv_close_device(e->context));
	free(e->memory);
}

static UNUSED void close_both(struct end e[2])
{
	close_end(&e[0]);
	close_end(&e[1]);
}

// ---- work ----

static UNUSED struct ibv_sge at(const struct end *e, size_t offset, uint32_t length)
{
	struct ibv_sge sge = {.addr = (uintptr_t)e->memory + offset, .length = length, .lkey = e->mr->lkey};
	return sge;
}

static UNUSED int post_recv(struct ibv_qp *qp, uint64_t wr_id, struct ibv_sge sge)
{
	struct ibv_recv_wr wr = {.wr_id = wr_id, .sg_list = &sge, .num_sge = 1}, *bad;
	return ibv_post_recv(qp, &wr, &bad);
}

static UNUSED struct ibv_send_wr work(enum ibv_wr_opcode opcode, uint64_t wr_id, struct ibv_sge *sge)
{
	struct ibv_send_wr wr = {.wr_id = wr_id, .sg_list = sge, .num_sge = 1, .opcode = opcode, .send_flags = IBV_SEND_SIGNALED};
	return wr;
}

static UNUSED int post(struct ibv_qp *qp, struct ibv_send_wr *wr)
{
	struct ibv_send_wr *bad;
	return ibv_post_send(qp, wr, &bad);
}

static UNUSED int post_send(struct ibv_qp *qp, uint64_t wr_id, struct ibv_sge sge)
{
	struct ibv_send_wr wr = work(IBV_WR_SEND, wr_id, &sge);
	return post(qp, &wr);
}

// WRITE, READ: to or from memory that a key is for.
static UNUSED int post_rdma(struct ibv_qp *qp, enum ibv_wr_opcode op, uint64_t wr_id, struct ibv_sge sge, uint64_t to, uint32_t rkey)
{
	struct ibv_send_wr wr = work(op, wr_id, &sge);
	wr.wr.rdma.remote_addr = to;
	wr.wr.rdma.rkey = rkey;
	return post(qp, &wr);
}

static UNUSED uint64_t address(const struct end *e, size_t offset)
{
	return (uintptr_t)e->memory + offset;
}

// The next completion, whatever it is.
#define NEXT(cq) next_completion(cq, __FILE__, __LINE__)

static UNUSED struct ibv_wc next_completion(struct ibv_cq *cq, const char *file, int line)
{
	uint64_t end = now_ms() + LIMIT_MS;
	struct ibv_wc wc;
	for (;;) {
		int n = ibv_poll_cq(cq, 1, &wc);
		if (n == 1)
			return wc;
		if (n < 0 || now_ms() > end) {
			fprintf(stderr, "%s:%d: %s\n", file, line, n < 0 ? "ibv_poll_cq fails" : "no completion comes");
			_exit(1);
		}
		sched_yield();
	}
}

// The next completion, which must be this one.
#define DONE(cq, id, must)                                                                                                       \
	({                                                                                                                       \
		struct ibv_wc wc_ = NEXT(cq);                                                                                    \
		if (wc_.wr_id != (uint64_t)(id) || wc_.status != (must))                                                         \
			FAIL("work request %lld ends with %s (%d), not %lld with %s", (long long)wc_.wr_id,                      \
			     ibv_wc_status_str(wc_.status), wc_.status, (long long)(id), #must);                                 \
		wc_;                                                                                                             \
	})

// No completion comes for so long.
#define NOTHING(cq, ms)                                                                                                          \
	do {                                                                                                                     \
		struct ibv_wc wc_;                                                                                               \
		for (uint64_t end_ = now_ms() + (ms); now_ms() < end_; sched_yield())                                            \
			if (ibv_poll_cq(cq, 1, &wc_) != 0)                                                                       \
				FAIL("a completion comes: work request %lld, %s", (long long)wc_.wr_id,                          \
				     ibv_wc_status_str(wc_.status));                                                             \
	} while (0)

// Bytes that no other place or number has.
static UNUSED void fill(uint8_t *to, size_t length, unsigned seed)
{
	uint32_t x = seed * 2654435761u + 1;
	for (size_t i = 0; i < length; i++) {
		x = x * 1664525u + 1013904223u;
		to[i] = x >> 24;
	}
}

static UNUSED int same(const uint8_t *is, size_t length, unsigned seed)
{
	uint32_t x = seed * 2654435761u + 1;
	for (size_t i = 0; i < length; i++) {
		x = x * 1664525u + 1013904223u;
		if (is[i] != x >> 24)
			return 0;
	}
	return 1;
}

// A SEND from the first end arrives at the second: the connection works.
static UNUSED void exchange(struct end e[2], unsigned seed)
{
	fill(e[0].memory, 3000, seed);
	memset(e[1].memory, 0, 3000);
	OK(post_recv(e[1].qp, 1000 + seed, at(&e[1], 0, 4096)));
	OK(post_send(e[0].qp, seed, at(&e[0], 0, 3000)));
	DONE(e[0].cq, seed, IBV_WC_SUCCESS);
	struct ibv_wc wc = DONE(e[1].cq, 1000 + seed, IBV_WC_SUCCESS);
	EQ(wc.byte_len, 3000);
	CHECK(same(e[1].memory, 3000, seed));
}

#endif
