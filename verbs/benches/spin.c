// How long a round trip takes two threads that spin on memory and hardly ever poll: nobody but the NICs' own threads makes progress then, and
// where there are no more cores than such threads they have to get one first.
//
// link: -libverbs -lpthread

#include "../tests/c/common.h"

#include <pthread.h>

enum { ROUNDS = 3000, SIGNALED = 32, ANSWER = 64 };

static struct end ends[2];
static uint64_t took[ROUNDS];

static uint64_t now_ns(void)
{
	struct timespec t;
	clock_gettime(CLOCK_MONOTONIC, &t);
	return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

static void wait_for(const struct end *me, uint32_t number)
{
	while (*(volatile uint32_t *)(me->memory + ANSWER) != number)
		;
}

static void *side(void *which)
{
	int first = which == &ends[0];
	struct end *me = which, *peer = &ends[first];
	for (uint32_t i = 1; i <= ROUNDS; i++) {
		uint64_t begin = now_ns();
		if (!first)
			wait_for(me, i);
		memcpy(me->memory, &i, sizeof(i));
		struct ibv_sge from = at(me, 0, sizeof(i));
		int signaled = i % SIGNALED == 0 ? IBV_SEND_SIGNALED : 0;
		struct ibv_send_wr wr = {
			.sg_list = &from, .num_sge = 1, .opcode = IBV_WR_RDMA_WRITE, .send_flags = IBV_SEND_INLINE | signaled}, *bad;
		wr.wr.rdma.remote_addr = (uintptr_t)(peer->memory + ANSWER);
		wr.wr.rdma.rkey = peer->mr->rkey;
		OK(ibv_post_send(me->qp, &wr, &bad));
		if (first)
			wait_for(me, i);
		struct ibv_wc wc;
		while (signaled && ibv_poll_cq(me->cq, 1, &wc) == 0)
			;
		if (first)
			took[i - 1] = now_ns() - begin;
	}
	return NULL;
}

static int compare(const void *a, const void *b)
{
	uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
	return (x > y) - (x < y);
}

int main(void)
{
	open_end(&ends[0], 0);
	open_end(&ends[1], 1);
	connect_new(ends, IBV_QPT_RC);
	pthread_t threads[2];
	for (int i = 0; i < 2; i++)
		OK(pthread_create(&threads[i], NULL, side, &ends[i]));
	for (int i = 0; i < 2; i++)
		OK(pthread_join(threads[i], NULL));
	qsort(took, ROUNDS, sizeof(took[0]), compare);
	printf("round trip of two threads that spin on memory: p50 %.1f us, p99 %.1f us\n", (double)took[ROUNDS / 2] / 1e3,
	       (double)took[ROUNDS * 99 / 100] / 1e3);
	return 0;
}
