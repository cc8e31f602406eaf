/* submit_tests.h - part of engine_test.c: runs that go on while the application does something else. */
#include <dirent.h>
#include <time.h>

/* Submit, then wait with 0 ms until it ends; hold the result against what it must be. *waits: how often it
 * went on. */
static mace_status submit_and_check(mace_session *session, float base, float more, int *waits) {
  float x[FAKE_VALUES], y[FAKE_VALUES];
  const void *inputs[] = {x};
  void *outputs[] = {y};
  for (int i = 0; i < FAKE_VALUES; i++) x[i] = base + (float)i, y[i] = -1;
  mace_status status = mace_submit(session, inputs, outputs);
  if (status) return status;
  inputs[0] = NULL, outputs[0] = NULL; /* the addresses were read; what lies there stays */
  for (*waits = 0; (status = mace_wait(session, 0)) == MACE_BUSY; ++*waits) CHECK(*waits < 100);
  for (int i = 0; !status && i < FAKE_VALUES; i++) CHECK(y[i] == 3 * (x[i] + 1) + 8 + more);
  return status;
}

/* Models with and without a driver that runs by itself: what cannot go on alone is done when it was
 * submitted. */
static void test_submit(void) {
  static const mace_driver *const drivers[] = {&fake_own, &fake_shared, &fake_import, &fake_async};
  fixture f;
  size_t bytes;
  mace_session *session;
  int waits;
  for (int kind = 0; kind < 5; kind++) {
    make_models(&f, drivers[kind % 4], 0, 0);
    const mace_model *model = kind == 4 ? &f.cpu : &f.device;
    void *memory = session_memory(model, NULL, &bytes);
    CHECK(!mace_open(model, NULL, memory, bytes, &session));
    CHECK(mace_wait(session, 0) == MACE_REFUSED && strstr(mace_error(session), "mace_submit"));
    for (int i = 0; i < 3; i++) {
      fake.waits = 3;
      CHECK(!submit_and_check(session, (float)i, 0, &waits) && waits == (kind == 3 ? 3 : 0));
      fake.waits = 0;
      CHECK(!run_and_check(session, 1, 0)); /* runs of both kinds in one session */
    }
    mace_close(session);
    free(memory);
    balanced();
  }
}

/* Several parts: mace_wait drives them one after another, those between that cannot run by themselves
 * included. */
static void test_submit_parts(void) {
  static const mace_driver *const drivers[] = {&fake_async, &fake_own};
  fixture f;
  size_t bytes;
  mace_session *session;
  float x[FAKE_VALUES] = {1}, y[FAKE_VALUES];
  const void *inputs[] = {x};
  void *outputs[] = {y};
  make_models(&f, &fake_async, 0, 1);
  const mace_place back[] = {{MACE_IN_OUTPUT, 0, 0}, {MACE_IN_OUTPUT, 0, 0}}; /* in place */
  const mace_task tasks[] = {f.task, {0, 1, &f.payload, back, 0, 0, NULL, 0, NULL}, {0, 0, &f.payload, back, 0, 0, NULL, 0, NULL}};
  const mace_step steps[] = {{.task = 0}, {.task = 1}, {.task = 2}};
  f.plan.drivers = drivers, f.plan.device_count = 2;
  f.plan.tasks = tasks, f.plan.task_count = 3, f.plan.steps = steps, f.plan.step_count = 3;
  void *memory = session_memory(&f.device, NULL, &bytes);
  CHECK(!mace_open(&f.device, NULL, memory, bytes, &session));
  for (int timeout = 0; timeout < 2; timeout++) {
    fake.waits = 2;
    y[0] = 0;
    CHECK(!mace_submit(session, inputs, outputs) && fake.submitted == 1);
    CHECK(mace_wait(session, 0) == MACE_BUSY && fake.calls[FAKE_SUBMIT] == 2 * timeout + 1);
    CHECK(mace_wait(session, 0) == MACE_BUSY);
    fake.waits = 1; /* for the third part */
    CHECK(mace_wait(session, 0) == MACE_BUSY && fake.calls[FAKE_SUBMIT] == 2 * timeout + 1);
    CHECK(!mace_wait(session, timeout ? MACE_FOREVER : 0) && fake.calls[FAKE_SUBMIT] == 2 * timeout + 2);
    CHECK(y[0] == 3 * (3 * (3 + 10) + 10) + 10);
  }
  mace_close(session);
  free(memory);
  balanced();
}

