/* models.h - models by hand, as the build would write them, whose members a test may change before it opens a
 * session.
 *
 * All compute y = 3 * (x + 1) + 8 of FAKE_VALUES floats; with a state, which begins at 5, y = 3 * (x + 1) + 8
 * + state, and y is the next state. The device computes z = 3 * u + 10 between two kernel calls, u = x + 1
 * and y = z - 2.
 */
#ifndef MODELS_H
#define MODELS_H

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "fake_driver.h"
#include "mace.h"
#include "sha256.h"

#define CHECK(condition)                                                      \
  do {                                                                        \
    if (!(condition)) {                                                       \
      fprintf(stderr, "%s:%d: not so: %s\n", __FILE__, __LINE__, #condition); \
      exit(1);                                                                \
    }                                                                         \
  } while (0)

typedef struct fixture {
  mace_tensor input, output;
  mace_state state;
  mace_part parts[3];
  mace_need needs[2];
  fake_code code;
  char digest[65];
  mace_payload payload;
  const mace_driver *drivers[1];
  mace_space space;
  mace_place places[3];
  mace_task task;
  mace_step steps[5];
  uint8_t host_ports[2];
  mace_plan plan;
  mace_model cpu, device;
} fixture;

/* A model whose part has memory of its own: two calls, two copies and one task. With `direct`, the task
 * alone, on the model's ports. */
static inline void make_models(fixture *f, const mace_driver *driver, int states, int direct);

static float in_arena(const mace_frame *f, size_t offset, int i) {
  float value;
  memcpy(&value, f->arena + offset + 4 * i, 4);
  return value;
}

static void before(const mace_frame *f) {
  for (int i = 0; i < FAKE_VALUES; i++) {
    const float u = ((const float *)f->in[0])[i] + 1;
    memcpy(f->arena + 4 * i, &u, 4);
  }
  if (f->observe) f->observe(f->observer, 0, f->arena);
}

static void after(const mace_frame *f) {
  for (int i = 0; i < FAKE_VALUES; i++) ((float *)f->out[0])[i] = in_arena(f, 64, i) - 2;
  if (f->observe) f->observe(f->observer, 1, f->out[0]);
}

static void after_with_state(const mace_frame *f) {
  after(f);
  for (int i = 0; i < FAKE_VALUES; i++)
    ((float *)f->out[0])[i] += ((const float *)(const void *)f->states)[i];
  memcpy(f->states + 64, f->out[0], FAKE_BYTES);
}

static void multiply(const mace_frame *f) {
  for (int i = 0; i < FAKE_VALUES; i++) {
    const float z = 3 * in_arena(f, 0, i) + 10;
    memcpy(f->arena + 64 + 4 * i, &z, 4);
  }
}

static void run_cpu(const mace_frame *f) { before(f), multiply(f), after(f); }
static void run_cpu_with_state(const mace_frame *f) { before(f), multiply(f), after_with_state(f); }
static void run_direct(const mace_frame *f) {
  for (int i = 0; i < FAKE_VALUES; i++) ((float *)f->out[0])[i] = 3 * ((const float *)f->in[0])[i] + 10;
}
static const char *choose(int32_t *levels) {
  levels[0] = 1;
  return NULL;
}

static const char *const devices[] = {"cpu: fast", "cpu: plain"};
static const unsigned char weights[256] = {1, 2, 3};
static const float start[FAKE_VALUES] = {5, 5, 5, 5, 5, 5, 5, 5};

static inline void make_models(fixture *f, const mace_driver *driver, int states, int direct) {
  const mace_tensor tensor = {"x", MACE_F32, 1, {FAKE_VALUES}, FAKE_BYTES, 0, 0};
  const mace_need need = {sizeof need, 0, 64, 64, 0, FAKE_BYTES};
  const mace_place input = {MACE_IN_INPUT, 0, 0}, output = {MACE_IN_OUTPUT, 0, 0};
  const mace_place arena[] = {{MACE_IN_ARENA, 0, 0}, {MACE_IN_ARENA, 0, 64}};
  const mace_place own[] = {{MACE_IN_SPACE, 0, 0}, {MACE_IN_SPACE, 0, 64}, {MACE_IN_SPACE, 0, 128}};
  memset(f, 0, sizeof *f);
  f->input = f->output = tensor;
  f->state = (mace_state){tensor, start, 0, 64};
  f->parts[0] = f->parts[2] = (mace_part){"cpu0", 0, devices};
  f->parts[1] = (mace_part){"fake1", -1, NULL};
  f->needs[0] = f->needs[1] = need;
  f->code = (fake_code){{'F', 'A', 'K', 'E'}, sizeof(fake_code), 0, FAKE_VALUES, 3, 10};
  f->code.checksum = fake_checksum(&f->code);
  f->payload = (mace_payload){
      sizeof f->payload, 1,         1,        &f->code, sizeof f->code, weights, sizeof weights, "fakec 7",
      "fake mark 1",     f->digest, f->needs, need};
  sha256_hex(&f->code, sizeof f->code, weights, sizeof weights, f->digest);
  f->drivers[0] = driver;
  f->space = (mace_space){"fake", 0, {sizeof need, 0, 64, 64, 0, 192}};
  memcpy(f->places, own, sizeof own);
  f->task = (mace_task){1, 0, &f->payload, f->places, 2, 1, NULL, 0, NULL};
  f->steps[0].calls = before;
  f->steps[1] = (mace_step){NULL, -1, {own[0], arena[0]}, FAKE_BYTES};
  f->steps[2].task = 0;
  f->steps[3] = (mace_step){NULL, -1, {arena[1], own[1]}, FAKE_BYTES};
  f->steps[4].calls = states ? after_with_state : after;
  f->plan =
      (mace_plan){sizeof f->plan, 1, 1, 1, 5, f->drivers, &f->space, &f->task, f->steps, NULL, f->host_ports};
  f->host_ports[0] = f->host_ports[1] = 1;
  if (direct) {
    f->parts[0] = f->parts[1];
    f->task.part = 0;
    f->places[0] = input, f->places[1] = output;
    f->payload.scratch.bytes = 0;
    f->steps[0] = f->steps[2];
    f->plan.space_count = 0, f->plan.step_count = 1;
    f->host_ports[0] = f->host_ports[1] = 0;
  }
  f->cpu.abi = MACE_ABI, f->cpu.struct_bytes = sizeof f->cpu, f->cpu.name = "m";
  f->cpu.input_count = f->cpu.output_count = f->cpu.part_count = 1;
  f->cpu.state_count = states ? 1 : 0;
  f->cpu.inputs = &f->input, f->cpu.outputs = &f->output, f->cpu.states = &f->state,
  f->cpu.parts = &f->parts[2];
  f->cpu.arena_bytes = 128, f->cpu.state_bytes = states ? 128 : 0;
  f->cpu.worker_bytes = 64;
  f->cpu.choose = choose;
  f->cpu.run = direct ? run_direct : states ? run_cpu_with_state : run_cpu;
  f->device = f->cpu;
  f->device.run = NULL;
  f->device.parts = f->parts, f->device.part_count = direct ? 1 : 2;
  f->device.engine = &mace_device_engine, f->device.plan = &f->plan;
}

/* Memory of exactly the bytes that a session needs, on the heap, where a sanitizer sees one byte too many. */
static inline void *session_memory(const mace_model *model, const mace_config *config, size_t *bytes) {
  void *memory = NULL;
  *bytes = mace_session_bytes(model, config);
  CHECK(*bytes);
  CHECK(!posix_memalign(&memory, MACE_ALIGNMENT, *bytes));
  memset(memory, 0xAA, *bytes);
  return memory;
}

/* Run once with x = 0, 1, 2 ... and hold the result against what it must be, `more` added. */
static inline mace_status run_and_check(mace_session *session, float base, float more) {
  float x[FAKE_VALUES], y[FAKE_VALUES];
  const void *inputs[] = {x};
  void *outputs[] = {y};
  for (int i = 0; i < FAKE_VALUES; i++) x[i] = base + (float)i, y[i] = -1;
  const mace_status status = mace_run(session, inputs, outputs);
  for (int i = 0; !status && i < FAKE_VALUES; i++) CHECK(y[i] == 3 * (x[i] + 1) + 8 + more);
  return status;
}

#endif
