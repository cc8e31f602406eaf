/* The driver of Ethos-U: hands each part to the vendor's driver (ethosu_driver.h of Arm's core driver), which
 * the application links and initializes with ethosu_init. Its functions are found by name: without them the
 * library links all the same, and a session says that there is no device.
 *
 * payload.py states the form of a part. Its inputs and results lie inside the arena of the network, so they
 * are copied there and back. The base addresses of a run are those of the constants, of the arena, and of the
 * faster memory that some accelerators keep a part of it in; the vendor's driver puts its own memory in place
 * of the last, if ethosu_init was given one.
 */
#include <stdbool.h>
#include <stdint.h>

#include "driver.h"

/* Compilers without a C library have no string.h, and know these. */
#define memcmp __builtin_memcmp
#define memcpy __builtin_memcpy
#define memset __builtin_memset

#define MAGIC 0x3155454Du /* "MEU1" */
#define VERSION 1u
#define HEADER_WORDS 7u
#define MAX_REGIONS 8u
#define ALIGNMENT 16u /* of the payload and of base addresses; ethosu_invoke_v3 refuses others */
#define FAST_ALIGNMENT 64u /* mace_core.part.HOST: where payload.py lets the fast memory begin */

enum { UNUSED, WEIGHTS, SCRATCH, FAST };
enum { AT_MAGIC, AT_VERSION, AT_SIZE, AT_START, AT_STREAM, AT_REGIONS, AT_PORTS };

struct ethosu_driver;
struct mace_ethosu_version { /* struct ethosu_driver_version of the vendor */
  uint8_t major, minor, patch;
};

/* Weak: their addresses are NULL where the application has no driver of the vendor. */
#define VENDOR __attribute__((weak))
struct ethosu_driver *ethosu_reserve_driver(void) VENDOR;
void ethosu_release_driver(struct ethosu_driver *) VENDOR;
int ethosu_invoke_v3(struct ethosu_driver *, const void *payload, int payload_bytes, uint64_t *base_addresses,
                     const size_t *base_sizes, int bases, void *user) VENDOR;
void ethosu_get_driver_version(struct mace_ethosu_version *) VENDOR;
/* Of newer drivers. wait answers 0 for a run that has ended, 1 for one that goes on, less for a failure. */
int ethosu_invoke_async(struct ethosu_driver *, const void *payload, int payload_bytes,
                        uint64_t *base_addresses, const size_t *base_sizes, int bases, void *user) VENDOR;
int ethosu_wait(struct ethosu_driver *, bool block) VENDOR;

struct mace_device {
  char name[40];
};

struct mace_loaded {
  const unsigned char *code;
  const void *weights;
  const char *built_for;
  uint32_t inputs, outputs;
  /* Of a run in flight; npu is NULL without one. The vendor's driver reads the addresses until it ends. */
  struct ethosu_driver *npu;
  const mace_binding *ports;
  uint64_t bases[MAX_REGIONS];
  size_t sizes[MAX_REGIONS];
};

/* Append words to a text; what does not fit is cut off. */
static void append(mace_text text, const char *words) {
  size_t used;
  if (!text.at || !text.bytes) return;
  for (used = 0; used + 1 < text.bytes && text.at[used]; used++)
    ;
  while (used + 1 < text.bytes && *words) text.at[used++] = *words++;
  text.at[used] = 0;
}

static mace_status say(mace_text text, mace_status status, const char *what, const char *subject,
                       const char *remedy) {
  if (text.at && text.bytes) text.at[0] = 0;
  append(text, what);
  append(text, subject);
  append(text, "; ");
  append(text, remedy);
  return status;
}

/* A number of the part; bytes are put together, because the processor may have another order. */
static uint32_t word(const unsigned char *code, uint32_t index) {
  const unsigned char *at = code + 4 * (size_t)index;
  return (uint32_t)at[0] | (uint32_t)at[1] << 8 | (uint32_t)at[2] << 16 | (uint32_t)at[3] << 24;
}

static uint32_t region_kind(const unsigned char *code, uint32_t region) {
  return word(code, HEADER_WORDS + 2 * region);
}

static uint32_t region_bytes(const unsigned char *code, uint32_t region) {
  return word(code, HEADER_WORDS + 2 * region + 1);
}

/* Number `field` of a port: its region, its offset there, its bytes. */
static uint32_t port_word(const unsigned char *code, uint32_t port, uint32_t field) {
  return word(code, HEADER_WORDS + 2 * word(code, AT_REGIONS) + 3 * port + field);
}

static size_t bytes(const mace_payload *payload) {
  return payload ? sizeof(mace_loaded) : sizeof(mace_device);
}

static char *put_number(char *at, unsigned number) {
  char digits[3];
  int count = 0;
  do digits[count++] = (char)('0' + number % 10);
  while (number /= 10);
  while (count) *at++ = digits[--count];
  return at;
}

