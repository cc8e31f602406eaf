/* mdla_adapter.c - lets the Neuron adapter compile and run networks.
 *
 * Order of calls, as NeuronAdapter.h states it: a model is created, gets operands, operations, inputs and
 * outputs, and is finished; a compilation is created for it, configured and finished; only before the first
 * execution exists can the compiled network be stored.
 */
#include "mdla_part.h"

#include <stdio.h>
#include <string.h>

#define CALL(moment, function, ...)                                          \
  do {                                                                       \
    const int code = adapter->function(__VA_ARGS__);                         \
    if (code) return mace_mdla_judge(part, (moment), #function, code, text); \
  } while (0)

static const char *name_code(int code) {
  static const char *const names[] = {"no error",
                                      "out of memory",
                                      "incomplete",
                                      "unexpected null",
                                      "bad data",
                                      "operation failed",
                                      "unmappable memory",
                                      "bad state",
                                      "bad version",
                                      "an output is too small",
                                      "the device is unavailable",
                                      "a deadline was missed",
                                      "a deadline cannot be met",
                                      "resources are exhausted for now",
                                      "resources are exhausted",
                                      "the device is dead"};
  return code >= 0 && code < (int)(sizeof names / sizeof *names) ? names[code] : "a code without a name";
}

mace_status mace_mdla_judge(const mace_loaded *part, mdla_moment moment, const char *function, int code,
                            mace_text text) {
  const char *const built_by = part->payload->built_by;
  const char *remedy = moment == MDLA_RUNNING ? "run again" : "open the session again";
  mace_status status = MACE_FAILED;
  switch (code) {
    case NEURON_OUT_OF_MEMORY:
    case NEURON_RESOURCE_EXHAUSTED_TRANSIENT:
    case NEURON_RESOURCE_EXHAUSTED_PERSISTENT:
      remedy = "close other users of the device, and open again";
      break;
    case NEURON_DEAD_OBJECT: status = MACE_LOST, remedy = "open the session again"; break;
    case NEURON_UNAVAILABLE_DEVICE:
      status = moment == MDLA_RUNNING ? MACE_LOST : MACE_NO_DEVICE;
      remedy = "look into the system's log for the APU";
      break;
    case NEURON_MISSED_DEADLINE_TRANSIENT:
    case NEURON_MISSED_DEADLINE_PERSISTENT: status = MACE_TIMEOUT; break;
    case NEURON_BAD_VERSION:
    case NEURON_BAD_DATA:
    case NEURON_OP_FAILED:
    case NEURON_UNMAPPABLE:
    case NEURON_UNEXPECTED_NULL:
    case NEURON_BAD_STATE:
    case NEURON_INCOMPLETE:
      if (moment == MDLA_RUNNING) break;
      status = MACE_STALE;
      remedy = moment == MDLA_RESTORING ? "build it with the compiler of this version of NeuroPilot"
                                        : "build for this SoC's generation of MDLA";
      break;
    default: break;
  }
  return mace_say(text, status, "%s answered %d (%s), for a network of %s; %s", function, code,
                  name_code(code), built_by, remedy);
}

static mace_status add_operands(mace_loaded *part, mace_text text) {
  const mdla_adapter *adapter = &part->device->library.adapter;
  const mdla_network *network = &part->network;
  for (uint32_t i = 0; i < network->header->operands; i++) {
    const mdla_operand *operand = &network->operands[i];
    const NeuronOperandType type = {operand->type, operand->rank,
                                    operand->rank ? network->words + operand->shape : NULL, operand->scale,
                                    operand->zero_point};
    CALL(MDLA_OPENING, NeuronModel_addOperand, part->model, &type);
    if (operand->scale_count) {
      const void *scales = network->words + operand->scales;
      const NeuronSymmPerChannelQuantParams channels = {operand->axis, operand->scale_count, scales};
      CALL(MDLA_OPENING, NeuronModel_setOperandSymmPerChannelQuantParams, part->model, (int32_t)i, &channels);
    }
    if (operand->bytes)
      CALL(MDLA_OPENING, NeuronModel_setOperandValue, part->model, (int32_t)i,
           network->data + operand->offset, (size_t)operand->bytes);
  }
  return MACE_OK;
}

static mace_status add_operations(mace_loaded *part, mace_text text) {
  const mdla_adapter *adapter = &part->device->library.adapter;
  const mdla_network *network = &part->network;
  for (uint32_t i = 0; i < network->header->operations; i++) {
    const mdla_operation *operation = &network->operations[i];
    CALL(MDLA_OPENING, NeuronModel_addOperation, part->model, operation->code, operation->input_count,
         network->words + operation->inputs, operation->output_count, network->words + operation->outputs);
  }
  return MACE_OK;
}

/* Refuse a network that the device would compute in part: what it does not support, the adapter may give to
 * the CPU without a word. */
static mace_status check_support(mace_loaded *part, mace_text text) {
  const mdla_library *library = &part->device->library;
  const mdla_adapter *adapter = &library->adapter;
  const mdla_network *network = &part->network;
  const uint32_t count = network->header->operations;
  for (uint32_t i = 0; i < count; i++) part->supported[i] = false;
  CALL(MDLA_OPENING, NeuronModel_getSupportedOperations, part->model, part->supported, count);
  for (uint32_t i = 0; i < count; i++)
    if (!part->supported[i])
      return mace_say(text, MACE_STALE,
                      "%s %d.%d.%d does not support %s, operation %u of %u; build for this SoC",
                      library->adapter_name, library->version.major, library->version.minor,
                      library->version.patch, network->data + network->operations[i].name, i + 1, count);
  return MACE_OK;
}

static mace_status create_compilation(mace_loaded *part, mace_text text) {
  const mace_device *device = part->device;
  const mdla_adapter *adapter = &device->library.adapter;
  const char *options = device->settings.compile;
  if (*options && adapter->NeuronCompilation_createWithOptions)
    CALL(MDLA_OPENING, NeuronCompilation_createWithOptions, part->model, &part->compilation, options);
  else if (device->mdla)
    CALL(MDLA_OPENING, NeuronCompilation_createForDevices, part->model, &device->mdla, 1, &part->compilation);
  else
    CALL(MDLA_OPENING, NeuronCompilation_create, part->model, &part->compilation);
  if (!*options || adapter->NeuronCompilation_createWithOptions) return MACE_OK;
  if (!adapter->NeuronCompilation_setOptimizationString)
    return mace_say(text, MACE_REFUSED, "%s takes no options of its compiler; leave mdla.compile out",
                    device->library.adapter_name);
  CALL(MDLA_OPENING, NeuronCompilation_setOptimizationString, part->compilation, options);
  return MACE_OK;
}

mace_status mace_mdla_compile(mace_loaded *part, mace_text text) {
  const mdla_adapter *adapter = &part->device->library.adapter;
  const mdla_header *header = part->network.header;
  const uint32_t *ports = part->network.words;
  mace_status status;
  CALL(MDLA_OPENING, NeuronModel_create, &part->model);
  status = add_operands(part, text);
  if (!status) status = add_operations(part, text);
  if (status) return status;
  CALL(MDLA_OPENING, NeuronModel_identifyInputsAndOutputs, part->model, header->inputs, ports,
       header->outputs, ports + header->inputs);
  CALL(MDLA_OPENING, NeuronModel_relaxComputationFloat32toFloat16, part->model,
       (header->flags & MDLA_RELAX_FLOAT) != 0);
  CALL(MDLA_OPENING, NeuronModel_finish, part->model);
  status = check_support(part, text);
  if (!status) status = create_compilation(part, text);
  if (status) return status;
  CALL(MDLA_OPENING, NeuronCompilation_setPreference, part->compilation, part->device->settings.preference);
  CALL(MDLA_OPENING, NeuronCompilation_setPriority, part->compilation, part->device->settings.priority);
  CALL(MDLA_OPENING, NeuronCompilation_finish, part->compilation);
  return MACE_OK;
}

mace_status mace_mdla_restore(mace_loaded *part, const void *compiled, size_t bytes, mace_text text) {
  const mdla_adapter *adapter = &part->device->library.adapter;
  CALL(MDLA_RESTORING, NeuronModel_restoreFromCompiledNetwork, &part->model, &part->compilation, compiled,
       bytes);
  return MACE_OK;
}

mace_status mace_mdla_prepare(mace_loaded *part, mace_text text) {
  const mdla_adapter *adapter = &part->device->library.adapter;
  CALL(MDLA_OPENING, NeuronExecution_create, part->compilation, &part->execution);
  return MACE_OK;
}

static mace_status set_port(mace_loaded *part, const mace_binding *port, int32_t number, mace_text text) {
  const mdla_adapter *adapter = &part->device->library.adapter;
  const NeuronMemory *imported = port->memory->own[0];
  const mace_payload *payload = part->payload;
  const size_t bytes = payload->ports[number].bytes;
  const int is_input = number < payload->inputs;
  const int32_t index = is_input ? number : number - payload->inputs;
  if (imported) {
    const size_t offset = port->memory->buffer.offset + port->offset;
    if (is_input)
      CALL(MDLA_RUNNING, NeuronExecution_setInputFromMemory, part->execution, (uint32_t)index, NULL, imported,
           offset, bytes);
    else
      CALL(MDLA_RUNNING, NeuronExecution_setOutputFromMemory, part->execution, (uint32_t)index, NULL,
           imported, offset, bytes);
    return MACE_OK;
  }
  if (is_input)
    CALL(MDLA_RUNNING, NeuronExecution_setInput, part->execution, index, NULL, mace_mdla_address(port),
         bytes);
  else
    CALL(MDLA_RUNNING, NeuronExecution_setOutput, part->execution, index, NULL, mace_mdla_address(port),
         bytes);
  return MACE_OK;
}

mace_status mace_mdla_compute(mace_loaded *part, const mace_binding *ports, mace_text text) {
  const mace_device *device = part->device;
  const mdla_adapter *adapter = &device->library.adapter;
  const int32_t boost = device->settings.boost >= 0 ? device->settings.boost : device->power;
  mace_status status = MACE_OK;
  for (int32_t i = 0; !status && i < part->payload->inputs + part->payload->outputs; i++)
    status = set_port(part, ports + i, i, text);
  if (status) return status;
  if (boost >= 0 && adapter->NeuronExecution_setBoostHint)
    CALL(MDLA_RUNNING, NeuronExecution_setBoostHint, part->execution, (uint8_t)boost);
  CALL(MDLA_RUNNING, NeuronExecution_compute, part->execution);
  return MACE_OK;
}
