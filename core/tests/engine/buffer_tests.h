/* buffer_tests.h - part of engine_test.c: what memory the device gets, and buffers of the application. */
#include <sys/mman.h>
#include <unistd.h>

static mace_buffer host_buffer(void *host, size_t offset, size_t bytes) {
  const mace_buffer buffer = {sizeof buffer, MACE_HOST, host, 0, offset, bytes, -1};
  return buffer;
}

/* A device that wants more than the build planned is refused at open, with both in the text. */
static void test_needs(void) {
  static const mace_need raises[] = {{sizeof(mace_need), 0, 0, 0, 0, 48},
                                     {sizeof(mace_need), 0, 128, 0, 0, 0},
                                     {sizeof(mace_need), 0, 0, 4096, 0, 0},
                                     {sizeof(mace_need), 0, 0, 0, 16, 0}};
  static const char *const wanted[] = {"48 bytes, alignment 64", "alignment 128", "granule 4096", "slack 16"};
  fixture f;
  size_t bytes;
  mace_session *session;
  make_models(&f, &fake_own, 0, 0);
  void *memory = session_memory(&f.device, NULL, &bytes);
  for (int i = 0; i < 4; i++) {
    fake.raise = raises[i];
    CHECK(mace_open(&f.device, NULL, memory, bytes, &session) == MACE_STALE);
    CHECK(strstr(mace_error(session), wanted[i]));
    CHECK(strstr(mace_error(session),
                 "the build planned 32 bytes, alignment 64, granule 64, slack 0; build for this device"));
    mace_close(session);
    balanced();
  }
  free(memory);
  fake_forget();
  make_models(&f, &fake_import, 0,
              0); /* no memory of its own: the session makes it, as aligned and as large as asked for */
  f.space.need.alignment = 256, f.space.need.granule = 4096, f.space.need.slack = 100;
  memory = session_memory(&f.device, NULL, &bytes);
  CHECK(!mace_open(&f.device, NULL, memory, bytes, &session));
  CHECK((uintptr_t)fake.import_host % 256 == 0 && fake.import_bytes == 4096 + 100);
  CHECK(!run_and_check(session, 0, 0));
  mace_close(session);
  free(memory);
  make_models(&f, &fake_shared, 0, 1); /* host memory that a driver cannot use is refused, not handed on */
  f.places[0] = (mace_place){MACE_IN_ARENA, 0, 4};
  memory = session_memory(&f.device, NULL, &bytes);
  CHECK(mace_open(&f.device, NULL, memory, bytes, &session) == MACE_REFUSED);
  CHECK(strstr(mace_error(session), "aligned"));
  mace_close(session);
  free(memory);
  balanced();
}

