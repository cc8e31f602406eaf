/* mdla_driver.c - the driver of MediaTek's MDLA: opens the vendor's libraries, loads networks, and lets them
 * run.
 *
 * A network is compiled on the device by the Neuron adapter, was compiled for the adapter before, or is a
 * file of ncc-tflite for the Neuron runtime. Options of mace_config:
 * mdla.preference=low-power|fast|sustained|turbo, mdla.priority=low|medium|high, mdla.boost=0..100,
 * mdla.compile=OPTIONS for the vendor's compiler.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "mdla_part.h"

#define PREFIX "mdla."
#define COUNT(array) (sizeof(array) / sizeof(array)[0])

enum { READ_AND_WRITE = 3 }; /* PROT_READ | PROT_WRITE */

typedef struct word {
  const char *name;
  int32_t value;
} word;

static const word preferences[] = {{"low-power", NEURON_PREFER_LOW_POWER},
                                   {"fast", NEURON_PREFER_FAST_SINGLE_ANSWER},
                                   {"sustained", NEURON_PREFER_SUSTAINED_SPEED},
                                   {"turbo", NEURON_PREFER_TURBO_BOOST}};
static const word priorities[] = {
    {"low", NEURON_PRIORITY_LOW}, {"medium", NEURON_PRIORITY_MEDIUM}, {"high", NEURON_PRIORITY_HIGH}};

/* ---- options ---- */

/* A piece of text that does not end with a 0. */
typedef struct piece {
  const char *at;
  size_t bytes;
} piece;

static int is_word(piece text, const char *word) {
  return text.bytes == strlen(word) && !memcmp(text.at, word, text.bytes);
}

static int read_word(piece value, const word *words, size_t count, int32_t *number) {
  for (size_t i = 0; i < count; i++)
    if (is_word(value, words[i].name)) {
      *number = words[i].value;
      return 1;
    }
  return 0;
}

static int read_percent(piece value, int32_t *number) {
  int32_t percent = 0;
  for (size_t i = 0; i < value.bytes; i++) {
    if (value.at[i] < '0' || value.at[i] > '9' || percent > 100) return 0;
    percent = percent * 10 + (value.at[i] - '0');
  }
  *number = percent;
  return value.bytes && percent <= 100;
}

static int read_option(mdla_settings *settings, piece key, piece value) {
  if (is_word(key, "preference"))
    return read_word(value, preferences, COUNT(preferences), &settings->preference);
  if (is_word(key, "priority")) return read_word(value, priorities, COUNT(priorities), &settings->priority);
  if (is_word(key, "boost")) return read_percent(value, &settings->boost);
  if (!is_word(key, "compile") || value.bytes >= sizeof settings->compile) return 0;
  memcpy(settings->compile, value.at, value.bytes);
  settings->compile[value.bytes] = 0;
  return 1;
}

static mace_status read_options(mdla_settings *settings, const char *options, mace_text text) {
  while (options && *options) {
    const size_t bytes = strcspn(options, ";");
    if (!strncmp(options, PREFIX, strlen(PREFIX))) {
      const char *key = options + strlen(PREFIX), *const end = options + bytes;
      const char *equals = memchr(key, '=', (size_t)(end - key));
      const piece name = {key, equals ? (size_t)(equals - key) : 0};
      const piece value = {equals ? equals + 1 : end, equals ? (size_t)(end - equals - 1) : 0};
      if (!equals || !read_option(settings, name, value))
        return mace_say(text, MACE_REFUSED,
                        "the option %.*s is unknown; preference, priority, boost, compile are known",
                        (int)(bytes < 60 ? bytes : 60), options);
    }
    options += bytes + (options[bytes] == ';');
  }
  return MACE_OK;
}

/* ---- devices ---- */

static mace_status open_mdla(const mace_config *config, void *memory, mace_device **opened, mace_text text) {
  mace_device *device = memory;
  mace_status status;
  memset(device, 0, sizeof *device);
  device->settings.preference = NEURON_PREFER_FAST_SINGLE_ANSWER;
  device->settings.priority = NEURON_PRIORITY_MEDIUM;
  device->settings.boost = device->power = -1;
  status = read_options(&device->settings, config->options, text);
  /* The libraries are opened by load, because the network says which one it needs. */
  if (!status) *opened = device;
  return status;
}

static void close_mdla(mace_device *device) { mace_mdla_close(&device->library); }

/* Find the device that is an MDLA, so that the adapter cannot take the CPU in its place. Adapters that do not
 * list their devices choose by themselves. */
