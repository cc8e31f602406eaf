/* cache_tests.h - part of engine_test.c: what devices compile, and where it is kept. */

/* A cache of one entry. */
typedef struct shelf {
  char key[128], data[4096];
  size_t bytes;
  int32_t loads, stores, memories; /* memories: that the session has now */
  int broken;                      /* 1: no memory; 2: the entry changes between two looks at it */
} shelf;

static size_t load_entry(void *context, const char *key, void *data, size_t bytes) {
  shelf *s = context;
  if (data && s->broken == 2) return s->bytes - 1;
  if (strcmp(key, s->key) || !s->bytes) return 0;
  if (bytes >= s->bytes) memcpy(data, s->data, s->bytes);
  s->loads += data != NULL;
  return s->bytes;
}

static void store_entry(void *context, const char *key, const void *data, size_t bytes) {
  shelf *s = context;
  CHECK(strlen(key) < sizeof s->key && bytes <= sizeof s->data);
  CHECK(strspn(key, "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ-_") == strlen(key));
  strcpy(s->key, key);
  memcpy(s->data, data, bytes);
  s->bytes = bytes;
  s->stores++;
}

static void *reallocate(void *context, void *memory, size_t bytes) {
  shelf *s = context;
  s->memories += bytes ? memory == NULL : -(memory != NULL);
  if (s->broken == 1 && bytes) return s->memories--, NULL;
  if (bytes) return realloc(memory, bytes);
  free(memory);
  return NULL;
}

/* Open and run; returns whether the device had to compile. */
static int compiles_anew(const mace_model *model, const mace_config *config, shelf *s) {
  const int32_t before = fake.calls[FAKE_COMPILE];
  works(model, config);
  CHECK(!s->memories);
  return fake.calls[FAKE_COMPILE] - before;
}

/* What the build has for a device is used as an entry of the cache would be, with a cache and without one; for
 * another driver the device compiles, and says so. */
static void test_shipped(void) {
  shelf s = {0}, other = {0};
  const mace_cache cache = {sizeof cache, &s, load_entry, store_entry, reallocate};
  const mace_cache empty = {sizeof empty, &other, load_entry, store_entry, reallocate};
  const mace_config config = {.struct_bytes = sizeof config, .cache = &cache};
  const mace_config elsewhere = {.struct_bytes = sizeof elsewhere, .cache = &empty};
  mace_driver driver = fake_compile;
  fixture f;
  size_t bytes;
  mace_session *session;
  _Alignas(MACE_ALIGNMENT) char entry[4096];
  make_models(&f, &driver, 0, 0);
  CHECK(compiles_anew(&f.device, &config, &s));
  memcpy(entry, s.data, s.bytes);
  const mace_compiled compiled[] = {{entry, 3}, {entry, s.bytes}};
  f.task.compiled = compiled, f.task.compiled_count = 2;
  CHECK(!compiles_anew(&f.device, &none, &s) && fake.calls[FAKE_RESTORE] == 1);
  CHECK(!compiles_anew(&f.device, &elsewhere, &other) && !other.stores);
  fake.fails = FAKE_RESTORE, fake.after = fake.calls[FAKE_RESTORE], fake.status = MACE_STALE;
  CHECK(compiles_anew(&f.device, &none, &s)); /* the driver does not take it */
  fake.fails = FAKE_NONE;
  driver.version = "2.0";
  CHECK(compiles_anew(&f.device, &elsewhere, &other) && other.stores == 1);
  void *memory = session_memory(&f.device, NULL, &bytes);
  for (int old = 0; old < 2; old++) {
    driver.version = old ? "1.0" : "2.0";
    CHECK(!mace_open(&f.device, NULL, memory, bytes, &session));
    CHECK((strstr(mace_part_device(session, 1), "compiled here") == NULL) == old);
    mace_close(session);
  }
  free(memory);
  balanced();
}

/* What was compiled is loaded at the next open; whatever is wrong with it, the device compiles again and
 * overwrites it. */
static void test_cache(void) {
  shelf s = {0}, good;
  const mace_cache cache = {sizeof cache, &s, load_entry, store_entry, reallocate};
  mace_config config = {.struct_bytes = sizeof config, .cache = &cache};
  mace_driver driver = fake_compile;
  fixture f;
  make_models(&f, &driver, 0, 0);
  CHECK(compiles_anew(&f.device, &none, &s) &&
        compiles_anew(&f.device, &none, &s)); /* without a cache: each time */
  CHECK(compiles_anew(&f.device, &config, &s) && s.stores == 1);
  CHECK(!strncmp(s.key, "fake-", 5) && !strcmp(s.key + 5, f.digest));
  CHECK(!compiles_anew(&f.device, &config, &s) && s.stores == 1 && fake.calls[FAKE_RESTORE] == 1);
  good = s;
  for (size_t i = 0; i < good.bytes; i++)
    for (int damage = 0; damage < 3; damage++) { /* a flipped byte, an entry cut short, one byte too many */
      s = good;
      if (damage == 0) s.data[i] ^= 1 << i % 8;
      if (damage == 1) s.bytes = i;
      if (damage == 2) s.bytes += i + 1;
      CHECK(compiles_anew(&f.device, &config, &s) && s.stores == good.stores + 1);
      CHECK(s.bytes == good.bytes && !memcmp(s.data, good.data, good.bytes));
    }
  CHECK(fake.calls[FAKE_RESTORE] == 1); /* no driver sees what is damaged */
  for (s.broken = 1; s.broken < 3; s.broken++) CHECK(compiles_anew(&f.device, &config, &s));
  s.broken = 0;
  CHECK(!compiles_anew(&f.device, &config, &s));
}

