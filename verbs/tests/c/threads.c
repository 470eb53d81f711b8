// Verbs from several threads at once: on their own objects, on shared ones, and while others come and go.
// seconds: 60

#include "common.h"

#define THREADS 4
#define ROUNDS 300

static void start(pthread_t *threads, int count, void *(*run)(void *), void *args, size_t size)
{
	for (int i = 0; i < count; i++)
		CHECK(pthread_create(&threads[i], NULL, run, (char *)args + i * size) == 0);
}

static void join(pthread_t *threads, int count)
{
	for (int i = 0; i < count; i++)
		CHECK(pthread_join(threads[i], NULL) == 0);
}

static void *alone(void *arg)
{
	struct end e[2];
	(void)arg;
	open_both(e);
	connect_new(e, IBV_QPT_RC);
	for (int i = 0; i < ROUNDS; i++)
		exchange(e, i);
	destroy_qps(e);
	close_both(e);
	return NULL;
}

static void each_its_own(void)
{
	PART("each thread with objects of its own");
	pthread_t threads[THREADS];
	start(threads, THREADS, alone, threads, 0);
	join(threads, THREADS);
}

struct poster {
	struct end *e;
	struct ibv_qp *qp;
	int number;
};

// Writes to a place of its own, as often as there is room in the queue.
static void *post_writes(void *arg)
{
	struct poster *p = arg;
	for (int i = 0; i < ROUNDS; i++) {
		int refused;
		uint64_t id = (uint64_t)p->number << 32 | i, end = now_ms() + LIMIT_MS;
		do {
			refused = post_rdma(p->qp, IBV_WR_RDMA_WRITE, id, at(&p->e[0], p->number * 64, 64),
					    address(&p->e[1], p->number * 64), p->e[1].mr->rkey);
			CHECK(now_ms() < end);
			if (refused)
				sched_yield();
		} while (refused == ENOMEM);
		OK(refused);
	}
	return NULL;
}

struct poller {
	struct end *e;
	int *left; // completions that nobody has taken yet
	int next[THREADS]; // of each poster, what this thread saw last
	int ordered; // whether one thread sees all of a poster
};

static void *take(void *arg)
{
	struct poller *p = arg;
	uint64_t end = now_ms() + LIMIT_MS;
	while (__atomic_load_n(p->left, __ATOMIC_SEQ_CST) > 0) {
		struct ibv_wc wc[8];
		int n = ibv_poll_cq(p->e[0].cq, 8, wc);
		CHECK(n >= 0 && now_ms() < end);
		for (int i = 0; i < n; i++) {
			EQ(wc[i].status, IBV_WC_SUCCESS);
			int who = wc[i].wr_id >> 32, which = (int)wc[i].wr_id;
			CHECK(who < THREADS && which >= p->next[who]);
			if (p->ordered)
				EQ(which, p->next[who]);
			p->next[who] = which + 1;
		}
		__atomic_fetch_sub(p->left, n, __ATOMIC_SEQ_CST);
		if (n == 0)
			sched_yield();
	}
	return NULL;
}

static void shared(struct end e[2], int qps, int pollers)
{
	printf("%d threads post to %d queue pairs, %d poll one completion queue\n", THREADS, qps, pollers);
	fflush(stdout);
	struct ibv_qp *pairs[THREADS][2];
	for (int i = 0; i < qps; i++) {
		connect_new(e, IBV_QPT_RC);
		pairs[i][0] = e[0].qp;
		pairs[i][1] = e[1].qp;
	}
	for (int i = 0; i < THREADS; i++) {
		fill(e[0].memory + i * 64, 64, i);
		memset(e[1].memory + i * 64, 0, 64);
	}
	struct poster posters[THREADS];
	struct poller polling[THREADS];
	int left = THREADS * ROUNDS;
	for (int i = 0; i < THREADS; i++) {
		posters[i] = (struct poster){e, pairs[i % qps][0], i};
		polling[i] = (struct poller){e, &left, {0}, pollers == 1};
	}
	pthread_t posting[THREADS], taking[THREADS];
	start(taking, pollers, take, polling, sizeof(polling[0]));
	start(posting, THREADS, post_writes, posters, sizeof(posters[0]));
	join(posting, THREADS);
	join(taking, pollers);
	EQ(left, 0);
	for (int i = 0; i < THREADS; i++)
		CHECK(same(e[1].memory + i * 64, 64, i));
	for (int i = 0; i < qps; i++) {
		OK(ibv_destroy_qp(pairs[i][0]));
		OK(ibv_destroy_qp(pairs[i][1]));
	}
}

