/* share_probe: opens a session of the model `m` of the library `session` beside OpenCL objects of its own, and
 * runs it in buffers of its own.
 *
 *   share_probe [KEY=VALUE]...
 *
 *   context=1  share the context: 0 none, 1 ours, 2 a wrong name, 3 NULL
 *   queue=0    share the queue: 0 none, 1 ours, 2 one that executes out of order, 3 one of another context
 *   bind=io    which ports are bound: i the input, o the output
 *   kind=3     mace_buffer_kind of the buffers
 *   offset=0   where the tensors begin
 *   flags=1    with which the cl_mems are made
 *   stated=0   bytes that are stated beyond the cl_mem's
 *   foreign=0  1: the cl_mems are of another context
 *   runs=2     runs; from the second on with the input of the first doubled
 *   submit=0   1: mace_submit, and mace_wait once it was notified
 *   options=   of mace_config
 *   fallback=0 of mace_config
 *
 * Prints "open STATUS TEXT", "part DEVICE", "bind STATUS TEXT", "run STATUS TEXT", "same 1" where the output has
 * the bits that a run in host memory has, "notices COUNT".
 */
#include <dlfcn.h>
#include <semaphore.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "opencl_api.h"
#include "session.h"

#define OPENCL_LOOK_UP(name, result, arguments) *(void **)(void *)&cl.name = dlsym(library, #name);

static opencl_functions cl;
static char **words;
static int word_count;

static const char *text_of(const char *key, const char *otherwise) {
  const size_t length = strlen(key);
  for (int i = 1; i < word_count; i++)
    if (!strncmp(words[i], key, length) && words[i][length] == '=') return words[i] + length + 1;
  return otherwise;
}

static long number_of(const char *key, long otherwise) {
  const char *const text = text_of(key, NULL);
  return text ? strtol(text, NULL, 0) : otherwise;
}

static cl_device find_device(void) {
  static const uint64_t types[] = {CL_DEVICE_TYPE_GPU, CL_DEVICE_TYPE_CPU};
  cl_platform platform;
  cl_device device;
  uint32_t count = 0;
  if (cl.clGetPlatformIDs(1, &platform, &count)) exit(3);
  for (int i = 0; i < 2; i++)
    if (!cl.clGetDeviceIDs(platform, types[i], 1, &device, &count) && count) return device;
  exit(3);
}

static void fill(const mace_model *model, float *values, float factor) {
  for (size_t i = 0; i < model->inputs[0].bytes / sizeof *values; i++)
    values[i] = factor * (float)((int)(i * 7 % 23) - 11) / 8;
}

static void notify(void *context) { sem_post(context); }

static mace_status run(mace_session *session, const void *const *inputs, void *const *outputs) {
  sem_t semaphore;
  mace_status status;
  int notices = 0;
  if (!number_of("submit", 0)) return mace_run(session, inputs, outputs);
  if (sem_init(&semaphore, 0, 0)) exit(3);
  mace_notify(session, notify, &semaphore);
  status = mace_submit(session, inputs, outputs);
  while (!status) {
    sem_wait(&semaphore);
    notices++;
    status = mace_wait(session, 0);
    if (status != MACE_BUSY) break;
    status = MACE_OK;
  }
  mace_notify(session, NULL, NULL);
  sem_destroy(&semaphore);
  printf("notices %d\n", notices);
  return status;
}

/* Make a buffer of a port. */
static cl_mem make_buffer(cl_context context, const mace_tensor *tensor, mace_buffer *buffer) {
  const size_t offset = (size_t)number_of("offset", 0);
  const size_t bytes = tensor->bytes + offset + (size_t)number_of("move", 0);
  int32_t code = 0;
  const cl_mem made = cl.clCreateBuffer(context, (uint64_t)number_of("flags", 1), bytes, NULL, &code);
  if (!made) exit(3);
  memset(buffer, 0, sizeof *buffer);
  buffer->struct_bytes = sizeof *buffer;
  buffer->kind = (mace_buffer_kind)number_of("kind", MACE_CL_MEM);
  buffer->handle = (uint64_t)(uintptr_t)made;
  buffer->offset = offset;
  buffer->bytes = bytes + (size_t)number_of("stated", 0);
  return made;
}

static mace_status bind(mace_session *session, int32_t port, const mace_buffer *buffer) {
  const mace_status status = mace_bind(session, port, buffer);
  printf("bind %d %s\n", (int)status, mace_error(session));
  return status;
}

/* Bind the same buffers again, and another place in each. */
static void move(mace_session *session, mace_buffer *described) {
  for (int port = 0; port < 2; port++) described[port].offset += (size_t)number_of("move", 0);
  if (bind(session, 0, &described[0]) || bind(session, session_models[0]->input_count, &described[1])) exit(3);
}

/* Run with what is bound, and compare with a run in host memory; with `move` at a second place too, with no other
 * run in between. */
