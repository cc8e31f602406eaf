/* mace.h - what every generated library has in common. Nothing here needs linking: types and inline functions only.
 *
 *   const mace_model *model = vision_model("digits");          // vision.h, generated
 *   void *arena = aligned_alloc(64, mace_arena_bytes(model, 1));
 *   const void *inputs[] = {image};
 *   void *outputs[] = {scores};
 *   mace_status status = mace_run_model(model, arena, inputs, outputs, NULL);
 *
 * A model is read-only and may be run from several threads at once, each with an arena of its own. Running allocates nothing.
 */
#ifndef MACE_H
#define MACE_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#ifndef MACE_API
#define MACE_API __attribute__((visibility("default")))
#endif

#define MACE_ABI 1       /* of this header; a library built with another is refused */
#define MACE_MAX_RANK 8
#define MACE_ALIGNMENT 64 /* bytes, of the arena */

typedef enum mace_status {
  MACE_OK = 0,
  MACE_NO_MODEL,      /* the model is NULL: no model of that name is in the library */
  MACE_OTHER_ABI,     /* library and application were built with different versions of this header */
  MACE_NO_MEMORY,     /* the arena is NULL or not aligned to MACE_ALIGNMENT */
  MACE_NO_TENSOR,     /* an input or output pointer is NULL */
} mace_status;

typedef enum mace_dtype {
  MACE_BOOL, MACE_I8, MACE_U8, MACE_I16, MACE_U16, MACE_I32, MACE_U32, MACE_I64, MACE_U64, MACE_F16, MACE_F32, MACE_F64,
} mace_dtype;

/* An input or output: dense, row-major. */
typedef struct mace_tensor {
  const char *name;
  mace_dtype dtype;
  int32_t rank;
  int32_t shape[MACE_MAX_RANK];
  size_t bytes;
  float scale;        /* of integers that stand for real numbers: scale * (element - zero_point); 0 for all others */
  int32_t zero_point;
} mace_tensor;

/* One step of a model; `sources` names the nodes of the original model that it computes, separated by commas. */
typedef struct mace_layer {
  const char *name;
  const char *kernel;
  const char *sources;
  mace_tensor result;
} mace_layer;

/* Where work may be shared out. `parallel` must call task(context, i, worker) once for every i in [0, tasks),
 * with worker in [0, workers) and no two tasks of one worker at the same time, and return when all are done. */
typedef struct mace_threads {
  void *pool;
  int32_t workers;
  void (*parallel)(void *pool, void (*task)(void *context, int32_t index, int32_t worker), void *context, int32_t tasks);
} mace_threads;

/* How a model is run; NULL in its place means one thread, unobserved.
 * `observe` is called after every layer with its number and its result. */
typedef struct mace_options {
  const mace_threads *threads;
  void (*observe)(void *observer, int32_t layer, const void *result);
  void *observer;
} mace_options;

typedef struct mace_model {
  int32_t abi;
  const char *name;
  int32_t input_count, output_count, layer_count;
  const mace_tensor *inputs, *outputs;
  const mace_layer *layers;
  size_t arena_bytes;  /* for the tensors */
  size_t worker_bytes; /* for the working memory of each worker */
  size_t weight_bytes; /* read-only, part of the library */
  void (*run)(void *arena, const void *const *inputs, void *const *outputs, const mace_options *options);
} mace_model;

/* Bytes of memory that one run needs with so many workers (1 without threads). */
static inline size_t mace_arena_bytes(const mace_model *model, int32_t workers) {
  return model->arena_bytes + model->worker_bytes * (size_t)(workers > 1 ? workers : 1);
}

/* Compute the outputs from the inputs, which must not overlap; each as described by model->inputs and model->outputs. */
static inline mace_status mace_run_model(const mace_model *model, void *arena, const void *const *inputs, void *const *outputs,
                                         const mace_options *options) {
  int32_t i;
  if (!model) return MACE_NO_MODEL;
  if (model->abi != MACE_ABI) return MACE_OTHER_ABI;
  if (mace_arena_bytes(model, 1) && (!arena || (uintptr_t)arena % MACE_ALIGNMENT)) return MACE_NO_MEMORY;
  for (i = 0; i < model->input_count; i++)
    if (!inputs[i] && model->inputs[i].bytes) return MACE_NO_TENSOR;
  for (i = 0; i < model->output_count; i++)
    if (!outputs[i] && model->outputs[i].bytes) return MACE_NO_TENSOR;
  model->run(arena, inputs, outputs, options);
  return MACE_OK;
}

#ifdef __cplusplus
}
#endif
#endif
