/* opencl_device.c - finds the device of a session: the best of all platforms, or of what the application shares.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "opencl_part.h"

#define COUNT(array) (sizeof(array) / sizeof(array)[0])

enum { MAX_PLATFORMS = 8, MAX_DEVICES = 8 };

mace_status mace_opencl_judge(mace_status otherwise, const char *function, int32_t code, mace_text text) {
  /* Before it is the session's, a device cannot be lost. */
  const int is_open = otherwise != MACE_NO_DEVICE && otherwise != MACE_REFUSED;
  switch (code) {
    case CL_DEVICE_NOT_AVAILABLE:
    case CL_INVALID_CONTEXT:
    case CL_INVALID_COMMAND_QUEUE:
      return mace_say(text, is_open ? MACE_LOST : otherwise,
                      "%s answered %d: the device is gone; open the session again", function, code);
    case CL_MEM_OBJECT_ALLOCATION_FAILURE:
    case CL_OUT_OF_HOST_MEMORY:
    case CL_INVALID_BUFFER_SIZE:
      return mace_say(text, otherwise, "%s answered %d: out of memory; close other sessions", function,
                      code);
    default:
      return mace_say(text, otherwise, "%s answered %d; run again, or leave the device out", function,
                      code);
  }
}

static int is_true(const mace_device *device, cl_device id, uint32_t what) {
  uint32_t value = 0;
  return !device->cl.clGetDeviceInfo(id, what, sizeof value, &value, NULL) && value;
}

/* Read a text of the device, cut where it is longer. */
static int read_text(const mace_device *device, cl_device id, uint32_t what, char *to, size_t bytes) {
  char text[1024] = "";
  if (device->cl.clGetDeviceInfo(id, what, sizeof text - 1, text, NULL)) return 0;
  snprintf(to, bytes, "%.*s", (int)bytes - 1, text);
  return 1;
}

int mace_opencl_has_extension(const mace_device *device, const char *name) {
  const size_t length = strlen(name);
  size_t bytes = 0;
  int has = 0;
  char *names;
  /* Devices list up to some thousand characters, so no fixed size is enough. */
  if (device->cl.clGetDeviceInfo(device->id, CL_DEVICE_EXTENSIONS, 0, NULL, &bytes) || !bytes) return 0;
  names = calloc(1, bytes + 1);
  if (names && !device->cl.clGetDeviceInfo(device->id, CL_DEVICE_EXTENSIONS, bytes, names, NULL))
    for (const char *at = names; !has && *at; at += strspn(at, " ")) {
      const size_t word = strcspn(at, " ");
      has = word == length && !memcmp(at, name, length);
      at += word;
    }
  free(names);
  return has;
}

void *mace_opencl_find_function(const mace_device *device, const char *name) {
  cl_platform platform = NULL;
  if (device->cl.clGetDeviceInfo(device->id, CL_DEVICE_PLATFORM, sizeof platform, &platform, NULL)) return NULL;
  return device->cl.clGetExtensionFunctionAddressForPlatform(platform, name);
}

/* Whether a device can compute: it is there, has the processor's order of bytes, and version 1.2 or newer. */
static int is_able(const mace_device *device, cl_device id) {
  char version[128] = "";
  int major = 0, minor = 0;
  if (!is_true(device, id, CL_DEVICE_AVAILABLE) || !is_true(device, id, CL_DEVICE_ENDIAN_LITTLE)) return 0;
  if (!read_text(device, id, CL_DEVICE_VERSION, version, sizeof version)) return 0;
  if (sscanf(version, "OpenCL %d.%d", &major, &minor) != 2) return 0;
  return major > 1 || (major == 1 && minor >= 2);
}

/* How well a device fits what the application asks for; 0: not at all. */
static int rank(const mace_device *device, cl_device id, uint64_t type) {
  const char *const wanted = device->settings.device;
  char name[OPENCL_NAME_BYTES] = "";
  if (!is_able(device, id)) return 0;
  if (!strcmp(wanted, "gpu")) return type == CL_DEVICE_TYPE_GPU;
  if (!strcmp(wanted, "cpu")) return type == CL_DEVICE_TYPE_CPU;
  if (*wanted && (!read_text(device, id, CL_DEVICE_NAME, name, sizeof name) || !strstr(name, wanted))) return 0;
  return type == CL_DEVICE_TYPE_GPU ? 2 : 1;
}

/* Take the device that fits best, the first of equal ones; best: how well the one taken before fits. */
static void choose_device(mace_device *device, const cl_device *ids, uint32_t count, uint64_t type, int *best) {
  for (uint32_t i = 0; i < count && i < MAX_DEVICES; i++) {
    const int fit = rank(device, ids[i], type);
    if (fit > *best) {
      *best = fit;
      device->id = ids[i];
    }
  }
}

/* Add the names of devices that can compute to a list, as far as it has room. */
static void list_names(const mace_device *device, const cl_device *ids, uint32_t count, char *list, size_t bytes) {
  for (uint32_t i = 0; i < count && i < MAX_DEVICES; i++) {
    const size_t length = strlen(list);
    char name[64] = "";
    if (is_able(device, ids[i]) && read_text(device, ids[i], CL_DEVICE_NAME, name, sizeof name))
      snprintf(list + length, bytes - length, "%s%s", length ? ", " : "", name);
  }
}

