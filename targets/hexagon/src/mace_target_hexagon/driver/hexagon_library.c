/* hexagon_library.c - finds the FastRPC library: that of the compute DSP, else that of the audio DSP, which
 * systems from before 2018 have for both. */
#include "hexagon_library.h"

#include <stdio.h>

#define COUNT(array) (sizeof(array) / sizeof(array)[0])

static const char *const names[] = {"libcdsprpc.so", "libadsprpc.so"};

#define SYMBOL(function, type, arguments) MACE_SYMBOL(hexagon_library, function)

static const mace_symbol required[] = {HEXAGON_FUNCTIONS(SYMBOL)};
static const mace_symbol optional[] = {HEXAGON_OPTIONAL_FUNCTIONS(SYMBOL)};

mace_status mace_hexagon_open_library(hexagon_library *library, mace_text text) {
  char trials[128] = "";
  for (size_t i = 0; i < COUNT(names); i++) {
    void *opened = dlopen(names[i], RTLD_NOW | RTLD_LOCAL);
    const char *missing = NULL;
    if (opened) {
      missing = mace_find_symbols(opened, required, COUNT(required), library);
      mace_find_symbols(opened, optional, COUNT(optional), library);
    }
    if (opened && !missing) {
      library->library = opened;
      library->name = names[i];
      return MACE_OK;
    }
    mace_append_trial(trials, sizeof trials, names[i], missing);
    if (opened) dlclose(opened);
  }
  memset(library, 0, sizeof *library);
  return mace_say(text, MACE_NO_DEVICE,
                  "%sso there is no FastRPC; use a device with a Hexagon DSP; on Android 12 or newer "
                  "declare libcdsprpc.so with <uses-native-library>",
                  trials);
}

void mace_hexagon_close_library(hexagon_library *library) {
  if (library->library) dlclose(library->library);
  library->library = NULL;
}
