/* opencl_stub.c - stands in for the OpenCL library of a system. Buffers are memory of the heap and copies are
 * made; kernels write nothing. Every handle is an object of the heap which says what it is, so that a handle
 * that was released or is of another kind ends the program; so does one that is live when the program ends.
 *
 * The environment says what happens:
 *   OPENCL_STUB_FAIL=FUNCTION:N:CODE  the N-th call of a function answers CODE
 *   OPENCL_STUB_DEVICES=N             devices of the one platform (1); -1: no platform
 *   OPENCL_STUB_TYPE=4                type of the devices: 4 a GPU, 2 a CPU
 *   OPENCL_STUB_VERSION=TEXT          of the devices ("OpenCL 1.2 stub")
 *   OPENCL_STUB_DRIVER=TEXT           version of the driver ("1.0")
 *   OPENCL_STUB_UNITS=N               compute units (1)
 *   OPENCL_STUB_GROUP=N               work-items of the largest group (256)
 *   OPENCL_STUB_ARGUMENTS=N           bytes of the arguments of a kernel (1024)
 *   OPENCL_STUB_LOCAL=N               bytes of local memory (32 KiB)
 *   OPENCL_STUB_KERNEL_LOCAL=N        bytes of local memory that each kernel wants (0)
 *   OPENCL_STUB_LARGEST=N             bytes of the largest buffer (1 GiB)
 *   OPENCL_STUB_POLLS=N               how often an event is asked for before it has ended (0)
 *   OPENCL_STUB_STATE=N               the state with which events end (0)
 *   OPENCL_STUB_DELAY=N               milliseconds from the end of an event to the call of who asked for it (0)
 *   OPENCL_STUB_CONTROLS=N            of cl_arm_scheduling_controls (1)
 *   OPENCL_STUB_PITCH=N, _ORIGIN=N   of cl_khr_image2d_from_buffer: pixels that rows and images begin at (0)
 *   OPENCL_STUB_BASE=N                bits that ranges of buffers begin at (1024)
 *   OPENCL_STUB_C_VERSION=TEXT        of OpenCL C ("OpenCL C 1.2 stub")
 *   OPENCL_STUB_C_NEWEST=N            major version of the newest OpenCL C that the devices list (0: they list none)
 *   OPENCL_STUB_CAPABILITY=N          ten times the compute capability of cl_nv_device_attribute_query (0)
 *   OPENCL_STUB_PROPERTIES=1          the function that makes queues with properties is an extension's
 *   OPENCL_STUB_NS=N                  nanoseconds that a kernel takes (700)
 *   OPENCL_STUB_LAUNCH_US=N           microseconds that the processor takes to enqueue a kernel (0)
 *   OPENCL_STUB_BINARY=FILE           what a program that was made of source has as its binary (its source)
 *   OPENCL_STUB_QUIET=1               do not print the options of the compiler
 *   OPENCL_STUB_SHOW=1                print what is enqueued
 *   OPENCL_STUB_FAULT=CALL:OPERAND:INDEX  what the kernels of a check build note
 */
#define _GNU_SOURCE /* memmem */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "opencl_api.h"

#define EXPORT __attribute__((visibility("default")))

/* A flag with which memory says that it is an image; bytes of what is imported. */
enum { IMAGE = 1 << 30, HARDWARE_BYTES = 8192 };

enum kind { PLATFORM, DEVICE, CONTEXT, QUEUE, MEM, PROGRAM, KERNEL, EVENT, KINDS };

typedef struct object {
  enum kind kind;
  unsigned char *data;
  size_t bytes;
  int left; /* of an event: how often it is still running when it is asked; of a kernel: whether an offset is due */
  int is_image;
  int references;
  void *context; /* of a queue and of memory */
  void *parent;  /* of memory: the buffer that it is a range of, or that an image lies in */
  uint64_t flags;
  void (*notify)(cl_event, int32_t, void *); /* of an event, in a thread of its own */
  void *user;
  pthread_t thread;
} object;

static int live[KINDS];
static object *memory_set, *faults; /* the last memory that was an argument; that for faults, of check builds */
static object platform = {.kind = PLATFORM}, devices[8];

static const char *setting(const char *name, const char *otherwise) {
  const char *value = getenv(name);
  return value && *value ? value : otherwise;
}

