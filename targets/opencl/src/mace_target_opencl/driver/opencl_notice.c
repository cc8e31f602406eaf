/* opencl_notice.c - tells who asked when a run that was submitted has ended.
 *
 * OpenCL calls back in a thread of its own, and may do so after another thread has seen the event end and the
 * session is closed. So what the callback reads is on the heap, and belongs to the last of both that uses it.
 */
#define _POSIX_C_SOURCE 200809L /* nanosleep */
#include <stdlib.h>
#include <time.h>

#include "opencl_part.h"

typedef enum notice_state { NOTICE_WAITS, NOTICE_CALLS, NOTICE_OVER, NOTICE_DROPPED } notice_state;

struct opencl_notice {
  int state; /* a notice_state; atomic */
  void (*done)(void *context);
  void *context;
};

static int exchange_state(opencl_notice *notice, int from, int to) {
  return __atomic_compare_exchange_n(&notice->state, &from, to, 0, __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE);
}

/* Called by a thread of OpenCL when the event has ended, well or not. */
static void call_back(cl_event event, int32_t status, void *user) {
  opencl_notice *const notice = user;
  (void)event, (void)status; /* wait finds out how it ended */
  if (!exchange_state(notice, NOTICE_WAITS, NOTICE_CALLS)) {
    free(notice);
    return;
  }
  notice->done(notice->context);
  __atomic_store_n(&notice->state, NOTICE_OVER, __ATOMIC_RELEASE);
}

mace_status mace_opencl_notify(mace_loaded *part, void (*done)(void *context), void *context, mace_text text) {
  opencl_notice *const notice = calloc(1, sizeof *notice);
  int32_t code;
  if (!notice) return mace_say(text, MACE_FAILED, "out of memory for a notice; call mace_wait");
  notice->done = done;
  notice->context = context;
  code = part->device->cl.clSetEventCallback(part->running, CL_COMPLETE, call_back, notice);
  if (code) {
    free(notice);
    return mace_opencl_judge(MACE_FAILED, "clSetEventCallback", code, text);
  }
  part->notice = notice;
  return MACE_OK;
}

void mace_opencl_drop_notice(mace_loaded *part) {
  const struct timespec pause = {0, 50000};
  opencl_notice *const notice = part->notice;
  part->notice = NULL;
  /* A callback that has not begun finds the notice dropped, and frees it. */
  if (!notice || exchange_state(notice, NOTICE_WAITS, NOTICE_DROPPED)) return;
  while (__atomic_load_n(&notice->state, __ATOMIC_ACQUIRE) != NOTICE_OVER) nanosleep(&pause, NULL);
  free(notice);
}
