/* The program that computes a region for remote_driver.c: reads all inputs from its standard input, writes a status and then all outputs
 * to its standard output, until the other side hangs up. */
#include <stdlib.h>
#include <unistd.h>

#include "remote.h"

static int transfer(int output, char *data, size_t bytes) {
  while (bytes) {
    const ssize_t n = output ? write(1, data, bytes) : read(0, data, bytes);
    if (n <= 0) return 0;
    data += n;
    bytes -= (size_t)n;
  }
  return 1;
}

int main(void) {
  const mace_model *model = remote_models[0];
  const size_t bytes = mace_session_bytes(model, NULL);
  void *memory = malloc(bytes + MACE_ALIGNMENT), **inputs = calloc((size_t)model->input_count + 1, sizeof *inputs);
  void **outputs = calloc((size_t)model->output_count + 1, sizeof *outputs);
  mace_session *session;
  int32_t i;
  if (!memory || !inputs || !outputs || mace_open(model, NULL, memory, bytes + MACE_ALIGNMENT, &session)) return 1;
  for (i = 0; i < model->input_count; i++)
    if (!(inputs[i] = malloc(model->inputs[i].bytes + 1))) return 1;
  for (i = 0; i < model->output_count; i++)
    if (!(outputs[i] = malloc(model->outputs[i].bytes + 1))) return 1;
  for (;;) {
    int64_t status;
    for (i = 0; i < model->input_count; i++)
      if (!transfer(0, inputs[i], model->inputs[i].bytes)) return 0;
    status = mace_run(session, (const void *const *)inputs, outputs);
    if (!transfer(1, (char *)&status, sizeof status)) return 1;
    for (i = 0; !status && i < model->output_count; i++)
      if (!transfer(1, outputs[i], model->outputs[i].bytes)) return 1;
  }
}
