/* mace_engine_layout.c - the engine's memory in a session, and its texts; see mace_engine.c. */
#include "mace_engine.h"

/* The next `bytes` bytes of memory; NULL while sizes are only counted. */
static void *take(char *base, size_t *at, size_t bytes) {
  void *taken = base ? base + *at : NULL;
  *at += MACE_ROUND_UP(bytes);
  return taken;
}

const char *mace_engine_refuse(const mace_driver *d) {
  const char *const shape =
      "its table of functions is not that of this driver.h; compile the driver with the library's own "
      "driver.h";
  if (!d || d->struct_bytes < offsetof(mace_driver, name)) return shape;
  if (d->major != MACE_DRIVER_MAJOR)
    return "it was written for another major version of driver.h; install a driver for this one";
  if (!MACE_HAS(d, name) || !MACE_HAS(d, version) || !MACE_HAS(d, bytes) || !MACE_HAS(d, open)) return shape;
  if (!MACE_HAS(d, load) || !MACE_HAS(d, run) || !MACE_HAS(d, unload) || !MACE_HAS(d, close)) return shape;
  return NULL;
}

static size_t driver_bytes(const mace_driver *driver, const mace_payload *payload) {
  return mace_engine_refuse(driver) ? 0 : driver->bytes(payload);
}

/* Bytes of host memory in which `need` can be met wherever it begins. */
static size_t room(const mace_need *need) {
  return round_up(need->bytes, need->granule) + need->slack + need->alignment;
}

static uint32_t larger(uint32_t left, uint32_t right) { return left > right ? left : right; }

int32_t mace_engine_join_needs(const mace_model *model, int32_t port, mace_need *joined) {
  int32_t device = -1;
  __builtin_memset(joined, 0, sizeof *joined);
  joined->struct_bytes = sizeof *joined;
  for (int32_t t = 0; t < model->plan->task_count; t++) {
    const mace_task *task = &model->plan->tasks[t];
    for (int32_t i = 0; i < count_ports(task->payload); i++) {
      const mace_need *need = need_of(task->payload, i);
      const uint32_t kinds = need->kinds ? need->kinds : 1u << MACE_HOST;
      if (!is_port(&task->places[i]) || port_of(model, &task->places[i]) != port) continue;
      joined->kinds = device < 0 ? kinds : joined->kinds & kinds;
      joined->alignment = larger(joined->alignment, need->alignment);
      joined->granule = larger(joined->granule, need->granule);
      joined->slack = larger(joined->slack, need->slack);
      joined->bytes = joined->bytes > need->bytes ? joined->bytes : need->bytes;
      if (device < 0) device = task->device;
    }
  }
  return device;
}

/* Bytes that staging a port takes: 0 if no task has it. */
static size_t staging_bytes(const mace_model *model, int32_t port) {
  mace_need joined;
  return mace_engine_join_needs(model, port, &joined) < 0 ? 0 : room(&joined);
}

size_t mace_engine_lay_out(const mace_model *model, char *base) {
  const mace_plan *plan = model->plan;
  const int32_t ports = model->input_count + model->output_count;
  const size_t hosts = (size_t)plan->device_count * (size_t)(FIXED + 2 * ports);
  engine counted, *e;
  size_t at = 0;
  int32_t most = 0;
  e = take(base, &at, sizeof *e);
  if (!e) e = &counted;
  __builtin_memset(e, 0, sizeof *e);
  e->ports = ports;
  e->flight = -1;
  e->copying = -1;
  for (int32_t i = 0; i < plan->task_count; i++)
    if (count_ports(plan->tasks[i].payload) > most) most = count_ports(plan->tasks[i].payload);
  e->devices = take(base, &at, sizeof *e->devices * (size_t)plan->device_count);
  e->device_memory = take(base, &at, sizeof *e->device_memory * (size_t)plan->device_count);
  e->loaded = take(base, &at, sizeof *e->loaded * (size_t)plan->task_count);
  e->task_memory = take(base, &at, sizeof *e->task_memory * (size_t)plan->task_count);
  e->spaces = take(base, &at, sizeof *e->spaces * (size_t)plan->space_count);
  e->hosts = take(base, &at, sizeof *e->hosts * hosts);
  e->staging = take(base, &at, sizeof *e->staging * (size_t)ports);
  e->owned = take(base, &at, sizeof *e->owned * (size_t)ports);
  e->bindings = take(base, &at, sizeof *e->bindings * (size_t)most);
  if (base) __builtin_memset(base + MACE_ROUND_UP(sizeof *e), 0, at - MACE_ROUND_UP(sizeof *e));
  for (int32_t i = 0; i < plan->device_count; i++) {
    void *memory = take(base, &at, driver_bytes(plan->drivers[i], NULL));
    if (base) e->device_memory[i] = memory;
  }
  for (int32_t i = 0; i < plan->task_count; i++) {
    void *memory =
        take(base, &at, driver_bytes(plan->drivers[plan->tasks[i].device], plan->tasks[i].payload));
    if (base) e->task_memory[i] = memory;
  }
  for (int32_t i = 0; i < plan->space_count; i++) {
    const mace_driver *driver = plan->drivers[plan->spaces[i].device];
    const int allocated = !mace_engine_refuse(driver) && allocates(driver);
    void *memory = allocated ? NULL : take(base, &at, room(&plan->spaces[i].need));
    if (base) e->spaces[i].memory.buffer.host = memory;
  }
  for (int32_t i = 0; i < ports; i++) {
    const size_t bytes = staging_bytes(model, i);
    void *memory = bytes ? take(base, &at, bytes) : NULL;
    if (base) e->staging[i] = memory;
  }
  e->bytes = at;
  return at;
}

