/* dsp_system.c - stand-ins for the functions of QuRT and of the vendor's libraries that a DSP library calls:
 * threads by POSIX threads, vector units by a count, their memory by pages between two that nobody may touch.
 * Broken rules of the vendor's end the program.
 *
 * Variables of the environment:
 *   MACE_DSP_LOG      a file to which votes and threads are appended
 *   MACE_DSP_UNITS    vector units of the DSP; 4 without it
 *   MACE_DSP_VTCM     bytes of their memory; 256 KB without it, as SM8150 has
 *   MACE_DSP_MANAGER  1: there is the manager of resources that systems from v68 on have
 */
#define _GNU_SOURCE
#include "dsp_system.h"

#include <linux/futex.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "emulator_log.h"
#include "hexagon_fastrpc.h"

enum { MAX_THREADS = 64, MIN_STACK = 16 * 1024, UNITS = 4, MAIN_THREAD = 1, MAIN_PRIORITY = 192 };

typedef struct thread {
  pthread_t thread;
  void (*entry)(void *);
  void *argument;
  int priority, is_alive;
} thread;

static thread threads[MAX_THREADS]; /* thread i has the number i + MAIN_THREAD + 1 */
static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t unlocked = PTHREAD_COND_INITIALIZER;
static int locked_units;
static _Thread_local unsigned int own_number = MAIN_THREAD;
static _Thread_local int has_unit;

static void abandon(const char *rule) {
  fprintf(stderr, "dsp_system: %s\n", rule);
  abort();
}

/* Votes are written down; `words` is the vendor's request, of 32-bit words but for the bytes in it. */
int HAP_power_set(void *context, const void *request) {
  int32_t words[12];
  memcpy(words, request, sizeof words);
  if (words[0] == 7)
    log_line("vote dcvs=%d option=%d latency=%d/%d corner=%d/%d", words[2] & 0xff, words[3], words[4] & 0xff,
             words[5], words[6] & 0xff, words[7]);
  else
    log_line("vote type=%d value=%d", words[0], words[0] == 2 ? words[2] & 0xff : words[2]);
  return context ? 0 : HEXAGON_EBADPARM;
}

/* ---- memory of the vector units ---- */

enum { VTCM = 256 * 1024, PAGE = 4096, NEW = 0xa5 };

static struct vtcm {
  unsigned char *memory; /* NULL: it is free */
  size_t bytes, pages;
} taken;

static struct {
  unsigned int context, contexts; /* 0: none is acquired */
} resource;

/* One piece at a time. A page before and one behind it cannot be touched, and what lies between the end of the
 * request and that of its last page is compared when it is released. */
