/* opencl_enqueue.c - gives kernels their arguments and enqueues calls, long ones in slices.
 *
 * A slice computes some of the groups of a call along one axis: the device gets it as work of its own, and can
 * draw the screen in between. Work-items have the numbers that they have in the whole call: get_global_id counts
 * from the slice's offset, and `group` of source.py adds it to get_group_id, which does not.
 */
#define _POSIX_C_SOURCE 200809L /* clock_gettime */
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "opencl_part.h"

enum { AXES = 3, LIMIT_US = 1000 };

size_t mace_opencl_count_ports(const mace_payload *payload) {
  return (size_t)payload->inputs + (size_t)payload->outputs + (payload->scratch.bytes ? 1u : 0u);
}

/* ---- arguments ---- */

/* The memory that a port is bound to, and where its tensor begins. */
static opencl_argument locate(const mace_binding *port) {
  const mace_buffer *const buffer = &port->memory->buffer;
  const opencl_argument at = {mace_opencl_memory(port->memory), buffer->offset + port->offset};
  return at;
}

/* Give a call its arguments: for each operand the buffer, and the place of its first element in it; or its
 * image alone. */
static int32_t set_arguments(const mace_loaded *part, uint32_t number, const mace_binding *ports) {
  const opencl_functions *const cl = &part->device->cl;
  const opencl_call *const call = &part->blob.calls[number];
  uint32_t position = 0;
  for (uint32_t i = 0; i < call->operands; i++) {
    const opencl_operand *const operand = &part->blob.operands[call->first + i];
    opencl_argument at = {part->weights, 0};
    int32_t code;
    if (operand->binding == OPENCL_IMAGE) {
      code = mace_opencl_set_image(part, number, position++, operand->offset);
      if (code) return code;
      continue;
    }
    if (operand->binding == OPENCL_POOL) {
      at.memory = part->device->pool;
      at.offset = mace_opencl_offset_in_pool(part, operand);
    } else {
      if (operand->binding != OPENCL_WEIGHTS) at = locate(&ports[operand->binding]);
      at.offset += operand->offset;
    }
    at.offset /= operand->unit;
    code = cl->clSetKernelArg(part->kernels[number], position++, sizeof at.memory, &at.memory);
    if (!code) code = cl->clSetKernelArg(part->kernels[number], position++, sizeof at.offset, &at.offset);
    if (code) return code;
  }
  return mace_opencl_set_check(part, number);
}

mace_status mace_opencl_bind(mace_loaded *part, const mace_binding *ports, mace_text text) {
  const size_t count = mace_opencl_count_ports(part->payload);
  int same = !part->pool || part->pool == part->device->pools;
  /* Compared by the memory of the device: the application may bind another buffer to the same port. */
  for (size_t i = 0; i < count; i++) {
    const opencl_argument at = locate(&ports[i]);
    same &= part->bound[i].memory == at.memory && part->bound[i].offset == at.offset;
  }
  if (same && count) return MACE_OK;
  for (size_t i = 0; i < count; i++)
    if (mace_opencl_is_forbidden(ports[i].memory, i < (size_t)part->payload->inputs ? CL_MEM_WRITE_ONLY
                                                                                    : CL_MEM_READ_ONLY))
      return mace_say(text, MACE_REFUSED, "the cl_mem of port %zu of the part was made for the other "
                      "direction; make it with CL_MEM_READ_WRITE", i);
  mace_opencl_unbind(part);
  const mace_status status = mace_opencl_place_images(part, text);
  if (status) return status;
  for (uint32_t i = 0; i < part->blob.header->calls; i++) {
    const int32_t code = set_arguments(part, i, ports);
    if (code) return mace_opencl_judge(MACE_FAILED, "clSetKernelArg", code, text);
  }
  for (size_t i = 0; i < count; i++) part->bound[i] = locate(&ports[i]);
  return MACE_OK;
}

void mace_opencl_unbind(mace_loaded *part) {
  memset(part->bound, 0, sizeof *part->bound * mace_opencl_count_ports(part->payload));
}

/* ---- calls ---- */

int32_t mace_opencl_enqueue(const mace_loaded *part, uint32_t number, cl_queue queue, cl_event *event) {
  const opencl_call *const call = &part->blob.calls[number];
  const size_t global[AXES] = {(size_t)call->global[0], (size_t)call->global[1], (size_t)call->global[2]};
  const size_t local[AXES] = {(size_t)call->local[0], (size_t)call->local[1], (size_t)call->local[2]};
  return part->device->cl.clEnqueueNDRangeKernel(queue, part->kernels[number], AXES, NULL, global,
                                                 local[0] ? local : NULL, 0, NULL, event);
}

