/* mace_benchmark: time a model of the library.
 *
 *   mace_benchmark [--model=NAME] [--threads=N] [--options=TEXT] [--rounds=N] [--warmup=N] [--layers=1] [--compiled=FOLDER]
 *
 * Prints one JSON object: what computes the first part, and each, its units, nanoseconds of each round and of opening a session, and with --layers=1 of each layer that this processor
 * computes (the least over the rounds; "is_of_device": whether the device measured it; otherwise its launch and the
 * copy of its result are in it).
 * TEXT: for drivers, as mace_config.options has it.
 * With --compiled, FOLDER/KEY.bin is what devices load, and gets what they compiled where they do not take it.
 * The inputs are small numbers that repeat; time does not depend on them but for denormals, which they avoid. Bytes have many values,
 * because what is executed may depend on whether a sum lies near the middle of two results.
 */
#define _POSIX_C_SOURCE 199309L
#include "mace_tool.h"

#include <time.h>

typedef struct profile {
  const mace_session *session;
  int64_t last;
  int64_t *least;
  char *is_of_device; /* whether the device itself measured the least */
} profile;

static int64_t now(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

static void observe(void *observer, int32_t layer, const void *result) {
  profile *p = observer;
  const int64_t at = now(), ns = (int64_t)mace_layer_ns(p->session), took = ns ? ns : at - p->last;
  (void)result;
  if (p->least[layer] < 0 || took < p->least[layer]) {
    p->least[layer] = took;
    p->is_of_device[layer] = ns > 0;
  }
  p->last = now();
}

static void fill(const mace_tensor *tensor, void *data) {
  const size_t count = tensor->bytes / (tensor->dtype == MACE_F32 ? 4 : 1);
  const int is_byte = tensor->dtype == MACE_I8 || tensor->dtype == MACE_U8;
  for (size_t i = 0; i < count; i++) {
    if (tensor->dtype == MACE_F32)
      ((float *)data)[i] = (float)(i % 17) / 16 - 0.5f;
    else
      ((unsigned char *)data)[i] = is_byte ? (unsigned char)(i * 2654435761u >> 16) : 0;
  }
}

static void print_layers(const mace_model *model, const profile *seen) {
  const char *separator = "";
  printf(", \"layers\": [");
  for (int32_t i = 0; i < model->layer_count; i++) {
    if (seen->least[i] < 0) continue;
    printf("%s{\"name\": ", separator);
    separator = ", ";
    print_text(model->layers[i].name);
    printf(", \"kernel\": ");
    print_text(model->layers[i].kernel);
    printf(", \"number\": %d, \"ns\": %lld, \"is_of_device\": %s}", (int)i, (long long)seen->least[i],
           seen->is_of_device[i] ? "true" : "false");
  }
  printf("]");
}

/* A cache whose entries are files of the folder `context`. */
static FILE *open_entry(void *context, const char *key, const char *mode, char path[4096]) {
  const int length = snprintf(path, 4096, "%s/%s.bin", (const char *)context, key);
  if (length >= 4096) fail("--compiled", "the path of a file is too long", "give a folder with a shorter path");
  return fopen(path, mode);
}

static size_t load_compiled(void *context, const char *key, void *data, size_t bytes) {
  char path[4096];
  FILE *file = open_entry(context, key, "rb", path);
  long size;
  if (!file) return 0;
  if (fseek(file, 0, SEEK_END) || (size = ftell(file)) < 0 || fseek(file, 0, SEEK_SET))
    fail(path, "cannot be read", "give --compiled=FOLDER, a folder of files");
  if (data && (size_t)size <= bytes && fread(data, 1, (size_t)size, file) != (size_t)size) size = 0;
  fclose(file);
  return (size_t)size;
}

static void keep_compiled(void *context, const char *key, const void *data, size_t bytes) {
  char path[4096];
  FILE *file = open_entry(context, key, "wb", path);
  if (!file) fail(path, "cannot be written", "give --compiled=FOLDER, a folder that exists");
  const int lost = fwrite(data, 1, bytes, file) != bytes;
  if (fclose(file) || lost) fail(path, "could not be written whole", "free some disk space");
}

static void *resize_entry(void *context, void *data, size_t bytes) {
  (void)context;
  if (bytes) return realloc(data, bytes);
  free(data);
  return NULL;
}

int main(int argc, char **argv) {
  const mace_model *model = chosen(argc, argv);
  const int workers = number(argc, argv, "--threads", 1), rounds = number(argc, argv, "--rounds", 20);
  const int warmup = number(argc, argv, "--warmup", 3), layers = number(argc, argv, "--layers", 0);
  const void **in = memory(sizeof *in * (size_t)(model->input_count + 1));
  void **out = memory(sizeof *out * (size_t)(model->output_count + 1));
  profile seen = {NULL, 0, memory(sizeof(int64_t) * (size_t)(model->layer_count + 1)),
                  memory((size_t)(model->layer_count + 1))};
  mace_config config = configure(argc, argv);
  const char *compiled = option(argc, argv, "--compiled");
  const mace_cache cache = {sizeof cache, (void *)(uintptr_t)compiled, load_compiled, keep_compiled, resize_entry};
  if (compiled) config.cache = &cache;
  for (int32_t i = 0; i < model->input_count; i++) fill(&model->inputs[i], (void *)(in[i] = memory(model->inputs[i].bytes)));
  for (int32_t i = 0; i < model->output_count; i++) out[i] = memory(model->outputs[i].bytes);

  for (int32_t i = 0; i < model->layer_count; i++) seen.least[i] = -1;

  mace_close(open_session(model, &config)); /* the first one loads pages of the library */
  const int64_t before = now();
  mace_session *session = open_session(model, &config);
  const int64_t opened = now() - before;
  for (int i = 0; i < warmup; i++) check(session, mace_run(session, in, out));
  printf("{\"model\": ");
  print_text(model->name);
  printf(", \"device\": ");
  print_text(mace_part_device(session, 0));
  printf(", ");
  print_devices(model, session);
  printf(", ");
  print_units(model, session);
  printf(", \"threads\": %d, \"open_ns\": %lld, \"ns\": [", workers, (long long)opened);
  for (int i = 0; i < rounds; i++) {
    const int64_t start = now();
    check(session, mace_run(session, in, out));
    printf("%s%lld", i ? ", " : "", (long long)(now() - start));
  }
  printf("]");
  seen.session = session;
  mace_observe(session, observe, &seen);
  for (int i = 0; layers && i < rounds; i++) {
    seen.last = now();
    check(session, mace_run(session, in, out));
  }
  if (layers) print_layers(model, &seen);
  printf("}\n");
  mace_close(session);
  mace_threads_delete((mace_threads *)config.threads);
  return 0;
}
