/* fake_driver.h - a device without hardware whose every call can be made to fail, and which records what it
 * was asked. */
#ifndef FAKE_DRIVER_H
#define FAKE_DRIVER_H

#include "driver.h"

enum { FAKE_VALUES = 8, FAKE_BYTES = FAKE_VALUES * 4 };

typedef enum fake_call {
  FAKE_NONE,
  FAKE_OPEN,
  FAKE_LOAD,
  FAKE_NEED,
  FAKE_ALLOCATE,
  FAKE_IMPORT,
  FAKE_COPY,
  FAKE_RUN,
  FAKE_POWER,
  FAKE_SUBMIT,
  FAKE_WAIT,
  FAKE_COMPILE,
  FAKE_RESTORE,
  FAKE_OBSERVE,
  FAKE_NOTIFY,
  FAKE_BEGIN,
  FAKE_FINISH,
  FAKE_CALLS
} fake_call;

/* The compiled form of a part: y = factor * x, then y += scratch[0], which the driver sets to addend. */
typedef struct fake_code {
  char magic[4];
  uint32_t bytes, checksum;
  int32_t count;
  float factor, addend;
} fake_code;

/* What the device does next, and what it did. One for all sessions of a thread. */
typedef struct fake_record {
  fake_call fails; /* this call fails, after `after` of its kind went well, with `status` and `text` */
  int32_t after;
  mace_status status;
  const char *text;
  mace_need raise; /* what the device wants more than the build planned */
  int32_t calls[FAKE_CALLS];
  int32_t open, loaded, allocated, imported; /* now */
  int32_t submitted;                         /* runs in flight, now */
  int32_t waits;                             /* so many calls of wait find the run going on */
  int32_t hangs;  /* a run never ends by itself: after its timeout it answers `status`, else MACE_TIMEOUT */
  int32_t fences; /* closed, after they had signaled */
  int32_t after_loss; /* calls that touched the device after it was lost */
  int32_t lost;
  mace_power power;
  uint32_t timeout_ms;
  const void *import_host;
  uint64_t import_handle;
  size_t import_bytes;
  const char *options;
  void (*done)(void *context); /* who is to know that the run in flight has ended */
  void *done_context;
  int32_t ends; /* a run ends before submit returns */
  int32_t copying; /* copies that were begun and not made, now */
} fake_record;

extern _Thread_local fake_record fake;

/* Make it a device again that never failed. */
void fake_forget(void);

uint32_t fake_checksum(const fake_code *code);

extern const mace_driver fake_own;    /* memory of its own, which only copies reach; imports it */
extern const mace_driver fake_shared; /* no memory, no copies: works in host memory as it is */
extern const mace_driver
    fake_import; /* works in host memory that was imported, and in dma-bufs; waits for fences */
extern const mace_driver fake_async;   /* as fake_own, and runs by itself; uses the heap, and a descriptor */
extern const mace_driver fake_compile; /* as fake_own, and compiles on the device */
extern const mace_driver fake_notify;  /* as fake_async, and tells when a run ends */
extern const mace_driver fake_overlap; /* as fake_async, and begins copies, which it makes as late as it may */
extern const mace_driver fake_layers;  /* as fake_async, and shows two layers, of which the second is none */

#endif
