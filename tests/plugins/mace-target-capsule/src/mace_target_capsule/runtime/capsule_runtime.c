/* The library that a vendor would install on devices with capsules: built as libcapsule_rt.so.2, it executes networks of encode.py. */
#include "capsule_runtime.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#define MAGIC 0x53504143
#define HEADER 7

enum { ABS = 1, ADD, MAXIMUM, MUL, NEG, RELU, SUB };

struct capsule {
  int64_t inputs, outputs, values, calls, floats;
  int64_t *words; /* values, then calls */
  float *constants;
  float **memory; /* by value: of the run, of the network, or of this library */
};

int capsule_version(void) { return 2; }

const char *capsule_text(int status) {
  static const char *const texts[] = {"all is well", "this is no capsule", "the capsule is cut short", "out of memory", "a number is wrong"};
  return texts[status >= 0 && status < 5 ? status : 4];
}

void capsule_free(capsule *c) {
  int64_t i;
  if (!c) return;
  for (i = c->inputs + c->outputs; c->memory && i < c->values; i++)
    if (c->words[2 * i + 1] < 0) free(c->memory[i]);
  free(c->memory);
  free(c->constants);
  free(c->words);
  free(c);
}

static int prepare(capsule *c) {
  int64_t i, j;
  if (!c->words || !c->constants || !c->memory) return 3;
  for (i = 0; i < c->values; i++) {
    const int64_t count = c->words[2 * i], constant = c->words[2 * i + 1];
    if (count < 0 || constant > c->floats || (constant >= 0 && c->floats - constant < count)) return 4;
    if (constant >= 0)
      c->memory[i] = c->constants + constant;
    else if (i >= c->inputs + c->outputs && !(c->memory[i] = malloc((size_t)count * sizeof(float) + 1)))
      return 3;
  }
  for (i = 0; i < c->calls; i++) {
    const int64_t *call = c->words + 2 * c->values + 4 * i;
    for (j = 1; j < 4; j++)
      if (call[j] >= c->values || call[j] < (j == 3 ? -1 : 0)) return 4;
  }
  return 0;
}

int capsule_load(const void *bytes, size_t size, capsule **loaded) {
  int64_t header[HEADER], words;
  capsule *c;
  int status;
  if (size < sizeof header) return 2;
  memcpy(header, bytes, sizeof header);
  if (header[0] != MAGIC || header[1] != capsule_version()) return 1;
  words = 2 * header[4] + 4 * header[5];
  if (header[4] < header[2] + header[3] || size != sizeof header + (size_t)words * 8 + (size_t)header[6] * sizeof(float)) return 2;
  if (!(c = calloc(1, sizeof *c))) return 3;
  c->inputs = header[2], c->outputs = header[3], c->values = header[4], c->calls = header[5], c->floats = header[6];
  c->words = malloc((size_t)words * 8 + 1);
  c->constants = malloc((size_t)c->floats * sizeof(float) + 1);
  c->memory = calloc((size_t)c->values + 1, sizeof *c->memory);
  if (c->words) memcpy(c->words, (const char *)bytes + sizeof header, (size_t)words * 8);
  if (c->constants) memcpy(c->constants, (const char *)bytes + sizeof header + (size_t)words * 8, (size_t)c->floats * sizeof(float));
  if ((status = prepare(c))) {
    capsule_free(c);
    return status;
  }
  *loaded = c;
  return 0;
}

static float compute(int64_t kernel, float a, float b) {
  switch (kernel) {
    case ABS: return __builtin_fabsf(a);
    case ADD: return a + b;
    case MAXIMUM: return a > b || a != a ? a : b;
    case MUL: return a * b;
    case NEG: return -a;
    case RELU: return a > 0 || a != a ? a : 0;
    default: return a - b;
  }
}

int capsule_run(capsule *c, const void *const *inputs, void *const *outputs) {
  int64_t i, j;
  for (i = 0; i < c->inputs; i++) c->memory[i] = (float *)(uintptr_t)inputs[i];
  for (i = 0; i < c->outputs; i++) c->memory[c->inputs + i] = outputs[i];
  for (i = 0; i < c->calls; i++) {
    const int64_t *call = c->words + 2 * c->values + 4 * i;
    float *result = c->memory[call[1]];
    const float *left = c->memory[call[2]], *right = call[3] < 0 ? left : c->memory[call[3]];
    for (j = 0; j < c->words[2 * call[1]]; j++) result[j] = compute(call[0], left[j], right[j]);
  }
  return 0;
}
