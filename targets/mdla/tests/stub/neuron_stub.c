/* neuron_stub.c - a Neuron adapter for tests: checks each call as NeuronAdapter.h and Android's page of NNAPI state it, and executes
 * networks by a program that reads them as those pages say.
 *
 * It shares no header and no table with the driver. What it is told wrongly it answers with an abort, because a device would crash or,
 * worse, not notice. Objects that are alive when the library is closed abort as well.
 *
 *   NEURON_STUB_FAULT=FUNCTION[:N]=CODE   the N-th call of a function (1 if left out) answers CODE and does nothing
 *   NEURON_STUB_LOG=FILE                  every call is written there, one a line
 *   NEURON_STUB_EXECUTOR=PYTHON SCRIPT    executes networks; without it only ADD, SUB, MUL and RELU of float are executed, here
 *   NEURON_STUB_REFUSES=CODE              getSupportedOperations answers false for operations of this code
 *   NEURON_STUB_DEVICES=NAME              the one device that the adapter lists
 *   NEURON_STUB_FOLDER=FOLDER             each network that is compiled is written there, as 0, 1, 2 and so on
 */
#define _GNU_SOURCE
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

/* Of NNAPI's OperandCode. */
enum { FLOAT32, INT32, UINT32, T_FLOAT32, T_INT32, T_QUANT8, BOOLEAN, T_QUANT16, T_FLOAT16, T_BOOL8, FLOAT16, T_CHANNELS, T_QUANT16U, T_SYMM8, T_SIGNED8 };
enum { BAD_DATA = 4, MAX_OPERANDS = 1 << 16 };

typedef struct operand {
  int32_t type;
  uint32_t rank, dims[8];
  float scale;
  int32_t zero;
  uint32_t axis, scale_count;
  float *scales;
  void *copy;        /* of a value of at most 128 bytes, which the adapter copies at once */
  const void *value; /* NULL: none; longer values stay the caller's until the compilation is finished */
  uint64_t bytes;
} operand;

typedef struct operation {
  int32_t code;
  uint32_t input_count, output_count;
  uint32_t *inputs, *outputs;
} operation;

typedef struct NeuronModel {
  operand *operands;
  operation *operations;
  uint32_t operand_count, operation_count, input_count, output_count;
  uint32_t *inputs, *outputs;
  int identified, finished, compilations;
  uint32_t relaxed;
} NeuronModel;

typedef struct NeuronCompilation {
  NeuronModel *model;
  char *network; /* what finish made */
  size_t network_bytes;
  int finished, restored, executions;
} NeuronCompilation;

typedef struct NeuronMemory {
  int fd;
  size_t bytes;
} NeuronMemory;

typedef struct NeuronExecution {
  NeuronCompilation *compilation;
  void **ports; /* inputs, then outputs */
  const NeuronMemory **memories;
  size_t *offsets;
} NeuronExecution;

typedef struct operand_type {
  int32_t type;
  uint32_t rank;
  const uint32_t *dims;
  float scale;
  int32_t zero;
} operand_type;

typedef struct channel_scales {
  uint32_t axis, count;
  const float *scales;
} channel_scales;

static int alive;

static void misuse(const char *function, const char *what) {
  fprintf(stderr, "neuron stub: %s: %s\n", function, what);
  abort();
}

#define REQUIRE(condition, what) \
  do {                           \
    if (!(condition)) misuse(__func__, what); \
  } while (0)

static void *grow(void *memory, size_t bytes) {
  void *grown = realloc(memory, bytes ? bytes : 1);
  if (!grown) misuse("realloc", "the test has no memory");
  return grown;
}

static void *duplicate(const void *from, size_t bytes) { return memcpy(grow(NULL, bytes), from, bytes); }

/* Write down a call; the code with which it is to fail, or 0. */
static int enter(const char *function) {
  static int calls;
  const char *fault = getenv("NEURON_STUB_FAULT"), *log = getenv("NEURON_STUB_LOG");
  const size_t name = strlen(function);
  if (log) {
    FILE *file = fopen(log, "a");
    if (file) fprintf(file, "%s\n", function), fclose(file);
  }
  if (!fault || strncmp(fault, function, name) || (fault[name] != ':' && fault[name] != '=')) return 0;
  const int wanted = fault[name] == ':' ? atoi(fault + name + 1) : 1;
  return ++calls == wanted ? atoi(strchr(fault, '=') + 1) : 0;
}

