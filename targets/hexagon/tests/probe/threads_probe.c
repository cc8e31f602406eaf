/* Uses the DSP's pool of threads as kernels do, on the emulated system.
 *
 *   threads_probe WORKERS MEETING
 *
 * Prints "workers N", then for all calls together: "missed M" tasks that did not run exactly once, and
 * "clashes C", tasks of one worker that ran at the same time. MEETING 1: as many tasks as workers, each of which waits for
 * the others, so that the program ends only where all workers compute at the same time.
 */
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>

#include "dsp_system.h"
#include "hexagon_threads.h"

enum { TASKS = 500, CALLS = 200, MEETINGS = 20 };

typedef struct work {
  int32_t runs[TASKS];
  int32_t busy[HEXAGON_MAX_THREADS];
  int32_t clashes, present, expected;
} work;

static void count(void *context, int32_t index, int32_t worker) {
  work *w = context;
  if (__atomic_exchange_n(&w->busy[worker], 1, __ATOMIC_SEQ_CST)) w->clashes++;
  w->runs[index]++;
  __atomic_store_n(&w->busy[worker], 0, __ATOMIC_SEQ_CST);
}

static void meet(void *context, int32_t index, int32_t worker) {
  work *w = context;
  count(context, index, worker);
  __atomic_add_fetch(&w->present, 1, __ATOMIC_SEQ_CST);
  while (__atomic_load_n(&w->present, __ATOMIC_SEQ_CST) < w->expected) sched_yield();
}

int main(int argc, char **argv) {
  static work w;
  mace_threads *threads = mace_hexagon_start_threads(argc > 1 ? (uint32_t)atoi(argv[1]) : 0);
  const int meets = argc > 2 && atoi(argv[2]);
  int32_t missed = 0, tasks;
  printf("workers %d\n", threads ? (int)threads->workers : 1);
  if (!threads) return 0;
  w.expected = threads->workers;
  qurt_hvx_lock(QURT_HVX_MODE_128B); /* as the thread of a remote call does */
  for (int32_t call = 0; call < (meets ? MEETINGS : CALLS); call++) {
    tasks = meets ? w.expected : call % 3 ? call % 7 + 2 : TASKS;
    w.present = 0;
    for (int32_t i = 0; i < TASKS; i++) w.runs[i] = 0;
    threads->parallel(threads->pool, meets ? meet : count, &w, tasks);
    for (int32_t i = 0; i < TASKS; i++) missed += w.runs[i] != (i < tasks);
  }
  qurt_hvx_unlock();
  mace_hexagon_end_threads(threads);
  printf("missed %d clashes %d\n", (int)missed, (int)w.clashes);
  return 0;
}
