// FETCH_AND_ADD and CMP_AND_SWP: results, what they leave behind, what is refused, and that none is lost among many.

#include "common.h"

static int post_atomic(struct end e[2], enum ibv_wr_opcode opcode, uint64_t wr_id, size_t offset, uint64_t compare_add, uint64_t swap)
{
	struct ibv_sge sge = at(&e[0], 0, 8);
	struct ibv_send_wr wr = work(opcode, wr_id, &sge);
	wr.wr.atomic.remote_addr = address(&e[1], offset);
	wr.wr.atomic.rkey = e[1].mr->rkey;
	wr.wr.atomic.compare_add = compare_add;
	wr.wr.atomic.swap = swap;
	return post(e[0].qp, &wr);
}

static uint64_t word(const struct end *e, size_t offset)
{
	uint64_t value;
	memcpy(&value, e->memory + offset, 8);
	return value;
}

static void set(struct end *e, size_t offset, uint64_t value)
{
	memcpy(e->memory + offset, &value, 8);
}

static void results(struct end e[2])
{
	PART("FETCH_AND_ADD brings what was there, and wraps");
	set(&e[1], 64, 0x0102030405060708);
	OK(post_atomic(e, IBV_WR_ATOMIC_FETCH_AND_ADD, 1, 64, 5, 0));
	struct ibv_wc wc = DONE(e[0].cq, 1, IBV_WC_SUCCESS);
	EQ(wc.opcode, IBV_WC_FETCH_ADD);
	CHECK(word(&e[0], 0) == 0x0102030405060708);
	CHECK(word(&e[1], 64) == 0x010203040506070d);
	set(&e[1], 64, UINT64_MAX);
	OK(post_atomic(e, IBV_WR_ATOMIC_FETCH_AND_ADD, 2, 64, 3, 0));
	DONE(e[0].cq, 2, IBV_WC_SUCCESS);
	CHECK(word(&e[0], 0) == UINT64_MAX && word(&e[1], 64) == 2);
	PART("CMP_AND_SWP swaps what is as expected, and only that");
	OK(post_atomic(e, IBV_WR_ATOMIC_CMP_AND_SWP, 3, 64, 1, 77));
	EQ(DONE(e[0].cq, 3, IBV_WC_SUCCESS).opcode, IBV_WC_COMP_SWAP);
	CHECK(word(&e[0], 0) == 2 && word(&e[1], 64) == 2);
	OK(post_atomic(e, IBV_WR_ATOMIC_CMP_AND_SWP, 4, 64, 2, 77));
	DONE(e[0].cq, 4, IBV_WC_SUCCESS);
	CHECK(word(&e[0], 0) == 2 && word(&e[1], 64) == 77);
	NOTHING(e[1].cq, 20);
}

static void many(struct end e[2])
{
	PART("1000 additions, several under way at a time, none lost and none twice");
	set(&e[1], 0, 0);
	int posted = 0;
	for (int done = 0; done < 1000; done++) {
		while (posted < 1000 && posted - done < 16) {
			OK(post_atomic(e, IBV_WR_ATOMIC_FETCH_AND_ADD, posted, 0, 1, 0));
			posted++;
		}
		DONE(e[0].cq, done, IBV_WC_SUCCESS);
	}
	EQ(word(&e[1], 0), 1000);
}

struct adder {
	struct end ends[2];
	pthread_t thread;
};

#define ADDERS 2
#define EACH 300

static void *add(void *arg)
{
	struct adder *a = arg;
	for (int i = 0; i < EACH; i++) {
		OK(post_atomic(a->ends, IBV_WR_ATOMIC_FETCH_AND_ADD, i, 0, 1, 0));
		DONE(a->ends[0].cq, i, IBV_WC_SUCCESS);
	}
	return NULL;
}

static void together(struct end *target)
{
	PART("two requesters, and the processor itself, on one word");
	set(target, 0, 0);
	struct adder adders[ADDERS];
	for (int i = 0; i < ADDERS; i++) {
		open_end(&adders[i].ends[0], 0);
		adders[i].ends[1] = *target;
		connect_new(adders[i].ends, IBV_QPT_RC);
	}
	for (int i = 0; i < ADDERS; i++)
		CHECK(pthread_create(&adders[i].thread, NULL, add, &adders[i]) == 0);
	// With softnic they are atomic to the processor, too, though it does not say so.
	int own = strncmp(ibv_get_device_name(target->context->device), "softnic", 7) == 0 ? EACH : 0;
	for (int i = 0; i < own; i++) {
		__atomic_fetch_add((uint64_t *)target->memory, 1, __ATOMIC_SEQ_CST);
		if (i % 16 == 0)
			sched_yield();
	}
	for (int i = 0; i < ADDERS; i++) {
		CHECK(pthread_join(adders[i].thread, NULL) == 0);
		destroy_qps(adders[i].ends);
		close_end(&adders[i].ends[0]);
	}
	EQ(word(target, 0), ADDERS * EACH + own);
}

static void refused(struct end e[2])
{
	PART("an address that is no multiple of 8: IBV_WC_REM_INV_REQ_ERR");
	connect_new(e, IBV_QPT_RC);
	set(&e[1], 8, 1);
	OK(post_atomic(e, IBV_WR_ATOMIC_FETCH_AND_ADD, 1, 12, 1, 0));
	DONE(e[0].cq, 1, IBV_WC_REM_INV_REQ_ERR);
	EQ(word(&e[1], 8), 1);
	destroy_qps(e);
	PART("a key without the right: IBV_WC_REM_ACCESS_ERR");
	connect_new(e, IBV_QPT_RC);
	struct ibv_mr *whole = e[1].mr;
	e[1].mr = MADE(ibv_reg_mr(e[1].pd, e[1].memory, 4096, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE));
	OK(post_atomic(e, IBV_WR_ATOMIC_FETCH_AND_ADD, 1, 8, 1, 0));
	DONE(e[0].cq, 1, IBV_WC_REM_ACCESS_ERR);
	EQ(word(&e[1], 8), 1);
	OK(ibv_dereg_mr(e[1].mr));
	e[1].mr = whole;
	destroy_qps(e);
}

int main(void)
{
	struct end e[2];
	open_both(e);
	struct ibv_device_attr attr;
	OK(ibv_query_device(e[0].context, &attr));
	PART("atomics are said to be the device's: UCX uses no others");
	EQ(attr.atomic_cap, IBV_ATOMIC_HCA);
	connect_new(e, IBV_QPT_RC);
	results(e);
	many(e);
	destroy_qps(e);
	refused(e);
	together(&e[1]);
	close_both(e);
	return 0;
}
