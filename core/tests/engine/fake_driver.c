#define _GNU_SOURCE
#include "fake_driver.h"

#include <string.h>

#include "sha256.h"

#include <poll.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

struct mace_device {
  const mace_config *config;
  void *heap; /* of fake_async */
  int descriptor;
};

struct mace_loaded {
  mace_device *device;
  const mace_payload *payload;
  fake_code code;            /* what runs; all zeros until a part that must be compiled is */
  const mace_binding *ports; /* of the run in flight; NULL: none */
  uint32_t timeout_ms;
};

_Thread_local fake_record fake;

static _Thread_local _Alignas(
    4096) char device_memory[1 << 16]; /* no pointer to it leaves the driver but as a handle */
static _Thread_local size_t device_used;

uint32_t fake_checksum(const fake_code *code) {
  uint32_t sum = 1;
  for (size_t i = offsetof(fake_code, count); i < sizeof *code; i++)
    sum = sum * 31 + ((const unsigned char *)code)[i];
  return sum;
}

void fake_forget(void) { memset(&fake, 0, sizeof fake); }

static void say(mace_text text, const char *what) {
  if (!text.at || !text.bytes || !what) return;
  strncpy(text.at, what, text.bytes); /* may leave no 0 at the end, as a careless driver would */
}

/* Note a call; the status with which it is to fail. */
static mace_status call(fake_call kind, mace_text text) {
  if (fake.lost) fake.after_loss++;
  if (fake.fails != kind || fake.calls[kind]++ < fake.after) {
    if (fake.fails != kind) fake.calls[kind]++;
    return MACE_OK;
  }
  say(text, fake.text);
  if (fake.status == MACE_LOST) fake.lost = 1;
  return fake.status;
}

static size_t bytes_of(const mace_payload *payload) {
  return payload ? sizeof(mace_loaded) : sizeof(mace_device);
}

static mace_status open_device(const mace_config *config, void *memory, mace_device **device,
                               mace_text text) {
  fake.lost = 0;
  const mace_status status = call(FAKE_OPEN, text);
  if (status) return status;
  fake.options = config->options;
  *device = memory;
  (*device)->config = config;
  fake.open++;
  return MACE_OK;
}

static mace_status load(mace_device *device, const mace_payload *payload, void *memory, mace_loaded **loaded,
                        mace_text text) {
  const fake_code *code = payload->code;
  const mace_status status = call(FAKE_LOAD, text);
  char digest[65];
  if (status) return status;
  if (strcmp(payload->built_by, "fakec 7") || strcmp(payload->built_for, "fake mark 1")) {
    say(text, "built by another fakec or for another fake than fakec 7 and fake mark 1; build again");
    return MACE_STALE;
  }
  if (payload->code_bytes < sizeof *code || memcmp(code->magic, "FAKE", 4) ||
      code->bytes != payload->code_bytes || code->checksum != fake_checksum(code)) {
    say(text, "the code is damaged; build again");
    return MACE_STALE;
  }
  sha256_hex(code, payload->code_bytes, payload->weights, payload->weight_bytes, digest);
  if (strcmp(digest, payload->digest)) {
    say(text, "the digest is not that of code and weights; build again");
    return MACE_STALE;
  }
  *loaded = memory;
  (*loaded)->device = device;
  (*loaded)->payload = payload;
  (*loaded)->code = *code;
  (*loaded)->ports = NULL;
  fake.loaded++;
  return MACE_OK;
}

/* Address of a binding as the device sees it: a buffer without an address has one in the handle. */
static char *address(const mace_binding *binding) {
  const mace_buffer *buffer = &binding->memory->buffer;
  char *base = buffer->host ? buffer->host : (char *)(uintptr_t)buffer->handle;
  return base + buffer->offset + binding->offset;
}

static void sleep_ms(uint32_t milliseconds) {
  const struct timespec time = {milliseconds / 1000, milliseconds % 1000 * 1000000L};
  nanosleep(&time, NULL);
}

/* What a run that never ends answers once its time is over. */
static mace_status give_up(uint32_t milliseconds) {
  sleep_ms(milliseconds);
  fake.lost = fake.status == MACE_LOST;
  return fake.lost ? MACE_LOST : MACE_TIMEOUT;
}

