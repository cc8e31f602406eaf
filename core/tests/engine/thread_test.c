/* Sessions and threads, under the thread sanitizer: several sessions of one model at a time, and one session
 * in two threads. */
#define _GNU_SOURCE
#include <pthread.h>

#include <semaphore.h>

#include "models.h"
#include "thread_driver.h"

enum { THREADS = 4, RUNS = 2500, CLAIMS = 20000, NOTICES = 2000 };

static fixture own, plain;
static pthread_barrier_t barrier;
static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;

static void acquire(void *context) { pthread_mutex_lock(context); }
static void release(void *context) { pthread_mutex_unlock(context); }

static const mace_lock lock = {sizeof lock, &mutex, acquire, release};
static const mace_config config = {.struct_bytes = sizeof config, .lock = &lock};

/* A session of its own, opened at the same moment as the others'. */
static void *work(void *argument) {
  const mace_model *model = argument;
  size_t bytes;
  void *memory = session_memory(model, &config, &bytes);
  mace_session *session;
  pthread_barrier_wait(&barrier);
  CHECK(!mace_open(model, &config, memory, bytes, &session));
  for (int i = 0; i < RUNS; i++) CHECK(!run_and_check(session, (float)(i % 100), 0));
  mace_close(session);
  free(memory);
  CHECK(!fake.open && !fake.loaded && !fake.allocated && !fake.imported);
  return NULL;
}

/* Submit and wait. In between the session is busy for the others, also for what they submit. */
static mace_status submit_and_check(mace_session *session, float base) {
  float x[FAKE_VALUES], y[FAKE_VALUES];
  const void *inputs[] = {x};
  void *outputs[] = {y};
  for (int i = 0; i < FAKE_VALUES; i++) x[i] = base + (float)i, y[i] = -1;
  mace_status status = mace_submit(session, inputs, outputs);
  if (status) return status;
  do status = mace_wait(session, MACE_FOREVER);
  while (status == MACE_BUSY); /* another thread asks at this moment */
  CHECK(!status);
  for (int i = 0; i < FAKE_VALUES; i++) CHECK(y[i] == 3 * (x[i] + 1) + 8);
  return MACE_OK;
}

/* One session in several threads: a run is right, or the session is busy. */
static void *share(void *argument) {
  intptr_t busy = 0;
  pthread_barrier_wait(&barrier);
  for (int i = 0; i < CLAIMS; i++) {
    const mace_status status =
        i % 2 ? submit_and_check(argument, (float)(i % 100)) : run_and_check(argument, (float)(i % 100), 0);
    CHECK(!status || status == MACE_BUSY);
    busy += status == MACE_BUSY;
  }
  return (void *)busy;
}

static void join(pthread_t *threads, intptr_t *busy) {
  for (int i = 0; i < THREADS; i++) {
    void *result;
    CHECK(!pthread_join(threads[i], &result));
    *busy += (intptr_t)result;
  }
}

static void notify(void *context) { sem_post(context); }

/* Two parts of a device run by themselves, one behind the other. This thread sleeps until it is notified, and
 * finds the session free each time: MACE_BUSY says that the second part is in flight. */
static void wait_for_notices(void) {
  const mace_place back[] = {{MACE_IN_OUTPUT, 0, 0}, {MACE_IN_OUTPUT, 0, 0}}; /* in place */
  const mace_step steps[] = {{.task = 0}, {.task = 1}};
  fixture f;
  size_t bytes;
  mace_session *session;
  sem_t semaphore;
  float x[FAKE_VALUES] = {0}, y[FAKE_VALUES];
  const void *inputs[] = {x};
  void *outputs[] = {y};
  int busy = 0;
  make_models(&f, &thread_driver, 0, 1);
  const mace_task tasks[] = {f.task, {0, 0, &f.payload, back, 0, 0, NULL, 0, NULL}};
  f.plan.tasks = tasks, f.plan.task_count = 2, f.plan.steps = steps, f.plan.step_count = 2;
  void *memory = session_memory(&f.device, NULL, &bytes);
  CHECK(!mace_open(&f.device, NULL, memory, bytes, &session) && !sem_init(&semaphore, 0, 0));
  mace_notify(session, notify, &semaphore);
  for (int i = 0; i < NOTICES; i++) {
    mace_status status;
    x[0] = (float)(i % 100);
    CHECK(!mace_submit(session, inputs, outputs));
    do {
      CHECK(!sem_wait(&semaphore));
      status = mace_wait(session, 0);
      busy += status == MACE_BUSY;
    } while (status == MACE_BUSY);
    CHECK(!status && y[0] == 3 * (3 * x[0] + 10) + 10);
  }
  CHECK(busy <= NOTICES);
  CHECK(!mace_submit(session, inputs, outputs));
  mace_close(session); /* waits for the device, and for its notice */
  CHECK(!sem_destroy(&semaphore));
  free(memory);
  printf("notified of %d runs\n", NOTICES);
}

int main(void) {
  pthread_t threads[THREADS];
  intptr_t busy = 0;
  size_t bytes;
  mace_session *session;
  pthread_barrier_init(&barrier, NULL, THREADS);
  make_models(&own, &fake_own, 0, 0);
  make_models(&plain, &fake_shared, 0, 0);
  for (int i = 0; i < THREADS; i++)
    CHECK(!pthread_create(&threads[i], NULL, work, i % 2 ? &own.device : &plain.cpu));
  join(threads, &busy);
  void *memory = session_memory(&plain.cpu, NULL, &bytes);
  CHECK(!mace_open(&plain.cpu, NULL, memory, bytes, &session)); /* opened here, run elsewhere */
  for (int i = 0; i < THREADS; i++) CHECK(!pthread_create(&threads[i], NULL, share, session));
  join(threads, &busy);
  CHECK(!run_and_check(session, 0, 0));
  mace_close(session);
  free(memory);
  wait_for_notices();
  printf("%d of %d calls found the session busy\n", (int)busy, THREADS * CLAIMS);
  return 0;
}
