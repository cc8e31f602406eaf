/* opencl_driver.c - the driver of GPUs: its options, and the table of its functions. opencl_device.c and
 * opencl_context.c find what computes, opencl_memory.c keeps its memory, opencl_part.c and opencl_enqueue.c run
 * what the build made of a part.
 *
 * Each session has a queue of its own or the application's, which executes in order: a copy from the device comes
 * behind all kernels that were started before it.
 */
#include <stddef.h>
#include <string.h>

#include "opencl_part.h"

#define PREFIX "opencl."
#define COUNT(array) (sizeof(array) / sizeof(array)[0])

/* ---- options ---- */

static int store_option(char *to, const char *value, size_t bytes) {
  if (!bytes || bytes >= OPENCL_OPTION_BYTES) return 0;
  memcpy(to, value, bytes);
  to[bytes] = 0;
  return 1;
}

/* Store one of some words, which NULL ends. */
static int store_word(char *to, const char *value, size_t bytes, const char *const *words) {
  for (; *words; words++)
    if (bytes == strlen(*words) && !memcmp(value, *words, bytes)) {
      memcpy(to, *words, bytes + 1);
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

/* Store an option; 0 where its name is unknown or has no such value. */
static int read_option(opencl_settings *settings, const char *key, size_t name, const char *value, size_t bytes) {
  static const char *const switches[] = {"on", "off", NULL};
  static const struct {
    const char *name;
    size_t place;
    const char *const *words; /* NULL: any text */
  } options[] = {
      {"library", offsetof(opencl_settings, library), NULL},
      {"device", offsetof(opencl_settings, device), NULL},
      {"priority", offsetof(opencl_settings, priority), mace_opencl_levels},
      {"performance", offsetof(opencl_settings, performance), mace_opencl_levels},
      {"batching", offsetof(opencl_settings, batching), switches},
  };
  for (size_t i = 0; i < COUNT(options); i++) {
    char *const to = (char *)settings + options[i].place;
    if (name != strlen(options[i].name) || memcmp(key, options[i].name, name)) continue;
    return options[i].words ? store_word(to, value, bytes, options[i].words) : store_option(to, value, bytes);
  }
  return name == 9 && !memcmp(key, "kernel_us", name) && store_time(settings->kernel_us, value, bytes);
}

static mace_status read_options(opencl_settings *settings, const char *options, mace_text text) {
  while (options && *options) {
    const size_t bytes = strcspn(options, ";");
    if (!strncmp(options, PREFIX, strlen(PREFIX))) {
      const char *const key = options + strlen(PREFIX), *const end = options + bytes;
      const char *const equals = memchr(key, '=', (size_t)(end - key));
      if (!equals || !read_option(settings, key, (size_t)(equals - key), equals + 1, (size_t)(end - equals - 1)))
        return mace_say(text, MACE_REFUSED,
                        "the option %.*s is unknown or has no such value; library, device, priority, "
                        "performance (high, normal or low), batching (on, off) and kernel_us are known",
                        (int)(bytes < 60 ? bytes : 60), options);
    }
    options += bytes + (options[bytes] == ';');
  }
  return MACE_OK;
}

/* Take what the application shares: not retained yet. */
static mace_status read_natives(mace_device *device, const mace_native *native, mace_text text) {
  for (; native && native->name; native++) {
    const char *const key = native->name + strlen(PREFIX);
    if (strncmp(native->name, PREFIX, strlen(PREFIX))) continue;
    if (!native->handle)
      return mace_say(text, MACE_REFUSED, "%.60s of mace_config.native is NULL; give it, or leave it out",
                      native->name);
    if (!strcmp(key, "context"))
      device->context = native->handle;
    else if (!strcmp(key, "queue"))
      device->queue = native->handle;
    else
      return mace_say(text, MACE_REFUSED,
                      "%.60s of mace_config.native is unknown; opencl.context and opencl.queue are known",
                      native->name);
  }
  return MACE_OK;
}

/* Find library, device, context and queue. */
static mace_status prepare_device(mace_device *device, const mace_config *config, mace_text text) {
  mace_status status = read_options(&device->settings, config->options, text);
  if (!status) status = read_natives(device, config->native, text);
  if (!status) status = mace_opencl_open_library(device, text);
  if (!status) status = mace_opencl_find_device(device, text);
  if (!status) return mace_opencl_create_context(device, text);
  device->context = NULL; /* not the session's yet */
  device->queue = NULL;
  return status;
}

static void close_opencl(mace_device *device) {
  mace_opencl_release_copies(device); /* of a device that is lost */
  if (device->pool) device->cl.clReleaseMemObject(device->pool);
  if (device->profiling) device->cl.clReleaseCommandQueue(device->profiling);
  if (device->queue) device->cl.clReleaseCommandQueue(device->queue);
  if (device->context) device->cl.clReleaseContext(device->context);
  device->queue = device->profiling = NULL;
  device->context = NULL;
  device->pool = NULL;
  mace_opencl_close_library(device);
}

static mace_status open_opencl(const mace_config *config, void *memory, mace_device **opened, mace_text text) {
  mace_device *device = memory;
  mace_status status;
  memset(device, 0, sizeof *device);
  status = prepare_device(device, config, text);
  if (status)
    close_opencl(device);
  else
    *opened = device;
  return status;
}

static const char *describe(mace_device *device) { return device->name; }

/* Nothing: no option changes what the device compiles of a program, and `describe` names the device. */
static const char *list_code_options(mace_device *device) {
  (void)device;
  return "";
}

static uint32_t count_units(mace_device *device) {
  uint32_t units = 0;
  const size_t bytes = sizeof units;
  return device->cl.clGetDeviceInfo(device->id, CL_DEVICE_MAX_COMPUTE_UNITS, bytes, &units, NULL) ? 0 : units;
}

static size_t count_bytes(const mace_payload *payload) {
  return payload ? mace_opencl_part_bytes(payload) : sizeof(mace_device);
}

const mace_driver mace_opencl_driver = {
    .struct_bytes = sizeof(mace_driver),
    .major = MACE_DRIVER_MAJOR,
    .flags = MACE_ALLOCATES | MACE_UNBOUNDED | MACE_SHARES, /* no kernel can be stopped */
    .name = "opencl",
    .version = "0.1.0",
    .bytes = count_bytes,
    .open = open_opencl,
    .load = mace_opencl_load,
    .run = mace_opencl_run,
    .unload = mace_opencl_unload,
    .close = close_opencl,
    .describe = describe,
    .allocate = mace_opencl_allocate,
    .free = mace_opencl_free,
    .import = mace_opencl_import,
    .release = mace_opencl_release,
    .copy = mace_opencl_copy,
    .submit = mace_opencl_submit,
    .wait = mace_opencl_wait,
    .compile = mace_opencl_compile,
    .restore = mace_opencl_restore,
    .save = mace_opencl_save,
    .observe = mace_opencl_observe,
    .notify = mace_opencl_notify,
    .begin_copy = mace_opencl_begin_copy,
    .finish_copies = mace_opencl_finish_copies,
    .code_options = list_code_options,
    .units = count_units,
};
