/* driver.h - the interface of a device driver, and the plan that the engine executes with it. C11; needs no
 * operating system.
 *
 * Order of calls: open, {load, [restore], [compile, save], {run | submit, wait}, unload}, close. The engine
 * serializes open, load, compile, unload and close of all drivers through mace_config.lock, and each session
 * opens its devices itself, so that no device has two threads. A driver has no state outside of what it is
 * given, writes text only on failure, and never ends the process. After MACE_LOST only release, free, unload
 * and close are called; these must return without waiting for the device.
 */
#ifndef MACE_DRIVER_H
#define MACE_DRIVER_H

#include "mace_types.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Raised when a struct changes its layout; new members are appended without raising it. */
#define MACE_DRIVER_MAJOR 2

/* Flags of a driver. ALLOCATES: it, or its vendor's library, uses the heap; never set for bare metal.
 * UNBOUNDED: the vendor's runtime cannot stop a run, so sessions with a timeout_ms are refused. FENCES:
 * import waits for the buffer's fence, or makes the device wait for it, and closes its descriptor. SHARES: open
 * reads mace_config.native, and refuses names that begin with the driver's and that it does not know. */
#define MACE_ALLOCATES 2u
#define MACE_UNBOUNDED 4u
#define MACE_FENCES 8u
#define MACE_SHARES 16u

typedef struct mace_device mace_device; /* defined by the driver; lies in memory given to open */
typedef struct mace_loaded mace_loaded; /* one part on a device; lies in memory given to load */

/* Where a failure is described: `bytes` bytes, of which the last stays 0. at is NULL where the session keeps
 * no texts. */
typedef struct mace_text {
  char *at;
  size_t bytes;
} mace_text;

/* What the memory of a port must be. Constants of the build; `need` may raise them on the device, which the
 * engine refuses at open.
 *
 * There are no strides: a tensor at a port is dense. A device that wants padded rows says so by more `bytes`
 * than the dense tensor has, and its driver or the target's own kernels pad. */
typedef struct mace_need {
  uint32_t struct_bytes;
  uint32_t kinds;     /* bits 1u << mace_buffer_kind that need no copy; 0: MACE_HOST alone */
  uint32_t alignment; /* of the address, bytes */
  uint32_t granule;   /* of the size: a cache line, a page */
  uint32_t slack;     /* bytes behind the end that are read */
  size_t bytes;       /* padded rows and channels included */
} mace_need;

/* What the build made of a part. Constant; lives as long as the model, so flash and mapped files are used in
 * place. */
typedef struct mace_payload {
  uint32_t struct_bytes;
  int32_t inputs, outputs; /* ports, in this order; then one for the scratch memory if scratch.bytes */
  const void *code;        /* private to the target and its driver */
  size_t code_bytes;
  const void *weights;
  size_t weight_bytes;
  const char *built_by, *built_for; /* "acmec 8.2", "acme mark 3"; load compares and quotes them */
  const char *digest;               /* SHA-256 of code and weights in hexadecimal: part of every cache key */
  const mace_need *ports;
  mace_need scratch;
} mace_payload;

/* Memory as a driver imported it; the session stores it, the driver uses own. */
typedef struct mace_memory {
  mace_buffer buffer;
  void *own[4];
} mace_memory;

/* Where a port's tensor begins in a memory; the buffer's own offset comes on top. */
typedef struct mace_binding {
  mace_memory *memory;
  size_t offset;
} mace_binding;

/* Who observes the layers of a run, in the order in which a part computes them.
 *
 * see: called when a layer is computed. layer: its number in the part, from 0. result: dense, in host memory,
 * until see returns. ns: nanoseconds that the device took; 0 where it does not know. */
typedef struct mace_observer {
  uint32_t struct_bytes;
  void *context;
  void (*see)(void *context, int32_t layer, const void *result, uint64_t ns);
} mace_observer;

