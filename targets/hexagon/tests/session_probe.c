/* session_probe: opens sessions of the model `m` of the library `session`, runs them, and says what every call answered.
 *
 *   session_probe FALLBACK RUNS SESSIONS OPTIONS POWER TIMEOUT
 *
 * FALLBACK: 0 never, 1 at open, 2 at run. OPTIONS: of mace_config, "-" for none. POWER, TIMEOUT: of mace_config. Inputs are read from
 * input_I.bin; the outputs of the last run that went well lie in output_I.bin. Prints "open STATUS TEXT", "part I DEVICE",
 * "run STATUS TEXT", "after I DEVICE". Everything is freed.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "session.h"

enum { MAX_PORTS = 16 };

typedef struct ports {
  void *inputs[MAX_PORTS], *outputs[MAX_PORTS];
} ports;

static void make_ports(const mace_model *model, ports *p) {
  char name[32];
  for (int i = 0; i < model->input_count; i++) {
    FILE *file;
    snprintf(name, sizeof name, "input_%d.bin", i);
    p->inputs[i] = calloc(1, model->inputs[i].bytes);
    file = fopen(name, "rb");
    if (!file || fread(p->inputs[i], 1, model->inputs[i].bytes, file) != model->inputs[i].bytes) exit(2);
    fclose(file);
  }
  for (int i = 0; i < model->output_count; i++) p->outputs[i] = calloc(1, model->outputs[i].bytes);
}

static void drop_ports(const mace_model *model, ports *p, int is_good) {
  char name[32];
  for (int i = 0; i < model->output_count; i++) {
    FILE *file;
    snprintf(name, sizeof name, "output_%d.bin", i);
    if (is_good && (file = fopen(name, "wb"))) {
      fwrite(p->outputs[i], 1, model->outputs[i].bytes, file);
      fclose(file);
    }
    free(p->outputs[i]);
  }
  for (int i = 0; i < model->input_count; i++) free(p->inputs[i]);
}

static void show_parts(const mace_model *model, const mace_session *session, const char *word) {
  for (int i = 0; i < model->part_count; i++) printf("%s %d %s\n", word, i, mace_part_device(session, i));
}

static void run_session(const mace_model *model, const mace_config *config, int runs) {
  mace_session *session = NULL;
  const size_t bytes = mace_session_bytes(model, config);
  const size_t rounded = (bytes + MACE_ALIGNMENT - 1) / MACE_ALIGNMENT * MACE_ALIGNMENT;
  void *memory = aligned_alloc(MACE_ALIGNMENT, rounded);
  mace_status status = mace_open(model, config, memory, bytes, &session);
  int is_good = 0;
  ports p;
  make_ports(model, &p);
  printf("open %d %s\n", (int)status, mace_error(session));
  if (!status) show_parts(model, session, "part");
  for (int i = 0; i < runs; i++) {
    status = mace_run(session, (const void *const *)p.inputs, p.outputs);
    printf("run %d %s\n", (int)status, mace_error(session));
    if (!status) is_good = 1;
  }
  if (runs && !status) show_parts(model, session, "after");
  mace_close(session);
  drop_ports(model, &p, is_good);
  free(memory);
}

int main(int argc, char **argv) {
  const mace_model *model = session_model("m");
  mace_config config;
  if (argc != 7 || !model) return 1;
  memset(&config, 0, sizeof config);
  config.struct_bytes = sizeof config;
  config.fallback = (mace_fallback)atoi(argv[1]);
  config.options = strcmp(argv[4], "-") ? argv[4] : NULL;
  config.power = (mace_power)atoi(argv[5]);
  config.timeout_ms = (uint32_t)atoi(argv[6]);
  for (int i = 0; i < atoi(argv[3]); i++) run_session(model, &config, atoi(argv[2]));
  return 0;
}
