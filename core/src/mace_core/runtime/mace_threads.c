/* A pool of POSIX threads that share the tasks of one mace_threads.parallel at a time.
 *
 * Waking a thread takes the system 5 to 50 microseconds, longer than most layers of small models. So a worker
 * without tasks looks for new ones for SPIN_NS before it sleeps, and tasks are claimed by one atomic addition.
 * No worker looks while more threads of all pools are awake than there are processors.
 *
 * Each worker has a share of the tasks, the same part of every call, and those of others only when it is done
 * with its own: so it mostly reads what it wrote itself in the call before, which its own caches hold.
 */
#if defined(__linux__) && !defined(_GNU_SOURCE)
#define _GNU_SOURCE /* sched_getaffinity */
#endif
#include "mace_threads.h"

#include <pthread.h>
#include <sched.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

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

enum {
  LINE = 128,        /* bytes that processors fetch together: two lines of 64 on x86 */
  SPIN_NS = 200000,  /* longer than the calls that one worker computes alone, and than the time between runs */
  LOOKS = 64,        /* between two looks at the clock, which takes as long as several looks for tasks */
  BLOCKS = 16,       /* a worker, at maximum: what claims cost beside tasks, and how evenly they end */
  MAX_WORKERS = 1024 /* so that blocks and workers together fit the half of a claim */
};

struct pool;

/* A worker, and its share of the blocks of a call. */
typedef struct seat {
  struct pool *pool;
  int32_t worker;
  pthread_t thread;
  char apart[LINE];
  uint32_t claims; /* the end of the share << 16 | its next block: one word, so that a late worker never mixes two calls */
} seat;

typedef struct pool {
  mace_threads face;
  int32_t started, processors;
  /* What the caller hands over; workers read it only between a valid claim and its addition to `done`. */
  void (*task)(void *context, int32_t index, int32_t worker);
  void *context;
  int32_t tasks, step; /* a block is `step` tasks */
  uint32_t blocks;
  char apart_0[LINE];
  uint32_t done; /* blocks that are computed */
  char apart_1[LINE];
  uint32_t sleeping; /* workers that only a signal wakes */
  uint32_t waiting;  /* whether the caller sleeps until all blocks are done */
  uint32_t busy;     /* whether a call is in progress */
  uint32_t closing;
  uint32_t awake;    /* workers that do not sleep; changed under the mutex */
  uint32_t woken;    /* signals that no worker has taken; under the mutex */
  mutex mutex;
  condition work, finished;
  seat seats[]; /* of workers; the first is the caller's */
} pool;

/* Threads of all pools that are awake: workers, and one caller for each pool that has any. */
static uint32_t awake_threads;

static inline void pause_processor(void) {
#if defined(__x86_64__) || defined(__i386__)
  __builtin_ia32_pause();
#elif defined(__aarch64__) || (defined(__arm__) && __ARM_ARCH >= 7)
  __asm__ volatile("yield" ::: "memory");
#else
  __asm__ volatile("" ::: "memory");
#endif
}

