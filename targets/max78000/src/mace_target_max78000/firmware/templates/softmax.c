/*
 * Softmax to the base of 2.
 *
 * Values have 14 fraction bits, which are dropped: each result is a power of two over the sum of all of them. A value that lies
 * 17 or more below the largest counts as nothing.
 */
#include <stdint.h>

#include "cnn.h"

enum { FRACTION = 14, SPAN = 16, ONE = 1 << 15 };

/* How many halvings lie between the largest value and this one. */
static uint32_t below(int32_t largest, int32_t value) {
  const int32_t distance = (largest >> FRACTION) - (value >> FRACTION);
  return distance > SPAN ? SPAN + 1 : (uint32_t)distance;
}

void softmax_q17p14_q15(const int32_t *vec_in, const uint16_t dim_vec, int16_t *p_out) {
  int32_t largest = INT32_MIN;
  for (uint16_t i = 0; i < dim_vec; i++)
    if (vec_in[i] > largest) largest = vec_in[i];
  uint32_t sum = 0;
  for (uint16_t i = 0; i < dim_vec; i++) sum += (UINT32_C(1) << SPAN) >> below(largest, vec_in[i]);
  for (uint16_t i = 0; i < dim_vec; i++) {
    const uint32_t power = (UINT32_C(1) << SPAN) >> below(largest, vec_in[i]);
    const uint32_t share = (uint32_t)((uint64_t)power * ONE / sum);
    p_out[i] = (int16_t)(share < ONE ? share : ONE - 1);
  }
}

void softmax_shift_q17p14_q15(int32_t *vec_in, const uint16_t dim_vec, uint8_t in_shift, int16_t *p_out) {
  for (uint16_t i = 0; i < dim_vec; i++) {
    const int32_t limit = INT32_MAX >> in_shift;
    const int32_t value = vec_in[i] > limit ? limit : vec_in[i] < -limit ? -limit : vec_in[i];
    vec_in[i] = value * (1 << in_shift);
  }
  softmax_q17p14_q15(vec_in, dim_vec, p_out);
}
