/* opencl_api.h - the functions of OpenCL 1.2 that the driver calls, as pointers. All are looked up at run
 * time; no symbol of OpenCL is linked, and no header of a vendor is needed.
 *
 * Written from the OpenCL 1.2 specification of the Khronos Group. Functions and numbers have its names.
 */
#ifndef MACE_OPENCL_API_H
#define MACE_OPENCL_API_H

#include <stddef.h>
#include <stdint.h>

/* Handles of the OpenCL library. */
typedef struct opencl_platform *cl_platform;
typedef struct opencl_device_id *cl_device;
typedef struct opencl_context *cl_context;
typedef struct opencl_queue *cl_queue;
typedef struct opencl_mem *cl_mem;
typedef struct opencl_program *cl_program;
typedef struct opencl_kernel *cl_kernel;
typedef struct opencl_event *cl_event;

enum {
  CL_SUCCESS = 0,
  CL_DEVICE_NOT_FOUND = -1,
  CL_DEVICE_NOT_AVAILABLE = -2,
  CL_COMPILER_NOT_AVAILABLE = -3,
  CL_MEM_OBJECT_ALLOCATION_FAILURE = -4,
  CL_OUT_OF_RESOURCES = -5,
  CL_OUT_OF_HOST_MEMORY = -6,
  CL_BUILD_PROGRAM_FAILURE = -11,
  CL_INVALID_CONTEXT = -34,
  CL_INVALID_COMMAND_QUEUE = -36,
  CL_INVALID_OPERATION = -59,
  CL_INVALID_BUFFER_SIZE = -61,
  CL_PLATFORM_NOT_FOUND_KHR = -1001
};

enum {
  CL_DEVICE_TYPE = 0x1000,
  CL_DEVICE_TYPE_CPU = 2,
  CL_DEVICE_TYPE_GPU = 4,
  CL_DEVICE_MAX_COMPUTE_UNITS = 0x1002,
  CL_DEVICE_MAX_WORK_GROUP_SIZE = 0x1004,
  CL_DEVICE_MAX_MEM_ALLOC_SIZE = 0x1010,
  CL_DEVICE_IMAGE_SUPPORT = 0x1016,
  CL_DEVICE_MAX_PARAMETER_SIZE = 0x1017,
  CL_DEVICE_MEM_BASE_ADDR_ALIGN = 0x1019, /* bits */
  CL_DEVICE_LOCAL_MEM_SIZE = 0x1023,
  CL_DEVICE_ENDIAN_LITTLE = 0x1026,
  CL_DEVICE_AVAILABLE = 0x1027,
  CL_DEVICE_COMPILER_AVAILABLE = 0x1028,
  CL_DEVICE_NAME = 0x102B,
  CL_DRIVER_VERSION = 0x102D,
  CL_DEVICE_VERSION = 0x102F,
  CL_DEVICE_EXTENSIONS = 0x1030,
  CL_DEVICE_PLATFORM = 0x1031,
  CL_DEVICE_OPENCL_C_VERSION = 0x103D,
  CL_DEVICE_OPENCL_C_ALL_VERSIONS = 0x1066, /* of OpenCL 3.0 */
  /* Of cl_khr_image2d_from_buffer, in pixels. */
  CL_DEVICE_IMAGE_PITCH_ALIGNMENT = 0x104A,
  CL_DEVICE_IMAGE_BASE_ADDRESS_ALIGNMENT = 0x104B
};

/* Of what the application shares. */
enum {
  CL_CONTEXT_DEVICES = 0x1081,
  CL_QUEUE_CONTEXT = 0x1090,
  CL_QUEUE_DEVICE = 0x1091,
  CL_QUEUE_PROPERTIES = 0x1093,
  CL_QUEUE_OUT_OF_ORDER = 1, /* CL_QUEUE_OUT_OF_ORDER_EXEC_MODE_ENABLE */
  CL_MEM_OBJECT_BUFFER = 0x10F0,
  CL_MEM_TYPE = 0x1100,
  CL_MEM_FLAGS = 0x1101,
  CL_MEM_SIZE = 0x1102,
  CL_MEM_CONTEXT = 0x1106
};

