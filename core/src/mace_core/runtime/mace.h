/* mace.h - what every generated library has in common: types, and inline functions that run a model. Nothing
 * here needs linking.
 *
 *   const mace_model *model = vision_model("digits");     // vision.h, generated
 *   size_t bytes = mace_session_bytes(model, NULL);
 *   void *memory = aligned_alloc(MACE_ALIGNMENT, bytes);  // the application's: on the heap or static
 *   mace_session *session;
 *   if (mace_open(model, NULL, memory, bytes, &session)) puts(mace_error(session));
 *   const void *inputs[] = {image};
 *   void *outputs[] = {scores};
 *   if (mace_run(session, inputs, outputs)) puts(mace_error(session));
 *   mace_close(session);
 *   free(memory);
 *
 * A model is constant; all that changes lies in a session, in memory of the application. Nothing else is
 * allocated, but by drivers of devices that say so. Threads may run one model at a time if each has a
 * session; two threads in one session get MACE_BUSY.
 */
#ifndef MACE_H
#define MACE_H

#include "mace_types.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef enum mace_phase { MACE_CLOSED, MACE_OPEN, MACE_NEEDS_RESET, MACE_DEAD, MACE_RUNNING } mace_phase;

/* A model at work. All members are private; they stand here for the inline functions. */
struct mace_session {
  const mace_model *model;
  const char *error;
  mace_config config; /* the application's, complete */
  mace_frame frame;
  mace_phase phase;
  uint32_t busy;
  size_t bytes;        /* of the memory, from this header on */
  const void **inputs; /* of the sample that is computed */
  void **outputs;
  void **bound; /* by port, inputs first: where the bound buffer's tensor begins; NULL: none is bound */
  void *engine; /* private to the engine */
  int32_t levels[MACE_MAX_TABLES];
  void (*notify)(void *context);
  void *notified; /* its context */
};

#define MACE_ROUND_UP(bytes) (((size_t)(bytes) + MACE_ALIGNMENT - 1) / MACE_ALIGNMENT * MACE_ALIGNMENT)

/* Bytes of a session of a model without drivers: ports (inputs and outputs), bytes of its states, arena,
 * workers' memory, and tensors for fast memory where none is given. For static memory, which must be aligned to MACE_ALIGNMENT; the library's header has the
 * number for each model and one thread. */
#define MACE_SESSION_BYTES(ports, bytes) \
  (MACE_ROUND_UP(sizeof(mace_session)) + MACE_ROUND_UP(2 * (ports) * sizeof(void *)) + (size_t)(bytes))

/* Private: record a failure. */
static inline mace_status mace_fail(mace_session *session, mace_status status, const char *text) {
  session->error = text;
  return status;
}

/* Private: the configuration with all members that this header knows. */
static inline mace_config mace_complete(const mace_config *config) {
  mace_config complete;
  __builtin_memset(&complete, 0, sizeof complete);
  if (config)
    __builtin_memcpy(&complete, config,
                     config->struct_bytes < sizeof complete ? config->struct_bytes : sizeof complete);
  complete.struct_bytes = sizeof complete;
  return complete;
}

/* Private: bytes of a session but for those of an engine. */
static inline size_t mace_host_bytes(const mace_model *model, const mace_config *complete) {
  const int32_t workers =
      complete->threads && complete->threads->workers > 1 ? complete->threads->workers : 1;
  const size_t ports = (size_t)model->input_count + (size_t)model->output_count;
  const size_t fast = complete->fast_memory ? 0 : model->fast_bytes;
  return MACE_SESSION_BYTES(
      ports, model->state_bytes + model->arena_bytes + model->worker_bytes * (size_t)workers + fast);
}

/* Bytes of memory that a session needs; 0 for a model that is NULL or of another ABI. config may be NULL;
 * give mace_open the same one. */
static inline size_t mace_session_bytes(const mace_model *model, const mace_config *config) {
  mace_config complete;
  if (!model || model->abi != MACE_ABI) return 0;
  complete = mace_complete(config);
  return model->engine ? model->engine->bytes(model, &complete) : mace_host_bytes(model, &complete);
}

