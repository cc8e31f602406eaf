/* The contract of sessions with drivers, held against a fake device; each test is a function, called by name.
 */
#define _GNU_SOURCE
#include "models.h"

static const mace_config none = {.struct_bytes = sizeof none};

static void balanced(void) {
  CHECK(!fake.open && !fake.loaded && !fake.allocated && !fake.imported);
  CHECK(!fake.after_loss && !fake.copying);
  CHECK(fake.power == MACE_POWER_IDLE);
}

/* Open, run, close; numbers must be right. */
static void works(const mace_model *model, const mace_config *config) {
  size_t bytes;
  void *memory = session_memory(model, config, &bytes);
  mace_session *session;
  const mace_status status = mace_open(model, config, memory, bytes, &session);
  if (status) fprintf(stderr, "%s\n", mace_error(session));
  CHECK(!status);
  CHECK(!run_and_check(session, 0, 0));
  CHECK(!run_and_check(session, 7, 0));
  mace_close(session);
  mace_close(session); /* closing twice is harmless */
  free(memory);
  balanced();
}

static void test_run(void) {
  fixture f;
  make_models(&f, &fake_own, 0, 0);
  works(&f.cpu, NULL);
  works(&f.device, NULL);
  make_models(&f, &fake_shared, 0, 0);
  works(&f.device, NULL);
  make_models(&f, &fake_import, 0, 0);
  works(&f.device, NULL);
}

static void test_devices(void) {
  fixture f;
  size_t bytes;
  mace_session *session;
  make_models(&f, &fake_own, 0, 0);
  void *memory = session_memory(&f.device, NULL, &bytes);
  CHECK(!mace_open(&f.device, NULL, memory, bytes, &session));
  CHECK(!strcmp(mace_part_device(session, 0), "cpu: plain"));
  CHECK(!strcmp(mace_part_device(session, 1), "fake: Mark 1"));
  CHECK(!*mace_part_device(session, 2) && !*mace_part_device(session, -1));
  CHECK(mace_part_units(session, 1) == 4 && !mace_part_units(session, 0)); /* one that the processor computes */
  CHECK(!mace_part_units(session, 2) && !mace_part_units(session, -1) && !mace_part_units(NULL, 0));
  mace_close(session);
  CHECK(!*mace_part_device(session, 1) && !mace_part_units(session, 1));
  CHECK(mace_run(session, NULL, NULL) == MACE_REFUSED);
  CHECK(strstr(mace_error(session), "not open"));
  free(memory);
}

/* A driver that was compiled with an earlier driver.h has a shorter table; one that is cut off within the
 * required members has none. */
static void test_tables(void) {
  fixture f;
  size_t bytes;
  mace_session *session;
  mace_driver driver = fake_import;
  driver.describe = fake_own.describe;
  for (size_t end = offsetof(mace_driver, close) + sizeof driver.close; end <= sizeof driver;
       end += sizeof(void *)) {
    driver.struct_bytes = (uint32_t)end;
    make_models(&f, &driver, 0, 0);
    works(&f.device, NULL);
  }
  for (size_t end = 0; end <= offsetof(mace_driver, close) + sizeof driver.close; end++) {
    const int whole = end == offsetof(mace_driver, close) + sizeof driver.close;
    driver.struct_bytes = whole ? sizeof driver : (uint32_t)end;
    driver.major = whole ? MACE_DRIVER_MAJOR + 1 : MACE_DRIVER_MAJOR;
    make_models(&f, &driver, 0, 0);
    memset(fake.calls, 0, sizeof fake.calls);
    void *memory = session_memory(&f.device, NULL, &bytes);
    CHECK(mace_open(&f.device, NULL, memory, bytes, &session) == MACE_REFUSED);
    CHECK(strstr(mace_error(session), "driver"));
    CHECK(!fake.calls[FAKE_OPEN]);
    mace_close(session);
    free(memory);
  }
}

