/* fence_tests.h - part of engine_test.c: buffers that come with a fence, and memory that the session makes
 * for a port. */
#include <fcntl.h>

/* A descriptor that signals, or will never. */
static int make_fence(int signaled) {
  int ends[2];
  CHECK(!pipe(ends));
  CHECK(!signaled || write(ends[1], "x", 1) == 1);
  if (signaled) close(ends[1]); /* else it stays open, as long as the process: nobody will write */
  return ends[0];
}

static int is_open(int descriptor) { return fcntl(descriptor, F_GETFD) >= 0; }

/* Binding a buffer with a signaled fence is refused, and the fence stays the application's. */
static void refuse_fence(mace_session *session, mace_buffer *buffer) {
  const mace_status status = (buffer->fence = make_fence(1), mace_bind(session, 0, buffer));
  CHECK(status == MACE_REFUSED && strstr(mace_error(session), "fence") && is_open(buffer->fence));
  close(buffer->fence);
  buffer->fence = -1;
  CHECK(!mace_bind(session, 0, buffer));
}

/* The driver waits for a fence and closes it, once; where nothing can wait, it is refused. */
static void test_fences(void) {
  fixture f;
  size_t bytes;
  mace_session *session;
  _Alignas(64) float area[16] = {1}, y[FAKE_VALUES];
  const void *inputs[] = {NULL};
  void *outputs[] = {y};
  mace_buffer buffer = host_buffer(area, 0, sizeof area);
  make_models(&f, &fake_import, 0, 1);
  void *memory = session_memory(&f.device, NULL, &bytes);
  CHECK(!mace_open(&f.device, NULL, memory, bytes, &session));
  for (buffer.fence = -1; buffer.fence <= 0; buffer.fence++)
    CHECK(!mace_bind(session, 0, &buffer) && is_open(0));
  buffer.fence = make_fence(1);
  CHECK(!mace_bind(session, 0, &buffer) && fake.fences == 1 && !is_open(buffer.fence));
  const int later = make_fence(1); /* most likely has the same number: nobody may close it */
  CHECK(!mace_run(session, inputs, outputs) && y[0] == 13);
  CHECK(!mace_bind(session, 0, NULL) && is_open(later));
  buffer.fence = make_fence(0);
  CHECK(mace_bind(session, 0, &buffer) == MACE_TIMEOUT && strstr(mace_error(session), "signal") &&
        is_open(buffer.fence));
  CHECK(mace_run(session, inputs, outputs) == MACE_NO_TENSOR);
  close(buffer.fence);
  buffer.struct_bytes = offsetof(mace_buffer, fence); /* an application that knows of no fences */
  CHECK(!mace_bind(session, 0, &buffer) && fake.fences == 1);
  mace_close(session);
  CHECK(is_open(later) && fake.fences == 1);
  close(later);
  free(memory);
  balanced();
}

/* Neither kernels nor drivers without the flag wait for fences; nor do two devices for one. */
static void test_refused_fences(void) {
  mace_driver plain = fake_import;
  const mace_driver *const two[] = {&fake_import, &fake_import};
  fixture f;
  size_t bytes;
  mace_session *session;
  _Alignas(64) float area[16] = {1};
  mace_buffer buffer = host_buffer(area, 0, sizeof area);
  plain.flags = 0;
  for (int kind = 0; kind < 4; kind++) {
    make_models(&f, kind == 1 ? &plain : &fake_import, 0, kind > 0);
    const mace_task tasks[] = {f.task, {0, 1, &f.payload, f.places, 0, 0, NULL, 0, NULL}};
    const mace_step steps[] = {{.task = 0}, {.task = 1}};
    if (kind == 3) f.plan.drivers = two, f.plan.device_count = 2, f.plan.tasks = tasks, f.plan.task_count = 2;
    if (kind == 3) f.plan.steps = steps, f.plan.step_count = 2;
    if (kind == 2) f.host_ports[0] = 1;
    for (int device = 0; device < 2; device++) {
      const mace_model *model = device ? &f.device : &f.cpu;
      void *memory = session_memory(model, NULL, &bytes);
      CHECK(!mace_open(model, NULL, memory, bytes, &session));
      refuse_fence(session, &buffer);
      mace_close(session);
      free(memory);
      balanced();
    }
  }
}

