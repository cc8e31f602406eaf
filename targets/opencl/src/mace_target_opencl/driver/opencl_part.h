/* opencl_part.h - a device, and a part of a model on it; private to the driver. */
#ifndef MACE_OPENCL_PART_H
#define MACE_OPENCL_PART_H

#include "driver.h"
#include "driver_library.h"
#include "opencl_api.h"
#include "opencl_blob.h"

enum { OPENCL_NAME_BYTES = 192, OPENCL_OPTION_BYTES = 256, OPENCL_COPIES = 16 };

/* What the application set with mace_config.options; empty: not set. */
typedef struct opencl_settings {
  char library[OPENCL_OPTION_BYTES]; /* path of the OpenCL library */
  char device[OPENCL_OPTION_BYTES];  /* "gpu", "cpu", or a part of the device's name */
  char priority[8], performance[8];  /* "high", "normal" or "low" */
  char batching[8];                  /* "on" or "off" */
  char kernel_us[12];                /* microseconds that a kernel may take; "0": no limit */
} opencl_settings;

struct mace_device {
  opencl_settings settings;
  void *library; /* NULL: not open */
  opencl_functions cl;
  cl_device id;
  cl_context context;
  cl_queue queue;
  cl_queue profiling; /* of observed runs, which tells times; NULL: not made yet */
  cl_mem pool;        /* where parts with images keep what passes between their calls; NULL: none has such */
  size_t pool_bytes;
  uint32_t pools; /* that were made: parts whose images lie in another one make them again */
  cl_event copies[OPENCL_COPIES]; /* that were begun and not waited for */
  uint32_t copying;
  uint64_t largest; /* bytes of the largest buffer */
  size_t group;     /* work-items of the largest group */
  char name[OPENCL_NAME_BYTES];
};

/* Who is to know that a run has ended; opencl_notice.c. */
typedef struct opencl_notice opencl_notice;

/* What the arguments of calls were set for. */
typedef struct opencl_argument {
  cl_mem memory; /* NULL: nothing yet */
  uint64_t offset;
} opencl_argument;

struct mace_loaded {
  mace_device *device;
  const mace_payload *payload;
  opencl_blob blob;
  cl_mem weights;      /* NULL: the part has none */
  cl_mem faults;       /* where kernels of a check build note what was wrong; NULL in others */
  cl_program program;  /* NULL: not compiled */
  cl_mem *images;      /* by number; NULL: the tensor lies in another's image, its slot's */
  cl_mem *ranges;      /* by number: where an image lies in the pool; NULL: it has memory of its own */
  uint32_t pool;       /* the number of the pool for which they were made; 0: none */
  int is_pooled;       /* whether images lie in the pool */
  cl_kernel *kernels;  /* by call: arguments are a kernel's state, and those of a call rarely change */
  cl_event running;    /* of the run that was submitted; NULL: none */
  opencl_notice *notice; /* of that run; NULL: nobody asked */
  opencl_argument *bound; /* by port */
  uint64_t *slices;       /* by call: how many pieces it is enqueued in; 0: as one, too */
};

/* Say which function failed; returns the reaction that its answer asks for, `otherwise` if it asks for none
 * in particular. */
mace_status mace_opencl_judge(mace_status otherwise, const char *function, int32_t code, mace_text text);

/* Open the first OpenCL library that is complete; close it. */
mace_status mace_opencl_open_library(mace_device *device, mace_text text);
void mace_opencl_close_library(mace_device *device);

/* The names of the levels of a hint, from the highest; NULL ends them. */
extern const char *const mace_opencl_levels[];

/* Find the device: that of the context or the queue that the application shares, where there is one. */
mace_status mace_opencl_find_device(mace_device *device, mace_text text);

/* Make context and queue, or retain the application's; after a failure there is none that is not the session's. */
mace_status mace_opencl_create_context(mace_device *device, mace_text text);

/* A function of an extension; NULL if there is none. */
void *mace_opencl_find_function(const mace_device *device, const char *name);

/* Whether a device has an extension. */
int mace_opencl_has_extension(const mace_device *device, const char *name);

/* Ports of a part, its scratch memory among them. */
size_t mace_opencl_count_ports(const mace_payload *payload);

/* Give the kernels of all calls their arguments, unless they have them; forget which they have. */
mace_status mace_opencl_bind(mace_loaded *part, const mace_binding *ports, mace_text text);
void mace_opencl_unbind(mace_loaded *part);

/* Enqueue the whole of a call; event: of its end, NULL: nobody asks. */
int32_t mace_opencl_enqueue(const mace_loaded *part, uint32_t number, cl_queue queue, cl_event *event);

