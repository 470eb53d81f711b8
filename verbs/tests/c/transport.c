// A queue pair's transport by softnicdv.h: what was wished for, and what came of it where the peer wished for the same or not.
// run: --dev mem
// link: -libverbs -ldl

#define _GNU_SOURCE
#include <dlfcn.h>

#include "../../include/softnicdv.h"
#include "common.h"

static __typeof__(softnicdv_create_qp) *create;
static __typeof__(softnicdv_query_qp) *query;

static struct ibv_qp *make(struct end *e, enum ibv_qp_type type, const char *transport)
{
	struct ibv_qp_init_attr plain = qp_options(e, type);
	struct ibv_qp_init_attr_ex init = {
		.send_cq = plain.send_cq,
		.recv_cq = plain.recv_cq,
		.qp_type = plain.qp_type,
		.cap = plain.cap,
		.pd = e->pd,
		.comp_mask = IBV_QP_INIT_ATTR_PD,
	};
	struct softnicdv_qp_init_attr dv = {.transport = transport};
	return create(e->context, &init, &dv);
}

// Waits until that is spoken: what comes late from the peer changes silence into an answer.
static void speaks(struct ibv_qp *qp, const char *must)
{
	struct softnicdv_qp_attr attr = {.comp_mask = SOFTNICDV_QP_ATTR_FAILOVER};
	uint64_t begin = now_ms();
	do {
		OK(query(qp, &attr));
		// There is no backup here: tests/c/failover.c has one.
		EQ(attr.protection, SOFTNICDV_PROTECTION_NONE);
		if (now_ms() - begin > LIMIT_MS)
			FAIL("it speaks `%s`, not `%s`", attr.transport, must);
		usleep(1000);
	} while (strcmp(attr.transport, must));
}

static void both(struct end e[2], const char *wishes[2], const char *must)
{
	for (int i = 0; i < 2; i++)
		e[i].qp = MADE(make(&e[i], IBV_QPT_RC, wishes[i]));
	connect_with(e, ALL_RIGHTS, USUAL);
	for (int i = 0; i < 2; i++) {
		speaks(e[i].qp, must);
		EQ(ibv_query_qp_data_in_order(e[i].qp, IBV_WR_RDMA_WRITE, 0), 0);
	}
	fill(e[0].memory, 100000, 7);
	OK(post_recv(e[1].qp, 1, at(&e[1], 0, 100000)));
	struct ibv_sge sge = at(&e[0], 0, 100000);
	struct ibv_send_wr wr = work(IBV_WR_SEND, 2, &sge);
	OK(post(e[0].qp, &wr));
	DONE(e[0].cq, 2, IBV_WC_SUCCESS);
	EQ(DONE(e[1].cq, 1, IBV_WC_SUCCESS).byte_len, 100000);
	CHECK(same(e[1].memory, 100000, 7));
	destroy_qps(e);
}

int main(void)
{
	create = (__typeof__(create))dlsym(RTLD_DEFAULT, "softnicdv_create_qp");
	query = (__typeof__(query))dlsym(RTLD_DEFAULT, "softnicdv_query_qp");
	if (!create || !query)
		LEAVE_OUT("there is no softnicdv");
	struct end e[2];
	open_both(e);
	PART("both wish for Selective Repeat");
	both(e, (const char *[]){"sr", "sr"}, "sr");
	PART("with a window");
	both(e, (const char *[]){"sr:128", "sr"}, "sr");
	PART("both wish for LoWAR, each with blocks of its own");
	both(e, (const char *[]){"lowar:32,1", "lowar:8,2"}, "lowar");
	both(e, (const char *[]){"lowar", "lowar"}, "lowar");
	PART("one does not");
	both(e, (const char *[]){"lowar:32,1", "rc"}, "rc");
	both(e, (const char *[]){"lowar:32,1", "sr"}, "rc");
	both(e, (const char *[]){"sr", "rc"}, "rc");
	both(e, (const char *[]){"rc", "sr"}, "rc");
	PART("what there is not");
	static const char *none[] = {"", "sr:1", "sr:x", "uc", "tcp", "lowar:8,9", "lowar:0,1"};
	for (int i = 0; i < 7; i++)
		REFUSED(make(&e[0], IBV_QPT_RC, none[i]), EOPNOTSUPP);
	REFUSED(make(&e[0], IBV_QPT_UD, "sr"), EOPNOTSUPP);
	OK(ibv_destroy_qp(MADE(make(&e[0], IBV_QPT_UD, "ud"))));
	close_both(e);
	return 0;
}