#define ENTER                         \
  do {                                \
    const int code = enter(__func__); \
    if (code) return code;            \
  } while (0)

__attribute__((destructor)) static void check_nothing_is_left(void) {
  if (alive) misuse("dlclose", "models, compilations, executions or memories are still alive");
}

static size_t width(int32_t type) {
  switch (type) {
    case T_QUANT8: case T_BOOL8: case BOOLEAN: case T_CHANNELS: case T_SYMM8: case T_SIGNED8: return 1;
    case T_QUANT16: case T_FLOAT16: case FLOAT16: case T_QUANT16U: return 2;
    case FLOAT32: case INT32: case UINT32: case T_FLOAT32: case T_INT32: return 4;
    default: return 0;
  }
}

static size_t bytes_of(const operand *o) {
  size_t bytes = width(o->type);
  for (uint32_t i = 0; i < o->rank; i++) bytes *= o->dims[i];
  return bytes;
}

int Neuron_getVersion(unsigned char *version) {
  ENTER;
  version[0] = 6, version[1] = 0, version[2] = 3;
  return 0;
}

int Neuron_getDeviceCount(uint32_t *count) {
  ENTER;
  *count = getenv("NEURON_STUB_DEVICES") ? 1 : 0;
  return 0;
}

int Neuron_getDevice(uint32_t index, void **device) {
  ENTER;
  REQUIRE(index == 0, "no such device");
  *device = &alive;
  return 0;
}

int NeuronDevice_getName(const void *device, const char **name) {
  ENTER;
  REQUIRE(device == &alive, "no device of this adapter");
  *name = getenv("NEURON_STUB_DEVICES");
  return 0;
}

/* ---- models ---- */

int NeuronModel_create(NeuronModel **model) {
  ENTER;
  *model = memset(grow(NULL, sizeof **model), 0, sizeof **model);
  alive++;
  return 0;
}

void NeuronModel_free(NeuronModel *model) {
  enter(__func__);
  REQUIRE(model, "there is no model");
  REQUIRE(!model->compilations, "a compilation of the model is alive");
  for (uint32_t i = 0; i < model->operand_count; i++) free(model->operands[i].scales), free(model->operands[i].copy);
  for (uint32_t i = 0; i < model->operation_count; i++) free(model->operations[i].inputs), free(model->operations[i].outputs);
  free(model->operands), free(model->operations), free(model->inputs), free(model->outputs);
  free(model);
  alive--;
}

static int is_quantized(int32_t type) { return type == T_QUANT8 || type == T_QUANT16 || type == T_SYMM8 || type == T_SIGNED8; }

int NeuronModel_addOperand(NeuronModel *model, const operand_type *type) {
  ENTER;
  operand o = {type->type, type->rank, {0}, type->scale, type->zero, 0, 0, NULL, NULL, NULL, 0};
  const int is_scalar = type->type <= UINT32 || type->type == BOOLEAN || type->type == FLOAT16;
  REQUIRE(!model->finished, "the model is finished");
  REQUIRE(width(type->type), "an unknown type");
  REQUIRE(type->rank <= 8 && (type->rank == 0) == (type->dims == NULL), "dimensions and their count contradict each other");
  REQUIRE(!is_scalar || !type->rank, "a scalar has dimensions");
  if (is_quantized(type->type)) REQUIRE(type->scale > 0, "a quantized tensor without a scale");
  if (type->type == T_QUANT8) REQUIRE(type->zero >= 0 && type->zero <= 255, "a zero point beyond unsigned bytes");
  if (type->type == T_SIGNED8) REQUIRE(type->zero >= -128 && type->zero <= 127, "a zero point beyond signed bytes");
  if (type->type == T_QUANT16 || type->type == T_SYMM8) REQUIRE(!type->zero, "a symmetric tensor has a zero point");
  if (!is_quantized(type->type) && type->type != T_INT32) REQUIRE(!type->scale && !type->zero, "a scale where there is none");
  for (uint32_t i = 0; i < type->rank; i++) REQUIRE((o.dims[i] = type->dims[i]) > 0, "a dimension is not known");
  model->operands = grow(model->operands, (model->operand_count + 1) * sizeof o);
  model->operands[model->operand_count++] = o;
  return 0;
}

