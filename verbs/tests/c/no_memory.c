// A process that has no memory left, and nobody who reads what it prints: verbs fail, and the program goes on.
// run: --dev mem
// seconds: 90

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
	PART("more work requests in one list than there is memory for: ENOMEM, and none is posted");
	struct ibv_qp_init_attr_ex extended = {
		.send_cq = e[0].cq,
		.recv_cq = e[0].cq,
		.qp_type = IBV_QPT_RC,
		.cap = {.max_send_wr = DEPTH, .max_recv_wr = DEPTH, .max_send_sge = 4, .max_recv_sge = 4},
		.comp_mask = IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_SEND_OPS_FLAGS,
		.pd = e[0].pd,
		.send_ops_flags = IBV_QP_EX_WITH_RDMA_WRITE,
	};
	struct ibv_qp *qp = MADE(ibv_create_qp_ex(e[0].context, &extended));
	struct ibv_qp_ex *ex = MADE(ibv_qp_to_qp_ex(qp));
	limit.rlim_cur = size() + (16 << 20);
	CHECK(setrlimit(RLIMIT_AS, &limit) == 0);
	ibv_wr_start(ex);
	for (int i = 0; i < 4 << 20; i++) {
		ibv_wr_rdma_write(ex, 1, 0);
		ibv_wr_set_sge(ex, 1, 0, 8);
	}
	EQ(ibv_wr_complete(ex), ENOMEM);
	CHECK(setrlimit(RLIMIT_AS, &before) == 0);
	OK(ibv_destroy_qp(qp));
	exchange(e, 1);
	destroy_qps(e);
	close_both(e);
	return 0;
}
