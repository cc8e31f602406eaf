/* probe: opens a session of the network `relay`, runs it some times, and tells what every call answered.
 *
 *   probe [FALLBACK [RUNS [SESSIONS]]]     FALLBACK: 0 never, 1 at open, 2 at run
 *
 * Prints "open STATUS TEXT", "part I DEVICE", "run STATUS TEXT" for each run; the outputs of the last run that went well lie in
 * output_I.bin. Everything is freed: leak checkers shall find only what the library loses.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "relay.h"

static int32_t run_session(const mace_model *model, int fallback, int runs, const void *input) {
  mace_config config;
  mace_session *session = NULL;
  void *memory, *outputs[2];
  const void *inputs[1] = {input};
  mace_status status;
  size_t bytes;
  int32_t i, good = 0;
  memset(&config, 0, sizeof config);
  config.struct_bytes = sizeof config;
  config.fallback = (mace_fallback)fallback;
  bytes = mace_session_bytes(model, &config);
  memory = aligned_alloc(MACE_ALIGNMENT, (bytes + MACE_ALIGNMENT - 1) / MACE_ALIGNMENT * MACE_ALIGNMENT);
  for (i = 0; i < 2; i++) outputs[i] = calloc(1, model->outputs[i].bytes);
  status = mace_open(model, &config, memory, bytes, &session);
  printf("open %d %s\n", (int)status, mace_error(session));
  for (i = 0; !status && i < model->part_count; i++) printf("part %d %s\n", (int)i, mace_part_device(session, i));
  for (i = 0; i < runs; i++) {
    status = mace_run(session, inputs, outputs);
    printf("run %d %s\n", (int)status, mace_error(session));
    if (status) continue;
    good = 1;
  }
  for (i = 0; runs && !status && i < model->part_count; i++) printf("after %d %s\n", (int)i, mace_part_device(session, i));
  mace_close(session);
  for (i = 0; i < 2; i++) {
    char name[32];
    FILE *file;
    snprintf(name, sizeof name, "output_%d.bin", (int)i);
    if (good && (file = fopen(name, "wb"))) {
      fwrite(outputs[i], 1, model->outputs[i].bytes, file);
      fclose(file);
    }
    free(outputs[i]);
  }
  free(memory);
  return good;
}

int main(int argc, char **argv) {
  const mace_model *model = relay_model("relay");
  const int fallback = argc > 1 ? atoi(argv[1]) : 0, runs = argc > 2 ? atoi(argv[2]) : 1, sessions = argc > 3 ? atoi(argv[3]) : 1;
  void *input = malloc(model->inputs[0].bytes);
  FILE *file = fopen("x.bin", "rb");
  int i;
  if (!file || !input || fread(input, 1, model->inputs[0].bytes, file) != model->inputs[0].bytes) return 1;
  fclose(file);
  for (i = 0; i < sessions; i++) run_session(model, fallback, runs, input);
  free(input);
  return 0;
}