/* A state has its next value when the run has ended, not before; and none that is defined after a failure. */
static void test_submit_states(void) {
  fixture f;
  size_t bytes;
  mace_session *session;
  int waits;
  make_models(&f, &fake_async, 1, 0);
  void *memory = session_memory(&f.device, NULL, &bytes);
  float x[FAKE_VALUES] = {0}, y[FAKE_VALUES], state = 5;
  const void *inputs[] = {x};
  void *outputs[] = {y};
  CHECK(!mace_open(&f.device, NULL, memory, bytes, &session));
  for (int i = 0; i < 10; i++) {
    if (i == 5) {
      CHECK(!mace_reset(session));
      state = 5;
    }
    fake.waits = 1;
    CHECK(!mace_submit(session, inputs, outputs));
    CHECK(mace_wait(session, 0) == MACE_BUSY && !mace_wait(session, 0));
    state += 11;
    CHECK(y[0] == state && y[FAKE_VALUES - 1] == state);
  }
  fake.fails = FAKE_WAIT, fake.status = MACE_FAILED, fake.after = fake.calls[FAKE_WAIT];
  CHECK(submit_and_check(session, 0, 0, &waits) == MACE_FAILED);
  fake.fails = FAKE_NONE;
  CHECK(mace_submit(session, inputs, outputs) == MACE_REFUSED && strstr(mace_error(session), "mace_reset"));
  CHECK(mace_wait(session, 0) == MACE_REFUSED);
  CHECK(!mace_reset(session) && !submit_and_check(session, 0, 5, &waits));
  mace_close(session);
  free(memory);
  balanced();
}

/* One run is in flight for a session: everything else has to wait, but closing, which waits for it. */
static void test_one_in_flight(void) {
  fixture f;
  size_t bytes;
  mace_session *session;
  float x[FAKE_VALUES] = {0}, y[FAKE_VALUES];
  const void *inputs[] = {x};
  void *outputs[] = {y};
  mace_buffer buffer = host_buffer(x, 0, sizeof x);
  make_models(&f, &fake_async, 0, 0);
  void *memory = session_memory(&f.device, NULL, &bytes);
  CHECK(!mace_open(&f.device, NULL, memory, bytes, &session));
  fake.waits = 1;
  CHECK(!mace_submit(session, inputs, outputs) && fake.submitted == 1);
  CHECK(mace_run(session, inputs, outputs) == MACE_BUSY && strstr(mace_error(session), "mace_wait"));
  CHECK(mace_submit(session, inputs, outputs) == MACE_BUSY &&
        mace_run_batch(session, 1, inputs, outputs) == MACE_BUSY);
  CHECK(mace_reset(session) == MACE_BUSY && mace_bind(session, 0, &buffer) == MACE_BUSY);
  CHECK(mace_allocate(session, 0, &buffer) == MACE_BUSY && mace_bind(session, 0, NULL) == MACE_BUSY);
  CHECK(!strcmp(mace_part_device(session, 1), "fake: Mark 1"));
  CHECK(mace_wait(session, 0) == MACE_BUSY && strstr(mace_error(session), "call mace_wait again"));
  CHECK(!mace_wait(session, 0) && y[0] == 11 && !*mace_error(session));
  CHECK(mace_wait(session, 0) == MACE_REFUSED);
  CHECK(!mace_submit(session, inputs, outputs));
  fake.waits = 1000;
  mace_close(session);
  fake.waits = 0;
  balanced();
  CHECK(mace_wait(session, 0) == MACE_REFUSED && mace_submit(session, inputs, outputs) == MACE_REFUSED);
  CHECK(mace_wait(NULL, 0) == MACE_REFUSED && mace_submit(NULL, inputs, outputs) == MACE_REFUSED);
  CHECK(!mace_open(&f.device, NULL, memory, bytes, &session));
  CHECK(mace_submit(session, NULL, outputs) == MACE_NO_TENSOR && mace_wait(session, 0) == MACE_REFUSED);
  mace_close(session);
  free(memory);
  balanced();
}

static const int results[] = {-2, 1, 3, 5, 6, 7, 8, 9, 10, 11, 12, 99};

/* Each call of a submitted run fails, with every status; the device is idle or lost then, and nothing is in
 * flight. */
static void test_submit_faults(void) {
  static const fake_call calls[] = {FAKE_SUBMIT, FAKE_WAIT, FAKE_COPY, FAKE_POWER};
  const mace_config burst = {.struct_bytes = sizeof burst, .power = MACE_POWER_BURST};
  fixture f;
  size_t bytes;
  mace_session *session;
  int waits;
  make_models(&f, &fake_async, 0, 0);
  void *memory = session_memory(&f.device, &burst, &bytes);
  for (int c = 0; c < 4; c++)
    for (size_t s = 0; s < sizeof results / sizeof *results; s++)
      for (int after = 0; after < 2; after++) {
        if ((calls[c] == FAKE_WAIT && results[s] == MACE_BUSY) || (calls[c] == FAKE_POWER && after)) continue;
        fake_forget();
        fake.fails = calls[c], fake.status = (mace_status)results[s], fake.after = after,
        fake.text = "it burns; put it out";
        CHECK(!mace_open(&f.device, &burst, memory, bytes, &session));
        mace_status status = submit_and_check(session, 0, 0, &waits);
        if (!status) status = submit_and_check(session, 1, 0, &waits);
        CHECK(status && strstr(mace_error(session), "it burns; put it out"));
        CHECK(!fake.submitted && (fake.power == MACE_POWER_IDLE || status == MACE_LOST));
        if (results[s] == MACE_LOST || results[s] == MACE_TIMEOUT) CHECK((int)status == results[s]);
        if (results[s] == MACE_BUSY)
          CHECK(status == (after && calls[c] == FAKE_COPY ? MACE_FAILED : MACE_BUSY));
        CHECK(mace_wait(session, 0) == (status == MACE_LOST ? MACE_LOST : MACE_REFUSED));
        fake.fails = FAKE_NONE;
        if (status != MACE_LOST) CHECK(!submit_and_check(session, 2, 0, &waits));
        mace_close(session);
        if (status == MACE_LOST) fake.power = MACE_POWER_IDLE;
        balanced();
      }
  free(memory);
}

