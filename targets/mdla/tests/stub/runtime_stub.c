/* runtime_stub.c - a Neuron runtime for tests, of version 2 and 1, or with -DONLY_V1 of version 1 alone. It executes one kind of file:
 * "STUBDLA1", the count of floats, and a factor; the output is the input times the factor. NEURON_STUB_FAULT is as in neuron_stub.c.
 *
 * Written from RuntimeAPI.h and RuntimeV2.h of the Neuron SDK; it shares nothing with the driver. */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct file {
  char magic[8];
  uint32_t count;
  float factor;
} file;

typedef struct runtime {
  file file;
  const float *input;
  float *output;
  int loaded;
} runtime;

typedef struct buffer {
  void *at;
  size_t bytes;
  int fd, offset;
  uint64_t reserved[2];
} buffer;

typedef struct request {
  buffer *inputs, *outputs;
} request;

typedef struct attribute {
  int fd;
} attribute;

static int alive;

#define REQUIRE(condition, what)                                        \
  do {                                                                  \
    if (!(condition)) {                                                 \
      fprintf(stderr, "neuron stub: %s: %s\n", __func__, what);         \
      abort();                                                          \
    }                                                                   \
  } while (0)

static int enter(const char *function) {
  const char *fault = getenv("NEURON_STUB_FAULT");
  const size_t name = strlen(function);
  if (!fault || strncmp(fault, function, name) || fault[name] != '=') return 0;
  return atoi(fault + name + 1);
}

#define ENTER                         \
  do {                                \
    const int code = enter(__func__); \
    if (code) return code;            \
  } while (0)

__attribute__((destructor)) static void check_nothing_is_left(void) { REQUIRE(!alive, "a runtime is still alive"); }

static int read_file(runtime *r, const void *bytes, size_t size) {
  if (size != sizeof r->file || memcmp(bytes, "STUBDLA1", 8)) return 4;
  memcpy(&r->file, bytes, sizeof r->file);
  r->loaded = 1;
  return 0;
}

static void multiply(const runtime *r, const float *from, float *to) {
  for (uint32_t i = 0; i < r->file.count; i++) to[i] = from[i] * r->file.factor;
}

static runtime *make_runtime(void) {
  runtime *r = calloc(1, sizeof *r);
  alive++;
  return r;
}

#ifndef ONLY_V1
int NeuronRuntimeV2_createFromBuffer(const void *bytes, size_t size, size_t threads, void **made, size_t backlog) {
  ENTER;
  REQUIRE(threads == 1 && backlog, "no thread, or no place for requests");
  runtime *r = make_runtime();
  const int code = read_file(r, bytes, size);
  if (code) free(r), alive--;
  if (!code) *made = r;
  return code;
}

void NeuronRuntimeV2_release(void *r) { free(r), alive--; }

int NeuronRuntimeV2_getInputNumber(void *r, size_t *count) {
  ENTER;
  REQUIRE(r, "there is no runtime");
  *count = 1;
  return 0;
}

int NeuronRuntimeV2_getOutputNumber(void *r, size_t *count) {
  ENTER;
  REQUIRE(r, "there is no runtime");
  *count = 1;
  return 0;
}

int NeuronRuntimeV2_getInputSize(void *r, uint64_t port, size_t *bytes) {
  ENTER;
  REQUIRE(!port, "no such port");
  *bytes = ((runtime *)r)->file.count * 4;
  return 0;
}

int NeuronRuntimeV2_getOutputSize(void *r, uint64_t port, size_t *bytes) {
  ENTER;
  REQUIRE(!port, "no such port");
  *bytes = ((runtime *)r)->file.count * 4;
  return 0;
}

int NeuronRuntimeV2_run(void *r, request q) {
  ENTER;
  REQUIRE(q.inputs[0].bytes == ((runtime *)r)->file.count * 4 && q.inputs[0].at && q.outputs[0].at, "wrong buffers");
  REQUIRE(!q.inputs[0].reserved[0] && !q.inputs[0].reserved[1], "reserved words are not 0");
  if (q.inputs[0].fd == -1) REQUIRE(!q.inputs[0].offset, "an offset without a descriptor");
  multiply(r, q.inputs[0].at, q.outputs[0].at);
  return 0;
}
#endif

int NeuronRuntime_create(const uint32_t *options, void **made) {
  ENTER;
  REQUIRE(options[0] == 4 && !options[1] && !options[2], "not for the hardware, or with options");
  *made = make_runtime();
  return 0;
}

void NeuronRuntime_release(void *r) { free(r), alive--; }

int NeuronRuntime_loadNetworkFromBuffer(void *r, const void *bytes, size_t size) {
  ENTER;
  return read_file(r, bytes, size);
}

int NeuronRuntime_getInputNumber(void *r, size_t *count) {
  ENTER;
  REQUIRE(((runtime *)r)->loaded, "nothing is loaded");
  *count = 1;
  return 0;
}

int NeuronRuntime_getOutputNumber(void *r, size_t *count) {
  ENTER;
  REQUIRE(((runtime *)r)->loaded, "nothing is loaded");
  *count = 1;
  return 0;
}

int NeuronRuntime_getInputSize(void *r, uint64_t port, size_t *bytes) {
  ENTER;
  REQUIRE(!port, "no such port");
  *bytes = ((runtime *)r)->file.count * 4;
  return 0;
}

int NeuronRuntime_getOutputSize(void *r, uint64_t port, size_t *bytes) {
  ENTER;
  REQUIRE(!port, "no such port");
  *bytes = ((runtime *)r)->file.count * 4;
  return 0;
}

int NeuronRuntime_setInput(void *r, uint64_t port, const void *at, size_t bytes, attribute a) {
  ENTER;
  REQUIRE(!port && a.fd == -1 && bytes == ((runtime *)r)->file.count * 4, "a wrong buffer");
  ((runtime *)r)->input = at;
  return 0;
}

int NeuronRuntime_setOutput(void *r, uint64_t port, void *at, size_t bytes, attribute a) {
  ENTER;
  REQUIRE(!port && a.fd == -1 && bytes == ((runtime *)r)->file.count * 4, "a wrong buffer");
  ((runtime *)r)->output = at;
  return 0;
}

int NeuronRuntime_inference(void *r) {
  ENTER;
  REQUIRE(((runtime *)r)->input && ((runtime *)r)->output, "a port has no buffer");
  multiply(r, ((runtime *)r)->input, ((runtime *)r)->output);
  return 0;
}
