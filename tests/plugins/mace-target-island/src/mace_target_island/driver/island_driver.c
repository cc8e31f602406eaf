/* The driver of the island: a device that is not there. Its memory lies in blocks of the process's heap, at addresses which no CPU can
 * use, between canaries which every call checks; whoever takes such an address for a pointer crashes, and whoever writes beside a tensor
 * is found.
 *
 * Blocks of 64 bytes are read, the next one early, so that tensors need 64 bytes of the island behind them (the slack of the space).
 *
 * For tests, MACE_ISLAND_FAULT=WHAT[:N] lets the N-th call of a function fail (1 if left out): open, load, allocate, copy, run (half of
 * its kernels have run), lost (the device dies half way through a run). After a loss, a call that touches the device aborts.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "driver.h"

#define GENERATION "island generation 1"
#define MAGIC 0x444E4C49u
#define VERSION 1u
#define ALIGNMENT 256u
#define LANES 16 /* floats that a kernel reads at once: the slack of 64 bytes */
#define BLOCKS 16
#define FIRST_ADDRESS 0x15A0000000000000ull /* no CPU has memory there */
#define STRIDE 0x0000010000000000ull        /* from one block to the next */
#define CANARY 0x5A
#define REDZONE 4096

typedef struct block {
  unsigned char *host; /* redzone, data, redzone; NULL: not in use */
  size_t bytes;
} block;

struct mace_device {
  block blocks[BLOCKS];
  int lost;
  const char *fault; /* what is to fail; "" for nothing */
  int countdown;
};

typedef struct operand {
  int64_t binding, offset;
} operand;

typedef struct call {
  int64_t kernel, count;
  operand result, left, right;
} call;

struct mace_loaded {
  mace_device *device;
  const mace_payload *payload;
  uint32_t calls, bindings;
};

enum { ABS = 1, ADD, MAXIMUM, MINIMUM, MUL, NEG, RELU, SUB };

static mace_status say(mace_text text, mace_status status, const char *what) {
  if (text.at && text.bytes) snprintf(text.at, text.bytes, "%s", what);
  return status;
}

/* Whether this call is the one that a test wants to fail. */
static int fails(mace_device *device, const char *what) {
  return !strcmp(device->fault, what) && --device->countdown == 0;
}

static void alive(const mace_device *device) {
  if (device->lost) {
    fputs("island: called after it was lost\n", stderr);
    abort();
  }
}

/* Whether all bytes around the blocks are as they were. */
static int intact(const mace_device *device) {
  int i, j;
  for (i = 0; i < BLOCKS; i++) {
    const block *b = &device->blocks[i];
    for (j = 0; b->host && j < REDZONE; j++)
      if (b->host[j] != CANARY || b->host[REDZONE + b->bytes + (size_t)j] != CANARY) return 0;
  }
  return 1;
}

/* Bytes of the device's memory at an address; NULL where it has not got that many. */
static unsigned char *reach(const mace_device *device, uint64_t address, size_t bytes) {
  const uint64_t number = (address - FIRST_ADDRESS) / STRIDE, offset = (address - FIRST_ADDRESS) % STRIDE;
  const block *b;
  if (address < FIRST_ADDRESS || number >= BLOCKS) return NULL;
  b = &device->blocks[number];
  if (!b->host || offset > b->bytes || b->bytes - offset < bytes) return NULL;
  return b->host + REDZONE + offset;
}

static size_t bytes(const mace_payload *payload) { return payload ? sizeof(mace_loaded) : sizeof(mace_device); }

static mace_status open_island(const mace_config *config, void *memory, mace_device **opened, mace_text text) {
  const char *fault = getenv("MACE_ISLAND_FAULT"), *colon = fault ? strchr(fault, ':') : NULL;
  static const char *const faults[] = {"open", "load", "allocate", "copy", "run", "lost"};
  mace_device *device = memory;
  size_t i;
  (void)config;
  memset(device, 0, sizeof *device);
  device->fault = "";
  for (i = 0; fault && i < sizeof faults / sizeof *faults; i++)
    if (!strncmp(fault, faults[i], strlen(faults[i]))) device->fault = faults[i];
  device->countdown = colon ? atoi(colon + 1) : 1;
  if (fails(device, "open")) return say(text, MACE_NO_DEVICE, "the island is under water; wait for the tide");
  *opened = device;
  return MACE_OK;
}

