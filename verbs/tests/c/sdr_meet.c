// SDR-RDMA by softnic_sdr.h: ends that find each other by a number, counters, flags, what is said of a refusal, memory that is used again.
// link: -libverbs -ldl

#define _GNU_SOURCE
#include "allocations.h"
#include "sdr.h"

static uint32_t number(struct sdr *s)
{
	uint32_t number = 0;
	OK(qp_number_get(s->qp, &number));
	CHECK(number > 1 && number < 0xffffff);
	return number;
}

static int meet(struct end e[2], struct sdr s[2], int i)
{
	struct ibv_ah_attr path = path_to(&e[i], &e[1 - i]);
	return qp_meet(s[i].qp, number(&s[1 - i]), &path);
}

// Both ends answer so, sooner or later. An end whose peer has not made its call for long may be told so before.
static void until_met(struct sdr s[2], int must)
{
	int is[2] = {EAGAIN, EAGAIN};
	for (uint64_t end = now_ms() + LIMIT_MS; is[0] != must || is[1] != must; sched_yield()) {
		for (int i = 0; i < 2; i++)
			is[i] = qp_is_met(s[i].qp);
		if (now_ms() > end)
			FAIL("the ends say %d and %d, not %d", is[0], is[1], must);
	}
}

static void make_qps(struct sdr s[2], const struct softnic_sdr_qp_attr *a, const struct softnic_sdr_qp_attr *b)
{
	s[0].qp = MADE(qp_create(s[0].context, a));
	s[1].qp = MADE(qp_create(s[1].context, b));
}

static void send_one(struct end e[2], struct sdr s[2], unsigned seed)
{
	fill(e[0].memory, LENGTH, seed);
	struct softnic_sdr_recv *recv = posted(&e[1], &s[1], LENGTH);
	struct softnic_sdr_send_wr wr = {.mr = s[0].mr, .addr = e[0].memory, .length = LENGTH};
	struct softnic_sdr_send *send = NULL;
	OK(send_post(s[0].qp, &wr, &send));
	until_full(recv, 100);
	CHECK(same(e[1].memory, LENGTH, seed));
	until_left(send);
	OK(recv_complete(recv));
}

static struct softnic_sdr_counters counted(struct sdr *s)
{
	struct softnic_sdr_counters counters = {0};
	OK(qp_counters_get(s->qp, &counters));
	return counters;
}

static void by_number(struct end e[2], struct sdr s[2])
{
	PART("two queue pairs meet by their numbers");
	make_qps(s, &usual, &usual);
	EQ(qp_is_met(s[0].qp), ENOTCONN);
	CHECK(number(&s[0]) != number(&s[1]) || e[0].context->device != e[1].context->device);
	OK(meet(e, s, 0));
	EQ(qp_is_met(s[0].qp), EAGAIN);
	struct softnic_sdr_send_wr wr = {.mr = s[0].mr, .addr = e[0].memory, .length = 100};
	EQ(send_post(s[0].qp, &wr, NULL), ENOTCONN);
	OK(meet(e, s, 1));
	until_met(s, 0);
	EQ(qp_is_met(s[0].qp), 0);
	for (unsigned n = 0; n < 10; n++)
		send_one(e, s, n);

	PART("what they counted");
	struct softnic_sdr_counters sender = counted(&s[0]), receiver = counted(&s[1]);
	EQ(receiver.packets, 10 * ((LENGTH + MTU - 1) / MTU));
	EQ(receiver.into_null + receiver.old_generation + receiver.duplicates + receiver.rejected, 0);
	CHECK(receiver.cts_sent >= 1 && receiver.cts_sent - receiver.cts_repeated <= 10);
	EQ(sender.packets + sender.cts_sent, 0);
	struct softnic_sdr_counters later = {.comp_mask = 1};
	EQ(qp_counters_get(s[0].qp, &later), EINVAL);
	EQ(qp_counters_get(NULL, &later), EINVAL);
	destroy_sdr(s);
	EQ(qp_counters_get(s[0].qp, &later), ENOENT);
	EQ(qp_is_met(s[0].qp), ENOENT);
	uint32_t none;
	EQ(qp_number_get(s[0].qp, &none), ENOENT);
}