/* Private: give every state its start value. */
static inline void mace_start_states(mace_session *session, const mace_model *model) {
  int32_t i;
  for (i = 0; i < model->state_count; i++) {
    const mace_state *state = &model->states[i];
    if (state->start)
      __builtin_memcpy(session->frame.states + state->offset, state->start, state->tensor.bytes);
    else
      __builtin_memset(session->frame.states + state->offset, 0, state->tensor.bytes);
  }
}

/* Private: where the tensors for fast memory lie, at `rest` where the application has none; NULL if what it has
 * cannot hold them. */
static inline char *mace_place_fast(const mace_model *model, const mace_config *config, char *rest) {
  if (!config->fast_memory) return rest;
  if ((uintptr_t)config->fast_memory % MACE_ALIGNMENT || config->fast_bytes < model->fast_bytes) return NULL;
  return (char *)config->fast_memory;
}

/* Private: lay out the memory behind the header for a model, and choose its kernels; MACE_REFUSED where the
 * environment names a level that is not there, or fast memory does not suffice. */
static inline mace_status mace_prepare(mace_session *session, const mace_model *model) {
  const size_t ports = (size_t)model->input_count + (size_t)model->output_count;
  const mace_threads *const threads = session->config.threads;
  char *at = (char *)session + MACE_ROUND_UP(sizeof(mace_session));
  const char *error;
  session->inputs = (const void **)(void *)at;
  session->outputs = (void **)(void *)at + model->input_count;
  session->bound = (void **)(void *)at + ports;
  at += MACE_ROUND_UP(2 * ports * sizeof(void *));
  session->frame.states = at;
  session->frame.arena = at + model->state_bytes;
  session->frame.workers.scratch = session->frame.arena + model->arena_bytes;
  session->frame.workers.worker_bytes = model->worker_bytes;
  session->frame.workers.threads = threads;
  at = session->frame.workers.scratch;
  at += model->worker_bytes * (size_t)(threads && threads->workers > 1 ? threads->workers : 1);
  session->frame.fast = mace_place_fast(model, &session->config, at);
  if (!session->frame.fast)
    return mace_fail(session, MACE_REFUSED,
                     "mace_config.fast_memory is too small or not aligned; give mace_model.fast_bytes, aligned to "
                     "MACE_ALIGNMENT, or NULL");
  session->frame.in = session->inputs;
  session->frame.out = session->outputs;
  session->frame.levels = session->levels;
  error = model->choose(session->levels);
  if (error) return mace_fail(session, MACE_REFUSED, error);
  mace_start_states(session, model);
  session->phase = MACE_OPEN;
  return MACE_OK;
}

/* Open a session of a model in `bytes` bytes of memory, which the application keeps until mace_close and then
 * has back.
 *
 * config may be NULL; what it points to must stay valid until mace_close. Memory that is not aligned to
 * MACE_ALIGNMENT is used from the next aligned address on. Opens devices, loads what the model has for them,
 * and chooses kernels for this processor: those of its best level, or of the one that the environment variable
 * MACE_CPU_LEVEL names, where there is an environment.
 *
 * Errors: MACE_NO_MODEL, MACE_OTHER_ABI, MACE_NO_MEMORY, MACE_REFUSED for a configuration that cannot be
 * used, or a level in MACE_CPU_LEVEL that the library or the processor lacks; of drivers MACE_NO_DEVICE, MACE_STALE, MACE_LOST, MACE_TIMEOUT, MACE_FAILED. On failure *session
 * serves mace_error and mace_close all the same; it is NULL if the memory does not even hold the header. */
