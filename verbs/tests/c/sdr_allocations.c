// SDR-RDMA by softnic_sdr.h: reliable messages allocate no memory each, in no thread of either end, once a few have gone.
// link: -libverbs -ldl

#define _GNU_SOURCE
#include "allocations.h"
#include "sdr.h"

// Some come before those that count, so that pools are as large as they get.
#define BEFORE 100
#define COUNTED 200
#define ROWS 5

// One message.
static void carry(struct end e[2], struct sdr s[2])
{
	struct softnic_sdr_reliable_wr to = {.mr = s[1].mr, .addr = e[1].memory, .length = LENGTH};
	struct softnic_sdr_reliable_wr from = {.mr = s[0].mr, .addr = e[0].memory, .length = LENGTH};
	OK(reliable_receive(s[1].qp, &to, NULL));
	OK(reliable_write(s[0].qp, &from, NULL));
	int left = 2;
	for (uint64_t end = now_ms() + LIMIT_MS; left; sched_yield()) {
		for (int i = 0; i < 2; i++) {
			struct softnic_sdr_completion done;
			int polled = reliable_poll(s[i].qp, 1, &done);
			if (polled)
				EQ(done.status, 0);
			left -= polled;
		}
		CHECK(now_ms() < end);
	}
}

static void count(struct end e[2], struct sdr s[2])
{
	for (int n = 0; n < BEFORE; n++)
		carry(e, s);
	// A pool may grow once more, when threads get their turns otherwise than before, and a port announces itself in its first
	// seconds: what a message costs is there in every row of messages.
	unsigned long more = 0;
	for (int row = 0; row < ROWS; row++) {
		unsigned long before = all_allocations;
		for (int n = 0; n < COUNTED; n++)
			carry(e, s);
		more = all_allocations - before;
		if (more <= COUNTED / 10)
			return;
	}
	FAIL("%lu allocations for %d messages", more, COUNTED);
}

int main(void)
{
	find_calls();
	struct end e[2];
	struct sdr s[2];
	open_sdr(e, s);
	CHECK(all_allocations > 0);
	for (uint32_t scheme = SOFTNIC_SDR_SCHEME_SR; scheme <= SOFTNIC_SDR_SCHEME_XOR; scheme++) {
		PART("reliable messages");
		struct softnic_sdr_reliable_attr attr = {.qp = usual, .scheme = scheme, .rtt_ns = 1000000};
		attr.qp.slots = 64;
		if (scheme >= SOFTNIC_SDR_SCHEME_EC)
			attr.k = 8, attr.m = 2;
		for (int i = 0; i < 2; i++)
			s[i].qp = MADE(reliable_create(s[i].context, &attr));
		connect_sdr(e, s);
		count(e, s);
		destroy_sdr(s);
	}
	close_sdr(e, s);
	return 0;
}
