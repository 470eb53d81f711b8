// SDR-RDMA by softnic_sdr.h: messages at once and in parts, bitmaps, immediates, and what is refused.
// link: -libverbs -ldl

#define _GNU_SOURCE
#include "sdr.h"

static void at_once(struct end e[2], struct sdr s[2])
{
	PART("messages at once, more than there are slots");
	for (unsigned n = 0; n < 10; n++) {
		fill(e[0].memory, LENGTH, n);
		struct softnic_sdr_recv *recv = posted(&e[1], &s[1], LENGTH);
		struct softnic_sdr_send_wr wr = {
			.comp_mask = SOFTNIC_SDR_WR_IMM, .mr = s[0].mr, .addr = e[0].memory, .length = LENGTH, .imm = 0xdeadbe00 + n};
		struct softnic_sdr_send *send = NULL;
		OK(send_post(s[0].qp, &wr, &send));
		until_full(recv, 100);
		CHECK(same(e[1].memory, LENGTH, n));
		uint32_t imm = 0;
		OK(recv_imm_get(recv, &imm));
		EQ(imm, 0xdeadbe00 + n);
		until_left(send);
		EQ(send_poll(send), ENOENT);
		OK(recv_complete(recv));
		EQ(recv_complete(recv), ENOENT);
		EQ(recv_imm_get(recv, &imm), ENOENT);
	}
	PART("a message without bytes, whose immediate goes by itself, and no handle of it");
	struct softnic_sdr_recv *recv = posted(&e[1], &s[1], 0);
	uint32_t imm = 7;
	EQ(recv_imm_get(recv, &imm), EAGAIN);
	struct softnic_sdr_send_wr wr = {.comp_mask = SOFTNIC_SDR_WR_IMM, .mr = s[0].mr, .imm = 0x12345678};
	OK(send_post(s[0].qp, &wr, NULL));
	until_full(recv, 1);
	for (uint64_t end = now_ms() + LIMIT_MS; recv_imm_get(recv, &imm) == EAGAIN; sched_yield())
		CHECK(now_ms() < end);
	EQ(imm, 0x12345678);
	OK(recv_complete(recv));
}

static void in_parts(struct end e[2], struct sdr s[2])
{
	PART("a stream of chunks, the last one first, each twice");
	fill(e[0].memory, LENGTH, 77);
	struct softnic_sdr_recv *recv = posted(&e[1], &s[1], LENGTH);
	const uint64_t *bitmap;
	size_t chunks;
	OK(recv_bitmap_get(recv, &bitmap, &chunks));
	struct softnic_sdr_start_wr wr = {.comp_mask = SOFTNIC_SDR_WR_IMM, .length = LENGTH, .imm = 42};
	struct softnic_sdr_send *stream = NULL;
	OK(send_stream_start(s[0].qp, &wr, &stream));
	for (int time = 0; time < 2; time++)
		for (int chunk = 99; chunk >= 0; chunk--) {
			if (time == 0 && chunk == 50)
				continue;
			OK(part(stream, &s[0], &e[0], chunk * CHUNK, chunk == 99 ? CHUNK - 1000 : CHUNK));
			if (time == 0 && chunk == 0) {
				until_left(stream);
				for (uint64_t end = now_ms() + LIMIT_MS; !softnic_sdr_bitmap_is_set(bitmap, 0); sched_yield())
					CHECK(now_ms() < end);
				CHECK(same(e[0].memory, LENGTH, 77) && !memcmp(e[1].memory, e[0].memory, CHUNK));
				CHECK(!softnic_sdr_bitmap_is_set(bitmap, 50) && !softnic_sdr_bitmap_is_full(bitmap, chunks));
			}
		}
	PART("what is no part, and a stream that has ended");
	EQ(part(stream, &s[0], &e[0], 100, MTU), EINVAL);
	EQ(part(stream, &s[0], &e[0], 0, 100), EINVAL);
	EQ(part(stream, &s[0], &e[0], 100 * CHUNK, MTU), EINVAL);
	OK(send_stream_end(stream));
	EQ(send_stream_end(stream), EINVAL);
	EQ(part(stream, &s[0], &e[0], 0, MTU), EINVAL);
	until_left(stream);
	EQ(send_stream_end(stream), ENOENT);
	until_full(recv, 100);
	CHECK(same(e[1].memory, LENGTH, 77));
	uint32_t imm = 0;
	OK(recv_imm_get(recv, &imm));
	EQ(imm, 42);
	OK(recv_complete(recv));
}

