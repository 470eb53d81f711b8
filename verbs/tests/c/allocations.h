// An allocator that counts, of this program and of the library: it has its memory from here.

#ifndef SOFTNIC_TESTS_ALLOCATIONS_H
#define SOFTNIC_TESTS_ALLOCATIONS_H

#include <errno.h>
#include <stdatomic.h>
#include <stdlib.h>

extern void *__libc_malloc(size_t), *__libc_calloc(size_t, size_t), *__libc_realloc(void *, size_t), *__libc_memalign(size_t, size_t);

// Of this thread, and of all.
static __thread unsigned long allocations;
static atomic_ulong all_allocations;

static void *count_in(void *made)
{
	allocations++;
	all_allocations++;
	return made;
}

void *malloc(size_t size)
{
	return count_in(__libc_malloc(size));
}

void *calloc(size_t count, size_t size)
{
	return count_in(__libc_calloc(count, size));
}

void *realloc(void *old, size_t size)
{
	return count_in(__libc_realloc(old, size));
}

int posix_memalign(void **made, size_t align, size_t size)
{
	*made = count_in(__libc_memalign(align, size));
	return *made ? 0 : ENOMEM;
}

#endif
