/* Calls pools of mace_threads.c from several threads; every task must be computed once, and no worker may have
 * two at a time. argv: the processors that the pools are told of. Prints what happened; ends with 1 for a fault.
 */
#define _GNU_SOURCE
#include <sched.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

static int pretended;

static int pretend_allowed(int process, size_t bytes, cpu_set_t *set) {
  (void)process;
  memset(set, 0, bytes);
  for (int i = 0; i < pretended; i++) ((unsigned char *)set)[i / 8] |= (unsigned char)(1 << i % 8);
  return 0;
}

#define sched_getaffinity pretend_allowed
#define sysconf(name) pretended
#include "mace_threads.c"

enum { WORKERS = 8, CALLS = 200, MAX_TASKS = 700 };

typedef struct job {
  int computed[MAX_TASKS], running[WORKERS];
  int faults;
} job;

static mace_threads *shared;

/* Return only when another task has begun, or after ten seconds. */
static void meet(void *begun, int32_t index, int32_t worker) {
  (void)index, (void)worker;
  __atomic_add_fetch((int *)begun, 1, __ATOMIC_RELAXED);
  for (int i = 0; i < 10000 && __atomic_load_n((int *)begun, __ATOMIC_RELAXED) < 2; i++)
    nanosleep(&(struct timespec){0, 1000000}, NULL);
}

static void count(void *context, int32_t index, int32_t worker) {
  job *j = context;
  float sum = 1;
  if (__atomic_exchange_n(&j->running[worker], 1, __ATOMIC_RELAXED)) __atomic_add_fetch(&j->faults, 1, __ATOMIC_RELAXED);
  for (int i = 0; i < 50; i++) {
    sum = sum * 0.5f + 1;
    __asm__ volatile("" : "+m"(sum));
  }
  j->computed[index]++;
  __atomic_store_n(&j->running[worker], 0, __ATOMIC_RELAXED);
}

static void *call(void *own) {
  job *j = calloc(1, sizeof *j);
  mace_threads *threads = own ? mace_threads_new(WORKERS) : shared;
  unsigned state = own ? 1 : 2;
  int faults = !threads;
  for (int i = 0; threads && i < CALLS; i++) {
    state = state * 1103515245u + 12345u;
    const int32_t tasks = i % 50 ? (int32_t)(state >> 16) % 20 : MAX_TASKS;
    memset(j->computed, 0, sizeof j->computed);
    threads->parallel(threads->pool, count, j, tasks);
    for (int32_t k = 0; k < MAX_TASKS; k++) faults += j->computed[k] != (k < tasks);
    /* Long enough that workers sleep, some of the time. */
    if (i % 20 == 0) nanosleep(&(struct timespec){0, 1000000}, NULL);
  }
  faults += j->faults;
  if (own) mace_threads_delete(threads);
  free(j);
  return (void *)(size_t)faults;
}

int main(int argc, char **argv) {
  pthread_t callers[4];
  size_t faults = 0;
  pretended = argc > 1 ? atoi(argv[1]) : WORKERS;
  shared = mace_threads_new(WORKERS);
  if (!shared) return 2;
  const int workers = shared->workers;
  int begun = 0;
  const int64_t start = now();
  if (workers > 1) shared->parallel(shared->pool, meet, &begun, 2);
  const int has_met = begun == 2 && now() - start < (int64_t)9 * 1000000000;
  for (size_t i = 0; i < 4; i++) pthread_create(&callers[i], NULL, call, i < 2 ? &shared : NULL);
  for (size_t i = 0; i < 4; i++) {
    void *result;
    pthread_join(callers[i], &result);
    faults += (size_t)result;
  }
  mace_threads_delete(shared);
  printf("workers %d, faults %zu, met %s, awake %u\n", workers, faults, has_met ? "yes" : "no", (unsigned)awake_threads);
  return faults > 0;
}