size_t mace_engine_front(const mace_model *model, const mace_config *config) {
  const size_t own = mace_host_bytes(model, config);
  const size_t other = model->fallback ? mace_host_bytes(model->fallback, config) : 0;
  return own > other ? own : other;
}

/* ---- texts ---- */

char *mace_engine_append(char *at, const char *end, const char *text) {
  while (at < end && text && *text) *at++ = *text++;
  *at = 0;
  return at;
}

static const char *say_status(mace_status status) {
  switch (status) {
    case MACE_NO_MEMORY: return "it has no memory left; close other sessions";
    case MACE_REFUSED: return "it refuses what it was given; check options and buffers";
    case MACE_NO_DEVICE: return "there is no such device; install its driver, or allow the fallback";
    case MACE_STALE: return "the model was compiled for another device; build it again";
    case MACE_BUSY: return "it is in use; run again later";
    case MACE_TIMEOUT: return "the run took too long and was stopped; raise timeout_ms";
    case MACE_LOST: return "the device died; close the session and open it again";
    default: return "the driver failed and does not say why; ask its vendor";
  }
}

/* A status that a driver may answer, whatever it answered. */
static mace_status sane(mace_status status) {
  return (unsigned)status <= MACE_FAILED && (unsigned)status >= MACE_REFUSED ? status
         : status == MACE_NO_MEMORY                                          ? status
                                                                             : MACE_FAILED;
}

mace_text mace_engine_text(engine *e) {
  const mace_text text = {MACE_TEXT_BYTES ? e->text : NULL, MACE_TEXT_BYTES};
  __builtin_memset(e->text, 0, sizeof e->text);
  return text;
}

mace_status mace_engine_report(mace_session *s, int32_t device, int32_t part, mace_status status,
                               const char *text) {
  engine *e = s->engine;
  const mace_driver *driver = s->model->plan->drivers[device];
  char *at = e->error;
  const char *const end = at + MACE_TEXT_BYTES;
  status = sane(status);
  e->text[MACE_TEXT_BYTES] = 0; /* a driver may have written over it */
  if (!text) text = e->text[0] ? e->text : say_status(status);
  if (!MACE_TEXT_BYTES) return mace_fail(s, status, say_status(status));
  if (part >= 0) {
    at = mace_engine_append(at, end, "part ");
    at = mace_engine_append(at, end, s->model->parts[part].name);
    at = mace_engine_append(at, end, " (");
  }
  if (driver && driver->struct_bytes && MACE_HAS(driver, name) && MACE_HAS(driver, version)) {
    at = mace_engine_append(at, end, driver->name);
    at = mace_engine_append(at, end, " ");
    at = mace_engine_append(at, end, driver->version);
  } else {
    at = mace_engine_append(at, end, "device");
  }
  at = mace_engine_append(at, end, part >= 0 ? "): " : ": ");
  mace_engine_append(at, end, text);
  return mace_fail(s, status, e->error);
}

static char *append_number(char *at, const char *end, size_t value) {
  char digits[24];
  int32_t i = (int32_t)sizeof digits - 1;
  digits[i] = 0;
  do digits[--i] = (char)('0' + value % 10);
  while (value /= 10);
  return mace_engine_append(at, end, &digits[i]);
}

static char *append_need(char *at, const char *end, const mace_need *need) {
  at = append_number(at, end, need->bytes);
  at = mace_engine_append(at, end, " bytes, alignment ");
  at = append_number(at, end, need->alignment);
  at = mace_engine_append(at, end, ", granule ");
  at = append_number(at, end, need->granule);
  at = mace_engine_append(at, end, ", slack ");
  return append_number(at, end, need->slack);
}

mace_status mace_engine_report_need(mace_session *s, const mace_task *task, int32_t port,
                                    const mace_need *wanted) {
  engine *e = s->engine;
  char *at = e->text;
  const char *const end = at + MACE_TEXT_BYTES;
  at = mace_engine_append(at, end, "the device wants of port ");
  at = append_number(at, end, (size_t)port);
  at = mace_engine_append(at, end, " ");
  at = append_need(at, end, wanted);
  at = mace_engine_append(at, end, "; the build planned ");
  at = append_need(at, end, need_of(task->payload, port));
  mace_engine_append(at, end, "; build for this device");
  return mace_engine_report(s, task->device, task->part, MACE_STALE, NULL);
}

mace_status mace_engine_report_kind(mace_session *s, int32_t port, uint32_t kinds) {
  static const char *const names[] = {"MACE_HOST",   "MACE_DMABUF", "MACE_AHARDWAREBUFFER",
                                      "MACE_CL_MEM", "MACE_RPCMEM", "MACE_BUS_ADDRESS"};
  engine *e = s->engine;
  char *at = e->error;
  const char *const end = at + MACE_TEXT_BYTES;
  if (!MACE_TEXT_BYTES) return mace_fail(s, MACE_REFUSED, say_status(MACE_REFUSED));
  at = mace_engine_append(at, end, "port ");
  at = append_number(at, end, (size_t)port);
  at = mace_engine_append(at, end, " does not take a buffer of this kind; give one of");
  for (uint32_t i = 0; i < sizeof names / sizeof *names; i++) {
    if (!(kinds >> i & 1u)) continue;
    at = mace_engine_append(at, end, " ");
    at = mace_engine_append(at, end, names[i]);
  }
  return mace_fail(s, MACE_REFUSED, e->error);
}

int mace_engine_meets(const mace_buffer *buffer, const mace_need *need) {
  const int aligned =
      !need->alignment || !buffer->host || ((uintptr_t)buffer->host + buffer->offset) % need->alignment == 0;
  return aligned && buffer->bytes >= buffer->offset &&
         buffer->bytes - buffer->offset >= need->bytes + need->slack;
}
