/* observe_tests.h - part of engine_test.c: layers of parts that drivers run. */

/* What an observer saw: the layers in order, and of layer 2 a value and its time. */
typedef struct seen_layers {
  mace_session *session;
  int32_t layers[8], count;
  float value;
  uint64_t ns;
} seen_layers;

static void see(void *observer, int32_t layer, const void *result) {
  seen_layers *seen = observer;
  CHECK(seen->count < 8);
  seen->layers[seen->count++] = layer;
  if (layer != 2) CHECK(!mace_layer_ns(seen->session));
  if (layer != 2) return;
  memcpy(&seen->value, result, sizeof seen->value);
  seen->ns = mace_layer_ns(seen->session);
}

/* Layers of the part come between those of the calls around it, under the numbers that the build gave them. */
static void test_observed_parts(void) {
  fixture f;
  size_t bytes;
  mace_session *session;
  int waits;
  make_models(&f, &fake_layers, 0, 0);
  void *memory = session_memory(&f.device, NULL, &bytes);
  CHECK(!mace_open(&f.device, NULL, memory, bytes, &session));
  for (int submits = 0; submits < 2; submits++) {
    seen_layers seen = {.session = session};
    mace_observe(session, see, &seen);
    CHECK(!(submits ? submit_and_check(session, 4, 0, &waits) : run_and_check(session, 4, 0)));
    CHECK(seen.count == 3 && seen.layers[0] == 0 && seen.layers[1] == 2 && seen.layers[2] == 1);
    CHECK(seen.value == 3 * (4 + 1) + 10 && seen.ns == 1234);
    CHECK(fake.calls[FAKE_OBSERVE] == submits + 1 && fake.calls[FAKE_RUN] == submits && !fake.submitted);
    mace_observe(session, NULL, NULL);
    CHECK(!run_and_check(session, 1, 0) && seen.count == 3);
  }
  mace_close(session);
  free(memory);
  balanced();
}

/* A run that fails while it is observed ends as any other; a part without layers runs as if nobody looked. */
static void test_observed_faults(void) {
  const mace_config allowed = {.struct_bytes = sizeof allowed, .fallback = MACE_FALLBACK_AT_RUN};
  fixture f;
  size_t bytes;
  mace_session *session;
  for (int kind = 0; kind < 3; kind++) {
    make_models(&f, &fake_layers, 0, 0);
    if (kind == 1) f.device.fallback = &f.cpu;
    if (kind == 2) f.task.layers = 0;
    void *memory = session_memory(&f.device, &allowed, &bytes);
    CHECK(!mace_open(&f.device, &allowed, memory, bytes, &session));
    seen_layers seen = {.session = session};
    mace_observe(session, see, &seen);
    fake.fails = FAKE_OBSERVE, fake.status = MACE_FAILED, fake.text = "the kernel went astray; report it";
    const mace_status status = run_and_check(session, 4, 0);
    CHECK(status == (kind ? MACE_OK : MACE_FAILED) && seen.count == (kind == 2 ? 2 : 1));
    if (!kind) CHECK(strstr(mace_error(session), "astray"));
    fake.fails = FAKE_NONE;
    mace_close(session);
    free(memory);
    balanced();
  }
}