/* Two pages, the second of which nobody may touch. */
static char *guarded_page(size_t page) {
  char *at = mmap(NULL, 2 * page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  CHECK(at != MAP_FAILED && !mprotect(at + page, page, PROT_NONE));
  return at;
}

/* The device reads 16 bytes behind its input: memory that ends at a protected page is copied or refused. */
static void test_pages(void) {
  const size_t page = (size_t)sysconf(_SC_PAGESIZE);
  fixture f;
  size_t bytes;
  mace_session *session;
  char *guarded = guarded_page(page);
  float y[FAKE_VALUES];
  make_models(&f, &fake_shared, 0, 1);
  f.needs[0].slack = 16, f.needs[0].alignment = 4;
  void *memory = session_memory(&f.device, NULL, &bytes);
  CHECK(!mace_open(&f.device, NULL, memory, bytes, &session));
  for (size_t slack = 0; slack <= 32; slack += 4) {
    float *x = (float *)(void *)(guarded + page - FAKE_BYTES - slack);
    for (int i = 0; i < FAKE_VALUES; i++) x[i] = (float)i;
    const void *inputs[] = {x}, *bound[] = {NULL};
    void *outputs[] = {y};
    CHECK(!mace_run(session, inputs, outputs)); /* nothing is known of what lies behind: it is copied */
    CHECK(y[0] == 10 && y[7] == 31);
    const mace_buffer buffer = host_buffer(x, 0, FAKE_BYTES + slack);
    const mace_status status = mace_bind(session, 0, &buffer);
    CHECK(status == (slack < 16 ? MACE_REFUSED : MACE_OK));
    if (status) CHECK(strstr(mace_error(session), "larger buffer"));
    y[0] = y[7] = 0;
    CHECK(mace_run(session, bound, outputs) == (status ? MACE_NO_TENSOR : MACE_OK));
    if (!status) CHECK(y[0] == 10 && y[7] == 31 && !mace_bind(session, 0, NULL));
  }
  mace_close(session);
  munmap(guarded, 2 * page);
  free(memory);
}

/* Buffers are imported once, when they are bound, and never known by their address. */
static void test_bind(void) {
  fixture f;
  size_t bytes;
  mace_session *session;
  const void *inputs[] = {NULL};
  void *outputs[] = {NULL};
  make_models(&f, &fake_import, 0, 1);
  void *memory = session_memory(&f.device, NULL, &bytes);
  CHECK(!mace_open(&f.device, NULL, memory, bytes, &session));
  const int32_t staged = fake.imported; /* what lies in the session */
  _Alignas(64) float area[64] = {1, 2, 3, 4, 5, 6, 7, 8};
  const mace_buffer input = host_buffer(area, 0, sizeof area), output = host_buffer(area, 128, sizeof area);
  CHECK(!mace_bind(session, 0, &input) && !mace_bind(session, 1, &output));
  CHECK(fake.imported == staged + 2);
  for (int i = 0; i < 5; i++) {
    area[0] = (float)i;
    CHECK(!mace_run(session, inputs, outputs));
    CHECK(area[32] == 3 * (float)i + 10 && area[39] == 34 && area[31] == 0 && area[40] == 0);
  }
  CHECK(fake.imported == staged + 2);
  float x[FAKE_VALUES] = {9}, y[FAKE_VALUES]; /* addresses of the call come first */
  const void *own_inputs[] = {x};
  void *own_outputs[] = {y};
  CHECK(!mace_run(session, own_inputs, own_outputs) && y[0] == 37);
  CHECK(!mace_bind(session, 0, NULL) && fake.imported == staged + 1);
  CHECK(mace_run(session, inputs, outputs) == MACE_NO_TENSOR);
  const int32_t imports = fake.calls[FAKE_IMPORT];
  const mace_buffer smaller = host_buffer(area, 0, 64); /* another buffer at the same address */
  CHECK(!mace_bind(session, 0, &smaller));
  CHECK(fake.calls[FAKE_IMPORT] == imports + 1 && fake.import_bytes == 64);
  CHECK(!mace_run(session, inputs, outputs));
  fake.fails = FAKE_IMPORT, fake.status = MACE_NO_MEMORY, fake.after = fake.calls[FAKE_IMPORT];
  CHECK(mace_bind(session, 0, &input) == MACE_NO_MEMORY); /* and nothing is bound then */
  fake.fails = FAKE_NONE;
  CHECK(mace_run(session, inputs, outputs) == MACE_NO_TENSOR);
  mace_close(session);
  free(memory);
  balanced();
}

static void test_kinds(void) {
  fixture f;
  size_t bytes;
  mace_session *session;
  _Alignas(64) float area[16] = {0}, y[FAKE_VALUES];
  const void *inputs[] = {NULL};
  void *outputs[] = {y};
  make_models(&f, &fake_import, 0, 1);
  f.needs[0].kinds = 1u << MACE_HOST | 1u << MACE_DMABUF;
  void *memory = session_memory(&f.device, NULL, &bytes);
  CHECK(!mace_open(&f.device, NULL, memory, bytes, &session));
  for (int port = 0; port < 2; port++)
    for (int kind = MACE_HOST; kind <= MACE_BUS_ADDRESS + 40; kind++) {
      mace_buffer buffer = host_buffer(area, 0, sizeof area);
      buffer.kind = (mace_buffer_kind)kind;
      const mace_status status = mace_bind(session, port, &buffer);
      CHECK(status == (kind == MACE_HOST || (!port && kind == MACE_DMABUF) ? MACE_OK : MACE_REFUSED));
      if (status)
        CHECK(strstr(mace_error(session),
                     port ? "give one of MACE_HOST" : "give one of MACE_HOST MACE_DMABUF"));
    }
  const mace_buffer shared = {sizeof shared, MACE_DMABUF, NULL, (uintptr_t)area, 0,
                              sizeof area,   -1}; /* without an address */
  area[0] = 4;
  CHECK(!mace_bind(session, 0, &shared) && !mace_bind(session, 1, NULL));
  CHECK(!mace_run(session, inputs, outputs));
  CHECK(y[0] == 22);
  const mace_buffer none_at_all = {0}, small = host_buffer(area, 60, sizeof area),
                    lost = host_buffer(NULL, 0, 64);
  const mace_buffer crooked = host_buffer((char *)area + 4, 0, 56);
  CHECK(mace_bind(session, 0, &none_at_all) == MACE_REFUSED && strstr(mace_error(session), "struct_bytes"));
  CHECK(mace_bind(session, 0, &small) == MACE_REFUSED && strstr(mace_error(session), "smaller"));
  CHECK(mace_bind(session, 0, &lost) == MACE_REFUSED && strstr(mace_error(session), "address"));
  CHECK(mace_bind(session, 0, &crooked) == MACE_REFUSED && strstr(mace_error(session), "alignment"));
  CHECK(mace_bind(session, 2, NULL) == MACE_REFUSED && mace_bind(session, -1, NULL) == MACE_REFUSED);
  mace_close(session);
  free(memory);
  balanced();
  make_models(&f, &fake_own, 0, 0); /* kernel calls use the address */
  memory = session_memory(&f.device, NULL, &bytes);
  CHECK(!mace_open(&f.device, NULL, memory, bytes, &session));
  CHECK(mace_bind(session, 0, &shared) == MACE_REFUSED);
  const mace_buffer plain = host_buffer(area, 0, sizeof area);
  CHECK(!mace_bind(session, 0, &plain));
  CHECK(!mace_run(session, inputs, outputs) && y[0] == 23);
  mace_close(session);
  free(memory);
  balanced();
}

static int32_t observed;
static void observe(void *observer, int32_t layer, const void *result) {
  observed += observer == &observed && result ? layer + 1 : 100;
}

/* What needs no device. */
static void test_calls(void) {
  fixture f;
  size_t bytes;
  mace_session *session;
  float x[3 * FAKE_VALUES], y[3 * FAKE_VALUES];
  const void *inputs[] = {x}, *nothing[] = {NULL};
  void *outputs[] = {y}, *nowhere[] = {NULL};
  for (int kind = 0; kind < 2; kind++) {
    make_models(&f, &fake_own, 0, 0);
    const mace_model *model = kind ? &f.device : &f.cpu;
    void *memory = session_memory(model, NULL, &bytes);
    CHECK(!mace_open(model, NULL, memory, bytes, &session) && !*mace_error(session));
    for (int i = 0; i < 3 * FAKE_VALUES; i++) x[i] = (float)i, y[i] = 0;
    CHECK(!mace_run_batch(session, 3, inputs, outputs));
    for (int i = 0; i < 3 * FAKE_VALUES; i++) CHECK(y[i] == 3 * (x[i] + 1) + 8);
    CHECK(!mace_run_batch(session, 0, inputs, outputs) &&
          mace_run_batch(session, -1, inputs, outputs) == MACE_REFUSED);
    CHECK(mace_run(session, nothing, outputs) == MACE_NO_TENSOR && strstr(mace_error(session), "input"));
    CHECK(mace_run(session, NULL, outputs) == MACE_NO_TENSOR);
    CHECK(mace_run(session, inputs, nowhere) == MACE_NO_TENSOR && strstr(mace_error(session), "output"));
    mace_observe(session, observe, &observed);
    observed = 0;
    CHECK(!run_and_check(session, 0, 0) && !*mace_error(session));
    CHECK(observed == 3);
    mace_observe(session, NULL, NULL);
    CHECK(!mace_reset(session) && !run_and_check(session, 0, 0) && observed == 3);
    const mace_buffer buffer = host_buffer(x, 0, sizeof x);
    CHECK(!mace_bind(session, 0, &buffer) && !mace_run(session, nothing, outputs));
    CHECK(mace_run_batch(session, 2, nothing, outputs) == MACE_NO_TENSOR); /* it holds one sample */
    mace_close(session);
    free(memory);
  }
  void *memory = session_memory(&f.cpu, NULL, &bytes);
  f.cpu.abi = 1;
  CHECK(!mace_session_bytes(&f.cpu, NULL) && !mace_session_bytes(NULL, NULL));
  CHECK(mace_open(&f.cpu, NULL, memory, bytes, &session) == MACE_OTHER_ABI &&
        strstr(mace_error(session), "mace.h"));
  CHECK(mace_open(NULL, NULL, memory, bytes, &session) == MACE_NO_MODEL &&
        strstr(mace_error(session), "NULL"));
  CHECK(mace_run(session, inputs, outputs) == MACE_REFUSED);
  CHECK(mace_bind(session, 0, NULL) == MACE_REFUSED && mace_reset(session) == MACE_REFUSED);
  mace_close(session);
  free(memory);
  CHECK(mace_run(NULL, inputs, outputs) == MACE_REFUSED && mace_reset(NULL) == MACE_REFUSED &&
        !*mace_part_device(NULL, 0));
}