static void late_peer(struct end e[2], struct sdr s[2])
{
	PART("a peer that does not answer, and comes later");
	make_qps(s, NULL, NULL);
	OK(meet(e, s, 0));
	listen_to_stderr();
	int is;
	for (uint64_t end = now_ms() + LIMIT_MS; (is = qp_is_met(s[0].qp)) == EAGAIN; sched_yield())
		CHECK(now_ms() < end);
	EQ(is, ECONNREFUSED);
	// Once is enough.
	EQ(qp_is_met(s[0].qp), ECONNREFUSED);
	said("softnic: softnic_sdr_qp_is_met: the peer does not answer\n");
	OK(meet(e, s, 1));
	until_met(s, 0);
	destroy_sdr(s);
}

static void refused_meetings(struct end e[2], struct sdr s[2])
{
	PART("numbers and paths that cannot be");
	make_qps(s, &usual, &usual);
	struct ibv_ah_attr path = path_to(&e[0], &e[1]), local = {.port_num = 1};
	listen_to_stderr();
	EQ(qp_meet(s[0].qp, 1, &path), EINVAL);
	said("softnic: softnic_sdr_qp_meet: 0x1 is not the number of a peer: 0x2 to 0xfffffe are\n");
	EQ(qp_meet(s[0].qp, 1 << 24, &path), EINVAL);
	EQ(qp_meet(s[0].qp, number(&s[1]), &local), EINVAL);
	EQ(qp_meet(NULL, number(&s[1]), &path), EINVAL);

	PART("a queue pair that meets a peer takes no other");
	OK(meet(e, s, 0));
	EQ(meet(e, s, 0), EISCONN);
	uint8_t info[SOFTNIC_SDR_QP_INFO_MAX];
	size_t len = sizeof(info);
	OK(qp_info_get(s[1].qp, info, &len));
	EQ(qp_connect(s[0].qp, info, len, &path), EISCONN);
	destroy_sdr(s);

	PART("peers that do not fit");
	make_qps(s, &usual, &(struct softnic_sdr_qp_attr){.mtu = IBV_MTU_1024, .channels = 3});
	OK(meet(e, s, 0));
	OK(meet(e, s, 1));
	listen_to_stderr();
	int is;
	for (uint64_t end = now_ms() + LIMIT_MS; (is = qp_is_met(s[0].qp)) == EAGAIN; sched_yield())
		CHECK(now_ms() < end);
	EQ(is, EINVAL);
	said("softnic: softnic_sdr_qp_is_met: the peer has another number of channels: 3 there, 2 here\n");
	until_met(s, EINVAL);
	destroy_sdr(s);

	PART("more channels than there is room for in what the ends tell each other");
	const struct softnic_sdr_qp_attr many = {.channels = 4}, most = {.channels = 3};
	make_qps(s, &many, &many);
	listen_to_stderr();
	EQ(meet(e, s, 0), EINVAL);
	said("softnic: softnic_sdr_qp_meet: 4 generations of 4 channels take 184 bytes, and a MAD has room for 152: "
	     "4 generations of 3 channels fit\n");
	connect_sdr(e, s);
	destroy_sdr(s);
	make_qps(s, &most, &most);
	OK(meet(e, s, 0));
	OK(meet(e, s, 1));
	until_met(s, 0);
	destroy_sdr(s);
}

static void said_with_what_would(struct end e[2], struct sdr s[2])
{
	PART("what does not fit is refused with what would");
	const struct {
		struct softnic_sdr_qp_attr attr;
		const char *said;
	} wrong[] = {
		{{.mtu = IBV_MTU_1024, .chunk = 1500}, "a chunk of 1500 bytes is no multiple of the path MTU 1024: 2048 is"},
		{{.slots = 2000}, "2000 receives need 11 bits, and 10+18+4 has 10"},
		{{.channels = 300}, "the number of channels is from 1 to 16, not 300"},
		{{.generations = 17}, "the number of generations is from 1 to 16, not 17"},
		{{.mtu = 6}, "6 is no MTU: IBV_MTU_256, 1, to IBV_MTU_4096, 5, are"},
		{{.flags = 5}, "flags 0x4 are not known: 0x1, one root key, and 0x2, unscreened, are"},
	};
	for (size_t i = 0; i < sizeof(wrong) / sizeof(*wrong); i++) {
		char line[1000];
		snprintf(line, sizeof(line), "softnic: softnic_sdr_qp_create: %s\n", wrong[i].said);
		listen_to_stderr();
		REFUSED(qp_create(s[0].context, &wrong[i].attr), EINVAL);
		said(line);
	}
	make_qps(s, &(struct softnic_sdr_qp_attr){.generations = 2}, NULL);
	uint8_t info[SOFTNIC_SDR_QP_INFO_MAX];
	size_t len = sizeof(info);
	OK(qp_info_get(s[1].qp, info, &len));
	struct ibv_ah_attr path = path_to(&e[0], &e[1]);
	listen_to_stderr();
	EQ(qp_connect(s[0].qp, info, len, &path), EINVAL);
	said("softnic: softnic_sdr_qp_connect: the peer has another number of generations: 4 there, 2 here\n");
	destroy_sdr(s);
}

