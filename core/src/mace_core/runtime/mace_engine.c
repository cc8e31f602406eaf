/* mace_engine.c - runs models that have parts on devices, through their drivers. Linked only into libraries
 * that have such models.
 *
 * It allocates nothing and calls no library function but memcpy and memset. Everything that it opens, loads,
 * allocates and imports is recorded when it succeeds and given back in the reverse order, so that closing
 * works on whatever a failed open left.
 */
#include "mace_engine.h"

mace_status mace_engine_import(mace_session *s, int32_t device, const mace_need *need, held *h) {
  engine *e = s->engine;
  const mace_driver *driver = driver_of(s, device);
  mace_status status;
  if (!mace_has_fence(&h->memory.buffer)) h->memory.buffer.fence = -1; /* one word for none, for drivers */
  if (imports(driver)) {
    status = driver->import(e->devices[device], need, &h->memory, mace_engine_text(e));
    if (status) return mace_engine_report(s, device, -1, status, NULL);
    h->imported = 1;
    h->memory.buffer.fence = -1; /* the driver has closed its descriptor */
  }
  h->live = 1;
  return MACE_OK;
}

mace_status mace_engine_import_host(mace_session *s, int32_t device, const mace_need *need, held *h, void *at,
                                    size_t bytes) {
  const mace_buffer buffer = {sizeof buffer, MACE_HOST, at, 0, 0, bytes, -1};
  __builtin_memset(h, 0, sizeof *h);
  h->memory.buffer = buffer;
  return mace_engine_import(s, device, need, h);
}

void mace_engine_release(const mace_session *s, int32_t device, held *h) {
  const mace_driver *driver = driver_of(s, device);
  engine *e = s->engine;
  if (h->imported) driver->release(e->devices[device], &h->memory);
  if (h->allocated) driver->free(e->devices[device], &h->memory.buffer);
  h->live = h->imported = h->allocated = 0;
}

/* ---- closing ---- */

void mace_engine_rest(mace_session *s) {
  engine *e = s->engine;
  const mace_plan *plan = s->model->plan;
  for (int32_t i = 0; e->powered && i < plan->device_count; i++)
    if (e->devices[i] && MACE_HAS(plan->drivers[i], power))
      plan->drivers[i]->power(e->devices[i], MACE_POWER_IDLE, mace_engine_text(e));
  e->powered = 0;
}

void mace_engine_close_all(mace_session *s, int lost) {
  engine *e = s->engine;
  const mace_plan *plan = s->model->plan;
  const mace_lock *lock = s->config.lock;
  /* Nothing that a device still uses may be given back; the run's own timeout bounds the wait. */
  if (e->flight >= 0 && !lost) lost = mace_engine_wait_task(s, MACE_FOREVER) == MACE_LOST;
  e->flight = -1;
  if (!lost) mace_engine_finish_quietly(s);
  e->copying = -1;
  if (!lost) mace_engine_rest(s);
  e->powered = 0;
  if (lock) lock->acquire(lock->context);
  for (int32_t i = plan->device_count - 1; i >= 0; i--)
    for (int32_t h = FIXED + 2 * e->ports - 1; e->devices[i] && h >= 0; h--)
      mace_engine_release(s, i, host_of(e, i, h));
  for (int32_t i = e->ports - 1; i >= 0; i--) {
    mace_need need;
    const int32_t owner = mace_engine_join_needs(s->model, i, &need);
    if (owner >= 0 && e->devices[owner]) mace_engine_release(s, owner, &e->owned[i]);
  }
  for (int32_t i = plan->task_count - 1; i >= 0; i--) {
    if (e->loaded[i]) driver_of(s, plan->tasks[i].device)->unload(e->loaded[i]);
    e->loaded[i] = NULL;
  }
  for (int32_t i = plan->space_count - 1; i >= 0; i--)
    if (e->devices[plan->spaces[i].device]) mace_engine_release(s, plan->spaces[i].device, &e->spaces[i]);
  for (int32_t i = plan->device_count - 1; i >= 0; i--) {
    if (e->devices[i]) plan->drivers[i]->close(e->devices[i]);
    e->devices[i] = NULL;
  }
  if (lock) lock->release(lock->context);
}

static void engine_close(mace_session *s) {
  if (s->engine) mace_engine_close_all(s, 0);
}

/* Whether a buffer is bound that only a device can reach, or the application has memory that ends with a
 * device. */