static mace_status load(mace_device *device, const mace_payload *payload, void *memory, mace_loaded **loaded, mace_text text) {
  mace_loaded *part = memory;
  uint32_t header[4];
  alive(device);
  if (strcmp(payload->built_for, GENERATION) || fails(device, "load"))
    return say(text, MACE_STALE, "the part was built for another generation of islands than \"" GENERATION "\"; build the library again");
  if (payload->code_bytes < sizeof header) return say(text, MACE_STALE, "the calls are cut short; build the library again");
  memcpy(header, payload->code, sizeof header);
  if (header[0] != MAGIC || header[1] != VERSION || payload->code_bytes != sizeof header + header[2] * sizeof(call))
    return say(text, MACE_STALE, "these are no calls of version 1; build the library again");
  part->device = device;
  part->payload = payload;
  part->calls = header[2];
  part->bindings = header[3];
  *loaded = part;
  return MACE_OK;
}

static void compute(int64_t kernel, int64_t count, float *result, const float *left, const float *right) {
  float x[LANES], y[LANES];
  int64_t i;
  int lane;
  for (i = 0; i < count; i += LANES) {
    memcpy(x, left + i, sizeof x); /* whole, also behind the end */
    if (right) memcpy(y, right + i, sizeof y);
    for (lane = 0; lane < LANES && i + lane < count; lane++) {
      const float a = x[lane], b = right ? y[lane] : 0;
      float r = 0;
      switch (kernel) {
        case ABS: r = __builtin_fabsf(a); break;
        case ADD: r = a + b; break;
        case MAXIMUM: r = a > b || a != a ? a : b; break;
        case MINIMUM: r = a < b || a != a ? a : b; break;
        case MUL: r = a * b; break;
        case NEG: r = -a; break;
        case RELU: r = a > 0 || a != a ? a : 0; break;
        case SUB: r = a - b; break;
      }
      result[i + lane] = r;
    }
  }
}

/* The memory of an operand; NULL where it, or the block behind it which the device fetches early, is not the island's. */
static float *operand_at(const mace_loaded *part, const mace_binding *ports, operand o, int64_t count) {
  const size_t needed = ((size_t)count + LANES) * sizeof(float);
  const mace_buffer *buffer;
  if (o.binding == -1) {
    if ((uint64_t)o.offset + needed > part->payload->weight_bytes) return NULL;
    return (float *)(void *)((char *)(uintptr_t)part->payload->weights + o.offset);
  }
  if (o.binding < 0 || o.binding >= (int64_t)part->bindings) return NULL;
  buffer = &ports[o.binding].memory->buffer;
  if (buffer->host) return NULL;
  return (float *)(void *)reach(part->device, buffer->handle + buffer->offset + ports[o.binding].offset + (uint64_t)o.offset, needed);
}

