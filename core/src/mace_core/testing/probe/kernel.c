/* What kernels are made of: vectors, memory functions, mathematics, 64-bit division, a float argument and a float result. */
#include <math.h>
#include <stdint.h>
#include <string.h>

typedef float vf __attribute__((vector_size(16)));

__attribute__((visibility("default"))) float mace_probe(float scale, const float *x, float *y, int64_t n);

float mace_probe(float scale, const float *x, float *y, int64_t n) {
  vf sum = {0};
  for (int64_t i = 0; i + 4 <= n; i += 4) {
    vf v;
    memcpy(&v, x + i, sizeof v);
    sum += v * v;
  }
  memcpy(y, &sum, sizeof sum);
  y[0] = isnan(y[0]) ? INFINITY : scale * expf(y[0]) + erff(y[1]) + powf(2.0f, roundf(y[2]));
  return y[0] + (float)(INT64_C(1000000000000) / n);
}
