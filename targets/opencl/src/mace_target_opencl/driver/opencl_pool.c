/* opencl_pool.c - the memory that the tensors between the calls of a part share, where some lie in images.
 *
 * With cl_khr_image2d_from_buffer an image is a range of a buffer, so that tensors in images and in buffers share
 * one memory, placed when the library is built. The rows of such an image and its first byte must lie where the
 * device wants them; the build places them for devices that want no more than OPENCL_PITCH and OPENCL_ORIGIN.
 * Elsewhere images have memory of their own, and the pool holds the tensors in buffers alone.
 *
 * The calls of all parts of a session are computed in one queue, one after another, so that they share one pool.
 */
#include <string.h>

#include "opencl_part.h"

static uint32_t read_number(const mace_device *device, uint32_t what) {
  uint32_t value = 0;
  return device->cl.clGetDeviceInfo(device->id, what, sizeof value, &value, NULL) ? 0 : value;
}

static int divides(uint64_t divisor, uint64_t value) { return divisor && value % divisor == 0; }

/* Whether the images of a part can lie in the pool. */
static int can_pool(const mace_loaded *part) {
  const mace_device *const device = part->device;
  const opencl_blob *const blob = &part->blob;
  const uint32_t pitch = read_number(device, CL_DEVICE_IMAGE_PITCH_ALIGNMENT);
  const uint32_t origin = read_number(device, CL_DEVICE_IMAGE_BASE_ADDRESS_ALIGNMENT);
  const uint32_t range = read_number(device, CL_DEVICE_MEM_BASE_ADDR_ALIGN) / 8;
  if (!mace_opencl_has_extension(device, "cl_khr_image2d_from_buffer")) return 0;
  if (device->largest && blob->header->pool_bytes > device->largest) return 0;
  if (!divides(pitch, OPENCL_PITCH) || !divides(range, OPENCL_ORIGIN)) return 0;
  for (uint32_t i = 0; i < blob->header->images; i++)
    if (!blob->images[i].is_constant && !divides((uint64_t)origin * 4 * blob->images[i].unit, OPENCL_ORIGIN)) return 0;
  return 1;
}

/* Let the device have a pool of these bytes at least. */
static mace_status grow_pool(mace_device *device, uint64_t bytes, mace_text text) {
  cl_mem made;
  int32_t code = 0;
  if (bytes <= device->pool_bytes) return MACE_OK;
  if (device->largest && bytes > device->largest)
    return mace_say(text, MACE_FAILED, "%llu bytes are needed, and buffers of the device have at most %llu; "
                    "make the model smaller", (unsigned long long)bytes, (unsigned long long)device->largest);
  made = device->cl.clCreateBuffer(device->context, CL_MEM_READ_WRITE, (size_t)bytes, NULL, &code);
  if (!made) return mace_opencl_judge(MACE_FAILED, "clCreateBuffer for a pool", code, text);
  /* Images of other parts that lie in the old one hold it until those parts are bound again. */
  if (device->pool) device->cl.clReleaseMemObject(device->pool);
  device->pool = made;
  device->pool_bytes = (size_t)bytes;
  device->pools++;
  return MACE_OK;
}

/* Make the image of a tensor in its range of the pool. */
static int32_t place_image(mace_loaded *part, uint32_t number) {
  const opencl_functions *const cl = &part->device->cl;
  const opencl_image *const image = &part->blob.images[number];
  const cl_image_format format = {CL_RGBA, image->unit == 2 ? CL_HALF_FLOAT : CL_FLOAT};
  const size_t pitch = (size_t)image->pitch * 4 * image->unit;
  const cl_buffer_region region = {(size_t)image->offset, pitch * image->rows};
  cl_image_desc shape = {.type = CL_MEM_OBJECT_IMAGE2D};
  int32_t code = 0;
  part->ranges[number] =
      cl->clCreateSubBuffer(part->device->pool, CL_MEM_READ_WRITE, CL_BUFFER_CREATE_TYPE_REGION, &region, &code);
  if (!part->ranges[number]) return code;
  shape.width = (size_t)image->columns * image->quads;
  shape.height = image->rows;
  shape.row_pitch = pitch;
  shape.memory = part->ranges[number];
  part->images[number] = cl->clCreateImage(part->device->context, CL_MEM_READ_WRITE, &format, &shape, NULL, &code);
  return part->images[number] ? CL_SUCCESS : code;
}

mace_status mace_opencl_place_images(mace_loaded *part, mace_text text) {
  if (!part->blob.header->pool_bytes || part->pool == part->device->pools) return MACE_OK;
  for (uint32_t i = 0; part->is_pooled && i < part->blob.header->images; i++) {
    if (part->blob.images[i].is_constant) continue;
    mace_opencl_release_image(part, i);
    const int32_t code = place_image(part, i);
    if (code) return mace_opencl_judge(MACE_FAILED, "an image in the pool", code, text);
  }
  part->pool = part->device->pools;
  return MACE_OK;
}

uint64_t mace_opencl_offset_in_pool(const mace_loaded *part, const opencl_operand *operand) {
  return part->is_pooled ? operand->offset : operand->apart;
}

mace_status mace_opencl_make_pool(mace_loaded *part, mace_text text) {
  const opencl_header *const header = part->blob.header;
  mace_status status;
  if (!header->pool_bytes) return MACE_OK;
  part->is_pooled = can_pool(part);
  if (part->is_pooled) {
    status = grow_pool(part->device, header->pool_bytes, text);
    if (!status) status = mace_opencl_place_images(part, text);
    if (!status) return MACE_OK;
    /* A device may have reasons that no number of it tells; with memory of their own the images may fit. */
    mace_opencl_release_images(part);
    part->is_pooled = 0;
  }
  status = grow_pool(part->device, header->apart_bytes, text);
  return status ? status : mace_opencl_place_images(part, text);
}