static void test_submit_fallback(void) {
  mace_config allowed = {.struct_bytes = sizeof allowed, .fallback = MACE_FALLBACK_AT_RUN};
  static const fake_call calls[] = {FAKE_SUBMIT, FAKE_WAIT, FAKE_COPY, FAKE_OPEN};
  fixture f;
  size_t bytes;
  mace_session *session;
  int waits;
  make_models(&f, &fake_async, 0, 0);
  f.device.fallback = &f.cpu;
  void *memory = session_memory(&f.device, &allowed, &bytes);
  for (int c = 0; c < 4; c++) {
    fake_forget();
    fake.fails = calls[c], fake.status = MACE_LOST, fake.text = "it died";
    CHECK(!mace_open(&f.device, &allowed, memory, bytes, &session));
    CHECK(!submit_and_check(session, 0, 0, &waits) && !submit_and_check(session, 1, 0, &waits));
    CHECK(strstr(mace_part_device(session, 1), "it died)"));
    mace_close(session);
    CHECK(!fake.open && !fake.loaded && !fake.allocated && !fake.imported && !fake.after_loss &&
          !fake.submitted);
  }
  fake_forget();
  free(memory);
}

static double seconds(void) {
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

static int count_descriptors(void) {
  DIR *folder = opendir("/proc/self/fd");
  int count = 0;
  CHECK(folder);
  while (readdir(folder)) count++;
  closedir(folder);
  return count;
}

/* A run that never ends is stopped by its timeout, in run, in wait and in close; the device dies of it or
 * not. The same memory is opened again a hundred times, and neither descriptors nor memory of the driver
 * grow. */
static void test_hangs(void) {
  enum { LIMIT_MS = 4 };
  const mace_config config = {.struct_bytes = sizeof config, .timeout_ms = LIMIT_MS};
  fixture f;
  size_t bytes;
  mace_session *session;
  float x[FAKE_VALUES] = {0}, y[FAKE_VALUES];
  const void *inputs[] = {x};
  void *outputs[] = {y};
  make_models(&f, &fake_async, 0, 0);
  void *memory = session_memory(&f.device, &config, &bytes);
  const int descriptors = count_descriptors();
  for (int i = 0; i < 100; i++) {
    const mace_status expected = i % 2 ? MACE_LOST : MACE_TIMEOUT;
    fake_forget();
    CHECK(!mace_open(&f.device, &config, memory, bytes, &session));
    fake.hangs = 1, fake.status = expected;
    const double begin = seconds();
    if (i % 4 < 2) {
      CHECK(mace_run(session, inputs, outputs) == expected);
    } else {
      CHECK(!mace_submit(session, inputs, outputs));
      CHECK(mace_wait(session, 1) == MACE_BUSY && mace_wait(session, 0) == MACE_BUSY);
      if (i % 8 < 4) CHECK(mace_wait(session, MACE_FOREVER) == expected);
    }
    CHECK(i % 8 > 5 || mace_run(session, inputs, outputs) == expected);
    mace_close(session);
    CHECK(seconds() - begin >= LIMIT_MS / 1000.0 && seconds() - begin < 2);
    CHECK(!fake.open && !fake.loaded && !fake.allocated && !fake.imported && !fake.submitted &&
          !fake.after_loss);
  }
  CHECK(count_descriptors() == descriptors);
  fake_forget();
  free(memory);
}

/* A driver that cannot stop a run says so, and no session believes that it has a timeout. */
static void test_unbounded(void) {
  mace_config config = {.struct_bytes = sizeof config, .timeout_ms = 5, .fallback = MACE_FALLBACK_AT_RUN};
  mace_driver driver = fake_own;
  fixture f;
  size_t bytes;
  mace_session *session;
  driver.flags = MACE_UNBOUNDED;
  make_models(&f, &driver, 0, 0);
  f.device.fallback = &f.cpu;
  void *memory = session_memory(&f.device, &config, &bytes);
  CHECK(mace_open(&f.device, &config, memory, bytes, &session) == MACE_REFUSED &&
        strstr(mace_error(session), "timeout_ms"));
  mace_close(session);
  config.timeout_ms = 0;
  CHECK(!mace_open(&f.device, &config, memory, bytes, &session) && !run_and_check(session, 0, 0));
  mace_close(session);
  free(memory);
  balanced();
}
