/* A whole program around a library made by mace: build it with
 *
 *   cc -DMACE_LIBRARY=vision -Iinclude example.c lib/ABI/libvision.a -lm
 */
#include <stdio.h>
#include <stdlib.h>

#include "mace.h"

#define JOIN_(a, b) a##b
#define JOIN(a, b) JOIN_(a, b)
const mace_model *JOIN(MACE_LIBRARY, _model)(const char *name);
extern const mace_model *const JOIN(MACE_LIBRARY, _models)[];

int main(void) {
  const mace_model *model = JOIN(MACE_LIBRARY, _models)[0]; /* or by name: vision_model("digits") */
  const size_t bytes = mace_arena_bytes(model, 1);
  void *arena = aligned_alloc(MACE_ALIGNMENT, (bytes / MACE_ALIGNMENT + 1) * MACE_ALIGNMENT);
  const void **inputs = malloc(sizeof *inputs * (size_t)model->input_count);
  void **outputs = malloc(sizeof *outputs * (size_t)model->output_count);
  for (int i = 0; i < model->input_count; i++) inputs[i] = calloc(1, model->inputs[i].bytes); /* your data here */
  for (int i = 0; i < model->output_count; i++) outputs[i] = calloc(1, model->outputs[i].bytes);

  const mace_status status = mace_run_model(model, arena, inputs, outputs, NULL);
  if (status != MACE_OK) return (int)status;
  for (int i = 0; i < model->output_count; i++)
    printf("%s: %s, %zu bytes\n", model->name, model->outputs[i].name, model->outputs[i].bytes);
  return 0;
}