static operand *find_operand(NeuronModel *model, int32_t index, const char *function) {
  if (model->finished || index < 0 || (uint32_t)index >= model->operand_count) misuse(function, "no such operand, or the model is finished");
  return &model->operands[index];
}

int NeuronModel_setOperandValue(NeuronModel *model, int32_t index, const void *value, size_t bytes) {
  ENTER;
  operand *o = find_operand(model, index, __func__);
  REQUIRE(value && bytes == bytes_of(o), "the value has other bytes than the operand");
  REQUIRE(!o->value, "the operand has a value");
  if (bytes <= 128) o->copy = duplicate(value, bytes);
  o->value = o->copy ? o->copy : value;
  o->bytes = bytes;
  return 0;
}

int NeuronModel_setOperandSymmPerChannelQuantParams(NeuronModel *model, int32_t index, const channel_scales *channels) {
  ENTER;
  operand *o = find_operand(model, index, __func__);
  REQUIRE(o->type == T_CHANNELS, "the operand has one scale");
  REQUIRE(channels->axis < o->rank && channels->count == o->dims[channels->axis], "there is not one scale for each channel");
  for (uint32_t i = 0; i < channels->count; i++) REQUIRE(channels->scales[i] > 0, "a scale is not positive");
  o->axis = channels->axis, o->scale_count = channels->count;
  o->scales = duplicate(channels->scales, channels->count * sizeof(float));
  return 0;
}

static uint32_t *copy_list(const NeuronModel *model, uint32_t count, const uint32_t *list, const char *function) {
  for (uint32_t i = 0; i < count; i++)
    if (list[i] >= model->operand_count) misuse(function, "no such operand");
  return duplicate(list, count * sizeof *list);
}

int NeuronModel_addOperation(NeuronModel *model, int code, uint32_t input_count, const uint32_t *inputs, uint32_t output_count,
                             const uint32_t *outputs) {
  ENTER;
  REQUIRE(!model->finished, "the model is finished");
  REQUIRE(code >= 0 && code < 108, "no such operation");
  REQUIRE(input_count && output_count, "an operation without operands");
  operation o = {code, input_count, output_count, copy_list(model, input_count, inputs, __func__),
                 copy_list(model, output_count, outputs, __func__)};
  model->operations = grow(model->operations, (model->operation_count + 1) * sizeof o);
  model->operations[model->operation_count++] = o;
  return 0;
}

int NeuronModel_identifyInputsAndOutputs(NeuronModel *model, uint32_t input_count, const uint32_t *inputs, uint32_t output_count,
                                         const uint32_t *outputs) {
  ENTER;
  REQUIRE(!model->finished && !model->identified, "inputs and outputs are known");
  REQUIRE(input_count && output_count, "a model without inputs or outputs");
  for (uint32_t i = 0; i < input_count; i++)
    for (uint32_t j = 0; j < output_count; j++) REQUIRE(inputs[i] != outputs[j], "an operand is input and output");
  model->input_count = input_count, model->output_count = output_count;
  model->inputs = copy_list(model, input_count, inputs, __func__);
  model->outputs = copy_list(model, output_count, outputs, __func__);
  for (uint32_t i = 0; i < input_count; i++) REQUIRE(!model->operands[inputs[i]].value, "an input is a constant");
  model->identified = 1;
  return 0;
}

int NeuronModel_relaxComputationFloat32toFloat16(NeuronModel *model, bool allow) {
  ENTER;
  REQUIRE(!model->finished, "the model is finished");
  model->relaxed = allow;
  return 0;
}

