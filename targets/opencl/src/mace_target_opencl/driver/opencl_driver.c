/* opencl_driver.c - the driver of GPUs: finds a device, keeps its memory, and copies. opencl_part.c runs what
 * the build made of a part.
 *
 * Each session has a context and a queue of its own, which executes in order: a copy from the device comes
 * behind all kernels that were started before it.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "opencl_part.h"

#define PREFIX "opencl."
#define COUNT(array) (sizeof(array) / sizeof(array)[0])

enum { MAX_PLATFORMS = 8, MAX_DEVICES = 8 };

/* ---- options ---- */

static int store_option(char *to, const char *value, size_t bytes) {
  if (!bytes || bytes >= OPENCL_OPTION_BYTES) return 0;
  memcpy(to, value, bytes);
  to[bytes] = 0;
  return 1;
}

static const char *const hints[] = {"high", "normal", "low"};

static int store_hint(char *to, const char *value, size_t bytes) {
  for (size_t i = 0; i < COUNT(hints); i++)
    if (bytes == strlen(hints[i]) && !memcmp(value, hints[i], bytes)) {
      memcpy(to, hints[i], bytes + 1);
      return 1;
    }
  return 0;
}

/* Store a number of microseconds. */
static int store_time(char *to, const char *value, size_t bytes) {
  if (!bytes || bytes > 9 || strspn(value, "0123456789") < bytes) return 0;
  memcpy(to, value, bytes);
  to[bytes] = 0;
  return 1;
}

static mace_status read_options(opencl_settings *settings, const char *options, mace_text text) {
  while (options && *options) {
    const size_t bytes = strcspn(options, ";");
    if (!strncmp(options, PREFIX, strlen(PREFIX))) {
      const char *const key = options + strlen(PREFIX), *const end = options + bytes;
      const char *const equals = memchr(key, '=', (size_t)(end - key));
      const size_t name = equals ? (size_t)(equals - key) : 0;
      int known = 0;
      if (name == 7 && !memcmp(key, "library", name))
        known = store_option(settings->library, equals + 1, (size_t)(end - equals - 1));
      if (name == 6 && !memcmp(key, "device", name))
        known = store_option(settings->device, equals + 1, (size_t)(end - equals - 1));
      if (name == 8 && !memcmp(key, "priority", name))
        known = store_hint(settings->priority, equals + 1, (size_t)(end - equals - 1));
      if (name == 11 && !memcmp(key, "performance", name))
        known = store_hint(settings->performance, equals + 1, (size_t)(end - equals - 1));
      if (name == 9 && !memcmp(key, "kernel_us", name))
        known = store_time(settings->kernel_us, equals + 1, (size_t)(end - equals - 1));
      if (!known)
        return mace_opencl_say(text, MACE_REFUSED,
                               "the option %.*s is unknown or has no such value; library, device, priority, "
                               "performance (high, normal or low) and kernel_us are known",
                               (int)(bytes < 60 ? bytes : 60), options);
    }
    options += bytes + (options[bytes] == ';');
  }
  return MACE_OK;
}

/* ---- devices ---- */