static const NeuronDevice *find_mdla(const mdla_adapter *adapter, const char **name) {
  uint32_t count = 0;
  if (!adapter->Neuron_getDeviceCount || !adapter->Neuron_getDevice || !adapter->NeuronDevice_getName ||
      !adapter->NeuronCompilation_createForDevices || adapter->Neuron_getDeviceCount(&count))
    return NULL;
  for (uint32_t i = 0; i < count; i++) {
    NeuronDevice *device = NULL;
    if (adapter->Neuron_getDevice(i, &device) || !device || adapter->NeuronDevice_getName(device, name))
      continue;
    if (*name && strstr(*name, "mdla")) return device;
  }
  *name = NULL;
  return NULL;
}

static mace_status open_library(mace_device *device, uint32_t kind, mace_text text) {
  mdla_library *library = &device->library;
  const char *mdla = NULL;
  mace_status status;
  if (kind == MDLA_DLA) {
    status = mace_mdla_open_runtime(library, text);
    if (!status)
      snprintf(device->name, sizeof device->name, "%s, API %d", library->runtime_name,
               library->runtime.NeuronRuntimeV2_run ? 2 : 1);
    return status;
  }
  if (library->adapter_library) return MACE_OK;
  status = mace_mdla_open_adapter(library, text);
  if (status) return status;
  device->mdla = find_mdla(&library->adapter, &mdla);
  snprintf(device->name, sizeof device->name, "%s %d.%d.%d, %s", library->adapter_name,
           library->version.major, library->version.minor, library->version.patch,
           mdla ? mdla : "device of its choice");
  return MACE_OK;
}

static const char *describe(mace_device *device) { return device->name; }

static mace_status set_power(mace_device *device, mace_power level, mace_text text) {
  /* The vendor's scale goes from 0 to 100 and says nothing of what lies between; the steps are ours. */
  static const int32_t boosts[] = {-1, 20, 60, 100};
  (void)text;
  device->power = level <= MACE_POWER_BURST ? boosts[level] : boosts[MACE_POWER_BURST];
  return MACE_OK;
}

/* ---- buffers ---- */

static mace_status import(mace_device *device, const mace_need *need, mace_memory *memory, mace_text text) {
  const mdla_adapter *adapter = &device->library.adapter;
  const mace_buffer *buffer = &memory->buffer;
  NeuronMemory *imported = NULL;
  int code;
  (void)need;
  memset(memory->own, 0, sizeof memory->own);
  if (buffer->kind == MACE_HOST) return MACE_OK;
  if (!device->library.adapter_library) {
    /* The runtime is given the descriptor at each run, and only its version 2 with an offset. */
    if (buffer->kind == MACE_DMABUF && device->library.runtime.NeuronRuntimeV2_run) return MACE_OK;
    return mace_say(text, MACE_REFUSED, "%s imports no such buffer; bind host memory",
                    device->library.runtime_name);
  }
  if (!adapter->NeuronMemory_free || !adapter->NeuronExecution_setInputFromMemory ||
      !adapter->NeuronExecution_setOutputFromMemory ||
      (buffer->kind == MACE_DMABUF ? !adapter->NeuronMemory_createFromFd
                                   : !adapter->NeuronMemory_createFromAHardwareBuffer))
    return mace_say(text, MACE_REFUSED, "%s imports no such buffer; bind host memory",
                    device->library.adapter_name);
  code = buffer->kind == MACE_DMABUF ? adapter->NeuronMemory_createFromFd(buffer->bytes, READ_AND_WRITE,
                                                                          (int)buffer->handle, 0, &imported)
                                     : adapter->NeuronMemory_createFromAHardwareBuffer(
                                           (const void *)(uintptr_t)buffer->handle, &imported);
  if (code || !imported)
    return mace_say(text, code == NEURON_DEAD_OBJECT ? MACE_LOST : MACE_REFUSED,
                    "the buffer cannot be imported, the adapter answered %d; bind host memory", code);
  memory->own[0] = imported;
  return MACE_OK;
}

static void release(mace_device *device, mace_memory *memory) {
  if (memory->own[0]) device->library.adapter.NeuronMemory_free(memory->own[0]);
  memory->own[0] = NULL;
}

/* ---- parts ---- */

static size_t round_up(size_t bytes) {
  return (bytes + sizeof(uint64_t) - 1) / sizeof(uint64_t) * sizeof(uint64_t);
}

/* Operations of a network that nobody has checked yet: no more than its bytes can hold. */
static size_t count_operations(const mace_payload *payload) {
  const mdla_header *header = payload->code;
  const size_t most = payload->code_bytes / sizeof(mdla_operation);
  if (payload->code_bytes < sizeof *header) return 0;
  return header->operations < most ? header->operations : most;
}

