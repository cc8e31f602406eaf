/* unload: loads the library of the network `relay`, runs a session, and unloads it, several times.
 *
 *   unload LIBRARY [leave]     leave: the process ends with an open session in a loaded library
 *
 * Status 0 if all went well and nothing of the library stays in the process.
 */
#include <dirent.h>
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "mace.h"

enum { TIMES = 20, BYTES = 1 << 16 };

static int count_descriptors(void) {
  DIR *folder = opendir("/proc/self/fd");
  int count = 0;
  while (folder && readdir(folder)) count++;
  if (folder) closedir(folder);
  return count;
}

static int fail(const char *what) {
  fprintf(stderr, "unload: %s\n", what);
  return 1;
}

/* Run a session; leave it open if close is 0. */
static int use_library(const char *path, int close) {
  static char input[BYTES], output[2][BYTES];
  const void *inputs[] = {input};
  void *outputs[] = {output[0], output[1]};
  void *library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
  const mace_functions *functions = library ? dlsym(library, "relay_functions") : NULL;
  const mace_model *const *models = library ? dlsym(library, "relay_models") : NULL;
  mace_session *session;
  size_t bytes;
  void *memory;
  if (!functions || !models) return fail(dlerror());
  bytes = functions->session_bytes(models[0], NULL);
  memory = aligned_alloc(MACE_ALIGNMENT, (bytes + MACE_ALIGNMENT - 1) / MACE_ALIGNMENT * MACE_ALIGNMENT);
  if (!memory || functions->open(models[0], NULL, memory, bytes, &session))
    return fail("the session does not open");
  if (functions->run(session, inputs, outputs)) return fail(functions->error(session));
  if (functions->submit(session, inputs, outputs)) return fail(functions->error(session));
  if (!close) return 0;
  if (functions->wait(session, MACE_FOREVER)) return fail(functions->error(session));
  functions->close(session);
  free(memory);
  if (dlclose(library)) return fail(dlerror());
  return dlopen(path, RTLD_NOW | RTLD_NOLOAD) ? fail("the library stays loaded") : 0;
}

int main(int argc, char **argv) {
  const int descriptors = count_descriptors();
  if (argc > 2 && !strcmp(argv[2], "leave")) exit(use_library(argv[1], 0));
  for (int i = 0; i < TIMES; i++)
    if (use_library(argv[1], 1)) return 1;
  return count_descriptors() == descriptors ? 0 : fail("descriptors stay open");
}
