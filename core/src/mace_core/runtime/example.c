/* Runs the first model of the library @LIBRARY@ once, and prints what it computes. In the folder above this file, for the target T:
 *
 *   cc -Iinclude/T src/example.c lib/T/lib@LIBRARY@.a -lm -o example
 *   ./example [FILE...]
 *
 * FILE: the raw values of an input, as the model stores them; one for each input, in order. An input without a file is all zeros.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "@LIBRARY@.h"

enum { SHOWN = 10 }; /* values of an output that are printed */

/* Zeroed memory that every type may be stored in; the size that aligned_alloc takes is a multiple of the alignment. */
static void *allocate(size_t bytes) {
  const size_t rounded = (bytes / MACE_ALIGNMENT + 1) * MACE_ALIGNMENT;
  char *memory = aligned_alloc(MACE_ALIGNMENT, rounded);
  if (!memory) {
    fprintf(stderr, "example: no memory\n");
    exit(1);
  }
  for (size_t i = 0; i < rounded; i++) memory[i] = 0;
  return memory;
}

static void read_input(const mace_tensor *input, const char *path, void *data) {
  FILE *file = fopen(path, "rb");
  const size_t count = file ? fread(data, 1, input->bytes, file) : 0;
  if (count != input->bytes) {
    fprintf(stderr, "%s: input %s takes %zu bytes, read %zu\n", path, input->name, input->bytes, count);
    exit(1);
  }
  fclose(file);
}

static size_t count_elements(const mace_tensor *tensor) {
  size_t count = 1;
  for (int32_t axis = 0; axis < tensor->rank; axis++) count *= (size_t)tensor->shape[axis];
  return count;
}

/* The value of an IEEE 754 binary16, for which C11 has no type: a sign, 5 bits of exponent, 10 of fraction. */
static double half(uint16_t bits) {
  const int exponent = bits >> 10 & 31, fraction = bits & 1023;
  const double sign = bits >> 15 ? -1.0 : 1.0;
  if (exponent == 31) return fraction ? (double)NAN : sign * (double)INFINITY;
  return sign * (exponent ? ldexp(1024 + fraction, exponent - 25) : ldexp(fraction, -24));
}

/* An element as a number; an integer that stands for a real number has a scale. */
static double element(const mace_tensor *tensor, const void *data, size_t i) {
  double value;
  switch (tensor->dtype) {
    case MACE_F32: return ((const float *)data)[i];
    case MACE_F64: return ((const double *)data)[i];
    case MACE_I8: value = ((const int8_t *)data)[i]; break;
    case MACE_I16: value = ((const int16_t *)data)[i]; break;
    case MACE_U16: value = ((const uint16_t *)data)[i]; break;
    case MACE_I32: value = ((const int32_t *)data)[i]; break;
    case MACE_U32: value = ((const uint32_t *)data)[i]; break;
    case MACE_I64: value = (double)((const int64_t *)data)[i]; break;
    case MACE_U64: value = (double)((const uint64_t *)data)[i]; break;
    case MACE_F16: return half(((const uint16_t *)data)[i]);
    default: value = ((const uint8_t *)data)[i]; break;
  }
  return tensor->scale != 0 ? (double)tensor->scale * (value - tensor->zero_point) : value;
}

static void print_output(const mace_tensor *output, const void *data) {
  const size_t count = count_elements(output);
  printf("%s:", output->name);
  for (size_t i = 0; i < count && i < SHOWN; i++) printf(" %g", element(output, data, i));
  if (count > SHOWN) printf(" ... (%zu values)", count);
  printf("\n");
}

int main(int argc, char **argv) {
  const mace_model *model = @LIBRARY@_models[0]; /* or by its name: @LIBRARY@_model("name") */
  const void **inputs = allocate(sizeof *inputs * (size_t)model->input_count);
  void **outputs = allocate(sizeof *outputs * (size_t)model->output_count);
  for (int32_t i = 0; i < model->input_count; i++) {
    void *data = allocate(model->inputs[i].bytes);
    if (i + 1 < argc) read_input(&model->inputs[i], argv[i + 1], data);
    inputs[i] = data;
  }
  for (int32_t i = 0; i < model->output_count; i++) outputs[i] = allocate(model->outputs[i].bytes);

  const size_t bytes = mace_session_bytes(model, NULL);
  mace_session *session;
  if (mace_open(model, NULL, allocate(bytes), bytes, &session) != MACE_OK || mace_run(session, inputs, outputs) != MACE_OK) {
    fprintf(stderr, "example: %s\n", mace_error(session));
    return 1;
  }
  for (int32_t i = 0; i < model->output_count; i++) print_output(&model->outputs[i], outputs[i]);
  mace_close(session);
  return 0;
}
