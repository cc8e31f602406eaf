/* Times how long a pool takes to hand work over. argv: WORKERS ... Prints a line of JSON for each number.
 *
 * empty_ns: one call of `parallel` with a task for each worker, which does nothing; least and median of batches.
 * work_NNN_us: microseconds of a call whose tasks, four for each worker, compute NNN microseconds in all; beside
 * it how much faster that is than on one worker.
 * asleep_ns: the first call after the workers went to sleep.
 */
#define _POSIX_C_SOURCE 199309L
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "mace_threads.h"

enum { BATCHES = 300, TASKS = 4 };

static int64_t now(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

static void compute(void *context, int32_t index, int32_t worker) {
  float sum = 1;
  (void)index, (void)worker;
  for (int32_t i = *(const int32_t *)context; i > 0; i--) {
    sum = sum * 0.999f + 0.5f;
    __asm__ volatile("" : "+m"(sum));
  }
}

static int compare(const void *a, const void *b) { return (*(const double *)a > *(const double *)b) - (*(const double *)a < *(const double *)b); }

/* Nanoseconds of a call: the least of batches in [0], their median in [1]. */
static void measure(const mace_threads *threads, int32_t steps, int32_t tasks, double *result) {
  const int calls = (int64_t)steps * tasks > 100000 ? 1 : 20; /* in a batch */
  static double all[BATCHES];
  for (int i = 0; i < BATCHES; i++) {
    const int64_t start = now();
    for (int j = 0; j < calls; j++) {
      if (threads)
        threads->parallel(threads->pool, compute, &steps, tasks);
      else
        for (int32_t k = 0; k < tasks; k++) compute(&steps, k, 0);
    }
    all[i] = (double)(now() - start) / calls;
  }
  qsort(all, BATCHES, sizeof *all, compare);
  result[0] = all[0], result[1] = all[BATCHES / 2];
}

int main(int argc, char **argv) {
  double unit[2], alone[2], shared[2];
  measure(NULL, 10000, 1, unit); /* nanoseconds of 10000 steps */
  for (int i = 1; i < argc; i++) {
    mace_threads *threads = mace_threads_new(atoi(argv[i]));
    if (!threads) return 1;
    measure(threads, 0, threads->workers, shared);
    printf("{\"asked\": %s, \"workers\": %d, \"empty_ns\": %.0f, \"empty_median_ns\": %.0f", argv[i], (int)threads->workers, shared[0],
           shared[1]);
    for (int32_t us = 10; us <= 1000; us *= 10) {
      const int32_t tasks = TASKS * threads->workers;
      const int32_t steps = (int32_t)(us * 1e7 / unit[0] / tasks);
      measure(NULL, steps, tasks, alone);
      measure(threads, steps, tasks, shared);
      printf(", \"work_%d_us\": %.1f, \"speed_up_%d\": %.2f", (int)us, shared[0] / 1e3, (int)us, alone[0] / shared[0]);
    }
    double best = 1e18;
    for (int round = 0; round < 50; round++) {
      int32_t none = 0;
      nanosleep(&(struct timespec){0, 2000000}, NULL);
      const int64_t start = now();
      threads->parallel(threads->pool, compute, &none, threads->workers);
      const double took = (double)(now() - start);
      best = took < best ? took : best;
    }
    printf(", \"asleep_ns\": %.0f}\n", best);
    mace_threads_delete(threads);
  }
  return 0;
}
