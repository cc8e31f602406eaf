/* mace_engine.h - what the two halves of the engine share; private to it. */
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
  size_t bytes;           /* of all that follows */
  mace_device **devices;  /* NULL: not open */
  mace_loaded **loaded;   /* by task; NULL: not loaded */
  void **device_memory, **task_memory;
  held *spaces;
  held *hosts;            /* by device: arena, states, weights, then the staging memory of each port, then what is bound to it */
  void **staging;         /* by port, NULL where no task has it */
  mace_binding *bindings; /* of the task that runs */
  int32_t ports;
  uint8_t fallen, powered;
  char error[MACE_TEXT_BYTES + 1], text[MACE_TEXT_BYTES + 1], device[MACE_TEXT_BYTES + 1];
} engine;

static inline size_t round_up(size_t value, size_t step) { return step > 1 ? (value + step - 1) / step * step : value; }

static inline int is_port(const mace_place *place) { return place->where == MACE_IN_INPUT || place->where == MACE_IN_OUTPUT; }

static inline int32_t port_of(const mace_model *model, const mace_place *place) {
  return place->where == MACE_IN_INPUT ? place->index : model->input_count + place->index;
}

static inline int32_t count_ports(const mace_payload *payload) {
  return payload->inputs + payload->outputs + (payload->scratch.bytes ? 1 : 0);
}

static inline const mace_need *need_of(const mace_payload *payload, int32_t port) {
  return port < payload->inputs + payload->outputs ? &payload->ports[port] : &payload->scratch;
}

/* The tensor's bytes of the port that a place names. */
static inline size_t port_bytes(const mace_model *model, const mace_place *place) {
  return place->where == MACE_IN_INPUT ? model->inputs[place->index].bytes : model->outputs[place->index].bytes;
}

static inline held *host_of(engine *e, int32_t device, int32_t number) {
  return &e->hosts[(size_t)device * (size_t)(FIXED + 2 * e->ports) + (size_t)number];
}

static inline const mace_driver *driver_of(const mace_session *s, int32_t device) { return s->model->plan->drivers[device]; }

static inline int imports(const mace_driver *driver) { return MACE_HAS(driver, import) && MACE_HAS(driver, release); }
static inline int allocates(const mace_driver *driver) { return MACE_HAS(driver, allocate) && MACE_HAS(driver, free); }

/* Import memory for a device; drivers without `import` use it as it is. Records the failure. */
mace_status mace_engine_import(mace_session *session, int32_t device, const mace_need *need, held *h);

/* Give back what was imported and allocated. */
void mace_engine_release(const mace_session *session, int32_t device, held *h);

/* Run a part on its device. Records the failure. */
mace_status mace_engine_run_task(mace_session *session, int32_t task);

/* Copy a tensor from one memory space to another. Records the failure. */
mace_status mace_engine_run_copy(mace_session *session, const mace_step *step);

/* As mace_bind. */
mace_status mace_engine_bind(mace_session *session, int32_t port, const mace_buffer *buffer);

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

/* Record a failure of a device, or of a part on it if part is not negative; text NULL: what the driver wrote. */
mace_status mace_engine_report(mace_session *session, int32_t device, int32_t part, mace_status status, const char *text);

/* Record that a device wants more of a port than the build planned. */
mace_status mace_engine_report_need(mace_session *session, const mace_task *task, int32_t port, const mace_need *wanted);

/* Record that a port does not take the kind of a buffer, and which ones it takes. */
mace_status mace_engine_report_kind(mace_session *session, int32_t port, uint32_t kinds);

#endif
