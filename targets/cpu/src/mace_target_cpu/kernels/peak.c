/* What one core can do at the level that the flags state: prints multiply-adds of floats, of floats rounded to
 * bfloat16 and of bytes, and bytes read from a buffer of 256 KiB, each for a nanosecond; the best of some rounds.
 *
 * Twelve chains of vector sums hide the latency of an instruction, and leave registers for its operands. */
#define _POSIX_C_SOURCE 199309L
#define _DEFAULT_SOURCE
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#if defined(__x86_64__) || defined(__i386__)
#include <immintrin.h>
#elif defined(__ARM_NEON)
#include <arm_neon.h>
#endif

#if defined(__AMX_INT8__) && defined(__linux__) && defined(__LP64__)
#define HAS_TILES
#include <sys/syscall.h>
#include <unistd.h>
#endif

#if defined(__AVX512F__)
#define BYTES 64
#elif defined(__AVX__)
#define BYTES 32
#else
#define BYTES 16
#endif

enum { CHAINS = 12, STEPS = 200000, ROUNDS = 20, BUFFER = 256 * 1024 };

typedef float vf __attribute__((vector_size(BYTES)));
typedef int32_t vi __attribute__((vector_size(BYTES)));

/* One instruction or pair that sums products of bytes in 32 bits; PRODUCTS of them. */
#if defined(__AVX512VNNI__) && BYTES == 64
#define PRODUCTS 64
#define SUM(s, x) (vi) _mm512_dpbusd_epi32((__m512i)(s), (__m512i)(x), (__m512i)(x))
#elif defined(__AVXVNNI__) && BYTES == 32
#define PRODUCTS 32
#define SUM(s, x) (vi) _mm256_dpbusd_avx_epi32((__m256i)(s), (__m256i)(x), (__m256i)(x))
#elif BYTES == 64
#define PRODUCTS 32
#define SUM(s, x) ((s) + (vi)_mm512_madd_epi16((__m512i)(s), (__m512i)(x)))
#elif BYTES == 32
#define PRODUCTS 32
#define ONES _mm256_set1_epi16(1)
#define SUM(s, x) ((s) + (vi)_mm256_madd_epi16(_mm256_maddubs_epi16((__m256i)(s), (__m256i)(x)), ONES))
#elif defined(__SSE2__)
#define PRODUCTS 8
#define SUM(s, x) ((s) + (vi)_mm_madd_epi16((__m128i)(s), (__m128i)(x)))
#elif defined(__ARM_NEON)
#define PRODUCTS 4
#define SUM(s, x) (vi) vmlal_s16((int32x4_t)(s), vget_low_s16((int16x8_t)(x)), vget_low_s16((int16x8_t)(x)))
#endif

static double now(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (double)t.tv_sec * 1e9 + (double)t.tv_nsec;
}

/* The compiler must take memory for read and changed here, or it would compute a loop once or not at all. */
static void touch(void *p) { __asm__ volatile("" : : "r"(p) : "memory"); }

#define EACH(step) step(0) step(1) step(2) step(3) step(4) step(5) step(6) step(7) step(8) step(9) step(10) step(11)
#define LOAD(i) s##i = at[i];
#define STORE(i) at[i] = s##i;
#define FLOATS(i) s##i = s##i * x + y;
#define INTEGERS(i) s##i = SUM(s##i, x);

static double floats(void) {
  vf at[CHAINS], s0, s1, s2, s3, s4, s5, s6, s7, s8, s9, s10, s11, operands[2] = {(vf){0} + 0.999f, (vf){0} + 0.001f};
  memset(at, 0, sizeof at);
  touch(operands), touch(at);
  const vf x = operands[0], y = operands[1];
  EACH(LOAD)
  const double start = now();
  for (int i = 0; i < STEPS; i++) { EACH(FLOATS) }
  const double took = now() - start;
  EACH(STORE)
  touch(at);
  return (double)STEPS * CHAINS * (BYTES / 4) / took;
}