// Whether the first two generations have the same root key. Where it lies: docs/wire-formats.md, "SDR-RDMA".
static bool has_one_key(struct sdr *s, unsigned channels)
{
	uint8_t info[SOFTNIC_SDR_QP_INFO_MAX];
	size_t len = sizeof(info);
	OK(qp_info_get(s->qp, info, &len));
	return !memcmp(info + 40, info + 40 + 4 + 8 * channels, 4);
}

// A chunk comes twice, and its receiver wrote to it meanwhile: whether the second one is written.
static bool is_written_again(struct end e[2], struct sdr s[2])
{
	fill(e[0].memory, CHUNK, 3);
	struct softnic_sdr_recv *recv = posted(&e[1], &s[1], CHUNK);
	struct softnic_sdr_start_wr wr = {.length = CHUNK};
	struct softnic_sdr_send *stream = NULL;
	OK(send_stream_start(s[0].qp, &wr, &stream));
	OK(part(stream, &s[0], &e[0], 0, CHUNK));
	until_full(recv, 1);
	memset(e[1].memory, 0, CHUNK);
	OK(part(stream, &s[0], &e[0], 0, CHUNK));
	for (uint64_t end = now_ms() + LIMIT_MS; counted(&s[1]).duplicates < CHUNK / MTU; sched_yield()) {
		const uint64_t *bitmap;
		size_t chunks;
		// Where nobody else does, this moves frames.
		OK(recv_bitmap_get(recv, &bitmap, &chunks));
		CHECK(now_ms() < end);
	}
	EQ(counted(&s[1]).duplicates, CHUNK / MTU);
	EQ(counted(&s[1]).packets, CHUNK / MTU);
	OK(send_stream_end(stream));
	until_left(stream);
	OK(recv_complete(recv));
	return same(e[1].memory, CHUNK, 3);
}

static void flags(struct end e[2], struct sdr s[2])
{
	PART("a key for each generation, and what comes twice is written once");
	make_sdr(e, s, &usual);
	CHECK(!has_one_key(&s[0], usual.channels) && !is_written_again(e, s));
	destroy_sdr(s);
	PART("one key for all, and nothing is looked at before it is placed");
	struct softnic_sdr_qp_attr attr = usual;
	attr.flags = SOFTNIC_SDR_QP_ONE_KEY;
	make_sdr(e, s, &attr);
	CHECK(has_one_key(&s[0], usual.channels) && !is_written_again(e, s));
	destroy_sdr(s);
	attr.flags |= SOFTNIC_SDR_QP_UNSCREENED;
	make_sdr(e, s, &attr);
	CHECK(has_one_key(&s[0], usual.channels) && is_written_again(e, s));
	send_one(e, s, 8);
	destroy_sdr(s);
}

static void used_again(struct end e[2], struct sdr s[2])
{
	PART("handles are used again, and one that is gone is none");
	make_sdr(e, s, &usual);
	struct softnic_sdr_recv *a = posted(&e[1], &s[1], 100), *b = posted(&e[1], &s[1], 100);
	CHECK(a != b);
	OK(recv_complete(a));
	EQ(recv_complete(a), ENOENT);
	struct softnic_sdr_recv *c = posted(&e[1], &s[1], 100);
	CHECK(c == a);
	OK(recv_complete(b));
	OK(recv_complete(c));
	EQ(recv_complete(b), ENOENT);
	destroy_sdr(s);
	EQ(recv_complete(a), ENOENT);

	PART("no message costs memory of its own");
	make_sdr(e, s, &usual);
	unsigned long before = 0;
	for (unsigned n = 0; n < 400; n++) {
		// What the first ones need is kept.
		if (n == 100)
			before = allocations;
		send_one(e, s, n);
	}
	CHECK(before > 0);
	EQ(allocations - before, 0);
	destroy_sdr(s);
}

int main(void)
{
	find_calls();
	struct end e[2];
	struct sdr s[2];
	open_sdr(e, s);
	by_number(e, s);
	late_peer(e, s);
	refused_meetings(e, s);
	said_with_what_would(e, s);
	flags(e, s);
	used_again(e, s);
	close_sdr(e, s);
	return 0;
}
