/* What mace_run and mace_benchmark share: finding the model, memory, options of the command line. */
#ifndef MACE_TOOL_H
#define MACE_TOOL_H

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "mace.h"
#include "mace_threads.h"

/* -DMACE_MODELS=NAME_models -DMACE_MODEL_COUNT=NAME_model_count for the library NAME. Whole names and not only the library's: that
 * one may be a macro of the compiler, such as `linux`. */
extern const mace_model *const MACE_MODELS[];
extern const int32_t MACE_MODEL_COUNT;

/* End with a message `place: what is wrong; what to do` and status 2. */
static inline void fail(const char *place, const char *problem, const char *remedy) {
  fprintf(stderr, "%s: %s; %s\n", place, problem, remedy);
  exit(2);
}

/* Print a name of a model's for people: signs that could command a terminal become question marks. */
static inline void show(FILE *file, const char *name) {
  for (; *name; name++) fputc((unsigned char)*name < 32 || *name == 127 ? '?' : *name, file);
}

/* Print a string of JSON. */
static inline void print_text(const char *text) {
  putchar('"');
  for (; *text; text++) {
    if (*text == '"' || *text == '\\') putchar('\\');
    putchar((unsigned char)*text < 32 || *text == 127 ? '?' : *text);
  }
  putchar('"');
}

/* Print what computes each part, as a member of a JSON object. */
static inline void print_devices(const mace_model *model, const mace_session *session) {
  printf("\"devices\": [");
  for (int32_t i = 0; i < model->part_count; i++) {
    printf("%s", i ? ", " : "");
    print_text(mace_part_device(session, i));
  }
  printf("]");
}

/* Print the units of what computes each part, 0 where they are unknown, as a member of a JSON object. */
static inline void print_units(const mace_model *model, const mace_session *session) {
  printf("\"units\": [");
  for (int32_t i = 0; i < model->part_count; i++)
    printf("%s%lu", i ? ", " : "", (unsigned long)mace_part_units(session, i));
  printf("]");
}

/* The value of --name=VALUE in argv, or NULL. */
static inline const char *option(int argc, char **argv, const char *name) {
  const size_t length = strlen(name);
  for (int i = 1; i < argc; i++)
    if (!strncmp(argv[i], name, length) && argv[i][length] == '=') return argv[i] + length + 1;
  return NULL;
}

static inline int number(int argc, char **argv, const char *name, int otherwise) {
  const char *text = option(argc, argv, name);
  char *end;
  if (!text) return otherwise;
  const long value = strtol(text, &end, 10);
  if (*end || end == text || value < 0 || value > 1000000) fail(name, "is not a number", "give a whole number from 0 to 1000000");
  return (int)value;
}

/* The model that --model names; the first without it. */
static inline const mace_model *chosen(int argc, char **argv) {
  const char *name = option(argc, argv, "--model");
  if (!name) return MACE_MODELS[0];
  for (int32_t i = 0; i < MACE_MODEL_COUNT; i++)
    if (!strcmp(MACE_MODELS[i]->name, name)) return MACE_MODELS[i];
  fprintf(stderr, "--model=%s: no such model; the library holds:", name);
  for (int32_t i = 0; i < MACE_MODEL_COUNT; i++) fprintf(stderr, " %s", MACE_MODELS[i]->name);
  fprintf(stderr, "\n");
  exit(2);
}

/* Memory aligned for a session; never NULL, never freed: it lives as long as the program. */
static inline void *memory(size_t bytes) {
  char *raw = calloc(1, bytes + MACE_ALIGNMENT);
  if (!raw) fail("memory", "none left", "close other programs");
  return raw + (MACE_ALIGNMENT - (uintptr_t)raw % MACE_ALIGNMENT);
}

/* The configuration for --threads=N workers, whose threads are the caller's to delete, and for --options=TEXT, see
 * mace_config. */
static inline mace_config configure(int argc, char **argv) {
  const int workers = number(argc, argv, "--threads", 1);
  mace_config config;
  memset(&config, 0, sizeof config);
  config.struct_bytes = sizeof config;
  config.options = option(argc, argv, "--options");
  config.threads = workers > 1 ? mace_threads_new(workers) : NULL;
  if (workers > 1 && !config.threads) fail("--threads", "the system gives no threads", "ask for fewer");
  return config;
}

/* End with the session's message and status 2 unless all went well. */
static inline void check(const mace_session *session, mace_status status) {
  if (status == MACE_OK) return;
  fprintf(stderr, "model: status %d: %s\n", (int)status, mace_error(session));
  exit(2);
}

/* An open session of a model, in memory that lives as long as the program. */
static inline mace_session *open_session(const mace_model *model, const mace_config *config) {
  const size_t bytes = mace_session_bytes(model, config);
  mace_session *session;
  const mace_status status = mace_open(model, config, memory(bytes), bytes, &session);
  check(session, status);
  return session;
}

#endif