static long number(const char *name, const char *otherwise) { return strtol(setting(name, otherwise), NULL, 0); }

/* What the call of a function answers: 0, or the code of the fault that was asked for. */
static int32_t fault(const char *function) {
  static int calls;
  const char *const wanted = getenv("OPENCL_STUB_FAIL"), *const colon = wanted ? strchr(wanted, ':') : NULL;
  int nth = 0, code = 0;
  if (!colon || (size_t)(colon - wanted) != strlen(function) || strncmp(wanted, function, strlen(function)))
    return 0;
  if (sscanf(colon, ":%d:%d", &nth, &code) != 2) abort();
  return ++calls == nth ? code : 0;
}

static void *make(enum kind kind, const char *function, int32_t *code) {
  object *made;
  const int32_t failed = fault(function);
  if (code) *code = failed;
  if (failed) return NULL;
  made = calloc(1, sizeof *made);
  made->kind = kind;
  made->references = 1;
  live[kind]++;
  return made;
}

static object *check(void *handle, enum kind kind, const char *function) {
  object *const o = handle;
  if (!o || o->kind != kind) {
    fprintf(stderr, "opencl_stub: %s got no object of kind %d\n", function, (int)kind);
    abort();
  }
  return o;
}

static int32_t drop(void *handle, enum kind kind, const char *function) {
  object *const o = check(handle, kind, function);
  if (--o->references) return fault(function);
  if (o->notify) pthread_join(o->thread, NULL);
  live[kind]--;
  if (o->parent)
    drop(o->parent, kind, ""); /* its memory is that one's */
  else
    free(o->data);
  o->kind = KINDS;
  free(o);
  return fault(function);
}

__attribute__((destructor)) static void check_live(void) {
  for (int kind = 0; kind < KINDS; kind++)
    if (live[kind]) {
      fprintf(stderr, "opencl_stub: %d objects of kind %d were never released\n", live[kind], kind);
      abort();
    }
}

static int32_t answer(const void *value, size_t size, size_t bytes, void *to, size_t *used) {
  if (used) *used = size;
  if (!to) return 0;
  if (bytes < size) return -30; /* CL_INVALID_VALUE */
  memcpy(to, value, size);
  return 0;
}

EXPORT int32_t clGetPlatformIDs(uint32_t most, cl_platform *to, uint32_t *count) {
  const int32_t code = fault(__func__);
  if (code) return code;
  *count = number("OPENCL_STUB_DEVICES", "1") >= 0;
  if (!*count) return CL_PLATFORM_NOT_FOUND_KHR;
  if (to && most) to[0] = (cl_platform)&platform;
  return 0;
}

EXPORT int32_t clGetDeviceIDs(cl_platform from, uint64_t type, uint32_t most, cl_device *to, uint32_t *count) {
  const int32_t code = fault(__func__);
  const long made = number("OPENCL_STUB_DEVICES", "1");
  check(from, PLATFORM, __func__);
  if (code) return code;
  if (type != (uint64_t)number("OPENCL_STUB_TYPE", "4") || !made) return CL_DEVICE_NOT_FOUND;
  *count = (uint32_t)made;
  for (uint32_t i = 0; i < *count && i < most; i++) {
    devices[i].kind = DEVICE;
    to[i] = (cl_device)&devices[i];
  }
  return 0;
}

