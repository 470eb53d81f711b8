// Authenticated queue pairs by softnicdv.h: with the same secret they work, with another or none the peer is refused, and what has none.
// run: --dev mem
// link: -libverbs -ldl

#define _GNU_SOURCE
#include <dlfcn.h>
#include <poll.h>

#include "../../include/softnicdv.h"
#include "common.h"

static __typeof__(softnicdv_set_qp_secret) *set_secret;
static const char SECRETS[2][33] = {"0123456789abcdef0123456789abcdef", "another one another one another "};

// Connected queue pairs, each with one of the secrets or none (-1).
static void join(struct end e[2], const int secrets[2])
{
	for (int i = 0; i < 2; i++) {
		e[i].qp = make_qp(&e[i], IBV_QPT_RC);
		if (secrets[i] >= 0)
			OK(set_secret(e[i].qp, SECRETS[secrets[i]], 32));
	}
	connect_with(e, ALL_RIGHTS, USUAL);
}

static void refuses(struct end *e)
{
	struct pollfd p = {.fd = e->context->async_fd, .events = POLLIN};
	struct ibv_async_event event;
	CHECK(poll(&p, 1, LIMIT_MS) == 1);
	OK(ibv_get_async_event(e->context, &event));
	EQ(event.event_type, IBV_EVENT_QP_FATAL);
	CHECK(event.element.qp == e->qp);
	ibv_ack_async_event(&event);
	EQ(state_of(e->qp), IBV_QPS_ERR);
}

int main(void)
{
	set_secret = (__typeof__(set_secret))dlsym(RTLD_DEFAULT, "softnicdv_set_qp_secret");
	if (!set_secret)
		LEAVE_OUT("there is no softnicdv");
	struct end e[2];
	open_both(e);
	PART("both have the secret");
	join(e, (const int[]){0, 0});
	exchange(e, 7);
	PART("it is set before the queue pair becomes ready to receive");
	EQ(set_secret(e[0].qp, SECRETS[0], 32), EINVAL);
	destroy_qps(e);
	PART("another secret");
	join(e, (const int[]){0, 1});
	OK(post_send(e[0].qp, 1, at(&e[0], 0, 8)));
	DONE(e[0].cq, 1, IBV_WC_WR_FLUSH_ERR);
	refuses(&e[0]);
	refuses(&e[1]);
	destroy_qps(e);
	PART("no secret at the other end");
	join(e, (const int[]){0, -1});
	OK(post_send(e[0].qp, 1, at(&e[0], 0, 8)));
	DONE(e[0].cq, 1, IBV_WC_WR_FLUSH_ERR);
	refuses(&e[0]);
	destroy_qps(e);
	PART("secrets that are none, and queue pairs that have none");
	e[0].qp = make_qp(&e[0], IBV_QPT_RC);
	EQ(set_secret(e[0].qp, SECRETS[0], 15), EINVAL);
	EQ(set_secret(e[0].qp, SECRETS[0], 5000), EINVAL);
	EQ(set_secret(e[0].qp, NULL, 32), EINVAL);
	OK(ibv_destroy_qp(e[0].qp));
	static const enum ibv_qp_type others[] = {IBV_QPT_UC, IBV_QPT_UD};
	for (int i = 0; i < 2; i++) {
		e[0].qp = make_qp(&e[0], others[i]);
		EQ(set_secret(e[0].qp, SECRETS[0], 32), EOPNOTSUPP);
		OK(ibv_destroy_qp(e[0].qp));
	}
	close_both(e);
	return 0;
}