/* Groups of a call along an axis; work-items where the device chooses the groups. */
static uint64_t count_groups(const opencl_call *call, int axis) {
  return call->local[axis] ? call->global[axis] / call->local[axis] : call->global[axis];
}

/* The axis with the most groups, the outermost of equal ones: slices of it lie apart in memory. */
static int choose_axis(const opencl_call *call) {
  int chosen = AXES - 1;
  for (int axis = AXES - 2; axis >= 0; axis--)
    if (count_groups(call, axis) > count_groups(call, chosen)) chosen = axis;
  return chosen;
}

static int32_t enqueue_slices(const mace_loaded *part, uint32_t number) {
  const opencl_functions *const cl = &part->device->cl;
  const opencl_call *const call = &part->blob.calls[number];
  const int axis = choose_axis(call);
  const uint64_t groups = count_groups(call, axis), slices = part->slices[number];
  const uint64_t items = call->global[axis] / groups;
  size_t offset[AXES] = {0}, global[AXES], local[AXES];
  int32_t code = CL_SUCCESS;
  for (int i = 0; i < AXES; i++) {
    global[i] = (size_t)call->global[i];
    local[i] = (size_t)call->local[i];
  }
  for (uint64_t slice = 0; !code && slice < slices; slice++) {
    const uint64_t first = groups * slice / slices, behind = groups * (slice + 1) / slices;
    offset[axis] = (size_t)(first * items);
    global[axis] = (size_t)((behind - first) * items);
    code = cl->clEnqueueNDRangeKernel(part->device->queue, part->kernels[number], AXES, offset, global,
                                      local[0] ? local : NULL, 0, NULL, NULL);
    /* Drivers hand over what is in the queue as one work, unless they are told to. */
    if (!code) code = cl->clFlush(part->device->queue);
  }
  return code;
}

mace_status mace_opencl_enqueue_calls(mace_loaded *part, const mace_binding *ports, mace_text text) {
  const opencl_functions *const cl = &part->device->cl;
  const opencl_header *const header = part->blob.header;
  const mace_status status = mace_opencl_bind(part, ports, text);
  if (status) return status;
  for (uint32_t i = 0; i < header->calls; i++) {
    int32_t code = part->slices[i] > 1 ? enqueue_slices(part, i)
                                       : mace_opencl_enqueue(part, i, part->device->queue, NULL);
    if (code) return mace_opencl_judge(MACE_FAILED, "clEnqueueNDRangeKernel", code, text);
    if (header->window && (i + 1) % header->window == 0 && i + 1 < header->calls)
      code = cl->clFinish(part->device->queue);
    if (code) return mace_opencl_judge(MACE_FAILED, "clFinish", code, text);
  }
  return MACE_OK;
}

/* ---- the limit of a kernel's time ---- */

uint64_t mace_opencl_limit_us(const mace_loaded *part) {
  const char *const stated = part->device->settings.kernel_us;
  if (*stated) return strtoull(stated, NULL, 10);
  return part->blob.header->flags & OPENCL_BRIEF ? LIMIT_US : 0;
}

static uint64_t read_clock(void) {
  struct timespec time;
  clock_gettime(CLOCK_MONOTONIC, &time);
  return (uint64_t)time.tv_sec * 1000000000u + (uint64_t)time.tv_nsec;
}

/* The nanoseconds of a call by the device's clock, or by the processor's, launch included; 0 if it fails. */
static uint64_t measure_call(const mace_loaded *part, uint32_t number) {
  const opencl_functions *const cl = &part->device->cl;
  const cl_queue queue = mace_opencl_find_queue(part->device);
  cl_event event = NULL;
  const uint64_t start = read_clock();
  uint64_t ns = 0;
  if (mace_opencl_enqueue(part, number, queue, &event)) return 0;
  if (!cl->clFinish(queue)) {
    ns = mace_opencl_read_time(part->device, event);
    if (!ns) ns = read_clock() - start;
  }
  cl->clReleaseEvent(event);
  return ns;
}

void mace_opencl_measure(mace_loaded *part) {
  const uint64_t limit_ns = 1000 * mace_opencl_limit_us(part);
  for (uint32_t i = 0; limit_ns && i < part->blob.header->calls; i++) {
    const opencl_call *const call = &part->blob.calls[i];
    const uint64_t groups = count_groups(call, choose_axis(call));
    const uint64_t wanted = (measure_call(part, i) + limit_ns - 1) / limit_ns;
    part->slices[i] = wanted < groups ? wanted : groups;
  }
}
