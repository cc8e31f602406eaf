/* mdla_library.c - finds the vendor's libraries, and the first of them that is complete.
 *
 * The order of the adapters is that of the vendor's own loader: the name for applications of Android, the
 * older one, then that of other systems. A library that lacks a function is closed again and the next one
 * tried; one that is complete ends the search, because a later one may be older.
 */
#include "mdla_library.h"

#include <stdio.h>

static const char *const adapters[] = {"libneuronusdk_adapter.mtk.so", "libneuron_adapter_mgvi.so",
                                       "libneuron_adapter.so"};
static const char *const runtimes[] = {"libneuronusdk_runtime.mtk.so", "libneuron_runtime.so"};

#define COUNT(array) (sizeof(array) / sizeof(array)[0])

#define ADAPTER_SYMBOL(function, type, arguments) MACE_SYMBOL(mdla_adapter, function)
#define RUNTIME_SYMBOL(function, type, arguments) MACE_SYMBOL(mdla_runtime, function)

static const mace_symbol adapter_symbols[] = {MDLA_ADAPTER_FUNCTIONS(ADAPTER_SYMBOL)};
static const mace_symbol optional_symbols[] = {MDLA_OPTIONAL_FUNCTIONS(ADAPTER_SYMBOL)};
static const mace_symbol v2_symbols[] = {MDLA_RUNTIME_V2_FUNCTIONS(RUNTIME_SYMBOL)};
static const mace_symbol v1_symbols[] = {MDLA_RUNTIME_V1_FUNCTIONS(RUNTIME_SYMBOL)};

mace_status mace_mdla_open_adapter(mdla_library *library, mace_text text) {
  char trials[512] = "";
  for (size_t i = 0; i < COUNT(adapters); i++) {
    void *opened = dlopen(adapters[i], RTLD_NOW | RTLD_LOCAL);
    const char *missing = NULL;
    if (opened) {
      missing = mace_find_symbols(opened, adapter_symbols, COUNT(adapter_symbols), &library->adapter);
      mace_find_symbols(opened, optional_symbols, COUNT(optional_symbols), &library->adapter);
    }
    if (opened && !missing) {
      library->adapter_library = opened;
      library->adapter_name = adapters[i];
      break;
    }
    mace_append_trial(trials, sizeof trials, adapters[i], missing);
    if (opened) dlclose(opened);
  }
  if (!library->adapter_library)
    return mace_say(
        text, MACE_NO_DEVICE,
        "%sso there is no Neuron adapter; install NeuroPilot, on Android declare the library", trials);
  if (library->adapter.Neuron_getVersion(&library->version) == NEURON_NO_ERROR) return MACE_OK;
  return mace_say(text, MACE_NO_DEVICE, "%s does not tell its version; install NeuroPilot again",
                  library->adapter_name);
}

mace_status mace_mdla_open_runtime(mdla_library *library, mace_text text) {
  char trials[256] = "";
  if (library->runtime_library) return MACE_OK;
  for (size_t i = 0; i < COUNT(runtimes); i++) {
    mdla_runtime *runtime = &library->runtime;
    void *opened = dlopen(runtimes[i], RTLD_NOW | RTLD_LOCAL);
    const char *v1 = NULL, *v2 = NULL;
    if (opened) {
      memset(runtime, 0, sizeof *runtime);
      v2 = mace_find_symbols(opened, v2_symbols, COUNT(v2_symbols), runtime);
      if (v2) memset(runtime, 0, sizeof *runtime);
      if (v2) v1 = mace_find_symbols(opened, v1_symbols, COUNT(v1_symbols), runtime);
    }
    if (opened && !(v1 && v2)) {
      library->runtime_library = opened;
      library->runtime_name = runtimes[i];
      return MACE_OK;
    }
    mace_append_trial(trials, sizeof trials, runtimes[i], v1);
    if (opened) dlclose(opened);
  }
  return mace_say(text, MACE_NO_DEVICE, "%sso there is no Neuron runtime; install NeuroPilot", trials);
}

void mace_mdla_close(mdla_library *library) {
  if (library->runtime_library) dlclose(library->runtime_library);
  if (library->adapter_library) dlclose(library->adapter_library);
  library->runtime_library = library->adapter_library = NULL;
}
