/* opencl_inflate.c - reads a raw stream of DEFLATE (RFC 1951), in which the source of the kernels is stored.
 *
 * Codes are decoded bit by bit: counts of codes by length, and symbols in the order of their codes, are all
 * that canonical codes need. That is slow beside tables, and fast beside the compiler which reads the result.
 */
#include <string.h>

#include "opencl_blob.h"

enum { LONGEST = 15, LITERALS = 288, DISTANCES = 30, END = 256 };

typedef struct stream {
  const unsigned char *at;
  size_t left;
  uint32_t bits;
  int count; /* of the bits */
  char *to;
  size_t size, used;
  int failed;
} stream;

typedef struct code {
  uint16_t counts[LONGEST + 1]; /* by length */
  uint16_t symbols[LITERALS];   /* by code */
} code;

static uint32_t read_bits(stream *s, int wanted) {
  uint32_t value;
  while (s->count < wanted) {
    if (!s->left) {
      s->failed = 1;
      return 0;
    }
    s->bits |= (uint32_t)*s->at++ << s->count;
    s->left--;
    s->count += 8;
  }
  value = s->bits & ((1u << wanted) - 1);
  s->bits >>= wanted;
  s->count -= wanted;
  return value;
}

/* Make a code of the lengths of its symbols; lengths that no code has are found when it is read. */
static void make_code(code *c, const uint8_t *lengths, int symbols) {
  uint16_t offsets[LONGEST + 2];
  memset(c, 0, sizeof *c);
  for (int i = 0; i < symbols; i++) c->counts[lengths[i]]++;
  c->counts[0] = 0;
  offsets[1] = 0;
  for (int i = 1; i <= LONGEST; i++) offsets[i + 1] = (uint16_t)(offsets[i] + c->counts[i]);
  for (int i = 0; i < symbols; i++)
    if (lengths[i]) c->symbols[offsets[lengths[i]]++] = (uint16_t)i;
}

static int read_symbol(stream *s, const code *c) {
  int value = 0, first = 0, index = 0;
  for (int length = 1; length <= LONGEST && !s->failed; length++) {
    value |= (int)read_bits(s, 1);
    const int count = c->counts[length];
    if (value - count < first) return c->symbols[index + value - first];
    index += count;
    first = (first + count) << 1;
    value <<= 1;
  }
  s->failed = 1;
  return END;
}

static void copy_stored(stream *s) {
  size_t bytes;
  s->bits = 0; /* the block begins with the next byte; whole bytes are never kept in `bits` */
  s->count = 0;
  if (s->left < 4) {
    s->failed = 1;
    return;
  }
  bytes = s->at[0] | (size_t)s->at[1] << 8;
  s->at += 4;
  s->left -= 4;
  if (bytes > s->left || bytes > s->size - s->used) {
    s->failed = 1;
    return;
  }
  memcpy(s->to + s->used, s->at, bytes);
  s->at += bytes;
  s->left -= bytes;
  s->used += bytes;
}

static void copy_match(stream *s, int symbol, const code *distances) {
  static const uint16_t lengths[] = {3,  4,  5,  6,  7,  8,  9,  10, 11,  13,  15,  17,  19,  23, 27,
                                     31, 35, 43, 51, 59, 67, 83, 99, 115, 131, 163, 195, 227, 258};
  static const uint8_t length_bits[] = {0, 0, 0, 0, 0, 0, 0, 0, 1, 1, 1, 1, 2, 2, 2,
                                        2, 3, 3, 3, 3, 4, 4, 4, 4, 5, 5, 5, 5, 0};
  static const uint16_t starts[] = {1,   2,   3,   4,   5,   7,    9,    13,   17,   25,   33,   49,   65,    97,    129,
                                    193, 257, 385, 513, 769, 1025, 1537, 2049, 3073, 4097, 6145, 8193, 12289, 16385, 24577};
  size_t length, distance;
  int far;
  symbol -= END + 1;
  if (symbol >= (int)(sizeof lengths / sizeof *lengths)) {
    s->failed = 1;
    return;
  }
  length = lengths[symbol] + read_bits(s, length_bits[symbol]);
  far = read_symbol(s, distances);
  if (s->failed || far >= DISTANCES) {
    s->failed = 1;
    return;
  }
  distance = starts[far] + read_bits(s, far < 4 ? 0 : far / 2 - 1);
  if (s->failed || distance > s->used || length > s->size - s->used) {
    s->failed = 1;
    return;
  }
  /* Byte by byte: a match may run into what it has just written. */
  for (size_t i = 0; i < length; i++, s->used++) s->to[s->used] = s->to[s->used - distance];
}

