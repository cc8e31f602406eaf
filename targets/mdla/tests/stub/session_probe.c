/* session_probe: opens sessions of the model `m` of the library `session`, runs them, and tells what every call answered.
 *
 *   session_probe FALLBACK RUNS SESSIONS OPTIONS CACHE BIND
 *
 * FALLBACK: 0 never, 1 at open, 2 at run. OPTIONS: of mace_config, "-" for none. CACHE: a file for what the device compiles, "-" for none.
 * BIND: 1 binds shared memory to all ports as dma-bufs, 2 as AHardwareBuffers of the stub. Inputs are read from input_I.bin; the outputs of the last run that went well lie in
 * output_I.bin. Prints "open STATUS TEXT", "part I DEVICE", "run STATUS TEXT", "after I DEVICE". Everything is freed.
 */
#define _GNU_SOURCE
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "file_cache.h"
#include "session.h"

static void file_name(char *name, size_t bytes, const char *kind, int i) { snprintf(name, bytes, "%s_%d.bin", kind, i); }

typedef struct ports {
  void *inputs[16], *outputs[16];
  int descriptors[32];
} ports;

static void *make_port(const mace_tensor *tensor, int bind, int *descriptor) {
  *descriptor = -1;
  if (!bind) return calloc(1, tensor->bytes);
  *descriptor = memfd_create("port", 0);
  if (*descriptor < 0 || ftruncate(*descriptor, (off_t)tensor->bytes)) exit(2);
  return mmap(NULL, tensor->bytes, PROT_READ | PROT_WRITE, MAP_SHARED, *descriptor, 0);
}

static void drop_port(void *memory, const mace_tensor *tensor, int descriptor) {
  if (descriptor < 0) {
    free(memory);
    return;
  }
  munmap(memory, tensor->bytes);
  close(descriptor);
}

static void make_ports(const mace_model *model, int bind, ports *p) {
  char name[32];
  for (int i = 0; i < model->input_count; i++) {
    FILE *file;
    p->inputs[i] = make_port(&model->inputs[i], bind, &p->descriptors[i]);
    file_name(name, sizeof name, "input", i);
    file = fopen(name, "rb");
    if (!file || fread(p->inputs[i], 1, model->inputs[i].bytes, file) != model->inputs[i].bytes) exit(2);
    fclose(file);
  }
  for (int i = 0; i < model->output_count; i++)
    p->outputs[i] = make_port(&model->outputs[i], bind, &p->descriptors[16 + i]);
}

static mace_status bind_ports(mace_session *session, const mace_model *model, int bind, ports *p) {
  mace_status status = MACE_OK;
  for (int i = 0; !status && i < model->input_count + model->output_count; i++) {
    const int is_input = i < model->input_count, index = is_input ? i : i - model->input_count;
    mace_buffer buffer;
    memset(&buffer, 0, sizeof buffer);
    buffer.struct_bytes = sizeof buffer;
    buffer.kind = MACE_DMABUF;
    buffer.host = is_input ? p->inputs[index] : p->outputs[index];
    buffer.handle = (uint64_t)p->descriptors[is_input ? index : 16 + index];
    if (bind == 2) {
      buffer.kind = MACE_AHARDWAREBUFFER;
      buffer.handle = (uint64_t)(uintptr_t)&p->descriptors[is_input ? index : 16 + index];
    }
    buffer.bytes = is_input ? model->inputs[index].bytes : model->outputs[index].bytes;
    buffer.fence = -1;
    status = mace_bind(session, i, &buffer);
    printf("bind %d %s\n", (int)status, mace_error(session));
  }
  return status;
}

static void run_session(const mace_model *model, const mace_config *config, int runs, int bind) {
  mace_session *session = NULL;
  const size_t bytes = mace_session_bytes(model, config);
  void *memory = aligned_alloc(MACE_ALIGNMENT, (bytes + MACE_ALIGNMENT - 1) / MACE_ALIGNMENT * MACE_ALIGNMENT);
  mace_status status = mace_open(model, config, memory, bytes, &session);
  char name[32];
  int good = 0;
  ports p;
  make_ports(model, bind, &p);
  printf("open %d %s\n", (int)status, mace_error(session));
  for (int i = 0; !status && i < model->part_count; i++) printf("part %d %s\n", i, mace_part_device(session, i));
  if (!status && bind) status = bind_ports(session, model, bind, &p);
  for (int i = 0; i < runs; i++) {
    status = mace_run(session, (const void *const *)p.inputs, p.outputs);
    printf("run %d %s\n", (int)status, mace_error(session));
    if (!status) good = 1;
  }
  for (int i = 0; runs && !status && i < model->part_count; i++) printf("after %d %s\n", i, mace_part_device(session, i));
  mace_close(session);
  for (int i = 0; i < model->output_count; i++) {
    FILE *file;
    file_name(name, sizeof name, "output", i);
    if (good && (file = fopen(name, "wb"))) {
      fwrite(p.outputs[i], 1, model->outputs[i].bytes, file);
      fclose(file);
    }
    drop_port(p.outputs[i], &model->outputs[i], p.descriptors[16 + i]);
  }
  for (int i = 0; i < model->input_count; i++) drop_port(p.inputs[i], &model->inputs[i], p.descriptors[i]);
  free(memory);
}

int main(int argc, char **argv) {
  const mace_model *model = session_model("m");
  mace_config config;
  if (argc != 7 || !model) return 1;
  const mace_cache cache = file_cache(argv[5]);
  memset(&config, 0, sizeof config);
  config.struct_bytes = sizeof config;
  config.fallback = (mace_fallback)atoi(argv[1]);
  config.options = strcmp(argv[4], "-") ? argv[4] : NULL;
  config.power = MACE_POWER_BURST;
  if (strcmp(argv[5], "-")) config.cache = &cache;
  for (int i = 0; i < atoi(argv[3]); i++) run_session(model, &config, atoi(argv[2]), atoi(argv[6]));
  return 0;
}
