// The program behind shift-verbs, shift-latency and shift-memory: two ends in one process, which use nothing but exported verbs, on devices
// with a backup or without. `softnic run --dev mem [--backup mem] -- program MODE …`. Each line of its output is a name and a figure.
//
//   verbs LIVES BATCHES POLLS      nanoseconds of verbs: LIVES times each control verb; the data verbs in batches; the time until the backup is there
//   latency COUNT IDLE             nanoseconds of WRITEs of 1 to 16 bytes to and fro, half a round trip, beside IDLE connections
//   memory COUNT                   bytes that COUNT completion queues, and as many queue pairs, of both ends take
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <malloc.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "softnicdv.h"

// ---- memory: all of the program and of the library comes from here ----

extern void *__libc_malloc(size_t), *__libc_calloc(size_t, size_t), *__libc_realloc(void *, size_t), *__libc_memalign(size_t, size_t);
extern void __libc_free(void *);
static atomic_llong live;

static void *counted(void *made)
{
	if (made)
		live += (long long)malloc_usable_size(made);
	return made;
}

void *malloc(size_t size)
{
	return counted(__libc_malloc(size));
}

void *calloc(size_t count, size_t size)
{
	return counted(__libc_calloc(count, size));
}

void *realloc(void *old, size_t size)
{
	if (old)
		live -= (long long)malloc_usable_size(old);
	return counted(__libc_realloc(old, size));
}

void *aligned_alloc(size_t align, size_t size)
{
	return counted(__libc_memalign(align, size));
}

int posix_memalign(void **made, size_t align, size_t size)
{
	*made = counted(__libc_memalign(align, size));
	return *made ? 0 : ENOMEM;
}

void free(void *old)
{
	if (old)
		live -= (long long)malloc_usable_size(old);
	__libc_free(old);
}

// ---- checks and time ----