static void *take(unsigned int bytes, unsigned int single_page) {
  const char *limit = getenv("MACE_DSP_VTCM");
  const size_t pages = ((size_t)bytes + PAGE - 1) / PAGE * PAGE;
  unsigned char *at;
  if (single_page > 1 || !bytes) abandon("a request for VTCM makes no sense");
  if (taken.memory || pages > (limit ? strtoul(limit, NULL, 10) : VTCM)) return NULL;
  at = mmap(NULL, pages + 2 * PAGE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (at == MAP_FAILED || mprotect(at + PAGE, pages, PROT_READ | PROT_WRITE)) return NULL;
  taken = (struct vtcm){at + PAGE, bytes, pages};
  memset(taken.memory, NEW, pages);
  return taken.memory;
}

static void release(void) {
  size_t touched = 0;
  for (size_t i = 0; i < taken.pages; i++) {
    const int is_new = taken.memory[i] == NEW;
    if (!is_new && i >= taken.bytes) abandon("VTCM is written behind what was requested");
    touched += !is_new;
  }
  log_line("vtcm release, %zu bytes were written", touched);
  munmap(taken.memory - PAGE, taken.pages + 2 * PAGE);
  taken.memory = NULL;
}

void *HAP_request_VTCM(unsigned int bytes, unsigned int single_page) {
  log_line("vtcm request %u", bytes);
  return take(bytes, single_page);
}

int HAP_release_VTCM(void *memory) {
  if (!memory || memory != taken.memory || resource.context) abandon("VTCM is released that was not taken");
  release();
  return 0;
}

/* What the caller's attributes hold; the vendor's are as opaque. */
typedef struct attributes {
  uint64_t initialized;
  uint32_t bytes, single_page, context;
} attributes;

enum { INITIALIZED = 0x52455341 };

static attributes *check(attributes *attr) {
  if (attr->initialized != INITIALIZED) abandon("attributes of resources were not initialized");
  return attr;
}

int compute_resource_attr_init(void *attr) {
  *(attributes *)attr = (attributes){INITIALIZED, 0, 0, 0};
  return 0;
}

int compute_resource_attr_set_serialize(void *attr, unsigned char is_alone) {
  check(attr);
  if (is_alone) abandon("a session keeps the whole DSP for itself");
  return 0;
}

int compute_resource_attr_set_vtcm_param(void *attr, unsigned int bytes, unsigned char single_page) {
  attributes *own = check(attr);
  own->bytes = bytes;
  own->single_page = single_page;
  return 0;
}

unsigned int compute_resource_acquire(void *attr, unsigned int timeout_us) {
  attributes *own = check(attr);
  if (timeout_us && timeout_us < 200) abandon("a timeout for resources is shorter than is allowed");
  log_line("resource acquire %u", own->bytes);
  if (!take(own->bytes, own->single_page)) return 0;
  own->context = resource.context = ++resource.contexts;
  return own->context;
}

void *compute_resource_attr_get_vtcm_ptr(void *attr) {
  return check(attr)->context == resource.context ? taken.memory : NULL;
}

int compute_resource_release(unsigned int context) {
  if (!context || context != resource.context) abandon("resources are released that were not acquired");
  resource.context = 0;
  release();
  return 0;
}

/* ---- threads ---- */

static void *start(void *argument) {
  const thread *own = argument;
  own_number = (unsigned int)(own - threads) + MAIN_THREAD + 1;
  own->entry(own->argument);
  abandon("a thread returned without qurt_thread_exit");
  return NULL;
}

int qurt_thread_create(qurt_thread_t *number, qurt_thread_attr_t *attr, void (*entry)(void *),
                       void *argument) {
  pthread_attr_t stack;
  int free_one = 0, failed;
  while (free_one < MAX_THREADS && threads[free_one].is_alive) free_one++;
  if (free_one == MAX_THREADS) return -1;
  if ((uintptr_t)attr->stack_addr % 8 || attr->stack_size < MIN_STACK)
    abandon("a stack is small or not aligned");
  if (!attr->priority || attr->priority > 255) abandon("a priority is not from 1 to 255");
  threads[free_one] = (thread){0, entry, argument, attr->priority, 1};
  pthread_attr_init(&stack);
  pthread_attr_setstack(&stack, attr->stack_addr, attr->stack_size);
  failed = pthread_create(&threads[free_one].thread, &stack, start, &threads[free_one]);
  pthread_attr_destroy(&stack);
  if (failed) threads[free_one].is_alive = 0;
  log_line("thread %.16s priority=%d", attr->name, attr->priority);
  *number = (qurt_thread_t)free_one + MAIN_THREAD + 1;
  return failed ? -1 : QURT_OK;
}

void qurt_thread_exit(int status) {
  if (has_unit) abandon("a thread ended with a vector unit");
  pthread_exit((void *)(intptr_t)status);
}

int qurt_thread_join(unsigned int number, int *status) {
  void *answer;
  thread *joined = &threads[number - MAIN_THREAD - 1];
  if (number <= MAIN_THREAD || number > MAX_THREADS + MAIN_THREAD || !joined->is_alive)
    abandon("a thread that is not there was joined");
  if (pthread_join(joined->thread, &answer)) return -1;
  *status = (int)(intptr_t)answer;
  joined->is_alive = 0;
  return QURT_OK;
}

qurt_thread_t qurt_thread_get_id(void) { return own_number; }

int qurt_thread_get_priority(qurt_thread_t number) {
  return number == MAIN_THREAD ? MAIN_PRIORITY : threads[number - MAIN_THREAD - 1].priority;
}

int qurt_futex_wait(void *word, int value) {
  syscall(SYS_futex, word, FUTEX_WAIT_PRIVATE, value, NULL, NULL, 0);
  return QURT_OK;
}

int qurt_futex_wake(void *word, int count) {
  syscall(SYS_futex, word, FUTEX_WAKE_PRIVATE, count, NULL, NULL, 0);
  return QURT_OK;
}

/* ---- vector units ---- */

static int count_units(void) {
  const char *units = getenv("MACE_DSP_UNITS");
  return units ? atoi(units) : UNITS;
}

static int lock_unit(int mode, int waits) {
  int is_free;
  if (mode != QURT_HVX_MODE_128B) abandon("a vector unit was locked in another mode than 128 bytes");
  if (has_unit) abandon("a thread locked two vector units");
  pthread_mutex_lock(&mutex);
  while (!(is_free = locked_units < count_units()) && waits && count_units())
    pthread_cond_wait(&unlocked, &mutex);
  if (is_free) locked_units++;
  pthread_mutex_unlock(&mutex);
  has_unit = is_free;
  return is_free ? QURT_OK : -1;
}

int qurt_hvx_lock(int mode) { return lock_unit(mode, 1); }
int qurt_hvx_try_lock(int mode) { return lock_unit(mode, 0); }

int qurt_hvx_unlock(void) {
  if (!has_unit) abandon("a thread unlocked a vector unit that it does not have");
  pthread_mutex_lock(&mutex);
  locked_units--;
  pthread_cond_signal(&unlocked);
  pthread_mutex_unlock(&mutex);
  has_unit = 0;
  return QURT_OK;
}

int qurt_hvx_get_units(void) { return count_units() << 8 | 2 * count_units(); }