static void test_configs(void) {
  struct {
    mace_config config;
    void *newer[4];
  } longer = {none, {&longer, &longer, &longer, &longer}};
  mace_config shorter = none;
  mace_config empty = {0};
  fixture f;
  size_t bytes;
  mace_session *session;
  make_models(&f, &fake_own, 0, 0);
  longer.config.struct_bytes = sizeof longer;
  works(&f.device, &longer.config);
  shorter.options = "nonsense beyond its size";
  shorter.struct_bytes = offsetof(mace_config, options);
  works(&f.device, &shorter);
  works(&f.cpu, &shorter);
  void *memory = session_memory(&f.device, NULL, &bytes);
  CHECK(mace_open(&f.device, &empty, memory, bytes, &session) == MACE_REFUSED);
  CHECK(strstr(mace_error(session), "struct_bytes"));
  mace_close(session);
  free(memory);
  balanced();
}

/* Exact memory at every alignment: it works, or there is too little; a sanitizer sees whatever lies beside.
 */
static void test_memory(void) {
  fixture f;
  mace_session *session;
  make_models(&f, &fake_own, 1, 0);
  f.device.fallback = &f.cpu;
  for (int kind = 0; kind < 2; kind++) {
    const mace_model *model = kind ? &f.device : &f.cpu;
    const size_t bytes = mace_session_bytes(model, NULL);
    for (size_t shift = 0; shift <= 64; shift++) {
      char *raw = NULL;
      CHECK(!posix_memalign((void **)&raw, 128, shift + bytes));
      const mace_status status = mace_open(model, NULL, raw + shift, bytes, &session);
      CHECK(status == (shift % 64 ? MACE_NO_MEMORY : MACE_OK));
      if (!status) CHECK(!run_and_check(session, 1, 5));
      if (status) CHECK(strstr(mace_error(session), "mace_session_bytes"));
      mace_close(session);
      free(raw);
      balanced();
    }
    for (size_t less = 1; less < bytes; less += 13) {
      char *raw = NULL;
      CHECK(!posix_memalign((void **)&raw, 128, bytes - less));
      CHECK(mace_open(model, NULL, raw, bytes - less, &session) == MACE_NO_MEMORY);
      CHECK(*mace_error(session));
      mace_close(session);
      free(raw);
    }
  }
  CHECK(mace_open(&f.cpu, NULL, NULL, 1 << 20, &session) == MACE_NO_MEMORY && !session);
  CHECK(*mace_error(NULL));
  mace_close(NULL);
}

/* Every call of a driver fails once, with every status and with numbers that are none. */
static void test_faults(void) {
  static const int statuses[] = {-2, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 99};
  const mace_config burst = {.struct_bytes = sizeof burst, .power = MACE_POWER_BURST};
  fixture f;
  size_t bytes;
  mace_session *session;
  int failed = 0;
  for (int call = FAKE_OPEN; call < FAKE_CALLS; call++)
    for (size_t s = 0; s < sizeof statuses / sizeof *statuses; s++)
      for (int32_t count = 0; count < 3; count++) {
        make_models(&f, &fake_own, 0, 0);
        fake_forget();
        fake.fails = call, fake.after = count, fake.status = (mace_status)statuses[s];
        fake.text = count ? "it burns; put it out" : NULL;
        void *memory = session_memory(&f.device, &burst, &bytes);
        mace_status status = mace_open(&f.device, &burst, memory, bytes, &session);
        if (!status) status = run_and_check(session, 0, 0);
        if (!status) status = run_and_check(session, 1, 0);
        if (status) {
          failed++;
          CHECK(status == MACE_NO_MEMORY || (status >= MACE_REFUSED && status <= MACE_FAILED));
          if (statuses[s] >= MACE_REFUSED && statuses[s] <= MACE_FAILED) CHECK((int)status == statuses[s]);
          CHECK(strstr(mace_error(session), "fake 1.0"));
          CHECK(strstr(mace_error(session), "; "));
          if (count) CHECK(strstr(mace_error(session), "it burns; put it out"));
          CHECK(fake.power == MACE_POWER_IDLE || status == MACE_LOST);
        }
        mace_close(session);
        fake.fails = FAKE_NONE;
        if (status == MACE_LOST) fake.power = MACE_POWER_IDLE; /* it is gone */
        balanced();
        CHECK(!mace_open(&f.device, NULL, memory, bytes, &session)); /* the memory serves again */
        CHECK(!run_and_check(session, 0, 0));
        mace_close(session);
        free(memory);
        balanced();
      }
  CHECK(failed == 182);
}