EXPORT int32_t clGetDeviceInfo(cl_device device, uint32_t what, size_t bytes, void *to, size_t *used) {
  const char *text = "stub";
  uint64_t value = 1;
  const int32_t code = fault(__func__);
  check(device, DEVICE, __func__);
  if (code) return code;
  switch (what) {
    case CL_DEVICE_MAX_MEM_ALLOC_SIZE:
      value = (uint64_t)number("OPENCL_STUB_LARGEST", "0x40000000");
      return answer(&value, sizeof value, bytes, to, used);
    case CL_DEVICE_MAX_PARAMETER_SIZE:
      value = (uint64_t)number("OPENCL_STUB_ARGUMENTS", "1024");
      return answer(&value, sizeof(size_t), bytes, to, used);
    case CL_DEVICE_LOCAL_MEM_SIZE:
      value = (uint64_t)number("OPENCL_STUB_LOCAL", "0x8000");
      return answer(&value, sizeof value, bytes, to, used);
    case CL_DEVICE_MAX_COMPUTE_UNITS:
      value = (uint64_t)number("OPENCL_STUB_UNITS", "1");
      return answer(&value, sizeof(uint32_t), bytes, to, used);
    case CL_DEVICE_MAX_WORK_GROUP_SIZE: return answer(&value, sizeof(size_t), bytes, to, used);
    case CL_DEVICE_IMAGE_SUPPORT:
      value = (uint64_t)number("OPENCL_STUB_IMAGES", "1");
      return answer(&value, sizeof(uint32_t), bytes, to, used);
    case CL_DEVICE_OPENCL_C_VERSION: text = setting("OPENCL_STUB_C_VERSION", "OpenCL C 1.2 stub"); break;
    case CL_DEVICE_OPENCL_C_ALL_VERSIONS: {
      struct {
        uint32_t version;
        char name[64];
      } versions[2] = {{1u << 22, "OpenCL C"}, {(uint32_t)number("OPENCL_STUB_C_NEWEST", "0") << 22, "OpenCL C"}};
      return number("OPENCL_STUB_C_NEWEST", "0") ? answer(versions, sizeof versions, bytes, to, used) : -30;
    }
    case CL_DEVICE_COMPUTE_CAPABILITY_MAJOR_NV:
      value = (uint64_t)number("OPENCL_STUB_CAPABILITY", "0") / 10;
      return answer(&value, sizeof(uint32_t), bytes, to, used);
    case CL_DEVICE_COMPUTE_CAPABILITY_MINOR_NV:
      value = (uint64_t)number("OPENCL_STUB_CAPABILITY", "0") % 10;
      return answer(&value, sizeof(uint32_t), bytes, to, used);
    case CL_DEVICE_IMAGE_PITCH_ALIGNMENT:
      value = (uint64_t)number("OPENCL_STUB_PITCH", "0");
      return answer(&value, sizeof(uint32_t), bytes, to, used);
    case CL_DEVICE_IMAGE_BASE_ADDRESS_ALIGNMENT:
      value = (uint64_t)number("OPENCL_STUB_ORIGIN", "0");
      return answer(&value, sizeof(uint32_t), bytes, to, used);
    case CL_DEVICE_MEM_BASE_ADDR_ALIGN:
      value = (uint64_t)number("OPENCL_STUB_BASE", "1024");
      return answer(&value, sizeof(uint32_t), bytes, to, used);
    case CL_DEVICE_TYPE:
      value = (uint64_t)number("OPENCL_STUB_TYPE", "4");
      return answer(&value, sizeof value, bytes, to, used);
    case CL_DEVICE_SCHEDULING_CONTROLS_CAPABILITIES_ARM:
      value = (uint64_t)number("OPENCL_STUB_CONTROLS", "1");
      return answer(&value, sizeof value, bytes, to, used);
    case CL_DEVICE_PLATFORM: {
      const object *const at = &platform;
      return answer(&at, sizeof at, bytes, to, used);
    }
    case CL_DEVICE_NAME: break;
    case CL_DRIVER_VERSION: text = setting("OPENCL_STUB_DRIVER", "1.0"); break;
    case CL_DEVICE_VERSION: text = setting("OPENCL_STUB_VERSION", "OpenCL 1.2 stub"); break;
    case CL_DEVICE_EXTENSIONS: text = setting("OPENCL_STUB_EXTENSIONS", ""); break;
    default: return answer(&value, sizeof(uint32_t), bytes, to, used);
  }
  return answer(text, strlen(text) + 1, bytes, to, used);
}

EXPORT cl_context clCreateContext(const intptr_t *properties, uint32_t count, const cl_device *ids,
                                  void (*notify)(const char *, const void *, size_t, void *), void *user,
                                  int32_t *code) {
  (void)count, (void)notify, (void)user;
  for (; properties && *properties; properties += 2)
    printf("property %lx %lx\n", (unsigned long)properties[0], (unsigned long)properties[1]);
  check(ids[0], DEVICE, __func__);
  return make(CONTEXT, __func__, code);
}

/* One more user of an object. */
static int32_t retain(void *handle, enum kind kind, const char *function) {
  object *const o = check(handle, kind, function);
  const int32_t code = fault(function);
  if (!code) o->references++;
  return code;
}

