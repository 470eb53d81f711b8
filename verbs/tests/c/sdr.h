// What the tests of softnic_sdr.h share: its calls, two ends that are connected, receives and sends that are waited for.

#ifndef SOFTNIC_TESTS_SDR_H
#define SOFTNIC_TESTS_SDR_H

#include <dlfcn.h>
#include <sys/mman.h>

#include "../../include/softnic_sdr.h"
#include "common.h"

#define CALLS(CALL)                                                                                                              \
	CALL(context_create) CALL(context_destroy) CALL(qp_create) CALL(qp_destroy) CALL(qp_info_get) CALL(qp_connect)           \
	CALL(qp_number_get) CALL(qp_meet) CALL(qp_is_met) CALL(qp_counters_get) CALL(mr_reg) CALL(mr_dereg) CALL(send_stream_start) CALL(send_stream_continue) CALL(send_stream_end) CALL(send_post)     \
	CALL(send_poll) CALL(recv_post) CALL(recv_bitmap_get) CALL(recv_imm_get) CALL(recv_complete)                   \
	CALL(reliable_create) CALL(reliable_write) CALL(reliable_receive) CALL(reliable_poll) CALL(reliable_counters_get)

#define DECLARE(name) static UNUSED __typeof__(softnic_sdr_##name) *name;
CALLS(DECLARE)

#define MTU 1024
#define CHUNK 4096
#define LENGTH (100 * CHUNK - 1000)

// One end: what SDR-RDMA has beside `struct end`.
struct sdr {
	struct softnic_sdr_context *context;
	struct softnic_sdr_qp *qp;
	struct softnic_sdr_mr *mr;
};

static UNUSED const struct softnic_sdr_qp_attr usual = {.chunk = CHUNK, .mtu = IBV_MTU_1024, .max_message = MEMORY, .slots = 4, .channels = 2};

static UNUSED void find_calls(void)
{
#define FIND(name)                                                                                                               \
	if (!(name = (__typeof__(name))dlsym(RTLD_DEFAULT, "softnic_sdr_" #name)))                                               \
		LEAVE_OUT("there is no softnic_sdr");
	CALLS(FIND)
}

static UNUSED void connect_sdr(struct end e[2], struct sdr s[2])
{
	for (int i = 0; i < 2; i++) {
		uint8_t info[SOFTNIC_SDR_QP_INFO_MAX];
		size_t len = sizeof(info);
		OK(qp_info_get(s[1 - i].qp, info, &len));
		struct ibv_ah_attr path = path_to(&e[i], &e[1 - i]);
		OK(qp_connect(s[i].qp, info, len, &path));
	}
}

static UNUSED void make_sdr(struct end e[2], struct sdr s[2], const struct softnic_sdr_qp_attr *attr)
{
	for (int i = 0; i < 2; i++)
		s[i].qp = MADE(qp_create(s[i].context, attr));
	connect_sdr(e, s);
}

static UNUSED void destroy_sdr(struct sdr s[2])
{
	for (int i = 0; i < 2; i++)
		OK(qp_destroy(s[i].qp));
}

static UNUSED struct softnic_sdr_recv *posted(struct end *e, struct sdr *s, size_t length)
{
	struct softnic_sdr_recv_wr wr = {.mr = s->mr, .addr = e->memory, .length = length};
	struct softnic_sdr_recv *recv = NULL;
	memset(e->memory, 0, length);
	OK(recv_post(s->qp, &wr, &recv));
	return recv;
}

// Waits for all chunks, by memory alone: some thread of the NIC sets the bits.
static UNUSED void until_full(struct softnic_sdr_recv *recv, size_t must)
{
	const uint64_t *bitmap = NULL;
	size_t chunks = 0;
	OK(recv_bitmap_get(recv, &bitmap, &chunks));
	EQ(chunks, must);
	for (uint64_t end = now_ms() + LIMIT_MS; !softnic_sdr_bitmap_is_full(bitmap, chunks); sched_yield())
		if (now_ms() > end)
			FAIL("the first chunks are %llx", (unsigned long long)bitmap[0]);
}

static UNUSED void until_left(struct softnic_sdr_send *send)
{
	int left;
	for (uint64_t end = now_ms() + LIMIT_MS; (left = send_poll(send)) == EAGAIN; sched_yield())
		CHECK(now_ms() < end);
	OK(left);
}

static UNUSED void open_sdr(struct end e[2], struct sdr s[2])
{
	open_both(e);
	for (int i = 0; i < 2; i++) {
		s[i] = (struct sdr){.context = MADE(context_create(e[i].context, NULL))};
		s[i].mr = MADE(mr_reg(s[i].context, e[i].memory, MEMORY, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE));
	}
}

static UNUSED void close_sdr(struct end e[2], struct sdr s[2])
{
	for (int i = 0; i < 2; i++) {
		OK(mr_dereg(s[i].mr));
		OK(context_destroy(s[i].context));
	}
	close_both(e);
}

static UNUSED int part(struct softnic_sdr_send *send, struct sdr *s, struct end *e, size_t offset, size_t length)
{
	struct softnic_sdr_continue_wr wr = {.mr = s->mr, .addr = e->memory + offset, .length = length, .offset = offset};
	return send_stream_continue(send, &wr);
}

// What the library says on stderr.

static UNUSED int kept_stderr, heard;

static UNUSED void listen_to_stderr(void)
{
	fflush(stderr);
	kept_stderr = dup(2);
	heard = memfd_create("stderr", 0);
	CHECK(kept_stderr >= 0 && heard >= 0 && dup2(heard, 2) == 2);
}

// The only line that was said since.
static UNUSED void said(const char *must)
{
	char line[1000] = "";
	CHECK(dup2(kept_stderr, 2) == 2);
	ssize_t length = pread(heard, line, sizeof(line) - 1, 0);
	close(kept_stderr);
	close(heard);
	if (length < 0 || strcmp(line, must))
		FAIL("it says `%s`, not `%s`", line, must);
}

#endif