static void refused_attributes(struct sdr *s)
{
	PART("attributes that do not fit together");
	struct softnic_sdr_qp_attr wrong[] = {
		{.comp_mask = 1},
		{.reserved = 1},
		{.flags = 4},
		{.mtu = IBV_MTU_1024, .chunk = 1500},
		{.mtu = 6},
		{.message_bits = 10, .packet_bits = 10, .user_bits = 10},
		{.message_bits = 28, .packet_bits = 4},
		{.slots = 2000},
		{.generations = 17},
		{.channels = 300},
		{.send_depth = 1 << 20},
		{.max_message = 2ull << 40},
	};
	for (size_t i = 0; i < sizeof(wrong) / sizeof(*wrong); i++)
		REFUSED(qp_create(s->context, &wrong[i]), EINVAL);
	REFUSED(qp_create(NULL, NULL), EINVAL);
	REFUSED(mr_reg(s->context, (void *)4096, 4096, 0), EFAULT);
	REFUSED(mr_reg(s->context, NULL, 4096, 0), EINVAL);
	REFUSED(mr_reg(s->context, NULL, 0, 1 << 15), EINVAL);
	struct softnic_sdr_qp *largest = MADE(qp_create(s->context, &(struct softnic_sdr_qp_attr){.generations = 16, .channels = 16}));
	size_t len = 0;
	EQ(qp_info_get(largest, NULL, &len), ERANGE);
	EQ(len, SOFTNIC_SDR_QP_INFO_MAX);
	OK(qp_destroy(largest));
}

static void refused_connections(struct end e[2], struct sdr s[2])
{
	PART("information that is none, or of a peer that does not fit");
	struct softnic_sdr_qp *qp = MADE(qp_create(s[0].context, &usual));
	uint8_t info[SOFTNIC_SDR_QP_INFO_MAX + 1];
	size_t len = 39;
	EQ(qp_info_get(qp, info, &len), ERANGE);
	const size_t needed = len;
	OK(qp_info_get(qp, info, &len));
	EQ(len, needed);
	struct ibv_ah_attr path = path_to(&e[0], &e[1]), local = {.port_num = 1};
	EQ(qp_connect(qp, info, len - 1, &path), EINVAL);
	EQ(qp_connect(qp, info, len + 1, &path), EINVAL);
	EQ(qp_connect(qp, info, 0, &path), EINVAL);
	EQ(qp_connect(qp, NULL, len, &path), EINVAL);
	EQ(qp_connect(qp, info, len, &local), EINVAL);
	info[0] ^= 0xff;
	EQ(qp_connect(qp, info, len, &path), EINVAL);
	len = sizeof(info);
	struct softnic_sdr_qp *other = MADE(qp_create(s[0].context, &(struct softnic_sdr_qp_attr){.mtu = IBV_MTU_512}));
	OK(qp_info_get(other, info, &len));
	EQ(qp_connect(qp, info, len, &path), EINVAL);
	OK(qp_destroy(other));

	PART("a queue pair that is not connected");
	struct softnic_sdr_send_wr wr = {.mr = s[0].mr, .addr = e[0].memory, .length = 100};
	struct softnic_sdr_start_wr start = {.length = 100};
	struct softnic_sdr_send *send;
	EQ(send_post(qp, &wr, &send), ENOTCONN);
	EQ(send_stream_start(qp, &start, &send), ENOTCONN);
	OK(qp_destroy(qp));
	EQ(send_post(qp, &wr, &send), ENOENT);
	EQ(qp_destroy(qp), ENOENT);
	len = sizeof(info);
	OK(qp_info_get(s[1].qp, info, &len));
	EQ(qp_connect(s[0].qp, info, len, &path), EISCONN);
}