EXPORT int32_t clReleaseContext(cl_context context) { return drop(context, CONTEXT, __func__); }
EXPORT int32_t clRetainContext(cl_context context) { return retain(context, CONTEXT, __func__); }

EXPORT int32_t clGetContextInfo(cl_context context, uint32_t what, size_t bytes, void *to, size_t *used) {
  const object *const at = &devices[0];
  const int32_t code = fault(__func__);
  check(context, CONTEXT, __func__);
  (void)what;
  return code ? code : answer(&at, sizeof at, bytes, to, used);
}

EXPORT cl_queue clCreateCommandQueue(cl_context context, cl_device device, uint64_t properties, int32_t *code) {
  object *const made = make(QUEUE, __func__, code);
  check(context, CONTEXT, __func__);
  check(device, DEVICE, __func__);
  if (!made) return NULL;
  made->context = context;
  made->flags = properties;
  return (cl_queue)made;
}

/* Of OpenCL 2.0, or of an extension, as the environment says. */
static cl_queue create_queue(cl_context context, cl_device device, const uint64_t *properties, int32_t *code) {
  for (const uint64_t *at = properties; at && *at; at += 2)
    printf("queue property %lx %lx\n", (unsigned long)at[0], (unsigned long)at[1]);
  return clCreateCommandQueue(context, device, 0, code);
}

#ifndef WITHOUT_PROPERTIES
EXPORT cl_queue clCreateCommandQueueWithProperties(cl_context context, cl_device device, const uint64_t *properties,
                                                   int32_t *code) {
  return create_queue(context, device, properties, code);
}
#endif

static cl_mem import_hardware(cl_context context, uint64_t flags, const intptr_t *properties, void *from,
                              size_t bytes, int32_t *code);

EXPORT void *clGetExtensionFunctionAddressForPlatform(cl_platform from, const char *name) {
  void *found = NULL;
  check(from, PLATFORM, __func__);
  if (fault(__func__)) return NULL;
  if (!strcmp(name, "clCreateCommandQueueWithPropertiesKHR") && number("OPENCL_STUB_PROPERTIES", "0"))
    *(cl_queue (**)(cl_context, cl_device, const uint64_t *, int32_t *))(void *)&found = create_queue;
  if (!strcmp(name, "clImportMemoryARM"))
    *(cl_mem (**)(cl_context, uint64_t, const intptr_t *, void *, size_t, int32_t *))(void *)&found = import_hardware;
  return found;
}

EXPORT int32_t clReleaseCommandQueue(cl_queue queue) { return drop(queue, QUEUE, __func__); }
EXPORT int32_t clRetainCommandQueue(cl_queue queue) { return retain(queue, QUEUE, __func__); }

EXPORT int32_t clGetCommandQueueInfo(cl_queue queue, uint32_t what, size_t bytes, void *to, size_t *used) {
  const object *const o = check(queue, QUEUE, __func__), *const device = &devices[0];
  const int32_t code = fault(__func__);
  if (code) return code;
  if (what == CL_QUEUE_CONTEXT) return answer(&o->context, sizeof o->context, bytes, to, used);
  if (what == CL_QUEUE_DEVICE) return answer(&device, sizeof device, bytes, to, used);
  return answer(&o->flags, sizeof o->flags, bytes, to, used);
}

EXPORT cl_mem clCreateBuffer(cl_context context, uint64_t flags, size_t bytes, void *from, int32_t *code) {
  object *const made = make(MEM, __func__, code);
  check(context, CONTEXT, __func__);
  if (!made) return NULL;
  if (flags & CL_MEM_EXT_HOST_PTR_QCOM) {
    const uint32_t *const described = from;
    int *hardware;
    memcpy(&hardware, described + 2, sizeof hardware);
    printf("import %d %x %x\n", *hardware, described[0], described[1]);
    bytes = HARDWARE_BYTES;
  }
  made->data = calloc(1, bytes);
  made->bytes = bytes;
  made->context = context;
  made->flags = flags;
  if (flags & CL_MEM_COPY_HOST_PTR) memcpy(made->data, from, bytes);
  return (cl_mem)made;
}

