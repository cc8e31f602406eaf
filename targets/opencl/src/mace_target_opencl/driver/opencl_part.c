/* opencl_part.c - compiles the kernels of a part and enqueues its calls. */
#define _POSIX_C_SOURCE 200809L /* nanosleep */
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "opencl_part.h"

static size_t round_up(size_t bytes) {
  return (bytes + sizeof(uint64_t) - 1) / sizeof(uint64_t) * sizeof(uint64_t);
}


size_t mace_opencl_part_bytes(const mace_payload *payload) {
  return round_up(sizeof(mace_loaded)) + sizeof(opencl_argument) * mace_opencl_count_ports(payload) +
         (sizeof(cl_kernel) + sizeof(uint64_t)) * mace_opencl_count_calls(payload) +
         2 * sizeof(cl_mem) * mace_opencl_count_images(payload);
}

/* ---- loading ---- */

static mace_status upload_weights(mace_loaded *part, mace_text text) {
  const mace_payload *const payload = part->payload;
  mace_device *const device = part->device;
  const size_t bytes = mace_opencl_count_weights(part);
  int32_t code = 0;
  if (!bytes) return MACE_OK;
  /* Not CL_MEM_USE_HOST_PTR: the constants of a library lie in memory that nobody may write, and drivers
   * that pin pages want to. */
  part->weights =
      device->cl.clCreateBuffer(device->context, CL_MEM_READ_ONLY | CL_MEM_COPY_HOST_PTR, bytes,
                                (void *)(uintptr_t)payload->weights, &code);
  return part->weights ? MACE_OK : mace_opencl_judge(MACE_FAILED, "clCreateBuffer for weights", code, text);
}

mace_status mace_opencl_load(mace_device *device, const mace_payload *payload, void *memory,
                             mace_loaded **loaded, mace_text text) {
  mace_loaded *const part = memory;
  const char *fault;
  mace_status status;
  memset(part, 0, mace_opencl_part_bytes(payload));
  part->device = device;
  part->payload = payload;
  part->bound = (opencl_argument *)(void *)((char *)memory + round_up(sizeof *part));
  part->slices = (uint64_t *)(void *)(part->bound + mace_opencl_count_ports(payload));
  part->kernels = (cl_kernel *)(void *)(part->slices + mace_opencl_count_calls(payload));
  part->images = (cl_mem *)(void *)(part->kernels + mace_opencl_count_calls(payload));
  part->ranges = part->images + mace_opencl_count_images(payload);
  fault = mace_opencl_read(payload, &part->blob);
  if (fault)
    return mace_say(text, MACE_STALE, "the kernels cannot be used: %s; build the library again", fault);
  if (part->blob.header->flags & OPENCL_NEEDS_HALF && !mace_opencl_has_extension(device, "cl_khr_fp16"))
    return mace_say(text, MACE_NO_DEVICE,
                    "%.80s has no cl_khr_fp16, without which it cannot compute in half precision; build "
                    "the library with arithmetic: f32, or fall back", device->name);
  status = upload_weights(part, text);
  if (!status) status = mace_opencl_make_images(part, text);
  if (!status) status = mace_opencl_prepare_check(part, text);
  if (status)
    mace_opencl_unload(part);
  else
    *loaded = part;
  return status;
}

static void forget_program(mace_loaded *part) {
  const opencl_functions *const cl = &part->device->cl;
  for (uint32_t i = 0; i < part->blob.header->calls; i++) {
    if (part->kernels[i]) cl->clReleaseKernel(part->kernels[i]);
    part->kernels[i] = NULL;
  }
  if (part->program) cl->clReleaseProgram(part->program);
  part->program = NULL;
  mace_opencl_unbind(part);
}

void mace_opencl_unload(mace_loaded *part) {
  const opencl_functions *const cl = &part->device->cl;
  mace_opencl_drop_notice(part);
  if (part->running) cl->clReleaseEvent(part->running);
  part->running = NULL;
  forget_program(part);
  mace_opencl_release_images(part);
  if (part->weights) cl->clReleaseMemObject(part->weights);
  if (part->faults) cl->clReleaseMemObject(part->faults);
  part->weights = part->faults = NULL;
}

