/* The instructions of AVX-512, VNNI, BF16 and AMX that our kernels use, as functions for a processor with AVX2.
 *
 * Tests include this before the kernels of a level, which then run on processors without its instructions. Each
 * function does what Intel's Intrinsics Guide says; those that treat each 256 bits alike are two of AVX2. */
#include <immintrin.h>
#include <math.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

/* No register of an operand in assembly holds 64 bytes here: kernels leave those to memory, as for a processor that
 * they do not know. All headers are read before. */
#undef __x86_64__

#define __AVX512F__ 1
#define __AVX512BW__ 1

typedef union wide {
  __m512i i;
  __m512 f;
  __m256i half[2];
  __m256 half_f[2];
  int8_t i8[64];
  uint8_t u8[64];
  int16_t i16[32];
  uint16_t u16[32];
  int32_t i32[16];
  float f32[16];
} wide;

#define EMULATED static inline __attribute__((unused))

/* Instructions that treat each 256 bits alike. */
#define HALVES_OF_TWO(name, half_name)                                          \
  EMULATED __m512i emulated_##name(__m512i a, __m512i b) {                      \
    const wide x = {.i = a}, y = {.i = b};                                      \
    const wide z = {.half = {_mm256_##half_name(x.half[0], y.half[0]),          \
                        _mm256_##half_name(x.half[1], y.half[1])}};             \
    return z.i;                                                                 \
  }
#define HALVES_OF_FLOATS(name)                                                  \
  EMULATED __m512 emulated_##name(__m512 a, __m512 b) {                         \
    const wide x = {.f = a}, y = {.f = b};                                      \
    const wide z = {.half_f = {_mm256_##name(x.half_f[0], y.half_f[0]),         \
                        _mm256_##name(x.half_f[1], y.half_f[1])}};              \
    return z.f;                                                                 \
  }
#define HALVES_SHIFTED(name)                                                    \
  EMULATED __m512i emulated_##name(__m512i a, int count) {                      \
    const wide x = {.i = a};                                                    \
    const wide z = {.half = {_mm256_##name(x.half[0], count), _mm256_##name(x.half[1], count)}}; \
    return z.i;                                                                 \
  }
HALVES_OF_TWO(add_epi64, add_epi64)
HALVES_OF_TWO(adds_epi16, adds_epi16)
HALVES_OF_TWO(madd_epi16, madd_epi16)
HALVES_OF_TWO(max_epi8, max_epi8)
HALVES_OF_TWO(max_epu8, max_epu8)
HALVES_OF_TWO(min_epi8, min_epi8)
HALVES_OF_TWO(mul_epi32, mul_epi32)
HALVES_OF_TWO(packs_epi16, packs_epi16)
HALVES_OF_TWO(packs_epi32, packs_epi32)
HALVES_OF_TWO(shuffle_epi8, shuffle_epi8)
HALVES_OF_TWO(unpackhi_epi8, unpackhi_epi8)
HALVES_OF_TWO(unpackhi_epi16, unpackhi_epi16)
HALVES_OF_TWO(unpackhi_epi32, unpackhi_epi32)
HALVES_OF_TWO(unpackhi_epi64, unpackhi_epi64)
HALVES_OF_TWO(unpacklo_epi8, unpacklo_epi8)
HALVES_OF_TWO(unpacklo_epi16, unpacklo_epi16)
HALVES_OF_TWO(unpacklo_epi32, unpacklo_epi32)
HALVES_OF_TWO(unpacklo_epi64, unpacklo_epi64)
HALVES_OF_TWO(xor_si512, xor_si256)
HALVES_OF_FLOATS(max_ps)
HALVES_OF_FLOATS(min_ps)
HALVES_OF_FLOATS(mul_ps)

/* a times 2 to the greatest whole number that is not above b, rounded once. */
EMULATED __m512 emulated_scalef_ps(__m512 a, __m512 b) {
  const wide x = {.f = a}, y = {.f = b};
  wide z;
  for (int i = 0; i < 16; i++) {
    const float power = fminf(fmaxf(floorf(y.f32[i]), -1000), 1000);
    z.f32[i] = y.f32[i] != y.f32[i] ? NAN : ldexpf(x.f32[i], (int)power);
  }
  return z.f;
}
HALVES_SHIFTED(slli_epi16)
HALVES_SHIFTED(slli_epi64)
HALVES_SHIFTED(srai_epi16)
HALVES_SHIFTED(srli_epi64)

/* Elements [0, count) of memory under a mask; the others are zero, and their memory is not touched. */
#define MASKED(type, field, count, suffix)                                                                \
  EMULATED wide emulated_load_##suffix(uint64_t mask, const void *p) {                                    \
    wide v = {0};                                                                                         \
    for (int i = 0; i < count; i++)                                                                       \
      if (mask >> i & 1) memcpy(&v.field[i], (const char *)p + i * sizeof(type), sizeof(type));           \
    return v;                                                                                             \
  }                                                                                                       \
  EMULATED void emulated_store_##suffix(void *p, uint64_t mask, wide v) {                                 \
    for (int i = 0; i < count; i++)                                                                       \
      if (mask >> i & 1) memcpy((char *)p + i * sizeof(type), &v.field[i], sizeof(type));                 \
  }
MASKED(int8_t, i8, 64, 8)
MASKED(int16_t, i16, 32, 16)
MASKED(int32_t, i32, 16, 32)

EMULATED wide emulated_wide(__m512i v) { return (wide){.i = v}; }
EMULATED wide emulated_wide_float(__m512 v) { return (wide){.f = v}; }
EMULATED wide emulated_half(__m256i v) { return (wide){.half = {v}}; }
EMULATED wide emulated_quarter(__m128i v) { return (wide){.half = {_mm256_zextsi128_si256(v)}}; }
EMULATED __m128i emulated_extract(__m512i v, int quarter) {
  const wide x = {.i = v};
  __m128i z;
  memcpy(&z, x.i32 + 4 * quarter, sizeof z);
  return z;
}
EMULATED __m512i emulated_load(const void *p) { return emulated_load_8(~(uint64_t)0, p).i; }

EMULATED __m512i emulated_set_32(int32_t x, uint64_t mask) {
  wide v = {0};
  for (int i = 0; i < 16; i++) v.i32[i] = mask >> i & 1 ? x : 0;
  return v.i;
}
EMULATED __m512i emulated_set_8(int8_t x) {
  wide v;
  memset(v.i8, x, sizeof v.i8);
  return v.i;
}
EMULATED __m512i emulated_set_16(int16_t x) {
  wide v;
  for (int i = 0; i < 32; i++) v.i16[i] = x;
  return v.i;
}
EMULATED __m512i emulated_set_64(int64_t x) {
  wide v;
  for (int i = 0; i < 64; i += 8) memcpy(&v.i8[i], &x, 8);
  return v.i;
}
EMULATED __m512 emulated_set_float(float x) {
  wide v;
  for (int i = 0; i < 16; i++) v.f32[i] = x;
  return v.f;
}
EMULATED int32_t emulated_sum(__m512i a) {
  const wide x = {.i = a};
  uint32_t sum = 0;
  for (int i = 0; i < 16; i++) sum += (uint32_t)x.i32[i];
  return (int32_t)sum;
}
EMULATED __m512i emulated_permute(__m512i places, __m512i a) {
  const wide at = {.i = places}, x = {.i = a};
  wide v;
  for (int i = 0; i < 16; i++) v.i32[i] = x.i32[at.i32[i] & 15];
  return v.i;
}
EMULATED uint16_t emulated_signs(__m512i a) {
  const wide x = {.i = a};
  uint16_t mask = 0;
  for (int i = 0; i < 16; i++) mask |= (uint16_t)((x.i32[i] < 0) << i);
  return mask;
}
EMULATED __m512 emulated_blend(uint64_t mask, __m512 a, __m512 b) {
  wide v = {.f = a};
  const wide y = {.f = b};
  for (int i = 0; i < 16; i++)
    if (mask >> i & 1) v.f32[i] = y.f32[i];
  return v.f;
}

/* Conversions: `count` elements of one width into another; those to narrower ones keep the low bits. */
#define CONVERTED(name, result, to, from, parameter, argument)                  \
  EMULATED result emulated_##name(parameter a) {                                \
    const wide x = argument(a);                                                 \
    wide v = {0};                                                               \
    for (int i = 0; i < 16; i++) v.to[i] = x.from[i];                           \
    return *(result *)&v;                                                       \
  }
