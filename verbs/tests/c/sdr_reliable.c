// SDR-RDMA by softnic_sdr.h: reliable messages by every scheme through loss, both ways at once, a peer that goes away, what is refused.
// link: -libverbs -ldl

#define _GNU_SOURCE
#include "../../include/softnicdv.h"
#include "sdr.h"

#define HALF (MEMORY / 2)
#define MESSAGES 20

static struct softnic_sdr_reliable_attr attr_of(uint32_t scheme)
{
	struct softnic_sdr_reliable_attr attr = {.qp = usual, .scheme = scheme, .rtt_ns = 1000000};
	attr.qp.slots = 64;
	if (scheme >= SOFTNIC_SDR_SCHEME_EC)
		attr.k = 8, attr.m = 2;
	if (scheme == SOFTNIC_SDR_SCHEME_XOR)
		attr.interleave = 3;
	return attr;
}

static void make_reliable(struct sdr s[2], struct softnic_sdr_reliable_attr a, struct softnic_sdr_reliable_attr b)
{
	s[0].qp = MADE(reliable_create(s[0].context, &a));
	s[1].qp = MADE(reliable_create(s[1].context, &b));
}

static uint64_t post_one(struct end *e, struct sdr *s, bool receives, size_t length)
{
	struct softnic_sdr_reliable_wr wr = {.mr = s->mr, .addr = e->memory + (receives ? HALF : 0), .length = length};
	uint64_t number = 77;
	OK((receives ? reliable_receive : reliable_write)(s->qp, &wr, &number));
	return number;
}

// Both ends write and receive, one message each way at a time, of many lengths.
static void both_ways(struct end e[2], struct sdr s[2])
{
	for (unsigned n = 0; n < MESSAGES; n++) {
		size_t length = n % 5 ? (n * 7919 + 1) % HALF : n / 5;
		for (int i = 0; i < 2; i++) {
			memset(e[i].memory + HALF, 0, length);
			fill(e[i].memory, length, n * 2 + i);
			EQ(post_one(&e[i], &s[i], true, length), n);
			EQ(post_one(&e[i], &s[i], false, length), n);
		}
		bool over[2][2] = {{false}};
		int left = 4;
		for (uint64_t end = now_ms() + LIMIT_MS; left; sched_yield()) {
			for (int i = 0; i < 2; i++) {
				struct softnic_sdr_completion done[4];
				int polled = reliable_poll(s[i].qp, 4, done);
				CHECK(polled >= 0 && polled <= 2);
				for (int j = 0; j < polled; j++, left--) {
					CHECK(done[j].opcode <= SOFTNIC_SDR_RECEIVED && !over[i][done[j].opcode]);
					over[i][done[j].opcode] = true;
					EQ(done[j].status, 0);
					EQ(done[j].number, n);
					if (done[j].opcode == SOFTNIC_SDR_RECEIVED)
						CHECK(same(e[i].memory + HALF, length, n * 2 + 1 - i));
				}
			}
			if (now_ms() > end)
				FAIL("message %u of %zu bytes: %d of 4 are not over", n, length, left);
		}
	}
}

// A counter of the NIC, of which all queue pairs are.
static uint64_t of_nic(struct end *e, const char *name)
{
	static __typeof__(softnicdv_query_counters) *query;
	static struct softnicdv_counter all[256];
	size_t count = 0;
	query = MADE((__typeof__(query))dlsym(RTLD_DEFAULT, "softnicdv_query_counters"));
	OK(query(e->context, all, 256, &count));
	CHECK(count <= 256);
	for (size_t i = 0; i < count; i++)
		if (!strcmp(all[i].name, name))
			return all[i].value;
	FAIL("there is no counter %s", name);
}