/* ---- compiling ---- */

/* Say what the compiler wrote of its first error. */
static mace_status tell_log(const mace_loaded *part, int32_t code, mace_text text) {
  const mace_device *const device = part->device;
  char log[2048] = "";
  size_t bytes = 0;
  const char *at = log;
  char *made = NULL;
  device->cl.clGetProgramBuildInfo(part->program, device->id, CL_PROGRAM_BUILD_LOG, 0, NULL, &bytes);
  if (bytes > sizeof log) made = calloc(1, bytes + 1);
  if (made && !device->cl.clGetProgramBuildInfo(part->program, device->id, CL_PROGRAM_BUILD_LOG, bytes, made, NULL))
    at = made;
  else if (bytes <= sizeof log - 1)
    device->cl.clGetProgramBuildInfo(part->program, device->id, CL_PROGRAM_BUILD_LOG, sizeof log - 1, log, NULL);
  const char *const error = strstr(at, "error");
  if (error) at = error;
  mace_say(text, MACE_FAILED,
           "the device's compiler answered %d: %.*s; report this with the name of the device", code,
           (int)strcspn(at, "\n") < 120 ? (int)strcspn(at, "\n") : 120, at);
  free(made);
  return MACE_FAILED;
}

/* Bytes of a call's arguments: of a buffer pointer and offset, of an image a pointer, of a check build two more.
 * Pointers of the device may be shorter. */
static uint64_t count_argument_bytes(const opencl_blob *blob, const opencl_call *call) {
  uint64_t bytes = blob->header->flags & OPENCL_CHECKED ? sizeof(uint64_t) + sizeof(int32_t) : 0;
  for (uint32_t i = 0; i < call->operands; i++)
    bytes += blob->operands[call->first + i].binding == OPENCL_IMAGE ? sizeof(uint64_t) : 2 * sizeof(uint64_t);
  return bytes;
}

/* Whether the device can compute a call. OpenCL guarantees groups of one work-item, and its embedded profile 1 KiB
 * of local memory and 256 bytes of arguments; what the device does not tell shows in its first run. */
static mace_status check_limits(const mace_loaded *part, uint32_t number, mace_text text) {
  const mace_device *const device = part->device;
  const opencl_functions *const cl = &device->cl;
  const opencl_call *const call = &part->blob.calls[number];
  const char *const name = part->blob.names + part->blob.name_offsets[call->kernel];
  const uint64_t group = call->local[0] * call->local[1] * call->local[2];
  const uint64_t arguments = count_argument_bytes(&part->blob, call);
  const cl_kernel kernel = part->kernels[number];
  size_t most = 0, argument_limit = 0;
  uint64_t local = 0, local_limit = 0;
  if (!cl->clGetKernelWorkGroupInfo(kernel, device->id, CL_KERNEL_WORK_GROUP_SIZE, sizeof most, &most, NULL) &&
      group > most)
    return mace_say(text, MACE_STALE,
                    "kernel %s wants groups of %llu, and the device has at most %zu; build with "
                    "fewer group_items, or tune for the device",
                    name, (unsigned long long)group, most);
  if (!cl->clGetDeviceInfo(device->id, CL_DEVICE_MAX_PARAMETER_SIZE, sizeof argument_limit, &argument_limit, NULL) &&
      arguments > argument_limit)
    return mace_say(text, MACE_NO_DEVICE,
                    "kernel %s has %llu bytes of arguments, and the device takes at most %zu; fall back",
                    name, (unsigned long long)arguments, argument_limit);
  if (!cl->clGetKernelWorkGroupInfo(kernel, device->id, CL_KERNEL_LOCAL_MEM_SIZE, sizeof local, &local, NULL) &&
      !cl->clGetDeviceInfo(device->id, CL_DEVICE_LOCAL_MEM_SIZE, sizeof local_limit, &local_limit, NULL) &&
      local > local_limit)
    return mace_say(text, MACE_NO_DEVICE,
                    "kernel %s wants %llu bytes of local memory, and the device has %llu; fall back", name,
                    (unsigned long long)local, (unsigned long long)local_limit);
  return MACE_OK;
}

