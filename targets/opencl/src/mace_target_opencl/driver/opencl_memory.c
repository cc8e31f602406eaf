/* opencl_memory.c - memory of a device: makes it, copies it, and takes buffers of the application as they are.
 *
 * What the application binds is a cl_mem of the session's context, or an AHardwareBuffer that the device
 * imports, by cl_arm_import_memory or cl_qcom_android_ahardwarebuffer_host_ptr.
 */
#include <string.h>

#include "opencl_part.h"

/* What a memory's driver members are: its cl_mem, and the flags with which it was made. */
enum { OWN_MEMORY, OWN_FLAGS };

cl_mem mace_opencl_memory(const mace_memory *memory) {
  return memory->own[OWN_MEMORY] ? memory->own[OWN_MEMORY] : (cl_mem)(uintptr_t)memory->buffer.handle;
}

int mace_opencl_is_forbidden(const mace_memory *memory, uint64_t flag) {
  return ((uintptr_t)memory->own[OWN_FLAGS] & flag) != 0;
}

mace_status mace_opencl_allocate(mace_device *device, const mace_need *need, mace_buffer *buffer,
                                 mace_text text) {
  const size_t granule = need->granule ? need->granule : 1;
  const size_t bytes = (need->bytes + granule - 1) / granule * granule + need->slack;
  int32_t code = 0;
  cl_mem made;
  if (device->largest && bytes > device->largest)
    return mace_say(text, MACE_FAILED, "%zu bytes are needed, and buffers of the device have at most %llu; "
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

void mace_opencl_free(mace_device *device, mace_buffer *buffer) {
  device->cl.clReleaseMemObject((cl_mem)(uintptr_t)buffer->handle);
  buffer->handle = 0;
}

/* ---- copies ---- */

/* Enqueue a copy behind what the queue has; event: NULL to wait until it has ended. */
static mace_status enqueue_copy(mace_device *device, mace_binding to, mace_binding from, size_t bytes,
                                cl_event *event, mace_text text) {
  const opencl_functions *const cl = &device->cl;
  const mace_buffer *const target = &to.memory->buffer, *const source = &from.memory->buffer;
  const size_t target_offset = target->offset + to.offset, source_offset = source->offset + from.offset;
  const char *const function = target->host ? "clEnqueueReadBuffer" : "clEnqueueWriteBuffer";
  int32_t code;
  if (target->host)
    code = cl->clEnqueueReadBuffer(device->queue, mace_opencl_memory(from.memory), !event, source_offset, bytes,
                                   (char *)target->host + target_offset, 0, NULL, event);
  else
    code = cl->clEnqueueWriteBuffer(device->queue, mace_opencl_memory(to.memory), !event, target_offset, bytes,
                                    (const char *)source->host + source_offset, 0, NULL, event);
  return code ? mace_opencl_judge(MACE_FAILED, function, code, text) : MACE_OK;
}

mace_status mace_opencl_copy(mace_device *device, mace_binding to, mace_binding from, size_t bytes,
                             mace_text text) {
  /* OpenCL 1.2 refuses copies of no bytes, and an array without elements may lie nowhere. */
  if (!bytes) return MACE_OK;
  return enqueue_copy(device, to, from, bytes, NULL, text);
}

void mace_opencl_release_copies(mace_device *device) {
  while (device->copying) device->cl.clReleaseEvent(device->copies[--device->copying]);
}

mace_status mace_opencl_finish_copies(mace_device *device, mace_text text) {
  /* Of each event: a queue that is empty does not tell whether what it had was done. */
  const int32_t code = device->copying ? device->cl.clWaitForEvents(device->copying, device->copies) : CL_SUCCESS;
  mace_opencl_release_copies(device);
  if (!code) return MACE_OK;
  const mace_status status = mace_opencl_judge(MACE_FAILED, "clWaitForEvents", code, text);
  if (status != MACE_LOST) device->cl.clFinish(device->queue); /* behind one that failed, others may go on */
  return status;
}

mace_status mace_opencl_begin_copy(mace_device *device, mace_binding to, mace_binding from, size_t bytes,
                                   mace_text text) {
  mace_status status = MACE_OK;
  if (!bytes) return MACE_OK; /* as in mace_opencl_copy */
  if (device->copying == OPENCL_COPIES) status = mace_opencl_finish_copies(device, text);
  if (!status) status = enqueue_copy(device, to, from, bytes, &device->copies[device->copying], text);
  if (!status) device->copying++;
  return status;
}

/* ---- buffers of the application ---- */

/* By cl_arm_import_memory, which wants the size of the whole allocation in place of a number. */
static cl_mem import_by_arm(const mace_device *device, void *hardware, int32_t *code) {
  static const intptr_t properties[] = {CL_IMPORT_TYPE_ARM, CL_IMPORT_TYPE_ANDROID_HARDWARE_BUFFER_ARM, 0};
  cl_mem (*import)(cl_context, uint64_t, const intptr_t *, void *, size_t, int32_t *);
  void *const found = mace_opencl_find_function(device, "clImportMemoryARM");
  *code = CL_INVALID_OPERATION;
  if (!found) return NULL;
  memcpy(&import, &found, sizeof import); /* as in opencl_library.c */
  return import(device->context, CL_MEM_READ_WRITE, properties, hardware, SIZE_MAX, code);
}

/* What clCreateBuffer reads of an AHardwareBuffer with CL_MEM_EXT_HOST_PTR_QCOM: Qualcomm's SDK for Adreno. */
typedef struct opencl_hardware_buffer {
  uint32_t allocation_type, host_cache_policy;
  void *hardware;
} opencl_hardware_buffer;

static cl_mem import_by_qualcomm(const mace_device *device, void *hardware, size_t bytes, int32_t *code) {
  const int is_coherent = mace_opencl_has_extension(device, "cl_qcom_ext_host_ptr_iocoherent");
  opencl_hardware_buffer described = {CL_MEM_ANDROID_AHARDWAREBUFFER_HOST_PTR_QCOM,
                                      is_coherent ? CL_MEM_HOST_IOCOHERENT_QCOM : CL_MEM_HOST_WRITEBACK_QCOM,
                                      hardware};
  const uint64_t flags = CL_MEM_READ_WRITE | CL_MEM_USE_HOST_PTR | CL_MEM_EXT_HOST_PTR_QCOM;
  return device->cl.clCreateBuffer(device->context, flags, bytes, &described, code);
}

static mace_status import_hardware_buffer(mace_device *device, mace_memory *memory, mace_text text) {
  void *const hardware = (void *)(uintptr_t)memory->buffer.handle;
  int32_t code = 0;
  cl_mem made;
  if (mace_opencl_has_extension(device, "cl_arm_import_memory_android_hardware_buffer"))
    made = import_by_arm(device, hardware, &code);
  else if (mace_opencl_has_extension(device, "cl_qcom_android_ahardwarebuffer_host_ptr"))
    made = import_by_qualcomm(device, hardware, memory->buffer.bytes, &code);
  else
    return mace_say(text, MACE_REFUSED,
                    "%.80s imports no AHardwareBuffer, neither as Arm's nor as Qualcomm's do; bind a cl_mem "
                    "or host memory", device->name);
  if (!made) return mace_opencl_judge(MACE_REFUSED, "the import of an AHardwareBuffer", code, text);
  memory->own[OWN_MEMORY] = made;
  return MACE_OK;
}

/* Check that a cl_mem is of the session's context, and large enough; store its flags. */
static mace_status check_memory(const mace_device *device, mace_memory *memory, mace_text text) {
  const opencl_functions *const cl = &device->cl;
  const cl_mem at = memory->own[OWN_MEMORY];
  cl_context context = NULL;
  size_t bytes = 0;
  uint64_t flags = 0;
  uint32_t type = 0;
  int32_t code = cl->clGetMemObjectInfo(at, CL_MEM_TYPE, sizeof type, &type, NULL);
  if (!code) code = cl->clGetMemObjectInfo(at, CL_MEM_CONTEXT, sizeof context, &context, NULL);
  if (!code) code = cl->clGetMemObjectInfo(at, CL_MEM_SIZE, sizeof bytes, &bytes, NULL);
  if (!code) code = cl->clGetMemObjectInfo(at, CL_MEM_FLAGS, sizeof flags, &flags, NULL);
  if (code) return mace_opencl_judge(MACE_REFUSED, "clGetMemObjectInfo", code, text);
  if (type != CL_MEM_OBJECT_BUFFER)
    return mace_say(text, MACE_REFUSED, "the cl_mem is an image or a pipe; give a buffer");
  if (context != device->context)
    return mace_say(text, MACE_REFUSED,
                    "the cl_mem is of another context than the session's; share that context at mace_open, "
                    "as opencl.context of mace_config.native");
  if (bytes < memory->buffer.bytes)
    return mace_say(text, MACE_REFUSED, "the cl_mem has %zu bytes, and %zu are stated; state at most as many",
                    bytes, memory->buffer.bytes);
  memory->own[OWN_FLAGS] = (void *)(uintptr_t)(flags & (CL_MEM_READ_ONLY | CL_MEM_WRITE_ONLY));
  return MACE_OK;
}

mace_status mace_opencl_import(mace_device *device, const mace_need *need, mace_memory *memory, mace_text text) {
  mace_buffer *const buffer = &memory->buffer;
  mace_status status = MACE_OK;
  int32_t code;
  memset(memory->own, 0, sizeof memory->own);
  if (!buffer->handle) return mace_say(text, MACE_REFUSED, "the buffer's handle is 0; give one");
  if (need->alignment && buffer->offset % need->alignment)
    return mace_say(text, MACE_REFUSED, "the tensor begins at %zu in the buffer; begin it at a multiple of %u",
                    buffer->offset, (unsigned)need->alignment);
  if (buffer->kind == MACE_AHARDWAREBUFFER) {
    status = import_hardware_buffer(device, memory, text);
  } else {
    const cl_mem given = (cl_mem)(uintptr_t)buffer->handle;
    code = device->cl.clRetainMemObject(given);
    if (code) return mace_opencl_judge(MACE_REFUSED, "clRetainMemObject", code, text);
    memory->own[OWN_MEMORY] = given;
  }
  if (!status) status = check_memory(device, memory, text);
  if (status) mace_opencl_release(device, memory);
  return status;
}

void mace_opencl_release(mace_device *device, mace_memory *memory) {
  if (memory->own[OWN_MEMORY]) device->cl.clReleaseMemObject(memory->own[OWN_MEMORY]);
  memory->own[OWN_MEMORY] = NULL;
}
