/* session_probe: opens a session of the model `m` of the library `session`, runs it, and tells what every call
 * answered.
 *
 *   session_probe FALLBACK RUNS SUBMIT OPTIONS CACHE
 *
 * FALLBACK: 0 never, 1 at open, 2 at run. SUBMIT: 1 runs by mace_submit and mace_wait, 2 observes all layers. OPTIONS: of mace_config,
 * "-" for none. CACHE: a file for what the device compiles, "-" for none. Prints "open STATUS TEXT", "part
 * DEVICE", "run STATUS TEXT", "busy COUNT", "output FIRST", "layer NUMBER NANOSECONDS NAME", and at the end
 * "loaded 1" if the OpenCL library is in memory when the session has been closed.
 */
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "file_cache.h"
#include "session.h"

static void store_entry(void *context, const char *key, const void *data, size_t bytes) {
  file_cache_store(context, key, data, bytes);
  printf("stored\n");
}

static void see_layer(void *observer, int32_t layer, const void *result) {
  const mace_session *const session = observer;
  (void)result;
  printf("layer %d %llu %s\n", (int)layer, (unsigned long long)mace_layer_ns(session),
         session_models[0]->layers[layer].name);
}

static mace_status run(mace_session *session, const void *const *inputs, void *const *outputs, int submit) {
  mace_status status;
  int busy = 0;
  if (submit == 2) mace_observe(session, see_layer, session);
  if (submit != 1) return mace_run(session, inputs, outputs);
  status = mace_submit(session, inputs, outputs);
  if (status) return status;
  while ((status = mace_wait(session, 1)) == MACE_BUSY) busy++;
  printf("busy %d\n", busy);
  return status;
}

int main(int count, char **words) {
  const mace_model *const model = session_models[0];
  const void *inputs[32] = {NULL};
  void *outputs[8] = {NULL};
  mace_config config = {0};
  mace_session *session = NULL;
  mace_status status;
  if (count != 6) return 2;
  mace_cache cache = file_cache(words[5]);
  cache.store = store_entry;
  config.struct_bytes = sizeof config;
  config.fallback = (mace_fallback)atoi(words[1]);
  if (strcmp(words[4], "-")) config.options = words[4];
  if (strcmp(words[5], "-")) config.cache = &cache;
  for (int i = 0; i < model->input_count; i++) {
    float *const values = calloc(1, model->inputs[i].bytes);
    for (size_t j = 0; j < model->inputs[i].bytes / sizeof *values; j++) values[j] = 1;
    inputs[i] = values;
  }
  for (int i = 0; i < model->output_count; i++) outputs[i] = calloc(1, model->outputs[i].bytes);
  const size_t bytes = mace_session_bytes(model, &config);
  void *const memory = aligned_alloc(MACE_ALIGNMENT, (bytes + MACE_ALIGNMENT - 1) / MACE_ALIGNMENT * MACE_ALIGNMENT);
  status = mace_open(model, &config, memory, bytes, &session);
  printf("open %d %s\n", (int)status, mace_error(session));
  for (int i = 0; !status && i < model->part_count; i++) printf("part %s\n", mace_part_device(session, i));
  for (int i = 0; !status && i < atoi(words[2]); i++) {
    const mace_status answered = run(session, inputs, outputs, atoi(words[3]));
    printf("run %d %s\n", (int)answered, mace_error(session));
    printf("part %s\n", mace_part_device(session, 0));
    if (!answered) printf("output %g\n", (double)*(float *)outputs[0]);
  }
  mace_close(session);
  printf("loaded %d\n", dlopen("libOpenCL.so.1", RTLD_LAZY | RTLD_NOLOAD) != NULL);
  for (int i = 0; i < model->input_count; i++) free((void *)(uintptr_t)inputs[i]);
  for (int i = 0; i < model->output_count; i++) free(outputs[i]);
  free(memory);
  return 0;
}