CONVERTED(cvtepi8_epi32, __m512i, i32, i8, __m128i, emulated_quarter)
CONVERTED(cvtepu8_epi32, __m512i, i32, u8, __m128i, emulated_quarter)
CONVERTED(cvtepi16_epi32, __m512i, i32, i16, __m256i, emulated_half)
CONVERTED(cvtepi32_epi8, __m128i, i8, i32, __m512i, emulated_wide)
CONVERTED(cvtepi32_epi16, __m256i, i16, i32, __m512i, emulated_wide)
CONVERTED(cvtepi32_ps, __m512, f32, i32, __m512i, emulated_wide)
EMULATED __m512i emulated_cvtps_epi32(__m512 a) {
  const wide x = {.f = a};
  const wide z = {.half = {_mm256_cvtps_epi32(x.half_f[0]), _mm256_cvtps_epi32(x.half_f[1])}};
  return z.i;
}

/* To bfloat16: to nearest even; a NaN becomes quiet, and a denormal number 0. */
EMULATED uint16_t emulated_bfloat(float x) {
  uint32_t bits;
  memcpy(&bits, &x, 4);
  if (x != x) return (uint16_t)(bits >> 16 | 0x40);
  if (fabsf(x) < 0x1p-126f) return (uint16_t)(bits >> 16 & 0x8000);
  return (uint16_t)((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}
EMULATED __m256i emulated_bfloats(__m512 a) {
  const wide x = {.f = a};
  wide z = {0};
  for (int i = 0; i < 16; i++) z.u16[i] = emulated_bfloat(x.f32[i]);
  return z.half[0];
}
EMULATED __m512i emulated_bfloats_of_two(__m512 high, __m512 low) {
  const wide z = {.half = {emulated_bfloats(low), emulated_bfloats(high)}};
  return z.i;
}

/* Sums of four products of an unsigned byte and a signed one, in each of `lanes` 32 bits. */
EMULATED wide emulated_dots(wide c, wide a, wide b, int lanes) {
  for (int i = 0; i < 4 * lanes; i++) c.i32[i / 4] = (int32_t)((uint32_t)c.i32[i / 4] + (uint32_t)(a.u8[i] * b.i8[i]));
  return c;
}
EMULATED __m512i emulated_dot_512(__m512i c, __m512i a, __m512i b) {
  return emulated_dots(emulated_wide(c), emulated_wide(a), emulated_wide(b), 16).i;
}
EMULATED __m256i emulated_dot_256(__m256i c, __m256i a, __m256i b) {
  return emulated_dots(emulated_half(c), emulated_half(a), emulated_half(b), 8).half[0];
}
EMULATED __m256i emulated_words_256(__m256i c, __m256i a, __m256i b) {
  return _mm256_add_epi32(c, _mm256_madd_epi16(a, b));
}
EMULATED __m512i emulated_words_512(__m512i c, __m512i a, __m512i b) {
  const wide x = {.i = c}, y = {.i = emulated_madd_epi16(a, b)};
  const wide z = {.half = {_mm256_add_epi32(x.half[0], y.half[0]), _mm256_add_epi32(x.half[1], y.half[1])}};
  return z.i;
}

/* Eight tiles of 16 rows of 64 bytes, and their shapes. */
typedef struct tile_shapes {
  uint8_t palette, start, reserved[14];
  uint16_t row_bytes[16];
  uint8_t rows[16];
} tile_shapes;
static __attribute__((unused)) tile_shapes tile_config;
static __attribute__((unused)) uint8_t tiles[8][16][64];
EMULATED void emulated_loadconfig(const void *shapes) {
  memcpy(&tile_config, shapes, sizeof tile_config);
  memset(tiles, 0, sizeof tiles);
  for (int t = 0; t < 8; t++)
    if (tile_config.palette != 1 || tile_config.rows[t] > 16 || tile_config.row_bytes[t] > 64) __builtin_trap();
}
EMULATED void emulated_loadd(int tile, const void *p, int64_t step) {
  memset(tiles[tile], 0, sizeof tiles[tile]);
  for (int i = 0; i < tile_config.rows[tile]; i++)
    memcpy(tiles[tile][i], (const char *)p + i * step, tile_config.row_bytes[tile]);
}
EMULATED void emulated_stored(int tile, void *p, int64_t step) {
  for (int i = 0; i < tile_config.rows[tile]; i++)
    memcpy((char *)p + i * step, tiles[tile][i], tile_config.row_bytes[tile]);
}
/* Rows of unsigned bytes in a, columns of signed ones in b, four deep. */
EMULATED void emulated_tile_dots(int c, int a, int b) {
  const int depth = tile_config.row_bytes[a] / 4;
  if (tile_config.rows[b] != depth || tile_config.rows[a] != tile_config.rows[c]) __builtin_trap();
  for (int i = 0; i < tile_config.rows[c]; i++)
    for (int k = 0; k < depth; k++)
      for (int j = 0; j < tile_config.row_bytes[c]; j++) {
        uint32_t sum;
        memcpy(&sum, &tiles[c][i][j / 4 * 4], 4);
        sum += (uint32_t)(tiles[a][i][4 * k + j % 4] * (int8_t)tiles[b][k][j]);
        memcpy(&tiles[c][i][j / 4 * 4], &sum, 4);
      }
}
/* A number of bfloat16, and what instructions make of a result: denormal ones are 0. */
EMULATED float emulated_flush(float x) { return fabsf(x) < 0x1p-126f ? copysignf(0, x) : x; }
EMULATED float emulated_widened(const uint8_t *p) {
  uint16_t half;
  memcpy(&half, p, 2);
  const uint32_t bits = (uint32_t)half << 16;
  float x;
  memcpy(&x, &bits, 4);
  return emulated_flush(x);
}
/* Intel's manual, volume 2, TDPBF16PS: even and odd products are summed apart, each by fused multiply-adds, and both
 * sums are added to what was there. */
EMULATED void emulated_tile_bfloats(int c, int a, int b) {
  const int depth = tile_config.row_bytes[a] / 4;
  if (tile_config.rows[b] != depth || tile_config.rows[a] != tile_config.rows[c]) __builtin_trap();
  for (int i = 0; i < tile_config.rows[c]; i++)
    for (int j = 0; j < tile_config.row_bytes[c]; j += 4) {
      float sum, parts[2] = {0, 0};
      for (int k = 0; k < depth; k++)
        for (int n = 0; n < 2; n++) {
          const float x = emulated_widened(&tiles[a][i][4 * k + 2 * n]);
          parts[n] = emulated_flush(fmaf(x, emulated_widened(&tiles[b][k][j + 2 * n]), parts[n]));
        }
      memcpy(&sum, &tiles[c][i][j], 4);
      sum = emulated_flush(sum + emulated_flush(parts[0] + parts[1]));
      memcpy(&tiles[c][i][j], &sum, 4);
    }
}

#define _mm512_add_epi64 emulated_add_epi64
#define _mm512_adds_epi16 emulated_adds_epi16
#define _mm512_madd_epi16 emulated_madd_epi16
#define _mm512_max_epi8 emulated_max_epi8
#define _mm512_max_epu8 emulated_max_epu8
#define _mm512_min_epi8 emulated_min_epi8
#define _mm512_mul_epi32 emulated_mul_epi32
#define _mm512_packs_epi16 emulated_packs_epi16
#define _mm512_packs_epi32 emulated_packs_epi32
#define _mm512_shuffle_epi8 emulated_shuffle_epi8
#define _mm512_unpackhi_epi8 emulated_unpackhi_epi8
#define _mm512_unpackhi_epi16 emulated_unpackhi_epi16
#define _mm512_unpackhi_epi32 emulated_unpackhi_epi32
#define _mm512_unpackhi_epi64 emulated_unpackhi_epi64
#define _mm512_unpacklo_epi8 emulated_unpacklo_epi8
#define _mm512_unpacklo_epi16 emulated_unpacklo_epi16
#define _mm512_unpacklo_epi32 emulated_unpacklo_epi32
#define _mm512_unpacklo_epi64 emulated_unpacklo_epi64
#define _mm512_xor_si512 emulated_xor_si512
#define _mm512_max_ps emulated_max_ps
#define _mm512_min_ps emulated_min_ps
#define _mm512_mul_ps emulated_mul_ps
#define _mm512_scalef_ps emulated_scalef_ps
#undef _mm512_slli_epi16
#define _mm512_slli_epi16 emulated_slli_epi16
#undef _mm512_slli_epi64
#define _mm512_slli_epi64 emulated_slli_epi64
#undef _mm512_srli_epi64
#define _mm512_srli_epi64 emulated_srli_epi64
#undef _mm512_srai_epi16
#define _mm512_srai_epi16 emulated_srai_epi16

#define _mm_maskz_loadu_epi8(mask, p) _mm256_castsi256_si128(emulated_load_8((uint16_t)(mask), p).half[0])
#define _mm256_maskz_loadu_epi8(mask, p) emulated_load_8((uint32_t)(mask), p).half[0]
#define _mm256_maskz_loadu_epi16(mask, p) emulated_load_16((uint16_t)(mask), p).half[0]
#define _mm512_maskz_loadu_epi8(mask, p) emulated_load_8(mask, p).i
#define _mm512_maskz_loadu_epi32(mask, p) emulated_load_32(mask, p).i
#define _mm512_maskz_loadu_ps(mask, p) emulated_load_32(mask, p).f
#define _mm_mask_storeu_epi8(p, mask, v) emulated_store_8(p, (uint16_t)(mask), emulated_quarter(v))
#define _mm256_mask_storeu_epi8(p, mask, v) emulated_store_8(p, (uint32_t)(mask), emulated_half(v))
#define _mm256_mask_storeu_epi16(p, mask, v) emulated_store_16(p, (uint16_t)(mask), emulated_half(v))
#define _mm256_mask_storeu_ps(p, mask, v) emulated_store_32(p, (uint8_t)(mask), emulated_half((__m256i)(v)))
#define _mm512_mask_storeu_epi8(p, mask, v) emulated_store_8(p, mask, emulated_wide(v))
#define _mm512_mask_storeu_epi16(p, mask, v) emulated_store_16(p, mask, emulated_wide(v))
#define _mm512_mask_storeu_epi32(p, mask, v) emulated_store_32(p, mask, emulated_wide(v))
#define _mm512_mask_storeu_ps(p, mask, v) emulated_store_32(p, mask, emulated_wide_float(v))
#define _mm512_loadu_si512 emulated_load
#define _mm512_loadu_ps(p) ((__m512)emulated_load(p))

#define _mm512_setzero_si512() emulated_set_8(0)
#define _mm512_set1_epi8(x) emulated_set_8((int8_t)(x))
#define _mm512_set1_epi16(x) emulated_set_16((int16_t)(x))
#define _mm512_maskz_set1_epi32(mask, x) emulated_set_32(x, mask)
#define _mm512_set1_epi64 emulated_set_64
#define _mm512_set1_ps emulated_set_float
#undef _mm512_setr_epi32
#define _mm512_setr_epi32(...) ((wide){.i32 = {__VA_ARGS__}}.i)

#define _mm512_reduce_add_epi32 emulated_sum
#define _mm512_permutexvar_epi32 emulated_permute
#define _mm512_permutexvar_ps(places, a) ((__m512)emulated_permute(places, (__m512i)(a)))
#undef _mm512_setr_ps
#define _mm512_setr_ps(...) ((wide){.f32 = {__VA_ARGS__}}.f)
#undef _mm512_extracti32x4_epi32
#define _mm512_extracti32x4_epi32 emulated_extract
#define _mm512_movepi32_mask emulated_signs
#define _mm512_mask_blend_ps emulated_blend
#define _mm512_mask_blend_epi32(mask, a, b) ((__m512i)emulated_blend(mask, (__m512)(a), (__m512)(b)))
#define _mm512_castps512_ps256(x) (((wide){.f = (__m512)(x)}).half_f[0])
#define _mm512_castps256_ps512(x) (((wide){.half_f = {(__m256)(x)}}).f)
#define _mm512_cvtepi8_epi32 emulated_cvtepi8_epi32
#define _mm512_cvtepu8_epi32 emulated_cvtepu8_epi32
#define _mm512_cvtepi16_epi32 emulated_cvtepi16_epi32
#define _mm512_cvtepi32_epi8 emulated_cvtepi32_epi8
#define _mm512_cvtepi32_epi16 emulated_cvtepi32_epi16
#define _mm512_cvtepi32_ps emulated_cvtepi32_ps
#define _mm512_cvtps_epi32 emulated_cvtps_epi32
#define _mm512_cvtneps_pbh emulated_bfloats
#define _mm512_cvtne2ps_pbh emulated_bfloats_of_two
#define _mm512_dpbusd_epi32 emulated_dot_512
#define _mm256_dpbusd_epi32 emulated_dot_256
#define _mm256_dpbusd_avx_epi32 emulated_dot_256
#undef _mm512_dpwssd_epi32
#define _mm512_dpwssd_epi32 emulated_words_512
#define _mm256_dpwssd_avx_epi32 emulated_words_256

#undef _tile_loadd
#undef _tile_stored
#undef _tile_dpbusd
#undef _tile_dpbf16ps
#define _tile_loadconfig emulated_loadconfig
#define _tile_release() memset(&tile_config, 0, sizeof tile_config)
#define _tile_loadd(tile, p, step) emulated_loadd(tile, p, step)
#define _tile_stored(tile, p, step) emulated_stored(tile, p, step)
#define _tile_dpbusd(c, a, b) emulated_tile_dots(c, a, b)
#define _tile_dpbf16ps(c, a, b) emulated_tile_bfloats(c, a, b)
