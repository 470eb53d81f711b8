// What softnicdv_query_qp() tells of failover: whether a queue pair has a backup, where its sends are, and why.
//
// A script takes RC_RDMA_WRITE_ONLY and RC_COMPARE_SWAP from the wire of the device, so that this work, and no other, runs out of retries: no
// clock decides when. Probes are such a WRITE, too: nothing returns.
// run: --dev mem --backup mem
// link: -libverbs -ldl

#define _GNU_SOURCE
#include <dlfcn.h>
#include <stddef.h>

#include "../../include/softnicdv.h"
#include "common.h"

static __typeof__(softnicdv_query_qp) *query;

static struct softnicdv_qp_attr asked(struct ibv_qp *qp)
{
	struct softnicdv_qp_attr attr = {.comp_mask = SOFTNICDV_QP_ATTR_FAILOVER};
	OK(query(qp, &attr));
	EQ(attr.comp_mask, SOFTNICDV_QP_ATTR_FAILOVER);
	EQ(attr.reserved, 0);
	return attr;
}

// Waits until the queue pair has this protection and this state.
static struct softnicdv_qp_attr until(struct ibv_qp *qp, uint32_t protection, uint32_t state)
{
	uint64_t begin = now_ms();
	for (;;) {
		struct softnicdv_qp_attr attr = asked(qp);
		if (attr.protection == protection && attr.failover_state == state)
			return attr;
		if (now_ms() - begin > LIMIT_MS)
			FAIL("protection %u and state %u, not %u and %u", attr.protection, attr.failover_state, protection, state);
		usleep(1000);
	}
}

static void is_unused(struct softnicdv_qp_attr attr)
{
	EQ(attr.failover_state, SOFTNICDV_FAILOVER_DEFAULT);
	EQ(attr.failover_reason, SOFTNICDV_FAILOVER_REASON_NONE);
	EQ(attr.failover_refusal, SOFTNICDV_FAILOVER_REFUSAL_NONE);
	EQ(attr.failover_switches, 0);
}

static void connect_protected(struct end e[2])
{
	for (int i = 0; i < 2; i++) {
		e[i].qp = make_qp(&e[i], IBV_QPT_RC);
		EQ(asked(e[i].qp).protection, SOFTNICDV_PROTECTION_UNPROTECTED);
	}
	connect_with(e, ALL_RIGHTS, (struct patience){8, 1, 7});
	for (int i = 0; i < 2; i++)
		is_unused(until(e[i].qp, SOFTNICDV_PROTECTION_PROTECTED, SOFTNICDV_FAILOVER_DEFAULT));
}

// A program whose struct ends behind the transport asks for nothing, and nothing is written behind it.
static void writes_no_more_than_asked(struct ibv_qp *qp)
{
	struct softnicdv_qp_attr attr;
	memset(&attr, 0xa5, sizeof(attr));
	attr.comp_mask = 0;
	OK(query(qp, &attr));
	EQ(attr.comp_mask, 0);
	CHECK(!strcmp(attr.transport, "rc"));
	const uint8_t *bytes = (const uint8_t *)&attr;
	for (size_t i = offsetof(struct softnicdv_qp_attr, protection); i < sizeof(attr); i++)
		EQ(bytes[i], 0xa5);
	// What this library does not know is not said to be there.
	attr.comp_mask = ~0ull;
	OK(query(qp, &attr));
	EQ(attr.comp_mask, SOFTNICDV_QP_ATTR_FAILOVER);
}

int main(void)
{
	query = (__typeof__(query))dlsym(RTLD_DEFAULT, "softnicdv_query_qp");
	if (!query)
		LEAVE_OUT("there is no softnicdv");
	const char *folder = getenv("TMPDIR");
	char script[4096], fault[4200];
	snprintf(script, sizeof(script), "%s/failover-%d.toml", folder ? folder : "/tmp", getpid());
	FILE *file = MADE(fopen(script, "w"));
	fputs("event = [{ action = \"drop\", opcode = \"RC_RDMA_WRITE_ONLY\" }, { action = \"drop\", opcode = \"RC_COMPARE_SWAP\" }]\n", file);
	CHECK(fclose(file) == 0);
	snprintf(fault, sizeof(fault), "@%s", script);
	CHECK(setenv("SOFTNIC_FAULT", fault, 1) == 0);
	struct end e[2];
	open_both(e);
	unlink(script);

	PART("before, and where there is none");
	struct ibv_qp *ud = make_qp(&e[0], IBV_QPT_UD);
	EQ(asked(ud).protection, SOFTNICDV_PROTECTION_UNPROTECTED);
	is_unused(asked(ud));
	OK(ibv_destroy_qp(ud));
	connect_protected(e);
	writes_no_more_than_asked(e[0].qp);
	exchange(e, 1);
	is_unused(asked(e[0].qp));

	PART("a WRITE runs out of retries");
	OK(post_rdma(e[0].qp, IBV_WR_RDMA_WRITE, 5, at(&e[0], 0, 64), address(&e[1], 8192), e[1].mr->rkey));
	DONE(e[0].cq, 5, IBV_WC_SUCCESS);
	struct softnicdv_qp_attr attr = until(e[0].qp, SOFTNICDV_PROTECTION_PROTECTED, SOFTNICDV_FAILOVER_FALLBACK);
	EQ(attr.failover_reason, SOFTNICDV_FAILOVER_REASON_RETRIES);
	EQ(attr.failover_refusal, SOFTNICDV_FAILOVER_REFUSAL_NONE);
	EQ(attr.failover_switches, 1);
	attr = until(e[1].qp, SOFTNICDV_PROTECTION_PROTECTED, SOFTNICDV_FAILOVER_FALLBACK);
	EQ(attr.failover_reason, SOFTNICDV_FAILOVER_REASON_PEER);
	EQ(attr.failover_switches, 1);
	exchange(e, 2);
	destroy_qps(e);

	PART("an atomic, which must not be carried out twice");
	connect_protected(e);
	struct ibv_sge sge = at(&e[0], 0, 8);
	struct ibv_send_wr wr = work(IBV_WR_ATOMIC_CMP_AND_SWP, 6, &sge);
	wr.wr.atomic.remote_addr = address(&e[1], 0);
	wr.wr.atomic.rkey = e[1].mr->rkey;
	OK(post(e[0].qp, &wr));
	DONE(e[0].cq, 6, IBV_WC_RETRY_EXC_ERR);
	attr = until(e[0].qp, SOFTNICDV_PROTECTION_PROTECTED, SOFTNICDV_FAILOVER_FAILED);
	EQ(attr.failover_refusal, SOFTNICDV_FAILOVER_REFUSAL_UNSAFE);
	destroy_qps(e);
	close_both(e);
	return 0;
}