int NeuronModel_finish(NeuronModel *model) {
  ENTER;
  REQUIRE(model->identified && !model->finished, "inputs and outputs are not known, or the model is finished");
  char *known = memset(grow(NULL, model->operand_count), 0, model->operand_count);
  for (uint32_t i = 0; i < model->operand_count; i++) {
    known[i] = model->operands[i].value != NULL;
    if (model->operands[i].type == T_CHANNELS) REQUIRE(model->operands[i].scales, "an operand lacks the scales of its channels");
  }
  for (uint32_t i = 0; i < model->input_count; i++) known[model->inputs[i]] = 1;
  for (uint32_t i = 0; i < model->operation_count; i++) {
    const operation *o = &model->operations[i];
    for (uint32_t j = 0; j < o->input_count; j++) REQUIRE(known[o->inputs[j]], "an operation reads what nobody has computed");
    for (uint32_t j = 0; j < o->output_count; j++) {
      REQUIRE(!known[o->outputs[j]], "an operand is computed twice");
      known[o->outputs[j]] = 1;
    }
  }
  for (uint32_t i = 0; i < model->output_count; i++) REQUIRE(known[model->outputs[i]], "an output is not computed");
  free(known);
  model->finished = 1;
  return 0;
}

int NeuronModel_getSupportedOperations(NeuronModel *model, bool *supported, uint32_t count) {
  const char *refused = getenv("NEURON_STUB_REFUSES");
  ENTER;
  REQUIRE(model->finished && count == model->operation_count, "the model is not finished, or has another number of operations");
  for (uint32_t i = 0; i < count; i++) supported[i] = !refused || model->operations[i].code != atoi(refused);
  return 0;
}

/* ---- compiled networks ---- */

/* A file in memory: "STUBNET1", counts, operands, operations, ports; executor.py reads the same. */
static void put(NeuronCompilation *c, const void *from, size_t bytes) {
  c->network = grow(c->network, c->network_bytes + bytes);
  if (bytes) memcpy(c->network + c->network_bytes, from, bytes);
  c->network_bytes += bytes;
}

static void serialize(NeuronCompilation *c) {
  const NeuronModel *m = c->model;
  const uint32_t counts[4] = {m->operand_count, m->operation_count, m->input_count, m->output_count};
  put(c, "STUBNET1", 8), put(c, counts, sizeof counts), put(c, &m->relaxed, 4);
  for (uint32_t i = 0; i < m->operand_count; i++) {
    const operand *o = &m->operands[i];
    put(c, &o->type, 4), put(c, &o->rank, 4), put(c, o->dims, 32), put(c, &o->scale, 4), put(c, &o->zero, 4);
    put(c, &o->axis, 4), put(c, &o->scale_count, 4), put(c, &o->bytes, 8);
    put(c, o->scales, o->scale_count * 4), put(c, o->value, o->bytes);
  }
  for (uint32_t i = 0; i < m->operation_count; i++) {
    const operation *o = &m->operations[i];
    put(c, &o->code, 4), put(c, &o->input_count, 4), put(c, &o->output_count, 4);
    put(c, o->inputs, o->input_count * 4), put(c, o->outputs, o->output_count * 4);
  }
  put(c, m->inputs, m->input_count * 4), put(c, m->outputs, m->output_count * 4);
}

static void keep_network(const NeuronCompilation *c) {
  static int count;
  const char *folder = getenv("NEURON_STUB_FOLDER");
  char path[500];
  FILE *file;
  if (!folder) return;
  snprintf(path, sizeof path, "%s/%d", folder, count++);
  if (!(file = fopen(path, "wb")) || fwrite(c->network, 1, c->network_bytes, file) != c->network_bytes || fclose(file))
    misuse("keep_network", path);
}

/* A reader of such a file; `bad` once it has ended too early. */
typedef struct reader {
  const char *at, *end;
  int bad;
} reader;

static void take(reader *r, void *to, size_t bytes) {
  if ((size_t)(r->end - r->at) < bytes) r->bad = 1;
  memset(to, 0, bytes);
  if (!r->bad && bytes) memcpy(to, r->at, bytes), r->at += bytes;
}

static void *take_new(reader *r, uint64_t bytes) {
  if ((uint64_t)(r->end - r->at) < bytes) r->bad = 1;
  if (r->bad) return NULL;
  void *memory = grow(NULL, bytes);
  take(r, memory, bytes);
  return memory;
}

