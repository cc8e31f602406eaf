/* Times the calls of a session: opening it, and running a model. argv: NAME ROUNDS. Prints a line of JSON.
 *
 * first_open_ns is what a new process does before its first run: ask for the bytes of a session, allocate them
 * and open it, with the processor's levels still unknown; first_run_ns is that run, which loads the pages of the
 * weights and of the arena.
 * The rounds are split into batches of 100 runs, of which the fastest counts: the others were interrupted.
 */
#define _POSIX_C_SOURCE 199309L
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "overhead.h"

enum { BATCH = 100 };

static double now(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (double)t.tv_sec * 1e9 + (double)t.tv_nsec;
}

static void *memory(size_t bytes) {
  const size_t rounded = bytes / MACE_ALIGNMENT * MACE_ALIGNMENT + MACE_ALIGNMENT;
  void *made = aligned_alloc(MACE_ALIGNMENT, rounded);
  if (!made) exit(3);
  return memset(made, 0, rounded);
}

static double time_open(const mace_model *model, void *at, size_t bytes, int rounds) {
  mace_session *session;
  double best = 1e18;
  for (int i = 0; i < rounds; i++) {
    const double start = now();
    if (mace_open(model, NULL, at, bytes, &session)) exit(4);
    const double took = now() - start;
    mace_close(session);
    best = took < best ? took : best;
  }
  return best;
}

static double time_run(mace_session *session, const void *const *in, void *const *out, int rounds) {
  double best = 1e18;
  for (int i = 0; i < rounds; i += BATCH) {
    const double start = now();
    for (int j = 0; j < BATCH; j++)
      if (mace_run(session, in, out)) exit(5);
    const double took = (now() - start) / BATCH;
    best = took < best ? took : best;
  }
  return best;
}

/* What a run costs with a session of its own each time: the level is chosen again, as it once was in every run. */
static double time_both(const mace_model *model, void *at, size_t bytes, const void *const *in, void *const *out, int rounds) {
  mace_session *session;
  double best = 1e18;
  for (int i = 0; i < rounds; i += BATCH) {
    const double start = now();
    for (int j = 0; j < BATCH; j++)
      if (mace_open(model, NULL, at, bytes, &session) || mace_run(session, in, out)) exit(6);
    const double took = (now() - start) / BATCH;
    best = took < best ? took : best;
  }
  return best;
}

int main(int argc, char **argv) {
  const mace_model *model = argc == 3 ? overhead_model(argv[1]) : NULL;
  if (!model || model->input_count != 1 || model->output_count != 1) return 2;
  const int rounds = atoi(argv[2]);
  void *out[] = {memory(model->outputs[0].bytes)};
  const void *in[] = {memory(model->inputs[0].bytes)};
  mace_session *session;
  const double start = now();
  const size_t bytes = mace_session_bytes(model, NULL);
  void *at = aligned_alloc(MACE_ALIGNMENT, bytes / MACE_ALIGNMENT * MACE_ALIGNMENT + MACE_ALIGNMENT);
  if (!at || mace_open(model, NULL, at, bytes, &session)) return 4;
  const double first_open = now() - start;
  if (mace_run(session, in, out)) return 5;
  const double first_run = now() - start - first_open;
  mace_close(session);
  const double opened = time_open(model, at, bytes, rounds), both = time_both(model, at, bytes, in, out, rounds);
  if (mace_open(model, NULL, at, bytes, &session)) return 4;
  printf("{\"first_open_ns\": %.0f, \"first_run_ns\": %.0f, ", first_open, first_run);
  printf("\"open_ns\": %.0f, \"run_ns\": %.1f, \"open_and_run_ns\": %.1f}\n", opened, time_run(session, in, out, rounds), both);
  mace_close(session);
  return 0;
}
