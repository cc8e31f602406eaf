/* mace_engine_cache.c - lets devices compile parts, and keeps what they compiled in the application's cache.
 *
 * An entry of the cache is a header, a text that states all that the compiled form depends on, and the
 * compiled form. All checks are here, so that drivers need none: an entry with another text, size or checksum
 * is as good as none, and is overwritten. The text holds whole names and not sums of them, so that two
 * devices are never taken for one.
 */
#include "mace_engine.h"

enum { FORMAT = 1, FACTS = 7, KEY_BYTES = 128, KEY_NAME = 32, COMPILED_ALIGNMENT = 16 };

typedef struct entry_header {
  char magic[8];
  uint32_t format;
  uint32_t text_bytes;
  uint64_t bytes;    /* of the compiled form, which begins at the next multiple of 16 behind the text */
  uint64_t checksum; /* of the text and the compiled form */
} entry_header;

static const char magic[sizeof((entry_header *)NULL)->magic] = {'M', 'A', 'C', 'E', 'K', 'E', 'R', 'N'};

/* What a compiled form depends on, in words. */
typedef struct facts {
  const char *words[FACTS];
} facts;

static facts list_facts(const mace_session *s, const mace_task *task) {
  const engine *e = s->engine;
  const mace_driver *driver = driver_of(s, task->device);
  const mace_payload *payload = task->payload;
  const char *device = MACE_HAS(driver, describe) ? driver->describe(e->devices[task->device]) : "";
  const char *options = s->config.options;
  if (MACE_HAS(driver, code_options)) options = driver->code_options(e->devices[task->device]);
  const facts all = {{driver->name, driver->version, device, options, payload->built_by, payload->built_for,
                      payload->digest}};
  return all;
}

/* Bytes of the text: each fact with a 0 behind it, filled up so that the compiled form is aligned. */
static size_t count_text(const facts *all) {
  size_t bytes = 0;
  for (int i = 0; i < FACTS; i++) {
    for (const char *word = all->words[i]; word && *word; word++) bytes++;
    bytes++;
  }
  return round_up(sizeof(entry_header) + bytes, COMPILED_ALIGNMENT) - sizeof(entry_header);
}

/* Write the text over zeros. */
static void write_text(const facts *all, char *to) {
  for (int i = 0; i < FACTS; i++) {
    for (const char *word = all->words[i]; word && *word; word++) *to++ = *word;
    to++;
  }
}

/* Whether the text is what stands at `from`, which is as long; its checksum covers what fills it up. */
static int is_text(const facts *all, const char *from) {
  for (int i = 0; i < FACTS; i++) {
    for (const char *word = all->words[i]; word && *word; word++)
      if (*from++ != *word) return 0;
    if (*from++) return 0;
  }
  return 1;
}

/* FNV-1a of 64 bits: every step is a bijection, so no change of a single byte keeps the sum.
 * http://www.isthe.com/chongo/tech/comp/fnv/ */
static uint64_t sum(const char *data, size_t bytes) {
  uint64_t hash = 0xCBF29CE484222325u;
  for (size_t i = 0; i < bytes; i++) hash = (hash ^ (unsigned char)data[i]) * 0x100000001B3u;
  return hash;
}

/* The entry's name: the driver's, so that people can tell entries apart, and the digest of the payload. A
 * device or a driver that changes finds the old entry and overwrites it, and the cache does not grow. */