/* A text that fills all it is given, without a 0 at its end. */
static void test_long_texts(void) {
  static char text[5000];
  fixture f;
  size_t bytes;
  mace_session *session;
  memset(text, 'x', sizeof text - 1);
  make_models(&f, &fake_own, 0, 0);
  f.parts[1].name = text;
  fake.fails = FAKE_RUN, fake.status = MACE_FAILED, fake.text = text;
  void *memory = session_memory(&f.device, NULL, &bytes);
  CHECK(!mace_open(&f.device, NULL, memory, bytes, &session));
  CHECK(run_and_check(session, 0, 0) == MACE_FAILED);
  CHECK(strlen(mace_error(session)) < 1000);
  mace_close(session);
  free(memory);
}

static void test_loss(void) {
  static const fake_call kinds[] = {FAKE_RUN, FAKE_COPY, FAKE_POWER};
  const mace_config burst = {.struct_bytes = sizeof burst, .power = MACE_POWER_BURST};
  fixture f;
  size_t bytes;
  mace_session *session;
  make_models(&f, &fake_own, 0, 0);
  void *memory = session_memory(&f.device, &burst, &bytes);
  for (int i = 0; i < 100; i++) {
    fake_forget();
    fake.fails = kinds[i % 3], fake.status = MACE_LOST, fake.text = "the chip fell asleep; wake it";
    CHECK(!mace_open(&f.device, &burst, memory, bytes, &session));
    CHECK(run_and_check(session, 0, 0) == MACE_LOST);
    CHECK(!fake.open && !fake.loaded && !fake.allocated &&
          !fake.imported); /* at once, for others to open it */
    CHECK(run_and_check(session, 0, 0) == MACE_LOST);
    CHECK(mace_reset(session) == MACE_LOST);
    CHECK(strstr(mace_error(session), "fell asleep"));
    mace_close(session);
    CHECK(!fake.after_loss);
  }
  fake_forget();
  free(memory);
  works(&f.device, NULL);
}

static void test_states(void) {
  fixture f;
  for (int kind = 0; kind < 3; kind++) {
    size_t bytes;
    mace_session *session;
    make_models(&f, &fake_own, 1, 0);
    const mace_model *model = kind ? &f.device : &f.cpu;
    fake_forget();
    void *memory = session_memory(model, NULL, &bytes);
    float x[FAKE_VALUES] = {0}, y[FAKE_VALUES], state = 5;
    const void *inputs[] = {x};
    void *outputs[] = {y};
    CHECK(!mace_open(model, NULL, memory, bytes, &session));
    for (int i = 0; i < 20; i++) {
      if (i == 10) {
        CHECK(!mace_reset(session));
        state = 5;
      }
      if (kind == 2 && i == 15) {
        fake.fails = FAKE_RUN, fake.status = MACE_FAILED, fake.after = fake.calls[FAKE_RUN];
        CHECK(mace_run(session, inputs, outputs) == MACE_FAILED);
        fake.fails = FAKE_NONE;
        CHECK(mace_run(session, inputs, outputs) == MACE_REFUSED); /* until it is reset */
        CHECK(strstr(mace_error(session), "mace_reset"));
        CHECK(!mace_reset(session));
        state = 5;
      }
      CHECK(!mace_run(session, inputs, outputs));
      state += 11;
      CHECK(y[0] == state && y[FAKE_VALUES - 1] == state);
    }
    CHECK(mace_run_batch(session, 2, inputs, outputs) == MACE_REFUSED);
    CHECK(strstr(mace_error(session), "states"));
    mace_close(session);
    free(memory);
    balanced();
  }
  make_models(&f, &fake_own, 1, 0);
  f.state.start = NULL; /* all zeros */
  size_t bytes;
  mace_session *session;
  void *memory = session_memory(&f.cpu, NULL, &bytes);
  CHECK(!mace_open(&f.cpu, NULL, memory, bytes, &session));
  CHECK(!run_and_check(session, 0, 0));
  mace_close(session);
  free(memory);
}