static inline mace_status mace_open(const mace_model *model, const mace_config *config, void *memory,
                                    size_t bytes, mace_session **session) {
  const size_t skipped = (MACE_ALIGNMENT - (uintptr_t)memory % MACE_ALIGNMENT) % MACE_ALIGNMENT;
  mace_session *s;
  size_t ports;
  *session = NULL;
  if (!memory || bytes < skipped || bytes - skipped < sizeof(mace_session)) return MACE_NO_MEMORY;
  *session = s = (mace_session *)(void *)((char *)memory + skipped);
  __builtin_memset(s, 0, sizeof *s);
  s->error = "";
  s->bytes = bytes - skipped;
  if (!model)
    return mace_fail(s, MACE_NO_MODEL, "the model is NULL; ask the library for a name that it holds");
  if (model->abi != MACE_ABI)
    return mace_fail(s, MACE_OTHER_ABI,
                     "the library was built with another mace.h; build library and application again");
  if (config && !config->struct_bytes)
    return mace_fail(s, MACE_REFUSED, "mace_config.struct_bytes is 0; set it to sizeof(mace_config)");
  s->config = mace_complete(config);
  if (mace_session_bytes(model, &s->config) > s->bytes)
    return mace_fail(s, MACE_NO_MEMORY,
                     "the memory is too small; give mace_session_bytes, aligned to MACE_ALIGNMENT");
  s->model = model;
  ports = (size_t)model->input_count + (size_t)model->output_count;
  /* Nothing is bound. */
  __builtin_memset((char *)s + MACE_ROUND_UP(sizeof *s), 0, 2 * ports * sizeof(void *));
  if (model->engine) return model->engine->open(s);
  if (s->config.options && *s->config.options)
    return mace_fail(s, MACE_REFUSED,
                     "mace_config.options is set, and the model uses no driver; leave it NULL");
  return mace_prepare(s, model);
}

/* Private: set bits of `busy`: 1, a thread has the session; 2, that thread is to notify when it leaves it.
 * Returns the bits before. Processors without atomic operations have no threads. */
static inline uint32_t mace_set_busy(mace_session *session, uint32_t bits) {
#if defined(__GCC_ATOMIC_INT_LOCK_FREE) && __GCC_ATOMIC_INT_LOCK_FREE == 2
  return __atomic_fetch_or(&session->busy, bits, __ATOMIC_ACQUIRE);
#else
  const uint32_t busy = session->busy;
  session->busy |= bits;
  return busy;
#endif
}

/* Private: claim the session for this thread; 0 if another has it. */
static inline int mace_claim(mace_session *session) { return !(mace_set_busy(session, 1u) & 1u); }

/* Private: end what mace_claim began, and notify where that was put off. */
static inline mace_status mace_yield(mace_session *session, mace_status status) {
  /* Read before another thread can have the session. A run that has ended notifies nobody: who ended it knows. */
  void (*const notify)(void *) = session->phase == MACE_RUNNING ? session->notify : NULL;
  void *const context = session->notified;
  uint32_t busy;
#if defined(__GCC_ATOMIC_INT_LOCK_FREE) && __GCC_ATOMIC_INT_LOCK_FREE == 2
  busy = __atomic_exchange_n(&session->busy, 0u, __ATOMIC_RELEASE);
#else
  busy = session->busy;
  session->busy = 0;
#endif
  if (busy & 2u && notify) notify(context);
  return status;
}

/* Private: whether a run may begin. */
static inline mace_status mace_ready(mace_session *session) {
  if (session->phase == MACE_OPEN) return MACE_OK;
  if (session->phase == MACE_DEAD) return MACE_LOST; /* the text of the loss stays */
  if (session->phase == MACE_RUNNING)
    return mace_fail(session, MACE_BUSY, "a run was submitted and has not ended; call mace_wait");
  if (session->phase == MACE_NEEDS_RESET)
    return mace_fail(session, MACE_REFUSED, "a run failed and left the states undefined; call mace_reset");
  return mace_fail(session, MACE_REFUSED, "the session is not open; call mace_open, and heed its status");
}

