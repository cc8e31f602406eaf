/* opencl_build.c - compiles the program of a part, with what the device has for products of bytes.
 *
 * The source is told by macros what the device lists, because compilers define those of other extensions as well.
 * The extension of the Khronos Group belongs to OpenCL C 3.0, which the compiler has to be asked for; NVIDIA's
 * devices have the instruction dp4a from compute capability 6.1 on, and no extension for it: the source writes it
 * in PTX. Where a compiler does not take what its device lists, the kernels are compiled without.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "opencl_part.h"

/* One of CL_DEVICE_OPENCL_C_ALL_VERSIONS. */
typedef struct cl_name_version {
  uint32_t version; /* the major one from bit 22 on */
  char name[64];
} cl_name_version;

enum { MAX_VERSIONS = 32, OLDEST_NVIDIA = 61 };

static const char standard[] = "-cl-std=CL1.2", newer_standard[] = "-cl-std=CL3.0";

/* Whether the device compiles OpenCL C 3.0. Devices of OpenCL 3.0 may tell an older version first, and list all. */
static int has_newer_standard(const mace_device *device) {
  const opencl_functions *const cl = &device->cl;
  cl_name_version versions[MAX_VERSIONS];
  char text[128] = "";
  size_t bytes = 0;
  int major = 0;
  if (!cl->clGetDeviceInfo(device->id, CL_DEVICE_OPENCL_C_VERSION, sizeof text - 1, text, NULL) &&
      sscanf(text, "OpenCL C %d.", &major) == 1 && major >= 3)
    return 1;
  if (cl->clGetDeviceInfo(device->id, CL_DEVICE_OPENCL_C_ALL_VERSIONS, sizeof versions, versions, &bytes)) return 0;
  for (size_t i = 0; i < bytes / sizeof versions[0] && i < MAX_VERSIONS; i++)
    if (versions[i].version >> 22 >= 3) return 1;
  return 0;
}

/* Whether an NVIDIA device has dp4a. */
static int has_nvidia_dot(const mace_device *device) {
  const opencl_functions *const cl = &device->cl;
  uint32_t major = 0, minor = 0;
  if (!mace_opencl_has_extension(device, "cl_nv_device_attribute_query")) return 0;
  if (cl->clGetDeviceInfo(device->id, CL_DEVICE_COMPUTE_CAPABILITY_MAJOR_NV, sizeof major, &major, NULL)) return 0;
  if (cl->clGetDeviceInfo(device->id, CL_DEVICE_COMPUTE_CAPABILITY_MINOR_NV, sizeof minor, &minor, NULL)) return 0;
  return 10 * major + minor >= OLDEST_NVIDIA;
}

/* The macros for products of bytes, and whether they need OpenCL C 3.0. */
static const char *find_dots(const mace_device *device, int *is_newer) {
  const int has_arm = mace_opencl_has_extension(device, "cl_arm_integer_dot_product_int8");
  *is_newer = mace_opencl_has_extension(device, "cl_khr_integer_dot_product") && has_newer_standard(device);
  if (*is_newer) return has_arm ? " -DMACE_DEVICE_HAS_KHR_DOT -DMACE_DEVICE_HAS_ARM_DOT" : " -DMACE_DEVICE_HAS_KHR_DOT";
  if (has_arm) return " -DMACE_DEVICE_HAS_ARM_DOT";
  return has_nvidia_dot(device) ? " -DMACE_DEVICE_HAS_NVIDIA_DOT" : "";
}

static int32_t build(const mace_loaded *part, const char *options) {
  const mace_device *const device = part->device;
  return device->cl.clBuildProgram(part->program, 1, &device->id, options, NULL, NULL);
}

int32_t mace_opencl_build_program(const mace_loaded *part) {
  const char *const plain = part->blob.options;
  int is_newer = 0;
  const char *const dots = part->blob.header->flags & OPENCL_DOTS ? find_dots(part->device, &is_newer) : "";
  char *options;
  int32_t code;
  if (!*dots) return build(part, plain);
  options = malloc(strlen(plain) + strlen(dots) + 1);
  if (!options) return CL_OUT_OF_HOST_MEMORY;
  strcpy(options, plain);
  strcat(options, dots);
  if (is_newer && !strncmp(options, standard, sizeof standard - 1))
    memcpy(options, newer_standard, sizeof newer_standard - 1);
  code = build(part, options);
  free(options);
  return code == CL_BUILD_PROGRAM_FAILURE ? build(part, plain) : code;
}