static size_t count_bytes(const mace_payload *payload) {
  if (!payload) return sizeof(mace_device);
  return round_up(sizeof(mace_loaded)) + sizeof(IOBuffer) * (size_t)(payload->inputs + payload->outputs) +
         round_up(sizeof(bool) * count_operations(payload));
}

void mace_mdla_forget(mace_loaded *part) {
  const mdla_library *library = &part->device->library;
  if (part->runtime && library->runtime.NeuronRuntimeV2_release)
    library->runtime.NeuronRuntimeV2_release(part->runtime);
  else if (part->runtime)
    library->runtime.NeuronRuntime_release(part->runtime);
  if (part->execution) library->adapter.NeuronExecution_free(part->execution);
  if (part->compilation) library->adapter.NeuronCompilation_free(part->compilation);
  if (part->model) library->adapter.NeuronModel_free(part->model);
  part->runtime = NULL;
  part->execution = NULL;
  part->compilation = NULL;
  part->model = NULL;
}

static mace_status load(mace_device *device, const mace_payload *payload, void *memory, mace_loaded **loaded,
                        mace_text text) {
  mace_loaded *part = memory;
  const char *fault;
  mace_status status;
  memset(part, 0, sizeof *part);
  part->device = device;
  part->payload = payload;
  part->io = (IOBuffer *)(void *)((char *)memory + round_up(sizeof *part));
  part->supported = (bool *)(part->io + payload->inputs + payload->outputs);
  fault = mace_mdla_read(payload->code, payload->code_bytes, &part->network);
  if (!fault && (part->network.header->inputs != (uint32_t)payload->inputs ||
                 part->network.header->outputs != (uint32_t)payload->outputs))
    fault = "it has other ports than the part";
  if (fault)
    return mace_say(text, MACE_STALE, "the network cannot be used: %s; build the library again", fault);
  status = open_library(device, part->network.header->kind, text);
  if (!status) *loaded = part;
  return status;
}

static mace_status compile(mace_loaded *part, mace_text text) {
  const mdla_network *network = &part->network;
  mace_status status;
  switch (network->header->kind) {
    case MDLA_DLA: status = mace_mdla_load_file(part, text); break;
    case MDLA_COMPILED:
      status = mace_mdla_restore(part, network->data, (size_t)network->header->data_bytes, text);
      break;
    default: status = mace_mdla_compile(part, text); break;
  }
  if (status) mace_mdla_forget(part);
  return status;
}

static mace_status restore(mace_loaded *part, const void *compiled, size_t bytes, mace_text text) {
  mace_status status;
  /* save keeps nothing of such networks, and a file of ncc-tflite has opened no adapter. */
  if (part->network.header->kind != MDLA_OPERATIONS) return MACE_STALE;
  status = mace_mdla_restore(part, compiled, bytes, text);
  if (status) mace_mdla_forget(part);
  return status;
}

/* A network that was compiled before it came here is not kept a second time. */
static size_t save(mace_loaded *part, void *compiled, size_t bytes) {
  const mdla_adapter *adapter = &part->device->library.adapter;
  size_t size = 0;
  if (part->network.header->kind != MDLA_OPERATIONS) return 0;
  if (adapter->NeuronCompilation_getCompiledNetworkSize(part->compilation, &size)) return 0;
  if (!size || bytes < size) return size;
  return adapter->NeuronCompilation_storeCompiledNetwork(part->compilation, compiled, size) ? 0 : size;
}

/* The first call behind save, and before any run: from here on an execution may exist. The memory that a port
 * needs is what the build planned, because the adapter converts layouts by itself. */
static mace_status need(mace_loaded *part, int32_t port, mace_need *wanted, mace_text text) {
  (void)port, (void)wanted;
  if (part->runtime || part->execution) return MACE_OK;
  return mace_mdla_prepare(part, text);
}

static mace_status run(mace_loaded *part, const mace_binding *ports, uint32_t timeout_ms, mace_text text) {
  (void)timeout_ms; /* the vendor's functions wait without an end */
  return part->runtime ? mace_mdla_run_file(part, ports, text) : mace_mdla_compute(part, ports, text);
}

const mace_driver mace_mdla_driver = {
    .struct_bytes = sizeof(mace_driver),
    .major = MACE_DRIVER_MAJOR,
    .flags = MACE_ALLOCATES | MACE_UNBOUNDED,
    .name = "mdla",
    .version = "0.1.0",
    .bytes = count_bytes,
    .open = open_mdla,
    .load = load,
    .run = run,
    .unload = mace_mdla_forget,
    .close = close_mdla,
    .describe = describe,
    .need = need,
    .import = import,
    .release = release,
    .power = set_power,
    .compile = compile,
    .restore = restore,
    .save = save,
};