static double integers(void) {
#ifdef SUM
  vi at[CHAINS], s0, s1, s2, s3, s4, s5, s6, s7, s8, s9, s10, s11, x = (vi){0} + 0x01020103;
  memset(at, 1, sizeof at);
  touch(&x), touch(at);
  EACH(LOAD)
  const double start = now();
  for (int i = 0; i < STEPS; i++) { EACH(INTEGERS) }
  const double took = now() - start;
  EACH(STORE)
  touch(at);
  return (double)STEPS * CHAINS * PRODUCTS / took;
#else
  return 0;
#endif
}

#ifdef HAS_TILES
/* Linux gives the data of tile registers (state 18) to a process that asks: ARCH_REQ_XCOMP_PERM (0x1023) of
 * arch_prctl. */
static int may_use_tiles(void) { return syscall(SYS_arch_prctl, 0x1023, 18) == 0; }

/* All registers of tiles with 16 rows of 64 bytes, of zeros. */
static void configure_tiles(void) {
  struct {
    uint8_t palette, start_row, reserved[14];
    uint16_t row_bytes[16];
    uint8_t rows[16];
  } shapes = {.palette = 1};
  for (int i = 0; i < 8; i++) shapes.row_bytes[i] = 64, shapes.rows[i] = 16;
  touch(&shapes); /* the intrinsic does not say that it reads all of them */
  _tile_loadconfig(&shapes);
  _tile_zero(0);
  _tile_zero(1);
  _tile_zero(2);
  _tile_zero(3);
  _tile_zero(4);
  _tile_zero(5);
  _tile_zero(6);
  _tile_zero(7);
}

/* Two tiles of 16 rows of 64 bytes by two of 16 columns, as matrix kernels multiply them: four chains. */
static double tile_products(void) {
  configure_tiles();
  const double start = now();
  for (int i = 0; i < STEPS; i++) {
    _tile_dpbusd(0, 4, 6);
    _tile_dpbusd(1, 4, 7);
    _tile_dpbusd(2, 5, 6);
    _tile_dpbusd(3, 5, 7);
  }
  const double took = now() - start;
  _tile_release();
  return (double)STEPS * 4 * (16 * 16 * 64) / took;
}

#if defined(__AMX_BF16__)
/* The same of bfloat16. */
static double bfloat_products(void) {
  configure_tiles();
  const double start = now();
  for (int i = 0; i < STEPS; i++) {
    _tile_dpbf16ps(0, 4, 6);
    _tile_dpbf16ps(1, 4, 7);
    _tile_dpbf16ps(2, 5, 6);
    _tile_dpbf16ps(3, 5, 7);
  }
  const double took = now() - start;
  _tile_release();
  return (double)STEPS * 4 * (16 * 16 * 32) / took;
}
#endif
#endif

static double bytes(void) {
  static vi buffer[BUFFER / sizeof(vi)];
  vi s0 = {0}, s1 = {0}, s2 = {0}, s3 = {0}, sums[4];
  touch(buffer);
  const double start = now();
  for (int round = 0; round < 16; round++) {
    for (size_t i = 0; i < sizeof buffer / sizeof *buffer; i += 4)
      s0 ^= buffer[i], s1 ^= buffer[i + 1], s2 ^= buffer[i + 2], s3 ^= buffer[i + 3];
    touch(buffer);
  }
  const double took = now() - start;
  sums[0] = s0, sums[1] = s1, sums[2] = s2, sums[3] = s3; /* as an array they would be stored in each step */
  touch(sums);
  return 16.0 * BUFFER / took;
}

static double best(double (*measure)(void)) {
  double most = 0;
  for (int i = 0; i < ROUNDS; i++) {
    const double rate = measure();
    most = rate > most ? rate : most;
  }
  return most;
}

int main(void) {
  const double f32 = best(floats);
  double i8 = best(integers), bf16 = f32; /* without an instruction for them they are multiplied as floats */
#ifdef HAS_TILES
  if (may_use_tiles()) i8 = best(tile_products);
#if defined(__AMX_BF16__)
  if (may_use_tiles()) bf16 = best(bfloat_products);
#endif
#endif
  printf("{\"f32\": %.3f, \"bf16\": %.3f, \"i8\": %.3f, \"bytes\": %.3f}\n", f32, bf16, i8, best(bytes));
  return 0;
}
