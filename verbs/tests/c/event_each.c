// Two programs that wake each other by events, as perftest does with -e: a channel for sends and one for receives; for each event one
// completion is taken, and the queue is armed before it is. There is never more than one completion of a kind, so each poll finds one.

#include <poll.h>

#include "common.h"

#define ROUNDS 3000

struct side {
	struct end e;
	struct ibv_comp_channel *channels[2];
	struct ibv_cq *cqs[2]; // of sends, of receives
	int first;
};

static void take(struct side *s, int which, int round)
{
	struct ibv_cq *cq;
	struct ibv_wc wc;
	void *context;
	struct pollfd p = {.fd = s->channels[which]->fd, .events = POLLIN};
	if (poll(&p, 1, LIMIT_MS) != 1) {
		int there = ibv_poll_cq(s->cqs[which], 1, &wc);
		FAIL("%s, round %d: no event of %s comes, and there is %s completion", s->first ? "first" : "second", round,
		     which ? "a receive" : "a send", there == 1 ? "a" : "no");
	}
	OK(ibv_get_cq_event(s->channels[which], &cq, &context));
	CHECK(cq == s->cqs[which]);
	ibv_ack_cq_events(cq, 1);
	OK(ibv_req_notify_cq(cq, 0));
	if (ibv_poll_cq(cq, 1, &wc) != 1)
		FAIL("%s, round %d: an event of %s, and no completion", s->first ? "first" : "second", round,
		     which ? "a receive" : "a send");
	EQ(wc.status, IBV_WC_SUCCESS);
}

static void *play(void *arg)
{
	struct side *s = arg;
	for (int i = 0; i < ROUNDS; i++) {
		if (!s->first || i > 0) {
			take(s, 1, i);
			OK(post_recv(s->e.qp, i, at(&s->e, 0, 64)));
		}
		OK(post_send(s->e.qp, i, at(&s->e, 4096, 8)));
		take(s, 0, i);
	}
	if (s->first)
		take(s, 1, ROUNDS);
	return NULL;
}

int main(void)
{
	struct side s[2];
	struct end e[2];
	for (int i = 0; i < 2; i++) {
		s[i].first = i == 0;
		open_end(&s[i].e, i);
		for (int which = 0; which < 2; which++) {
			s[i].channels[which] = MADE(ibv_create_comp_channel(s[i].e.context));
			s[i].cqs[which] = MADE(ibv_create_cq(s[i].e.context, 64, NULL, s[i].channels[which], 0));
			OK(ibv_req_notify_cq(s[i].cqs[which], 0));
		}
		struct ibv_qp_init_attr init = qp_options(&s[i].e, IBV_QPT_RC);
		init.send_cq = s[i].cqs[0];
		init.recv_cq = s[i].cqs[1];
		s[i].e.qp = MADE(ibv_create_qp(s[i].e.pd, &init));
		e[i] = s[i].e;
	}
	connect_with(e, ALL_RIGHTS, USUAL);
	pthread_t threads[2];
	for (int i = 0; i < 2; i++)
		for (int j = 0; j < 16; j++)
			OK(post_recv(s[i].e.qp, j, at(&s[i].e, 0, 64)));
	for (int i = 0; i < 2; i++)
		CHECK(pthread_create(&threads[i], NULL, play, &s[i]) == 0);
	for (int i = 0; i < 2; i++)
		CHECK(pthread_join(threads[i], NULL) == 0);
	for (int i = 0; i < 2; i++) {
		OK(ibv_destroy_qp(s[i].e.qp));
		for (int which = 0; which < 2; which++) {
			OK(ibv_destroy_cq(s[i].cqs[which]));
			OK(ibv_destroy_comp_channel(s[i].channels[which]));
		}
		close_end(&s[i].e);
	}
	return 0;
}
