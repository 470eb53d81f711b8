// Limits: as many objects as the device says that there can be are made, and places are used again.
// run: --dev mem
// seconds: 120

#include "common.h"

static double seconds(void)
{
	struct timespec now;
	clock_gettime(CLOCK_MONOTONIC, &now);
	return now.tv_sec + now.tv_nsec * 1e-9;
}

// As many as there can be, and then none is left.
#define ALL(what, count, make, destroy)                                                                                          \
	do {                                                                                                                     \
		PART(what);                                                                                                      \
		int all_ = (count);                                                                                              \
		void **made_ = calloc(all_, sizeof *made_);                                                                      \
		double begin_ = seconds();                                                                                       \
		for (int i = 0; i < all_; i++) {                                                                                 \
			made_[i] = (make);                                                                                       \
			if (!made_[i])                                                                                           \
				FAIL("%d of %d are made: %s", i, all_, strerror(errno));                                         \
		}                                                                                                                \
		double end_ = seconds();                                                                                         \
		for (int i = 0; i < all_; i++)                                                                                   \
			OK(destroy(made_[i]));                                                                                   \
		printf("%d, made in %.2f s, destroyed in %.2f s\n", all_, end_ - begin_, seconds() - end_);                      \
		free(made_);                                                                                                     \
	} while (0)

int main(void)
{
	struct end e;
	open_end(&e, 0);
	struct ibv_device_attr most;
	OK(ibv_query_device(e.context, &most));
	struct ibv_ah_attr path = path_to(&e, &e);
	struct ibv_srq_init_attr srq = {.attr = {.max_wr = 1, .max_sge = 1}};
	// One of each is there already, and QP1 may be.
	ALL("protection domains", most.max_pd - 1, ibv_alloc_pd(e.context), ibv_dealloc_pd);
	ALL("completion queues", most.max_cq - 1, ibv_create_cq(e.context, 1, NULL, NULL, 0), ibv_destroy_cq);
	ALL("completion queues once more", most.max_cq - 1, ibv_create_cq(e.context, 1, NULL, NULL, 0), ibv_destroy_cq);
	ALL("address handles", most.max_ah, ibv_create_ah(e.pd, &path), ibv_destroy_ah);
	ALL("shared receive queues", most.max_srq, ibv_create_srq(e.pd, &srq), ibv_destroy_srq);
	ALL("memory windows", most.max_mw, ibv_alloc_mw(e.pd, IBV_MW_TYPE_1), ibv_dealloc_mw);
	ALL("memory regions", most.max_mr - 1, ibv_reg_mr(e.pd, e.memory, 8, 0), ibv_dereg_mr);
	close_end(&e);
	return 0;
}