static int is_remote(const mace_session *s) {
  engine *e = s->engine;
  for (int32_t port = 0; port < e->ports; port++)
    if (e->owned[port].allocated) return 1;
  for (int32_t i = 0; i < s->model->plan->device_count; i++)
    for (int32_t port = 0; port < e->ports; port++) {
      const held *h = host_of(e, i, FIXED + e->ports + port);
      if (h->live && !h->memory.buffer.host) return 1;
    }
  return 0;
}

int mace_engine_may_fall_back(const mace_session *s, mace_status status, mace_fallback when) {
  /* A failed run leaves states undefined, and the CPU cannot read every buffer. */
  const int repeatable = when == MACE_FALLBACK_AT_OPEN || (!s->model->state_count && !is_remote(s));
  return s->model->fallback && s->config.fallback >= when && repeatable && status != MACE_REFUSED &&
         status != MACE_BUSY;
}

mace_status mace_engine_fall_back(mace_session *s) {
  engine *e = s->engine;
  const mace_model *other = s->model->fallback;
  const char *const end = e->device + MACE_TEXT_BYTES, *const reason = s->error;
  char *at = e->device;
  const mace_status status = mace_prepare(s, other);
  if (status) return status;
  e->fallen = 1;
  at = mace_engine_append(
      at, end, other->part_count ? other->parts[0].devices[s->levels[other->parts[0].table]] : "host");
  at = mace_engine_append(at, end, " (fallback: ");
  at = mace_engine_append(at, end, reason);
  mace_engine_append(at, end, ")");
  return MACE_OK;
}

/* ---- opening ---- */

/* The driver whose name a word begins with, before a dot; NULL if the model uses none such. */
static const mace_driver *find_driver(const mace_plan *plan, const char *word) {
  for (int32_t i = 0; i < plan->device_count; i++) {
    const char *name = plan->drivers[i]->name, *at = word;
    while (*name && *name == *at) name++, at++;
    if (!*name && *at == '.') return plan->drivers[i];
  }
  return NULL;
}

/* Whether each object of the application is for a driver that the model uses, and that takes any. */
static int natives_fit(const mace_plan *plan, const mace_native *native) {
  for (; native && native->name; native++) {
    const mace_driver *driver = find_driver(plan, native->name);
    if (!driver || !(driver->flags & MACE_SHARES)) return 0;
  }
  return 1;
}

/* Whether options name only drivers that the model uses; the drivers themselves refuse keys that they do not
 * know. */
static int options_fit(const mace_plan *plan, const char *options) {
  while (options && *options) {
    if (!find_driver(plan, options)) return 0;
    while (*options && *options != ';') options++;
    if (*options) options++;
  }
  return 1;
}

static mace_status open_device(mace_session *s, int32_t i) {
  engine *e = s->engine;
  const mace_driver *driver = driver_of(s, i);
  mace_device *device = NULL;
  if (driver->flags & MACE_UNBOUNDED && s->config.timeout_ms)
    return mace_engine_report(s, i, -1, MACE_REFUSED, "it cannot stop a run; leave mace_config.timeout_ms 0");
  const mace_status status = driver->open(&s->config, e->device_memory[i], &device, mace_engine_text(e));
  if (status) return mace_engine_report(s, i, -1, status, NULL);
  if (!device)
    return mace_engine_report(s, i, -1, MACE_FAILED,
                              "it opened and gave no device; report this to its author");
  e->devices[i] = device;
  return MACE_OK;
}

static mace_status make_space(mace_session *s, int32_t i) {
  engine *e = s->engine;
  const mace_space *space = &s->model->plan->spaces[i];
  const mace_driver *driver = driver_of(s, space->device);
  held *h = &e->spaces[i];
  mace_buffer *buffer = &h->memory.buffer;
  if (allocates(driver)) {
    const mace_status status =
        driver->allocate(e->devices[space->device], &space->need, buffer, mace_engine_text(e));
    if (status) return mace_engine_report(s, space->device, -1, status, NULL);
    h->allocated = 1;
    if (!mace_engine_meets(buffer, &space->need)) {
      const char *const text =
          "it allocated fewer bytes or a lower alignment than it was asked for; report this to its author";
      return mace_engine_report(s, space->device, -1, MACE_FAILED, text);
    }
  } else {
    const mace_need *need = &space->need;
    void *at = (void *)round_up((uintptr_t)buffer->host, need->alignment);
    const mace_buffer own = {
        sizeof own, MACE_HOST, at, 0, 0, round_up(need->bytes, need->granule) + need->slack, -1};
    *buffer = own;
  }
  if (!MACE_HAS(driver, copy) && !buffer->host)
    return mace_engine_report(s, space->device, -1, MACE_FAILED,
                              "its memory has no address, and it cannot copy; report this to its author");
  return mace_engine_import(s, space->device, &space->need, h);
}