static void test_fallback(void) {
  static const int at_open[] = {MACE_NO_DEVICE, MACE_STALE, MACE_LOST, MACE_FAILED};
  mace_config allowed = {
      .struct_bytes = sizeof allowed, .fallback = MACE_FALLBACK_AT_OPEN, .power = MACE_POWER_LOW};
  fixture f;
  size_t bytes;
  mace_session *session;
  make_models(&f, &fake_own, 0, 0);
  f.device.fallback = &f.cpu;
  void *memory = session_memory(&f.device, &allowed, &bytes);
  for (int i = 0; i < 4; i++) {
    fake_forget();
    fake.fails = i % 2 ? FAKE_LOAD : FAKE_OPEN, fake.status = (mace_status)at_open[i],
    fake.text = "it is not there; plug it in";
    CHECK((int)mace_open(&f.device, NULL, memory, bytes, &session) ==
          at_open[i]); /* never without being asked */
    CHECK(run_and_check(session, 0, 0) == MACE_REFUSED);
    mace_close(session);
    memset(fake.calls, 0, sizeof fake.calls);
    CHECK(!mace_open(&f.device, &allowed, memory, bytes, &session));
    CHECK(strstr(mace_error(session), "plug it in"));
    CHECK(strstr(mace_part_device(session, 1), "cpu: plain (fallback: "));
    CHECK(strstr(mace_part_device(session, 1), "it is not there; plug it in"));
    CHECK(!run_and_check(session, 0, 0) && !run_and_check(session, 1, 0));
    CHECK(!*mace_error(session));
    CHECK(strstr(mace_part_device(session, 0), "plug it in"));
    CHECK(!mace_part_units(session, 1)); /* the processor computes in the device's place */
    mace_close(session);
    balanced();
  }
  for (int kind = 0; kind < 4; kind++) { /* in a run: not unless it is allowed then, and not with states */
    const int states = kind >= 2;
    fake_forget();
    make_models(&f, &fake_own, states, 0);
    f.device.fallback = &f.cpu;
    allowed.fallback = kind % 2 ? MACE_FALLBACK_AT_RUN : MACE_FALLBACK_AT_OPEN;
    fake.fails = FAKE_COPY, fake.status = MACE_LOST, fake.after = 3, fake.text = "it died";
    free(memory);
    memory = session_memory(&f.device, &allowed, &bytes);
    CHECK(!mace_open(&f.device, &allowed, memory, bytes, &session));
    CHECK(!run_and_check(session, 0, states ? 5 : 0)); /* two copies */
    if (kind == 1) {
      CHECK(!run_and_check(session, 3, 0));
      CHECK(strstr(mace_part_device(session, 1), "fallback: fake 1.0: it died"));
      CHECK(!run_and_check(session, 4, 0));
    } else {
      CHECK(run_and_check(session, 0, 0) == MACE_LOST);
    }
    mace_close(session);
    CHECK(!fake.open && !fake.loaded && !fake.allocated && !fake.imported && !fake.after_loss);
  }
  free(memory);
  fake_forget();
}

/* Opening is refused with MACE_STALE and a text that says so; nothing stays open. */
static void refuse_stale(const mace_model *model, const char *expected) {
  size_t bytes;
  mace_session *session;
  void *memory = session_memory(model, NULL, &bytes);
  CHECK(mace_open(model, NULL, memory, bytes, &session) == MACE_STALE);
  CHECK(strstr(mace_error(session), expected) && strstr(mace_error(session), "build again"));
  mace_close(session);
  free(memory);
  balanced();
}