static const char *list_code_options(mace_device *device) {
  (void)device;
  return "fast=0";
}

/* Whatever the compiled form depends on changes, one thing at a time. */
static void test_cache_facts(void) {
  shelf s = {0};
  const mace_cache cache = {sizeof cache, &s, load_entry, store_entry, reallocate};
  mace_config config = {.struct_bytes = sizeof config, .cache = &cache};
  mace_driver driver = fake_compile;
  fixture f;
  make_models(&f, &driver, 0, 0);
  driver.name = "../a fake.so";
  CHECK(compiles_anew(&f.device, &config, &s) && !strncmp(s.key, "___a_fake_so-", 13));
  driver.name = "fake";
  CHECK(compiles_anew(&f.device, &config, &s) && !compiles_anew(&f.device, &config, &s));
  driver.version = "1.1";
  CHECK(compiles_anew(&f.device, &config, &s) && !compiles_anew(&f.device, &config, &s));
  driver.describe = NULL;
  CHECK(compiles_anew(&f.device, &config, &s) && !compiles_anew(&f.device, &config, &s));
  config.options = "fake.fast=1";
  CHECK(compiles_anew(&f.device, &config, &s) && !compiles_anew(&f.device, &config, &s));
  config.options = "fake.fast=0";
  CHECK(compiles_anew(&f.device, &config, &s) && !compiles_anew(&f.device, &config, &s));
  driver.code_options = list_code_options; /* of a driver that knows which options change its code */
  CHECK(compiles_anew(&f.device, &config, &s));
  config.options = "fake.fast=0;fake.priority=high";
  CHECK(!compiles_anew(&f.device, &config, &s));
  f.code.factor = 3, f.payload.weight_bytes -= 64; /* other weights, so another digest */
  sha256_hex(&f.code, sizeof f.code, weights, f.payload.weight_bytes, f.digest);
  CHECK(compiles_anew(&f.device, &config, &s) && !compiles_anew(&f.device, &config, &s));
}

/* Faults of compile and restore; what is kept afterwards is right. */
static void test_cache_faults(void) {
  static const int statuses[] = {-2, 3, 5, 6, 7, 8, 9, 10, 11, 99};
  fixture f;
  size_t bytes;
  mace_session *session;
  make_models(&f, &fake_compile, 0, 0);
  for (size_t i = 0; i < sizeof statuses / sizeof *statuses; i++)
    for (int call = FAKE_COMPILE; call <= FAKE_RESTORE; call++) {
      shelf s = {0};
      const mace_cache cache = {sizeof cache, &s, load_entry, store_entry, reallocate};
      const mace_config config = {.struct_bytes = sizeof config, .cache = &cache};
      void *memory = session_memory(&f.device, &config, &bytes);
      fake_forget();
      if (call == FAKE_RESTORE) works(&f.device, &config);
      fake.fails = call, fake.status = (mace_status)statuses[i], fake.text = "the compiler burns; put it out";
      const mace_status status = mace_open(&f.device, &config, memory, bytes, &session);
      CHECK(!!status == (call == FAKE_COMPILE || statuses[i] == MACE_LOST)); /* restore only costs time */
      CHECK(!status || strstr(mace_error(session), "part fake1 (fake 1.0): the compiler burns"));
      CHECK(status || !run_and_check(session, 0, 0));
      CHECK(s.stores == (status ? call == FAKE_RESTORE : 2) && !s.memories);
      mace_close(session);
      free(memory);
      fake.fails = FAKE_NONE;
      balanced();
    }
}

/* A cache that lacks a function is refused, whatever the drivers are; one that is compiled with less is the
 * same. */
static void test_cache_tables(void) {
  shelf s = {0};
  mace_cache cache = {sizeof cache, &s, load_entry, store_entry, reallocate};
  mace_config config = {.struct_bytes = sizeof config, .cache = &cache};
  fixture f;
  size_t bytes;
  mace_session *session;
  make_models(&f, &fake_compile, 0, 0);
  void *memory = session_memory(&f.device, &config, &bytes);
  for (int missing = 0; missing < 4; missing++) {
    cache =
        (mace_cache){missing == 3 ? sizeof cache - 1 : sizeof cache, &s, load_entry, store_entry, reallocate};
    if (missing == 0) cache.load = NULL;
    if (missing == 1) cache.store = NULL;
    if (missing == 2) cache.reallocate = NULL;
    CHECK(mace_open(&f.device, &config, memory, bytes, &session) == MACE_REFUSED &&
          strstr(mace_error(session), "reallocate"));
    mace_close(session);
  }
  free(memory);
  balanced();
}
