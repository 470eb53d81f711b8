// What verbs cost the program that calls them, as nanoseconds a call: ibv_post_send, ibv_post_recv, and ibv_poll_cq with nothing in the
// queue and with something. Posting transmits nothing, and neither does polling an idle NIC; what is transmitted in between is not timed.
//
// link: -libverbs

#include "../tests/c/common.h"

enum { BATCH = 64, ROUNDS = 20000, EMPTY_POLLS = 20 * 1000 * 1000 };

static uint64_t now_ns(void)
{
	struct timespec t;
	clock_gettime(CLOCK_MONOTONIC, &t);
	return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

// Takes `count` completions; the nanoseconds of those calls that had some, and how many calls that were.
static void drain(struct ibv_cq *cq, int count, uint64_t *time, uint64_t *calls)
{
	struct ibv_wc wc[BATCH];
	while (count > 0) {
		uint64_t begin = now_ns();
		int n = ibv_poll_cq(cq, 1, wc);
		uint64_t end = now_ns();
		CHECK(n >= 0);
		for (int i = 0; i < n; i++)
			EQ(wc[i].status, IBV_WC_SUCCESS);
		if (n > 0) {
			*time += end - begin;
			*calls += 1;
		}
		count -= n;
	}
}

int main(void)
{
	struct end e[2];
	open_end(&e[0], 0);
	open_end(&e[1], 1);
	connect_new(e, IBV_QPT_RC);
	struct ibv_sge to = at(&e[1], 0, 64), from = at(&e[0], 0, 64);
	struct ibv_recv_wr recv = {.sg_list = &to, .num_sge = 1}, *bad_recv;
	struct ibv_send_wr send = {.sg_list = &from, .num_sge = 1, .opcode = IBV_WR_SEND, .send_flags = IBV_SEND_SIGNALED}, *bad_send;
	uint64_t posting = 0, receiving = 0, polling = 0, polls = 0, clocks = 0, begin;
	begin = now_ns();
	for (int i = 0; i < 1000000; i++)
		now_ns();
	clocks = (now_ns() - begin) / 1000000;
	for (int round = 0; round < ROUNDS; round++) {
		begin = now_ns();
		for (int i = 0; i < BATCH; i++)
			OK(ibv_post_recv(e[1].qp, &recv, &bad_recv));
		receiving += now_ns() - begin;
		begin = now_ns();
		for (int i = 0; i < BATCH; i++)
			OK(ibv_post_send(e[0].qp, &send, &bad_send));
		posting += now_ns() - begin;
		drain(e[1].cq, BATCH, &polling, &polls);
		drain(e[0].cq, BATCH, &polling, &polls);
	}
	// Until nothing is under way any more.
	usleep(100 * 1000);
	struct ibv_wc wc;
	begin = now_ns();
	for (int i = 0; i < EMPTY_POLLS; i++)
		EQ(ibv_poll_cq(e[0].cq, 1, &wc), 0);
	double empty = (double)(now_ns() - begin) / EMPTY_POLLS;
	double count = (double)BATCH * ROUNDS;
	printf("ibv_post_send: %.1f ns, mean of %.0f\n", (double)posting / count, count);
	printf("ibv_post_recv: %.1f ns, mean of %.0f\n", (double)receiving / count, count);
	printf("ibv_poll_cq, nothing there: %.1f ns, mean of %d\n", empty, EMPTY_POLLS);
	printf("ibv_poll_cq, a completion: %.1f ns, mean of %llu, what moved frames included, the clock's %llu ns deducted\n",
	       (double)polling / (double)polls - (double)clocks, (unsigned long long)polls, (unsigned long long)clocks);
	return 0;
}