#define OK(what)                                                                                                                 \
	do {                                                                                                                     \
		if (!(what)) {                                                                                                   \
			fprintf(stderr, "%s fails: %s\n", #what, strerror(errno));                                               \
			exit(1);                                                                                                 \
		}                                                                                                                \
	} while (0)

static uint64_t now(void)
{
	struct timespec t;
	clock_gettime(CLOCK_MONOTONIC, &t);
	return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

// Each verb begins alike, with the machine's caches as others left them, and with what the last verb left to do in the background done.
static void pause_a_little(void)
{
	nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
}

// Times one call, and prints what it took.
#define TIMED(name, call)                                                                                                        \
	do {                                                                                                                     \
		pause_a_little();                                                                                                \
		uint64_t begin_ = now();                                                                                         \
		__typeof__(call) result_ = (call);                                                                               \
		printf("%s %llu\n", name, (unsigned long long)(now() - begin_));                                                 \
		OK(result_ == 0);                                                                                                \
	} while (0)
#define TIMED_MAKE(name, to, call)                                                                                               \
	do {                                                                                                                     \
		pause_a_little();                                                                                                \
		uint64_t begin_ = now();                                                                                         \
		(to) = (call);                                                                                                   \
		printf("%s %llu\n", name, (unsigned long long)(now() - begin_));                                                 \
		OK(to);                                                                                                          \
	} while (0)

static int by_size(const void *a, const void *b)
{
	uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
	return x < y ? -1 : x > y;
}

static uint64_t *room(size_t count)
{
	uint64_t *times = calloc(count, sizeof(*times));
	OK(times);
	return times;
}

// The tenth percentile: what else the machine does while one of them is timed is in the others.
static double undisturbed(uint64_t *times, size_t count)
{
	qsort(times, count, sizeof(*times), by_size);
	return (double)times[count / 10];
}

// ---- two ends ----

enum { BUFFER = 1 << 16, BATCH = 64 };

struct end {
	struct ibv_context *context;
	struct ibv_pd *pd;
	struct ibv_cq *cq;
	struct ibv_mr *mr;
	struct ibv_qp *qp;
	union ibv_gid gid;
	int gid_index;
	uint8_t *memory;
};

static int backed_up;
// The installed libibverbs has it not, and that is what the program is linked with.
static __typeof__(softnicdv_query_qp) *query_dv;

static struct ibv_device **devices(void)
{
	int count;
	struct ibv_device **list = ibv_get_device_list(&count);
	OK(list && count >= 2);
	return list;
}

// The first GID that is an IPv4 address.
static void find_gid(struct end *e)
{
	static const uint8_t mapped[12] = {[10] = 0xff, [11] = 0xff};
	for (e->gid_index = 0;; e->gid_index++) {
		OK(!ibv_query_gid(e->context, 1, e->gid_index, &e->gid));
		if (!memcmp(e->gid.raw, mapped, sizeof(mapped)))
			return;
	}
}

static struct ibv_qp_init_attr init_attr(struct ibv_cq *cq, uint32_t sends, uint32_t receives)
{
	return (struct ibv_qp_init_attr){
		.send_cq = cq,
		.recv_cq = cq,
		.qp_type = IBV_QPT_RC,
		.cap = {.max_send_wr = sends, .max_recv_wr = receives, .max_send_sge = 1, .max_recv_sge = 1, .max_inline_data = 16},
	};
}

static int to_init(struct ibv_qp *qp)
{
	struct ibv_qp_attr attr = {.qp_state = IBV_QPS_INIT, .port_num = 1};
	attr.qp_access_flags = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ;
	return ibv_modify_qp(qp, &attr, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS);
}

static int to_rtr(struct ibv_qp *qp, const struct end *from, const struct end *to, uint32_t peer)
{
	struct ibv_qp_attr attr = {
		.qp_state = IBV_QPS_RTR,
		.path_mtu = IBV_MTU_1024,
		.dest_qp_num = peer,
		.max_dest_rd_atomic = 4,
		.min_rnr_timer = 1,
		.ah_attr = {.is_global = 1, .port_num = 1, .grh = {.dgid = to->gid, .sgid_index = from->gid_index, .hop_limit = 64}},
	};
	return ibv_modify_qp(qp, &attr,
			     IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
				     IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER);
}

static int to_rts(struct ibv_qp *qp)
{
	struct ibv_qp_attr attr = {.qp_state = IBV_QPS_RTS, .max_rd_atomic = 4, .timeout = 14, .retry_cnt = 7, .rnr_retry = 7};
	return ibv_modify_qp(qp, &attr,
			     IBV_QP_STATE | IBV_QP_SQ_PSN | IBV_QP_MAX_QP_RD_ATOMIC | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT |
				     IBV_QP_RNR_RETRY);
}

// Waits until the queue pair has its backup, where its device has one.
static void await_backup(struct ibv_qp *qp)
{
	struct softnicdv_qp_attr attr = {.comp_mask = SOFTNICDV_QP_ATTR_FAILOVER};
	for (uint64_t end = now() + 60000000000u; backed_up; sched_yield()) {
		OK(query_dv(qp, &attr) == 0 && now() < end);
		if (attr.protection == SOFTNICDV_PROTECTION_PROTECTED)
			return;
	}
}

static void set_up(struct end *e)
{
	find_gid(e);
	OK(e->pd = ibv_alloc_pd(e->context));
	OK(posix_memalign((void **)&e->memory, 4096, BUFFER) == 0);
	memset(e->memory, 0, BUFFER);
	int rights = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ;
	OK(e->mr = ibv_reg_mr(e->pd, e->memory, BUFFER, rights));
	OK(e->cq = ibv_create_cq(e->context, 1024, NULL, NULL, 0));
}

// Connected queue pairs at both ends.
static void connect_qps(struct end e[2], struct ibv_qp *qps[2])
{
	for (int i = 0; i < 2; i++)
		OK(!to_init(qps[i]) && !to_rtr(qps[i], &e[i], &e[1 - i], qps[1 - i]->qp_num) && !to_rts(qps[i]));
}

static void make_connected(struct end e[2])
{
	struct ibv_qp *qps[2];
	for (int i = 0; i < 2; i++) {
		struct ibv_qp_init_attr init = init_attr(e[i].cq, 2 * BATCH, 2 * BATCH);
		OK(qps[i] = e[i].qp = ibv_create_qp(e[i].pd, &init));
	}
	connect_qps(e, qps);
}

// ---- verbs ----

// Each control verb once. The other end does the same before, untimed.
static void control_verbs(struct end *e, struct end *peer)
{
	struct ibv_qp_attr attr;
	struct ibv_qp_init_attr init;
	int rights = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ;
	set_up(peer);
	init = init_attr(peer->cq, 512, 256);
	OK(peer->qp = ibv_create_qp(peer->pd, &init));
	OK(!to_init(peer->qp));
	OK(posix_memalign((void **)&e->memory, 4096, BUFFER) == 0);
	find_gid(e);
	TIMED_MAKE("alloc_pd", e->pd, ibv_alloc_pd(e->context));
	TIMED_MAKE("reg_mr", e->mr, ibv_reg_mr(e->pd, e->memory, BUFFER, rights));
	TIMED_MAKE("create_cq", e->cq, ibv_create_cq(e->context, 512, NULL, NULL, 0));
	init = init_attr(e->cq, 512, 256);
	TIMED_MAKE("create_qp", e->qp, ibv_create_qp(e->pd, &init));
	TIMED("modify_qp INIT", to_init(e->qp));
	OK(!to_rtr(peer->qp, peer, e, e->qp->qp_num) && !to_rts(peer->qp));
	TIMED("modify_qp RTR", to_rtr(e->qp, e, peer, peer->qp->qp_num));
	uint64_t begin = now();
	await_backup(e->qp);
	await_backup(peer->qp);
	if (backed_up)
		printf("backup ready %llu\n", (unsigned long long)(now() - begin));
	TIMED("modify_qp RTS", to_rts(e->qp));
	TIMED("query_qp", ibv_query_qp(e->qp, &attr, IBV_QP_STATE, &init));
	TIMED("destroy_qp", ibv_destroy_qp(e->qp));
	TIMED("destroy_cq", ibv_destroy_cq(e->cq));
	TIMED("dereg_mr", ibv_dereg_mr(e->mr));
	TIMED("dealloc_pd", ibv_dealloc_pd(e->pd));
	OK(!ibv_destroy_qp(peer->qp) && !ibv_destroy_cq(peer->cq) && !ibv_dereg_mr(peer->mr) && !ibv_dealloc_pd(peer->pd));
	free(e->memory);
	free(peer->memory);
}

static void drain(struct ibv_cq *cq, int count)
{
	struct ibv_wc wc[BATCH];
	while (count > 0) {
		int n = ibv_poll_cq(cq, BATCH, wc);
		OK(n >= 0);
		for (int i = 0; i < n; i++)
			OK(wc[i].status == IBV_WC_SUCCESS);
		count -= n;
	}
}

static void data_verbs(struct end e[2], size_t batches, size_t polls)
{
	for (int i = 0; i < 2; i++)
		set_up(&e[i]);
	make_connected(e);
	for (int i = 0; i < 2; i++)
		await_backup(e[i].qp);
	struct ibv_sge sges[2];
	for (int i = 0; i < 2; i++)
		sges[i] = (struct ibv_sge){.addr = (uintptr_t)e[i].memory, .length = 64, .lkey = e[i].mr->lkey};
	struct ibv_send_wr send = {.sg_list = &sges[0], .num_sge = 1, .opcode = IBV_WR_SEND, .send_flags = IBV_SEND_SIGNALED}, *bad;
	struct ibv_recv_wr recv = {.sg_list = &sges[1], .num_sge = 1}, *bad_recv;
	uint64_t *sends = room(batches), *receives = room(batches), *empty = room(polls / BATCH + 1);
	for (size_t at = 0; at < batches; at++) {
		uint64_t begin = now();
		for (int i = 0; i < BATCH; i++)
			OK(!ibv_post_recv(e[1].qp, &recv, &bad_recv));
		receives[at] = now() - begin;
		begin = now();
		for (int i = 0; i < BATCH; i++)
			OK(!ibv_post_send(e[0].qp, &send, &bad));
		sends[at] = now() - begin;
		drain(e[1].cq, BATCH);
		drain(e[0].cq, BATCH);
	}
	struct ibv_wc wc;
	size_t rounds = polls / BATCH;
	for (size_t at = 0; at < rounds; at++) {
		uint64_t begin = now();
		for (int i = 0; i < BATCH; i++)
			OK(ibv_poll_cq(e[0].cq, 1, &wc) == 0);
		empty[at] = now() - begin;
	}
	printf("post_send %.3f\n", undisturbed(sends, batches) / BATCH);
	printf("post_recv %.3f\n", undisturbed(receives, batches) / BATCH);
	printf("poll_cq %.3f\n", undisturbed(empty, rounds) / BATCH);
}

// ---- latency ----

// One WRITE, whose last byte says which it is; until it is there both ends take completions, which drives their NICs.
static void write_to(struct end *from, struct end *to, uint32_t bytes, uint8_t mark)
{
	struct ibv_sge sge = {.addr = (uintptr_t)from->memory, .length = bytes, .lkey = from->mr->lkey};
	struct ibv_send_wr *bad, wr = {
		.sg_list = &sge,
		.num_sge = 1,
		.opcode = IBV_WR_RDMA_WRITE,
		.send_flags = IBV_SEND_SIGNALED | IBV_SEND_INLINE,
		.wr.rdma = {.remote_addr = (uintptr_t)to->memory + BUFFER / 2, .rkey = to->mr->rkey},
	};
	volatile uint8_t *there = to->memory + BUFFER / 2 + bytes - 1;
	struct ibv_wc wc;
	from->memory[bytes - 1] = mark;
	OK(!ibv_post_send(from->qp, &wr, &bad));
	while (*there != mark)
		for (int i = 0; i < 2; i++) {
			int n = ibv_poll_cq(i ? to->cq : from->cq, 1, &wc);
			OK(n >= 0 && (n == 0 || wc.status == IBV_WC_SUCCESS));
		}
}

static void latency(struct end e[2], size_t count, int idle)
{
	for (int i = 0; i < 2; i++)
		set_up(&e[i]);
	for (int n = 0; n < idle; n++)
		make_connected(e);
	make_connected(e);
	for (int i = 0; i < 2; i++)
		await_backup(e[i].qp);
	for (uint32_t bytes = 1; bytes <= 16; bytes *= 2) {
		// What the last size left there is no mark of this one.
		for (int i = 0; i < 2; i++)
			memset(e[i].memory, 0, BUFFER);
		// A tenth more, to warm up.
		for (size_t i = 0; i < count + count / 10; i++) {
			uint8_t mark = (uint8_t)(i % 255 + 1);
			uint64_t begin = now();
			write_to(&e[0], &e[1], bytes, mark);
			write_to(&e[1], &e[0], bytes, mark);
			if (i >= count / 10)
				printf("%u %llu\n", bytes, (unsigned long long)(now() - begin) / 2);
		}
	}
}

// ---- memory ----

static void memory(struct end e[2], int count)
{
	struct ibv_cq **cqs = calloc((size_t)count * 2, sizeof(*cqs));
	struct ibv_qp **qps = calloc((size_t)count * 2, sizeof(*qps));
	OK(cqs && qps);
	for (int i = 0; i < 2; i++)
		set_up(&e[i]);
	// A connection to begin with: what there is once, for all.
	make_connected(e);
	for (int i = 0; i < 2; i++)
		await_backup(e[i].qp);
	long long before = live;
	for (int n = 0; n < 2 * count; n++)
		OK(cqs[n] = ibv_create_cq(e[n % 2].context, 512, NULL, NULL, 0));
	long long with_cqs = live;
	for (int n = 0; n < 2 * count; n++) {
		struct ibv_qp_init_attr init = init_attr(cqs[n], 512, 256);
		OK(qps[n] = ibv_create_qp(e[n % 2].pd, &init));
		if (n % 2)
			connect_qps(e, &qps[n - 1]);
	}
	for (int n = 0; n < 2 * count; n++)
		await_backup(qps[n]);
	long long with_qps = live;
	printf("cq %.3f\n", (double)(with_cqs - before) / (2.0 * count));
	printf("qp %.3f\n", (double)(with_qps - with_cqs) / (2.0 * count));
}

int main(int argc, char **argv)
{
	OK(argc >= 3);
	backed_up = getenv("SOFTNIC_BACKUP") != NULL;
	OK(query_dv = (__typeof__(query_dv))dlsym(RTLD_DEFAULT, "softnicdv_query_qp"));
	struct end e[2] = {0};
	struct ibv_device **list = devices();
	for (int i = 0; i < 2; i++)
		TIMED_MAKE("open_device", e[i].context, ibv_open_device(list[i]));
	if (!strcmp(argv[1], "verbs") && argc == 5) {
		for (int n = atoi(argv[2]); n > 0; n--)
			control_verbs(&e[0], &e[1]);
		data_verbs(e, (size_t)atoll(argv[3]), (size_t)atoll(argv[4]));
	} else if (!strcmp(argv[1], "latency") && argc == 4) {
		latency(e, (size_t)atoll(argv[2]), atoi(argv[3]));
	} else if (!strcmp(argv[1], "memory") && argc == 3) {
		memory(e, atoi(argv[2]));
	} else {
		fprintf(stderr, "no such mode\n");
		return 1;
	}
	return 0;
}
