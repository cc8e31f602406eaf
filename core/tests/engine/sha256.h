/* SHA-256 (FIPS 180-4), by which the build names the bytes that it made of a part. */
#ifndef SHA256_H
#define SHA256_H

#include <stdint.h>
#include <string.h>

/* Fractions of the cube roots of the first 64 primes. */
static const uint32_t sha256_rounds[64] = {
    0x428a2f98, 0x71374491, 0xb5c0fbcf, 0xe9b5dba5, 0x3956c25b, 0x59f111f1, 0x923f82a4, 0xab1c5ed5,
    0xd807aa98, 0x12835b01, 0x243185be, 0x550c7dc3, 0x72be5d74, 0x80deb1fe, 0x9bdc06a7, 0xc19bf174,
    0xe49b69c1, 0xefbe4786, 0x0fc19dc6, 0x240ca1cc, 0x2de92c6f, 0x4a7484aa, 0x5cb0a9dc, 0x76f988da,
    0x983e5152, 0xa831c66d, 0xb00327c8, 0xbf597fc7, 0xc6e00bf3, 0xd5a79147, 0x06ca6351, 0x14292967,
    0x27b70a85, 0x2e1b2138, 0x4d2c6dfc, 0x53380d13, 0x650a7354, 0x766a0abb, 0x81c2c92e, 0x92722c85,
    0xa2bfe8a1, 0xa81a664b, 0xc24b8b70, 0xc76c51a3, 0xd192e819, 0xd6990624, 0xf40e3585, 0x106aa070,
    0x19a4c116, 0x1e376c08, 0x2748774c, 0x34b0bcb5, 0x391c0cb3, 0x4ed8aa4a, 0x5b9cca4f, 0x682e6ff3,
    0x748f82ee, 0x78a5636f, 0x84c87814, 0x8cc70208, 0x90befffa, 0xa4506ceb, 0xbef9a3f7, 0xc67178f2,
};

typedef struct sha256 {
  uint32_t state[8]; /* begins with fractions of the square roots of the first 8 primes */
  unsigned char block[64];
  uint64_t bytes;
} sha256;

static inline uint32_t turn(uint32_t value, int bits) { return value >> bits | value << (32 - bits); }

static inline void sha256_block(sha256 *hash) {
  uint32_t w[64], s[8];
  for (int i = 0; i < 16; i++) {
    const unsigned char *at = hash->block + 4 * i;
    w[i] = (uint32_t)at[0] << 24 | (uint32_t)at[1] << 16 | (uint32_t)at[2] << 8 | at[3];
  }
  for (int i = 16; i < 64; i++) {
    const uint32_t a = w[i - 15], b = w[i - 2];
    w[i] = w[i - 16] + (turn(a, 7) ^ turn(a, 18) ^ a >> 3) + w[i - 7] + (turn(b, 17) ^ turn(b, 19) ^ b >> 10);
  }
  memcpy(s, hash->state, sizeof s);
  for (int i = 0; i < 64; i++) {
    const uint32_t choice = (s[4] & s[5]) ^ (~s[4] & s[6]),
                   most = (s[0] & s[1]) ^ (s[0] & s[2]) ^ (s[1] & s[2]);
    const uint32_t e = turn(s[4], 6) ^ turn(s[4], 11) ^ turn(s[4], 25),
                   a = turn(s[0], 2) ^ turn(s[0], 13) ^ turn(s[0], 22);
    const uint32_t first = s[7] + e + choice + sha256_rounds[i] + w[i], second = a + most;
    memmove(s + 1, s, 7 * sizeof *s);
    s[4] += first;
    s[0] = first + second;
  }
  for (int i = 0; i < 8; i++) hash->state[i] += s[i];
}

static inline void sha256_add(sha256 *hash, const void *data, size_t bytes) {
  const unsigned char *at = data;
  for (size_t i = 0; i < bytes; i++) {
    hash->block[hash->bytes++ % 64] = at[i];
    if (hash->bytes % 64 == 0) sha256_block(hash);
  }
}

/* Write the digest of code and weights in hexadecimal, with a 0 at its end. */
static inline void sha256_hex(const void *code, size_t code_bytes, const void *weights, size_t weight_bytes,
                              char hex[65]) {
  sha256 hash = {
      {0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a, 0x510e527f, 0x9b05688c, 0x1f83d9ab, 0x5be0cd19},
      {0},
      0};
  const unsigned char one = 0x80, zero = 0;
  sha256_add(&hash, code, code_bytes);
  sha256_add(&hash, weights, weight_bytes);
  const uint64_t bits = 8 * hash.bytes;
  sha256_add(&hash, &one, 1);
  while (hash.bytes % 64 != 56) sha256_add(&hash, &zero, 1);
  for (int i = 7; i >= 0; i--) {
    const unsigned char byte = (unsigned char)(bits >> 8 * i);
    sha256_add(&hash, &byte, 1);
  }
  for (int i = 0; i < 64; i++) hex[i] = "0123456789abcdef"[hash.state[i / 8] >> (28 - 4 * (i % 8)) & 15];
  hex[64] = 0;
}

#endif
