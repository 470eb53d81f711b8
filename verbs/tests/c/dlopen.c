// A program that loads the library itself, as NCCL does: each function by its name and version, all the rest by the context's own table.
// link: -ldl

#define _GNU_SOURCE
#include <dlfcn.h>

// The headers call the library only by what is inlined, which goes through the context.
#include "common.h"

#define FUNCTION(name, version) ((__typeof__(&name))found(library, #name, version))

static void *found(void *library, const char *name, const char *version)
{
	void *function = dlvsym(library, name, version);
	if (!function)
		FAIL("there is no %s of version %s: %s", name, version, dlerror());
	return function;
}

static const struct {
	const char *name, *version;
} USED[] = {
	{"ibv_get_device_list", "IBVERBS_1.1"},
	{"ibv_free_device_list", "IBVERBS_1.1"},
	{"ibv_get_device_name", "IBVERBS_1.1"},
	{"ibv_open_device", "IBVERBS_1.1"},
	{"ibv_close_device", "IBVERBS_1.1"},
	{"ibv_get_async_event", "IBVERBS_1.1"},
	{"ibv_ack_async_event", "IBVERBS_1.1"},
	{"ibv_query_device", "IBVERBS_1.1"},
	{"ibv_query_port", "IBVERBS_1.1"},
	{"ibv_query_gid", "IBVERBS_1.1"},
	{"ibv_query_qp", "IBVERBS_1.1"},
	{"ibv_alloc_pd", "IBVERBS_1.1"},
	{"ibv_dealloc_pd", "IBVERBS_1.1"},
	{"ibv_reg_mr", "IBVERBS_1.1"},
	{"ibv_reg_mr_iova2", "IBVERBS_1.8"},
	{"ibv_reg_dmabuf_mr", "IBVERBS_1.12"},
	{"ibv_dereg_mr", "IBVERBS_1.1"},
	{"ibv_create_cq", "IBVERBS_1.1"},
	{"ibv_destroy_cq", "IBVERBS_1.1"},
	{"ibv_create_qp", "IBVERBS_1.1"},
	{"ibv_modify_qp", "IBVERBS_1.1"},
	{"ibv_destroy_qp", "IBVERBS_1.1"},
	{"ibv_fork_init", "IBVERBS_1.1"},
	{"ibv_event_type_str", "IBVERBS_1.1"},
	{"ibv_query_ece", "IBVERBS_1.10"},
	{"ibv_set_ece", "IBVERBS_1.10"},
	{"ibv_create_ah", "IBVERBS_1.1"},
	{"ibv_destroy_ah", "IBVERBS_1.1"},
	{"ibv_create_comp_channel", "IBVERBS_1.0"},
	{"ibv_destroy_comp_channel", "IBVERBS_1.0"},
	{"_ibv_query_gid_ex", "IBVERBS_1.11"},
	{"_ibv_query_gid_table", "IBVERBS_1.11"},
	{"ibv_qp_to_qp_ex", "IBVERBS_1.6"},
};

#undef ibv_reg_mr
#undef ibv_query_port

