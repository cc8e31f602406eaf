/* mdla_library.h - the vendor's libraries, looked for at run time. */
#ifndef MACE_MDLA_LIBRARY_H
#define MACE_MDLA_LIBRARY_H

#include "driver.h"
#include "driver_library.h"
#include "mdla_neuron.h"

typedef struct mdla_library {
  void *adapter_library, *runtime_library; /* NULL: not open */
  const char *adapter_name, *runtime_name;
  mdla_adapter adapter; /* the optional functions may be NULL */
  mdla_runtime runtime; /* either all of version 2, or all of version 1; the other's are NULL */
  NeuronRuntimeVersion version;
} mdla_library;

/* Open the first adapter that has all functions; the text names all that were tried, and what they lack. */
mace_status mace_mdla_open_adapter(mdla_library *library, mace_text text);

/* As that, for the runtime of compiled files. */
mace_status mace_mdla_open_runtime(mdla_library *library, mace_text text);

/* Close what is open. */
void mace_mdla_close(mdla_library *library);

#endif
