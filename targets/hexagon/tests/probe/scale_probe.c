/* Compares hv_scale, hv_scale_fast and partial loads and stores with the scalar units.
 *
 * Prints how many products and partial copies differ, and whether there were many ties and many products that
 * the fast way was in doubt about.
 */
#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#define MACE_UNUSED __attribute__((unused))
#include "hvx.h"

enum { ROUNDS = 20000, LANES = 32 };

static uint64_t state = 88172645463325252u;

/* Marsaglia's xorshift. */
static uint32_t random_bits(void) {
  state ^= state << 13;
  state ^= state >> 7;
  state ^= state << 17;
  return (uint32_t)(state >> 16);
}

static int32_t random_sum(void) {
  static const int32_t ends[] = {0, 1, -1, INT32_MAX, INT32_MIN, INT32_MIN + 1, 0x1000001, 0x1000003,
      -0x1000001, 0x3000001, 0xffffff, 0x7fffff80, 0x7fffffc0, 0x40000020, 0x40000060};
  const uint32_t bits = random_bits();
  if (bits % 16 == 0) return ends[bits / 16 % (sizeof ends / sizeof *ends)];
  return (int32_t)random_bits() >> bits / 16 % 31;
}

/* Bits of a factor, often a power of 2, of few bits, subnormal, or such that the product is near a tie. */
static uint32_t random_factor(int32_t sum) {
  const uint32_t kind = random_bits() % 12;
  uint32_t bits = (97 + random_bits() % 40) << 23 | (random_bits() & 0x7fffff);
  if (kind == 0) return bits & 0xff800000u;
  if (kind == 1) return bits & 0xfffff000u;
  if (kind == 2) return random_bits() % 64 ? bits : random_bits() % 0x1000000;
  if (kind > 5 || !sum) return bits;
  const float near = ((float)(random_bits() % 600) + 0.5f) / fabsf((float)sum);
  memcpy(&bits, &near, sizeof bits);
  return bits + random_bits() % 5 - 2;
}

static int32_t limit(float x, float bound) { return (int32_t)(x > bound ? bound : x < -bound ? -bound : x); }

static void compare_products(void) {
  long differing = 0, ties = 0, doubts = 0;
  for (int round = 0; round < ROUNDS; round++) {
    int32_t sums[LANES], exact[LANES], fast[LANES], doubtful[LANES];
    uint32_t factors[LANES];
    for (int i = 0; i < LANES; i++) sums[i] = random_sum(), factors[i] = random_factor(sums[i]);
    const hv_factors ready = hv_factors_of(hv_load(factors));
    hv nearest = hv_set(INT32_MAX);
    hv_store(exact, hv_scale(hv_load(sums), hv_load(factors)));
    const hv_range range = hv_range_of(-255, 255, 0, 0);
    const hv steps = hv_scale_fast(hv_load(sums), &ready, range.start, &nearest);
    hv_store(fast, steps >> HVX_POINT);
    hv_store(doubtful, nearest);
    for (int i = 0; i < LANES; i++) {
      float factor;
      memcpy(&factor, &factors[i], sizeof factor);
      volatile float product = (float)sums[i] * factor; /* rounded to a float */
      const float steps = rintf(product);
      ties += fabsf(product - truncf(product)) == 0.5f;
      const int is_doubtful = doubtful[i] < 2 * HVX_NEAR;
      doubts += is_doubtful;
      differing += limit(steps, 70000) != limit((float)exact[i], 70000);
      if (!is_doubtful) differing += limit(steps, 255) != limit((float)fast[i], 255);
    }
  }
  printf("%ld products differ; %d ties; %d doubts\n", differing, ties > 1000, doubts > 1000);
}

static void compare_copies(void) {
  static uint8_t buffer[512], source[128], loaded[128];
  long wrong = 0;
  for (int i = 0; i < 128; i++) source[i] = (uint8_t)(i + 1);
  for (int at = 0; at < 256; at += 3)
    for (int count = 1; count <= 128; count++) {
      memset(buffer, 0, sizeof buffer);
      hv_store_first(buffer + at, hv_load(source), count);
      for (int i = 0; i < 512; i++) wrong += buffer[i] != (i >= at && i < at + count ? source[i - at] : 0);
      hv_store(loaded, hv_load_first(buffer + at, count));
      wrong += memcmp(loaded, source, (size_t)count) != 0;
    }
  printf("%ld copies differ\n", wrong);
}

int main(void) {
  compare_products();
  compare_copies();
  return 0;
}