/* Private: the pointers of one sample; MACE_NO_TENSOR if one is missing. */
static inline mace_status mace_point(mace_session *session, size_t sample, const void *const *inputs,
                                     void *const *outputs) {
  const mace_model *model = session->model;
  void **bound = sample ? NULL : session->bound; /* a bound buffer holds one sample */
  int32_t i;
  for (i = 0; i < model->input_count; i++) {
    const char *given = inputs ? (const char *)inputs[i] : NULL;
    session->inputs[i] = given ? given + model->inputs[i].bytes * sample : bound ? bound[i] : NULL;
    if (!session->inputs[i] && model->inputs[i].bytes)
      return mace_fail(session, MACE_NO_TENSOR,
                       "an input is NULL; pass the address of its values, or bind a buffer");
  }
  for (i = 0; i < model->output_count; i++) {
    char *given = outputs ? (char *)outputs[i] : NULL;
    session->outputs[i] = given   ? given + model->outputs[i].bytes * sample
                          : bound ? bound[model->input_count + i]
                                  : NULL;
    if (!session->outputs[i] && model->outputs[i].bytes)
      return mace_fail(session, MACE_NO_TENSOR,
                       "an output is NULL; pass the address of its memory, or bind a buffer");
  }
  return MACE_OK;
}

/* Private: end a run: the states have their new values, or no defined ones if it failed. */
static inline mace_status mace_finish(mace_session *session, mace_status status) {
  const mace_model *model = session->model;
  int32_t i;
  if (status && session->phase == MACE_OPEN && model->state_count) session->phase = MACE_NEEDS_RESET;
  for (i = 0; !status && i < model->state_count; i++) {
    const mace_state *state = &model->states[i];
    __builtin_memcpy(session->frame.states + state->offset, session->frame.states + state->next,
                     state->tensor.bytes);
  }
  return status;
}

/* Private: compute one sample. */
static inline mace_status mace_run_sample(mace_session *session, size_t sample, const void *const *inputs,
                                          void *const *outputs) {
  const mace_model *model = session->model;
  mace_status status = mace_point(session, sample, inputs, outputs);
  if (status) return status;
  if (model->engine)
    status = model->engine->run(session);
  else
    model->run(&session->frame);
  return mace_finish(session, status);
}

/* Compute the outputs from the inputs, which must not overlap; each as described by model->inputs and
 * model->outputs.
 *
 * inputs, outputs: one address for each; NULL stands for the buffer that is bound there. All stays the
 * application's. Errors: MACE_NO_TENSOR, MACE_BUSY, MACE_REFUSED before anything is computed; of drivers
 * MACE_LOST, MACE_TIMEOUT, MACE_FAILED, after which the outputs are undefined. A model with states that
 * failed so is refused until mace_reset. */
static inline mace_status mace_run(mace_session *session, const void *const *inputs, void *const *outputs) {
  mace_status status;
  if (!session) return MACE_REFUSED;
  if (!mace_claim(session)) return MACE_BUSY;
  status = mace_ready(session);
  if (!status) {
    session->error = "";
    status = mace_run_sample(session, 0, inputs, outputs);
  }
  return mace_yield(session, status);
}

/* Compute several samples, one after another; each address is that of the first sample's values, behind which
 * the others' follow.
 *
 * Errors as of mace_run; MACE_REFUSED for a negative number, and for a model with states, whose runs depend
 * on each other. It ends at the first failure. */
static inline mace_status mace_run_batch(mace_session *session, int32_t samples, const void *const *inputs,
                                         void *const *outputs) {
  mace_status status;
  int32_t sample;
  if (!session) return MACE_REFUSED;
  if (!mace_claim(session)) return MACE_BUSY;
  status = mace_ready(session);
  if (!status) session->error = "";
  if (!status && samples < 0)
    status = mace_fail(session, MACE_REFUSED, "the number of samples is negative; give 0 or more");
  if (!status && session->model->state_count)
    status = mace_fail(session, MACE_REFUSED,
                       "the model has states; call mace_run for each step of each sequence");
  for (sample = 0; !status && sample < samples; sample++)
    status = mace_run_sample(session, (size_t)sample, inputs, outputs);
  return mace_yield(session, status);
}

/* Start a run and return while a device computes; mace_wait ends it. Until then inputs and outputs stay as
 * they are, and every other call but mace_error, mace_part_device and mace_close answers MACE_BUSY: one run
 * is in flight for a session.
 *
 * It computes all that comes before the first part whose driver can run by itself. A model without such a
 * part, as every model for the CPU alone, is computed here completely, and mace_wait returns at once. Errors:
 * as of mace_run; after them nothing is in flight. */
