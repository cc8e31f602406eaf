/* opencl_pool_shim.c - the system's OpenCL with cl_khr_image2d_from_buffer, for devices of processors such as
 * PoCL, which lacks it: buffers and images are memory of this library, and an image in a buffer is an image of
 * the same addresses. It lists cl_khr_integer_dot_product too, whose function its compiler does not have. It is linked to the system's loader, which has the functions that this file does not.
 *
 * Prints "pooled N" when the process ends: how many images were made in buffers.
 */
#define _GNU_SOURCE /* RTLD_NEXT */
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "opencl_api.h"

#define EXPORT __attribute__((visibility("default")))
#define NEXT(name) (*(__typeof__(((opencl_functions *)0)->name) *)(void *)&(void *){dlsym(RTLD_NEXT, #name)})

enum { ALIGNMENT = 4096, MEMORIES = 4096 };

/* Memory of this library: it outlives the objects of OpenCL, because nobody tells when a driver lets go of it. */
static struct {
  cl_mem handle;
  char *at;
} memories[MEMORIES];
static int count, pooled;

static char *find(cl_mem handle) {
  for (int i = count; i-- > 0;)
    if (memories[i].handle == handle) return memories[i].at;
  return NULL;
}

static cl_mem keep(cl_mem handle, char *at) {
  if (count == MEMORIES) abort();
  memories[count].handle = handle;
  memories[count++].at = at;
  return handle;
}

static int32_t answer(const void *value, size_t size, size_t bytes, void *to, size_t *used) {
  if (used) *used = size;
  if (to && bytes >= size) memcpy(to, value, size);
  return 0;
}

EXPORT int32_t clGetDeviceInfo(cl_device device, uint32_t what, size_t bytes, void *to, size_t *used) {
  /* Blanks stand between names, and may stand before the first. */
  static const char more[] = " cl_khr_image2d_from_buffer cl_khr_integer_dot_product";
  const uint32_t pixels = 16;
  char names[8192];
  int32_t code;
  if (what == CL_DEVICE_IMAGE_PITCH_ALIGNMENT || what == CL_DEVICE_IMAGE_BASE_ADDRESS_ALIGNMENT)
    return answer(&pixels, sizeof pixels, bytes, to, used);
  if (what != CL_DEVICE_EXTENSIONS) return NEXT(clGetDeviceInfo)(device, what, bytes, to, used);
  code = NEXT(clGetDeviceInfo)(device, what, sizeof names - sizeof more, names, NULL);
  strcat(names, more);
  return code ? code : answer(names, strlen(names) + 1, bytes, to, used);
}

EXPORT cl_mem clCreateBuffer(cl_context context, uint64_t flags, size_t bytes, void *from, int32_t *code) {
  char *at;
  if (flags != CL_MEM_READ_WRITE) return NEXT(clCreateBuffer)(context, flags, bytes, from, code);
  at = aligned_alloc(ALIGNMENT, (bytes + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT);
  memset(at, 0x55, bytes); /* not zeros, which a kernel that reads too early would take for a result */
  return keep(NEXT(clCreateBuffer)(context, flags | CL_MEM_USE_HOST_PTR, bytes, at, code), at);
}

EXPORT cl_mem clCreateSubBuffer(cl_mem memory, uint64_t flags, uint32_t type, const void *what, int32_t *code) {
  const cl_buffer_region *const region = what;
  return keep(NEXT(clCreateSubBuffer)(memory, flags, type, what, code), find(memory) + region->origin);
}

EXPORT cl_mem clCreateImage(cl_context context, uint64_t flags, const cl_image_format *format,
                            const cl_image_desc *shape, void *from, int32_t *code) {
  cl_image_desc apart = *shape;
  if (!shape->memory) return NEXT(clCreateImage)(context, flags, format, shape, from, code);
  apart.memory = NULL;
  pooled++;
  return NEXT(clCreateImage)(context, flags | CL_MEM_USE_HOST_PTR, format, &apart, find(shape->memory), code);
}

EXPORT int opencl_shim_count_images(void) { return pooled; }
