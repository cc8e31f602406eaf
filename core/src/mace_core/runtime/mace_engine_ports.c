/* mace_engine_ports.c - the steps of a run that touch memory of devices, and buffers that are bound to ports; see mace_engine.c. */
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

/* Whether a port's buffer of the application is bound to the device and used in this run. */
static held *bound_to(mace_session *s, int32_t device, const mace_place *place) {
  engine *e = s->engine;
  const int32_t port = port_of(s->model, place);
  const void *used = place->where == MACE_IN_INPUT ? s->frame.in[place->index] : s->frame.out[place->index];
  held *h = host_of(e, device, FIXED + e->ports + port);
  return h->live && used == s->bound[port] ? h : NULL;
}

mace_status mace_engine_run_task(mace_session *s, int32_t t) {
  engine *e = s->engine;
  const mace_model *model = s->model;
  const mace_task *task = &model->plan->tasks[t];
  const mace_payload *payload = task->payload;
  mace_status status;
  for (int32_t i = 0; i < count_ports(payload); i++) {
    const mace_place *place = &task->places[i];
    held *h;
    if (place->where == MACE_IN_SPACE) {
      h = &e->spaces[place->index];
    } else if (!is_port(place)) {
      h = host_of(e, task->device, place->where == MACE_IN_ARENA ? ARENA : place->where == MACE_IN_STATES ? STATES : WEIGHTS);
    } else if (!(h = bound_to(s, task->device, place))) {
      h = host_of(e, task->device, FIXED + port_of(model, place));
      if (i < payload->inputs) __builtin_memcpy(h->memory.buffer.host, address(s, place), port_bytes(model, place));
    }
    e->bindings[i].memory = &h->memory;
    e->bindings[i].offset = place->offset;
  }
  status = driver_of(s, task->device)->run(e->loaded[t], e->bindings, s->config.timeout_ms, mace_engine_text(e));
  if (status) return mace_engine_report(s, task->device, task->part, status, NULL);
  for (int32_t i = payload->inputs; i < payload->inputs + payload->outputs; i++) {
    const mace_place *place = &task->places[i];
    if (is_port(place) && !bound_to(s, task->device, place))
      __builtin_memcpy(address(s, place), host_of(e, task->device, FIXED + port_of(model, place))->memory.buffer.host, port_bytes(model, place));
  }
  return MACE_OK;
}

mace_status mace_engine_run_copy(mace_session *s, const mace_step *step) {
  engine *e = s->engine;
  const mace_place *to = &step->places[0], *from = &step->places[1];
  const mace_place *remote = to->where == MACE_IN_SPACE ? to : from;
  const int32_t device = remote->where == MACE_IN_SPACE ? s->model->plan->spaces[remote->index].device : -1;
  mace_memory host;
  mace_binding sides[2];
  mace_status status;
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
  status = driver_of(s, device)->copy(e->devices[device], sides[0], sides[1], step->bytes, mace_engine_text(e));
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

/* Check a buffer against a need and the kinds that serve it; record what does not fit. */
static mace_status check_buffer(mace_session *s, int32_t port, const mace_buffer *buffer, const mace_need *need) {
  const uint32_t kinds = need && need->kinds ? need->kinds : 1u << MACE_HOST;
  if ((uint32_t)buffer->kind > 31 || !(kinds >> buffer->kind & 1u)) return mace_engine_report_kind(s, port, kinds);
  if (buffer->kind == MACE_HOST && !buffer->host)
    return mace_fail(s, MACE_REFUSED, "the buffer is MACE_HOST and has no address; set host");
  if (need && !mace_engine_meets(buffer, need))
    return mace_fail(s, MACE_REFUSED, "the device reads more bytes behind the tensor, or wants a higher alignment; give a larger buffer");
  return MACE_OK;
}

mace_status mace_engine_bind(mace_session *s, int32_t port, const mace_buffer *buffer) {
  engine *e = s->engine;
  const mace_model *model = s->model;
  const mace_plan *plan = model->plan;
  mace_status status = MACE_OK;
  held *h = NULL;
  if (buffer && (e->fallen || plan->host_ports[port])) status = check_buffer(s, port, buffer, NULL);
  for (int32_t t = 0; buffer && !status && !e->fallen && t < plan->task_count; t++)
    for (int32_t i = 0; !status && i < count_ports(plan->tasks[t].payload); i++)
      if (is_port(&plan->tasks[t].places[i]) && port_of(model, &plan->tasks[t].places[i]) == port)
        status = check_buffer(s, port, buffer, need_of(plan->tasks[t].payload, i));
  if (status) return status;
  unbind(s, port);
  for (int32_t t = 0; buffer && !status && !e->fallen && t < plan->task_count; t++) {
    const mace_task *task = &plan->tasks[t];
    for (int32_t i = 0; !status && i < count_ports(task->payload); i++) {
      if (!is_port(&task->places[i]) || port_of(model, &task->places[i]) != port) continue;
      h = host_of(e, task->device, FIXED + e->ports + port);
      if (h->live) continue;
      __builtin_memset(h, 0, sizeof *h);
      __builtin_memcpy(&h->memory.buffer, buffer, buffer->struct_bytes < sizeof *buffer ? buffer->struct_bytes : sizeof *buffer);
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