/* Memory of the same bytes as another, which lives as long as this one. */
static void *make_within(cl_mem memory, size_t origin, size_t bytes, const char *function, int32_t *code) {
  object *const outer = check(memory, MEM, function), *const made = make(MEM, function, code);
  if (!made) return NULL;
  if (origin > outer->bytes || bytes > outer->bytes - origin) abort();
  made->data = outer->data + origin;
  made->bytes = bytes;
  made->parent = outer;
  outer->references++;
  return made;
}

EXPORT cl_mem clCreateSubBuffer(cl_mem memory, uint64_t flags, uint32_t type, const void *what, int32_t *code) {
  const cl_buffer_region *const region = what;
  if (flags != CL_MEM_READ_WRITE || type != CL_BUFFER_CREATE_TYPE_REGION) abort();
  if (region->origin * 8 % (size_t)number("OPENCL_STUB_BASE", "1024")) abort();
  printf("range %zu %zu\n", region->origin, region->size);
  return make_within(memory, region->origin, region->size, __func__, code);
}

/* An image in a range of a buffer, where the device wants it. */
static cl_mem make_image_within(const cl_image_format *format, const cl_image_desc *shape, int32_t *code) {
  const size_t pixel = format->type == CL_FLOAT ? 16 : 8;
  const size_t pitch = (size_t)number("OPENCL_STUB_PITCH", "0") * pixel;
  const object *const range = check(shape->memory, MEM, "clCreateImage");
  const size_t offset = (size_t)(range->data - ((const object *)range->parent)->data);
  object *made;
  if (!pitch || shape->row_pitch % pitch || shape->row_pitch < shape->width * pixel) abort();
  if (offset % ((size_t)number("OPENCL_STUB_ORIGIN", "0") * pixel)) abort();
  made = make_within(shape->memory, 0, shape->row_pitch * shape->height, "clCreateImage", code);
  if (!made) return NULL;
  made->is_image = 1;
  printf("image %zu %zu pooled\n", shape->width, shape->height);
  return (cl_mem)made;
}

EXPORT cl_mem clCreateImage(cl_context context, uint64_t flags, const cl_image_format *format,
                            const cl_image_desc *shape, void *from, int32_t *code) {
  check(context, CONTEXT, __func__);
  if (shape->memory) return make_image_within(format, shape, code);
  object *const made = make(MEM, __func__, code);
  if (!made) return NULL;
  made->bytes = shape->width * shape->height * (format->type == CL_FLOAT ? 16 : 8);
  made->data = calloc(1, made->bytes);
  if (flags & CL_MEM_COPY_HOST_PTR) memcpy(made->data, from, made->bytes);
  made->is_image = 1;
  printf("image %zu %zu %s\n", shape->width, shape->height, flags & CL_MEM_COPY_HOST_PTR ? "constant" : "shared");
  return (cl_mem)made;
}

EXPORT int32_t clEnqueueReadImage(cl_queue queue, cl_mem memory, uint32_t blocks, const size_t *origin,
                                  const size_t *region, size_t row, size_t slice, void *to, uint32_t waits,
                                  const cl_event *events, cl_event *event) {
  const int32_t code = fault(__func__);
  const object *const o = check(memory, MEM, __func__);
  check(queue, QUEUE, __func__);
  (void)blocks, (void)origin, (void)row, (void)slice, (void)waits, (void)events, (void)event;
  if (!code) memset(to, 0, region[0] * region[1] * 8 <= o->bytes ? region[0] * region[1] * 8 : 0);
  return code;
}

/* AHardwareBuffer: any address. */
static cl_mem import_hardware(cl_context context, uint64_t flags, const intptr_t *properties, void *from,
                              size_t bytes, int32_t *code) {
  if (properties[0] != CL_IMPORT_TYPE_ARM || properties[1] != CL_IMPORT_TYPE_ANDROID_HARDWARE_BUFFER_ARM ||
      properties[2] || bytes != SIZE_MAX)
    abort();
  printf("import %d\n", *(const int *)from);
  return clCreateBuffer(context, flags, HARDWARE_BYTES, NULL, code);
}

EXPORT int32_t clReleaseMemObject(cl_mem memory) { return drop(memory, MEM, __func__); }
EXPORT int32_t clRetainMemObject(cl_mem memory) { return retain(memory, MEM, __func__); }

