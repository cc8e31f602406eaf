/* The functions that compilers call on their own. */
#include <stddef.h>
#include <stdint.h>

void *memcpy(void *restrict to, const void *restrict from, size_t n);
void *memmove(void *to, const void *from, size_t n);
void *memset(void *to, int byte, size_t n);
int memcmp(const void *a, const void *b, size_t n);

/* Without this, a compiler may see memcpy in a loop that copies, and call it for itself. */
#define KEEP_LOOP __asm volatile("" ::: "memory")

void *memcpy(void *restrict to, const void *restrict from, size_t n) { return memmove(to, from, n); }

void *memmove(void *to, const void *from, size_t n) {
  uint8_t *a = to;
  const uint8_t *b = from;
  if ((uintptr_t)a - (uintptr_t)b >= n) {
    for (size_t i = 0; i < n; i++) {
      a[i] = b[i];
      KEEP_LOOP;
    }
  } else {
    while (n--) {
      a[n] = b[n];
      KEEP_LOOP;
    }
  }
  return to;
}

void *memset(void *to, int byte, size_t n) {
  uint8_t *a = to;
  for (size_t i = 0; i < n; i++) {
    a[i] = (uint8_t)byte;
    KEEP_LOOP;
  }
  return to;
}

int memcmp(const void *a, const void *b, size_t n) {
  const uint8_t *x = a, *y = b;
  for (size_t i = 0; i < n; i++)
    if (x[i] != y[i]) return x[i] - y[i];
  return 0;
}
