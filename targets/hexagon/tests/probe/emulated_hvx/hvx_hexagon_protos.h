/* What kernels of floats use of HVX, for this machine.
 *
 * Instructions that move bits do what Qualcomm's manual says. Those for floats round each result to a float, which
 * those of version 68 need not: this shows which elements meet, not their last bits. A sum (qf32) has other bits
 * than the float of the same value, so that one taken for the other shows in results.
 */
#pragma once
#pragma GCC system_header /* parameters are unused where a function refuses */
#include <hexagon_types.h>
#include <stdio.h>
#include <stdlib.h>

#define SPLIT(v, type) \
  type v##_e[128 / sizeof(type)]; \
  memcpy(v##_e, &v, 128)

static inline HVX_Vector Q6_V_vsplat_R(int32_t x) { return x - (HVX_Vector){0}; }
static inline HVX_Vector Q6_Vb_vsplat_R(int32_t x) {
  return Q6_V_vsplat_R((int32_t)(0x01010101u * (uint8_t)x));
}
static inline HVX_Vector Q6_V_lo_W(HVX_VectorPair w) { return w.low; }
static inline HVX_Vector Q6_V_hi_W(HVX_VectorPair w) { return w.high; }
static inline HVX_Vector Q6_Vw_vmax_VwVw(HVX_Vector x, HVX_Vector y) { return (x & (x > y)) | (y & ~(x > y)); }
static inline HVX_Vector Q6_Vw_vmin_VwVw(HVX_Vector x, HVX_Vector y) { return (x & (x < y)) | (y & ~(x < y)); }
static inline HVX_VectorPred Q6_Q_vcmp_gt_VwVw(HVX_Vector x, HVX_Vector y) { return x > y; }
static inline HVX_VectorPred Q6_Q_vcmp_eq_VwVw(HVX_Vector x, HVX_Vector y) { return x == y; }
static inline HVX_VectorPred Q6_Q_vcmp_gtand_QVwVw(HVX_VectorPred q, HVX_Vector x, HVX_Vector y) { return q & (x > y); }
static inline HVX_Vector Q6_V_vmux_QVV(HVX_VectorPred q, HVX_Vector x, HVX_Vector y) { return (x & q) | (y & ~q); }
static inline HVX_VectorPred Q6_Q_and_QQn(HVX_VectorPred q, HVX_VectorPred not) { return q & ~not; }

/* Bytes [n, n + 128) of two registers behind each other. */
static inline HVX_Vector Q6_V_valign_VVR(HVX_Vector high, HVX_Vector low, int32_t n) {
  uint8_t bytes[256];
  HVX_Vector v;
  memcpy(bytes, &low, 128), memcpy(bytes + 128, &high, 128);
  memcpy(&v, bytes + (n & 127), 128);
  return v;
}
static inline HVX_Vector Q6_V_vror_VR(HVX_Vector x, int32_t n) { return Q6_V_valign_VVR(x, x, n); }

/* The first n bytes; of vsetq2 all for 128, of which vsetq takes none. */
static inline HVX_VectorPred Q6_Q_vsetq2_R(int32_t n) {
  uint8_t bytes[128];
  HVX_VectorPred q;
  for (int32_t i = 0; i < 128; i++) bytes[i] = i < n ? 0xff : 0;
  memcpy(&q, bytes, 128);
  return q;
}
static inline HVX_VectorPred Q6_Q_vsetq_R(int32_t n) { return Q6_Q_vsetq2_R(n & 127); }

static inline void Q6_vmem_QRIV(HVX_VectorPred q, HVX_Vector *to, HVX_Vector v) {
  SPLIT(q, uint8_t);
  SPLIT(v, uint8_t);
  for (int32_t i = 0; i < 128; i++)
    if (q_e[i]) ((uint8_t *)to)[i] = v_e[i];
}
static inline void Q6_vmem_QnRIV(HVX_VectorPred q, HVX_Vector *to, HVX_Vector v) { Q6_vmem_QRIV(~q, to, v); }

/* What the bits of a sum have in them besides the float's. */
enum { QF = 0x2a5a5a5a };

#define FLOATS(name, x_mask, y_mask, sign) \
  static inline HVX_Vector name(HVX_Vector x, HVX_Vector y) { \
    const HVX_Vector left = x ^ x_mask, right = y ^ y_mask; \
    float a[32], b[32]; \
    HVX_Vector z; \
    memcpy(a, &left, 128), memcpy(b, &right, 128); \
    for (int32_t i = 0; i < 32; i++) a[i] = a[i] sign b[i]; \
    memcpy(&z, a, 128); \
    return z ^ QF; \
  }
FLOATS(Q6_Vqf32_vadd_VsfVsf, 0, 0, +)
FLOATS(Q6_Vqf32_vsub_VsfVsf, 0, 0, -)
FLOATS(Q6_Vqf32_vmpy_VsfVsf, 0, 0, *)
FLOATS(Q6_Vqf32_vadd_Vqf32Vqf32, QF, QF, +)
static inline HVX_Vector Q6_Vsf_equals_Vqf32(HVX_Vector x) { return x ^ QF; }

/* Instructions that no kernel of floats executes. */
#define REFUSE(type, name, ...) \
  static inline type name(__VA_ARGS__) { fputs(#name " is not emulated\n", stderr), abort(); }
REFUSE(HVX_Vector, Q6_Vuw_vcl0_Vuw, HVX_Vector x)
REFUSE(HVX_Vector, Q6_Vw_vabs_Vw, HVX_Vector x)
REFUSE(HVX_Vector, Q6_Vb_vmax_VbVb, HVX_Vector x, HVX_Vector y)
REFUSE(HVX_Vector, Q6_Vb_vmin_VbVb, HVX_Vector x, HVX_Vector y)
REFUSE(HVX_Vector, Q6_Vb_vpack_VhVh_sat, HVX_Vector x, HVX_Vector y)
REFUSE(HVX_Vector, Q6_Vh_vpack_VwVw_sat, HVX_Vector x, HVX_Vector y)
REFUSE(HVX_Vector, Q6_Vh_vpacke_VwVw, HVX_Vector x, HVX_Vector y)
REFUSE(HVX_Vector, Q6_Vh_vpacko_VwVw, HVX_Vector x, HVX_Vector y)
REFUSE(HVX_Vector, Q6_Vw_vadd_VwVw, HVX_Vector x, HVX_Vector y)
REFUSE(HVX_Vector, Q6_Vw_vasl_VwVw, HVX_Vector x, HVX_Vector y)
REFUSE(HVX_Vector, Q6_Vw_vlsr_VwVw, HVX_Vector x, HVX_Vector y)
REFUSE(HVX_Vector, Q6_Vw_vmpye_VwVuh, HVX_Vector x, HVX_Vector y)
REFUSE(HVX_Vector, Q6_Q_vcmp_gt_VuwVuw, HVX_Vector x, HVX_Vector y)
REFUSE(HVX_Vector, Q6_Vh_vasr_VhR, HVX_Vector x, int32_t y)
REFUSE(HVX_Vector, Q6_Vuw_vlsr_VuwR, HVX_Vector x, int32_t y)
REFUSE(HVX_Vector, Q6_Vw_vmpyoacc_VwVwVh_s1_sat_shift, HVX_Vector x, HVX_Vector y, HVX_Vector z)
REFUSE(HVX_VectorPair, Q6_W_vmpye_VwVuh, HVX_Vector x, HVX_Vector y)
REFUSE(HVX_VectorPair, Q6_W_vmpyoacc_WVwVh, HVX_VectorPair x, HVX_Vector y, HVX_Vector z)
