// A process that has no memory left, and nobody who reads what it prints: verbs fail, and the program goes on.
// run: --dev mem

#include <fcntl.h>
#include <sys/resource.h>

#include "common.h"

// Bytes of the process's address space.
static size_t size(void)
{
	size_t pages = 0;
	FILE *file = fopen("/proc/self/statm", "r");
	CHECK(file && fscanf(file, "%zu", &pages) == 1);
	fclose(file);
	return pages * sysconf(_SC_PAGESIZE);
}

int main(void)
{
	struct end e[2];
	open_both(e);
	struct ibv_device_attr most;
	OK(ibv_query_device(e[0].context, &most));
	struct rlimit before, limit;
	CHECK(getrlimit(RLIMIT_AS, &before) == 0);
	limit = before;
	limit.rlim_cur = size() + (16 << 20);
	CHECK(setrlimit(RLIMIT_AS, &limit) == 0);
	PART("a completion queue, and a larger one, for which there is no memory: ENOMEM");
	REFUSED(ibv_create_cq(e[0].context, most.max_cqe, NULL, NULL, 0), ENOMEM);
	EQ(ibv_resize_cq(e[0].cq, most.max_cqe), ENOMEM);
	PART("queues of work requests for which there is none: ENOMEM");
	struct ibv_qp_init_attr init = qp_options(&e[0], IBV_QPT_RC);
	init.cap.max_send_wr = init.cap.max_recv_wr = most.max_qp_wr;
	init.cap.max_send_sge = init.cap.max_recv_sge = most.max_sge;
	REFUSED(ibv_create_qp(e[0].pd, &init), ENOMEM);
	struct ibv_srq_init_attr srq = {.attr = {.max_wr = most.max_srq_wr, .max_sge = most.max_srq_sge}};
	REFUSED(ibv_create_srq(e[0].pd, &srq), ENOMEM);
	CHECK(setrlimit(RLIMIT_AS, &before) == 0);
	connect_new(e, IBV_QPT_RC);
	exchange(e, 1);
	destroy_qps(e);
	close_both(e);
	return 0;
}
