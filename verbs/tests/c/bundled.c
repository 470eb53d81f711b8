// A program that brings a copy of libibverbs under a name of its own, as Python's wheels do: loaded by that name, and as what a module is linked with.
// run: --dev mem
// link: -ldl

#define _GNU_SOURCE
#include <dlfcn.h>

#include "common.h"

#define COPY "libibverbs-1de1263b.so.1.14.48.0"

// What stands in for the copy has no device, and the module lists those that it finds. The loader has a RUNPATH of its own.
static const char SCRIPT[] =
	"cd \"$1\" && "
	"echo 'IBVERBS_1.1 { global: *; };' > versions && "
	"echo 'void *ibv_get_device_list(int *n) { *n = 0; return (void *)0; }' > copy.c && "
	"echo 'void *ibv_get_device_list(int *n); int devices(void) { int n = -1; ibv_get_device_list(&n); return n; }' > module.c && "
	"echo '#include <dlfcn.h>' > loader.c && "
	"echo 'void *load(const char *name) { return dlopen(name, RTLD_NOW); }' >> loader.c && "
	"echo 'int answer(void) { return 42; }' > plain.c && mkdir -p nearby && "
	"gcc -shared -fPIC -o " COPY " copy.c -Wl,-soname," COPY " -Wl,--version-script=versions && "
	"gcc -shared -fPIC -o module.so module.c -Wl,-rpath,'$ORIGIN' ./" COPY " && "
	"gcc -shared -fPIC -o nearby/libplain.so plain.c && "
	"gcc -shared -fPIC -o loader.so loader.c -Wl,--enable-new-dtags,-rpath,'$ORIGIN/nearby' -ldl";

static void *loaded(const char *folder, const char *name)
{
	char path[512];
	snprintf(path, sizeof(path), "%s/%s", folder, name);
	void *library = dlopen(path, RTLD_NOW);
	if (!library)
		FAIL("%s", dlerror());
	return library;
}

static void *symbol(void *library, const char *name)
{
	void *found = dlsym(library, name);
	if (!found)
		FAIL("%s", dlerror());
	return found;
}

int main(void)
{
	char folder[256], command[2048];
	const char *temporary = getenv("TMPDIR");
	snprintf(folder, sizeof(folder), "%s/bundled-XXXXXX", temporary ? temporary : "/tmp");
	CHECK(mkdtemp(folder));
	// The compiler itself runs without softnic.
	snprintf(command, sizeof(command), "unset LD_PRELOAD LD_LIBRARY_PATH; set -- '%s'; %s", folder, SCRIPT);
	EQ(system(command), 0);

	PART("loaded by its name");
	void *copy = loaded(folder, COPY);
	__typeof__(&ibv_get_device_list) list = symbol(copy, "ibv_get_device_list");
	int count = 0;
	struct ibv_device **devices = list(&count);
	EQ(count, 2);
	((__typeof__(&ibv_free_device_list))symbol(copy, "ibv_free_device_list"))(devices);
	symbol(copy, "softnicdv_is_supported");

	PART("linked with by a module");
	int (*count_devices)(void) = symbol(loaded(folder, "module.so"), "devices");
	EQ(count_devices(), 2);

	PART("all other libraries are looked for as the library wants that loads them");
	void *(*load)(const char *) = symbol(loaded(folder, "loader.so"), "load");
	CHECK(!dlopen("libplain.so", RTLD_NOW));
	void *plain = load("libplain.so");
	if (!plain)
		FAIL("%s", dlerror());
	int (*answer)(void) = symbol(plain, "answer");
	EQ(answer(), 42);

	snprintf(command, sizeof(command), "rm -r '%s'", folder);
	EQ(system(command), 0);
	return 0;
}
