/* mace_engine_run.c - executes the steps of a run, at once or from mace_submit to mace_wait; see
 * mace_engine.c. */
#include "mace_engine.h"

/* Ask all devices for the power that the application wants, before the first run. */
static mace_status wake(mace_session *s) {
  engine *e = s->engine;
  const mace_plan *plan = s->model->plan;
  if (e->powered || s->config.power == MACE_POWER_IDLE) return MACE_OK;
  e->powered = 1;
  for (int32_t i = 0; i < plan->device_count; i++) {
    if (!MACE_HAS(plan->drivers[i], power)) continue;
    const mace_status status = plan->drivers[i]->power(e->devices[i], s->config.power, mace_engine_text(e));
    if (status) return mace_engine_report(s, i, -1, status, NULL);
  }
  return MACE_OK;
}

/* Compute on the CPU what a device was to compute; the numbers of layers are the fallback's, so nobody
 * observes. */
static mace_status run_fallback(mace_session *s) {
  mace_frame frame = s->frame;
  frame.observe = NULL;
  s->model->fallback->run(&frame);
  return MACE_OK;
}

/* Whether a driver can run by itself, and notify if the application waits for that. */
static int can_submit(const mace_session *s, const mace_driver *driver) {
  return submits(driver) && (!s->notify || notifies(driver));
}

/* Whether a step may touch host memory that copies of a device touch. They are in order with the device's own
 * tasks, whose tensors lie in its space; what the calls of a step touch is not known here. */
static int may_meet_copies(const mace_session *s, const mace_step *step) {
  const engine *e = s->engine;
  if (e->copying < 0) return 0;
  if (step->calls) return 1;
  if (step->task < 0) return mace_engine_device_of(s, step) != e->copying;
  const mace_task *task = &s->model->plan->tasks[step->task];
  for (int32_t i = 0; i < count_ports(task->payload); i++)
    if (task->places[i].where != MACE_IN_SPACE) return 1;
  return task->device != e->copying;
}

/* Execute the next steps, until one fails, a part was submitted, or the run is complete. */
static mace_status advance(mace_session *s, int may_submit) {
  engine *e = s->engine;
  const mace_plan *plan = s->model->plan;
  mace_status status = MACE_OK;
  while (!status && e->flight < 0 && e->step < plan->step_count) {
    const mace_step *step = &plan->steps[e->step++];
    if (may_meet_copies(s, step)) status = mace_engine_finish_copies(s);
    if (status) break;
    if (step->calls)
      step->calls(&s->frame);
    else if (step->task < 0)
      status = mace_engine_run_copy(s, step);
    else
      status = mace_engine_run_task(s, step->task,
                                    may_submit && can_submit(s, driver_of(s, plan->tasks[step->task].device)));
  }
  /* What the application gave and gets is its own again when the run is complete. */
  return status || e->flight >= 0 ? status : mace_engine_finish_copies(s);
}

static mace_status begin(mace_session *s, int may_submit) {
  engine *e = s->engine;
  mace_status status;
  e->step = 0;
  e->flight = -1;
  status = wake(s);
  return status ? status : advance(s, may_submit);
}

/* React to how a run ended: let the CPU repeat it, or let devices rest that failed, or give them back if one
 * is lost. */
static mace_status react(mace_session *s, mace_status status) {
  if (!status) return MACE_OK;
  if (status != MACE_LOST) mace_engine_finish_quietly(s);
  if (mace_engine_may_fall_back(s, status, MACE_FALLBACK_AT_RUN)) {
    mace_engine_close_all(s, status == MACE_LOST);
    const mace_status fallen = mace_engine_fall_back(s);
    if (!fallen) return run_fallback(s);
    s->phase = MACE_DEAD; /* the devices are closed, and nothing else can run the model */
    return fallen;
  }
  if (status != MACE_LOST) {
    mace_engine_rest(s);
    return status;
  }
  mace_engine_close_all(s, 1); /* at once, so that another session can open the device */
  s->phase = MACE_DEAD;
  return status;
}

mace_status mace_engine_run(mace_session *s) {
  const engine *e = s->engine;
  return e->fallen ? run_fallback(s) : react(s, begin(s, 0));
}

mace_status mace_engine_submit(mace_session *s) {
  const engine *e = s->engine;
  const mace_status status = e->fallen ? run_fallback(s) : react(s, begin(s, 1));
  if (!status && e->flight < 0) mace_set_busy(s, 2u); /* nothing will notify: who submitted does */
  return status;
}

mace_status mace_engine_wait(mace_session *s, uint32_t timeout_ms) {
  engine *e = s->engine;
  mace_status status = MACE_OK;
  while (!status && e->flight >= 0) {
    status = mace_engine_wait_task(s, timeout_ms);
    if (e->flight >= 0) return MACE_BUSY;
    if (!status) status = advance(s, 1);
  }
  s->phase = MACE_OPEN;
  status = react(s, status);
  /* A driver's own MACE_BUSY must not look like a run that goes on: nothing is in flight. */
  return status == MACE_BUSY ? MACE_FAILED : status;
}