/* What the build made for another device, or what was damaged since: code, weights and digest, byte by byte.
 */
static void test_stale(void) {
  static const mace_driver *const drivers[] = {&fake_own, &fake_compile};
  fixture f;
  unsigned char code[sizeof f.code], altered[sizeof weights];
  for (int d = 0; d < 2; d++) {
    make_models(&f, drivers[d], 0, 0);
    f.payload.built_by = "fakec 8";
    refuse_stale(&f.device, "part fake1 (fake 1.0): built by another fakec");
    make_models(&f, drivers[d], 0, 0);
    f.payload.built_for = "fake mark 2";
    refuse_stale(&f.device, "part fake1 (fake 1.0): built by another fakec");
    make_models(&f, drivers[d], 0, 0);
    for (size_t i = 0; i < sizeof code; i++) {
      memcpy(code, &f.code, sizeof code);
      code[i] ^= 0x10;
      f.payload.code = code;
      refuse_stale(&f.device, "damaged");
      f.payload.code = &f.code;
      f.payload.code_bytes = i;
      refuse_stale(&f.device, "damaged");
      f.payload.code_bytes = sizeof code;
    }
    for (size_t i = 0; i < sizeof weights; i += 64) {
      f.payload.weight_bytes = i;
      refuse_stale(&f.device, "digest");
      f.payload.weight_bytes = sizeof weights;
      memcpy(altered, weights, sizeof weights);
      altered[i + 63] ^= 1;
      f.payload.weights = altered;
      refuse_stale(&f.device, "digest");
      f.payload.weights = weights;
    }
    for (size_t i = 0; i < 64; i++) {
      f.digest[i] ^= 1;
      refuse_stale(&f.device, "digest");
      f.digest[i] ^= 1;
    }
    works(&f.device, NULL);
  }
}

static void test_options(void) {
  mace_config config = none;
  fixture f;
  size_t bytes;
  mace_session *session;
  make_models(&f, &fake_own, 0, 0);
  void *memory = session_memory(&f.device, NULL, &bytes);
  static const char *const wrong[] = {"fak.x=1", "fakes.x=1", "fake", "fake.x=1;other.y=2", ";"};
  for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
    config.options = wrong[i];
    CHECK(mace_open(&f.device, &config, memory, bytes, &session) == MACE_REFUSED);
    CHECK(strstr(mace_error(session), "options"));
    mace_close(session);
  }
  config.options = "fake.x=1;fake.y=2";
  config.timeout_ms = 123;
  CHECK(!mace_open(&f.device, &config, memory, bytes, &session));
  CHECK(!run_and_check(session, 0, 0));
  CHECK(fake.options == config.options && fake.timeout_ms == 123);
  fake.fails = FAKE_RUN, fake.status = MACE_TIMEOUT, fake.after = 1;
  CHECK(run_and_check(session, 0, 0) == MACE_TIMEOUT);
  fake.fails = FAKE_NONE;
  CHECK(!run_and_check(session, 0, 0)); /* the session stays usable */
  mace_close(session);
  CHECK(mace_open(&f.cpu, &config, memory, bytes, &session) == MACE_REFUSED);
  mace_close(session);
  free(memory);
  balanced();
}

/* Nothing is asked of a device before the first run; it is idle after a failure, and after the last run. */
static void test_power(void) {
  mace_config config = none;
  fixture f;
  size_t bytes;
  mace_session *session;
  make_models(&f, &fake_own, 0, 0);
  for (int level = MACE_POWER_IDLE; level <= MACE_POWER_BURST; level++) {
    config.power = (mace_power)level;
    void *memory = session_memory(&f.device, &config, &bytes);
    fake_forget();
    CHECK(!mace_open(&f.device, &config, memory, bytes, &session) && fake.power == MACE_POWER_IDLE);
    for (int i = 0; i < 3; i++) {
      CHECK(!run_and_check(session, 0, 0) && (int)fake.power == level);
      CHECK(fake.calls[FAKE_POWER] == (level ? i + 1 : 0)); /* once for the runs between two failures */
      CHECK(!run_and_check(session, 0, 0) && fake.calls[FAKE_POWER] == (level ? i + 1 : 0));
      fake.fails = FAKE_RUN, fake.status = MACE_FAILED, fake.after = fake.calls[FAKE_RUN];
      CHECK(run_and_check(session, 0, 0) == MACE_FAILED && fake.power == MACE_POWER_IDLE);
      fake.fails = FAKE_NONE;
    }
    CHECK(!run_and_check(session, 0, 0));
    mace_close(session);
    free(memory);
    balanced();
  }
}