static inline mace_status mace_submit(mace_session *session, const void *const *inputs,
                                      void *const *outputs) {
  const mace_engine *engine;
  mace_status status;
  if (!session) return MACE_REFUSED;
  if (!mace_claim(session)) return MACE_BUSY;
  status = mace_ready(session);
  if (status) return mace_yield(session, status);
  session->error = "";
  status = mace_point(session, 0, inputs, outputs);
  if (status) return mace_yield(session, status);
  engine = session->model->engine;
  /* Who computes everything here also notifies; an engine knows whether a device goes on. */
  if (!engine || !MACE_HAS(engine, submit)) mace_set_busy(session, 2u);
  if (!engine)
    session->model->run(&session->frame);
  else
    status = MACE_HAS(engine, submit) ? engine->submit(session) : engine->run(session);
  if (status)
    mace_finish(session, status);
  else
    session->phase = MACE_RUNNING;
  return mace_yield(session, status);
}

/* End the run that mace_submit started: MACE_OK, and the outputs are there; MACE_BUSY if it goes on after
 * timeout_ms.
 *
 * The parts behind the one in flight, and the work of the CPU between them, are computed in here. timeout_ms
 * bounds the wait for each of these parts: 0 asks without waiting, MACE_FOREVER waits until the end. Errors:
 * MACE_REFUSED if nothing is in flight; as of mace_run, MACE_TIMEOUT after mace_config.timeout_ms among them,
 * and then nothing is in flight any more. */
static inline mace_status mace_wait(mace_session *session, uint32_t timeout_ms) {
  const mace_engine *engine;
  mace_status status = MACE_OK;
  if (!session) return MACE_REFUSED;
  if (!mace_claim(session)) return MACE_BUSY;
  if (session->phase != MACE_RUNNING) {
    status = mace_ready(session);
    if (!status) status = mace_fail(session, MACE_REFUSED, "no run is in flight; call mace_submit");
    return mace_yield(session, status);
  }
  session->error = "";
  engine = session->model->engine;
  if (engine && MACE_HAS(engine, wait))
    status = engine->wait(session, timeout_ms);
  else
    session->phase = MACE_OPEN;
  if (session->phase != MACE_RUNNING) status = mace_finish(session, status);
  return mace_yield(session, status);
}

/* Have `notify` called each time when mace_wait has something to do: when the part that is in flight has ended;
 * at the end of mace_submit where nothing is in flight. NULL ends that. So no thread has to wait for a device:
 *
 *   static void notify(void *context) { sem_post(context); }
 *
 *   mace_notify(session, notify, &semaphore);
 *   mace_submit(session, inputs, outputs);
 *   do sem_wait(&semaphore);                                // or in the loop that handles all events
 *   while ((status = mace_wait(session, 0)) == MACE_BUSY);  // busy: another part is in flight
 *
 * notify is called by a thread of the driver, or by the thread that is in a call of the session, behind that
 * call: mace_wait does not answer MACE_BUSY because of it. It must return soon and must call no function of
 * the session: a driver waits for it. Nobody is notified of a run that a thread in mace_wait has ended in the
 * meantime, nor after mace_close. Without effect while a run is in flight: set it before. A part whose
 * driver cannot notify is computed in mace_submit or mace_wait. */
static inline void mace_notify(mace_session *session, void (*notify)(void *context), void *context) {
  if (!session || !mace_claim(session)) return;
  if (session->phase != MACE_RUNNING) {
    session->notify = notify;
    session->notified = context;
  }
  mace_yield(session, MACE_OK);
}

/* Give all states their start values, as after mace_open. Errors: MACE_BUSY; MACE_LOST and MACE_REFUSED if
 * the session is not open. */
static inline mace_status mace_reset(mace_session *session) {
  mace_status status;
  if (!session) return MACE_REFUSED;
  if (!mace_claim(session)) return MACE_BUSY;
  if (session->phase == MACE_NEEDS_RESET) session->phase = MACE_OPEN;
  status = mace_ready(session);
  if (!status) {
    session->error = "";
    mace_start_states(session, session->model);
  }
  return mace_yield(session, status);
}

