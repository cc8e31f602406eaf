/* A program without an operating system: its entry, a memory function of its own, 64-bit division. */
#include <stddef.h>
#include <stdint.h>

uint64_t mace_probe(uint64_t x, uint64_t y);
void _start(void);
void *memset(void *to, int byte, size_t n);

void *memset(void *to, int byte, size_t n) {
  volatile unsigned char *at = to;
  while (n--) *at++ = (unsigned char)byte;
  return to;
}

uint64_t mace_probe(uint64_t x, uint64_t y) { return y ? x / y : 0; }

void _start(void) {
  volatile uint64_t result = mace_probe(1000000000000u, 3);
  for (;;) result = mace_probe(result, 7);
}