/* Of extensions, by their names: properties of contexts and queues, and of memory that is imported. */
enum {
  /* Of cl_nv_device_attribute_query. */
  CL_DEVICE_COMPUTE_CAPABILITY_MAJOR_NV = 0x4000,
  CL_DEVICE_COMPUTE_CAPABILITY_MINOR_NV = 0x4001,
  CL_CONTEXT_PERF_HINT_QCOM = 0x40C2,
  CL_CONTEXT_PRIORITY_HINT_QCOM = 0x40C9,
  CL_QUEUE_PRIORITY_KHR = 0x1096,
  CL_QUEUE_THROTTLE_KHR = 0x1097,
  CL_DEVICE_SCHEDULING_CONTROLS_CAPABILITIES_ARM = 0x41E4,
  CL_DEVICE_SCHEDULING_KERNEL_BATCHING_ARM = 1,
  CL_QUEUE_KERNEL_BATCHING_ARM = 0x41E7,
  CL_IMPORT_TYPE_ARM = 0x40B2,
  CL_IMPORT_TYPE_ANDROID_HARDWARE_BUFFER_ARM = 0x41E2,
  CL_MEM_EXT_HOST_PTR_QCOM = 1 << 29,
  CL_MEM_HOST_WRITEBACK_QCOM = 0x40A5,
  CL_MEM_HOST_IOCOHERENT_QCOM = 0x40A9,
  CL_MEM_ANDROID_AHARDWAREBUFFER_HOST_PTR_QCOM = 0x4119
};

enum {
  CL_MEM_READ_WRITE = 1,
  CL_MEM_WRITE_ONLY = 2,
  CL_MEM_READ_ONLY = 4,
  CL_MEM_USE_HOST_PTR = 8,
  CL_MEM_COPY_HOST_PTR = 32,
  CL_MEM_OBJECT_IMAGE2D = 0x10F1,
  CL_BUFFER_CREATE_TYPE_REGION = 0x1220,
  CL_RGBA = 0x10B5,
  CL_HALF_FLOAT = 0x10DD,
  CL_FLOAT = 0x10DE,
  CL_PROGRAM_BINARY_SIZES = 0x1165,
  CL_PROGRAM_BINARIES = 0x1166,
  CL_PROGRAM_BUILD_LOG = 0x1183,
  CL_KERNEL_WORK_GROUP_SIZE = 0x11B0,
  CL_KERNEL_LOCAL_MEM_SIZE = 0x11B2,
  CL_EVENT_COMMAND_EXECUTION_STATUS = 0x11D3,
  CL_PROFILING_COMMAND_START = 0x1282,
  CL_PROFILING_COMMAND_END = 0x1283,
  CL_QUEUE_PROFILING_ENABLE = 2,
  CL_COMPLETE = 0
};

/* What a pixel holds. */
typedef struct cl_image_format {
  uint32_t order, type;
} cl_image_format;

/* A range of a buffer. */
typedef struct cl_buffer_region {
  size_t origin, size;
} cl_buffer_region;

/* What an image is; `memory` is the buffer that it lies in, or NULL. */
typedef struct cl_image_desc {
  uint32_t type;
  size_t width, height, depth, array_size, row_pitch, slice_pitch;
  uint32_t levels, samples;
  cl_mem memory;
} cl_image_desc;

