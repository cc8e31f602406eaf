/* mace_engine_ports.c - the steps of a run that touch memory of devices, and buffers that are bound to ports;
 * see mace_engine.c. */
#include "mace_engine.h"

/* The address of a place in host memory or in memory of a device that has one; NULL if it has none. */
static char *address(const mace_session *s, const mace_place *place) {
  const engine *e = s->engine;
  const mace_buffer *buffer;
  switch (place->where) {
    case MACE_IN_ARENA: return s->frame.arena + place->offset;
    case MACE_IN_STATES: return s->frame.states + place->offset;
    case MACE_IN_WEIGHTS: return (char *)(uintptr_t)s->model->plan->weights + place->offset;
    case MACE_IN_INPUT: return (char *)(uintptr_t)s->frame.in[place->index] + place->offset;
    case MACE_IN_OUTPUT: return (char *)s->frame.out[place->index] + place->offset;
    default: buffer = &e->spaces[place->index].memory.buffer;
  }
  return buffer->host ? (char *)buffer->host + buffer->offset + place->offset : NULL;
}

/* Copy a tensor, unless both are one: memory of the session that mace_allocate gave. */
static void move(void *to, const void *from, size_t bytes) {
  if (to != from) __builtin_memcpy(to, from, bytes);
}

/* Whether a port's buffer of the application is bound to the device and used in this run. */
static held *bound_to(mace_session *s, int32_t device, int32_t port) {
  engine *e = s->engine;
  const int32_t inputs = s->model->input_count;
  const void *used = port < inputs ? s->frame.in[port] : s->frame.out[port - inputs];
  held *h = host_of(e, device, FIXED + e->ports + port);
  return h->live && used == s->bound[port] ? h : NULL;
}

/* As bound_to, of a buffer that takes the place of the port's tensor in memory of the device. */
static held *remote_of(mace_session *s, int32_t device, int32_t port) {
  held *h = port < 0 ? NULL : bound_to(s, device, port);
  return h && h->memory.buffer.kind != MACE_HOST ? h : NULL;
}

/* Gather the memory of a task's ports, and copy what lies in memory of the application that is not bound. */
static void bring_inputs(mace_session *s, int32_t t) {
  engine *e = s->engine;
  const mace_model *model = s->model;
  const mace_task *task = &model->plan->tasks[t];
  const mace_payload *payload = task->payload;
  for (int32_t i = 0; i < count_ports(payload); i++) {
    const mace_place *place = &task->places[i];
    held *h = remote_of(s, task->device, port_in_space(task, i));
    e->bindings[i].offset = h ? 0 : place->offset;
    if (place->where == MACE_IN_SPACE) {
      if (!h) h = &e->spaces[place->index];
    } else if (!is_port(place)) {
      h = host_of(e, task->device,
                  place->where == MACE_IN_ARENA    ? ARENA
                  : place->where == MACE_IN_STATES ? STATES
                                                   : WEIGHTS);
    } else if (!(h = bound_to(s, task->device, port_of(model, place)))) {
      h = host_of(e, task->device, FIXED + port_of(model, place));
      if (i < payload->inputs) move(h->memory.buffer.host, address(s, place), port_bytes(model, place));
    }
    e->bindings[i].memory = &h->memory;
  }
}

/* Copy what a task computed to memory of the application that is not bound. */
static void take_outputs(mace_session *s, const mace_task *task) {
  engine *e = s->engine;
  const mace_payload *payload = task->payload;
  for (int32_t i = payload->inputs; i < payload->inputs + payload->outputs; i++) {
    const mace_place *place = &task->places[i];
    if (!is_port(place) || bound_to(s, task->device, port_of(s->model, place))) continue;
    const held *h = host_of(e, task->device, FIXED + port_of(s->model, place));
    move(address(s, place), h->memory.buffer.host, port_bytes(s->model, place));
  }
}

/* A run whose layers the application observes. */
typedef struct observation {
  mace_session *session;
  const mace_task *task;
} observation;

static void see_layer(void *context, int32_t layer, const void *result, uint64_t ns) {
  const observation *o = context;
  mace_session *s = o->session;
  engine *e = s->engine;
  if (layer < 0 || layer >= o->task->layers) return; /* of a driver that shows more than the build knows */
  e->layer_ns = ns;
  s->frame.observe(s->frame.observer, o->task->layer + layer, result);
  e->layer_ns = 0;
}