/* Private: claim the session to change what a port is bound to. MACE_OK: mace_yield must follow. */
static inline mace_status mace_claim_port(mace_session *session, int32_t port, const mace_buffer *buffer) {
  const mace_model *model;
  mace_status status;
  if (!session) return MACE_REFUSED;
  if (!mace_claim(session)) return MACE_BUSY;
  status = session->phase == MACE_NEEDS_RESET ? MACE_OK : mace_ready(session);
  if (status) return mace_yield(session, status);
  session->error = "";
  model = session->model;
  if (port < 0 || port >= model->input_count + model->output_count)
    status =
        mace_fail(session, MACE_REFUSED, "there is no such port; inputs are counted first, then outputs");
  else if (buffer && !buffer->struct_bytes)
    status = mace_fail(session, MACE_REFUSED, "mace_buffer.struct_bytes is 0; set it to sizeof(mace_buffer)");
  return status ? mace_yield(session, status) : MACE_OK;
}

/* Private: whether somebody signals when the buffer may be used. Descriptor 0 is standard input, which is no
 * fence. */
static inline int mace_has_fence(const mace_buffer *buffer) {
  return MACE_HAS(buffer, fence) && buffer->fence > 0;
}

/* Let a port (inputs first, then outputs) use a buffer in every run that passes NULL for it; a buffer that is
 * NULL ends that.
 *
 * The buffer stays the application's, and valid until it is unbound or the session is closed; it is imported
 * into devices once, here. Its fence is closed if mace_bind succeeds, and stays the application's if it
 * fails. Only a port that one device uses alone can have one, and only if that device's driver can wait for
 * fences. Errors: MACE_BUSY; MACE_REFUSED for a port that does not exist, a kind that nothing there accepts,
 * too few bytes, a wrong address, or a fence that nothing there can wait for. */
static inline mace_status mace_bind(mace_session *session, int32_t port, const mace_buffer *buffer) {
  const mace_model *model;
  const mace_tensor *tensor;
  mace_status status = mace_claim_port(session, port, buffer);
  if (status) return status;
  model = session->model;
  tensor = port < model->input_count ? &model->inputs[port] : &model->outputs[port - model->input_count];
  if (buffer && (buffer->offset > buffer->bytes || buffer->bytes - buffer->offset < tensor->bytes))
    status = mace_fail(session, MACE_REFUSED,
                       "the buffer is smaller than the tensor; give the tensor's bytes behind its offset");
  else if (model->engine)
    status = model->engine->bind(session, port, buffer);
  else if (buffer && (buffer->kind != MACE_HOST || !buffer->host))
    status = mace_fail(session, MACE_REFUSED,
                       "the buffer has no address; kernels in host memory accept MACE_HOST alone");
  else if (buffer && mace_has_fence(buffer))
    status = mace_fail(session, MACE_REFUSED,
                       "the CPU cannot wait for a fence; wait for it first, and give fence -1");
  if (!status && !model->engine)
    session->bound[port] = buffer && buffer->host ? (char *)buffer->host + buffer->offset : NULL;
  return mace_yield(session, status);
}

/* Make memory that a port's device reads or writes without a copy, describe it in *buffer and bind it to the
 * port.
 *
 * buffer: its struct_bytes must be set. The memory is the session's until mace_close or the loss of the
 * device; a second call for the port returns the same. A session with memory of a device does not fall back
 * to the CPU in a run. Errors: MACE_BUSY; MACE_REFUSED for a port that does not exist or that no device uses
 * directly: there, any memory of the application serves as well; of drivers MACE_NO_MEMORY, MACE_LOST,
 * MACE_FAILED. */
static inline mace_status mace_allocate(mace_session *session, int32_t port, mace_buffer *buffer) {
  const mace_engine *engine;
  mace_status status = mace_claim_port(session, port, buffer);
  if (status) return status;
  engine = session->model->engine;
  if (!buffer)
    status =
        mace_fail(session, MACE_REFUSED, "the buffer is NULL; give a mace_buffer to describe the memory in");
  else if (engine && MACE_HAS(engine, allocate))
    status = engine->allocate(session, port, buffer);
  else
    status = mace_fail(session, MACE_REFUSED,
                       "no device uses the port; pass the address of any memory to mace_run");
  return mace_yield(session, status);
}