/* Enqueue all calls, long ones in slices. */
mace_status mace_opencl_enqueue_calls(mace_loaded *part, const mace_binding *ports, mace_text text);

/* Microseconds that a kernel may take; 0: no limit. */
uint64_t mace_opencl_limit_us(const mace_loaded *part);

/* Where kernels have a limit: measure each call, which has its arguments, and choose its slices. */
void mace_opencl_measure(mace_loaded *part);

/* The queue whose events have times, and the nanoseconds of an event that has ended; 0 where the device does
 * not tell. The queue is that of other runs where the device gives no such queue. */
cl_queue mace_opencl_find_queue(mace_device *device);
uint64_t mace_opencl_read_time(const mace_device *device, cl_event event);

/* Of check builds; without effect in others. Make the memory for faults; give a call its arguments behind the
 * operands; say what a kernel noted, once the calls have ended, and forget it. */
mace_status mace_opencl_prepare_check(mace_loaded *part, mace_text text);
int32_t mace_opencl_set_check(const mace_loaded *part, uint32_t number);
mace_status mace_opencl_find_fault(const mace_loaded *part, mace_text text);

/* Compile the program of a part. */
int32_t mace_opencl_build_program(const mace_loaded *part);

/* Make the images of a part, with its constants, and the pool; release the images; give a call an image as an
 * argument. */
mace_status mace_opencl_make_images(mace_loaded *part, mace_text text);
void mace_opencl_release_images(mace_loaded *part);
void mace_opencl_release_image(mace_loaded *part, uint32_t number);
int32_t mace_opencl_set_image(const mace_loaded *part, uint32_t call, uint32_t position, uint64_t number);

/* Choose where images lie, and make the device's pool large enough for the part; place the images again after
 * the pool has grown for another part. */
mace_status mace_opencl_make_pool(mace_loaded *part, mace_text text);
mace_status mace_opencl_place_images(mace_loaded *part, mace_text text);

/* Where an operand of the pool begins. */
uint64_t mace_opencl_offset_in_pool(const mace_loaded *part, const opencl_operand *operand);

/* Bytes of the constants that no image holds. */
size_t mace_opencl_count_weights(const mace_loaded *part);

/* Read a tensor that lies in an image, in the order of its elements. */
int32_t mace_opencl_read_image(const mace_loaded *part, uint64_t number, cl_queue queue, char *to);

/* The cl_mem of a memory; whether it was made with a flag that forbids reading or writing. */
cl_mem mace_opencl_memory(const mace_memory *memory);
int mace_opencl_is_forbidden(const mace_memory *memory, uint64_t flag);

/* Let nobody be told of the run in flight any more. */
void mace_opencl_drop_notice(mace_loaded *part);

/* Functions of the driver that concern memory; see driver.h. */
mace_status mace_opencl_allocate(mace_device *device, const mace_need *need, mace_buffer *buffer, mace_text text);
void mace_opencl_free(mace_device *device, mace_buffer *buffer);
mace_status mace_opencl_copy(mace_device *device, mace_binding to, mace_binding from, size_t bytes,
                             mace_text text);
mace_status mace_opencl_begin_copy(mace_device *device, mace_binding to, mace_binding from, size_t bytes,
                                   mace_text text);
mace_status mace_opencl_finish_copies(mace_device *device, mace_text text);
void mace_opencl_release_copies(mace_device *device);
mace_status mace_opencl_import(mace_device *device, const mace_need *need, mace_memory *memory, mace_text text);
void mace_opencl_release(mace_device *device, mace_memory *memory);

/* Functions of the driver that concern a part; see driver.h. */
size_t mace_opencl_part_bytes(const mace_payload *payload);
mace_status mace_opencl_load(mace_device *device, const mace_payload *payload, void *memory,
                             mace_loaded **loaded, mace_text text);
mace_status mace_opencl_compile(mace_loaded *part, mace_text text);
mace_status mace_opencl_restore(mace_loaded *part, const void *compiled, size_t bytes, mace_text text);
size_t mace_opencl_save(mace_loaded *part, void *compiled, size_t bytes);
mace_status mace_opencl_run(mace_loaded *part, const mace_binding *ports, uint32_t timeout_ms, mace_text text);
mace_status mace_opencl_submit(mace_loaded *part, const mace_binding *ports, uint32_t timeout_ms,
                               mace_text text);
mace_status mace_opencl_notify(mace_loaded *part, void (*done)(void *context), void *context, mace_text text);
mace_status mace_opencl_wait(mace_loaded *part, uint32_t timeout_ms, mace_text text);
mace_status mace_opencl_observe(mace_loaded *part, const mace_binding *ports, const mace_observer *observer,
                                mace_text text);
void mace_opencl_unload(mace_loaded *part);

#endif
