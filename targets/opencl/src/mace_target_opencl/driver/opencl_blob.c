/* opencl_blob.c - finds and checks the tables of a part. The engine compares no digest when it loads a part,
 * so every number is bounded here before the device sees it.
 */
#include "opencl_blob.h"

#include <string.h>

/* A part of the payload that is read from its beginning to its end. */
typedef struct reader {
  const unsigned char *at;
  size_t left;
} reader;

/* The next bytes, with the padding to a multiple of 8 behind them; NULL if there are not so many. */
static const void *take(reader *r, uint64_t bytes) {
  const uint64_t padded = bytes + (8 - bytes % 8) % 8;
  const void *taken = r->at;
  if (bytes > r->left || padded > r->left) return NULL;
  r->at += padded;
  r->left -= (size_t)padded;
  return taken;
}

static int is_text(const char *text, uint32_t bytes) { return bytes && !text[bytes - 1]; }

static const mace_need *need_of(const mace_payload *payload, int32_t binding) {
  const int32_t ports = payload->inputs + payload->outputs;
  return binding < ports ? &payload->ports[binding] : &payload->scratch;
}

static uint64_t count_bytes(const opencl_image *image) {
  return (uint64_t)image->rows * image->columns * image->quads * 4 * image->unit;
}

/* Whether an image lies in the pool as devices want it, or there is none. */
static int is_in_pool(const opencl_header *header, const opencl_image *image) {
  if (!header->pool_bytes) return !image->pitch && !image->offset;
  const uint64_t bytes = (uint64_t)image->rows * image->pitch * 4 * image->unit;
  return image->pitch <= OPENCL_MAX_SIDE && image->pitch >= image->columns * image->quads &&
         image->pitch % OPENCL_PITCH == 0 && image->offset % OPENCL_ORIGIN == 0 &&
         image->offset <= header->pool_bytes && bytes <= header->pool_bytes - image->offset;
}

static const char *check_image(const mace_payload *payload, const opencl_blob *blob, uint32_t number) {
  const opencl_image *const images = blob->images, *const image = &images[number];
  const uint32_t side = OPENCL_MAX_SIDE;
  if (!image->rows || image->rows > side || !image->columns || image->columns > side || !image->quads ||
      image->quads > side / image->columns)
    return "an image has no such size";
  if (image->unit != 2 && image->unit != 4) return "an image has no such elements";
  if (image->is_constant > 1 || image->slot > number || images[image->slot].slot != image->slot ||
      images[image->slot].unit != image->unit)
    return "an image has no place";
  if (image->slot != number && (image->is_constant || images[image->slot].is_constant))
    return "an image shares the place of a constant";
  if (image->is_constant &&
      (image->offset > payload->weight_bytes || count_bytes(image) > payload->weight_bytes - image->offset))
    return "an image leaves its memory";
  return image->is_constant || is_in_pool(blob->header, image) ? NULL : "an image leaves the pool";
}

static const char *check_operand(const mace_payload *payload, const opencl_blob *blob,
                                 const opencl_operand *operand) {
  const opencl_header *const header = blob->header;
  uint64_t room = payload->weight_bytes;
  if (operand->binding == OPENCL_IMAGE) {
    if (operand->offset >= header->images) return "an operand is no image";
    const opencl_image *const image = &blob->images[operand->offset];
    return operand->unit == image->unit && operand->bytes == count_bytes(image) ? NULL
                                                                                : "an operand has another image";
  }
  if (operand->binding == OPENCL_POOL) {
    room = header->pool_bytes;
    if (operand->apart > header->apart_bytes || operand->bytes > header->apart_bytes - operand->apart ||
        operand->apart % 16)
      return "an operand leaves the pool";
  } else if (operand->binding != OPENCL_WEIGHTS) {
    if (operand->binding < 0 || (uint32_t)operand->binding >= header->bindings) return "an operand is no port";
    room = need_of(payload, operand->binding)->bytes;
  }
  if (operand->offset > room || operand->bytes > room - operand->offset)
    return "an operand leaves its memory";
  if (!operand->unit || operand->unit > 16 || operand->unit & (operand->unit - 1) ||
      operand->offset % operand->unit)
    return "an operand has no such elements";
  return NULL;
}