/* Copies that were begun. */
static _Thread_local struct {
  char *to;
  const char *from;
  size_t bytes;
} copies[4];

static void make_copies(void) {
  for (int32_t i = 0; i < fake.copying; i++) memcpy(copies[i].to, copies[i].from, copies[i].bytes);
  fake.copying = 0;
}

/* Compute; a `status` other than MACE_OK fails half way. */
static mace_status compute(mace_loaded *loaded, const mace_binding *ports, mace_status status) {
  const fake_code *code = &loaded->code;
  const mace_payload *payload = loaded->payload;
  const int32_t scratch = payload->inputs + payload->outputs;
  float addend = code->addend;
  make_copies(); /* what was begun before comes first */
  if (payload->scratch.bytes) {
    memcpy(address(&ports[scratch]), &addend, sizeof addend);
    memset(address(&ports[scratch]) + sizeof addend, 0xEE, payload->scratch.bytes - sizeof addend);
  }
  for (int32_t i = 0; i < code->count; i++) {
    float value;
    memcpy(&value, address(&ports[0]) + 4 * i, 4);
    for (uint32_t s = 0; s < payload->ports[0].slack; s++) /* a vector load that reads beyond the tensor */
      if (address(&ports[0])[payload->ports[0].bytes + s] == 1) value += 0;
    value = value * code->factor + addend;
    memcpy(address(&ports[1]) + 4 * i, &value, 4);
    if (status && i == code->count / 2) return status; /* half way */
  }
  return status;
}

static mace_status run(mace_loaded *loaded, const mace_binding *ports, uint32_t timeout_ms, mace_text text) {
  const mace_status status = call(FAKE_RUN, text);
  fake.timeout_ms = timeout_ms;
  return fake.hangs ? give_up(timeout_ms) : compute(loaded, ports, status);
}

static mace_status submit(mace_loaded *loaded, const mace_binding *ports, uint32_t timeout_ms,
                          mace_text text) {
  const mace_status status = call(FAKE_SUBMIT, text);
  if (status) return status;
  fake.timeout_ms = loaded->timeout_ms = timeout_ms;
  loaded->ports = ports;
  fake.submitted++;
  return MACE_OK;
}

static mace_status wait_for(mace_loaded *loaded, uint32_t timeout_ms, mace_text text) {
  const uint32_t left = loaded->timeout_ms;
  mace_status status = call(FAKE_WAIT, text);
  if (status == MACE_BUSY || (timeout_ms != MACE_FOREVER && fake.waits && fake.waits--)) return MACE_BUSY;
  if (fake.hangs && timeout_ms < left) {
    sleep_ms(timeout_ms);
    loaded->timeout_ms -= timeout_ms;
    return MACE_BUSY;
  }
  fake.submitted--;
  fake.done = NULL;
  status = fake.hangs ? give_up(left) : compute(loaded, loaded->ports, status);
  loaded->ports = NULL;
  return status;
}

static mace_status notify(mace_loaded *loaded, void (*done)(void *context), void *context, mace_text text) {
  const mace_status status = call(FAKE_NOTIFY, text);
  if (status) return status;
  if (!loaded->ports) abort(); /* nothing is in flight */
  if (fake.ends) {
    done(context);
    return MACE_OK;
  }
  fake.done = done;
  fake.done_context = context;
  return MACE_OK;
}

/* Show the result as layer 0, with a time, and as a layer that no build knows. */
static mace_status observe(mace_loaded *loaded, const mace_binding *ports, const mace_observer *observer,
                           mace_text text) {
  mace_status status = call(FAKE_OBSERVE, text);
  status = compute(loaded, ports, status);
  if (status) return status;
  observer->see(observer->context, 0, address(&ports[1]), 1234);
  observer->see(observer->context, 1, address(&ports[1]), 5);
  observer->see(observer->context, -1, address(&ports[1]), 5);
  return MACE_OK;
}

/* The compiled form: the code, no byte of which is what it was. */
static void change(void *to, const void *from, size_t bytes) {
  for (size_t i = 0; i < bytes; i++) ((unsigned char *)to)[i] = ((const unsigned char *)from)[i] ^ 0x5A;
}

