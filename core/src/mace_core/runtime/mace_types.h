/* mace_types.h - the types of mace.h: what describes a model, what configures a session, what generated code
 * reads. */
#ifndef MACE_TYPES_H
#define MACE_TYPES_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#ifndef MACE_API
#define MACE_API __attribute__((visibility("default")))
#endif

#define MACE_ABI 4 /* of this header; a library built with another is refused */
#define MACE_MAX_RANK 8
#define MACE_MAX_TABLES 8       /* targets whose kernels one model calls */
#define MACE_ALIGNMENT 64       /* bytes, of everything in a session */
#define MACE_FOREVER UINT32_MAX /* for mace_wait: until the run ends, which its own timeout bounds */

/* Whether the other side knows a member and has set it. Structs that cross the boundary begin with
 * struct_bytes. */
#define MACE_HAS(s, member) \
  ((size_t)((const char *)(&(s)->member + 1) - (const char *)(s)) <= (s)->struct_bytes && (s)->member)

/* What a call answers. Each value asks for one reaction; mace_error says in words what is wrong. Values are
 * appended, never renumbered. */
typedef enum mace_status {
  MACE_OK = 0,
  /* The model is NULL: no model of that name is in the library. */
  MACE_NO_MODEL,
  /* Library and application were built with different versions of this header: build both again. */
  MACE_OTHER_ABI,
  /* The memory is NULL or too small: give mace_session_bytes, aligned to MACE_ALIGNMENT. */
  MACE_NO_MEMORY,
  /* An input or output is NULL, and no buffer is bound to it. */
  MACE_NO_TENSOR,
  /* An argument, an option or a buffer cannot be used, or the session must be reset first. */
  MACE_REFUSED,
  /* Hardware, a vendor's library or a permission is missing: fall back, or tell the user. */
  MACE_NO_DEVICE,
  /* The model was compiled for another device or another version of its runtime: build it again, or fall
     back. */
  MACE_STALE,
  /* Another thread uses the session, or a submitted run goes on: call again later. */
  MACE_BUSY,
  /* The run was stopped after timeout_ms; the outputs are undefined, the session is usable. */
  MACE_TIMEOUT,
  /* The device died: outputs and states are gone; close the session and open it again. */
  MACE_LOST,
  /* Any other failure; the outputs are undefined, the session is usable. */
  MACE_FAILED,
} mace_status;

typedef enum mace_dtype {
  MACE_BOOL,
  MACE_I8,
  MACE_U8,
  MACE_I16,
  MACE_U16,
  MACE_I32,
  MACE_U32,
  MACE_I64,
  MACE_U64,
  MACE_F16,
  MACE_F32,
  MACE_F64,
} mace_dtype;

/* An input or output: dense, row-major. */
typedef struct mace_tensor {
  const char *name;
  mace_dtype dtype;
  int32_t rank;
  int32_t shape[MACE_MAX_RANK];
  size_t bytes;
  float scale; /* of integers that stand for real numbers: scale * (element - zero_point); 0 for all others */
  int32_t zero_point;
} mace_tensor;

/* One step of a model; `sources` names the nodes of the original model that it computes, separated by commas.
 */
typedef struct mace_layer {
  const char *name;
  const char *kernel;
  const char *sources;
  mace_tensor result;
} mace_layer;

/* A tensor that the session keeps from one run to the next. */
typedef struct mace_state {
  mace_tensor tensor;
  const void *start;   /* the value before the first run and after mace_reset; NULL: all bytes are 0 */
  size_t offset, next; /* in the session's states: the value that a run reads, and the one that it writes */
} mace_state;

/* What one target computes of a model. */
typedef struct mace_part {
  const char *name;
  int32_t table; /* number of the target's table of kernels; -1 where a driver computes the part */
  const char *const *devices; /* by level of that table: where the part runs, in words; NULL with a driver */
} mace_part;

/* How work is shared out. `parallel` must call task(context, i, worker) once for every i in [0, tasks),
 * with worker in [0, workers) and no two tasks of one worker at the same time, and return when all are done.
 */
typedef struct mace_threads {
  uint32_t struct_bytes; /* sizeof(mace_threads) */
  int32_t workers;
  void *pool;
  void (*parallel)(void *pool, void (*task)(void *context, int32_t index, int32_t worker), void *context,
                   int32_t tasks);
} mace_threads;

/* A lock that all sessions of a process share where several threads open or close sessions that use drivers
 * of devices. */
typedef struct mace_lock {
  uint32_t struct_bytes;
  void *context;
  void (*acquire)(void *context);
  void (*release)(void *context);
} mace_lock;

/* Where the application keeps what drivers compile on the device, from one mace_open to the next. All
 * functions are called inside mace_open, in its thread. Nobody has to check what `load` finds: damaged and
 * outdated entries are compiled again and overwritten. A key has letters, digits, '-' and '_' alone, at most
 * 127: it can name a file. */
typedef struct mace_cache {
  uint32_t struct_bytes; /* sizeof(mace_cache) */
  void *context;
  /* Return the bytes of an entry, 0 if there is none; copy it to `data` if `bytes` suffices. */
  size_t (*load)(void *context, const char *key, void *data, size_t bytes);
  /* Keep a whole entry or nothing, in the place of one with the same key. */
  void (*store)(void *context, const char *key, const void *data, size_t bytes);
  /* As realloc: memory for one entry, which the session frees (bytes 0) before mace_open returns. */
  void *(*reallocate)(void *context, void *memory, size_t bytes);
} mace_cache;