static NeuronModel *deserialize(const void *from, size_t bytes) {
  reader r = {from, (const char *)from + bytes, 0};
  NeuronModel *m = memset(grow(NULL, sizeof *m), 0, sizeof *m);
  char magic[8];
  uint32_t counts[4];
  take(&r, magic, 8), take(&r, counts, sizeof counts), take(&r, &m->relaxed, 4);
  r.bad |= memcmp(magic, "STUBNET1", 8) != 0 || counts[0] > MAX_OPERANDS || counts[1] > MAX_OPERANDS;
  for (uint32_t i = 0; !r.bad && i < counts[0]; i++) {
    operand o = {0};
    take(&r, &o.type, 4), take(&r, &o.rank, 4), take(&r, o.dims, 32), take(&r, &o.scale, 4), take(&r, &o.zero, 4);
    take(&r, &o.axis, 4), take(&r, &o.scale_count, 4), take(&r, &o.bytes, 8);
    o.scales = o.scale_count ? take_new(&r, o.scale_count * 4) : NULL;
    o.value = o.copy = o.bytes ? take_new(&r, o.bytes) : NULL;
    m->operands = grow(m->operands, (i + 1) * sizeof o);
    m->operands[i] = o, m->operand_count = i + 1;
  }
  for (uint32_t i = 0; !r.bad && i < counts[1]; i++) {
    operation o = {0};
    take(&r, &o.code, 4), take(&r, &o.input_count, 4), take(&r, &o.output_count, 4);
    o.inputs = take_new(&r, o.input_count * 4ull), o.outputs = take_new(&r, o.output_count * 4ull);
    m->operations = grow(m->operations, (i + 1) * sizeof o);
    m->operations[i] = o, m->operation_count = i + 1;
  }
  m->input_count = counts[2], m->output_count = counts[3];
  m->inputs = take_new(&r, m->input_count * 4ull), m->outputs = take_new(&r, m->output_count * 4ull);
  m->finished = m->identified = 1;
  alive++;
  if (!r.bad && r.at == r.end) return m;
  NeuronModel_free(m);
  return NULL;
}

static NeuronCompilation *make_compilation(NeuronModel *model) {
  NeuronCompilation *c = memset(grow(NULL, sizeof *c), 0, sizeof *c);
  c->model = model;
  model->compilations++;
  alive++;
  return c;
}

int NeuronModel_restoreFromCompiledNetwork(NeuronModel **model, NeuronCompilation **compilation, const void *from, size_t bytes) {
  ENTER;
  NeuronModel *restored = deserialize(from, bytes);
  if (!restored) return BAD_DATA;
  *model = restored;
  *compilation = make_compilation(restored);
  put(*compilation, from, bytes);
  (*compilation)->finished = (*compilation)->restored = 1;
  return 0;
}

int NeuronCompilation_create(NeuronModel *model, NeuronCompilation **compilation) {
  ENTER;
  REQUIRE(model && model->finished, "the model is not finished");
  *compilation = make_compilation(model);
  return 0;
}

int NeuronCompilation_createForDevices(NeuronModel *model, const void *const *devices, uint32_t count, NeuronCompilation **compilation) {
  ENTER;
  REQUIRE(model && model->finished, "the model is not finished");
  REQUIRE(count == 1 && devices[0] == &alive, "no device of this adapter");
  *compilation = make_compilation(model);
  return 0;
}

int NeuronCompilation_createWithOptions(NeuronModel *model, NeuronCompilation **compilation, const char *options) {
  ENTER;
  REQUIRE(model && model->finished && options, "the model is not finished, or there are no options");
  if (strcmp(options, "--opt-bw")) return BAD_DATA;
  *compilation = make_compilation(model);
  return 0;
}

void NeuronCompilation_free(NeuronCompilation *c) {
  enter(__func__);
  REQUIRE(c && !c->executions, "an execution of the compilation is alive");
  c->model->compilations--;
  free(c->network);
  free(c);
  alive--;
}

int NeuronCompilation_setPreference(NeuronCompilation *c, int32_t preference) {
  ENTER;
  REQUIRE(!c->finished && preference >= 0 && preference <= 3, "no preference, or the compilation is finished");
  return 0;
}

