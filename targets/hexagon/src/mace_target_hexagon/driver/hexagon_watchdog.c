/* hexagon_watchdog.c - bounds remote calls in time. FastRPC's calls wait without an end; another thread may
 * kill the process on the DSP, upon which the call returns. */
#define _GNU_SOURCE
#include <errno.h>
#include <time.h>

#include "hexagon_part.h"

static void kill_process(const mace_device *device) {
  hexagon_process_kill request = {HEXAGON_CDSP};
  if (device->library.remote_session_control)
    device->library.remote_session_control(HEXAGON_PROCESS_KILL, &request, sizeof request);
}

static void *watch(void *context) {
  mace_device *device = context;
  hexagon_watchdog *w = &device->watchdog;
  pthread_mutex_lock(&w->mutex);
  while (!w->must_end) {
    if (!w->is_armed) {
      pthread_cond_wait(&w->condition, &w->mutex);
    } else if (pthread_cond_timedwait(&w->condition, &w->mutex, &w->deadline) == ETIMEDOUT && w->is_armed) {
      w->is_armed = 0;
      w->has_fired = 1;
      kill_process(device);
    }
  }
  pthread_mutex_unlock(&w->mutex);
  return NULL;
}

int mace_hexagon_start_watchdog(mace_device *device) {
  hexagon_watchdog *w = &device->watchdog;
  pthread_condattr_t attributes;
  int failed;
  if (pthread_condattr_init(&attributes)) return ENOMEM;
  /* A clock that nobody sets: a change of the date must not end a run. */
  pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
  failed = pthread_cond_init(&w->condition, &attributes);
  pthread_condattr_destroy(&attributes);
  if (failed) return failed;
  failed = pthread_mutex_init(&w->mutex, NULL);
  if (!failed) {
    failed = pthread_create(&w->thread, NULL, watch, device);
    if (failed) pthread_mutex_destroy(&w->mutex);
  }
  if (failed) {
    pthread_cond_destroy(&w->condition);
    return failed;
  }
  w->is_started = 1;
  return 0;
}

void mace_hexagon_arm(hexagon_watchdog *w, uint32_t timeout_ms) {
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  pthread_mutex_lock(&w->mutex);
  w->deadline.tv_sec = now.tv_sec + timeout_ms / 1000;
  w->deadline.tv_nsec = now.tv_nsec + (long)(timeout_ms % 1000) * 1000000L;
  if (w->deadline.tv_nsec >= 1000000000L) {
    w->deadline.tv_nsec -= 1000000000L;
    w->deadline.tv_sec++;
  }
  w->is_armed = 1;
  w->has_fired = 0;
  pthread_cond_signal(&w->condition);
  pthread_mutex_unlock(&w->mutex);
}

int mace_hexagon_disarm(hexagon_watchdog *w) {
  int has_fired;
  pthread_mutex_lock(&w->mutex);
  w->is_armed = 0;
  has_fired = w->has_fired;
  pthread_mutex_unlock(&w->mutex);
  return has_fired;
}

void mace_hexagon_stop_watchdog(hexagon_watchdog *w) {
  if (!w->is_started) return;
  pthread_mutex_lock(&w->mutex);
  w->must_end = 1;
  pthread_cond_signal(&w->condition);
  pthread_mutex_unlock(&w->mutex);
  pthread_join(w->thread, NULL);
  pthread_mutex_destroy(&w->mutex);
  pthread_cond_destroy(&w->condition);
  w->is_started = 0;
}
