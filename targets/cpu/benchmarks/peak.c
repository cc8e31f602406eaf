/* The most multiply-adds that one core can do: twelve chains of vector sums, nothing from memory. */
#include <string.h>
#include <time.h>

typedef float vf __attribute__((vector_size(32)));

/* Gigaflops, the best of `rounds`. */
double peak(int rounds) {
  double best = 0;
  for (int round = 0; round < rounds; round++) {
    struct timespec start, end;
    vf s[12] = {{0}}, x = (vf){0} + 0.999f, y = (vf){0} + 0.001f;
    const int steps = 1000000;
    __asm__ volatile("" : "+x"(x), "+x"(y));
    for (int i = 0; i < 12; i++) __asm__ volatile("" : "+x"(s[i])); /* else the chains are equal, and computed once */
    clock_gettime(CLOCK_MONOTONIC, &start);
    for (int i = 0; i < steps; i++) {
      s[0] = s[0] * x + y, s[1] = s[1] * x + y, s[2] = s[2] * x + y, s[3] = s[3] * x + y;
      s[4] = s[4] * x + y, s[5] = s[5] * x + y, s[6] = s[6] * x + y, s[7] = s[7] * x + y;
      s[8] = s[8] * x + y, s[9] = s[9] * x + y, s[10] = s[10] * x + y, s[11] = s[11] * x + y;
    }
    clock_gettime(CLOCK_MONOTONIC, &end);
    for (int i = 0; i < 12; i++) __asm__ volatile("" : : "x"(s[i]));
    const double seconds = (double)(end.tv_sec - start.tv_sec) + 1e-9 * (double)(end.tv_nsec - start.tv_nsec);
    const double rate = 2.0 * 8 * 12 * steps / seconds / 1e9;
    if (rate > best) best = rate;
  }
  return best;
}