/* Whether the application sees the layers of a task in this run. */
static int is_observed(const mace_session *s, const mace_task *task) {
  const mace_driver *driver = driver_of(s, task->device);
  return s->frame.observe && task->layers && MACE_HAS(driver, observe);
}

static mace_status observe_task(mace_session *s, int32_t t) {
  engine *e = s->engine;
  const mace_task *task = &s->model->plan->tasks[t];
  observation o = {s, task};
  const mace_observer observer = {sizeof observer, &o, see_layer};
  return driver_of(s, task->device)->observe(e->loaded[t], e->bindings, &observer, mace_engine_text(e));
}

/* Notify the application, or let the thread do so that is in a call of the session: by then mace_wait can go
 * on. */
static void signal_end(void *context) {
  mace_session *s = context;
#if defined(__GCC_ATOMIC_INT_LOCK_FREE) && __GCC_ATOMIC_INT_LOCK_FREE == 2
  uint32_t busy = __atomic_load_n(&s->busy, __ATOMIC_ACQUIRE);
  while (busy & 1u)
    if (__atomic_compare_exchange_n(&s->busy, &busy, busy | 2u, 0, __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE)) return;
#else
  if (s->busy & 1u) {
    s->busy |= 2u;
    return;
  }
#endif
  s->notify(s->notified);
}

mace_status mace_engine_run_task(mace_session *s, int32_t t, int submit) {
  engine *e = s->engine;
  const mace_task *task = &s->model->plan->tasks[t];
  const mace_driver *driver = driver_of(s, task->device);
  const uint32_t timeout_ms = s->config.timeout_ms;
  const int observed = is_observed(s, task);
  mace_status status;
  bring_inputs(s, t);
  submit &= !observed;
  if (observed)
    status = observe_task(s, t);
  else if (submit)
    status = driver->submit(e->loaded[t], e->bindings, timeout_ms, mace_engine_text(e));
  else
    status = driver->run(e->loaded[t], e->bindings, timeout_ms, mace_engine_text(e));
  if (status) return mace_engine_report(s, task->device, task->part, status, NULL);
  if (!submit) {
    take_outputs(s, task);
    return MACE_OK;
  }
  e->flight = t;
  /* A device that goes on and cannot tell when it ends is waited for, so that nobody waits for ever. */
  if (s->notify && driver->notify(e->loaded[t], signal_end, s, mace_engine_text(e)))
    return mace_engine_wait_task(s, MACE_FOREVER);
  return MACE_OK;
}

mace_status mace_engine_wait_task(mace_session *s, uint32_t timeout_ms) {
  engine *e = s->engine;
  const mace_task *task = &s->model->plan->tasks[e->flight];
  const mace_status status =
      driver_of(s, task->device)->wait(e->loaded[e->flight], timeout_ms, mace_engine_text(e));
  if (status == MACE_BUSY) return mace_fail(s, MACE_BUSY, "the run goes on; call mace_wait again");
  e->flight = -1;
  if (status) return mace_engine_report(s, task->device, task->part, status, NULL);
  take_outputs(s, task);
  return MACE_OK;
}

mace_status mace_engine_finish_copies(mace_session *s) {
  engine *e = s->engine;
  const int32_t device = e->copying;
  if (device < 0) return MACE_OK;
  e->copying = -1;
  const mace_status status = driver_of(s, device)->finish_copies(e->devices[device], mace_engine_text(e));
  return status ? mace_engine_report(s, device, -1, status, NULL) : MACE_OK;
}

void mace_engine_finish_quietly(mace_session *s) {
  engine *e = s->engine;
  const mace_text nowhere = {NULL, 0};
  if (e->copying >= 0) (void)driver_of(s, e->copying)->finish_copies(e->devices[e->copying], nowhere);
  e->copying = -1;
}

/* The side of a copy that lies in memory of a device, if one does. */
static const mace_place *remote_side(const mace_step *step) {
  return step->places[0].where == MACE_IN_SPACE ? &step->places[0] : &step->places[1];
}

int32_t mace_engine_device_of(const mace_session *s, const mace_step *step) {
  const mace_place *remote = remote_side(step);
  return remote->where == MACE_IN_SPACE ? s->model->plan->spaces[remote->index].device : -1;
}

