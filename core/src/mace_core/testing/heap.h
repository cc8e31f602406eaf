/* heap.h - counts what a program asks of the heap, its libraries' requests included, while heap_is_watched is
 * set.
 *
 * It stands in for the functions of the GNU C library, which has its own under other names. To be included
 * once.
 */
#ifndef MACE_TESTING_HEAP_H
#define MACE_TESTING_HEAP_H

#include <errno.h>
#include <stddef.h>
#include <stdint.h>

static int heap_is_watched;
static long heap_requests;

extern void *__libc_malloc(size_t);
extern void *__libc_calloc(size_t, size_t);
extern void *__libc_realloc(void *, size_t);
extern void *__libc_memalign(size_t, size_t);

void *malloc(size_t bytes) {
  heap_requests += heap_is_watched;
  return __libc_malloc(bytes);
}

void *calloc(size_t count, size_t bytes) {
  heap_requests += heap_is_watched;
  return __libc_calloc(count, bytes);
}

void *realloc(void *memory, size_t bytes) {
  heap_requests += heap_is_watched;
  return __libc_realloc(memory, bytes);
}

void *memalign(size_t alignment, size_t bytes) {
  heap_requests += heap_is_watched;
  return __libc_memalign(alignment, bytes);
}

void *aligned_alloc(size_t alignment, size_t bytes) { return memalign(alignment, bytes); }

int posix_memalign(void **memory, size_t alignment, size_t bytes) {
  *memory = memalign(alignment, bytes);
  return *memory ? 0 : ENOMEM;
}

#endif