static void every_scheme(struct end e[2], struct sdr s[2])
{
	for (uint32_t scheme = 0; scheme <= SOFTNIC_SDR_SCHEME_XOR; scheme++) {
		PART("reliable messages both ways");
		struct softnic_sdr_reliable_attr attr = attr_of(scheme);
		uint64_t acks = of_nic(&e[0], "sdr_acks_sent"), parity = of_nic(&e[0], "sdr_repair_packets");
		make_reliable(s, attr, attr);
		if (scheme % 2) {
			connect_sdr(e, s);
		} else {
			for (int i = 0; i < 2; i++) {
				struct ibv_ah_attr path = path_to(&e[i], &e[1 - i]);
				uint32_t number;
				OK(qp_number_get(s[1 - i].qp, &number));
				OK(qp_meet(s[i].qp, number, &path));
			}
			for (uint64_t end = now_ms() + LIMIT_MS; qp_is_met(s[0].qp) || qp_is_met(s[1].qp); sched_yield())
				CHECK(now_ms() < end);
		}
		both_ways(e, s);
		struct softnic_sdr_reliable_counters counted = {0};
		struct softnic_sdr_counters packets = {0};
		OK(reliable_counters_get(s[0].qp, &counted));
		OK(qp_counters_get(s[0].qp, &packets));
		CHECK(counted.chunks_sent > MESSAGES && counted.acks_sent > 0 && packets.packets > MESSAGES);
		EQ(counted.parity_packets > 0, scheme >= SOFTNIC_SDR_SCHEME_EC);
		EQ(counted.chunks_recovered > 0, scheme >= SOFTNIC_SDR_SCHEME_EC);
		CHECK(counted.chunks_repeated > 0 || scheme >= SOFTNIC_SDR_SCHEME_EC);
		EQ(of_nic(&e[0], "sdr_repair_packets") - parity, counted.parity_packets);
		CHECK(of_nic(&e[0], "sdr_acks_sent") - acks >= counted.acks_sent);
		counted.comp_mask = 1;
		EQ(reliable_counters_get(s[0].qp, &counted), EINVAL);
		destroy_sdr(s);
		EQ(reliable_counters_get(s[0].qp, &counted), ENOENT);
		EQ(reliable_poll(s[0].qp, 0, NULL), -ENOENT);
	}
}

static void peer_goes(struct end e[2], struct sdr s[2])
{
	PART("a peer that goes away");
	struct softnic_sdr_reliable_attr attr = attr_of(SOFTNIC_SDR_SCHEME_NACK);
	attr.timeout_ns = 100 * 1000000ull;
	make_reliable(s, attr, attr);
	connect_sdr(e, s);
	OK(qp_destroy(s[1].qp));
	post_one(&e[0], &s[0], true, 1000);
	post_one(&e[0], &s[0], false, 1000);
	post_one(&e[0], &s[0], false, 1000);
	int over = 0;
	for (uint64_t end = now_ms() + LIMIT_MS; over < 3; sched_yield()) {
		struct softnic_sdr_completion done;
		int polled = reliable_poll(s[0].qp, 1, &done);
		if (polled)
			EQ(done.status, ETIMEDOUT);
		over += polled;
		CHECK(now_ms() < end);
	}
	struct softnic_sdr_reliable_wr wr = {.mr = s[0].mr, .addr = e[0].memory, .length = 10};
	EQ(reliable_write(s[0].qp, &wr, NULL), ECONNRESET);
	EQ(reliable_receive(s[0].qp, &wr, NULL), ECONNRESET);
	OK(qp_destroy(s[0].qp));

	PART("a receive of another length");
	attr.timeout_ns = 0;
	make_reliable(s, attr, attr);
	connect_sdr(e, s);
	post_one(&e[1], &s[1], true, 3000);
	post_one(&e[0], &s[0], false, 2000);
	struct softnic_sdr_completion done = {0};
	for (uint64_t end = now_ms() + LIMIT_MS; !reliable_poll(s[0].qp, 1, &done); sched_yield())
		CHECK(now_ms() < end);
	EQ(done.status, EMSGSIZE);
	destroy_sdr(s);
}