static mace_status find_any(mace_device *device, mace_text text) {
  static const uint64_t types[] = {CL_DEVICE_TYPE_GPU, CL_DEVICE_TYPE_CPU};
  cl_platform platforms[MAX_PLATFORMS];
  uint32_t platform_count = 0;
  char names[120] = "";
  int best = 0;
  const int32_t code = device->cl.clGetPlatformIDs(MAX_PLATFORMS, platforms, &platform_count);
  if (code && code != CL_PLATFORM_NOT_FOUND_KHR)
    return mace_opencl_judge(MACE_NO_DEVICE, "clGetPlatformIDs", code, text);
  if (platform_count > MAX_PLATFORMS) platform_count = MAX_PLATFORMS;
  for (uint32_t p = 0; p < platform_count; p++)
    for (size_t t = 0; t < COUNT(types); t++) {
      cl_device ids[MAX_DEVICES];
      uint32_t count = 0;
      if (device->cl.clGetDeviceIDs(platforms[p], types[t], MAX_DEVICES, ids, &count)) continue;
      choose_device(device, ids, count, types[t], &best);
      list_names(device, ids, count, names, sizeof names);
    }
  if (best) return MACE_OK;
  if (*device->settings.device && *names)
    return mace_say(text, MACE_NO_DEVICE, "no OpenCL device is like opencl.device=%.60s; choose among %s, or fall back",
                    device->settings.device, names);
  return mace_say(text, MACE_NO_DEVICE,
                  "of %u OpenCL platforms none has a device of version 1.2 or newer; install the "
                  "driver of the device, or fall back",
                  (unsigned)platform_count);
}

/* Find the context of a queue that the application shares, which must execute in order. */
static mace_status read_queue(mace_device *device, cl_device *id, mace_text text) {
  const opencl_functions *const cl = &device->cl;
  cl_context context = NULL;
  uint64_t properties = 0;
  int32_t code = cl->clGetCommandQueueInfo(device->queue, CL_QUEUE_CONTEXT, sizeof context, &context, NULL);
  if (!code) code = cl->clGetCommandQueueInfo(device->queue, CL_QUEUE_DEVICE, sizeof *id, id, NULL);
  if (!code)
    code = cl->clGetCommandQueueInfo(device->queue, CL_QUEUE_PROPERTIES, sizeof properties, &properties, NULL);
  if (code) return mace_opencl_judge(MACE_REFUSED, "clGetCommandQueueInfo of opencl.queue", code, text);
  if (device->context && device->context != context)
    return mace_say(text, MACE_REFUSED,
                    "opencl.queue is of another context than opencl.context; give one that is of it");
  if (properties & CL_QUEUE_OUT_OF_ORDER)
    return mace_say(text, MACE_REFUSED,
                    "opencl.queue executes out of order; give one that executes in order");
  device->context = context;
  return MACE_OK;
}

/* Find the device of what the application shares. */
static mace_status find_shared(mace_device *device, mace_text text) {
  cl_device ids[MAX_DEVICES] = {NULL};
  size_t bytes = sizeof ids[0];
  int best = 0;
  if (device->queue) {
    const mace_status status = read_queue(device, &ids[0], text);
    if (status) return status;
  } else {
    int32_t code = device->cl.clGetContextInfo(device->context, CL_CONTEXT_DEVICES, 0, NULL, &bytes);
    if (!code && bytes > sizeof ids) bytes = 0; /* nobody joins so many devices in a context */
    if (!code && bytes)
      code = device->cl.clGetContextInfo(device->context, CL_CONTEXT_DEVICES, sizeof ids, ids, NULL);
    if (code) return mace_opencl_judge(MACE_REFUSED, "clGetContextInfo of opencl.context", code, text);
  }
  for (size_t i = 0; i < bytes / sizeof ids[0]; i++) {
    uint64_t type = 0;
    device->cl.clGetDeviceInfo(ids[i], CL_DEVICE_TYPE, sizeof type, &type, NULL);
    choose_device(device, &ids[i], 1, type & CL_DEVICE_TYPE_GPU ? CL_DEVICE_TYPE_GPU : CL_DEVICE_TYPE_CPU, &best);
  }
  if (best) return MACE_OK;
  return mace_say(text, MACE_NO_DEVICE,
                  "the context that the application shares has no device%s%s of version 1.2 or newer; "
                  "share another",
                  *device->settings.device ? " like " : "", device->settings.device);
}

/* Everything that compiled kernels depend on: the cache compares it. */
static void name_device(mace_device *device) {
  char name[80] = "", driver[32] = "", version[32] = "";
  uint64_t type = CL_DEVICE_TYPE_GPU;
  read_text(device, device->id, CL_DEVICE_NAME, name, sizeof name);
  read_text(device, device->id, CL_DRIVER_VERSION, driver, sizeof driver);
  read_text(device, device->id, CL_DEVICE_VERSION, version, sizeof version);
  device->cl.clGetDeviceInfo(device->id, CL_DEVICE_TYPE, sizeof type, &type, NULL);
  /* Whoever asked for a GPU is to read it where a processor has taken its place. */
  snprintf(device->name, sizeof device->name, "%s%s, driver %s, %s", name,
           type & CL_DEVICE_TYPE_GPU ? "" : " (a processor, no GPU)", driver, version);
}

mace_status mace_opencl_find_device(mace_device *device, mace_text text) {
  const int is_shared = device->context || device->queue;
  const mace_status status = is_shared ? find_shared(device, text) : find_any(device, text);
  if (status) return status;
  name_device(device);
  device->cl.clGetDeviceInfo(device->id, CL_DEVICE_MAX_MEM_ALLOC_SIZE, sizeof device->largest, &device->largest,
                             NULL);
  device->cl.clGetDeviceInfo(device->id, CL_DEVICE_MAX_WORK_GROUP_SIZE, sizeof device->group, &device->group,
                             NULL);
  return MACE_OK;
}
