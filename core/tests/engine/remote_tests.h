/* remote_tests.h - part of engine_test.c: buffers of a device that take the place of tensors in its space. */

/* A model whose one part lies in a space: a copy, a task, a copy. */
static void make_remote(fixture *f, const mace_driver *driver) {
  static const int32_t ports[] = {0, 1};
  const mace_place input = {MACE_IN_INPUT, 0, 0}, output = {MACE_IN_OUTPUT, 0, 0};
  make_models(f, driver, 0, 0);
  f->parts[0] = f->parts[1];
  f->needs[0].kinds = f->needs[1].kinds = 1u << MACE_BUS_ADDRESS;
  f->task.part = 0;
  f->task.model_ports = ports;
  f->steps[0] = (mace_step){NULL, -1, {f->places[0], input}, FAKE_BYTES};
  f->steps[1] = f->steps[2];
  f->steps[2] = (mace_step){NULL, -1, {output, f->places[1]}, FAKE_BYTES};
  f->plan.step_count = 3;
  f->host_ports[0] = f->host_ports[1] = 2;
  f->device.part_count = 1;
  f->cpu.run = run_direct;
}

static mace_buffer bus_buffer(void *at, size_t offset, size_t bytes) {
  const mace_buffer buffer = {sizeof buffer, MACE_BUS_ADDRESS, NULL, (uintptr_t)at, offset, bytes, -1};
  return buffer;
}

/* Nothing is copied to or from a port with such a buffer, and the session's own memory stays as it was. */
static void test_remote(void) {
  fixture f;
  size_t bytes;
  mace_session *session;
  float x[FAKE_VALUES] = {1}, y[FAKE_VALUES];
  _Alignas(64) float area[64] = {7}, other[16] = {8};
  const void *inputs[] = {x}, *bound_inputs[] = {NULL};
  void *outputs[] = {y}, *bound_outputs[] = {NULL};
  make_remote(&f, &fake_async);
  void *memory = session_memory(&f.device, NULL, &bytes);
  CHECK(!mace_open(&f.device, NULL, memory, bytes, &session));
  CHECK(!mace_run(session, inputs, outputs) && y[0] == 13 && fake.calls[FAKE_COPY] == 2);
  const mace_buffer in = bus_buffer(area, 0, sizeof area), out = bus_buffer(area, 128, sizeof area);
  const int32_t imported = fake.imported;
  CHECK(!mace_bind(session, 0, &in) && fake.imported == imported + 1);
  CHECK(!mace_run(session, bound_inputs, outputs) && y[0] == 31 && fake.calls[FAKE_COPY] == 3);
  CHECK(!mace_bind(session, 1, &out) && fake.imported == imported + 2);
  y[0] = 0;
  for (int i = 0; i < 3; i++) {
    area[0] = (float)i;
    CHECK(!mace_run(session, bound_inputs, bound_outputs));
    CHECK(area[32] == 3 * (float)i + 10 && area[31] == 0 && area[40] == 0 && y[0] == 0);
    area[0] = 5;
    CHECK(!mace_submit(session, bound_inputs, bound_outputs) && !mace_wait(session, MACE_FOREVER));
    CHECK(area[32] == 25);
  }
  CHECK(fake.calls[FAKE_COPY] == 3);
  /* Addresses of the call come first; another buffer takes the place of the first. */
  CHECK(!mace_run(session, inputs, outputs) && y[0] == 13 && fake.calls[FAKE_COPY] == 5);
  const mace_buffer second = bus_buffer(other, 0, sizeof other);
  CHECK(!mace_bind(session, 0, &second) && !mace_run(session, bound_inputs, outputs) && y[0] == 34);
  CHECK(!mace_bind(session, 0, NULL) && mace_run(session, bound_inputs, outputs) == MACE_NO_TENSOR);
  /* Host memory is copied, from where it was bound. */
  const mace_buffer host = host_buffer(other, 0, sizeof other);
  CHECK(!mace_bind(session, 0, &host) && !mace_run(session, bound_inputs, outputs) && y[0] == 34);
  mace_close(session);
  free(memory);
  balanced();
}