/* Compare what the build planned for a port with what the device wants. */
static mace_status compare_need(mace_session *s, const mace_task *task, mace_loaded *loaded, int32_t port) {
  const mace_driver *driver = driver_of(s, task->device);
  const mace_need *planned = need_of(task->payload, port);
  mace_need wanted = *planned;
  mace_status status;
  if (!MACE_HAS(driver, need)) return MACE_OK;
  status = driver->need(loaded, port, &wanted, mace_engine_text(s->engine));
  if (status) return mace_engine_report(s, task->device, task->part, status, NULL);
  if (wanted.bytes <= planned->bytes && wanted.alignment <= planned->alignment &&
      wanted.granule <= planned->granule && wanted.slack <= planned->slack)
    return MACE_OK;
  return mace_engine_report_need(s, task, port, &wanted);
}

/* Import the host memory that a task's port lies in, unless that has been done, and check that it meets the
 * port's needs. */
static mace_status import_place(mace_session *s, const mace_task *task, int32_t i) {
  engine *e = s->engine;
  const mace_place *place = &task->places[i];
  const mace_need *need = need_of(task->payload, i);
  const mace_model *model = s->model;
  mace_need joined;
  mace_status status = MACE_OK;
  char *at;
  held *h;
  if (place->where == MACE_IN_SPACE) return MACE_OK;
  if (is_port(place)) {
    const int32_t port = port_of(model, place);
    h = host_of(e, task->device, FIXED + port);
    mace_engine_join_needs(model, port, &joined);
    at = (char *)round_up((uintptr_t)e->staging[port], joined.alignment);
    if (!h->live)
      status = mace_engine_import_host(s, task->device, &joined, h, at,
                                       round_up(joined.bytes, joined.granule) + joined.slack);
  } else {
    h = host_of(e, task->device,
                place->where == MACE_IN_ARENA    ? ARENA
                : place->where == MACE_IN_STATES ? STATES
                                                 : WEIGHTS);
    at = place->where == MACE_IN_ARENA    ? s->frame.arena
         : place->where == MACE_IN_STATES ? s->frame.states
                                          : (char *)(uintptr_t)model->plan->weights;
    if (!h->live && place->where == MACE_IN_ARENA)
      status = mace_engine_import_host(s, task->device, need, h, at, model->arena_bytes);
    if (!h->live && place->where == MACE_IN_STATES)
      status = mace_engine_import_host(s, task->device, need, h, at, model->state_bytes);
    if (!h->live && place->where == MACE_IN_WEIGHTS)
      status = mace_engine_import_host(s, task->device, need, h, at, model->weight_bytes);
    at += place->offset;
  }
  if (!status && need->alignment && (uintptr_t)at % need->alignment)
    return mace_engine_report(
        s, task->device, task->part, MACE_REFUSED,
        "host memory is not aligned as the device wants it; give its parts a memory space of their own");
  return status;
}

static mace_status load_task(mace_session *s, int32_t t) {
  engine *e = s->engine;
  const mace_task *task = &s->model->plan->tasks[t];
  mace_loaded *loaded = NULL;
  const mace_driver *driver = driver_of(s, task->device);
  mace_status status =
      driver->load(e->devices[task->device], task->payload, e->task_memory[t], &loaded, mace_engine_text(e));
  if (status) return mace_engine_report(s, task->device, task->part, status, NULL);
  if (!loaded)
    return mace_engine_report(s, task->device, task->part, MACE_FAILED,
                              "it loaded and gave nothing; report this to its author");
  e->loaded[t] = loaded;
  if (compiles(driver)) status = mace_engine_compile(s, t);
  for (int32_t i = 0; !status && i < count_ports(task->payload); i++) {
    status = compare_need(s, task, loaded, i);
    if (!status) status = import_place(s, task, i);
  }
  return status;
}