static void refusals(struct end e[2], struct sdr s[2])
{
	PART("what does not fit is refused with what would");
	const struct {
		struct softnic_sdr_reliable_attr attr;
		const char *said;
	} wrong[] = {
		{{.scheme = 5}, "5 is no scheme: 1, SR, to 4, XOR, are"},
		{{.scheme = SOFTNIC_SDR_SCHEME_SR, .k = 3}, "sdr-sr has no parity: k, m and interleave are for EC, 3, and XOR, 4"},
		{{.scheme = SOFTNIC_SDR_SCHEME_NACK, .interleave = 2}, "sdr-nack has no parity: k, m and interleave are for EC, 3, and XOR, 4"},
		{{.scheme = SOFTNIC_SDR_SCHEME_EC, .interleave = 256}, "submessages that are interleaved are from 1 to 255, not 256"},
		{{.qp = {.mtu = IBV_MTU_1024, .chunk = 1500}}, "a chunk of 1500 bytes is no multiple of the path MTU 1024: 2048 is"},
		{{.acks_per_rtt = 2000}, "acknowledgements in a round trip is from 1 to 1000, not 2000"},
	};
	for (size_t i = 0; i < sizeof(wrong) / sizeof(*wrong); i++) {
		char line[1000];
		snprintf(line, sizeof(line), "softnic: softnic_sdr_reliable_create: %s\n", wrong[i].said);
		listen_to_stderr();
		REFUSED(reliable_create(s[0].context, &wrong[i].attr), EINVAL);
		said(line);
	}
	REFUSED(reliable_create(s[0].context, &(struct softnic_sdr_reliable_attr){.comp_mask = 1}), EINVAL);

	PART("ends with different schemes");
	make_reliable(s, attr_of(SOFTNIC_SDR_SCHEME_SR), attr_of(SOFTNIC_SDR_SCHEME_NACK));
	uint8_t info[SOFTNIC_SDR_QP_INFO_MAX];
	size_t len = sizeof(info);
	OK(qp_info_get(s[1].qp, info, &len));
	struct ibv_ah_attr path = path_to(&e[0], &e[1]);
	listen_to_stderr();
	EQ(qp_connect(s[0].qp, info, len, &path), EINVAL);
	said("softnic: softnic_sdr_qp_connect: the peer has another scheme: sdr scheme 2 there, sdr scheme 1 here\n");

	PART("calls that are not for it");
	struct softnic_sdr_reliable_wr wr = {.mr = s[0].mr, .addr = e[0].memory, .length = 10}, outside = wr, unknown = wr;
	EQ(reliable_write(s[0].qp, &wr, NULL), ENOTCONN);
	outside.length = MEMORY + 1;
	EQ(reliable_write(s[0].qp, &outside, NULL), EINVAL);
	unknown.comp_mask = 1;
	EQ(reliable_receive(s[0].qp, &unknown, NULL), EINVAL);
	EQ(reliable_poll(s[0].qp, -1, NULL), -EINVAL);
	EQ(reliable_poll(NULL, 0, NULL), -EINVAL);
	EQ(reliable_poll(s[0].qp, 0, NULL), 0);
	struct softnic_sdr_send_wr send = {.mr = s[0].mr, .addr = e[0].memory, .length = 10};
	struct softnic_sdr_recv_wr recv = {.mr = s[0].mr, .addr = e[0].memory, .length = 10};
	struct softnic_sdr_recv *none;
	EQ(send_post(s[0].qp, &send, NULL), EOPNOTSUPP);
	EQ(recv_post(s[0].qp, &recv, &none), EOPNOTSUPP);
	destroy_sdr(s);
	s[0].qp = MADE(qp_create(s[0].context, &usual));
	EQ(reliable_write(s[0].qp, &wr, NULL), EOPNOTSUPP);
	EQ(reliable_receive(s[0].qp, &wr, NULL), EOPNOTSUPP);
	EQ(reliable_poll(s[0].qp, 1, &(struct softnic_sdr_completion){0}), -EOPNOTSUPP);
	EQ(reliable_counters_get(s[0].qp, &(struct softnic_sdr_reliable_counters){0}), EOPNOTSUPP);
	OK(qp_destroy(s[0].qp));
}

int main(void)
{
	find_calls();
	struct end e[2];
	struct sdr s[2];
	// What is lost is what this is about.
	setenv("SOFTNIC_FAULT", "loss=0.02", 1);
	open_sdr(e, s);
	every_scheme(e, s);
	peer_goes(e, s);
	refusals(e, s);

	PART("a receive that is posted goes with its queue pair");
	s[0].qp = MADE(reliable_create(s[0].context, NULL));
	struct softnic_sdr_reliable_wr wr = {.mr = s[0].mr, .addr = e[0].memory, .length = 1000};
	OK(reliable_receive(s[0].qp, &wr, NULL));
	EQ(mr_dereg(s[0].mr), EBUSY);
	OK(qp_destroy(s[0].qp));
	close_sdr(e, s);
	return 0;
}
