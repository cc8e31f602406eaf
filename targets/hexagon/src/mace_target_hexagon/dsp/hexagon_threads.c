/* hexagon_threads.c - a pool of QuRT's threads that share the tasks of one mace_threads.parallel at a time.
 *
 * A DSP starts instructions of its hardware threads in turn, so that a thread which looks for tasks without
 * an end would take time from those that compute: workers without tasks sleep until the word `calls` changes.
 * The pool belongs to one handle, whose calls come one at a time, so that all workers may take part in each.
 */
#include "hexagon_threads.h"

#include <stdlib.h>
#include <string.h>

#include "hexagon_qurt.h"

/* Frames of the kernels have up to 8 KB, because they keep sums of whole tiles as vectors. */
enum { STACK_BYTES = 64 * 1024, STACK_ALIGNMENT = 128 };

typedef struct pool pool;

typedef struct seat {
  pool *pool;
  int32_t worker;
  qurt_thread_t thread;
} seat;

struct pool {
  mace_threads face;
  void (*task)(void *context, int32_t index, int32_t worker);
  void *context;
  int32_t tasks, started;
  uint32_t next;    /* the first task that nobody has claimed */
  uint32_t calls;   /* counts calls; its change wakes the workers */
  uint32_t working; /* workers that have not finished the call */
  uint32_t closing;
  seat seats[HEXAGON_MAX_THREADS - 1];
};

static void take_tasks(pool *p, int32_t worker) {
  for (;;) {
    const uint32_t index = __atomic_fetch_add(&p->next, 1, __ATOMIC_RELAXED);
    if (index >= (uint32_t)p->tasks) return;
    p->task(p->context, (int32_t)index, worker);
  }
}

static void serve(void *argument) {
  const seat *own = argument;
  pool *p = own->pool;
  uint32_t seen = 0;
  for (;;) {
    uint32_t calls;
    int locked;
    while ((calls = __atomic_load_n(&p->calls, __ATOMIC_ACQUIRE)) == seen)
      qurt_futex_wait(&p->calls, (int)seen);
    seen = calls;
    if (__atomic_load_n(&p->closing, __ATOMIC_RELAXED)) break;
    /* A worker that gets no vector unit leaves the tasks to the others: kernels were chosen for units. */
    locked = qurt_count_units() > 0;
    if (!locked || qurt_hvx_try_lock(QURT_HVX_MODE_128B) == QURT_OK) {
      take_tasks(p, own->worker);
      if (locked) qurt_hvx_unlock();
    }
    if (!__atomic_sub_fetch(&p->working, 1, __ATOMIC_ACQ_REL)) qurt_futex_wake(&p->working, 1);
  }
  qurt_thread_exit(0);
}

static void parallel(void *self, void (*task)(void *, int32_t, int32_t), void *context, int32_t tasks) {
  pool *p = self;
  uint32_t working;
  p->task = task, p->context = context, p->tasks = tasks;
  __atomic_store_n(&p->next, 0, __ATOMIC_RELAXED);
  __atomic_store_n(&p->working, (uint32_t)p->started, __ATOMIC_RELAXED);
  __atomic_add_fetch(&p->calls, 1, __ATOMIC_RELEASE);
  qurt_futex_wake(&p->calls, p->started);
  take_tasks(p, 0);
  /* All of them, also those without a task: none may look at the next call's members by this call's count. */
  while ((working = __atomic_load_n(&p->working, __ATOMIC_ACQUIRE)))
    qurt_futex_wait(&p->working, (int)working);
}

static int has_threads(void) {
  return qurt_thread_create && qurt_thread_exit && qurt_thread_join && qurt_thread_get_id &&
         qurt_thread_get_priority && qurt_futex_wait && qurt_futex_wake && qurt_hvx_try_lock &&
         qurt_hvx_unlock;
}

static int start(pool *p, char *stack) {
  seat *own = &p->seats[p->started];
  qurt_thread_attr_t attr;
  memset(&attr, 0, sizeof attr);
  memcpy(attr.name, "mace", 5);
  attr.priority = (uint16_t)qurt_thread_get_priority(qurt_thread_get_id()); /* as the thread of the call */
  attr.bus_priority = QURT_BUS_PRIORITY;
  attr.timetest_id = QURT_TIMETEST_ID;
  attr.stack_size = STACK_BYTES;
  attr.stack_addr = stack;
  attr.detach_state = QURT_JOINABLE;
  own->pool = p;
  own->worker = p->started + 1;
  if (qurt_thread_create(&own->thread, &attr, serve, own) != QURT_OK) return 0;
  p->started++;
  return 1;
}

mace_threads *mace_hexagon_start_threads(uint32_t workers) {
  const uint32_t units = (uint32_t)qurt_count_units();
  /* Without units nobody knows how many threads run at a time, and without an order one is enough. */
  uint32_t count = workers ? workers : units;
  char *stacks;
  pool *p;
  if (count > HEXAGON_MAX_THREADS) count = HEXAGON_MAX_THREADS;
  if (count < 2 || !has_threads()) return NULL;
  p = calloc(1, sizeof *p + STACK_ALIGNMENT + (count - 1) * (size_t)STACK_BYTES);
  if (!p) return NULL;
  stacks = (char *)(((uintptr_t)(p + 1) + STACK_ALIGNMENT - 1) / STACK_ALIGNMENT * STACK_ALIGNMENT);
  while (p->started < (int32_t)count - 1 && start(p, stacks + (size_t)p->started * STACK_BYTES)) continue;
  p->face.struct_bytes = sizeof p->face;
  p->face.workers = p->started + 1;
  p->face.pool = p;
  p->face.parallel = parallel;
  if (p->started) return &p->face;
  free(p);
  return NULL;
}

void mace_hexagon_end_threads(mace_threads *threads) {
  pool *p = threads ? threads->pool : NULL;
  int status;
  if (!p) return;
  __atomic_store_n(&p->closing, 1, __ATOMIC_RELAXED);
  __atomic_add_fetch(&p->calls, 1, __ATOMIC_RELEASE);
  qurt_futex_wake(&p->calls, p->started);
  for (int32_t i = 0; i < p->started; i++) qurt_thread_join(p->seats[i].thread, &status);
  free(p);
}