/* A process may end with open sessions: nothing of ours runs at its end. */
static void test_exit(void) {
  static const mace_config burst = {.struct_bytes = sizeof burst, .power = MACE_POWER_BURST};
  static fixture f;
  static mace_session *session;
  static void *memory;
  size_t bytes;
  float x[FAKE_VALUES] = {0}, y[FAKE_VALUES];
  const void *inputs[] = {x};
  void *outputs[] = {y};
  make_models(&f, &fake_async, 0, 0);
  memory = session_memory(&f.device, &burst, &bytes);
  CHECK(!mace_open(&f.device, &burst, memory, bytes, &session) && !run_and_check(session, 0, 0));
  CHECK(!mace_submit(session, inputs, outputs)); /* and one run is in flight */
  exit(0);
}

#include "buffer_tests.h"
#include "cache_tests.h"
#include "fence_tests.h"
#include "submit_tests.h"
#include "observe_tests.h"
#include "notify_tests.h"
#include "remote_tests.h"
#include "overlap_tests.h"

int main(int argc, char **argv) {
  static const struct {
    const char *name;
    void (*run)(void);
  } tests[] = {
      {"run", test_run},
      {"devices", test_devices},
      {"tables", test_tables},
      {"configs", test_configs},
      {"memory", test_memory},
      {"faults", test_faults},
      {"long_texts", test_long_texts},
      {"loss", test_loss},
      {"states", test_states},
      {"fallback", test_fallback},
      {"stale", test_stale},
      {"options", test_options},
      {"power", test_power},
      {"exit", test_exit},
      {"needs", test_needs},
      {"pages", test_pages},
      {"bind", test_bind},
      {"kinds", test_kinds},
      {"fences", test_fences},
      {"refused_fences", test_refused_fences},
      {"allocate", test_allocate},
      {"allocate_host", test_allocate_host},
      {"calls", test_calls},
      {"cache", test_cache},
      {"shipped", test_shipped},
      {"cache_facts", test_cache_facts},
      {"cache_faults", test_cache_faults},
      {"cache_tables", test_cache_tables},
      {"submit", test_submit},
      {"submit_parts", test_submit_parts},
      {"submit_states", test_submit_states},
      {"one_in_flight", test_one_in_flight},
      {"submit_faults", test_submit_faults},
      {"submit_fallback", test_submit_fallback},
      {"hangs", test_hangs},
      {"unbounded", test_unbounded},
      {"observed_parts", test_observed_parts},
      {"observed_faults", test_observed_faults},
      {"notify", test_notify},
      {"notify_without_flight", test_notify_without_flight},
      {"remote", test_remote},
      {"remote_refusals", test_remote_refusals},
      {"natives", test_natives},
      {"overlap", test_overlap},
      {"overlap_hazards", test_overlap_hazards},
      {"overlap_submitted", test_overlap_submitted},
      {"overlap_faults", test_overlap_faults},
      {"overlap_abandoned", test_overlap_abandoned},
      {"overlap_fallback", test_overlap_fallback},
  };
  for (size_t i = 0; argc == 2 && i < sizeof tests / sizeof *tests; i++) {
    if (strcmp(argv[1], tests[i].name)) continue;
    tests[i].run();
    return 0;
  }
  for (size_t i = 0; i < sizeof tests / sizeof *tests; i++) puts(tests[i].name);
  return argc != 1;
}