static void refused_messages(struct end e[2], struct sdr s[2])
{
	PART("messages that cannot be");
	struct softnic_sdr_send_wr good = {.mr = s[0].mr, .addr = e[0].memory, .length = 100}, wr = good;
	struct softnic_sdr_send *send = NULL;
	wr.comp_mask = 2;
	EQ(send_post(s[0].qp, &wr, &send), EINVAL);
	wr = good, wr.reserved = 1;
	EQ(send_post(s[0].qp, &wr, &send), EINVAL);
	wr = good, wr.addr = e[0].memory + MEMORY - 99;
	EQ(send_post(s[0].qp, &wr, &send), EINVAL);
	wr = good, wr.addr = e[0].memory - 1;
	EQ(send_post(s[0].qp, &wr, &send), EINVAL);
	wr = good, wr.mr = NULL;
	EQ(send_post(s[0].qp, &wr, &send), EINVAL);
	wr = good, wr.mr = s[1].mr;
	EQ(send_post(s[0].qp, &wr, &send), EINVAL);
	EQ(send_stream_start(s[0].qp, &(struct softnic_sdr_start_wr){.comp_mask = 2}, &send), EINVAL);
	EQ(send_stream_start(s[0].qp, &(struct softnic_sdr_start_wr){.length = MEMORY + 1}, &send), EMSGSIZE);
	EQ(send_poll(NULL), EINVAL);
	CHECK(send == NULL);

	PART("receives that cannot be");
	struct softnic_sdr_recv_wr to = {.mr = s[1].mr, .addr = e[1].memory, .length = 100};
	struct softnic_sdr_recv *recv = NULL, *all[4];
	to.comp_mask = 1;
	EQ(recv_post(s[1].qp, &to, &recv), EINVAL);
	to.comp_mask = 0, to.length = MEMORY + 1;
	EQ(recv_post(s[1].qp, &to, &recv), EINVAL);
	to.length = 100, to.mr = MADE(mr_reg(s[1].context, e[1].memory, 4096, 0));
	EQ(recv_post(s[1].qp, &to, &recv), EACCES);
	OK(mr_dereg(to.mr));
	EQ(recv_post(s[1].qp, &to, &recv), ENOENT);
	CHECK(recv == NULL);
	for (int i = 0; i < 4; i++)
		all[i] = posted(&e[1], &s[1], 100);
	to.mr = s[1].mr;
	EQ(recv_post(s[1].qp, &to, &recv), ENOMEM);
	EQ(mr_dereg(s[1].mr), EBUSY);
	EQ(context_destroy(s[1].context), EBUSY);

	PART("a queue pair that goes takes along what is left of it");
	// There are receives for four.
	for (int i = 0; i < 5; i++)
		OK(send_post(s[0].qp, &good, &send));
	EQ(send_poll(send), EAGAIN);
	destroy_sdr(s);
	EQ(send_poll(send), ENOENT);
	EQ(recv_complete(all[0]), ENOENT);
}

static void without_immediates(struct end e[2], struct sdr s[2])
{
	PART("a receiver that takes no immediates, and only short messages");
	struct softnic_sdr_qp_attr attr = {.max_message = 10000, .message_bits = 10, .packet_bits = 22};
	make_sdr(e, s, &attr);
	struct softnic_sdr_send_wr wr = {.comp_mask = SOFTNIC_SDR_WR_IMM, .mr = s[0].mr, .addr = e[0].memory, .length = 100};
	struct softnic_sdr_recv_wr to = {.mr = s[1].mr, .addr = e[1].memory, .length = 10001};
	struct softnic_sdr_recv *recv = NULL;
	EQ(send_post(s[0].qp, &wr, NULL), EOPNOTSUPP);
	wr.comp_mask = 0, wr.length = 10001;
	EQ(send_post(s[0].qp, &wr, NULL), EMSGSIZE);
	EQ(recv_post(s[1].qp, &to, &recv), EMSGSIZE);
	destroy_sdr(s);
}

