/* mace_engine.h - what the files of the engine share; private to it. */
#ifndef MACE_ENGINE_H
#define MACE_ENGINE_H

#include "driver.h"
#include "mace.h"

#ifndef MACE_TEXT_BYTES
#define MACE_TEXT_BYTES 256 /* of each of three texts in a session */
#endif

enum { ARENA, STATES, WEIGHTS, FIXED }; /* host memories besides the ports' */

/* Memory that a device may use, and how far it got. */
typedef struct held {
  mace_memory memory;
  uint8_t live, imported, allocated;
} held;

typedef struct engine {
  size_t bytes;          /* of all that follows */
  mace_device **devices; /* NULL: not open */
  mace_loaded **loaded;  /* by task; NULL: not loaded */
  void **device_memory, **task_memory;
  held *spaces;
  held *hosts; /* by device: arena, states, weights, then the staging memory of each port, then what is bound
                  to it */
  void **staging;         /* by port, NULL where no task has it */
  held *owned;            /* by port: what mace_allocate made */
  mace_binding *bindings; /* of the task that runs */
  int32_t ports;
  int32_t step;   /* of the run: the next one */
  int32_t flight; /* task that was submitted and has not ended; -1: none */
  int32_t copying; /* device whose copies were begun and not finished; -1: none */
  uint64_t layer_ns; /* that a device took for the layer that is observed */
  uint8_t fallen, powered;
  uint8_t recompiled; /* what the library has compiled fits no part of this device */
  char error[MACE_TEXT_BYTES + 1], text[MACE_TEXT_BYTES + 1], device[MACE_TEXT_BYTES + 1];
} engine;

static inline size_t round_up(size_t value, size_t step) {
  return step > 1 ? (value + step - 1) / step * step : value;
}

static inline int is_port(const mace_place *place) {
  return place->where == MACE_IN_INPUT || place->where == MACE_IN_OUTPUT;
}

static inline int32_t port_of(const mace_model *model, const mace_place *place) {
  return place->where == MACE_IN_INPUT ? place->index : model->input_count + place->index;
}

static inline int32_t count_ports(const mace_payload *payload) {
  return payload->inputs + payload->outputs + (payload->scratch.bytes ? 1 : 0);
}

static inline const mace_need *need_of(const mace_payload *payload, int32_t port) {
  return port < payload->inputs + payload->outputs ? &payload->ports[port] : &payload->scratch;
}

/* The port of the model whose tensor a task has in a space at its port i; -1: none. */
static inline int32_t port_in_space(const mace_task *task, int32_t i) {
  const int32_t tensors = task->payload->inputs + task->payload->outputs;
  return task->model_ports && i < tensors && task->places[i].where == MACE_IN_SPACE ? task->model_ports[i] : -1;
}

/* The tensor's bytes of the port that a place names. */
static inline size_t port_bytes(const mace_model *model, const mace_place *place) {
  return place->where == MACE_IN_INPUT ? model->inputs[place->index].bytes
                                       : model->outputs[place->index].bytes;
}

static inline held *host_of(engine *e, int32_t device, int32_t number) {
  return &e->hosts[(size_t)device * (size_t)(FIXED + 2 * e->ports) + (size_t)number];
}

static inline const mace_driver *driver_of(const mace_session *s, int32_t device) {
  return s->model->plan->drivers[device];
}

static inline int imports(const mace_driver *driver) {
  return MACE_HAS(driver, import) && MACE_HAS(driver, release);
}
static inline int allocates(const mace_driver *driver) {
  return MACE_HAS(driver, allocate) && MACE_HAS(driver, free);
}
static inline int submits(const mace_driver *driver) {
  return MACE_HAS(driver, submit) && MACE_HAS(driver, wait);
}
static inline int overlaps(const mace_driver *driver) {
  return MACE_HAS(driver, begin_copy) && MACE_HAS(driver, finish_copies);
}
static inline int notifies(const mace_driver *driver) { return MACE_HAS(driver, notify); }
static inline int compiles(const mace_driver *driver) {
  return MACE_HAS(driver, compile) && MACE_HAS(driver, restore) && MACE_HAS(driver, save);
}

