/* hexagon_library.c - finds the FastRPC library: that of the compute DSP, else that of the audio DSP, which
 * systems from before 2018 have for both. */
#include "hexagon_library.h"

#include <dlfcn.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#define COUNT(array) (sizeof(array) / sizeof(array)[0])

static const char *const names[] = {"libcdsprpc.so", "libadsprpc.so"};

/* A function to look up, and where its pointer goes. */
typedef struct symbol {
  const char *name;
  size_t offset;
} symbol;

#define SYMBOL(function, type, arguments) {#function, offsetof(hexagon_library, function)},

static const symbol required[] = {HEXAGON_FUNCTIONS(SYMBOL)};
static const symbol optional[] = {HEXAGON_OPTIONAL_FUNCTIONS(SYMBOL)};

mace_status mace_hexagon_say(mace_text text, mace_status status, const char *format, ...) {
  va_list arguments;
  if (!text.at || !text.bytes) return status;
  va_start(arguments, format);
  vsnprintf(text.at, text.bytes, format, arguments);
  va_end(arguments);
  return status;
}

/* Look functions up; NULL, or the name of the first that the library lacks. */
static const char *find_symbols(hexagon_library *library, void *opened, const symbol *symbols, size_t count) {
  const char *missing = NULL;
  for (size_t i = 0; i < count; i++) {
    void *found = dlsym(opened, symbols[i].name);
    if (!found && !missing) missing = symbols[i].name;
    /* POSIX lets dlsym's pointers become functions; C does not, so bytes are copied. */
    memcpy((char *)library + symbols[i].offset, &found, sizeof found);
  }
  return missing;
}

/* Add what became of a library that was tried to a list of them. */
static void append_trial(char *trials, size_t bytes, const char *name, const char *missing) {
  const size_t used = strlen(trials);
  if (missing)
    snprintf(trials + used, bytes - used, "%s: no %s, ", name, missing);
  else
    snprintf(trials + used, bytes - used, "%s: not found, ", name);
}

mace_status mace_hexagon_open_library(hexagon_library *library, mace_text text) {
  char trials[128] = "";
  for (size_t i = 0; i < COUNT(names); i++) {
    void *opened = dlopen(names[i], RTLD_NOW | RTLD_LOCAL);
    const char *missing = NULL;
    if (opened) {
      missing = find_symbols(library, opened, required, COUNT(required));
      find_symbols(library, opened, optional, COUNT(optional));
    }
    if (opened && !missing) {
      library->library = opened;
      library->name = names[i];
      return MACE_OK;
    }
    append_trial(trials, sizeof trials, names[i], missing);
    if (opened) dlclose(opened);
  }
  memset(library, 0, sizeof *library);
  return mace_hexagon_say(text, MACE_NO_DEVICE,
                          "%sso there is no FastRPC; use a device with a Hexagon DSP; on Android 12 or newer "
                          "declare libcdsprpc.so with <uses-native-library>",
                          trials);
}

void mace_hexagon_close_library(hexagon_library *library) {
  if (library->library) dlclose(library->library);
  library->library = NULL;
}