/* X(name, result, arguments) for each function. */
#define OPENCL_FUNCTIONS(X)                                                                                   \
  X(clGetPlatformIDs, int32_t, (uint32_t, cl_platform *, uint32_t *))                                         \
  X(clGetDeviceIDs, int32_t, (cl_platform, uint64_t, uint32_t, cl_device *, uint32_t *))                      \
  X(clGetDeviceInfo, int32_t, (cl_device, uint32_t, size_t, void *, size_t *))                                \
  X(clGetExtensionFunctionAddressForPlatform, void *, (cl_platform, const char *))                            \
  X(clCreateContext, cl_context,                                                                              \
    (const intptr_t *, uint32_t, const cl_device *, void (*)(const char *, const void *, size_t, void *),     \
     void *, int32_t *))                                                                                      \
  X(clReleaseContext, int32_t, (cl_context))                                                                  \
  X(clRetainContext, int32_t, (cl_context))                                                                   \
  X(clGetContextInfo, int32_t, (cl_context, uint32_t, size_t, void *, size_t *))                              \
  X(clCreateCommandQueue, cl_queue, (cl_context, cl_device, uint64_t, int32_t *))                             \
  X(clReleaseCommandQueue, int32_t, (cl_queue))                                                               \
  X(clRetainCommandQueue, int32_t, (cl_queue))                                                                \
  X(clGetCommandQueueInfo, int32_t, (cl_queue, uint32_t, size_t, void *, size_t *))                           \
  X(clCreateBuffer, cl_mem, (cl_context, uint64_t, size_t, void *, int32_t *))                                \
  X(clCreateSubBuffer, cl_mem, (cl_mem, uint64_t, uint32_t, const void *, int32_t *))                           \
  X(clCreateImage, cl_mem,                                                                                    \
    (cl_context, uint64_t, const cl_image_format *, const cl_image_desc *, void *, int32_t *))                \
  X(clEnqueueReadImage, int32_t,                                                                              \
    (cl_queue, cl_mem, uint32_t, const size_t *, const size_t *, size_t, size_t, void *, uint32_t,            \
     const cl_event *, cl_event *))                                                                           \
  X(clReleaseMemObject, int32_t, (cl_mem))                                                                    \
  X(clRetainMemObject, int32_t, (cl_mem))                                                                     \
  X(clGetMemObjectInfo, int32_t, (cl_mem, uint32_t, size_t, void *, size_t *))                                \
  X(clCreateProgramWithSource, cl_program,                                                                    \
    (cl_context, uint32_t, const char **, const size_t *, int32_t *))                                         \
  X(clCreateProgramWithBinary, cl_program,                                                                    \
    (cl_context, uint32_t, const cl_device *, const size_t *, const unsigned char **, int32_t *, int32_t *))  \
  X(clBuildProgram, int32_t,                                                                                  \
    (cl_program, uint32_t, const cl_device *, const char *, void (*)(cl_program, void *), void *))            \
  X(clGetProgramInfo, int32_t, (cl_program, uint32_t, size_t, void *, size_t *))                              \
  X(clGetProgramBuildInfo, int32_t, (cl_program, cl_device, uint32_t, size_t, void *, size_t *))              \
  X(clReleaseProgram, int32_t, (cl_program))                                                                  \
  X(clCreateKernel, cl_kernel, (cl_program, const char *, int32_t *))                                         \
  X(clSetKernelArg, int32_t, (cl_kernel, uint32_t, size_t, const void *))                                     \
  X(clGetKernelWorkGroupInfo, int32_t, (cl_kernel, cl_device, uint32_t, size_t, void *, size_t *))            \
  X(clReleaseKernel, int32_t, (cl_kernel))                                                                    \
  X(clEnqueueNDRangeKernel, int32_t,                                                                          \
    (cl_queue, cl_kernel, uint32_t, const size_t *, const size_t *, const size_t *, uint32_t,                 \
     const cl_event *, cl_event *))                                                                           \
  X(clEnqueueWriteBuffer, int32_t,                                                                            \
    (cl_queue, cl_mem, uint32_t, size_t, size_t, const void *, uint32_t, const cl_event *, cl_event *))       \
  X(clEnqueueReadBuffer, int32_t,                                                                             \
    (cl_queue, cl_mem, uint32_t, size_t, size_t, void *, uint32_t, const cl_event *, cl_event *))             \
  X(clEnqueueFillBuffer, int32_t,                                                                             \
    (cl_queue, cl_mem, const void *, size_t, size_t, size_t, uint32_t, const cl_event *, cl_event *))         \
  X(clEnqueueMarkerWithWaitList, int32_t, (cl_queue, uint32_t, const cl_event *, cl_event *))                 \
  X(clGetEventInfo, int32_t, (cl_event, uint32_t, size_t, void *, size_t *))                                  \
  X(clSetEventCallback, int32_t, (cl_event, int32_t, void (*)(cl_event, int32_t, void *), void *))            \
  X(clGetEventProfilingInfo, int32_t, (cl_event, uint32_t, size_t, void *, size_t *))                         \
  X(clWaitForEvents, int32_t, (uint32_t, const cl_event *))                                                   \
  X(clReleaseEvent, int32_t, (cl_event))                                                                      \
  X(clFlush, int32_t, (cl_queue))                                                                             \
  X(clFinish, int32_t, (cl_queue))

#define OPENCL_POINTER(name, result, arguments) result(*name) arguments;

typedef struct opencl_functions {
  OPENCL_FUNCTIONS(OPENCL_POINTER)
} opencl_functions;

#endif
