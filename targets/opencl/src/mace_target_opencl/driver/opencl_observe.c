/* opencl_observe.c - runs a part call by call, and shows what each wrote first and how long the device took.
 *
 * Each result is read as soon as its call has ended: later calls may reuse its memory.
 */
#include <stdlib.h>

#include "opencl_part.h"

cl_queue mace_opencl_find_queue(mace_device *device) {
  int32_t code = 0;
  if (!device->profiling)
    device->profiling =
        device->cl.clCreateCommandQueue(device->context, device->id, CL_QUEUE_PROFILING_ENABLE, &code);
  return device->profiling ? device->profiling : device->queue;
}

uint64_t mace_opencl_read_time(const mace_device *device, cl_event event) {
  uint64_t start = 0, end = 0;
  if (device->cl.clGetEventProfilingInfo(event, CL_PROFILING_COMMAND_START, sizeof start, &start, NULL)) return 0;
  if (device->cl.clGetEventProfilingInfo(event, CL_PROFILING_COMMAND_END, sizeof end, &end, NULL)) return 0;
  return end > start ? end - start : 0;
}

/* What a call writes first. */
static const opencl_operand *find_result(const mace_loaded *part, uint32_t number) {
  const opencl_call *const call = &part->blob.calls[number];
  return &part->blob.operands[call->first + call->reads];
}

static int32_t read_result(const mace_loaded *part, const opencl_operand *result, const mace_binding *ports,
                           cl_queue queue, void *to) {
  if (result->binding == OPENCL_IMAGE) return mace_opencl_read_image(part, result->offset, queue, to);
  if (result->binding == OPENCL_POOL)
    return part->device->cl.clEnqueueReadBuffer(queue, part->device->pool, 1,
                                                (size_t)mace_opencl_offset_in_pool(part, result),
                                                (size_t)result->bytes, to, 0, NULL, NULL);
  const mace_binding *const port = &ports[result->binding];
  const mace_buffer *const buffer = &port->memory->buffer;
  const size_t offset = (size_t)result->offset + buffer->offset + port->offset;
  return part->device->cl.clEnqueueReadBuffer(queue, mace_opencl_memory(port->memory), 1, offset,
                                              (size_t)result->bytes, to, 0, NULL, NULL);
}

/* Compute one call, and read its result. */
static mace_status run_call(const mace_loaded *part, uint32_t number, const mace_binding *ports,
                            const mace_observer *observer, char *memory, mace_text text) {
  mace_device *const device = part->device;
  const opencl_operand *const result = find_result(part, number);
  const cl_queue queue = mace_opencl_find_queue(device);
  cl_event event = NULL;
  const char *function = "clEnqueueNDRangeKernel";
  int32_t code = mace_opencl_enqueue(part, number, queue, &event);
  if (!code) {
    function = "clEnqueueReadBuffer";
    code = result->bytes ? read_result(part, result, ports, queue, memory) : device->cl.clFinish(queue);
  }
  const uint64_t ns = code ? 0 : mace_opencl_read_time(device, event);
  if (event) device->cl.clReleaseEvent(event);
  if (code) return mace_opencl_judge(MACE_FAILED, function, code, text);
  const mace_status status = mace_opencl_find_fault(part, text);
  if (!status) observer->see(observer->context, (int32_t)number, memory, ns);
  return status;
}

mace_status mace_opencl_observe(mace_loaded *part, const mace_binding *ports, const mace_observer *observer,
                                mace_text text) {
  const uint32_t calls = part->blob.header->calls;
  uint64_t largest = 1;
  mace_status status = mace_opencl_bind(part, ports, text);
  for (uint32_t i = 0; i < calls; i++)
    if (find_result(part, i)->bytes > largest) largest = find_result(part, i)->bytes;
  char *const memory = malloc((size_t)largest);
  /* Copies that were begun, and what the application has enqueued in the queue that it shares, are in that
   * queue: these calls, in another one, need their results. */
  if (!status) part->device->cl.clFinish(part->device->queue);
  if (!memory) return mace_say(text, MACE_FAILED, "out of memory for a layer; run without an observer");
  for (uint32_t i = 0; !status && i < calls; i++) status = run_call(part, i, ports, observer, memory, text);
  /* Also after a failure: a call that was enqueued before it uses the ports. */
  if (status && status != MACE_LOST) part->device->cl.clFinish(mace_opencl_find_queue(part->device));
  free(memory);
  return status;
}