EXPORT int32_t clGetMemObjectInfo(cl_mem memory, uint32_t what, size_t bytes, void *to, size_t *used) {
  const object *const o = check(memory, MEM, __func__);
  const uint32_t type = o->is_image || o->flags & IMAGE ? 0x10F1 : CL_MEM_OBJECT_BUFFER;
  const int32_t code = fault(__func__);
  if (code) return code;
  switch (what) {
    case CL_MEM_TYPE: return answer(&type, sizeof type, bytes, to, used);
    case CL_MEM_CONTEXT: return answer(&o->context, sizeof o->context, bytes, to, used);
    case CL_MEM_SIZE: return answer(&o->bytes, sizeof o->bytes, bytes, to, used);
    default: return answer(&o->flags, sizeof o->flags, bytes, to, used);
  }
}

/* Give a program the binary that was asked for. */
static void read_binary(object *program) {
  FILE *const file = fopen(setting("OPENCL_STUB_BINARY", "/nowhere"), "rb");
  if (!file) return;
  program->data = realloc(program->data, 1 << 16);
  program->bytes = fread(program->data, 1, 1 << 16, file);
  fclose(file);
}

EXPORT cl_program clCreateProgramWithSource(cl_context context, uint32_t count, const char **texts,
                                            const size_t *bytes, int32_t *code) {
  object *const made = make(PROGRAM, __func__, code);
  check(context, CONTEXT, __func__);
  if (!made) return NULL;
  if (count != 1) abort();
  made->data = malloc(bytes[0]);
  made->bytes = bytes[0];
  memcpy(made->data, texts[0], bytes[0]);
  read_binary(made);
  return (cl_program)made;
}

EXPORT cl_program clCreateProgramWithBinary(cl_context context, uint32_t count, const cl_device *ids,
                                            const size_t *bytes, const unsigned char **binaries, int32_t *states,
                                            int32_t *code) {
  object *const made = make(PROGRAM, __func__, code);
  check(context, CONTEXT, __func__);
  check(ids[0], DEVICE, __func__);
  states[0] = 0;
  if (!made) return NULL;
  if (count != 1) abort();
  made->data = malloc(bytes[0]);
  made->bytes = bytes[0];
  memcpy(made->data, binaries[0], bytes[0]);
  return (cl_program)made;
}

EXPORT int32_t clBuildProgram(cl_program program, uint32_t count, const cl_device *ids, const char *options,
                              void (*notify)(cl_program, void *), void *user) {
  (void)count, (void)notify, (void)user;
  check(program, PROGRAM, __func__);
  check(ids[0], DEVICE, __func__);
  if (strncmp(options, "-cl-std=CL1.2", 13) && strncmp(options, "-cl-std=CL3.0", 13)) abort();
  if (!number("OPENCL_STUB_QUIET", "0")) printf("options %s\n", options);
  return fault(__func__);
}

EXPORT int32_t clGetProgramInfo(cl_program program, uint32_t what, size_t bytes, void *to, size_t *used) {
  const object *const o = check(program, PROGRAM, __func__);
  const int32_t code = fault(__func__);
  if (code) return code;
  if (what == CL_PROGRAM_BINARY_SIZES) return answer(&o->bytes, sizeof o->bytes, bytes, to, used);
  memcpy(*(unsigned char **)to, o->data, o->bytes);
  return 0;
}

EXPORT int32_t clGetProgramBuildInfo(cl_program program, cl_device device, uint32_t what, size_t bytes, void *to,
                                     size_t *used) {
  const char *const log = setting("OPENCL_STUB_LOG", "1 warning\nk.cl:7:3: error: unknown type name 'flaot'\nfurther lines\n");
  const int32_t code = fault(__func__);
  check(program, PROGRAM, __func__);
  check(device, DEVICE, __func__);
  (void)what;
  return code ? code : answer(log, strlen(log) + 1, bytes, to, used);
}

EXPORT int32_t clReleaseProgram(cl_program program) { return drop(program, PROGRAM, __func__); }

EXPORT cl_kernel clCreateKernel(cl_program program, const char *name, int32_t *code) {
  const object *const o = check(program, PROGRAM, __func__);
  /* A binary that a test states has the names of none. */
  if (!*setting("OPENCL_STUB_BINARY", "") && !memmem(o->data, o->bytes, name, strlen(name))) abort();
  return make(KERNEL, __func__, code);
}