static mace_status run(mace_loaded *part, const mace_binding *ports, uint32_t timeout_ms, mace_text text) {
  mace_device *device = part->device;
  const char *calls = (const char *)part->payload->code + 4 * sizeof(uint32_t);
  const int failing = fails(device, "run"), dying = fails(device, "lost");
  uint32_t i;
  (void)timeout_ms;
  alive(device);
  for (i = 0; i < part->bindings; i++)
    if ((ports[i].memory->buffer.handle + ports[i].memory->buffer.offset + ports[i].offset) % ALIGNMENT)
      return say(text, MACE_FAILED, "a tensor does not begin at a multiple of 256; report a bug of mace");
  for (i = 0; i < part->calls; i++) {
    const float *left, *right;
    float *result;
    call c;
    if ((failing || dying) && i >= part->calls / 2) break;
    memcpy(&c, calls + i * sizeof c, sizeof c);
    result = operand_at(part, ports, c.result, c.count);
    left = operand_at(part, ports, c.left, c.count);
    right = c.right.binding == -2 ? NULL : operand_at(part, ports, c.right, c.count);
    if (!result || !left || (!right && c.right.binding != -2))
      return say(text, MACE_FAILED, "a tensor lies outside of the island's memory; report a bug of mace");
    compute(c.kernel, c.count, result, left, right);
  }
  if (failing) return say(text, MACE_FAILED, "a kernel stopped half way; run again");
  if (dying) {
    device->lost = 1;
    return say(text, MACE_LOST, "the island sank; open the session again");
  }
  if (!intact(device)) return say(text, MACE_FAILED, "something wrote beside the island's memory; report a bug of mace");
  return MACE_OK;
}

static void unload(mace_loaded *part) { memset(part, 0, sizeof *part); }

static void close_island(mace_device *device) {
  int i;
  for (i = 0; i < BLOCKS; i++)
    if (device->blocks[i].host) {
      fputs("island: closed with memory in use\n", stderr);
      abort();
    }
}

static const char *describe(mace_device *device) {
  (void)device;
  return GENERATION;
}

static mace_status allocate(mace_device *device, const mace_need *need, mace_buffer *buffer, mace_text text) {
  const size_t size = (need->bytes + need->granule - 1) / need->granule * need->granule + need->slack;
  int i = 0;
  alive(device);
  while (i < BLOCKS && device->blocks[i].host) i++;
  if (i == BLOCKS || fails(device, "allocate") || !(device->blocks[i].host = malloc(size + 2 * REDZONE)))
    return say(text, MACE_FAILED, "the island's memory is full; close other sessions");
  memset(device->blocks[i].host, CANARY, size + 2 * REDZONE);
  device->blocks[i].bytes = size;
  memset(buffer, 0, sizeof *buffer);
  buffer->struct_bytes = sizeof *buffer;
  buffer->kind = MACE_BUS_ADDRESS;
  buffer->handle = FIRST_ADDRESS + STRIDE * (uint64_t)i;
  buffer->bytes = size;
  return MACE_OK;
}

static void release_memory(mace_device *device, mace_buffer *buffer) {
  block *b = &device->blocks[(buffer->handle - FIRST_ADDRESS) / STRIDE];
  if (!intact(device)) {
    fputs("island: something wrote beside its memory\n", stderr);
    abort();
  }
  free(b->host);
  b->host = NULL;
}

/* One side of a copy: memory of the CPU, or of the island. */
static unsigned char *side(const mace_device *device, mace_binding binding, size_t size) {
  const mace_buffer *buffer = &binding.memory->buffer;
  if (buffer->host) return (unsigned char *)buffer->host + buffer->offset + binding.offset;
  return reach(device, buffer->handle + buffer->offset + binding.offset, size);
}

static mace_status copy(mace_device *device, mace_binding to, mace_binding from, size_t size, mace_text text) {
  unsigned char *destination = side(device, to, size), *source = side(device, from, size);
  alive(device);
  if (!destination || !source) return say(text, MACE_FAILED, "a copy leaves the island's memory; report a bug of mace");
  if (fails(device, "copy")) return say(text, MACE_FAILED, "the boat did not come through; run again");
  memcpy(destination, source, size);
  return MACE_OK;
}

const mace_driver mace_island_driver = {
    .struct_bytes = sizeof(mace_driver),
    .major = MACE_DRIVER_MAJOR,
    .flags = MACE_ALLOCATES,
    .name = "island",
    .version = "0.1.0",
    .bytes = bytes,
    .open = open_island,
    .load = load,
    .run = run,
    .unload = unload,
    .close = close_island,
    .describe = describe,
    .allocate = allocate,
    .free = release_memory,
    .copy = copy,
};