static void write_key(char *key, const mace_driver *driver, const mace_payload *payload) {
  const char *const end = key + KEY_BYTES - 1;
  char *at = mace_engine_append(key, key + KEY_NAME, driver->name);
  at = mace_engine_append(at, end, "-");
  mace_engine_append(at, end, payload->digest);
  for (at = key; *at; at++) {
    const char c = *at;
    const int plain = (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '-';
    if (!plain) *at = '_';
  }
}

/* The whole entry in memory of the application's; NULL if there is none. */
static char *read_entry(const mace_cache *cache, const char *key, size_t *bytes) {
  char *memory;
  *bytes = cache->load(cache->context, key, NULL, 0);
  if (!*bytes) return NULL;
  memory = cache->reallocate(cache->context, NULL, *bytes);
  if (!memory) return NULL;
  if (cache->load(cache->context, key, memory, *bytes) == *bytes) return memory;
  cache->reallocate(cache->context, memory, 0); /* somebody changed it in between */
  return NULL;
}

/* Where the compiled form lies in an entry; NULL if the entry is damaged or made by or for something else. */
static const char *find_compiled(const char *entry, size_t bytes, const facts *all, size_t *compiled_bytes) {
  const size_t text = count_text(all);
  entry_header header;
  if (bytes < sizeof header + text) return NULL;
  __builtin_memcpy(&header, entry, sizeof header);
  for (size_t i = 0; i < sizeof magic; i++)
    if (header.magic[i] != magic[i]) return NULL;
  if (header.format != FORMAT || header.text_bytes != text || header.bytes != bytes - sizeof header - text)
    return NULL;
  if (header.checksum != sum(entry + sizeof header, bytes - sizeof header)) return NULL;
  if (!is_text(all, entry + sizeof header)) return NULL;
  *compiled_bytes = (size_t)header.bytes;
  return entry + sizeof header + text;
}

/* Load what the cache has for a part; *done tells whether that went well. MACE_LOST is the only failure. */
static mace_status restore(mace_session *s, int32_t t, const char *key, const facts *all, int *done) {
  engine *e = s->engine;
  const mace_cache *cache = s->config.cache;
  const mace_driver *driver = driver_of(s, s->model->plan->tasks[t].device);
  size_t bytes, compiled_bytes;
  mace_status status = MACE_STALE;
  const char *compiled;
  char *entry = read_entry(cache, key, &bytes);
  if (!entry) return MACE_OK;
  compiled = find_compiled(entry, bytes, all, &compiled_bytes);
  if (compiled) status = driver->restore(e->loaded[t], compiled, compiled_bytes, mace_engine_text(e));
  cache->reallocate(cache->context, entry, 0);
  *done = !status;
  return status == MACE_LOST ? MACE_LOST : MACE_OK;
}

/* Load what the library has for a part, as far as it fits; *done tells whether that went well. */
static mace_status restore_shipped(mace_session *s, int32_t t, const facts *all, int *done) {
  engine *e = s->engine;
  const mace_task *task = &s->model->plan->tasks[t];
  const mace_driver *driver = driver_of(s, task->device);
  for (int32_t i = 0; i < task->compiled_count && !*done; i++) {
    const mace_compiled *shipped = &task->compiled[i];
    size_t bytes;
    const char *compiled = find_compiled(shipped->entry, shipped->bytes, all, &bytes);
    mace_status status = MACE_STALE;
    if (compiled) status = driver->restore(e->loaded[t], compiled, bytes, mace_engine_text(e));
    if (status == MACE_LOST) return status;
    *done = !status;
  }
  if (task->compiled_count && !*done) e->recompiled = 1;
  return MACE_OK;
}

/* Keep what a part became. A cache that cannot costs time at the next open, and nothing else. */
static void keep(mace_session *s, int32_t t, const char *key, const facts *all) {
  engine *e = s->engine;
  const mace_cache *cache = s->config.cache;
  const mace_driver *driver = driver_of(s, s->model->plan->tasks[t].device);
  const size_t text = count_text(all), compiled = driver->save(e->loaded[t], NULL, 0);
  const size_t bytes = sizeof(entry_header) + text + compiled;
  entry_header header = {{0}, FORMAT, (uint32_t)text, compiled, 0};
  char *entry = compiled ? cache->reallocate(cache->context, NULL, bytes) : NULL;
  if (!entry) return;
  __builtin_memset(entry, 0, sizeof header + text);
  write_text(all, entry + sizeof header);
  if (driver->save(e->loaded[t], entry + sizeof header + text, compiled) == compiled) {
    __builtin_memcpy(header.magic, magic, sizeof magic);
    header.checksum = sum(entry + sizeof header, bytes - sizeof header);
    __builtin_memcpy(entry, &header, sizeof header);
    cache->store(cache->context, key, entry, bytes);
  }
  cache->reallocate(cache->context, entry, 0);
}

mace_status mace_engine_compile(mace_session *s, int32_t t) {
  engine *e = s->engine;
  const mace_task *task = &s->model->plan->tasks[t];
  const mace_driver *driver = driver_of(s, task->device);
  const facts all = list_facts(s, task);
  char key[KEY_BYTES];
  int done = 0;
  mace_status status = MACE_OK;
  write_key(key, driver, task->payload);
  if (s->config.cache) status = restore(s, t, key, &all, &done);
  const int cached = done;
  if (!status && !done) status = restore_shipped(s, t, &all, &done);
  if (!status && !done) status = driver->compile(e->loaded[t], mace_engine_text(e));
  if (status) return mace_engine_report(s, task->device, task->part, status, NULL);
  if (s->config.cache && !cached && !done) keep(s, t, key, &all);
  return MACE_OK;
}