static int64_t now(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

static int32_t count_processors(void) {
  const long online = sysconf(_SC_NPROCESSORS_ONLN);
  return online < 1 ? 1 : online > MAX_WORKERS ? MAX_WORKERS : (int32_t)online;
}

/* The processors that new threads of this one may use. */
static int32_t count_allowed(void) {
#if defined(__linux__)
  /* Counted here: the macros of <sched.h> call functions that not every C library has. */
  union {
    cpu_set_t set;
    unsigned char bytes[MAX_WORKERS / 8];
  } allowed = {.bytes = {0}};
  int32_t count = 0;
  if (!sched_getaffinity(0, sizeof allowed, &allowed.set)) {
    for (size_t i = 0; i < sizeof allowed.bytes; i++)
      for (unsigned bits = allowed.bytes[i]; bits; bits &= bits - 1) count++;
    return count > 0 ? count : 1;
  }
#endif
  return count_processors();
}

static int is_crowded(const pool *p) {
  return __atomic_load_n(&awake_threads, __ATOMIC_RELAXED) > (uint32_t)p->processors;
}

/* Wake workers, at maximum `count`, where processors are free for them. Those that were woken wake others: so
 * the caller has less to do than to signal each. */
static void wake(pool *p, uint32_t count) {
  pthread_mutex_lock(&p->mutex.lock);
  for (; count > 0 && __atomic_load_n(&p->sleeping, __ATOMIC_RELAXED); count--) {
    const uint32_t threads = p->awake ? 1 : 2;
    if (__atomic_add_fetch(&awake_threads, threads, __ATOMIC_RELAXED) > (uint32_t)p->processors) {
      __atomic_sub_fetch(&awake_threads, threads, __ATOMIC_RELAXED);
      break;
    }
    __atomic_add_fetch(&p->awake, 1, __ATOMIC_RELAXED);
    p->woken++;
    __atomic_sub_fetch(&p->sleeping, 1, __ATOMIC_SEQ_CST);
    pthread_cond_signal(&p->work.condition);
  }
  pthread_mutex_unlock(&p->mutex.lock);
}

/* Wake a few workers where so many blocks need more than are awake. */
static void wake_for(pool *p, uint32_t blocks) {
  /* The caller writes claims and then changes `sleeping`, by nothing; a worker changes it and then reads claims.
   * One of the two is the second to change it, and sees what the other wrote before. */
  if (!__atomic_fetch_add(&p->sleeping, 0, __ATOMIC_ACQ_REL)) return;
  const uint32_t awake = __atomic_load_n(&p->awake, __ATOMIC_RELAXED);
  if (blocks >= awake + 2) wake(p, blocks - 1 - awake < 2 ? 1 : 2);
}

/* Blocks of one share that nobody has claimed. */
static inline uint32_t count_left(const seat *of) {
  const uint32_t claims = __atomic_load_n(&of->claims, __ATOMIC_RELAXED);
  return claims >> 16 > (claims & 0xffff) ? (claims >> 16) - (claims & 0xffff) : 0;
}

/* Blocks that nobody has claimed. */
static uint32_t count_unclaimed(const pool *p) {
  uint32_t count = 0;
  for (int32_t i = 0; i < p->face.workers; i++) count += count_left(&p->seats[i]);
  return count;
}

/* Sleep until a signal; not at all if there are tasks. */
static void sleep_until_signal(pool *p) {
  pthread_mutex_lock(&p->mutex.lock);
  const uint32_t awake = __atomic_sub_fetch(&p->awake, 1, __ATOMIC_SEQ_CST);
  __atomic_sub_fetch(&awake_threads, awake ? 1 : 2, __ATOMIC_RELAXED);
  __atomic_add_fetch(&p->sleeping, 1, __ATOMIC_ACQ_REL); /* before the look at claims: see wake_for */
  const uint32_t left = count_unclaimed(p);
  pthread_mutex_unlock(&p->mutex.lock);
  if (left) wake(p, 1);
  pthread_mutex_lock(&p->mutex.lock);
  while (!p->woken && !__atomic_load_n(&p->closing, __ATOMIC_RELAXED))
    pthread_cond_wait(&p->work.condition, &p->mutex.lock);
  if (p->woken) p->woken--;
  pthread_mutex_unlock(&p->mutex.lock);
  wake_for(p, count_unclaimed(p));
}

/* Return 1 as soon as there are tasks, 0 when the pool is closed. Tasks of others count only after a while:
 * with fewer blocks than workers most would only delay those who get one. */
static int await_tasks(pool *p, int32_t worker) {
  int64_t end = 0;
  for (uint32_t looks = 1;; looks++) {
    if (count_left(&p->seats[worker])) return 1;
    if (__atomic_load_n(&p->closing, __ATOMIC_RELAXED)) return 0;
    pause_processor();
    if (looks % LOOKS) continue;
    if (count_unclaimed(p)) return 1;
    const int64_t time = now();
    if (!end) end = time + SPIN_NS;
    if (time < end && !is_crowded(p)) continue;
    sleep_until_signal(p);
    end = 0;
  }
}

/* Compute blocks of one share until none is left; return how many. */
static uint32_t take_share(pool *p, seat *of, int32_t worker) {
  for (uint32_t count = 0;; count++) {
    if (!count_left(of)) return count; /* a look at it leaves it in the caches of others, an addition does not */
    const uint32_t claim = __atomic_fetch_add(&of->claims, 1, __ATOMIC_ACQUIRE);
    const uint32_t block = claim & 0xffff;
    if (block >= claim >> 16) return count;
    const int64_t first = (int64_t)block * p->step, behind = first + p->step;
    const int32_t last = behind < p->tasks ? (int32_t)behind : p->tasks;
    for (int32_t index = (int32_t)first; index < last; index++) p->task(p->context, index, worker);
  }
}

/* Compute blocks until none is left, the own ones first; return how many. */
static uint32_t take_tasks(pool *p, int32_t worker) {
  uint32_t count = 0;
  for (int32_t i = worker; i < p->face.workers; i++) count += take_share(p, &p->seats[i], worker);
  for (int32_t i = 0; i < worker; i++) count += take_share(p, &p->seats[i], worker);
  return count;
}

static void *serve(void *argument) {
  const seat *own = argument;
  pool *p = own->pool;
  while (await_tasks(p, own->worker)) {
    const uint32_t count = take_tasks(p, own->worker);
    if (!count) continue;
    const uint32_t blocks = p->blocks; /* read before the addition, behind which the caller may go on */
    if (__atomic_add_fetch(&p->done, count, __ATOMIC_SEQ_CST) != blocks) continue;
    if (!__atomic_load_n(&p->waiting, __ATOMIC_SEQ_CST)) continue;
    pthread_mutex_lock(&p->mutex.lock);
    pthread_cond_signal(&p->finished.condition);
    pthread_mutex_unlock(&p->mutex.lock);
  }
  return NULL;
}

/* Give each worker its share; of fewer blocks than workers, one each to some. */
static void share_out(pool *p, uint32_t blocks) {
  const uint32_t workers = (uint32_t)p->face.workers;
  uint32_t first = 0;
  for (uint32_t i = 0; i < workers; i++) {
    const uint32_t end = ((i + 1) * blocks + workers - 1) / workers;
    if (first < end) __atomic_store_n(&p->seats[i].claims, end << 16 | first, __ATOMIC_RELEASE);
    first = end;
  }
}

/* Return when all blocks of a call are done. */
static void await_done(pool *p, uint32_t blocks) {
  int64_t end = 0;
  for (uint32_t looks = 1; __atomic_load_n(&p->done, __ATOMIC_ACQUIRE) != blocks; looks++) {
    pause_processor();
    if (looks % LOOKS) continue;
    const int64_t time = now();
    if (!end) end = time + SPIN_NS;
    if (time < end && !is_crowded(p)) continue;
    pthread_mutex_lock(&p->mutex.lock);
    __atomic_store_n(&p->waiting, 1, __ATOMIC_SEQ_CST);
    while (__atomic_load_n(&p->done, __ATOMIC_SEQ_CST) != blocks)
      pthread_cond_wait(&p->finished.condition, &p->mutex.lock);
    __atomic_store_n(&p->waiting, 0, __ATOMIC_RELAXED);
    pthread_mutex_unlock(&p->mutex.lock);
  }
}

static void parallel(void *self, void (*task)(void *, int32_t, int32_t), void *context, int32_t tasks) {
  pool *p = self;
  /* Where another session's call has the workers, this thread computes alone, in its own session's memory. */
  if (tasks < 2 || !p->started || __atomic_exchange_n(&p->busy, 1, __ATOMIC_ACQUIRE)) {
    for (int32_t index = 0; index < tasks; index++) task(context, index, 0);
    return;
  }
  const int32_t max_blocks = BLOCKS * p->face.workers;
  p->task = task, p->context = context, p->tasks = tasks;
  p->step = tasks > max_blocks ? (int32_t)(((int64_t)tasks + max_blocks - 1) / max_blocks) : 1;
  const uint32_t blocks = (uint32_t)(((int64_t)tasks + p->step - 1) / p->step);
  p->blocks = blocks;
  __atomic_store_n(&p->done, 0, __ATOMIC_RELAXED);
  share_out(p, blocks);
  wake_for(p, blocks);
  const uint32_t own = take_tasks(p, 0);
  if (__atomic_add_fetch(&p->done, own, __ATOMIC_ACQ_REL) != blocks) await_done(p, blocks);
  __atomic_store_n(&p->busy, 0, __ATOMIC_RELEASE);
}

mace_threads *mace_threads_new(int32_t workers) {
  /* More threads than processors only take turns. */
  const int32_t allowed = count_allowed(), limit = allowed < MAX_WORKERS ? allowed : MAX_WORKERS;
  const int32_t used = workers < limit ? workers : limit, others = used > 1 ? used - 1 : 0;
  pool *p = calloc(1, sizeof *p + sizeof p->seats[0] * ((size_t)others + 1));
  if (!p) return NULL;
  p->face.struct_bytes = sizeof p->face, p->face.pool = p, p->face.workers = others + 1, p->face.parallel = parallel;
  p->processors = count_processors();
  pthread_mutex_init(&p->mutex.lock, NULL);
  pthread_cond_init(&p->work.condition, NULL);
  pthread_cond_init(&p->finished.condition, NULL);
  p->awake = (uint32_t)others;
  if (others) __atomic_add_fetch(&awake_threads, p->awake + 1, __ATOMIC_RELAXED);
  for (int32_t i = 1; i <= others; i++) {
    seat *own = &p->seats[i];
    own->pool = p, own->worker = i;
    if (pthread_create(&own->thread, NULL, serve, own)) {
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
  __atomic_store_n(&p->closing, 1, __ATOMIC_RELAXED);
  pthread_cond_broadcast(&p->work.condition);
  pthread_mutex_unlock(&p->mutex.lock);
  for (int32_t i = 1; i <= p->started; i++) pthread_join(p->seats[i].thread, NULL);
  if (p->awake) __atomic_sub_fetch(&awake_threads, p->awake + 1, __ATOMIC_RELAXED);
  pthread_cond_destroy(&p->finished.condition);
  pthread_cond_destroy(&p->work.condition);
  pthread_mutex_destroy(&p->mutex.lock);
  free(p);
}