static void run_bound(mace_session *session, cl_queue queue, const cl_mem *buffers, mace_buffer *described,
                      float factor) {
  const mace_model *const model = session_models[0];
  const size_t bytes = model->outputs[0].bytes;
  const int places = number_of("move", 0) ? 2 : 1;
  const int is_shared = number_of("queue", 0) == 1;
  float *const values = calloc(1, model->inputs[0].bytes), *const expected = calloc(1, bytes);
  float *const result = calloc(1, bytes);
  const char *const bound = text_of("bind", "io");
  const void *inputs[] = {values};
  void *outputs[] = {expected};
  fill(model, values, factor);
  if (mace_run(session, inputs, outputs)) printf("plain %s\n", mace_error(session));
  for (int place = 0; place < places; place++) {
    if (place) move(session, described);
    const size_t offset = described[0].offset;
    if (strchr(bound, 'i')) {
      inputs[0] = NULL;
      /* Not blocking where the queue is shared: the session's work comes behind it. */
      if (cl.clEnqueueWriteBuffer(queue, buffers[0], !is_shared, offset, model->inputs[0].bytes, values, 0, NULL,
                                  NULL))
        exit(3);
    }
    outputs[0] = strchr(bound, 'o') ? NULL : result;
    const mace_status status = run(session, inputs, outputs);
    printf("run %d %s\n", (int)status, mace_error(session));
    if (!outputs[0] && cl.clEnqueueReadBuffer(queue, buffers[1], 1, offset, bytes, result, 0, NULL, NULL)) exit(3);
    if (!status) printf("same %d\n", !memcmp(result, expected, bytes) && result[0] == result[0]);
  }
  free(values);
  free(expected);
  free(result);
}

int main(int count, char **arguments) {
  const mace_model *const model = session_models[0];
  void *const library = dlopen("libOpenCL.so.1", RTLD_NOW | RTLD_LOCAL);
  mace_native natives[3] = {{NULL, NULL}};
  mace_config config = {0};
  mace_session *session = NULL;
  cl_mem buffers[2];
  mace_buffer described[2];
  int32_t code = 0, next = 0;
  words = arguments, word_count = count;
  if (!library) return 3;
  OPENCL_FUNCTIONS(OPENCL_LOOK_UP)
  const cl_device device = find_device();
  const cl_context context = cl.clCreateContext(NULL, 1, &device, NULL, NULL, &code);
  const cl_context other = cl.clCreateContext(NULL, 1, &device, NULL, NULL, &code);
  const cl_context of_buffers = number_of("foreign", 0) ? other : context;
  const cl_queue queue = cl.clCreateCommandQueue(number_of("queue", 0) == 3 ? other : context, device,
                                                 number_of("queue", 0) == 2, &code);
  const cl_queue buffer_queue = of_buffers == context && number_of("queue", 0) < 2
                                    ? queue : cl.clCreateCommandQueue(of_buffers, device, 0, &code);
  static const char *const names[] = {NULL, "opencl.context", "opencl.contexts", "opencl.context"};
  if (!context || !other || !queue || !buffer_queue) return 3;
  if (number_of("context", 1))
    natives[next++] = (mace_native){names[number_of("context", 1)], number_of("context", 1) == 3 ? NULL : context};
  if (number_of("queue", 0)) natives[next++] = (mace_native){"opencl.queue", queue};
  config.struct_bytes = sizeof config;
  config.native = natives;
  config.options = text_of("options", NULL);
  config.fallback = (mace_fallback)number_of("fallback", 0);
  for (int i = 0; i < 2; i++)
    buffers[i] = make_buffer(of_buffers, i ? &model->outputs[0] : &model->inputs[0], &described[i]);
  const size_t bytes = mace_session_bytes(model, &config);
  void *const memory = aligned_alloc(MACE_ALIGNMENT, (bytes + MACE_ALIGNMENT - 1) / MACE_ALIGNMENT * MACE_ALIGNMENT);
  mace_status status = mace_open(model, &config, memory, bytes, &session);
  printf("open %d %s\n", (int)status, mace_error(session));
  if (!status) printf("part %s\n", mace_part_device(session, 0));
  if (!status && strchr(text_of("bind", "io"), 'i')) status = bind(session, 0, &described[0]);
  if (!status && strchr(text_of("bind", "io"), 'o')) status = bind(session, model->input_count, &described[1]);
  for (int i = 0; !status && i < number_of("runs", 2); i++)
    run_bound(session, buffer_queue, buffers, described, (float)(i + 1));
  mace_close(session);
  free(memory);
  for (int i = 0; i < 2; i++) cl.clReleaseMemObject(buffers[i]);
  if (buffer_queue != queue) cl.clReleaseCommandQueue(buffer_queue);
  cl.clReleaseCommandQueue(queue);
  cl.clReleaseContext(context);
  cl.clReleaseContext(other);
  return 0;
}