/* Have `observe` called after every layer with the layer's number and its result; NULL ends that.
 *
 * Layers are the kernel calls in host memory, and what drivers show of the parts that they run: runs take
 * longer then, and mace_submit computes such parts before it returns. A result is valid until `observe`
 * returns. It is not called while a fallback computes, whose layers are others. */
static inline void mace_observe(mace_session *session,
                                void (*observe)(void *observer, int32_t layer, const void *result),
                                void *observer) {
  session->frame.observe = observe;
  session->frame.observer = observer;
}

/* Return the nanoseconds that a device took for the layer that `observe` sees; 0 where the caller's own clock
 * says it, as between two kernel calls in host memory. Only inside of `observe`. */
static inline uint64_t mace_layer_ns(const mace_session *session) {
  const mace_engine *engine = session->model->engine;
  return engine && MACE_HAS(engine, layer_ns) ? engine->layer_ns(session) : 0;
}

/* Return what computes a part, in words: "cpu: avx2", "acme: Mark 1", "cpu: avx2 (fallback: ...)"; "" for a
 * part that is not there or a session that is not open. Valid until the next call of the session. */
static inline const char *mace_part_device(const mace_session *session, int32_t part) {
  const mace_part *parts;
  if (!session || session->phase == MACE_CLOSED || part < 0 || part >= session->model->part_count) return "";
  if (session->model->engine) return session->model->engine->device(session, part);
  parts = session->model->parts;
  return parts[part].devices[session->levels[parts[part].table]];
}

/* Return how many units of the device that computes a part compute side by side; 0 where that is unknown, as of
 * processors. */
static inline uint32_t mace_part_units(const mace_session *session, int32_t part) {
  const mace_engine *engine;
  if (!session || session->phase == MACE_CLOSED || part < 0 || part >= session->model->part_count) return 0;
  engine = session->model->engine;
  return engine && MACE_HAS(engine, units) ? engine->units(session, part) : 0;
}

/* Return what went wrong in the last call that failed, as "what is wrong; what to do"; "" after a call that
 * went well. Never NULL, valid until the next call of the session. */
static inline const char *mace_error(const mace_session *session) {
  return session ? session->error
                 : "there is no session; give mace_open the bytes that mace_session_bytes says";
}

/* Close a session, also one that failed to open: devices are released, and the memory is the application's
 * again. Never fails; a run in flight is waited for. */
static inline void mace_close(mace_session *session) {
  if (!session) return;
  if (session->model && session->model->engine) session->model->engine->close(session);
  session->phase = MACE_CLOSED;
}

/* The functions above for languages that cannot include a header; every library has them as NAME_functions.
 */
typedef struct mace_functions {
  uint32_t struct_bytes;
  int32_t abi;
  size_t (*session_bytes)(const mace_model *, const mace_config *);
  mace_status (*open)(const mace_model *, const mace_config *, void *, size_t, mace_session **);
  mace_status (*run)(mace_session *, const void *const *, void *const *);
  mace_status (*run_batch)(mace_session *, int32_t, const void *const *, void *const *);
  mace_status (*reset)(mace_session *);
  mace_status (*bind)(mace_session *, int32_t, const mace_buffer *);
  void (*observe)(mace_session *, void (*)(void *, int32_t, const void *), void *);
  const char *(*part_device)(const mace_session *, int32_t);
  const char *(*error)(const mace_session *);
  void (*close)(mace_session *);
  mace_status (*submit)(mace_session *, const void *const *, void *const *);
  mace_status (*wait)(mace_session *, uint32_t);
  mace_status (*allocate)(mace_session *, int32_t, mace_buffer *);
  uint64_t (*layer_ns)(const mace_session *);
  void (*notify)(mace_session *, void (*)(void *), void *);
  uint32_t (*part_units)(const mace_session *, int32_t);
} mace_functions;

#ifdef __cplusplus
}
#endif
#endif