static const char *check_call(const opencl_blob *blob, const opencl_call *call) {
  const opencl_header *const header = blob->header;
  int chosen = 0;
  if (call->kernel >= header->kernels) return "a call has no kernel";
  if (call->reads >= call->operands) return "a call writes nothing";
  if (call->first > header->operands || call->operands > header->operands - call->first ||
      call->operands > OPENCL_OPERANDS)
    return "a call has too many operands";
  for (uint32_t i = call->reads; i < call->operands; i++) {
    const opencl_operand *const operand = &blob->operands[call->first + i];
    if (operand->binding == OPENCL_WEIGHTS ||
        (operand->binding == OPENCL_IMAGE && blob->images[operand->offset].is_constant))
      return "a call writes a constant";
  }
  for (int axis = 0; axis < 3; axis++) {
    if (!call->global[axis] || call->global[axis] > UINT32_MAX || call->local[axis] > UINT32_MAX)
      return "a call has no sizes";
    if (call->local[axis] && call->global[axis] % call->local[axis])
      return "the groups of a call do not divide its work";
    chosen += call->local[axis] != 0;
  }
  return chosen == 0 || chosen == 3 ? NULL : "a call has half of a group";
}

const char *mace_opencl_read(const mace_payload *payload, opencl_blob *blob) {
  reader r = {payload->code, payload->code_bytes};
  const opencl_header *header = take(&r, sizeof *header);
  const char *fault = NULL;
  if (!header || header->magic != OPENCL_MAGIC) return "these are no kernels";
  if (header->version != OPENCL_VERSION) return "they have another version";
  if (header->flags & ~(uint32_t)OPENCL_FLAGS) return "they need what this driver does not know";
  blob->header = header;
  blob->calls = take(&r, (uint64_t)header->calls * sizeof *blob->calls);
  blob->operands = take(&r, (uint64_t)header->operands * sizeof *blob->operands);
  blob->images = take(&r, (uint64_t)header->images * sizeof *blob->images);
  blob->name_offsets = take(&r, (uint64_t)header->kernels * sizeof *blob->name_offsets);
  blob->labels = NULL;
  if (header->flags & OPENCL_CHECKED) {
    blob->labels = take(&r, (uint64_t)header->operands * sizeof *blob->labels);
    if (!blob->labels) return "they are cut short";
  }
  blob->names = take(&r, header->name_bytes);
  blob->options = take(&r, header->option_bytes);
  blob->deflated = take(&r, header->deflated_bytes);
  if (!blob->calls || !blob->operands || !blob->images || !blob->name_offsets || !blob->names || !blob->options ||
      !blob->deflated || r.left)
    return "they are cut short";
  if (header->bindings !=
      (uint32_t)payload->inputs + (uint32_t)payload->outputs + (payload->scratch.bytes ? 1u : 0u))
    return "they have other ports than the part";
  if (!is_text(blob->options, header->option_bytes) ||
      (header->kernels && !is_text(blob->names, header->name_bytes)))
    return "a text has no end";
  for (uint32_t i = 0; i < header->kernels; i++)
    if (blob->name_offsets[i] >= header->name_bytes) return "a kernel has no name";
  for (uint32_t i = 0; blob->labels && i < header->operands; i++)
    if (blob->labels[i] >= header->name_bytes || !is_text(blob->names, header->name_bytes))
      return "an operand has no name";
  for (uint32_t i = 0; !fault && i < header->images; i++) fault = check_image(payload, blob, i);
  for (uint32_t i = 0; !fault && i < header->operands; i++)
    fault = check_operand(payload, blob, &blob->operands[i]);
  for (uint32_t i = 0; !fault && i < header->calls; i++) fault = check_call(blob, &blob->calls[i]);
  return fault;
}

/* What a table has, no more than the payload can hold. */
static uint32_t limit_count(const mace_payload *payload, uint32_t count, size_t bytes) {
  const size_t most = payload->code_bytes / bytes;
  return count < most ? count : (uint32_t)most;
}

uint32_t mace_opencl_count_calls(const mace_payload *payload) {
  opencl_header header;
  if (payload->code_bytes < sizeof header) return 0;
  memcpy(&header, payload->code, sizeof header);
  return limit_count(payload, header.calls, sizeof(opencl_call));
}

uint32_t mace_opencl_count_images(const mace_payload *payload) {
  opencl_header header;
  if (payload->code_bytes < sizeof header) return 0;
  memcpy(&header, payload->code, sizeof header);
  return limit_count(payload, header.images, sizeof(opencl_image));
}