static void once(const char *name, int traffic)
{
	void *library = dlopen(name, RTLD_NOW);
	if (!library)
		FAIL("%s", dlerror());
	// Where libibverbs-dev is installed there is another library of the name without a version.
	found(library, "softnicdv_is_supported", "SOFTNICDV_1.0");
	for (size_t i = 0; i < sizeof(USED) / sizeof(USED[0]); i++)
		found(library, USED[i].name, USED[i].version);
	CHECK(!dlvsym(library, "ibv_no_such_thing", "IBVERBS_1.1"));
	EQ(FUNCTION(ibv_fork_init, "IBVERBS_1.1")(), 0);
	int count = 0;
	struct ibv_device **list = FUNCTION(ibv_get_device_list, "IBVERBS_1.1")(&count);
	CHECK(list && count > 0);
	CHECK(strlen(FUNCTION(ibv_get_device_name, "IBVERBS_1.1")(list[0])) > 0);
	struct ibv_context *context = MADE(FUNCTION(ibv_open_device, "IBVERBS_1.1")(list[0]));
	FUNCTION(ibv_free_device_list, "IBVERBS_1.1")(list);
	// The exported function knows no more than the first 48 bytes of the structure.
	struct ibv_port_attr port[2];
	memset(port, 0xee, sizeof(port));
	int (*query_port)(struct ibv_context *, uint8_t, void *) = found(library, "ibv_query_port", "IBVERBS_1.1");
	OK(query_port(context, 1, port));
	EQ(port[0].state, IBV_PORT_ACTIVE);
	EQ(((uint8_t *)port)[48], 0xee);
	if (traffic) {
		struct ibv_pd *pd = MADE(FUNCTION(ibv_alloc_pd, "IBVERBS_1.1")(context));
		struct ibv_cq *cq = MADE(FUNCTION(ibv_create_cq, "IBVERBS_1.1")(context, 16, NULL, NULL, 0));
		static uint8_t memory[4096];
		struct ibv_mr *mr = MADE(FUNCTION(ibv_reg_mr, "IBVERBS_1.1")(pd, memory, sizeof(memory), ALL_RIGHTS));
		struct end e = {.context = context, .pd = pd, .cq = cq, .mr = mr, .memory = memory};
		struct ibv_qp_init_attr init = qp_options(&e, IBV_QPT_RC);
		e.qp = MADE(FUNCTION(ibv_create_qp, "IBVERBS_1.1")(pd, &init));
		struct ibv_qp_attr attr = {.qp_state = IBV_QPS_INIT, .port_num = 1, .qp_access_flags = ALL_RIGHTS};
		__typeof__(&ibv_modify_qp) modify = FUNCTION(ibv_modify_qp, "IBVERBS_1.1");
		OK(modify(e.qp, &attr, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS));
		OK(post_recv(e.qp, 5, at(&e, 0, 8)));
		attr.qp_state = IBV_QPS_ERR;
		OK(modify(e.qp, &attr, IBV_QP_STATE));
		struct ibv_wc wc;
		for (uint64_t end = now_ms() + LIMIT_MS; ibv_poll_cq(cq, 1, &wc) == 0;)
			CHECK(now_ms() < end);
		EQ(wc.wr_id, 5);
		EQ(wc.status, IBV_WC_WR_FLUSH_ERR);
		OK(FUNCTION(ibv_destroy_qp, "IBVERBS_1.1")(e.qp));
		OK(FUNCTION(ibv_destroy_cq, "IBVERBS_1.1")(cq));
		OK(FUNCTION(ibv_dereg_mr, "IBVERBS_1.1")(mr));
		OK(FUNCTION(ibv_dealloc_pd, "IBVERBS_1.1")(pd));
	}
	OK(FUNCTION(ibv_close_device, "IBVERBS_1.1")(context));
	EQ(dlclose(library), 0);
}

int main(void)
{
	PART("loaded, used and closed, several times over");
	for (int i = 0; i < 5; i++)
		once("libibverbs.so.1", i % 2 == 0);
	PART("the name without a version, which NCCL asks for first");
	once("libibverbs.so", 1);
	void *without_version = dlopen("librdmacm.so", RTLD_NOW);
	CHECK(without_version);
	found(without_version, "softnicdv_is_supported", "SOFTNICDV_1.0");
	dlclose(without_version);
	PART("both libraries are one");
	void *verbs = dlopen("libibverbs.so.1", RTLD_NOW), *cm = dlopen("librdmacm.so.1", RTLD_NOW);
	CHECK(verbs && cm);
	found(cm, "rdma_create_event_channel", "RDMACM_1.0");
	found(cm, "rdma_getaddrinfo", "RDMACM_1.0");
	PART("a name without its version: what libibverbs has under private versions alone, too");
	CHECK(dlsym(verbs, "ibv_query_gid_type"));
	dlclose(verbs);
	dlclose(cm);
	return 0;
}