static mace_status open_device(const mace_config *config, void *memory, mace_device **opened,
                               mace_text text) {
  struct mace_ethosu_version version = {0, 0, 0};
  mace_device *device = memory;
  char *at;
  (void)config;
  if (!ethosu_invoke_v3 || !ethosu_reserve_driver || !ethosu_release_driver)
    return say(text, MACE_NO_DEVICE, "the application has no Ethos-U driver: ethosu_invoke_v3", " is missing",
               "link Arm's core driver and call ethosu_init before");
  memset(device, 0, sizeof *device);
  memcpy(device->name, "Ethos-U", 7);
  if (ethosu_get_driver_version) {
    ethosu_get_driver_version(&version);
    at = device->name + 7;
    memcpy(at, ", driver ", 9);
    at = put_number(at + 9, version.major);
    *at++ = '.';
    at = put_number(at, version.minor);
    *at++ = '.';
    put_number(at, version.patch);
  }
  *opened = device;
  return MACE_OK;
}

/* Whether the tables of a part lie inside it and name only memory that the part has. */
static int is_whole(const mace_payload *payload) {
  const unsigned char *code = payload->code;
  uint32_t regions, ports, start, i, kinds = 0;
  if (payload->code_bytes < 4 * HEADER_WORDS || word(code, AT_SIZE) != payload->code_bytes) return 0;
  regions = word(code, AT_REGIONS), ports = word(code, AT_PORTS), start = word(code, AT_START);
  if (regions > MAX_REGIONS || ports != (uint32_t)payload->inputs + (uint32_t)payload->outputs) return 0;
  if (start % ALIGNMENT || start < 4 * (HEADER_WORDS + 2 * regions) || start > payload->code_bytes) return 0;
  if (ports > (start - 4 * (HEADER_WORDS + 2 * regions)) / 12) return 0;
  if (word(code, AT_STREAM) != payload->code_bytes - start || word(code, AT_STREAM) < 4) return 0;
  if (memcmp(code + start, "COP1", 4)) return 0;
  for (i = 0; i < regions; i++) {
    /* One region of each kind: two arenas would lie in the same memory, of which one is too short. */
    if (region_kind(code, i) > FAST || (region_kind(code, i) && kinds >> region_kind(code, i) & 1)) return 0;
    kinds |= 1u << region_kind(code, i);
    if (region_kind(code, i) == WEIGHTS && region_bytes(code, i) != payload->weight_bytes) return 0;
  }
  for (i = 0; i < ports; i++) {
    const uint32_t region = port_word(code, i, 0), offset = port_word(code, i, 1);
    const uint32_t size = port_word(code, i, 2);
    /* Not in fast memory: the vendor's driver may put its own there, behind the back of the copies in run. */
    if (region >= regions || region_kind(code, region) != SCRATCH) return 0;
    if (offset > region_bytes(code, region) || size > region_bytes(code, region) - offset) return 0;
    if (size != payload->ports[i].bytes) return 0;
  }
  return 1;
}

/* Bytes of scratch memory that the regions of a part take, as payload.py counts them. */
static size_t scratch_bytes(const unsigned char *code) {
  size_t arena = 0, fast = 0;
  uint32_t i;
  for (i = 0; i < word(code, AT_REGIONS); i++) {
    if (region_kind(code, i) == SCRATCH) arena = region_bytes(code, i);
    if (region_kind(code, i) == FAST) fast = region_bytes(code, i);
  }
  return fast ? (arena + FAST_ALIGNMENT - 1) / FAST_ALIGNMENT * FAST_ALIGNMENT + fast : arena;
}

static mace_status load(mace_device *device, const mace_payload *payload, void *memory, mace_loaded **loaded,
                        mace_text text) {
  const unsigned char *code = payload->code;
  mace_loaded *part = memory;
  (void)device;
  if (payload->code_bytes < 8 || word(code, AT_MAGIC) != MAGIC || word(code, AT_VERSION) != VERSION)
    return say(text, MACE_STALE, "the part has another form than this driver reads, built by ",
               payload->built_by, "build the library again");
  if (!is_whole(payload) || scratch_bytes(code) > payload->scratch.bytes)
    return say(text, MACE_STALE, "the part is damaged, built by ", payload->built_by,
               "build the library again");
  if ((uintptr_t)(code + word(code, AT_START)) % ALIGNMENT || (uintptr_t)payload->weights % ALIGNMENT)
    return say(text, MACE_REFUSED, "the part does not lie at a multiple of 16 bytes,", " as the NPU needs",
               "place the library's constants at such addresses");
  memset(part, 0, sizeof *part);
  part->code = code;
  part->weights = payload->weights;
  part->built_for = payload->built_for;
  part->inputs = (uint32_t)payload->inputs;
  part->outputs = (uint32_t)payload->outputs;
  *loaded = part;
  return MACE_OK;
}

static char *address(const mace_binding *binding) {
  return (char *)binding->memory->buffer.host + binding->memory->buffer.offset + binding->offset;
}