int NeuronCompilation_setPriority(NeuronCompilation *c, int priority) {
  ENTER;
  REQUIRE(!c->finished && (priority == 90 || priority == 100 || priority == 110), "no priority, or the compilation is finished");
  return 0;
}

int NeuronCompilation_setOptimizationString(NeuronCompilation *c, const char *options) {
  ENTER;
  REQUIRE(!c->finished && options, "there are no options, or the compilation is finished");
  return 0;
}

int NeuronCompilation_finish(NeuronCompilation *c) {
  ENTER;
  REQUIRE(!c->finished, "the compilation is finished");
  serialize(c);
  keep_network(c);
  c->finished = 1;
  return 0;
}

int NeuronCompilation_getCompiledNetworkSize(NeuronCompilation *c, size_t *bytes) {
  ENTER;
  REQUIRE(c->finished && !c->restored && !c->executions, "not finished, restored from a cache, or an execution exists");
  *bytes = c->network_bytes;
  return 0;
}

int NeuronCompilation_storeCompiledNetwork(NeuronCompilation *c, void *to, size_t bytes) {
  ENTER;
  REQUIRE(c->finished && !c->restored && !c->executions, "not finished, restored from a cache, or an execution exists");
  REQUIRE(bytes == c->network_bytes, "the buffer has another size");
  memcpy(to, c->network, bytes);
  return 0;
}

/* ---- memories and executions ---- */

int NeuronMemory_createFromFd(size_t bytes, int protection, int fd, size_t offset, NeuronMemory **memory) {
  ENTER;
  REQUIRE(fd >= 0 && protection == 3 && !offset && bytes, "no descriptor, or not for reading and writing from its begin");
  *memory = grow(NULL, sizeof **memory);
  (*memory)->fd = dup(fd), (*memory)->bytes = bytes;
  alive++;
  return 0;
}

/* An AHardwareBuffer of these tests is the address of a descriptor; its bytes are the file's. */
int NeuronMemory_createFromAHardwareBuffer(const int *buffer, NeuronMemory **memory) {
  ENTER;
  REQUIRE(buffer && *buffer >= 0, "no buffer");
  *memory = grow(NULL, sizeof **memory);
  (*memory)->fd = dup(*buffer), (*memory)->bytes = (size_t)lseek(*buffer, 0, SEEK_END);
  alive++;
  return 0;
}

void NeuronMemory_free(NeuronMemory *memory) {
  enter(__func__);
  close(memory->fd);
  free(memory);
  alive--;
}

int NeuronExecution_create(NeuronCompilation *c, NeuronExecution **execution) {
  ENTER;
  REQUIRE(c && c->finished, "the compilation is not finished");
  const size_t count = c->model->input_count + c->model->output_count;
  NeuronExecution *e = grow(NULL, sizeof *e);
  e->compilation = c;
  e->ports = memset(grow(NULL, count * sizeof *e->ports), 0, count * sizeof *e->ports);
  e->memories = memset(grow(NULL, count * sizeof *e->memories), 0, count * sizeof *e->memories);
  e->offsets = memset(grow(NULL, count * sizeof *e->offsets), 0, count * sizeof *e->offsets);
  c->executions++;
  alive++;
  *execution = e;
  return 0;
}

void NeuronExecution_free(NeuronExecution *e) {
  enter(__func__);
  REQUIRE(e, "there is no execution");
  e->compilation->executions--;
  free(e->ports), free(e->memories), free(e->offsets);
  free(e);
  alive--;
}

static size_t port_bytes(const NeuronModel *m, size_t port) {
  return bytes_of(&m->operands[port < m->input_count ? m->inputs[port] : m->outputs[port - m->input_count]]);
}

static void set_port(NeuronExecution *e, int is_output, uint32_t index, const void *type, void *at, size_t bytes, const char *function) {
  const NeuronModel *m = e->compilation->model;
  const size_t port = index + (is_output ? m->input_count : 0);
  if (type) misuse(function, "the adapter takes NULL for the type");
  if (index >= (is_output ? m->output_count : m->input_count)) misuse(function, "no such port");
  if (bytes != port_bytes(m, port)) misuse(function, "the buffer has another size than the port");
  e->ports[port] = at, e->memories[port] = NULL;
}