/* Memory of the device, which lives as long as the session; the same one for every call. */
static void test_allocate(void) {
  const mace_config allowed = {.struct_bytes = sizeof allowed, .fallback = MACE_FALLBACK_AT_RUN};
  fixture f;
  size_t bytes;
  mace_session *session;
  float y[FAKE_VALUES];
  const void *inputs[] = {NULL};
  void *outputs[] = {NULL}, *own[] = {y};
  mace_buffer input = {.struct_bytes = sizeof input}, output = input, again = input, unset = {0};
  make_models(&f, &fake_own, 0, 1);
  f.device.fallback = &f.cpu;
  void *memory = session_memory(&f.device, &allowed, &bytes);
  CHECK(!mace_open(&f.device, &allowed, memory, bytes, &session));
  CHECK(!mace_allocate(session, 0, &input) && !mace_allocate(session, 1, &output) && fake.allocated == 2);
  CHECK(input.kind == MACE_BUS_ADDRESS && !input.host && input.bytes >= FAKE_BYTES && input.fence == -1);
  for (int i = 0; i < FAKE_VALUES; i++) ((float *)(uintptr_t)input.handle)[i] = (float)i;
  CHECK(!mace_run(session, inputs, outputs) && ((float *)(uintptr_t)output.handle)[7] == 31);
  CHECK(!mace_run(session, inputs, own) && y[7] == 31);
  CHECK(!mace_bind(session, 0, NULL) && mace_run(session, inputs, own) == MACE_NO_TENSOR);
  CHECK(!mace_allocate(session, 0, &again) && again.handle == input.handle && fake.allocated == 2);
  CHECK(!mace_run(session, inputs, own));
  CHECK(mace_allocate(session, 0, NULL) == MACE_REFUSED && mace_allocate(session, 2, &again) == MACE_REFUSED);
  CHECK(mace_allocate(session, 0, &unset) == MACE_REFUSED && mace_allocate(NULL, 0, &again) == MACE_REFUSED);
  again.bytes = 77,
  again.struct_bytes = offsetof(mace_buffer, bytes); /* nothing is written behind what it knows */
  CHECK(!mace_allocate(session, 0, &again) && again.bytes == 77);
  fake.fails = FAKE_RUN, fake.status = MACE_LOST, fake.after = fake.calls[FAKE_RUN];
  CHECK(mace_run(session, inputs, outputs) == MACE_LOST &&
        !fake.allocated); /* no fallback: the memory is gone */
  mace_close(session);
  for (int call = FAKE_ALLOCATE; call <= FAKE_IMPORT; call++) {
    fake_forget();
    CHECK(!mace_open(&f.device, NULL, memory, bytes, &session));
    fake.fails = call, fake.status = MACE_FAILED, fake.text = "no room; make some",
    fake.after = fake.calls[call];
    CHECK(mace_allocate(session, 0, &input) == MACE_FAILED && strstr(mace_error(session), "no room") &&
          !fake.allocated);
    fake.fails = FAKE_NONE;
    CHECK(!mace_allocate(session, 0, &input) && !mace_run(session, inputs, own));
    mace_close(session);
    balanced();
  }
  free(memory);
}

/* Where a driver works in host memory, it is memory of the session, as aligned and as large as the device
 * wants it. */
static void test_allocate_host(void) {
  static const mace_driver *const drivers[] = {&fake_shared, &fake_import};
  fixture f;
  size_t bytes;
  mace_session *session;
  const void *inputs[] = {NULL};
  void *outputs[] = {NULL};
  for (int d = 0; d < 2; d++) {
    mace_buffer input = {.struct_bytes = sizeof input}, output = input;
    make_models(&f, drivers[d], 0, 1);
    f.needs[0].alignment = 256, f.needs[0].slack = 100, f.needs[0].granule = 512;
    void *memory = session_memory(&f.device, NULL, &bytes);
    CHECK(!mace_open(&f.device, NULL, memory, bytes, &session));
    const int32_t imported = fake.imported;
    CHECK(!mace_allocate(session, 0, &input) && !mace_allocate(session, 1, &output));
    CHECK(input.kind == MACE_HOST && (uintptr_t)input.host % 256 == 0 && input.bytes == 612 &&
          fake.imported == imported);
    memset(input.host, 0, input.bytes); /* a sanitizer sees one byte too many */
    for (int i = 0; i < FAKE_VALUES; i++) ((float *)input.host)[i] = (float)i;
    CHECK(!mace_run(session, inputs, outputs) && ((float *)output.host)[7] == 31);
    mace_close(session);
    free(memory);
    make_models(&f, drivers[d], 0, 0); /* kernels and copies use the ports, and no device */
    for (int device = 0; device < 2; device++) {
      const mace_model *model = device ? &f.device : &f.cpu;
      memory = session_memory(model, NULL, &bytes);
      CHECK(!mace_open(model, NULL, memory, bytes, &session));
      CHECK(mace_allocate(session, 0, &input) == MACE_REFUSED &&
            strstr(mace_error(session), "no device uses the port"));
      mace_close(session);
      free(memory);
    }
    balanced();
  }
}
