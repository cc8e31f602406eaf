/* cold_start: opens a session of the first model of the library `cold`, and tells how long each step took.
 *
 *   cold_start CACHE OPTIONS
 *
 * CACHE: a file for what the device compiles, "-" for none. OPTIONS: of mace_config, "-" for none. Prints
 * "open MS CPU_MS", "first MS CPU_MS", "warm MS CPU_MS" (each the best of five), "device NAME", and "load MS CPU_MS":
 * a second session opened in the same process, when the system's OpenCL has already started. CPU_MS: milliseconds
 * that the threads of the process computed, without the waits for a processor that others use.
 *
 *   cold_start start
 *
 * Prints "start MS CPU_MS": how long the system's OpenCL takes to give a context and a queue, without a session; and
 * "weights MS CPU_MS": how long it takes then to copy as many bytes to the device as the model has constants.
 */
#define _POSIX_C_SOURCE 200809L
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "cold.h"
#include "file_cache.h"
#include "opencl_api.h"

#define OPENCL_LOOK_UP(name, result, arguments) *(void **)(void *)&cl.name = dlsym(library, #name);

/* Milliseconds by the wall's clock, and those that the process computed. */
typedef struct instant {
  double wall, cpu;
} instant;

static double read_clock(clockid_t clock) {
  struct timespec time;
  clock_gettime(clock, &time);
  return 1e3 * (double)time.tv_sec + 1e-6 * (double)time.tv_nsec;
}

static instant now(void) {
  const instant at = {read_clock(CLOCK_MONOTONIC), read_clock(CLOCK_PROCESS_CPUTIME_ID)};
  return at;
}

static instant since(instant start) {
  const instant end = now(), passed = {end.wall - start.wall, end.cpu - start.cpu};
  return passed;
}

static void show(const char *step, instant passed) { printf("%s %.1f %.1f\n", step, passed.wall, passed.cpu); }

/* Start OpenCL as the driver does, copy so many bytes to the device, and do no more. */
static int measure_start(size_t bytes) {
  static const uint64_t types[] = {CL_DEVICE_TYPE_GPU, CL_DEVICE_TYPE_CPU};
  instant start = now();
  void *const library = dlopen("libOpenCL.so.1", RTLD_NOW | RTLD_LOCAL);
  opencl_functions cl;
  cl_platform platform;
  cl_device device = NULL;
  cl_context context;
  uint32_t found = 0;
  int32_t code = 0;
  if (!library) return 1;
  OPENCL_FUNCTIONS(OPENCL_LOOK_UP)
  if (cl.clGetPlatformIDs(1, &platform, &found)) return 1;
  for (int i = 0; i < 2 && !device; i++)
    if (cl.clGetDeviceIDs(platform, types[i], 1, &device, &found)) device = NULL;
  if (!device) return 1;
  context = cl.clCreateContext(NULL, 1, &device, NULL, NULL, &code);
  if (!context || !cl.clCreateCommandQueue(context, device, 0, &code)) return 1;
  show("start", since(start));
  void *const constants = malloc(bytes + 1);
  if (!constants) return 1;
  memset(constants, 1, bytes + 1);
  start = now();
  if (!cl.clCreateBuffer(context, CL_MEM_READ_ONLY | CL_MEM_COPY_HOST_PTR, bytes + 1, constants, &code)) return 1;
  show("weights", since(start));
  return 0;
}

int main(int count, char **words) {
  const mace_model *const model = cold_models[0];
  const void *inputs[16] = {NULL};
  void *outputs[16] = {NULL};
  mace_config config = {0};
  mace_session *session = NULL;
  instant start, best = {1e30, 1e30};
  if (count == 2 && !strcmp(words[1], "start")) return measure_start(model->weight_bytes);
  if (count != 3) return 2;
  const mace_cache cache = file_cache(words[1]);
  config.struct_bytes = sizeof config;
  if (strcmp(words[1], "-")) config.cache = &cache;
  if (strcmp(words[2], "-")) config.options = words[2];
  for (int i = 0; i < model->input_count; i++) inputs[i] = calloc(1, model->inputs[i].bytes);
  for (int i = 0; i < model->output_count; i++) outputs[i] = calloc(1, model->outputs[i].bytes);
  const size_t bytes = mace_session_bytes(model, &config);
  void *const memory = aligned_alloc(MACE_ALIGNMENT, (bytes + MACE_ALIGNMENT - 1) / MACE_ALIGNMENT * MACE_ALIGNMENT);
  start = now();
  if (mace_open(model, &config, memory, bytes, &session)) return fprintf(stderr, "%s\n", mace_error(session)), 1;
  show("open", since(start));
  start = now();
  if (mace_run(session, inputs, outputs)) return fprintf(stderr, "%s\n", mace_error(session)), 1;
  show("first", since(start));
  for (int i = 0; i < 5; i++) {
    start = now();
    if (mace_run(session, inputs, outputs)) return 1;
    const instant passed = since(start);
    if (passed.wall < best.wall) best.wall = passed.wall;
    if (passed.cpu < best.cpu) best.cpu = passed.cpu;
  }
  show("warm", best);
  printf("device %s\n", mace_part_device(session, 0));
  mace_close(session);
  start = now();
  if (mace_open(model, &config, memory, bytes, &session)) return fprintf(stderr, "%s\n", mace_error(session)), 1;
  show("load", since(start));
  mace_close(session);
  return 0;
}
