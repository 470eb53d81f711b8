// Memory that may not be used as a region says: refused when it is registered, because a packet for it would end the process.

#include <sys/mman.h>

#include "common.h"

#define PAGE 4096

static uint8_t *map(int protection)
{
	uint8_t *memory = mmap(NULL, 3 * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	CHECK(memory != MAP_FAILED);
	memset(memory, 1, 3 * PAGE);
	// One page in the middle.
	CHECK(mprotect(memory + PAGE, PAGE, protection) == 0);
	return memory;
}

static void refused(struct end *e, uint8_t *memory, int rights)
{
	errno = 0;
	struct ibv_mr *mr = ibv_reg_mr(e->pd, memory, 3 * PAGE, rights);
	CHECK(!mr);
	EQ(errno, EFAULT);
}

static void granted(struct end *e, uint8_t *memory, int rights)
{
	struct ibv_mr *mr = MADE(ibv_reg_mr(e->pd, memory, 3 * PAGE, rights));
	OK(ibv_dereg_mr(mr));
}

int main(void)
{
	static const int reads[] = {0, IBV_ACCESS_REMOTE_READ};
	static const int writes[] = {IBV_ACCESS_LOCAL_WRITE, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE,
				     IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_ATOMIC};
	struct end e;
	open_end(&e, 0);
	uint8_t *read_only = map(PROT_READ), *closed = map(PROT_NONE), *plain = map(PROT_READ | PROT_WRITE);
	PART("memory that may only be read: EFAULT with every right to write");
	for (int i = 0; i < 2; i++)
		granted(&e, read_only, reads[i]);
	for (int i = 0; i < 3; i++)
		refused(&e, read_only, writes[i]);
	PART("memory that may not be used: EFAULT with any right");
	for (int i = 0; i < 2; i++)
		refused(&e, closed, reads[i]);
	for (int i = 0; i < 3; i++)
		refused(&e, closed, writes[i]);
	PART("memory that is not there: EFAULT");
	uint8_t *hole = map(PROT_READ);
	CHECK(munmap(hole + PAGE, PAGE) == 0);
	refused(&e, hole, 0);
	PART("a region that gets other rights, or other memory, is looked at again");
	struct ibv_mr *mr = MADE(ibv_reg_mr(e.pd, read_only, 3 * PAGE, IBV_ACCESS_REMOTE_READ));
	errno = 0;
	CHECK(ibv_rereg_mr(mr, IBV_REREG_MR_CHANGE_ACCESS, NULL, NULL, 0, writes[1]) != 0);
	EQ(errno, EFAULT);
	CHECK(ibv_rereg_mr(mr, IBV_REREG_MR_CHANGE_TRANSLATION, NULL, closed, 3 * PAGE, 0) != 0);
	EQ(errno, EFAULT);
	int both = IBV_REREG_MR_CHANGE_TRANSLATION | IBV_REREG_MR_CHANGE_ACCESS;
	OK(ibv_rereg_mr(mr, both, NULL, plain, 3 * PAGE, writes[1]));
	CHECK(ibv_rereg_mr(mr, IBV_REREG_MR_CHANGE_TRANSLATION, NULL, read_only, 3 * PAGE, 0) != 0);
	EQ(errno, EFAULT);
	OK(ibv_dereg_mr(mr));
	close_end(&e);
	return 0;
}