EXPORT int32_t clSetKernelArg(cl_kernel kernel, uint32_t index, size_t bytes, const void *value) {
  object *const o = check(kernel, KERNEL, __func__);
  const int is_offset = index && o->left;
  if (!is_offset) memory_set = check(*(object *const *)value, MEM, __func__);
  if (bytes == 4) faults = memory_set; /* the number of the call stands behind it */
  if (bytes != 8 && (bytes != 4 || !is_offset)) abort();
  o->left = !is_offset && !memory_set->is_image; /* an image is an argument alone */
  return fault(__func__);
}

EXPORT int32_t clGetKernelWorkGroupInfo(cl_kernel kernel, cl_device device, uint32_t what, size_t bytes, void *to,
                                        size_t *used) {
  const size_t most = (size_t)number("OPENCL_STUB_GROUP", "256");
  const uint64_t local = (uint64_t)number("OPENCL_STUB_KERNEL_LOCAL", "0");
  const int32_t code = fault(__func__);
  check(kernel, KERNEL, __func__);
  check(device, DEVICE, __func__);
  if (code) return code;
  if (what == CL_KERNEL_LOCAL_MEM_SIZE) return answer(&local, sizeof local, bytes, to, used);
  return answer(&most, sizeof most, bytes, to, used);
}

EXPORT int32_t clReleaseKernel(cl_kernel kernel) { return drop(kernel, KERNEL, __func__); }

static int32_t signal_event(cl_event *event, int32_t code) {
  object *made;
  if (code || !event) return code;
  made = make(EVENT, "", NULL);
  made->left = (int)number("OPENCL_STUB_POLLS", "0");
  *event = (cl_event)made;
  return 0;
}

static void note_fault(void) {
  const char *const wanted = getenv("OPENCL_STUB_FAULT");
  int32_t words[4] = {0};
  long long index = 0;
  if (!wanted || !faults || sscanf(wanted, "%d:%d:%lld", &words[0], &words[1], &index) != 3) return;
  words[0]++;
  words[2] = (int32_t)index;
  words[3] = (int32_t)(index >> 32);
  memcpy(faults->data, words, sizeof words);
}

EXPORT int32_t clEnqueueNDRangeKernel(cl_queue queue, cl_kernel kernel, uint32_t axes, const size_t *offset,
                                      const size_t *global, const size_t *local, uint32_t count,
                                      const cl_event *waits, cl_event *event) {
  (void)waits;
  check(queue, QUEUE, __func__);
  check(kernel, KERNEL, __func__);
  usleep((useconds_t)number("OPENCL_STUB_LAUNCH_US", "0"));
  if (number("OPENCL_STUB_SHOW", "0"))
    printf("enqueue %zu %zu %zu\n", offset ? offset[0] : 0, global[0], local ? local[0] : 0);
  if (local && offset && offset[0] % local[0]) abort();
  if (axes != 3 || count || !global[0] || (local && global[0] % local[0])) abort();
  note_fault();
  return signal_event(event, fault(__func__));
}

/* Copies that nobody has waited for: made as late as they may be, so that memory which was changed or freed too
 * early shows. */
static struct {
  void *to;
  const void *from;
  size_t bytes;
} late[64];
static int late_count;

static void make_late_copies(void) {
  for (int i = 0; i < late_count; i++) memcpy(late[i].to, late[i].from, late[i].bytes);
  late_count = 0;
}

static int32_t move(cl_queue queue, const object *o, uint32_t blocking, void *to, const void *from, size_t bytes) {
  check(queue, QUEUE, __func__);
  check((void *)(uintptr_t)o, MEM, __func__);
  if (late_count == 64) abort();
  late[late_count].to = to;
  late[late_count].from = from;
  late[late_count++].bytes = bytes;
  if (blocking) make_late_copies();
  return 0;
}

static unsigned char *at_offset(cl_mem memory, size_t offset, size_t bytes) {
  const object *const o = check(memory, MEM, __func__);
  if (offset > o->bytes || bytes > o->bytes - offset) abort();
  return o->data + offset;
}

