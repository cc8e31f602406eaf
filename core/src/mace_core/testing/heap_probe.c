/* heap_probe: opens, runs, resets and closes a session of every model of the library `cases`, and counts
 * requests of the heap.
 *
 * Prints a line for each model: its name, whether one of its drivers says that it allocates, the status, and
 * the count.
 */
#include <stdio.h>
#include <stdlib.h>

#include "cases.h"
#include "heap.h"

#if __has_include("driver.h")
#include "driver.h"

static int allocates(const mace_model *model) {
  int found = 0;
  for (int32_t i = 0; model->plan && i < model->plan->device_count; i++)
    found |= model->plan->drivers[i]->flags & MACE_ALLOCATES;
  return found != 0;
}
#else
static int allocates(const mace_model *model) { return model->engine != NULL; }
#endif

static void *zeros(size_t bytes) {
  void *memory = calloc(1, bytes + MACE_ALIGNMENT);
  if (!memory) abort();
  return memory;
}

static mace_status use_session(const mace_model *model, void *memory, const void *const *inputs,
                               void *const *outputs) {
  mace_session *session;
  mace_status status =
      mace_open(model, NULL, memory, mace_session_bytes(model, NULL) + MACE_ALIGNMENT, &session);
  for (int i = 0; !status && i < 2; i++) status = mace_run(session, inputs, outputs);
  if (!status) status = mace_submit(session, inputs, outputs);
  if (!status) status = mace_wait(session, MACE_FOREVER);
  if (!status) status = mace_reset(session);
  mace_close(session);
  return status;
}

int main(void) {
  for (int32_t m = 0; m < cases_model_count; m++) {
    const mace_model *model = cases_models[m];
    const void **inputs = zeros(sizeof *inputs * (size_t)model->input_count);
    void **outputs = zeros(sizeof *outputs * (size_t)model->output_count);
    void *memory = zeros(mace_session_bytes(model, NULL) + MACE_ALIGNMENT);
    mace_status status;
    for (int32_t i = 0; i < model->input_count; i++) inputs[i] = zeros(model->inputs[i].bytes);
    for (int32_t i = 0; i < model->output_count; i++) outputs[i] = zeros(model->outputs[i].bytes);
    heap_requests = 0;
    heap_is_watched = 1;
    status = use_session(model, memory, inputs, outputs);
    heap_is_watched = 0;
    printf("%s %d %d %ld\n", model->name, allocates(model), (int)status, heap_requests);
  }
  return 0;
}