static mace_status open_devices(mace_session *s) {
  const mace_plan *plan = s->model->plan;
  const mace_lock *lock = s->config.lock;
  mace_status status = MACE_OK;
  if (lock) lock->acquire(lock->context);
  for (int32_t i = 0; !status && i < plan->device_count; i++) status = open_device(s, i);
  for (int32_t i = 0; !status && i < plan->space_count; i++) status = make_space(s, i);
  for (int32_t i = 0; !status && i < plan->task_count; i++) status = load_task(s, i);
  if (lock) lock->release(lock->context);
  return status;
}

static mace_status engine_open(mace_session *s) {
  const mace_plan *plan = s->model->plan;
  char *base = (char *)s + mace_engine_front(s->model, &s->config);
  mace_status status = MACE_OK;
  mace_engine_lay_out(s->model, base);
  s->engine = base;
  for (int32_t i = 0; i < plan->device_count; i++) {
    const char *fault = mace_engine_refuse(plan->drivers[i]);
    if (fault) return mace_engine_report(s, i, -1, MACE_REFUSED, fault);
  }
  if (!options_fit(plan, s->config.options))
    return mace_fail(
        s, MACE_REFUSED,
        "mace_config.options names a driver that the model does not use; write DRIVER.KEY=VALUE");
  if (!natives_fit(plan, s->config.native))
    return mace_fail(s, MACE_REFUSED,
                     "mace_config.native has an object for a driver that the model does not use or that takes "
                     "none; leave it out");
  const mace_cache *cache = s->config.cache;
  if (cache && !(MACE_HAS(cache, load) && MACE_HAS(cache, store) && MACE_HAS(cache, reallocate)))
    return mace_fail(s, MACE_REFUSED,
                     "mace_config.cache lacks a function; set struct_bytes, load, store and reallocate");
  status = mace_prepare(s, s->model);
  if (status) return status;
  s->phase = MACE_CLOSED;
  status = open_devices(s);
  if (!status) {
    s->phase = MACE_OPEN;
    return MACE_OK;
  }
  mace_engine_close_all(s, status == MACE_LOST);
  if (!mace_engine_may_fall_back(s, status, MACE_FALLBACK_AT_OPEN)) return status;
  return mace_engine_fall_back(s);
}

/* ---- telling ---- */

static const char *engine_device(const mace_session *s, int32_t part) {
  engine *e = s->engine;
  const mace_plan *plan = s->model->plan;
  const mace_part *told = &s->model->parts[part];
  const char *const end = e->device + MACE_TEXT_BYTES;
  char *at = e->device;
  if (e->fallen) return e->device;
  if (told->table >= 0) return told->devices[s->levels[told->table]];
  for (int32_t t = 0; t < plan->task_count; t++) {
    const int32_t device = plan->tasks[t].device;
    if (plan->tasks[t].part != part || !e->devices[device]) continue;
    at = mace_engine_append(at, end, plan->drivers[device]->name);
    if (!MACE_HAS(plan->drivers[device], describe)) return e->device;
    at = mace_engine_append(at, end, ": ");
    at = mace_engine_append(at, end, plan->drivers[device]->describe(e->devices[device]));
    if (e->recompiled && plan->tasks[t].compiled_count)
      mace_engine_append(at, end, " (compiled here: the library has no kernels for this device and driver)");
    return e->device;
  }
  return "";
}

static uint32_t engine_units(const mace_session *s, int32_t part) {
  const engine *e = s->engine;
  const mace_plan *plan = s->model->plan;
  for (int32_t t = 0; !e->fallen && t < plan->task_count; t++) {
    const mace_driver *driver = driver_of(s, plan->tasks[t].device);
    mace_device *device = e->devices[plan->tasks[t].device];
    if (plan->tasks[t].part == part && device && MACE_HAS(driver, units)) return driver->units(device);
  }
  return 0;
}

static uint64_t engine_layer_ns(const mace_session *s) {
  const engine *e = s->engine;
  return e->layer_ns;
}

static size_t engine_bytes(const mace_model *model, const mace_config *config) {
  return mace_engine_front(model, config) + mace_engine_lay_out(model, NULL);
}

const mace_engine mace_device_engine = {
    sizeof(mace_engine), engine_bytes, engine_open,        mace_engine_run,  mace_engine_bind,
    engine_device,       engine_close, mace_engine_submit, mace_engine_wait, mace_engine_allocate,
    engine_layer_ns,     engine_units,
};
