/* file_cache.h - a mace_cache that keeps one entry in a file, whatever its key: for programs with one model.
 *
 * context: the path of the file, a const char *. The entry is written in place, and not under another name
 * first: nothing else reads it meanwhile.
 */
#ifndef MACE_TESTING_FILE_CACHE_H
#define MACE_TESTING_FILE_CACHE_H

#include <stdio.h>
#include <stdlib.h>

#include "mace_types.h"

static size_t file_cache_load(void *context, const char *key, void *data, size_t bytes) {
  FILE *const file = fopen((const char *)context, "rb");
  long end = 0;
  (void)key;
  if (!file) return 0;
  if (!fseek(file, 0, SEEK_END)) end = ftell(file);
  rewind(file);
  if (end < 0) end = 0;
  if (bytes >= (size_t)end && fread(data, 1, (size_t)end, file) != (size_t)end) end = 0;
  fclose(file);
  return (size_t)end;
}

static void file_cache_store(void *context, const char *key, const void *data, size_t bytes) {
  FILE *const file = fopen((const char *)context, "wb");
  (void)key;
  if (!file) return;
  fwrite(data, 1, bytes, file);
  fclose(file);
}

static void *file_cache_reallocate(void *context, void *memory, size_t bytes) {
  (void)context;
  if (bytes) return realloc(memory, bytes);
  free(memory);
  return NULL;
}

/* Return the cache of a file. path: it stays the caller's, and valid as long as the cache. */
static inline mace_cache file_cache(const char *path) {
  const mace_cache cache = {sizeof cache, (void *)(uintptr_t)path, file_cache_load, file_cache_store,
                            file_cache_reallocate};
  return cache;
}

#endif
