/* hexagon_part.h - a DSP, and a part of a model on it; private to the driver. */
#ifndef MACE_HEXAGON_PART_H
#define MACE_HEXAGON_PART_H

#include <pthread.h>

#include "hexagon_interface.h"
#include "hexagon_library.h"

enum { HEXAGON_TIMEOUT_MS = 60000, HEXAGON_NAME_BYTES = 128, HEXAGON_STACK_BYTES = 128 * 1024 };

/* What the application set with mace_config.options. */
typedef struct hexagon_settings {
  uint32_t corner; /* HEXAGON_...; HEXAGON_NO_CORNER: by mace_config.power */
  uint32_t dcvs;   /* 1: the DSP may change its clock by its load; HEXAGON_NO_CORNER: by mace_config.power */
  uint32_t latency_us;
  uint32_t threads; /* on the DSP; 0: as many as it has vector units */
  uint32_t vtcm;    /* 1: tensors may lie in the memory of the vector units */
  int32_t is_unsigned;
} hexagon_settings;

#define HEXAGON_NO_CORNER 0xffffffffu

/* Ends a remote call that takes too long, from a thread of its own: the calling thread waits for the call. */
typedef struct hexagon_watchdog {
  pthread_t thread;
  pthread_mutex_t mutex;
  pthread_cond_t condition;
  struct timespec deadline;
  uint8_t is_started, is_armed, has_fired, must_end;
} hexagon_watchdog;

struct mace_device {
  hexagon_library library;
  hexagon_settings settings;
  hexagon_watchdog watchdog;
  remote_handle64 handle;
  uint32_t timeout_ms;
  uint8_t is_open; /* whether `handle` is */
  uint8_t is_lost; /* whether the process on the DSP has died */
  char module[HEXAGON_MAX_MODULE + 1];
  char name[HEXAGON_NAME_BYTES];
};

struct mace_loaded {
  mace_device *device;
  const mace_payload *payload;
  const hexagon_header *header;
  const uint32_t *sizes; /* by port: the bytes of its tensor */
  uint32_t method;
  uint8_t is_loaded;
  uint32_t *lengths; /* what goes in besides the tensors: the method if it is a far one, and all sizes */
  remote_arg arguments[]; /* `lengths`, then all ports */
};

/* Read the options that begin with "hexagon."; refuse unknown ones. */
mace_status mace_hexagon_read_options(hexagon_settings *settings, const char *options, mace_text text);

/* Check a part's bytes, and let `part` point into them; NULL, or what is wrong. */
const char *mace_hexagon_read_part(mace_loaded *part, const mace_payload *payload);

/* Record in the device whether an answer of FastRPC says that the process on the DSP is gone; returns it. */
int mace_hexagon_note(mace_device *device, int code);

/* Call a method of the open module; returns what FastRPC answers. */
int mace_hexagon_call(mace_device *device, uint32_t scalars, remote_arg *arguments);

/* Say which call failed, with what and why; returns the status that its answer asks for. */
mace_status mace_hexagon_judge(mace_device *device, const char *call, int code, mace_text text);

/* Write into the device's name what a load answered. */
void mace_hexagon_describe(mace_device *device, const hexagon_load_outputs *loaded);

/* Open the DSP library of a part, unless it is open. */
mace_status mace_hexagon_open_module(mace_device *device, const char *module, mace_text text);

/* The driver's functions that concern parts. */
size_t mace_hexagon_count_bytes(const mace_payload *payload);
mace_status mace_hexagon_load(mace_device *device, const mace_payload *payload, void *memory,
                              mace_loaded **loaded, mace_text text);
mace_status mace_hexagon_run(mace_loaded *part, const mace_binding *ports, uint32_t timeout_ms,
                             mace_text text);
void mace_hexagon_unload(mace_loaded *part);

/* Start the thread; 0, or an errno. Arm it before a call and disarm it behind; disarm tells whether it
 * fired. */
int mace_hexagon_start_watchdog(mace_device *device);
void mace_hexagon_arm(hexagon_watchdog *watchdog, uint32_t timeout_ms);
int mace_hexagon_disarm(hexagon_watchdog *watchdog);
void mace_hexagon_stop_watchdog(hexagon_watchdog *watchdog);

#endif