/* Build the program and make a kernel for each call. */
static mace_status finish_program(mace_loaded *part, mace_text text) {
  mace_device *const device = part->device;
  const opencl_functions *const cl = &device->cl;
  const opencl_blob *const blob = &part->blob;
  int32_t code = mace_opencl_build_program(part);
  if (code == CL_OUT_OF_HOST_MEMORY || code == CL_DEVICE_NOT_AVAILABLE)
    return mace_opencl_judge(MACE_FAILED, "clBuildProgram", code, text);
  if (code) return tell_log(part, code, text);
  for (uint32_t i = 0; i < blob->header->calls; i++) {
    const char *const name = blob->names + blob->name_offsets[blob->calls[i].kernel];
    mace_status status;
    part->kernels[i] = cl->clCreateKernel(part->program, name, &code);
    if (!part->kernels[i]) return mace_opencl_judge(MACE_FAILED, "clCreateKernel", code, text);
    status = check_limits(part, i, text);
    if (status) return status;
  }
  return MACE_OK;
}

/* Compute the part once with zeros. Some drivers, PoCL among them, compile a kernel when it is enqueued for the
 * first time: what save keeps would lack that, and the first run of each session would take seconds. A device
 * that cannot do it does without; what is wrong with it shows in the first run. */
static void warm_up(mace_loaded *part) {
  const mace_device *const device = part->device;
  const mace_payload *const payload = part->payload;
  const size_t count = mace_opencl_count_ports(payload);
  mace_memory *const memories = calloc(count, sizeof *memories);
  mace_binding *const ports = calloc(count, sizeof *ports);
  const mace_text nowhere = {NULL, 0};
  const uint32_t zero = 0;
  int ready = memories && ports;
  for (size_t i = 0; ready && i < count; i++) {
    const size_t dense =
        i < (size_t)payload->inputs + (size_t)payload->outputs ? payload->ports[i].bytes : payload->scratch.bytes;
    const size_t bytes = (dense + sizeof zero - 1) / sizeof zero * sizeof zero;
    const cl_mem made = bytes ? device->cl.clCreateBuffer(device->context, CL_MEM_READ_WRITE, bytes, NULL, NULL) : NULL;
    memories[i].buffer.handle = (uint64_t)(uintptr_t)made;
    ports[i].memory = &memories[i];
    /* Zeros are valid indices, so that no kernel leaves its tensors. */
    ready = made && !device->cl.clEnqueueFillBuffer(device->queue, made, &zero, sizeof zero, 0, bytes, 0, NULL, NULL);
  }
  if (ready) ready = !mace_opencl_run(part, ports, 0, nowhere);
  if (ready) mace_opencl_measure(part);
  if (!ready) device->cl.clFinish(device->queue); /* of what was enqueued before the fault */
  for (size_t i = 0; memories && i < count; i++)
    if (memories[i].buffer.handle) device->cl.clReleaseMemObject((cl_mem)(uintptr_t)memories[i].buffer.handle);
  free(memories);
  free(ports);
  mace_opencl_unbind(part);
}

mace_status mace_opencl_compile(mace_loaded *part, mace_text text) {
  const opencl_header *const header = part->blob.header;
  mace_device *const device = part->device;
  char *const source = malloc((size_t)header->source_bytes + 1);
  const char *sources[1];
  size_t bytes = header->source_bytes;
  int32_t code = 0;
  mace_status status;
  if (!source) return mace_say(text, MACE_FAILED, "out of memory for %zu bytes of kernels", bytes);
  if (!mace_opencl_inflate(part->blob.deflated, header->deflated_bytes, source, bytes)) {
    free(source);
    return mace_say(text, MACE_STALE, "the kernels cannot be used: they are damaged; build the library again");
  }
  sources[0] = source;
  part->program = device->cl.clCreateProgramWithSource(device->context, 1, sources, &bytes, &code);
  free(source);
  if (!part->program) return mace_opencl_judge(MACE_FAILED, "clCreateProgramWithSource", code, text);
  status = finish_program(part, text);
  if (status)
    forget_program(part);
  else
    warm_up(part);
  return status;
}

