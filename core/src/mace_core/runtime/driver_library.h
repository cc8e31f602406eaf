/* driver_library.h - how drivers on systems with a dynamic loader look functions of a vendor's library up, and
 * say what failed. */
#ifndef MACE_DRIVER_LIBRARY_H
#define MACE_DRIVER_LIBRARY_H

#include <dlfcn.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include "driver.h"

/* A function to look up, and where its pointer goes in a table of functions. */
typedef struct mace_symbol {
  const char *name;
  size_t offset;
} mace_symbol;

/* A row for the function that is a member of `table` under its own name. */
#define MACE_SYMBOL(table, function) {#function, offsetof(table, function)},

/* Fill a table of functions; NULL, or the name of the first that the library lacks, whose pointer is NULL. */
static inline const char *mace_find_symbols(void *library, const mace_symbol *symbols, size_t count,
                                            void *table) {
  const char *missing = NULL;
  for (size_t i = 0; i < count; i++) {
    void *function = dlsym(library, symbols[i].name);
    if (!function && !missing) missing = symbols[i].name;
    /* POSIX lets dlsym's pointers become functions; C does not, so bytes are copied. */
    memcpy((char *)table + symbols[i].offset, &function, sizeof function);
  }
  return missing;
}

/* Add what became of a library to a list: "NAME: not found, ", or "NAME: no FUNCTION, " if it lacks one. */
static inline void mace_append_trial(char *trials, size_t bytes, const char *name, const char *missing) {
  const size_t used = strlen(trials);
  if (missing)
    snprintf(trials + used, bytes - used, "%s: no %s, ", name, missing);
  else
    snprintf(trials + used, bytes - used, "%s: not found, ", name);
}

/* Write "WHAT; REMEDY", with the words of `format` filled in, and return the status. */
__attribute__((format(printf, 3, 4), unused)) static mace_status mace_say(mace_text text, mace_status status,
                                                                          const char *format, ...) {
  va_list arguments;
  if (!text.at || !text.bytes) return status;
  va_start(arguments, format);
  vsnprintf(text.at, text.bytes, format, arguments);
  va_end(arguments);
  return status;
}

#endif
