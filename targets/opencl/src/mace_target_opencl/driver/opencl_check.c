/* opencl_check.c - what kernels of a check build note of accesses outside of their tensors.
 *
 * A kernel notes the first one: the number of the call and 1, the operand, and the element's index in two
 * halves. Behind that lies memory that all such accesses go to in place of the tensor, so that none of them
 * reaches what it must not; see bounds.py.
 */
#include <string.h>

#include "opencl_part.h"

enum { FAULT_WORDS = 4, FAULT_BYTES = 128 };

mace_status mace_opencl_prepare_check(mace_loaded *part, mace_text text) {
  mace_device *const device = part->device;
  char zeros[FAULT_BYTES];
  int32_t code = 0;
  if (!(part->blob.header->flags & OPENCL_CHECKED)) return MACE_OK;
  memset(zeros, 0, sizeof zeros);
  part->faults = device->cl.clCreateBuffer(device->context, CL_MEM_READ_WRITE | CL_MEM_COPY_HOST_PTR, FAULT_BYTES,
                                           zeros, &code);
  return part->faults ? MACE_OK : mace_opencl_judge(MACE_FAILED, "clCreateBuffer for checks", code, text);
}

int32_t mace_opencl_set_check(const mace_loaded *part, uint32_t number) {
  const opencl_functions *const cl = &part->device->cl;
  const uint32_t argument = 2 * part->blob.calls[number].operands;
  const int32_t call = (int32_t)number;
  int32_t code;
  if (!part->faults) return CL_SUCCESS;
  code = cl->clSetKernelArg(part->kernels[number], argument, sizeof part->faults, &part->faults);
  return code ? code : cl->clSetKernelArg(part->kernels[number], argument + 1, sizeof call, &call);
}

/* Say which element of which tensor a call wanted. */
static mace_status tell_fault(const mace_loaded *part, const int32_t *fault, mace_text text) {
  const opencl_blob *const blob = &part->blob;
  const uint32_t number = (uint32_t)fault[0] - 1, position = (uint32_t)fault[1];
  const long long index = (long long)((uint64_t)(uint32_t)fault[3] << 32 | (uint32_t)fault[2]);
  if (number >= blob->header->calls || position >= blob->calls[number].operands)
    return mace_say(text, MACE_FAILED, "a kernel wrote over the memory for faults; report this");
  const opencl_call *const call = &blob->calls[number];
  const opencl_operand *const operand = &blob->operands[call->first + position];
  return mace_say(text, MACE_FAILED,
                  "kernel %s %s element %lld of %s, which has %llu; report this with the model",
                  blob->names + blob->name_offsets[call->kernel], position < call->reads ? "reads" : "reaches",
                  index, blob->names + blob->labels[call->first + position],
                  (unsigned long long)(operand->bytes / operand->unit));
}

mace_status mace_opencl_find_fault(const mace_loaded *part, mace_text text) {
  const mace_device *const device = part->device;
  static const int32_t none[FAULT_WORDS];
  int32_t fault[FAULT_WORDS] = {0}, code;
  if (!part->faults) return MACE_OK;
  code = device->cl.clEnqueueReadBuffer(device->queue, part->faults, 1, 0, sizeof fault, fault, 0, NULL, NULL);
  if (!code && fault[0])
    code = device->cl.clEnqueueWriteBuffer(device->queue, part->faults, 1, 0, sizeof none, none, 0, NULL, NULL);
  if (code) return mace_opencl_judge(MACE_FAILED, "reading the faults", code, text);
  return fault[0] ? tell_fault(part, fault, text) : MACE_OK;
}