/* Fill the base addresses of all regions. */
static void place_regions(mace_loaded *part, char *scratch) {
  size_t arena = 0;
  uint32_t i;
  for (i = 0; i < word(part->code, AT_REGIONS); i++)
    if (region_kind(part->code, i) == SCRATCH) arena = region_bytes(part->code, i);
  arena = (arena + FAST_ALIGNMENT - 1) / FAST_ALIGNMENT * FAST_ALIGNMENT;
  for (i = 0; i < word(part->code, AT_REGIONS); i++) {
    const uint32_t kind = region_kind(part->code, i);
    part->sizes[i] = kind == UNUSED ? 0 : region_bytes(part->code, i);
    part->bases[i] = kind == WEIGHTS   ? (uint64_t)(uintptr_t)part->weights
                     : kind == SCRATCH ? (uint64_t)(uintptr_t)scratch
                     : kind == FAST    ? (uint64_t)(uintptr_t)(scratch + arena)
                                       : 0;
  }
}

static char *arena_address(const mace_loaded *part, uint32_t port) {
  return (char *)(uintptr_t)part->bases[port_word(part->code, port, 0)] + port_word(part->code, port, 1);
}

/* Reserve an NPU, which waits until no other session computes on it, and copy the inputs into the arena. */
static void prepare(mace_loaded *part, const mace_binding *ports) {
  uint32_t i;
  part->ports = ports;
  /* The scratch memory comes behind all ports. */
  place_regions(part, address(ports + part->inputs + part->outputs));
  part->npu = ethosu_reserve_driver();
  for (i = 0; i < part->inputs; i++)
    memcpy(arena_address(part, i), address(ports + i), port_word(part->code, i, 2));
}

/* End a run with the answer of the vendor's driver: copy the results, and release the NPU. */
static mace_status finish(mace_loaded *part, int answer, mace_text text) {
  struct ethosu_driver *npu = part->npu;
  uint32_t i;
  if (!answer)
    for (i = part->inputs; i < part->inputs + part->outputs; i++)
      memcpy(address(part->ports + i), arena_address(part, i), port_word(part->code, i, 2));
  ethosu_release_driver(npu);
  part->npu = NULL;
  if (!answer) return MACE_OK;
  if (!npu)
    return say(text, MACE_NO_DEVICE, "the vendor's driver has no NPU for ", part->built_for,
               "call ethosu_init for this accelerator before");
  return say(text, MACE_FAILED, "the vendor's driver fails to run a part built for ", part->built_for,
             "check that the NPU has this configuration; the vendor's log says more");
}

static mace_status run(mace_loaded *part, const mace_binding *ports, uint32_t timeout_ms, mace_text text) {
  const unsigned char *code = part->code;
  (void)timeout_ms; /* sessions with one are refused: MACE_UNBOUNDED */
  prepare(part, ports);
  return finish(part,
                ethosu_invoke_v3(part->npu, code + word(code, AT_START), (int)word(code, AT_STREAM),
                                 part->bases, part->sizes, (int)word(code, AT_REGIONS), NULL),
                text);
}

/* Start a run; with a driver of the vendor that cannot, it has ended when this returns. */
static mace_status submit(mace_loaded *part, const mace_binding *ports, uint32_t timeout_ms, mace_text text) {
  const unsigned char *code = part->code;
  int answer;
  if (!ethosu_invoke_async || !ethosu_wait) return run(part, ports, timeout_ms, text);
  prepare(part, ports);
  /* Without an NPU there is nothing that could be asked later. */
  answer = part->npu ? ethosu_invoke_async(part->npu, code + word(code, AT_START), (int)word(code, AT_STREAM),
                                           part->bases, part->sizes, (int)word(code, AT_REGIONS), NULL)
                     : -1;
  return answer ? finish(part, answer, text) : MACE_OK;
}

/* There is no clock here: any time but MACE_FOREVER asks once, and the caller asks again. */
static mace_status wait(mace_loaded *part, uint32_t timeout_ms, mace_text text) {
  int answer;
  if (!part->npu) return MACE_OK;
  answer = ethosu_wait(part->npu, timeout_ms == MACE_FOREVER);
  return answer > 0 ? MACE_BUSY : finish(part, answer, text);
}

static void unload(mace_loaded *part) { (void)part; }

static void close_device(mace_device *device) { (void)device; }

static const char *describe(mace_device *device) { return device->name; }

const mace_driver mace_ethosu_driver = {
    .struct_bytes = sizeof(mace_driver),
    .major = MACE_DRIVER_MAJOR,
    .flags = MACE_UNBOUNDED,
    .name = "ethosu",
    .version = "0.1.0",
    .bytes = bytes,
    .open = open_device,
    .load = load,
    .run = run,
    .unload = unload,
    .close = close_device,
    .describe = describe,
    .submit = submit,
    .wait = wait,
};