mace_status mace_engine_run_copy(mace_session *s, const mace_step *step) {
  engine *e = s->engine;
  const mace_place *to = &step->places[0], *from = &step->places[1];
  const mace_place *local = remote_side(step) == to ? from : to;
  const int32_t device = mace_engine_device_of(s, step);
  mace_memory host;
  mace_binding sides[2];
  mace_status status;
  if (device >= 0 && is_port(local) && remote_of(s, device, port_of(s->model, local))) return MACE_OK;
  if (device < 0 || !MACE_HAS(driver_of(s, device), copy)) {
    __builtin_memcpy(address(s, to), address(s, from), step->bytes);
    return MACE_OK;
  }
  __builtin_memset(&host, 0, sizeof host);
  host.buffer.struct_bytes = sizeof host.buffer;
  host.buffer.bytes = step->bytes;
  for (int side = 0; side < 2; side++) {
    const mace_place *place = &step->places[side];
    const int local = place->where != MACE_IN_SPACE;
    if (local) host.buffer.host = address(s, place);
    sides[side].memory = local ? &host : &e->spaces[place->index].memory;
    sides[side].offset = local ? 0 : place->offset;
  }
  const mace_driver *driver = driver_of(s, device);
  if (overlaps(driver)) {
    status = driver->begin_copy(e->devices[device], sides[0], sides[1], step->bytes, mace_engine_text(e));
    e->copying = device; /* also after a failure: of those before it */
  } else {
    status = driver->copy(e->devices[device], sides[0], sides[1], step->bytes, mace_engine_text(e));
  }
  return status ? mace_engine_report(s, device, -1, status, NULL) : MACE_OK;
}

/* ---- buffers of the application ---- */

static void unbind(mace_session *s, int32_t port) {
  engine *e = s->engine;
  const mace_plan *plan = s->model->plan;
  for (int32_t i = 0; i < plan->device_count; i++)
    if (e->devices[i]) mace_engine_release(s, i, host_of(e, i, FIXED + e->ports + port));
  s->bound[port] = NULL;
}

/* Check a buffer against a need and the kinds that serve it, or are accepted anyway; record what does not
 * fit. */
static mace_status check_buffer(mace_session *s, int32_t port, const mace_buffer *buffer,
                                const mace_need *need, uint32_t accepted) {
  const uint32_t kinds = accepted | (need && need->kinds ? need->kinds : 1u << MACE_HOST);
  if ((uint32_t)buffer->kind > 31 || !(kinds >> buffer->kind & 1u))
    return mace_engine_report_kind(s, port, kinds);
  if (buffer->kind == MACE_HOST && !buffer->host)
    return mace_fail(s, MACE_REFUSED, "the buffer is MACE_HOST and has no address; set host");
  if (need && !mace_engine_meets(buffer, need))
    return mace_fail(
        s, MACE_REFUSED,
        "the device reads more bytes behind the tensor, or wants a higher alignment; give a larger buffer");
  return MACE_OK;
}

/* Whether a task uses a buffer of the port at its place i: in host memory, or a buffer of the device in place
 * of a tensor in its space. */
static int uses_buffer(const mace_session *s, const mace_task *task, int32_t i, int32_t port,
                       const mace_buffer *buffer) {
  if (is_port(&task->places[i])) return port_of(s->model, &task->places[i]) == port;
  return buffer->kind != MACE_HOST && port_in_space(task, i) == port;
}

/* Check a buffer of the application against all that use the port. owner: the device that made the buffer;
 * -1: none did. */
static mace_status check_users(mace_session *s, int32_t port, const mace_buffer *buffer, int32_t owner) {
  const mace_plan *plan = s->model->plan;
  int by_host = ((engine *)s->engine)->fallen || plan->host_ports[port] == 1;
  int32_t users = 0, user = -1;
  mace_status status = MACE_OK;
  /* Copies use the address of host memory; a buffer of the device makes them needless. */
  by_host |= plan->host_ports[port] == 2 && buffer->kind == MACE_HOST;
  if (by_host && !(owner >= 0 && buffer->host)) status = check_buffer(s, port, buffer, NULL, 0);
  for (int32_t t = 0; !status && !((engine *)s->engine)->fallen && t < plan->task_count; t++) {
    const mace_task *task = &plan->tasks[t];
    for (int32_t i = 0; !status && i < count_ports(task->payload); i++) {
      if (!uses_buffer(s, task, i, port, buffer)) continue;
      const uint32_t accepted = is_port(&task->places[i]) ? 0 : 1u << MACE_HOST;
      if (task->device != user) users++;
      user = task->device;
      if (user != owner) status = check_buffer(s, port, buffer, need_of(task->payload, i), accepted);
    }
  }
  if (!status && !users && buffer->kind != MACE_HOST) status = check_buffer(s, port, buffer, NULL, 0);
  if (status || !mace_has_fence(buffer)) return status;
  if (by_host || users != 1 || !(driver_of(s, user)->flags & MACE_FENCES) || !imports(driver_of(s, user)))
    return mace_fail(s, MACE_REFUSED,
                     "nothing at this port waits for a fence, or more than one device would; wait for it, "
                     "and give fence -1");
  return MACE_OK;
}