/* Import memory for a device; drivers without `import` use it as it is. Records the failure. */
mace_status mace_engine_import(mace_session *session, int32_t device, const mace_need *need, held *h);

/* Give back what was imported and allocated. */
void mace_engine_release(const mace_session *session, int32_t device, held *h);

/* Import memory that the CPU can address, `bytes` bytes at `at`. Records the failure. */
mace_status mace_engine_import_host(mace_session *session, int32_t device, const mace_need *need, held *h,
                                    void *at, size_t bytes);

/* Give back everything that was opened; lost: without asking a device for anything more. */
void mace_engine_close_all(mace_session *session, int lost);

/* Let the CPU compute from now on; the devices are closed. */
mace_status mace_engine_fall_back(mace_session *session);

/* Whether the CPU may compute in the devices' place after a failure at this time. */
int mace_engine_may_fall_back(const mace_session *session, mace_status status, mace_fallback when);

/* Drop what was asked of the devices' power. */
void mace_engine_rest(mace_session *session);

/* As mace_run, mace_submit and mace_wait, for the sample that the frame points to. wait leaves the phase
 * MACE_RUNNING, and answers MACE_BUSY, where a part goes on. */
mace_status mace_engine_run(mace_session *session);
mace_status mace_engine_submit(mace_session *session);
mace_status mace_engine_wait(mace_session *session, uint32_t timeout_ms);

/* Run a part on its device, or only start that. Records the failure. */
mace_status mace_engine_run_task(mace_session *session, int32_t task, int submit);

/* Wait for the part in flight; MACE_BUSY if it stays in flight. Records the failure. */
mace_status mace_engine_wait_task(mace_session *session, uint32_t timeout_ms);

/* Let a device compile a part, or load what it compiled before from the application's cache. Records the
 * failure. */
mace_status mace_engine_compile(mace_session *session, int32_t task);

/* Copy a tensor from one memory space to another, or only begin that. Records the failure. */
mace_status mace_engine_run_copy(mace_session *session, const mace_step *step);

/* The device whose memory a copy touches; -1: none. */
int32_t mace_engine_device_of(const mace_session *session, const mace_step *step);

/* Wait for the copies that were begun. Records the failure; quietly: without that, after another one. */
mace_status mace_engine_finish_copies(mace_session *session);
void mace_engine_finish_quietly(mace_session *session);

/* As mace_bind and mace_allocate. */
mace_status mace_engine_bind(mace_session *session, int32_t port, const mace_buffer *buffer);
mace_status mace_engine_allocate(mace_session *session, int32_t port, mace_buffer *buffer);

/* All that tasks want of a port's memory, the device of the first of them; -1, and no bytes, if none has the
 * port. */
int32_t mace_engine_join_needs(const mace_model *model, int32_t port, mace_need *joined);

/* Whether a buffer's address, size and bytes behind it meet a need. */
int mace_engine_meets(const mace_buffer *buffer, const mace_need *need);

/* NULL if the engine can call the driver; else what is wrong with it. */
const char *mace_engine_refuse(const mace_driver *driver);

/* Bytes in front of the engine's: a fallback uses the same memory. */
size_t mace_engine_front(const mace_model *model, const mace_config *config);

/* Lay out the engine's memory at base; with base NULL, only count it. */
size_t mace_engine_lay_out(const mace_model *model, char *base);

/* Add a text at `at`, cut off at `end`; returns where the next begins. */
char *mace_engine_append(char *at, const char *end, const char *text);

/* Where a driver writes what went wrong; empty before. */
mace_text mace_engine_text(engine *e);

/* Record a failure of a device, or of a part on it if part is not negative; text NULL: what the driver wrote.
 */
mace_status mace_engine_report(mace_session *session, int32_t device, int32_t part, mace_status status,
                               const char *text);

/* Record that a device wants more of a port than the build planned. */
mace_status mace_engine_report_need(mace_session *session, const mace_task *task, int32_t port,
                                    const mace_need *wanted);

/* Record that a port does not take the kind of a buffer, and which ones it takes. */
mace_status mace_engine_report_kind(mace_session *session, int32_t port, uint32_t kinds);

#endif
