/* Runs one model of a generated library under AddressSanitizer: every input and output is an allocation of its exact size, and the gaps
 * that the arena and the weights have between tensors are poisoned, so that one element read or written beside a tensor ends the program.
 *
 * Usage: sanitized MODEL GAPS OUTPUT INPUT...
 * GAPS: 64-bit integers: how many gaps of the arena, the first and last offset of each, then the same of the weights.
 * MODELS lists X(symbol) for each model of the library.
 */
#include <sanitizer/asan_interface.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "fuzz.h"

#define X(symbol) extern const unsigned char symbol##_weights[];
MODELS
#undef X

#define X(symbol) {#symbol, symbol##_weights},
static const struct {
  const char *symbol;
  const unsigned char *weights;
} weights[] = {MODELS};

/* What nobody has written shows in the results: as bytes, as floats (-3.2e8) and as indices. */
enum { UNWRITTEN = 0xCD };

static void *allocate(size_t bytes) {
  void *memory = aligned_alloc(64, (bytes + 63) / 64 * 64 + 64);
  if (!memory) exit(3);
  memset(memory, UNWRITTEN, bytes);
  ASAN_POISON_MEMORY_REGION((char *)memory + bytes, (bytes + 63) / 64 * 64 + 64 - bytes);
  return memory;
}

static void poison(FILE *gaps, const unsigned char *base) {
  int64_t count = 0, ends[2];
  if (fread(&count, sizeof count, 1, gaps) != 1) exit(3);
  for (; count > 0; count--) {
    if (fread(ends, sizeof ends, 1, gaps) != 1) exit(3);
    ASAN_POISON_MEMORY_REGION(base + ends[0], (size_t)(ends[1] - ends[0]));
  }
}

int main(int argc, char **argv) {
  const mace_model *model = argc > 3 ? fuzz_model(argv[1]) : NULL;
  if (!model || argc != 4 + model->input_count) return 3;
  const void *inputs[64];
  void *outputs[64];
  if (model->input_count > 64 || model->output_count > 64) return 3;
  for (int i = 0; i < model->input_count; i++) {
    void *memory = allocate(model->inputs[i].bytes);
    FILE *file = fopen(argv[4 + i], "rb");
    if (!file || fread(memory, 1, model->inputs[i].bytes, file) != model->inputs[i].bytes) return 3;
    fclose(file);
    inputs[i] = memory;
  }
  for (int i = 0; i < model->output_count; i++) outputs[i] = allocate(model->outputs[i].bytes);
  const size_t bytes = mace_session_bytes(model, NULL);
  mace_session *session;
  if (mace_open(model, NULL, allocate(bytes), bytes, &session) != MACE_OK) return 4;
  FILE *gaps = fopen(argv[2], "rb");
  if (!gaps) return 3;
  poison(gaps, (unsigned char *)session->frame.arena);
  for (size_t i = 0; i < sizeof weights / sizeof *weights; i++)
    if (strcmp(weights[i].symbol + strlen("fuzz_"), argv[1]) == 0) poison(gaps, weights[i].weights);
  fclose(gaps);
  if (mace_run(session, inputs, outputs) != MACE_OK) return 4;
  FILE *result = fopen(argv[3], "wb");
  for (int i = 0; i < model->output_count; i++) fwrite(outputs[i], 1, model->outputs[i].bytes, result);
  return fclose(result) ? 3 : 0;
}