static volatile int stop;

static void *come_and_go(void *arg)
{
	struct end *e = arg;
	uint8_t *memory = MADE(malloc(65536));
	for (int i = 0; !stop; i++) {
		struct ibv_mr *mr = MADE(ibv_reg_mr(e->pd, memory, 65536, ALL_RIGHTS));
		struct ibv_cq *cq = MADE(ibv_create_cq(e->context, 64, NULL, NULL, 0));
		struct ibv_qp_init_attr init = qp_options(e, i % 2 ? IBV_QPT_RC : IBV_QPT_UD);
		init.send_cq = init.recv_cq = cq;
		struct ibv_qp *qp = MADE(ibv_create_qp(e->pd, &init));
		OK(to_init(qp, ALL_RIGHTS));
		OK(post_recv(qp, 1, (struct ibv_sge){(uintptr_t)memory, 64, mr->lkey}));
		OK(to_state(qp, IBV_QPS_ERR));
		DONE(cq, 1, IBV_WC_WR_FLUSH_ERR);
		OK(ibv_destroy_qp(qp));
		OK(ibv_destroy_cq(cq));
		OK(ibv_dereg_mr(mr));
	}
	free(memory);
	return NULL;
}

static void among_others(struct end e[2])
{
	PART("traffic, while other objects of the same devices come and go");
	pthread_t threads[2];
	connect_new(e, IBV_QPT_RC);
	start(threads, 2, come_and_go, e, sizeof(e[0]));
	for (int i = 0; i < ROUNDS; i++)
		exchange(e, i);
	stop = 1;
	join(threads, 2);
	destroy_qps(e);
}

static void *open_and_close(void *arg)
{
	(void)arg;
	for (int i = 0; i < 20; i++) {
		struct end e;
		open_end(&e, i % 2);
		close_end(&e);
	}
	return NULL;
}

static void devices(void)
{
	PART("devices opened and closed by several threads");
	pthread_t threads[THREADS];
	start(threads, THREADS, open_and_close, threads, 0);
	join(threads, THREADS);
}

// Answers each message that wakes it; the completions of its own answers come in between.
static void *sleep_for_events(void *arg)
{
	struct end *e = arg;
	for (int answered = 0, sent = 0; answered < 50 || sent < 50;) {
		struct ibv_cq *cq;
		void *context;
		struct ibv_wc wc;
		OK(ibv_get_cq_event(e->channel, &cq, &context));
		ibv_ack_cq_events(cq, 1);
		OK(ibv_req_notify_cq(cq, 0));
		while (ibv_poll_cq(cq, 1, &wc) == 1) {
			EQ(wc.status, IBV_WC_SUCCESS);
			if (wc.opcode == IBV_WC_SEND) {
				sent++;
				continue;
			}
			EQ(wc.wr_id, answered);
			OK(post_send(e->qp, answered++, at(e, 8192, 8)));
		}
	}
	return NULL;
}

static void ping_pong_by_events(struct end e[2])
{
	PART("two threads that wake each other");
	connect_new(e, IBV_QPT_RC);
	for (int i = 0; i < 50; i++) {
		OK(post_recv(e[1].qp, i, at(&e[1], 0, 64)));
		OK(post_recv(e[0].qp, 100 + i, at(&e[0], 0, 64)));
	}
	OK(ibv_req_notify_cq(e[1].cq, 0));
	pthread_t thread;
	CHECK(pthread_create(&thread, NULL, sleep_for_events, &e[1]) == 0);
	for (int i = 0; i < 50; i++) {
		OK(post_send(e[0].qp, i, at(&e[0], 8192, 8)));
		int sent = 0, answered = 0;
		while (!sent || !answered) {
			struct ibv_wc wc = NEXT(e[0].cq);
			EQ(wc.status, IBV_WC_SUCCESS);
			sent |= wc.opcode == IBV_WC_SEND;
			answered |= wc.opcode == IBV_WC_RECV;
		}
	}
	CHECK(pthread_join(thread, NULL) == 0);
	destroy_qps(e);
}

int main(void)
{
	each_its_own();
	devices();
	struct end e[2];
	open_both(e);
	shared(e, THREADS, 1);
	shared(e, THREADS, THREADS);
	shared(e, 1, 1);
	shared(e, 1, 2);
	among_others(e);
	ping_pong_by_events(e);
	close_both(e);
	return 0;
}