// Memory that is deregistered under a message that waits.
static void memory_that_goes(struct end e[2], struct sdr s[2])
{
	PART("memory that goes before its message has left");
	make_sdr(e, s, &usual);
	struct softnic_sdr_send_wr wr = {.mr = MADE(mr_reg(s[0].context, e[0].memory, 4096, 0)), .addr = e[0].memory, .length = 4096};
	struct softnic_sdr_send *send = NULL;
	OK(send_post(s[0].qp, &wr, &send));
	OK(mr_dereg(wr.mr));
	struct softnic_sdr_recv *recv = posted(&e[1], &s[1], 4096);
	int left;
	for (uint64_t end = now_ms() + LIMIT_MS; (left = send_poll(send)) == EAGAIN; sched_yield())
		CHECK(now_ms() < end);
	EQ(left, EIO);
	EQ(send_poll(send), ENOENT);
	OK(recv_complete(recv));
	destroy_sdr(s);
}

// A device that is closed takes along what the program forgot.
static void forgotten(struct end e[2], struct sdr s[2])
{
	PART("one context for a NIC");
	REFUSED(context_create(e[0].context, NULL), EBUSY);
	REFUSED(context_create(NULL, NULL), EINVAL);
	REFUSED(context_create(e[0].context, &(struct softnic_sdr_context_attr){.comp_mask = 1}), EINVAL);
	OK(mr_dereg(s[0].mr));
	OK(context_destroy(s[0].context));
	EQ(context_destroy(s[0].context), ENOENT);

	PART("a device that is closed takes along what is left");
	struct end again = e[0];
	again.context = MADE(ibv_open_device(e[0].context->device));
	struct sdr left = {.context = MADE(context_create(again.context, NULL))};
	left.qp = MADE(qp_create(left.context, NULL));
	left.mr = MADE(mr_reg(left.context, e[0].memory, MEMORY, ALL_RIGHTS));
	struct softnic_sdr_recv *recv = posted(&again, &left, 4096);
	OK(ibv_close_device(again.context));
	EQ(recv_complete(recv), ENOENT);
	EQ(mr_dereg(left.mr), ENOENT);
	EQ(qp_destroy(left.qp), ENOENT);
	EQ(context_destroy(left.context), ENOENT);

	PART("and all begins anew, by defaults");
	s[0].context = MADE(context_create(e[0].context, &(struct softnic_sdr_context_attr){.comp_mask = 0}));
	s[0].mr = MADE(mr_reg(s[0].context, e[0].memory, MEMORY, 0));
	make_sdr(e, s, NULL);
	fill(e[0].memory, MEMORY, 5);
	recv = posted(&e[1], &s[1], MEMORY);
	OK(send_post(s[0].qp, &(struct softnic_sdr_send_wr){.mr = s[0].mr, .addr = e[0].memory, .length = MEMORY}, NULL));
	until_full(recv, MEMORY / 65536);
	CHECK(same(e[1].memory, MEMORY, 5));
	OK(recv_complete(recv));
	destroy_sdr(s);
}

int main(void)
{
	find_calls();
	struct end e[2];
	struct sdr s[2];
	open_sdr(e, s);
	make_sdr(e, s, &usual);
	at_once(e, s);
	in_parts(e, s);
	refused_attributes(&s[0]);
	refused_connections(e, s);
	refused_messages(e, s);
	without_immediates(e, s);
	memory_that_goes(e, s);
	forgotten(e, s);
	OK(mr_dereg(NULL));
	OK(qp_destroy(NULL));
	OK(context_destroy(NULL));
	close_sdr(e, s);
	return 0;
}