/* Bind a complete buffer, or none. */
static mace_status bind(mace_session *s, int32_t port, const mace_buffer *buffer, int32_t owner) {
  engine *e = s->engine;
  const mace_plan *plan = s->model->plan;
  mace_status status = buffer ? check_users(s, port, buffer, owner) : MACE_OK;
  held *h = NULL;
  if (status) return status;
  unbind(s, port);
  for (int32_t t = 0; buffer && !status && !e->fallen && t < plan->task_count; t++) {
    const mace_task *task = &plan->tasks[t];
    for (int32_t i = 0; !status && i < count_ports(task->payload); i++) {
      if (!uses_buffer(s, task, i, port, buffer)) continue;
      h = host_of(e, task->device, FIXED + e->ports + port);
      if (h->live) continue;
      __builtin_memset(h, 0, sizeof *h);
      h->memory.buffer = *buffer;
      status = mace_engine_import(s, task->device, need_of(task->payload, i), h);
    }
  }
  if (status) {
    unbind(s, port);
    return status;
  }
  /* A buffer without an address is known by the memory that imported it; only tasks use it. */
  if (buffer) s->bound[port] = buffer->host ? (char *)buffer->host + buffer->offset : (void *)h;
  return MACE_OK;
}

mace_status mace_engine_bind(mace_session *s, int32_t port, const mace_buffer *buffer) {
  mace_buffer whole;
  if (!buffer) return bind(s, port, NULL, -1);
  __builtin_memset(&whole, 0, sizeof whole);
  __builtin_memcpy(&whole, buffer, buffer->struct_bytes < sizeof whole ? buffer->struct_bytes : sizeof whole);
  whole.struct_bytes = sizeof whole;
  return bind(s, port, &whole, -1);
}

/* Make memory for a port: of its device, or the session's own that was imported when it was opened. */
static mace_status make_owned(mace_session *s, int32_t port, int32_t device, const mace_need *need) {
  engine *e = s->engine;
  const mace_driver *driver = driver_of(s, device);
  held *own = &e->owned[port];
  mace_status status;
  __builtin_memset(own, 0, sizeof *own);
  if (!allocates(driver)) {
    own->memory.buffer = host_of(e, device, FIXED + port)->memory.buffer;
    own->live = 1;
    return MACE_OK;
  }
  status = driver->allocate(e->devices[device], need, &own->memory.buffer, mace_engine_text(e));
  if (status) return mace_engine_report(s, device, -1, status, NULL);
  own->live = own->allocated = 1;
  own->memory.buffer.fence = -1;
  if (mace_engine_meets(&own->memory.buffer, need)) return MACE_OK;
  mace_engine_release(s, device, own);
  return mace_engine_report(
      s, device, -1, MACE_FAILED,
      "it allocated fewer bytes or a lower alignment than it was asked for; report this to its author");
}

/* Bind the session's own memory, which was imported when it was opened: no run copies what lies there
 * already. */
static void bind_staging(mace_session *s, int32_t port, void *at) {
  unbind(s, port);
  s->bound[port] = at;
}

mace_status mace_engine_allocate(mace_session *s, int32_t port, mace_buffer *buffer) {
  engine *e = s->engine;
  mace_need need;
  const int32_t device = mace_engine_join_needs(s->model, port, &need);
  const uint32_t struct_bytes = buffer->struct_bytes;
  held *own = &e->owned[port];
  mace_status status = MACE_OK;
  if (e->fallen || device < 0)
    return mace_fail(s, MACE_REFUSED,
                     "no device uses the port directly; pass the address of any memory to mace_run");
  if (!own->live) status = make_owned(s, port, device, &need);
  if (status) return status;
  if (own->allocated)
    status = bind(s, port, &own->memory.buffer, device);
  else
    bind_staging(s, port, own->memory.buffer.host);
  if (status) {
    mace_engine_release(s, device, own);
    return status;
  }
  __builtin_memcpy(buffer, &own->memory.buffer,
                   struct_bytes < sizeof *buffer ? struct_bytes : sizeof *buffer);
  buffer->struct_bytes = struct_bytes;
  return MACE_OK;
}