static mace_status load_source(mace_device *device, const mace_payload *payload, void *memory,
                               mace_loaded **loaded, mace_text text) {
  const mace_status status = load(device, payload, memory, loaded, text);
  if (!status) memset(&(*loaded)->code, 0, sizeof(fake_code));
  return status;
}

static mace_status compile(mace_loaded *loaded, mace_text text) {
  const mace_status status = call(FAKE_COMPILE, text);
  if (!status) loaded->code = *(const fake_code *)loaded->payload->code;
  return status;
}

static mace_status restore(mace_loaded *loaded, const void *compiled, size_t bytes, mace_text text) {
  const mace_status status = call(FAKE_RESTORE, text);
  if (status) return status;
  if (bytes != sizeof(fake_code)) abort(); /* nothing that the engine has checked has another size */
  change(&loaded->code, compiled, bytes);
  return MACE_OK;
}

static size_t save(mace_loaded *loaded, void *compiled, size_t bytes) {
  if (bytes >= sizeof(fake_code)) change(compiled, &loaded->code, sizeof(fake_code));
  return loaded->code.count ? sizeof(fake_code) : 0;
}

static void unload(mace_loaded *loaded) {
  if (loaded->ports && !fake.lost) abort(); /* the device computes in what is being given back */
  if (loaded->ports) fake.submitted--;
  loaded->ports = NULL;
  fake.loaded -= loaded->device != NULL;
  loaded->device = NULL;
}

static void close_device(mace_device *device) {
  fake.open -= device->config != NULL;
  device->config = NULL;
  if (!fake.open) device_used = 0;
  if (fake.lost) fake.copying = 0; /* a device that is gone copies nothing more */
}

static mace_status open_heap(const mace_config *config, void *memory, mace_device **device, mace_text text) {
  const mace_status status = open_device(config, memory, device, text);
  if (status) return status;
  (*device)->heap = malloc(1000);
  (*device)->descriptor = dup(2);
  return (*device)->heap && (*device)->descriptor >= 0 ? MACE_OK : MACE_NO_MEMORY;
}

static void close_heap(mace_device *device) {
  free(device->heap);
  close(device->descriptor);
  close_device(device);
}

static const char *describe(mace_device *device) { return device->config ? "Mark 1" : "closed"; }

static uint32_t units(mace_device *device) { return device->config ? 4 : 0; }

static mace_status need(mace_loaded *loaded, int32_t port, mace_need *need, mace_text text) {
  const mace_status status = call(FAKE_NEED, text);
  (void)loaded;
  if (port || !fake.raise.struct_bytes) return status;
  if (fake.raise.bytes) need->bytes = fake.raise.bytes;
  if (fake.raise.alignment) need->alignment = fake.raise.alignment;
  if (fake.raise.granule) need->granule = fake.raise.granule;
  if (fake.raise.slack) need->slack = fake.raise.slack;
  return status;
}

static mace_status allocate(mace_device *device, const mace_need *need, mace_buffer *buffer, mace_text text) {
  const mace_status status = call(FAKE_ALLOCATE, text);
  const size_t start = (device_used + need->alignment - 1) / need->alignment * need->alignment;
  (void)device;
  if (status) return status;
  if (start + need->bytes + need->slack > sizeof device_memory) return MACE_NO_MEMORY;
  memset(buffer, 0, sizeof *buffer);
  buffer->struct_bytes = sizeof *buffer;
  buffer->kind = MACE_BUS_ADDRESS;
  buffer->handle = (uintptr_t)(device_memory + start);
  buffer->bytes = need->bytes + need->slack;
  memset(device_memory + start, 0xDD, buffer->bytes);
  device_used = start + buffer->bytes;
  fake.allocated++;
  return MACE_OK;
}

static void free_memory(mace_device *device, mace_buffer *buffer) {
  (void)device, (void)buffer;
  fake.allocated--;
}

