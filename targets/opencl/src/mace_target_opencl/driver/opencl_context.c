/* opencl_context.c - makes the context and the queue of a session, with hints, or takes the application's.
 *
 * The numbers of the hints: cl_ext.h of the Khronos Group's OpenCL-Headers, but for cl_qcom_priority_hint,
 * which is not there: those of opencl_extension.h of MACE.
 */
#include <dlfcn.h>
#include <string.h>

#include "opencl_part.h"

#define COUNT(array) (sizeof(array) / sizeof(array)[0])

/* Context properties and queue properties that the hints stand for, each ended by 0. */
typedef struct opencl_properties {
  intptr_t context[5];
  uint64_t queue[7];
  int in_context, in_queue; /* numbers in each */
} opencl_properties;

/* How a hint is told where the device has an extension: as a property of the context or of the queue, with its
 * values for high, normal and low. */
typedef struct opencl_hint {
  const char *extension;
  int is_of_queue;
  uint32_t property, values[3];
} opencl_hint;

/* Qualcomm's first: a device that has both heeds its own vendor's. */
static const opencl_hint priority_hints[] = {
    {"cl_qcom_priority_hint", 0, CL_CONTEXT_PRIORITY_HINT_QCOM, {0x40CA, 0x40CB, 0x40CC}},
    {"cl_khr_priority_hints", 1, CL_QUEUE_PRIORITY_KHR, {1, 2, 4}}};
static const opencl_hint performance_hints[] = {
    {"cl_qcom_perf_hint", 0, CL_CONTEXT_PERF_HINT_QCOM, {0x40C3, 0x40C4, 0x40C5}},
    {"cl_khr_throttle_hints", 1, CL_QUEUE_THROTTLE_KHR, {1, 2, 4}}};

const char *const mace_opencl_levels[] = {"high", "normal", "low", NULL};

static void add_property(opencl_properties *properties, int is_of_queue, uint32_t property, uint32_t value) {
  if (is_of_queue) {
    properties->queue[properties->in_queue++] = property;
    properties->queue[properties->in_queue++] = value;
  } else {
    properties->context[properties->in_context++] = (intptr_t)property;
    properties->context[properties->in_context++] = (intptr_t)value;
  }
}

/* Add a hint by the first extension that the device has; refuses one that the device would not heed. */
static mace_status add_hint(const mace_device *device, const char *option, const char *level,
                            const opencl_hint *ways, opencl_properties *properties, mace_text text) {
  int value = 0;
  if (!*level) return MACE_OK;
  while (strcmp(mace_opencl_levels[value], level)) value++;
  for (int i = 0; i < 2; i++) {
    if (!mace_opencl_has_extension(device, ways[i].extension)) continue;
    if (ways[i].is_of_queue ? device->queue != NULL : device->context != NULL)
      return mace_say(text, MACE_REFUSED,
                      "the application shares its %s, which has its own hints; leave opencl.%s out",
                      ways[i].is_of_queue ? "queue" : "context", option);
    add_property(properties, ways[i].is_of_queue, ways[i].property, ways[i].values[value]);
    return MACE_OK;
  }
  return mace_say(text, MACE_REFUSED, "%.80s has neither %s nor %s; leave opencl.%s out", device->name,
                  ways[0].extension, ways[1].extension, option);
}

/* Arm's control of whether kernels that follow each other may be computed together. */
static mace_status add_batching(const mace_device *device, opencl_properties *properties, mace_text text) {
  const char *const batching = device->settings.batching;
  uint64_t controls = 0;
  if (!*batching) return MACE_OK;
  if (device->queue)
    return mace_say(text, MACE_REFUSED,
                    "the application shares its queue, which has its own hints; leave opencl.batching out");
  if (mace_opencl_has_extension(device, "cl_arm_scheduling_controls"))
    device->cl.clGetDeviceInfo(device->id, CL_DEVICE_SCHEDULING_CONTROLS_CAPABILITIES_ARM, sizeof controls,
                               &controls, NULL);
  if (!(controls & CL_DEVICE_SCHEDULING_KERNEL_BATCHING_ARM))
    return mace_say(text, MACE_REFUSED,
                    "%.80s has no control of batches in cl_arm_scheduling_controls; leave opencl.batching out",
                    device->name);
  add_property(properties, 1, CL_QUEUE_KERNEL_BATCHING_ARM, !strcmp(batching, "on"));
  return MACE_OK;
}

typedef cl_queue (*create_queue_function)(cl_context, cl_device, const uint64_t *, int32_t *);

/* Make the queue; one with properties needs a function of OpenCL 2.0, or of an extension. */
static cl_queue create_queue(const mace_device *device, const opencl_properties *properties, int32_t *code) {
  create_queue_function create;
  void *found;
  if (!properties->in_queue)
    return device->cl.clCreateCommandQueue(device->context, device->id, 0, code);
  found = dlsym(device->library, "clCreateCommandQueueWithProperties");
  if (!found) found = mace_opencl_find_function(device, "clCreateCommandQueueWithPropertiesKHR");
  *code = CL_INVALID_OPERATION;
  if (!found) return NULL;
  memcpy(&create, &found, sizeof create); /* as in opencl_library.c */
  return create(device->context, device->id, properties->queue, code);
}

mace_status mace_opencl_create_context(mace_device *device, mace_text text) {
  const opencl_functions *const cl = &device->cl;
  opencl_properties properties;
  int32_t code = 0;
  mace_status status;
  memset(&properties, 0, sizeof properties);
  status = add_hint(device, "priority", device->settings.priority, priority_hints, &properties, text);
  if (!status)
    status = add_hint(device, "performance", device->settings.performance, performance_hints, &properties, text);
  if (!status) status = add_batching(device, &properties, text);
  if (status) {
    device->context = NULL; /* the application's is not ours to release */
    device->queue = NULL;
    return status;
  }
  if (device->context)
    code = cl->clRetainContext(device->context);
  else
    device->context = cl->clCreateContext(properties.in_context ? properties.context : NULL, 1, &device->id, NULL,
                                          NULL, &code);
  if (code) device->context = NULL;
  if (!device->context) {
    device->queue = NULL;
    return mace_opencl_judge(MACE_NO_DEVICE, "clCreateContext", code, text);
  }
  if (device->queue)
    code = cl->clRetainCommandQueue(device->queue);
  else
    device->queue = create_queue(device, &properties, &code);
  if (code) device->queue = NULL;
  return device->queue ? MACE_OK : mace_opencl_judge(MACE_NO_DEVICE, "clCreateCommandQueue", code, text);
}
