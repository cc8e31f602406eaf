/* A pool of POSIX threads that share the tasks of one mace_threads.parallel at a time. */
#include "mace_threads.h"

#include <pthread.h>
#include <stdlib.h>

/* One archive links under several C libraries, whose locks differ in size: those of glibc on 64-bit ARM have 48 bytes, those of musl,
 * whose headers a cross compiler may have read, 40. None that is known has more than 64. */
enum { ROOM = 64 };
typedef union mutex {
  pthread_mutex_t lock;
  char room[ROOM];
} mutex;
typedef union condition {
  pthread_cond_t condition;
  char room[ROOM];
} condition;

typedef struct pool {
  mace_threads face;
  mutex mutex;
  condition work, done;
  void (*task)(void *context, int32_t index, int32_t worker);
  void *context;
  int32_t tasks, next, busy, started;
  unsigned round;
  int closing;
  pthread_t threads[];
} pool;

typedef struct seat {
  pool *pool;
  int32_t worker;
} seat;

/* Take tasks until none is left; the lock is held on entry and exit. */
static void take_tasks(pool *p, int32_t worker) {
  while (p->next < p->tasks) {
    const int32_t index = p->next++;
    pthread_mutex_unlock(&p->mutex.lock);
    p->task(p->context, index, worker);
    pthread_mutex_lock(&p->mutex.lock);
  }
}

static void *serve(void *argument) {
  seat *own = argument;
  pool *p = own->pool;
  const int32_t worker = own->worker;
  unsigned seen = 0;
  free(own);
  pthread_mutex_lock(&p->mutex.lock);
  for (;;) {
    while (!p->closing && p->round == seen) pthread_cond_wait(&p->work.condition, &p->mutex.lock);
    if (p->closing) break;
    seen = p->round;
    take_tasks(p, worker);
    if (--p->busy == 0) pthread_cond_signal(&p->done.condition);
  }
  pthread_mutex_unlock(&p->mutex.lock);
  return NULL;
}

static void parallel(void *self, void (*task)(void *, int32_t, int32_t), void *context, int32_t tasks) {
  pool *p = self;
  pthread_mutex_lock(&p->mutex.lock);
  p->task = task, p->context = context, p->tasks = tasks, p->next = 0, p->busy = p->started;
  p->round++;
  pthread_cond_broadcast(&p->work.condition);
  take_tasks(p, 0);
  while (p->busy) pthread_cond_wait(&p->done.condition, &p->mutex.lock);
  pthread_mutex_unlock(&p->mutex.lock);
}

mace_threads *mace_threads_new(int32_t workers) {
  const int32_t others = workers > 1 ? workers - 1 : 0;
  pool *p = calloc(1, sizeof *p + sizeof p->threads[0] * (size_t)others);
  if (!p) return NULL;
  p->face.struct_bytes = sizeof p->face, p->face.pool = p, p->face.workers = others + 1, p->face.parallel = parallel;
  pthread_mutex_init(&p->mutex.lock, NULL);
  pthread_cond_init(&p->work.condition, NULL);
  pthread_cond_init(&p->done.condition, NULL);
  for (int32_t i = 0; i < others; i++) {
    seat *own = malloc(sizeof *own);
    if (own) own->pool = p, own->worker = i + 1;
    if (!own || pthread_create(&p->threads[i], NULL, serve, own)) {
      free(own);
      mace_threads_delete(&p->face);
      return NULL;
    }
    p->started++;
  }
  return &p->face;
}

void mace_threads_delete(mace_threads *threads) {
  if (!threads) return;
  pool *p = threads->pool;
  pthread_mutex_lock(&p->mutex.lock);
  p->closing = 1;
  pthread_cond_broadcast(&p->work.condition);
  pthread_mutex_unlock(&p->mutex.lock);
  for (int32_t i = 0; i < p->started; i++) pthread_join(p->threads[i], NULL);
  pthread_cond_destroy(&p->done.condition);
  pthread_cond_destroy(&p->work.condition);
  pthread_mutex_destroy(&p->mutex.lock);
  free(p);
}
