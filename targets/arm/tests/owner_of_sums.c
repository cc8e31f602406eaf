/* Linked with a program, as a caller that has sums of its own in the array of level `sme` (AAPCS64, "ZA lazy
 * saving scheme"): fills it before main, and behind main says whether it is still on and as it was.
 * Vectors must have 64 bytes. */
#include <stdint.h>
#include <stdio.h>
#include <string.h>

enum { BYTES = 64 };

static uint8_t block[16], sums[BYTES * BYTES];

__attribute__((constructor)) static void fill_array(void) {
  uint8_t *row = sums;
  for (int i = 0; i < BYTES * BYTES; i++) sums[i] = (uint8_t)(7 * i + 1);
  __asm__ volatile(
      ".arch_extension sme\n\t"
      "msr S3_3_C13_C0_5, %[block]\n\t" /* TPIDR2_EL0 */
      "smstart za\n\t"
      "mov w12, #0\n"
      "1:\n\t"
      "ldr za[w12, 0], [%[row]]\n\t"
      "add %[row], %[row], #64\n\t"
      "add w12, w12, #1\n\t"
      "cmp w12, #64\n\t"
      "b.lt 1b"
      : [row] "+&r"(row)
      : [block] "r"(block)
      : "x12", "cc", "memory");
}

__attribute__((destructor)) static void compare_array(void) {
  uint8_t array[BYTES * BYTES] = {0}, *row = array;
  uint64_t modes;
  __asm__ volatile("mrs %0, S3_3_C4_C2_2" : "=r"(modes)); /* SVCR: bit 1 says that the array is on */
  if (modes & 2)
    __asm__ volatile(
        ".arch_extension sme\n\t"
        "mov w12, #0\n"
        "1:\n\t"
        "str za[w12, 0], [%[row]]\n\t"
        "add %[row], %[row], #64\n\t"
        "add w12, w12, #1\n\t"
        "cmp w12, #64\n\t"
        "b.lt 1b"
        : [row] "+&r"(row)
        :
        : "x12", "cc", "memory");
  fprintf(stderr, "sums %s\n", memcmp(sums, array, sizeof sums) ? "lost" : "there");
}