static mace_status import_memory(mace_device *device, const mace_need *need, mace_memory *memory,
                                 mace_text text) {
  const mace_status status = call(FAKE_IMPORT, text);
  (void)need;
  if (status) return status;
  if (memory->buffer.fence >= 0) {
    struct pollfd fence = {memory->buffer.fence, POLLIN, 0};
    if (poll(&fence, 1, 20) != 1) {
      say(text, "the fence does not signal; signal it");
      return MACE_TIMEOUT;
    }
    close(memory->buffer.fence);
    fake.fences++;
  }
  memory->own[0] = device;
  fake.import_host = memory->buffer.host;
  fake.import_handle = memory->buffer.handle;
  fake.import_bytes = memory->buffer.bytes;
  fake.imported++;
  return MACE_OK;
}

static void release(mace_device *device, mace_memory *memory) {
  fake.imported -= memory->own[0] == device; /* released by the device that imported it */
  memory->own[0] = NULL;
}

static mace_status copy(mace_device *device, mace_binding to, mace_binding from, size_t bytes,
                        mace_text text) {
  const mace_status status = call(FAKE_COPY, text);
  (void)device;
  if (!status) memcpy(address(&to), address(&from), bytes);
  return status;
}

static mace_status begin_copy(mace_device *device, mace_binding to, mace_binding from, size_t bytes,
                              mace_text text) {
  const mace_status status = call(FAKE_BEGIN, text);
  (void)device;
  if (status) return status;
  copies[fake.copying].to = address(&to);
  copies[fake.copying].from = address(&from);
  copies[fake.copying++].bytes = bytes;
  return MACE_OK;
}

static mace_status finish_copies(mace_device *device, mace_text text) {
  const mace_status status = call(FAKE_FINISH, text);
  (void)device;
  if (status) fake.copying = 0; /* half of them may be there, or none */
  make_copies();
  return status;
}

static mace_status power(mace_device *device, mace_power level, mace_text text) {
  const mace_status status =
      level == MACE_POWER_IDLE ? (fake.after_loss += fake.lost, MACE_OK) : call(FAKE_POWER, text);
  (void)device;
  fake.power = level;
  return status;
}

#define COMMON                                                                                       \
  .struct_bytes = sizeof(mace_driver), .major = MACE_DRIVER_MAJOR, .name = "fake", .version = "1.0", \
  .bytes = bytes_of, .run = run, .unload = unload
#define OPEN .open = open_device, .close = close_device
#define OWN                                                                                               \
  .describe = describe, .need = need, .allocate = allocate, .free = free_memory, .import = import_memory, \
  .release = release, .copy = copy, .power = power, .units = units

const mace_driver fake_own = {COMMON, OPEN, OWN, .load = load};
const mace_driver fake_shared = {COMMON, OPEN, .load = load, .describe = describe};
const mace_driver fake_import = {COMMON,
                                 OPEN,
                                 .load = load,
                                 .flags = MACE_FENCES,
                                 .need = need,
                                 .import = import_memory,
                                 .release = release,
                                 .power = power};
const mace_driver fake_async = {COMMON,
                                OWN,
                                .open = open_heap,
                                .close = close_heap,
                                .flags = MACE_ALLOCATES,
                                .load = load,
                                .submit = submit,
                                .wait = wait_for};
const mace_driver fake_compile = {
    COMMON, OPEN, OWN, .load = load_source, .compile = compile, .restore = restore, .save = save};
const mace_driver fake_layers = {COMMON,
                                 OWN,
                                 .open = open_heap,
                                 .close = close_heap,
                                 .flags = MACE_ALLOCATES,
                                 .load = load,
                                 .submit = submit,
                                 .wait = wait_for,
                                 .observe = observe};
const mace_driver fake_overlap = {COMMON,
                                  OWN,
                                  .open = open_heap,
                                  .close = close_heap,
                                  .flags = MACE_ALLOCATES,
                                  .load = load,
                                  .submit = submit,
                                  .wait = wait_for,
                                  .begin_copy = begin_copy,
                                  .finish_copies = finish_copies};
const mace_driver fake_notify = {COMMON,
                                 OWN,
                                 .open = open_heap,
                                 .close = close_heap,
                                 .flags = MACE_ALLOCATES,
                                 .load = load,
                                 .submit = submit,
                                 .wait = wait_for,
                                 .notify = notify};