EXPORT int32_t clEnqueueWriteBuffer(cl_queue queue, cl_mem memory, uint32_t blocking, size_t offset, size_t bytes,
                                    const void *from, uint32_t count, const cl_event *waits, cl_event *event) {
  const int32_t code = fault(__func__);
  (void)count, (void)waits;
  if (!code) move(queue, (object *)memory, blocking, at_offset(memory, offset, bytes), from, bytes);
  return signal_event(event, code);
}

EXPORT int32_t clEnqueueReadBuffer(cl_queue queue, cl_mem memory, uint32_t blocking, size_t offset, size_t bytes,
                                   void *to, uint32_t count, const cl_event *waits, cl_event *event) {
  const int32_t code = fault(__func__);
  (void)count, (void)waits;
  if (!code) move(queue, (object *)memory, blocking, to, at_offset(memory, offset, bytes), bytes);
  return signal_event(event, code);
}

EXPORT int32_t clEnqueueFillBuffer(cl_queue queue, cl_mem memory, const void *pattern, size_t size, size_t offset,
                                   size_t bytes, uint32_t count, const cl_event *waits, cl_event *event) {
  const object *const o = check(memory, MEM, __func__);
  (void)pattern, (void)count, (void)waits, (void)event;
  check(queue, QUEUE, __func__);
  if (bytes % size || offset > o->bytes || bytes > o->bytes - offset) abort();
  memset(o->data + offset, 0, bytes);
  return fault(__func__);
}

EXPORT int32_t clEnqueueMarkerWithWaitList(cl_queue queue, uint32_t count, const cl_event *waits, cl_event *event) {
  (void)count, (void)waits;
  check(queue, QUEUE, __func__);
  return signal_event(event, fault(__func__));
}

EXPORT int32_t clGetEventInfo(cl_event event, uint32_t what, size_t bytes, void *to, size_t *used) {
  object *const o = check(event, EVENT, __func__);
  int32_t state = (int32_t)number("OPENCL_STUB_STATE", "0");
  const int32_t code = fault(__func__);
  (void)what;
  if (code) return code;
  if (o->left) {
    o->left--;
    state = 1; /* CL_RUNNING */
  }
  return answer(&state, sizeof state, bytes, to, used);
}

static void *call_back(void *argument) {
  object *const o = argument;
  const long ms = number("OPENCL_STUB_DELAY", "0");
  const struct timespec pause = {ms / 1000, ms % 1000 * 1000000};
  nanosleep(&pause, NULL);
  o->notify((cl_event)o, (int32_t)number("OPENCL_STUB_STATE", "0"), o->user);
  return NULL;
}

EXPORT int32_t clSetEventCallback(cl_event event, int32_t state, void (*notify)(cl_event, int32_t, void *),
                                  void *user) {
  object *const o = check(event, EVENT, __func__);
  const int32_t code = fault(__func__);
  if (code) return code;
  if (state != CL_COMPLETE || o->notify) abort();
  o->notify = notify;
  o->user = user;
  if (pthread_create(&o->thread, NULL, call_back, o)) abort();
  return 0;
}

EXPORT int32_t clGetEventProfilingInfo(cl_event event, uint32_t what, size_t bytes, void *to, size_t *used) {
  const uint64_t at = what == CL_PROFILING_COMMAND_START ? 1000 : 1000 + (uint64_t)number("OPENCL_STUB_NS", "700");
  const int32_t code = fault(__func__);
  check(event, EVENT, __func__);
  return code ? code : answer(&at, sizeof at, bytes, to, used);
}

EXPORT int32_t clWaitForEvents(uint32_t count, const cl_event *events) {
  if (!count) abort();
  for (uint32_t i = 0; i < count; i++) check(events[i], EVENT, __func__);
  make_late_copies();
  return fault(__func__);
}

EXPORT int32_t clReleaseEvent(cl_event event) { return drop(event, EVENT, __func__); }
EXPORT int32_t clFlush(cl_queue queue) { return check(queue, QUEUE, __func__) ? fault(__func__) : 0; }
EXPORT int32_t clFinish(cl_queue queue) {
  if (number("OPENCL_STUB_SHOW", "0")) printf("finish\n");
  make_late_copies();
  return check(queue, QUEUE, __func__) ? fault(__func__) : 0;
}
