/* emulator_log.h - the file in which both programs of the emulated DSP write down what they are asked for. */
#ifndef MACE_EMULATOR_LOG_H
#define MACE_EMULATOR_LOG_H

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

/* Append a line to the file that MACE_DSP_LOG names, if it names one. */
__attribute__((format(printf, 1, 2), unused)) static void log_line(const char *format, ...) {
  const char *path = getenv("MACE_DSP_LOG");
  FILE *file = path ? fopen(path, "a") : NULL;
  va_list arguments;
  if (!file) return;
  va_start(arguments, format);
  vfprintf(file, format, arguments);
  va_end(arguments);
  fputc('\n', file);
  fclose(file);
}

#endif