static void read_block(stream *s, const code *literals, const code *distances) {
  while (!s->failed) {
    const int symbol = read_symbol(s, literals);
    if (s->failed || symbol == END) return;
    if (symbol > END) {
      copy_match(s, symbol, distances);
    } else if (s->used < s->size) {
      s->to[s->used++] = (char)symbol;
    } else {
      s->failed = 1;
    }
  }
}

static void set_fixed_codes(code *literals, code *distances) {
  uint8_t lengths[LITERALS];
  memset(lengths, 8, 144);
  memset(lengths + 144, 9, 112);
  memset(lengths + 256, 7, 24);
  memset(lengths + 280, 8, 8);
  make_code(literals, lengths, LITERALS);
  memset(lengths, 5, DISTANCES);
  make_code(distances, lengths, DISTANCES);
}

/* Read the codes of a block, which are written as lengths that are coded themselves. */
static void read_codes(stream *s, code *literals, code *distances) {
  static const uint8_t order[] = {16, 17, 18, 0, 8, 7, 9, 6, 10, 5, 11, 4, 12, 3, 13, 2, 14, 1, 15};
  uint8_t lengths[LITERALS + 32] = {0};
  const int literal_count = 257 + (int)read_bits(s, 5), distance_count = 1 + (int)read_bits(s, 5);
  const int count = 4 + (int)read_bits(s, 4), total = literal_count + distance_count;
  int filled = 0;
  if (literal_count > 286 || distance_count > DISTANCES) s->failed = 1;
  for (int i = 0; i < count; i++) lengths[order[i]] = (uint8_t)read_bits(s, 3);
  make_code(literals, lengths, 19);
  memset(lengths, 0, sizeof lengths);
  while (!s->failed && filled < total) {
    const int symbol = read_symbol(s, literals);
    int times = 1;
    uint8_t length = (uint8_t)symbol;
    if (symbol >= 16) {
      length = symbol == 16 && filled ? lengths[filled - 1] : 0;
      if (symbol == 16 && !filled) s->failed = 1;
      times = symbol == 16   ? 3 + (int)read_bits(s, 2)
              : symbol == 17 ? 3 + (int)read_bits(s, 3)
                             : 11 + (int)read_bits(s, 7);
    }
    if (times > total - filled) s->failed = 1;
    for (; !s->failed && times; times--) lengths[filled++] = length;
  }
  if (s->failed) return;
  make_code(literals, lengths, literal_count);
  make_code(distances, lengths + literal_count, distance_count);
}

int mace_opencl_inflate(const unsigned char *deflated, size_t bytes, char *to, size_t size) {
  stream s = {deflated, bytes, 0, 0, to, size, 0, 0};
  code literals, distances;
  uint32_t last = 0;
  while (!last && !s.failed) {
    last = read_bits(&s, 1);
    switch (read_bits(&s, 2)) {
      case 0: copy_stored(&s); break;
      case 1:
        set_fixed_codes(&literals, &distances);
        read_block(&s, &literals, &distances);
        break;
      case 2:
        read_codes(&s, &literals, &distances);
        if (!s.failed) read_block(&s, &literals, &distances);
        break;
      default: s.failed = 1;
    }
  }
  return !s.failed && s.used == s.size;
}