static void test_remote_refusals(void) {
  static const char *const kinds = "give one of MACE_HOST MACE_BUS_ADDRESS";
  mace_config allowed = {.struct_bytes = sizeof allowed, .fallback = MACE_FALLBACK_AT_RUN};
  fixture f;
  size_t bytes;
  mace_session *session;
  _Alignas(64) float area[16] = {7}, y[FAKE_VALUES];
  const void *inputs[] = {NULL};
  void *outputs[] = {y};
  const mace_buffer in = bus_buffer(area, 0, sizeof area), small = bus_buffer(area, 48, sizeof area);
  mace_buffer other = in, fenced = in;
  other.kind = MACE_DMABUF;
  fenced.fence = 1;
  make_remote(&f, &fake_own);
  f.device.fallback = &f.cpu;
  void *memory = session_memory(&f.device, &allowed, &bytes);
  CHECK(!mace_open(&f.device, &allowed, memory, bytes, &session));
  CHECK(mace_bind(session, 0, &other) == MACE_REFUSED && strstr(mace_error(session), kinds));
  CHECK(mace_bind(session, 0, &small) == MACE_REFUSED && strstr(mace_error(session), "smaller"));
  CHECK(mace_bind(session, 0, &fenced) == MACE_REFUSED && strstr(mace_error(session), "fence"));
  fake.fails = FAKE_IMPORT, fake.status = MACE_REFUSED, fake.text = "of another context; share it";
  fake.after = fake.calls[FAKE_IMPORT];
  CHECK(mace_bind(session, 0, &in) == MACE_REFUSED && strstr(mace_error(session), "another context"));
  CHECK(mace_run(session, inputs, outputs) == MACE_NO_TENSOR);
  /* The CPU cannot compute from memory that it does not reach. */
  fake.fails = FAKE_NONE;
  CHECK(!mace_bind(session, 0, &in));
  fake.fails = FAKE_RUN, fake.status = MACE_FAILED, fake.after = fake.calls[FAKE_RUN];
  CHECK(mace_run(session, inputs, outputs) == MACE_FAILED);
  fake.fails = FAKE_NONE;
  CHECK(!mace_run(session, inputs, outputs) && y[0] == 31);
  mace_close(session);
  balanced();
  /* Kernel calls or an older build need the address. */
  for (int kind = 0; kind < 2; kind++) {
    make_remote(&f, &fake_own);
    if (kind) f.task.model_ports = NULL;
    else f.host_ports[0] = 1;
    CHECK(!mace_open(&f.device, NULL, memory, bytes, &session));
    CHECK(mace_bind(session, 0, &in) == MACE_REFUSED);
    CHECK(strstr(mace_error(session), "give one of MACE_HOST") && !strstr(mace_error(session), kinds));
    mace_close(session);
    balanced();
  }
  free(memory);
}

/* Objects of the application are for drivers of the model that take some. */
static void test_natives(void) {
  static const char *const names[] = {"fake.queue", "fak.queue", "fakes.queue", "fake", ""};
  mace_driver driver = fake_own;
  fixture f;
  size_t bytes;
  mace_session *session;
  int handle;
  make_models(&f, &driver, 0, 0);
  for (int i = 0; i < 10; i++) {
    const mace_native natives[] = {{"fake.context", &handle}, {names[i / 2], &handle}, {NULL, NULL}};
    const mace_config config = {.struct_bytes = sizeof config, .native = natives};
    driver.flags = i % 2 ? MACE_SHARES : 0;
    void *memory = session_memory(&f.device, &config, &bytes);
    const mace_status status = mace_open(&f.device, &config, memory, bytes, &session);
    CHECK(status == (i == 1 ? MACE_OK : MACE_REFUSED));
    if (status) CHECK(strstr(mace_error(session), "mace_config.native"));
    mace_close(session);
    free(memory);
    balanced();
  }
}
