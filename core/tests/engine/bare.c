/* A program for a bare machine: no C library, no start-up code. What the compiler itself calls is here; an
 * allocator is not, so nothing links that would ask for one. */
#include "mace.h"

extern const mace_model *const MODEL;

void *memcpy(void *restrict to, const void *restrict from, size_t bytes) {
  for (size_t i = 0; i < bytes; i++) ((volatile char *)to)[i] = ((const char *)from)[i];
  return to;
}

void *memmove(void *to, const void *from, size_t bytes) {
  volatile char *t = to;
  const char *f = from;
  if (t < (volatile char *)f)
    for (size_t i = 0; i < bytes; i++) t[i] = f[i];
  else
    while (bytes--) t[bytes] = f[bytes];
  return to;
}

void *memset(void *to, int value, size_t bytes) {
  for (size_t i = 0; i < bytes; i++) ((volatile char *)to)[i] = (char)value;
  return to;
}

int memcmp(const void *left, const void *right, size_t bytes) {
  const unsigned char *l = left, *r = right;
  for (size_t i = 0; i < bytes; i++)
    if (l[i] != r[i]) return l[i] - r[i];
  return 0;
}

int strcmp(const char *left, const char *right) {
  while (*left && *left == *right) left++, right++;
  return *left - *right;
}

static _Alignas(MACE_ALIGNMENT) char memory[1 << 14];
static float x[64], y[64];

int start(void) {
  const void *inputs[] = {x};
  void *outputs[] = {y};
  mace_session *session;
  mace_status status = mace_open(MODEL, NULL, memory, sizeof memory, &session);
  if (!status) status = mace_run(session, inputs, outputs);
  if (!status) status = mace_submit(session, inputs, outputs);
  if (!status) status = mace_wait(session, MACE_FOREVER);
  if (!status) status = mace_reset(session);
  mace_close(session);
  return (int)status;
}