mace_status mace_opencl_judge(mace_status otherwise, const char *function, int32_t code, mace_text text) {
  switch (code) {
    case CL_DEVICE_NOT_AVAILABLE:
    case CL_INVALID_CONTEXT:
    case CL_INVALID_COMMAND_QUEUE:
      return mace_opencl_say(text, otherwise == MACE_NO_DEVICE ? otherwise : MACE_LOST,
                             "%s answered %d: the device is gone; open the session again", function, code);
    case CL_MEM_OBJECT_ALLOCATION_FAILURE:
    case CL_OUT_OF_HOST_MEMORY:
    case CL_INVALID_BUFFER_SIZE:
      return mace_opencl_say(text, otherwise, "%s answered %d: out of memory; close other sessions", function,
                             code);
    default:
      return mace_opencl_say(text, otherwise, "%s answered %d; run again, or leave the device out", function,
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

/* Find the device that fits best, the first of equal ones. */
static mace_status find_device(mace_device *device, mace_text text) {
  static const uint64_t types[] = {CL_DEVICE_TYPE_GPU, CL_DEVICE_TYPE_CPU};
  cl_platform platforms[MAX_PLATFORMS];
  uint32_t platform_count = 0;
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
      for (uint32_t i = 0; i < count && i < MAX_DEVICES; i++) {
        const int fit = rank(device, ids[i], types[t]);
        if (fit > best) {
          best = fit;
          device->id = ids[i];
        }
      }
    }
  if (best) return MACE_OK;
  return mace_opencl_say(text, MACE_NO_DEVICE,
                         "of %u OpenCL platforms none has a device %s%s of version 1.2 or newer; install the "
                         "driver of the device, or fall back",
                         (unsigned)platform_count, *device->settings.device ? "like " : "",
                         device->settings.device);
}

/* Everything that compiled kernels depend on: the cache compares it. */
static void name_device(mace_device *device) {
  char name[80] = "", driver[32] = "", version[32] = "";
  read_text(device, device->id, CL_DEVICE_NAME, name, sizeof name);
  read_text(device, device->id, CL_DRIVER_VERSION, driver, sizeof driver);
  read_text(device, device->id, CL_DEVICE_VERSION, version, sizeof version);
  snprintf(device->name, sizeof device->name, "%s, driver %s, %s", name, driver, version);
}

/* What a hint needs of the device, and how the context is told. */
typedef struct hint {
  const char *option, *extension, *value;
  intptr_t property, highest;
} hint;

/* Write the properties of the context, which end with 0; refuses a hint that the device would not heed. */
static mace_status list_properties(const mace_device *device, intptr_t *properties, mace_text text) {
  const hint all[] = {{"priority", "cl_qcom_priority_hint", device->settings.priority,
                       CL_CONTEXT_PRIORITY_HINT_QCOM, CL_PRIORITY_HINT_HIGH_QCOM},
                      {"performance", "cl_qcom_perf_hint", device->settings.performance, CL_CONTEXT_PERF_HINT_QCOM,
                       CL_PERF_HINT_HIGH_QCOM}};
  for (size_t i = 0; i < COUNT(all); i++) {
    if (!*all[i].value) continue;
    if (!mace_opencl_has_extension(device, all[i].extension))
      return mace_opencl_say(text, MACE_REFUSED, "%.80s has no %s; leave opencl.%s out", device->name,
                             all[i].extension, all[i].option);
    *properties++ = all[i].property;
    for (size_t level = 0; level < COUNT(hints); level++)
      if (!strcmp(all[i].value, hints[level])) *properties = all[i].highest + (intptr_t)level;
    properties++;
  }
  *properties = 0;
  return MACE_OK;
}

static mace_status prepare_device(mace_device *device, mace_text text) {
  int32_t code = 0;
  intptr_t properties[5];
  mace_status status = find_device(device, text);
  if (status) return status;
  name_device(device);
  status = list_properties(device, properties, text);
  if (status) return status;
  device->cl.clGetDeviceInfo(device->id, CL_DEVICE_MAX_MEM_ALLOC_SIZE, sizeof device->largest,
                             &device->largest, NULL);
  device->cl.clGetDeviceInfo(device->id, CL_DEVICE_MAX_WORK_GROUP_SIZE, sizeof device->group, &device->group,
                             NULL);
  device->context = device->cl.clCreateContext(*properties ? properties : NULL, 1, &device->id, NULL, NULL, &code);
  if (!device->context) return mace_opencl_judge(MACE_NO_DEVICE, "clCreateContext", code, text);
  device->queue = device->cl.clCreateCommandQueue(device->context, device->id, 0, &code);
  if (!device->queue) return mace_opencl_judge(MACE_NO_DEVICE, "clCreateCommandQueue", code, text);
  return MACE_OK;
}

static void close_opencl(mace_device *device) {
  if (device->profiling) device->cl.clReleaseCommandQueue(device->profiling);
  if (device->queue) device->cl.clReleaseCommandQueue(device->queue);
  if (device->context) device->cl.clReleaseContext(device->context);
  device->queue = device->profiling = NULL;
  device->context = NULL;
  mace_opencl_close_library(device);
}

static mace_status open_opencl(const mace_config *config, void *memory, mace_device **opened, mace_text text) {
  mace_device *device = memory;
  mace_status status;
  memset(device, 0, sizeof *device);
  status = read_options(&device->settings, config->options, text);
  if (!status) status = mace_opencl_open_library(device, text);
  if (!status) status = prepare_device(device, text);
  if (status)
    close_opencl(device);
  else
    *opened = device;
  return status;
}

static const char *describe(mace_device *device) { return device->name; }

static size_t count_bytes(const mace_payload *payload) {
  return payload ? mace_opencl_part_bytes(payload) : sizeof(mace_device);
}

/* ---- memory ---- */

static mace_status allocate(mace_device *device, const mace_need *need, mace_buffer *buffer, mace_text text) {
  const size_t granule = need->granule ? need->granule : 1;
  const size_t bytes = (need->bytes + granule - 1) / granule * granule + need->slack;
  int32_t code = 0;
  cl_mem made;
  if (device->largest && bytes > device->largest)
    return mace_opencl_say(text, MACE_FAILED, "%zu bytes are needed, and buffers of the device have at most %llu; "
                           "make the model smaller", bytes, (unsigned long long)device->largest);
  made = device->cl.clCreateBuffer(device->context, CL_MEM_READ_WRITE, bytes, NULL, &code);
  if (!made) return mace_opencl_judge(MACE_FAILED, "clCreateBuffer", code, text);
  memset(buffer, 0, sizeof *buffer);
  buffer->struct_bytes = sizeof *buffer;
  buffer->kind = MACE_CL_MEM;
  buffer->handle = (uint64_t)(uintptr_t)made;
  buffer->bytes = bytes;
  return MACE_OK;
}

static void release_memory(mace_device *device, mace_buffer *buffer) {
  device->cl.clReleaseMemObject((cl_mem)(uintptr_t)buffer->handle);
  buffer->handle = 0;
}

static mace_status copy(mace_device *device, mace_binding to, mace_binding from, size_t bytes, mace_text text) {
  const mace_buffer *const target = &to.memory->buffer, *const source = &from.memory->buffer;
  int32_t code;
  if (!target->host) {
    code = device->cl.clEnqueueWriteBuffer(device->queue, (cl_mem)(uintptr_t)target->handle, 1,
                                           target->offset + to.offset, bytes,
                                           (const char *)source->host + source->offset + from.offset, 0, NULL, NULL);
    return code ? mace_opencl_judge(MACE_FAILED, "clEnqueueWriteBuffer", code, text) : MACE_OK;
  }
  code = device->cl.clEnqueueReadBuffer(device->queue, (cl_mem)(uintptr_t)source->handle, 1,
                                        source->offset + from.offset, bytes,
                                        (char *)target->host + target->offset + to.offset, 0, NULL, NULL);
  return code ? mace_opencl_judge(MACE_FAILED, "clEnqueueReadBuffer", code, text) : MACE_OK;
}

const mace_driver mace_opencl_driver = {
    .struct_bytes = sizeof(mace_driver),
    .major = MACE_DRIVER_MAJOR,
    .flags = MACE_ALLOCATES | MACE_UNBOUNDED, /* no kernel can be stopped */
    .name = "opencl",
    .version = "0.1.0",
    .bytes = count_bytes,
    .open = open_opencl,
    .load = mace_opencl_load,
    .run = mace_opencl_run,
    .unload = mace_opencl_unload,
    .close = close_opencl,
    .describe = describe,
    .allocate = allocate,
    .free = release_memory,
    .copy = copy,
    .submit = mace_opencl_submit,
    .wait = mace_opencl_wait,
    .compile = mace_opencl_compile,
    .restore = mace_opencl_restore,
    .save = mace_opencl_save,
    .observe = mace_opencl_observe,
};
