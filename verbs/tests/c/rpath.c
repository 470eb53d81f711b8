// A program that is linked with a DT_RPATH, which ld.so goes by before LD_LIBRARY_PATH, to the libraries of the system: conda and Spack link so.
// run: --dev mem
// link: -Wl,--disable-new-dtags,-rpath,/usr/lib/x86_64-linux-gnu:/usr/lib/aarch64-linux-gnu -libverbs -lrdmacm

#define _GNU_SOURCE
#include <dlfcn.h>
#include <rdma/rdma_cma.h>

#include "common.h"

static const char *library_of(void *function)
{
	Dl_info info;
	CHECK(dladdr(function, &info));
	return info.dli_fname;
}

int main(void)
{
	PART("verbs and connections are softnic's");
	int count = 0;
	struct ibv_device **list = MADE(ibv_get_device_list(&count));
	EQ(count, 2);
	CHECK(!strcmp(ibv_get_device_name(list[0]), "softnic0"));
	ibv_free_device_list(list);
	struct rdma_event_channel *channel = MADE(rdma_create_event_channel());
	rdma_destroy_event_channel(channel);
	const char *verbs = library_of((void *)ibv_get_device_list), *cm = library_of((void *)rdma_create_event_channel);
	if (strcmp(verbs, cm))
		FAIL("verbs are those of %s, connections those of %s", verbs, cm);
	return 0;
}
