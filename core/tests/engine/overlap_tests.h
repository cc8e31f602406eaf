/* overlap_tests.h - part of engine_test.c: copies that go on while the engine does something else. The fake device
 * makes them as late as it may: before it computes, or when they are waited for. */

/* Copies go on until a call of the CPU, or the end of the run. */
static void test_overlap(void) {
  fixture f;
  make_models(&f, &fake_overlap, 0, 0);
  works(&f.device, NULL);
  /* In each of two runs: to the device, and from it, which the call behind it waits for. */
  CHECK(fake.calls[FAKE_COPY] == 0 && fake.calls[FAKE_BEGIN] == 4 && fake.calls[FAKE_FINISH] == 2);
  fake_forget();
  make_remote(&f, &fake_overlap);
  size_t bytes;
  mace_session *session;
  float x[FAKE_VALUES] = {1}, y[FAKE_VALUES] = {0};
  const void *inputs[] = {x};
  void *outputs[] = {y};
  void *memory = session_memory(&f.device, NULL, &bytes);
  CHECK(!mace_open(&f.device, NULL, memory, bytes, &session));
  CHECK(!mace_run(session, inputs, outputs) && y[0] == 13 && !fake.copying);
  CHECK(fake.calls[FAKE_BEGIN] == 2 && fake.calls[FAKE_FINISH] == 1); /* nobody waits between the two */
  mace_close(session);
  free(memory);
  balanced();
}

/* Overwrites what was copied to the device. */
static void scribble(const mace_frame *frame) { memset(frame->arena, 0xEE, FAKE_BYTES); }

static void test_overlap_hazards(void) {
  fixture f;
  size_t bytes;
  mace_session *session;
  float x[FAKE_VALUES] = {1}, y[FAKE_VALUES] = {0};
  const void *inputs[] = {x};
  void *outputs[] = {y};
  const mace_place output = {MACE_IN_OUTPUT, 0, 0};
  make_models(&f, &fake_overlap, 0, 0);
  f.steps[3] = f.steps[2];
  f.steps[2] = (mace_step){scribble, 0, {output, output}, 0};
  f.steps[4] = (mace_step){NULL, -1, {output, f.places[1]}, FAKE_BYTES};
  void *memory = session_memory(&f.device, NULL, &bytes);
  CHECK(!mace_open(&f.device, NULL, memory, bytes, &session));
  for (int i = 0; i < 3; i++) {
    x[0] = (float)i;
    CHECK(!mace_run(session, inputs, outputs) && y[0] == 3 * ((float)i + 1) + 10);
  }
  mace_close(session);
  free(memory);
  balanced();
}

static void test_overlap_submitted(void) {
  fixture f;
  size_t bytes;
  mace_session *session;
  float x[FAKE_VALUES] = {1}, y[FAKE_VALUES] = {0};
  const void *inputs[] = {x};
  void *outputs[] = {y};
  make_remote(&f, &fake_overlap);
  void *memory = session_memory(&f.device, NULL, &bytes);
  CHECK(!mace_open(&f.device, NULL, memory, bytes, &session));
  fake.waits = 1;
  CHECK(!mace_submit(session, inputs, outputs) && fake.copying == 1);
  CHECK(mace_wait(session, 0) == MACE_BUSY && fake.copying == 1);
  CHECK(!mace_wait(session, MACE_FOREVER) && y[0] == 13 && !fake.copying);
  fake.hangs = 1; /* the part ends without having computed */
  CHECK(!mace_submit(session, inputs, outputs) && fake.copying == 1);
  mace_close(session); /* waits for the copy, whose memory is the application's */
  free(memory);
  balanced();
}

/* A copy that fails, when it is begun or later, and a part that fails behind it. */
static void test_overlap_faults(void) {
  static const fake_call kinds[] = {FAKE_BEGIN, FAKE_BEGIN, FAKE_FINISH, FAKE_RUN};
  static const int32_t earlier[] = {0, 1, 0, 0};
  for (int i = 0; i < 4; i++)
    for (int lost = 0; lost < 2; lost++) {
      fixture f;
      size_t bytes;
      mace_session *session;
      const mace_status expected = lost ? MACE_LOST : MACE_FAILED;
      fake_forget();
      make_models(&f, &fake_overlap, 0, 0);
      void *memory = session_memory(&f.device, NULL, &bytes);
      CHECK(!mace_open(&f.device, NULL, memory, bytes, &session));
      fake.fails = kinds[i], fake.after = earlier[i], fake.status = expected, fake.text = "it broke; mend it";
      CHECK(run_and_check(session, 0, 0) == expected);
      CHECK(strstr(mace_error(session), "it broke; mend it"));
      CHECK(!fake.copying); /* the application has its memory back */
      fake.fails = FAKE_NONE;
      CHECK(lost ? run_and_check(session, 0, 0) == MACE_LOST : !run_and_check(session, 0, 0));
      mace_close(session);
      free(memory);
      balanced();
    }
}

/* A copy that cannot be begun, while another one goes on. */
static void test_overlap_abandoned(void) {
  fixture f;
  size_t bytes;
  mace_session *session;
  make_models(&f, &fake_overlap, 0, 0);
  f.steps[2] = f.steps[1];
  void *memory = session_memory(&f.device, NULL, &bytes);
  CHECK(!mace_open(&f.device, NULL, memory, bytes, &session));
  fake.fails = FAKE_BEGIN, fake.after = 1, fake.status = MACE_FAILED, fake.text = "it broke; mend it";
  CHECK(run_and_check(session, 0, 0) == MACE_FAILED && strstr(mace_error(session), "it broke"));
  CHECK(fake.calls[FAKE_FINISH] == 1 && !fake.copying);
  mace_close(session);
  free(memory);
  balanced();
}

/* The processor computes in memory that no copy writes any more. */
static void test_overlap_fallback(void) {
  mace_config allowed = {.struct_bytes = sizeof allowed, .fallback = MACE_FALLBACK_AT_RUN};
  for (int kind = FAKE_RUN; kind <= FAKE_FINISH; kind++) {
    fixture f;
    size_t bytes;
    mace_session *session;
    if (kind != FAKE_RUN && kind != FAKE_BEGIN && kind != FAKE_FINISH) continue;
    fake_forget();
    make_models(&f, &fake_overlap, 0, 0);
    f.device.fallback = &f.cpu;
    void *memory = session_memory(&f.device, &allowed, &bytes);
    CHECK(!mace_open(&f.device, &allowed, memory, bytes, &session));
    fake.fails = kind, fake.status = MACE_FAILED, fake.after = kind == FAKE_BEGIN, fake.text = "it broke";
    CHECK(!run_and_check(session, 0, 0) && !fake.copying);
    CHECK(strstr(mace_part_device(session, 1), "it broke"));
    CHECK(!run_and_check(session, 4, 0));
    mace_close(session);
    free(memory);
    balanced();
  }
}
