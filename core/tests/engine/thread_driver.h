/* thread_driver.h - a device with a thread for each run, which notifies when the run has ended. */
#ifndef THREAD_DRIVER_H
#define THREAD_DRIVER_H

#include <pthread.h>

#include "models.h"

struct mace_device {
  int open;
};

struct mace_loaded {
  const mace_binding *ports;
  pthread_t thread;
  pthread_mutex_t mutex; /* of what follows */
  pthread_cond_t changed;
  int ended, is_told;
  void (*done)(void *context); /* NULL: nobody asked yet */
  void *context;
};

static size_t thread_bytes(const mace_payload *payload) {
  return payload ? sizeof(mace_loaded) : sizeof(mace_device);
}

static mace_status thread_open(const mace_config *config, void *memory, mace_device **device, mace_text text) {
  (void)config, (void)text;
  *device = memory;
  return MACE_OK;
}

static mace_status thread_load(mace_device *device, const mace_payload *payload, void *memory,
                               mace_loaded **loaded, mace_text text) {
  mace_loaded *part = memory;
  (void)device, (void)payload, (void)text;
  memset(part, 0, sizeof *part);
  CHECK(!pthread_mutex_init(&part->mutex, NULL) && !pthread_cond_init(&part->changed, NULL));
  *loaded = part;
  return MACE_OK;
}

static mace_status thread_run(mace_loaded *part, const mace_binding *ports, uint32_t timeout_ms,
                              mace_text text) {
  const float *x = ports[0].memory->buffer.host;
  float *y = ports[1].memory->buffer.host;
  (void)part, (void)timeout_ms, (void)text;
  for (int i = 0; i < FAKE_VALUES; i++) y[i] = 3 * x[i] + 10;
  return MACE_OK;
}

/* Tell who asked that the run has ended; the mutex is locked, but for the call itself. */
static void tell(mace_loaded *part) {
  void (*const done)(void *) = part->done;
  void *const context = part->context;
  if (!done || part->is_told) return;
  pthread_mutex_unlock(&part->mutex);
  done(context);
  pthread_mutex_lock(&part->mutex);
  part->is_told = 1;
  pthread_cond_broadcast(&part->changed);
}

static void *compute(void *argument) {
  mace_loaded *part = argument;
  const mace_text nowhere = {NULL, 0};
  thread_run(part, part->ports, 0, nowhere);
  pthread_mutex_lock(&part->mutex);
  part->ended = 1;
  pthread_cond_broadcast(&part->changed);
  tell(part);
  pthread_mutex_unlock(&part->mutex);
  return NULL;
}

static mace_status thread_submit(mace_loaded *part, const mace_binding *ports, uint32_t timeout_ms,
                                 mace_text text) {
  (void)timeout_ms, (void)text;
  part->ports = ports;
  part->ended = part->is_told = 0;
  part->done = NULL;
  return pthread_create(&part->thread, NULL, compute, part) ? MACE_FAILED : MACE_OK;
}

static mace_status thread_notify(mace_loaded *part, void (*done)(void *context), void *context,
                                 mace_text text) {
  (void)text;
  pthread_mutex_lock(&part->mutex);
  part->context = context;
  part->done = done;
  if (part->ended) tell(part);
  pthread_mutex_unlock(&part->mutex);
  return MACE_OK;
}

static mace_status thread_wait(mace_loaded *part, uint32_t timeout_ms, mace_text text) {
  int goes_on;
  (void)text;
  pthread_mutex_lock(&part->mutex);
  while (timeout_ms && !part->ended) pthread_cond_wait(&part->changed, &part->mutex);
  goes_on = !part->ended;
  while (!goes_on && part->done && !part->is_told) pthread_cond_wait(&part->changed, &part->mutex);
  pthread_mutex_unlock(&part->mutex);
  if (goes_on) return MACE_BUSY;
  CHECK(!pthread_join(part->thread, NULL));
  return MACE_OK;
}

static void thread_unload(mace_loaded *part) {
  pthread_mutex_destroy(&part->mutex);
  pthread_cond_destroy(&part->changed);
}

static void thread_close(mace_device *device) { device->open = 0; }

static const mace_driver thread_driver = {.struct_bytes = sizeof(mace_driver),
                                          .major = MACE_DRIVER_MAJOR,
                                          .flags = MACE_ALLOCATES | MACE_UNBOUNDED,
                                          .name = "thread",
                                          .version = "1.0",
                                          .bytes = thread_bytes,
                                          .open = thread_open,
                                          .load = thread_load,
                                          .run = thread_run,
                                          .unload = thread_unload,
                                          .close = thread_close,
                                          .submit = thread_submit,
                                          .wait = thread_wait,
                                          .notify = thread_notify};
#endif