typedef enum mace_power { MACE_POWER_IDLE, MACE_POWER_LOW, MACE_POWER_BALANCED, MACE_POWER_BURST } mace_power;
typedef enum mace_fallback { MACE_FALLBACK_NEVER, MACE_FALLBACK_AT_OPEN, MACE_FALLBACK_AT_RUN } mace_fallback;
typedef enum mace_buffer_kind {
  MACE_HOST,
  MACE_DMABUF,
  MACE_AHARDWAREBUFFER,
  MACE_CL_MEM,
  MACE_RPCMEM,
  MACE_BUS_ADDRESS,
} mace_buffer_kind;

/* Memory of the application or of a driver, which its owner keeps valid until it is unbound or the session is
 * closed. */
typedef struct mace_buffer {
  uint32_t struct_bytes; /* sizeof(mace_buffer) */
  mace_buffer_kind kind;
  void *host;           /* address for the CPU; NULL if it has none */
  uint64_t handle;      /* file descriptor, AHardwareBuffer *, cl_mem, bus address; unused for MACE_HOST */
  size_t offset, bytes; /* where the tensor begins; bytes of the whole buffer */
  int32_t fence;        /* descriptor of a fence that signals when the buffer may be used; 0 or -1: none */
} mace_buffer;

/* An object of the application that a driver uses as its own; drivers say which they know. */
typedef struct mace_native {
  const char *name; /* "DRIVER.NAME", with a dot between; NULL ends a list */
  void *handle;     /* valid until mace_close */
} mace_native;

/* How a session works; NULL in its place means the default of each member, which is 0. */
typedef struct mace_config {
  uint32_t struct_bytes;  /* sizeof(mace_config) of the application; members beyond it count as 0 */
  mace_fallback fallback; /* when the CPU may compute in a device's place, in models built with a fallback */
  const mace_threads *threads; /* NULL: one thread */
  const mace_lock *lock;       /* NULL: the application opens and closes sessions in one thread at a time */
  mace_power power;            /* asked of devices from the first run to the last; IDLE: nothing is asked */
  uint32_t timeout_ms;         /* of one run; 0: the driver's default, which is finite */
  const mace_cache *cache;     /* of what devices compile; NULL: it is compiled at every mace_open */
  const char *options;         /* "DRIVER.KEY=VALUE;..." for drivers; an unknown one is MACE_REFUSED */
  const mace_native *native;   /* a list of what drivers share with the application; NULL: nothing */
  void *fast_memory; /* for mace_model.fast_bytes of tensors, aligned to MACE_ALIGNMENT, of this session alone
                        while it runs; NULL: they lie in the session's memory */
  size_t fast_bytes; /* of fast_memory */
} mace_config;

/* What a kernel may use besides its tensors. */
typedef struct mace_workers {
  const mace_threads *threads;
  char *scratch;       /* of worker 0; the others' follow */
  size_t worker_bytes; /* from one worker's scratch to the next */
} mace_workers;

/* What generated code reads of a session. */
typedef struct mace_frame {
  char *arena, *states;
  char *fast; /* of tensors that gain from memory which the processor reaches faster */
  const void *const *in;
  void *const *out;
  const int32_t *levels; /* by table of kernels: the level for this processor */
  mace_workers workers;
  void (*observe)(void *observer, int32_t layer, const void *result);
  void *observer;
} mace_frame;

typedef struct mace_session mace_session;
typedef struct mace_model mace_model;
struct mace_plan;

/* What runs models that have parts on devices: mace_engine.c, which is linked only with those. */
typedef struct mace_engine {
  uint32_t struct_bytes;
  size_t (*bytes)(const mace_model *, const mace_config *);
  mace_status (*open)(mace_session *);
  mace_status (*run)(mace_session *);
  mace_status (*bind)(mace_session *, int32_t port, const mace_buffer *);
  const char *(*device)(const mace_session *, int32_t part);
  void (*close)(mace_session *);
  mace_status (*submit)(mace_session *); /* from here on, libraries may be older than the application */
  mace_status (*wait)(mace_session *, uint32_t timeout_ms);
  mace_status (*allocate)(mace_session *, int32_t port, mace_buffer *);
  uint64_t (*layer_ns)(const mace_session *);
  uint32_t (*units)(const mace_session *, int32_t part);
} mace_engine;

struct mace_model {
  int32_t abi; /* MACE_ABI; before all other members, where every version of this header has it */
  uint32_t struct_bytes;
  const char *name;
  int32_t input_count, output_count, state_count, layer_count, part_count;
  const mace_tensor *inputs, *outputs;
  const mace_state *states;
  const mace_layer *layers;
  const mace_part *parts;
  size_t arena_bytes;              /* for the tensors */
  size_t state_bytes;              /* for the states, two values each */
  size_t worker_bytes;             /* for the working memory of each worker */
  size_t weight_bytes;             /* read-only, part of the library */
  /* Writes the level of each table for this processor; returns NULL, or why there is none. */
  const char *(*choose)(int32_t *levels);
  void (*run)(const mace_frame *); /* all calls; NULL in models with an engine */
  const mace_engine *engine;       /* NULL: kernel calls in host memory alone */
  const struct mace_plan *plan;    /* what the engine executes; driver.h */
  const mace_model *fallback;      /* the same model for the CPU alone; NULL: the build has none */
  size_t fast_bytes; /* for the tensors that gain from mace_config.fast_memory; 0 in most models */
};

#ifdef __cplusplus
}
#endif
#endif
