/* capsule_runtime.h - what the library of the capsule's vendor offers. Every function but capsule_version answers 0 or a number for
 * capsule_text. */
#ifndef CAPSULE_RUNTIME_H
#define CAPSULE_RUNTIME_H

#include <stddef.h>

typedef struct capsule capsule;

int capsule_version(void); /* 2: of capsules that it reads */
int capsule_load(const void *bytes, size_t size, capsule **loaded);
int capsule_run(capsule *, const void *const *inputs, void *const *outputs);
void capsule_free(capsule *);
const char *capsule_text(int status);

#endif
