/* hexagon_qurt.h - what a DSP library uses of QuRT, the system of Qualcomm's DSPs: threads, a wait for a word
 * to change, and vector units.
 *
 * No header of the vendor's was at hand. Names, layouts and numbers are those that QuRT's user guide
 * (80-VB419-178) describes and that open programs for it declare: Halide's src/runtime/mini_qurt.h, Apache
 * TVM's src/runtime/hexagon, and the QuRT layer of github.com/quic/hexagonMVM. All functions are weak: where
 * the system of a DSP lacks them, one thread computes.
 */
#ifndef MACE_HEXAGON_QURT_H
#define MACE_HEXAGON_QURT_H

#include <stdint.h>

typedef unsigned int qurt_thread_t;

/* Attributes of a thread. Fields up to stack_addr lie so in all versions; what follows is zero but for
 * detach_state, which early versions do not read. */
typedef struct qurt_thread_attr {
  char name[16];
  uint8_t tcb_partition, stid;
  uint16_t priority; /* 1 to 255, the lowest number runs first */
  uint8_t autostack, bus_priority;
  uint16_t timetest_id;
  uint32_t stack_size;
  void *stack_addr; /* of the lowest byte, aligned to 8 */
  uint16_t detach_state;
  uint16_t reserved[15]; /* a later version may read more */
} qurt_thread_attr_t;

enum { QURT_OK = 0, QURT_JOINABLE = 1, QURT_BUS_PRIORITY = 255, QURT_TIMETEST_ID = 0xfffe };
enum { QURT_HVX_MODE_128B = 1 };

#define QURT(result) extern result __attribute__((weak))
QURT(int) qurt_thread_create(qurt_thread_t *thread, qurt_thread_attr_t *attr, void (*entry)(void *), void *);
QURT(void) qurt_thread_exit(int status);
QURT(int) qurt_thread_join(unsigned int thread, int *status);
QURT(qurt_thread_t) qurt_thread_get_id(void);
QURT(int) qurt_thread_get_priority(qurt_thread_t thread);
QURT(int) qurt_futex_wait(void *word, int value); /* sleeps while the word has this value */
QURT(int) qurt_futex_wake(void *word, int threads);
QURT(int) qurt_hvx_lock(int mode); /* waits for a unit */
QURT(int) qurt_hvx_try_lock(int mode);
QURT(int) qurt_hvx_unlock(void);
QURT(int) qurt_hvx_get_units(void);
#undef QURT

/* Vector units of 128 bytes; 0 where there are none, or nobody counts them. */
static inline int32_t qurt_count_units(void) {
  const int units = qurt_hvx_get_units ? qurt_hvx_get_units() : 0;
  return units > 0 ? units >> 8 & 0xff : 0;
}

#endif