typedef struct mace_driver {
  uint32_t struct_bytes;      /* sizeof(mace_driver) that the driver was compiled with */
  uint16_t major, flags;      /* MACE_DRIVER_MAJOR; flags from MACE_ALLOCATES to MACE_SHARES */
  const char *name, *version; /* "acme", "1.4.0" */

  /* Required. */
  /* Host memory of a device (NULL) or of a loaded part, aligned to MACE_ALIGNMENT. Called before open, and by
   * any thread. */
  size_t (*bytes)(const mace_payload *);
  mace_status (*open)(const mace_config *, void *memory, mace_device **, mace_text);
  mace_status (*load)(mace_device *, const mace_payload *, void *memory, mace_loaded **, mace_text);
  /* Compute, cache maintenance included. */
  mace_status (*run)(mace_loaded *, const mace_binding *ports, uint32_t timeout_ms, mace_text);
  void (*unload)(mace_loaded *);
  void (*close)(mace_device *);

  /* Optional: NULL, or beyond struct_bytes, and the engine does without. allocate and free, import and
   * release: both or neither. */
  /* "Mark 3, firmware 5.1" */
  const char *(*describe)(mace_device *);
  /* Raise what the build could not know of a port. */
  mace_status (*need)(mace_loaded *, int32_t port, mace_need *, mace_text);
  /* Without these, the device computes in host memory of the session. */
  mace_status (*allocate)(mace_device *, const mace_need *, mace_buffer *, mace_text);
  void (*free)(mace_device *, mace_buffer *);
  /* Without these, memory is used as it is. */
  mace_status (*import)(mace_device *, const mace_need *, mace_memory *, mace_text);
  void (*release)(mace_device *, mace_memory *);
  /* Copy, and wait until that is done; either side may be host memory. */
  mace_status (*copy)(mace_device *, mace_binding to, mace_binding from, size_t bytes, mace_text);
  /* Ask for a level; MACE_POWER_IDLE drops what was asked. */
  mace_status (*power)(mace_device *, mace_power, mace_text);

  /* Optional, both or neither: start a run and return; one is in flight for a session. `ports` stay until
   * wait has ended it. wait answers MACE_BUSY if the run goes on after timeout_ms (0: ask, MACE_FOREVER:
   * until it ends); MACE_TIMEOUT if submit's timeout_ms were over (0: the driver's default) and the run was
   * stopped; else as run would. After each answer but MACE_BUSY the device touches no port any more. */
  mace_status (*submit)(mace_loaded *, const mace_binding *ports, uint32_t timeout_ms, mace_text);
  mace_status (*wait)(mace_loaded *, uint32_t timeout_ms, mace_text);

  /* Optional, all or none, of drivers that compile on the device; load only checks the payload then. The
   * engine keeps what save gives in mace_config.cache, with what it depends on: name and version of the
   * driver, describe(), code_options(), and the payload's built_by, built_for and digest. It checks all of
   * that, and the bytes, before it calls restore in compile's place; restore that fails (but with MACE_LOST)
   * leaves the part as load made it, and compile follows.
   *
   * save: return the bytes of the compiled form, 0 if it cannot be kept, and copy it if `bytes` suffices. It
   * is called when all kernels exist, because some devices compile a kernel when it is created. */
  mace_status (*compile)(mace_loaded *, mace_text);
  mace_status (*restore)(mace_loaded *, const void *compiled, size_t bytes, mace_text);
  size_t (*save)(mace_loaded *, void *compiled, size_t bytes);

  /* Optional, of drivers whose parts have layers: as run, and shows each layer's result. It may take longer
   * than run. Without it, nobody sees the layers. */
  mace_status (*observe)(mace_loaded *, const mace_binding *ports, const mace_observer *, mace_text);

  /* Optional, of drivers with submit: have done(context) called once, by any thread, when the run that was
   * submitted has ended, however it ended; at once if it has. It is neither running nor called any more when
   * wait has answered something else than MACE_BUSY, and when unload has returned. */
  mace_status (*notify)(mace_loaded *, void (*done)(void *context), void *context, mace_text);

  /* Optional, both or neither, of drivers with copy: begin a copy, behind what the device was asked for before
   * and ahead of what it is asked for later; wait until all that were begun have ended, and answer whether one
   * failed. The bindings are read at once. The memory of both sides stays, and nobody else touches it, until
   * finish_copies has answered, whatever it answers. */
  mace_status (*begin_copy)(mace_device *, mace_binding to, mace_binding from, size_t bytes, mace_text);
  mace_status (*finish_copies)(mace_device *, mace_text);

  /* Optional. Those options of the session that what the device compiles depends on, "" for none. Without it,
   * code that was compiled under other mace_config.options is compiled again. */
  const char *(*code_options)(mace_device *);
  /* Optional. The units of the device that compute side by side, by which `mace tune` chooses kernels; 0:
   * unknown. */
  uint32_t (*units)(mace_device *);
} mace_driver;

/* What follows is written by the build and read by the engine; drivers do not see it. */

/* Memory of a device in which parts have their tensors. */
typedef struct mace_space {
  const char *name;
  int32_t device; /* number of the driver whose memory it is */
  mace_need need;
} mace_space;

typedef enum mace_where {
  MACE_IN_ARENA,
  MACE_IN_STATES,
  MACE_IN_WEIGHTS,
  MACE_IN_INPUT,
  MACE_IN_OUTPUT,
  MACE_IN_SPACE
} mace_where;

/* Where a tensor lies; index: number of the input, output or space. */
typedef struct mace_place {
  mace_where where;
  int32_t index;
  size_t offset;
} mace_place;

/* What a device compiled of a part, as a cache was given it: see mace_cache. Aligned to MACE_ALIGNMENT. */
typedef struct mace_compiled {
  const void *entry;
  size_t bytes;
} mace_compiled;

/* A part that a driver runs. layer, layers: the first of its layers among the model's, and how many they are.
 * compiled: what the build has for devices that it knows; used where it fits the device and its driver.
 * model_ports: by port of the payload, the port of the model whose tensor it is, if it lies in a space; else -1.
 * NULL: none. A buffer of the device that is bound there takes the tensor's place in the space. */
typedef struct mace_task {
  int32_t part;   /* its number in the model */
  int32_t device; /* number of its driver */
  const mace_payload *payload;
  const mace_place *places; /* by port of the payload */
  int32_t layer, layers;
  const mace_compiled *compiled;
  int32_t compiled_count;
  const int32_t *model_ports;
} mace_task;

/* One step of a run: `calls` if it is not NULL; else the task, unless it is negative; else a copy of `bytes`
 * from places[1] to places[0]. */
typedef struct mace_step {
  void (*calls)(const mace_frame *);
  int32_t task;
  mace_place places[2];
  size_t bytes;
} mace_step;

typedef struct mace_plan {
  uint32_t struct_bytes;
  int32_t device_count, space_count, task_count, step_count;
  const mace_driver *const *drivers; /* by device */
  const mace_space *spaces;
  const mace_task *tasks;
  const mace_step *steps;
  const void *weights;
  const uint8_t *host_ports; /* by port of the model: 1 if its address is used; 2 if only by copies that bring
                                it to a device or from there, which a buffer of the device makes needless */
} mace_plan;

/* Runs models with such a plan; mace_engine.c. */
extern const mace_engine mace_device_engine;

#ifdef __cplusplus
}
#endif
#endif
