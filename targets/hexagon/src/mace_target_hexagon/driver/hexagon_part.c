/* hexagon_part.c - a region on the DSP: its header, and the remote calls that load, compute and unload it.
 *
 * Arguments are packed as the vendor's compiler qaic packs sequences of octets: the lengths of all sequences
 * stand in the first input, in the order of the parameters, and each sequence is an argument of its own.
 * Tensors in memory that is shared with the DSP are passed by their addresses in it; FastRPC copies nothing.
 */
#include <string.h>

#include "hexagon_part.h"

/* Sizes of tensors and lengths of sequences have 31 bits in the vendor's interface. */
enum { MAX_TENSOR = 0x7fffffff };

/* ---- header ---- */

static int is_name(const char *name, size_t bytes) {
  for (size_t i = 0; i < bytes; i++) {
    const char c = name[i];
    if (!((c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_')) return 0;
  }
  return bytes > 0 && bytes <= HEXAGON_MAX_MODULE;
}

const char *mace_hexagon_read_part(mace_loaded *part, const mace_payload *payload) {
  const hexagon_header *header = payload->code;
  const size_t ports = (size_t)payload->inputs + (size_t)payload->outputs;
  const size_t before = sizeof *header + ports * sizeof(uint32_t);
  if (payload->code_bytes < sizeof *header || header->magic != HEXAGON_MAGIC)
    return "it is no part for a DSP";
  if (header->inputs != (uint32_t)payload->inputs || header->outputs != (uint32_t)payload->outputs ||
      header->inputs >= HEXAGON_MAX_BUFFERS || header->outputs >= HEXAGON_MAX_BUFFERS)
    return "it has other ports than the model";
  if (payload->code_bytes < before || header->module_bytes > payload->code_bytes - before)
    return "it is cut short";
  part->header = header;
  part->sizes = (const uint32_t *)(const void *)(header + 1);
  if (!is_name((const char *)(part->sizes + ports), header->module_bytes))
    return "the name of its DSP library is none";
  for (size_t i = 0; i < ports; i++)
    if (part->sizes[i] > MAX_TENSOR || part->sizes[i] > payload->ports[i].bytes)
      return "a tensor is larger than its port";
  return NULL;
}

/* ---- loading ---- */

/* Bytes of the words and arguments of a call with all ports. */
size_t mace_hexagon_count_bytes(const mace_payload *payload) {
  size_t ports;
  if (!payload) return sizeof(mace_device);
  ports = (size_t)payload->inputs + (size_t)payload->outputs;
  return sizeof(mace_loaded) + (ports + 1) * (sizeof(remote_arg) + sizeof(uint64_t));
}

static mace_status load_region(mace_loaded *part, mace_text text) {
  mace_device *device = part->device;
  hexagon_load_inputs in = {HEXAGON_DIGEST_BYTES, device->settings.threads, device->settings.vtcm};
  hexagon_load_outputs out = {0, 0, 0, 0, 0};
  remote_arg arguments[3];
  int code;
  arguments[0].buf.pv = &in;
  arguments[0].buf.nLen = sizeof in;
  arguments[1].buf.pv = (void *)(uintptr_t)part->header->digest;
  arguments[1].buf.nLen = HEXAGON_DIGEST_BYTES;
  arguments[2].buf.pv = &out;
  arguments[2].buf.nLen = sizeof out;
  code = mace_hexagon_call(device, HEXAGON_SCALARS(HEXAGON_LOAD, 2, 1, 0, 0), arguments);
  if (code) return mace_hexagon_judge(device, "load", code, text);
  part->method = out.method;
  part->is_loaded = 1;
  mace_hexagon_describe(device, &out);
  if (part->method >= HEXAGON_FIRST_REGION && part->method <= INT32_MAX) return MACE_OK;
  return mace_say(text, MACE_STALE, "lib%s_skel.so names method %u for a region; build it again",
                  device->module, part->method);
}

mace_status mace_hexagon_load(mace_device *device, const mace_payload *payload, void *memory,
                              mace_loaded **loaded, mace_text text) {
  mace_loaded *part = memory;
  char module[HEXAGON_MAX_MODULE + 1];
  const char *fault;
  size_t ports;
  mace_status status;
  memset(part, 0, sizeof *part);
  part->device = device;
  part->payload = payload;
  fault = mace_hexagon_read_part(part, payload);
  if (fault)
    return mace_say(text, MACE_STALE, "the part cannot be used: %s; build the library again", fault);
  ports = (size_t)payload->inputs + (size_t)payload->outputs;
  part->lengths = (uint32_t *)(void *)(part->arguments + ports + 1);
  memcpy(module, part->sizes + ports, part->header->module_bytes);
  module[part->header->module_bytes] = 0;
  status = mace_hexagon_open_module(device, module, text);
  if (!status) status = load_region(part, text);
  if (status) mace_hexagon_unload(part);
  if (!status) *loaded = part;
  return status;
}

void mace_hexagon_unload(mace_loaded *part) {
  uint32_t method = part->method;
  remote_arg argument;
  argument.buf.pv = &method;
  argument.buf.nLen = sizeof method;
  /* No answer is waited for of a process that died: closing its handle gives everything back. */
  if (part->is_loaded && !part->device->is_lost)
    mace_hexagon_call(part->device, HEXAGON_SCALARS(HEXAGON_UNLOAD, 1, 0, 0, 0), &argument);
  part->is_loaded = 0;
}

/* ---- running ---- */

/* Map shared memory into the process on the DSP, once; without that FastRPC maps it for each call anew. */
static mace_status map_memory(mace_device *device, mace_memory *memory, mace_text text) {
  const mace_buffer *buffer = &memory->buffer;
  const hexagon_library *library = &device->library;
  int code;
  if (memory->own[0] || buffer->kind != MACE_RPCMEM || !library->fastrpc_mmap || !library->fastrpc_munmap)
    return MACE_OK;
  code = library->fastrpc_mmap(HEXAGON_CDSP, (int)buffer->handle, buffer->host, 0, buffer->bytes,
                               HEXAGON_MAP_STATIC);
  if (mace_hexagon_note(device, code)) return mace_hexagon_judge(device, "fastrpc_mmap", code, text);
  memory->own[0] = buffer->host;
  return MACE_OK;
}

/* Fill in the arguments of the call; returns its scalars. */
static uint32_t pack(mace_loaded *part, const mace_binding *ports) {
  const uint32_t inputs = part->header->inputs, outputs = part->header->outputs;
  uint32_t words = 0;
  if (part->method >= HEXAGON_FAR_METHOD) part->lengths[words++] = part->method;
  for (uint32_t i = 0; i < inputs + outputs; i++) {
    const mace_buffer *buffer = &ports[i].memory->buffer;
    part->arguments[i + 1].buf.pv = (char *)buffer->host + buffer->offset + ports[i].offset;
    part->arguments[i + 1].buf.nLen = part->sizes[i];
    part->lengths[words++] = part->sizes[i];
  }
  part->arguments[0].buf.pv = part->lengths;
  part->arguments[0].buf.nLen = words * sizeof *part->lengths;
  return HEXAGON_SCALARS(part->method, inputs + 1, outputs, 0, 0);
}

mace_status mace_hexagon_run(mace_loaded *part, const mace_binding *ports, uint32_t timeout_ms,
                             mace_text text) {
  mace_device *device = part->device;
  const uint32_t limit = timeout_ms ? timeout_ms : device->timeout_ms;
  const uint32_t count = part->header->inputs + part->header->outputs;
  mace_status status = MACE_OK;
  int code, has_fired;
  for (uint32_t i = 0; !status && i < count; i++) status = map_memory(device, ports[i].memory, text);
  if (status) return status;
  mace_hexagon_arm(&device->watchdog, limit);
  code = mace_hexagon_call(device, pack(part, ports), part->arguments);
  has_fired = mace_hexagon_disarm(&device->watchdog);
  if (has_fired) {
    device->is_lost = 1;
    return mace_say(text, MACE_LOST,
                    "the DSP did not answer in %u ms, and its process was killed; open the session "
                    "again, with a larger mace_config.timeout_ms",
                    (unsigned)limit);
  }
  return code ? mace_hexagon_judge(device, "the region", code, text) : MACE_OK;
}