static void set_memory(NeuronExecution *e, int is_output, uint32_t index, const NeuronMemory *memory, size_t offset) {
  const size_t port = index + (is_output ? e->compilation->model->input_count : 0);
  e->memories[port] = memory, e->offsets[port] = offset;
}

int NeuronExecution_setInput(NeuronExecution *e, int32_t index, const void *type, const void *at, size_t bytes) {
  ENTER;
  REQUIRE(at, "there is no buffer");
  set_port(e, 0, (uint32_t)index, type, (void *)(uintptr_t)at, bytes, __func__);
  return 0;
}

int NeuronExecution_setOutput(NeuronExecution *e, int32_t index, const void *type, void *at, size_t bytes) {
  ENTER;
  REQUIRE(at, "there is no buffer");
  set_port(e, 1, (uint32_t)index, type, at, bytes, __func__);
  return 0;
}

int NeuronExecution_setInputFromMemory(NeuronExecution *e, uint32_t index, const void *type, const NeuronMemory *memory, size_t offset,
                                       size_t bytes) {
  ENTER;
  REQUIRE(memory && offset + bytes <= memory->bytes, "beyond the memory");
  set_port(e, 0, index, type, NULL, bytes, __func__);
  set_memory(e, 0, index, memory, offset);
  return 0;
}

int NeuronExecution_setOutputFromMemory(NeuronExecution *e, uint32_t index, const void *type, const NeuronMemory *memory, size_t offset,
                                        size_t bytes) {
  ENTER;
  REQUIRE(memory && offset + bytes <= memory->bytes, "beyond the memory");
  set_port(e, 1, index, type, NULL, bytes, __func__);
  set_memory(e, 1, index, memory, offset);
  return 0;
}

int NeuronExecution_setBoostHint(NeuronExecution *e, uint8_t boost) {
  ENTER;
  REQUIRE(e && boost <= 100, "a boost beyond 100");
  return 0;
}

static void read_port(const NeuronExecution *e, size_t port, void *to, size_t bytes) {
  if (!e->memories[port])
    memcpy(to, e->ports[port], bytes);
  else if (pread(e->memories[port]->fd, to, bytes, (off_t)e->offsets[port]) != (ssize_t)bytes)
    misuse("read_port", "the memory cannot be read");
}

static void write_port(const NeuronExecution *e, size_t port, const void *from, size_t bytes) {
  if (!e->memories[port])
    memcpy(e->ports[port], from, bytes);
  else if (pwrite(e->memories[port]->fd, from, bytes, (off_t)e->offsets[port]) != (ssize_t)bytes)
    misuse("write_port", "the memory cannot be written");
}

/* Execute ADD, MUL, SUB and RELU of floats of one shape, or with one number; returns 0 for any other network. */
static int execute_here(const NeuronExecution *e) {
  const NeuronModel *m = e->compilation->model;
  for (uint32_t i = 0; i < m->operation_count; i++) {
    const operation *o = &m->operations[i];
    if ((o->code != 0 && o->code != 18 && o->code != 36 && o->code != 19) || m->operands[o->outputs[0]].type != T_FLOAT32) return 0;
  }
  float **values = memset(grow(NULL, m->operand_count * sizeof *values), 0, m->operand_count * sizeof *values);
  for (uint32_t i = 0; i < m->operand_count; i++) {
    values[i] = grow(NULL, bytes_of(&m->operands[i]));
    if (m->operands[i].value) memcpy(values[i], m->operands[i].value, m->operands[i].bytes);
  }
  for (uint32_t i = 0; i < m->input_count; i++) read_port(e, i, values[m->inputs[i]], port_bytes(m, i));
  for (uint32_t i = 0; i < m->operation_count; i++) {
    const operation *o = &m->operations[i];
    const float *a = values[o->inputs[0]], *b = o->code == 19 ? a : values[o->inputs[1]];
    const size_t count = bytes_of(&m->operands[o->outputs[0]]) / 4;
    const size_t a_count = bytes_of(&m->operands[o->inputs[0]]) / 4;
    const size_t b_count = o->code == 19 ? count : bytes_of(&m->operands[o->inputs[1]]) / 4;
    const int fused = o->code == 19 ? 1 : *(const int32_t *)m->operands[o->inputs[2]].value;
    for (size_t j = 0; j < count; j++) {
      const float x = a[j % a_count], y = b[j % b_count];
      float z = o->code == 0 ? x + y : o->code == 18 ? x * y : o->code == 36 ? x - y : x;
      if (fused == 1 && z < 0) z = 0;
      values[o->outputs[0]][j] = z;
    }
  }
  for (uint32_t i = 0; i < m->output_count; i++)
    write_port(e, m->input_count + i, values[m->outputs[i]], port_bytes(m, m->input_count + i));
  for (uint32_t i = 0; i < m->operand_count; i++) free(values[i]);
  free(values);
  return 1;
}

