/* mdla_file.c - lets the Neuron runtime execute files of ncc-tflite, by version 2 of its functions where the
 * library has them, else by version 1. The file says nothing of types, so only counts and sizes of ports are
 * compared with what the build wrote. */
#include "mdla_part.h"

/* Most requests that wait in the runtime: its header calls this enough in most cases. */
enum { BACKLOG = 2048 };

enum { OUT_OF_MEMORY = 1, BAD_DATA = 4 }; /* of the runtime's answers */

static mace_status judge(const mace_loaded *part, mdla_moment moment, const char *function, int code,
                         mace_text text) {
  const char *remedy = moment == MDLA_RUNNING ? "run again" : "open the session again";
  mace_status status = MACE_FAILED;
  if (code == OUT_OF_MEMORY) {
    remedy = "close other users of the device, and open again";
  } else if (moment != MDLA_RUNNING && code == BAD_DATA) {
    status = MACE_STALE;
    remedy = "build it with the compiler of this version of NeuroPilot";
  }
  return mace_say(text, status, "%s of %s answered %d, for a network of %s; %s", function,
                  part->device->library.runtime_name, code, part->payload->built_by, remedy);
}

#define CALL(moment, function, ...)                                \
  do {                                                             \
    const int code = runtime->function(__VA_ARGS__);               \
    if (code) return judge(part, (moment), #function, code, text); \
  } while (0)

static mace_status measure(const mace_loaded *part, uint64_t port, int is_input, size_t *bytes,
                           mace_text text) {
  const mdla_runtime *runtime = &part->device->library.runtime;
  if (runtime->NeuronRuntimeV2_run) {
    if (is_input)
      CALL(MDLA_OPENING, NeuronRuntimeV2_getInputSize, part->runtime, port, bytes);
    else
      CALL(MDLA_OPENING, NeuronRuntimeV2_getOutputSize, part->runtime, port, bytes);
  } else {
    if (is_input)
      CALL(MDLA_OPENING, NeuronRuntime_getInputSize, part->runtime, port, bytes);
    else
      CALL(MDLA_OPENING, NeuronRuntime_getOutputSize, part->runtime, port, bytes);
  }
  return MACE_OK;
}

static mace_status count_ports(const mace_loaded *part, size_t counts[2], mace_text text) {
  const mdla_runtime *runtime = &part->device->library.runtime;
  if (runtime->NeuronRuntimeV2_run) {
    CALL(MDLA_OPENING, NeuronRuntimeV2_getInputNumber, part->runtime, &counts[0]);
    CALL(MDLA_OPENING, NeuronRuntimeV2_getOutputNumber, part->runtime, &counts[1]);
  } else {
    CALL(MDLA_OPENING, NeuronRuntime_getInputNumber, part->runtime, &counts[0]);
    CALL(MDLA_OPENING, NeuronRuntime_getOutputNumber, part->runtime, &counts[1]);
  }
  return MACE_OK;
}

static mace_status compare_ports(const mace_loaded *part, mace_text text) {
  const mace_payload *payload = part->payload;
  size_t counts[2] = {0, 0};
  mace_status status = count_ports(part, counts, text);
  if (status) return status;
  if (counts[0] != (size_t)payload->inputs || counts[1] != (size_t)payload->outputs)
    return mace_say(text, MACE_STALE,
                    "the network has %zu inputs and %zu outputs, and the build %d and %d; %s", counts[0],
                    counts[1], payload->inputs, payload->outputs, "build it again");
  for (int32_t i = 0; i < payload->inputs + payload->outputs; i++) {
    const int is_input = i < payload->inputs;
    const int32_t port = is_input ? i : i - payload->inputs;
    size_t bytes = 0;
    status = measure(part, (uint64_t)port, is_input, &bytes, text);
    if (status) return status;
    if (bytes != payload->ports[i].bytes)
      return mace_say(
          text, MACE_STALE, "%s %d of the network takes %zu bytes, and the build gives %zu; %s",
          is_input ? "input" : "output", port, bytes, payload->ports[i].bytes, "build it again");
  }
  return MACE_OK;
}

mace_status mace_mdla_load_file(mace_loaded *part, mace_text text) {
  const mdla_runtime *runtime = &part->device->library.runtime;
  const mdla_network *network = &part->network;
  const size_t bytes = (size_t)network->header->data_bytes;
  if (runtime->NeuronRuntimeV2_run) {
    /* One thread, because a session has one run in flight. */
    CALL(MDLA_OPENING, NeuronRuntimeV2_createFromBuffer, network->data, bytes, 1, &part->runtime, BACKLOG);
  } else {
    const EnvOptions options = {ENV_OPTIONS_HARDWARE, {0}};
    CALL(MDLA_OPENING, NeuronRuntime_create, &options, &part->runtime);
    CALL(MDLA_OPENING, NeuronRuntime_loadNetworkFromBuffer, part->runtime, network->data, bytes);
  }
  return compare_ports(part, text);
}

/* What the runtime is told of a port: an address, or a descriptor of a dma-buf. */
static IOBuffer describe_port(const mace_binding *port, size_t bytes) {
  const mace_buffer *buffer = &port->memory->buffer;
  const size_t offset = buffer->offset + port->offset;
  if (buffer->kind == MACE_DMABUF) {
    const IOBuffer shared = {buffer->host, bytes, (int)buffer->handle, (int)offset, 0, 0};
    return shared;
  }
  const IOBuffer plain = {mace_mdla_address(port), bytes, -1, 0, 0, 0};
  return plain;
}

mace_status mace_mdla_run_file(mace_loaded *part, const mace_binding *ports, mace_text text) {
  const mdla_runtime *runtime = &part->device->library.runtime;
  const mace_payload *payload = part->payload;
  const BufferAttribute ordinary = {-1};
  for (int32_t i = 0; i < payload->inputs + payload->outputs; i++) {
    const mace_buffer *buffer = &ports[i].memory->buffer;
    const int is_shared = buffer->kind == MACE_DMABUF && runtime->NeuronRuntimeV2_run;
    if (buffer->kind != MACE_HOST && !is_shared)
      return mace_say(text, MACE_REFUSED, "%s takes no such buffer; bind host memory",
                      part->device->library.runtime_name);
    part->io[i] = describe_port(ports + i, payload->ports[i].bytes);
  }
  if (runtime->NeuronRuntimeV2_run) {
    const SyncInferenceRequest request = {part->io, part->io + payload->inputs};
    CALL(MDLA_RUNNING, NeuronRuntimeV2_run, part->runtime, request);
    return MACE_OK;
  }
  for (int32_t i = 0; i < payload->inputs + payload->outputs; i++) {
    const IOBuffer *io = &part->io[i];
    const int32_t port = i < payload->inputs ? i : i - payload->inputs;
    if (i < payload->inputs)
      CALL(MDLA_RUNNING, NeuronRuntime_setInput, part->runtime, (uint64_t)port, io->buffer, io->length,
           ordinary);
    else
      CALL(MDLA_RUNNING, NeuronRuntime_setOutput, part->runtime, (uint64_t)port, io->buffer, io->length,
           ordinary);
  }
  CALL(MDLA_RUNNING, NeuronRuntime_inference, part->runtime);
  return MACE_OK;
}
