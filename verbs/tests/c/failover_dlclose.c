// A program that closes the library while its connections move to the backup: it lives on without.
// link: -ldl -Wl,-z,lazy
// run: --dev mem --backup mem --fault down=1s+1h
// seconds: 60

#define _GNU_SOURCE
#include <dlfcn.h>
#include <sys/wait.h>

#include "common.h"

// Found when they are called for the first time, in the library that is open by then.
#pragma weak ibv_get_device_list
#pragma weak ibv_free_device_list
#pragma weak ibv_open_device
#pragma weak ibv_close_device
#pragma weak ibv_query_gid
#pragma weak ibv_alloc_pd
#pragma weak ibv_dealloc_pd
#pragma weak ibv_create_comp_channel
#pragma weak ibv_destroy_comp_channel
#pragma weak ibv_create_cq
#pragma weak ibv_destroy_cq
#pragma weak ibv_reg_mr
#pragma weak ibv_reg_mr_iova2
#pragma weak ibv_dereg_mr
#pragma weak ibv_create_qp
#pragma weak ibv_destroy_qp
#pragma weak ibv_modify_qp
#pragma weak ibv_query_qp
#pragma weak ibv_wc_status_str

// When the default path goes, from the opening of the device on; and between when and when after that work requests have used up their retries
// and the handshake takes place: 134 ms, and a bit more on a busy machine.
#define CUT_MS 1000
#define FIRST_MS 100
#define LAST_MS 220

static void *open_library(void)
{
	void *library = dlopen("libibverbs.so.1", RTLD_LAZY | RTLD_GLOBAL);
	if (!library)
		FAIL("%s", dlerror());
	return library;
}

static void close_in_the_middle(int after_ms, int in_order)
{
	void *library = open_library();
	struct end e[2];
	uint64_t end = now_ms() + (uint64_t)after_ms;
	open_both(e);
	for (int i = 0; i < 2; i++)
		e[i].qp = make_qp(&e[i], IBV_QPT_RC);
	connect_with(e, ALL_RIGHTS, (struct patience){12, 7, 7});
	for (unsigned n = 0; now_ms() < end; n++)
		exchange(e, n % 1000);
	// On its way.
	OK(post_send(e[0].qp, 1, at(&e[0], 0, 64)));
	if (in_order) {
		destroy_qps(e);
		close_both(e);
	}
	EQ(dlclose(library), 0);
	// Threads that were left would have no code any more.
	usleep(50 * 1000);
	exit(40);
}

int main(void)
{
	for (int in_order = 0; in_order < 2; in_order++) {
		PART(in_order ? "everything is closed before" : "nothing is closed before");
		for (int ms = FIRST_MS; ms < LAST_MS; ms += 40) {
			pid_t child = fork();
			CHECK(child >= 0);
			if (child == 0)
				close_in_the_middle(CUT_MS + ms, in_order);
			int status = 0;
			uint64_t end = now_ms() + 2 * LIMIT_MS;
			while (waitpid(child, &status, WNOHANG) == 0) {
				CHECK(now_ms() < end);
				usleep(1000);
			}
			CHECK(WIFEXITED(status));
			EQ(WEXITSTATUS(status), 40);
		}
	}
	return 0;
}