mace_status mace_opencl_restore(mace_loaded *part, const void *compiled, size_t bytes, mace_text text) {
  mace_device *const device = part->device;
  const unsigned char *binaries[1] = {compiled};
  int32_t code = 0, loaded = 0;
  mace_status status;
  part->program = device->cl.clCreateProgramWithBinary(device->context, 1, &device->id, &bytes, binaries, &loaded,
                                                       &code);
  if (!part->program || code || loaded) {
    forget_program(part);
    return mace_opencl_judge(MACE_STALE, "clCreateProgramWithBinary", code ? code : loaded, text);
  }
  status = finish_program(part, text);
  if (status)
    forget_program(part);
  else if (mace_opencl_limit_us(part))
    warm_up(part); /* which measures the calls; what the device compiled does not say how long they take */
  return status;
}

size_t mace_opencl_save(mace_loaded *part, void *compiled, size_t bytes) {
  const opencl_functions *const cl = &part->device->cl;
  unsigned char *binaries[1] = {compiled};
  size_t size = 0;
  if (cl->clGetProgramInfo(part->program, CL_PROGRAM_BINARY_SIZES, sizeof size, &size, NULL)) return 0;
  if (!size || bytes < size) return size;
  return cl->clGetProgramInfo(part->program, CL_PROGRAM_BINARIES, sizeof binaries, binaries, NULL) ? 0 : size;
}

/* ---- running ---- */

mace_status mace_opencl_run(mace_loaded *part, const mace_binding *ports, uint32_t timeout_ms, mace_text text) {
  const opencl_functions *const cl = &part->device->cl;
  const mace_status status = mace_opencl_enqueue_calls(part, ports, text);
  /* Also after a failure: calls that were enqueued before it use the ports. */
  const int32_t code = status == MACE_LOST ? CL_SUCCESS : cl->clFinish(part->device->queue);
  (void)timeout_ms; /* the engine refuses a limit, because no kernel can be stopped */
  if (status) return status;
  return code ? mace_opencl_judge(MACE_FAILED, "clFinish", code, text) : mace_opencl_find_fault(part, text);
}

mace_status mace_opencl_submit(mace_loaded *part, const mace_binding *ports, uint32_t timeout_ms,
                               mace_text text) {
  mace_device *const device = part->device;
  mace_status status = mace_opencl_enqueue_calls(part, ports, text);
  int32_t code = CL_SUCCESS;
  (void)timeout_ms;
  if (!status) {
    code = device->cl.clEnqueueMarkerWithWaitList(device->queue, 0, NULL, &part->running);
    if (!code) code = device->cl.clFlush(device->queue);
    if (code) status = mace_opencl_judge(MACE_FAILED, "clEnqueueMarkerWithWaitList", code, text);
  }
  if (status && status != MACE_LOST) device->cl.clFinish(device->queue);
  if (status && part->running) device->cl.clReleaseEvent(part->running);
  if (status) part->running = NULL;
  return status;
}

/* Look every 100 us whether a run has ended: OpenCL has no function that waits for a limited time. */
static int32_t poll(const mace_loaded *part, uint32_t timeout_ms, int32_t *state) {
  const struct timespec pause = {0, 100000};
  for (uint64_t rounds = (uint64_t)timeout_ms * 10;; rounds--) {
    const int32_t code = part->device->cl.clGetEventInfo(part->running, CL_EVENT_COMMAND_EXECUTION_STATUS,
                                                         sizeof *state, state, NULL);
    if (code || *state <= CL_COMPLETE || !rounds) return code;
    nanosleep(&pause, NULL);
  }
}

mace_status mace_opencl_wait(mace_loaded *part, uint32_t timeout_ms, mace_text text) {
  const opencl_functions *const cl = &part->device->cl;
  int32_t state = CL_COMPLETE, code;
  if (timeout_ms == MACE_FOREVER)
    code = cl->clWaitForEvents(1, &part->running);
  else
    code = poll(part, timeout_ms, &state);
  if (!code && state > CL_COMPLETE) return MACE_BUSY;
  mace_opencl_drop_notice(part);
  cl->clReleaseEvent(part->running);
  part->running = NULL;
  if (code || state < 0) return mace_opencl_judge(MACE_FAILED, "the run", code ? code : state, text);
  return mace_opencl_find_fault(part, text);
}
