/* mace_run: run a model of the library on data from files.
 *
 *   mace_run [--model=NAME] [--threads=N] [--options=TEXT] [--reset=N] [--layers=FOLDER] --output=FOLDER INPUT...
 *
 * INPUT: one file for each input of the model, in order, raw values as the model wants them; a file of several samples, one after
 * another, runs the model once for each in one session. States go on from each sample to the next; with --reset they have their start
 * values again after every N samples. FOLDER/output_I.bin gets the values of output I of all samples; with --layers, FOLDER/layer_I.bin
 * the result of every layer for the first sample. TEXT: for drivers, as mace_config.options has it. Prints one JSON object: what computes each part.
 */
#include "mace_tool.h"

typedef struct dump {
  const mace_model *model;
  const char *folder;
} dump;

/* The whole file; its size goes to *bytes. */
static char *slurp(const char *path, size_t *bytes) {
  FILE *file = fopen(path, "rb");
  if (!file) fail(path, "cannot be read", "give one file for each input of the model");
  fseek(file, 0, SEEK_END);
  const long size = ftell(file);
  if (size < 0) fail(path, "has no size", "give a plain file");
  rewind(file);
  char *data = memory((size_t)size);
  if (fread(data, 1, (size_t)size, file) != (size_t)size) fail(path, "could not be read whole", "check the disk");
  fclose(file);
  *bytes = (size_t)size;
  return data;
}

static void spill(const char *folder, const char *stem, int32_t index, const void *data, size_t bytes) {
  char path[4096];
  snprintf(path, sizeof path, "%s/%s_%d.bin", folder, stem, (int)index);
  FILE *file = fopen(path, "wb");
  if (!file) fail(path, "cannot be written", "give --output=FOLDER, a folder that exists");
  const int lost = fwrite(data, 1, bytes, file) != bytes;
  if (fclose(file) || lost) fail(path, "could not be written whole", "free some disk space");
}

static void observe(void *observer, int32_t layer, const void *result) {
  const dump *d = observer;
  spill(d->folder, "layer", layer, result, d->model->layers[layer].result.bytes);
}

/* Read the inputs that argv gives; returns how many samples they hold. */
static size_t read_inputs(const mace_model *model, int argc, char **argv, char **data) {
  size_t samples = 0;
  int32_t given = 0;
  for (int i = 1; i < argc; i++) {
    size_t bytes;
    if (!strncmp(argv[i], "--", 2)) continue;
    if (given == model->input_count) fail(argv[i], "is one file too many", "give one for each input of the model");
    data[given] = slurp(argv[i], &bytes);
    const size_t one = model->inputs[given++].bytes;
    if (!one || bytes % one || !bytes) {
      fprintf(stderr, "%s: holds %zu bytes; a sample of input ", argv[i], bytes);
      show(stderr, model->inputs[given - 1].name);
      fprintf(stderr, " takes %zu\n", one);
      exit(2);
    }
    if (samples && bytes / one != samples) fail(argv[i], "holds another number of samples", "give as many for every input");
    samples = bytes / one;
  }
  if (given != model->input_count) fail("mace_run", "too few files", "give one for each input of the model");
  return model->input_count ? samples : 1;
}

int main(int argc, char **argv) {
  const mace_model *model = chosen(argc, argv);
  const char *folder = option(argc, argv, "--output"), *layers = option(argc, argv, "--layers");
  const size_t sequence = (size_t)number(argc, argv, "--reset", 0);
  char **inputs = memory(sizeof *inputs * (size_t)(model->input_count + 1));
  char **outputs = memory(sizeof *outputs * (size_t)(model->output_count + 1));
  const void **in = memory(sizeof *in * (size_t)(model->input_count + 1));
  void **out = memory(sizeof *out * (size_t)(model->output_count + 1));
  if (!folder) fail("mace_run", "no --output=FOLDER", "say where the results go");
  const size_t samples = read_inputs(model, argc, argv, inputs);
  for (int32_t i = 0; i < model->output_count; i++) outputs[i] = memory(model->outputs[i].bytes * samples);

  mace_config config = configure(argc, argv);
  mace_session *session = open_session(model, &config);
  dump layer_dump = {model, layers};
  if (layers) mace_observe(session, observe, &layer_dump);
  for (size_t s = 0; s < samples; s++) {
    for (int32_t i = 0; i < model->input_count; i++) in[i] = inputs[i] + model->inputs[i].bytes * s;
    for (int32_t i = 0; i < model->output_count; i++) out[i] = outputs[i] + model->outputs[i].bytes * s;
    if (sequence && s && s % sequence == 0) check(session, mace_reset(session));
    check(session, mace_run(session, in, out));
    mace_observe(session, NULL, NULL);
  }
  for (int32_t i = 0; i < model->output_count; i++) spill(folder, "output", i, outputs[i], model->outputs[i].bytes * samples);
  printf("{");
  print_devices(model, session); /* after the runs: a fallback may have taken over */
  printf("}\n");
  mace_close(session);
  mace_threads_delete((mace_threads *)config.threads);
  return 0;
}