static void write_file(const char *folder, const char *name, const void *from, size_t bytes) {
  char path[300];
  snprintf(path, sizeof path, "%s/%s", folder, name);
  FILE *file = fopen(path, "wb");
  if (!file || fwrite(from, 1, bytes, file) != bytes || fclose(file)) misuse("write_file", path);
}

/* Let the program of NEURON_STUB_EXECUTOR compute: it finds `network` and `inputs` in a folder, and leaves `outputs` there. */
static void execute_outside(const NeuronExecution *e, const char *command) {
  const NeuronModel *m = e->compilation->model;
  const char *const temporary = getenv("TMPDIR");
  char folder[200], program[200], path[300];
  size_t bytes = 0, at = 0;
  snprintf(folder, sizeof folder, "%s/neuron-stub-XXXXXX", temporary ? temporary : P_tmpdir);
  if (!mkdtemp(folder)) misuse("mkdtemp", "no folder");
  for (uint32_t i = 0; i < m->input_count + m->output_count; i++) bytes += port_bytes(m, i);
  char *data = grow(NULL, bytes);
  for (uint32_t i = 0; i < m->input_count; at += port_bytes(m, i++)) read_port(e, i, data + at, port_bytes(m, i));
  write_file(folder, "network", e->compilation->network, e->compilation->network_bytes);
  write_file(folder, "inputs", data, at);
  snprintf(program, sizeof program, "%.*s", (int)strcspn(command, " "), command);
  const char *script = strchr(command, ' ') ? strchr(command, ' ') + 1 : "";
  const pid_t child = fork();
  if (!child) {
    unsetenv("LD_LIBRARY_PATH"), unsetenv("LD_PRELOAD");
    execl(program, program, script, folder, (char *)NULL);
    _exit(127);
  }
  int status = 1;
  waitpid(child, &status, 0);
  if (status) misuse("executor", "it failed");
  snprintf(path, sizeof path, "%s/outputs", folder);
  FILE *file = fopen(path, "rb");
  const size_t read = file ? fread(data, 1, bytes, file) : 0;
  if (file) fclose(file);
  at = 0;
  for (uint32_t i = m->input_count; i < m->input_count + m->output_count; at += port_bytes(m, i++))
    if (at + port_bytes(m, i) <= read) write_port(e, i, data + at, port_bytes(m, i));
  if (at != read) misuse("executor", "it wrote other bytes than the outputs have");
  static const char *const names[] = {"network", "inputs", "outputs"};
  for (int i = 0; i < 3; i++) snprintf(path, sizeof path, "%s/%s", folder, names[i]), unlink(path);
  rmdir(folder);
  free(data);
}

int NeuronExecution_compute(NeuronExecution *e) {
  const char *executor = getenv("NEURON_STUB_EXECUTOR");
  ENTER;
  const NeuronModel *m = e->compilation->model;
  for (uint32_t i = 0; i < m->input_count + m->output_count; i++) REQUIRE(e->ports[i] || e->memories[i], "a port has no buffer");
  if (executor)
    execute_outside(e, executor);
  else
    REQUIRE(execute_here(e), "set NEURON_STUB_EXECUTOR for such a network");
  return 0;
}
