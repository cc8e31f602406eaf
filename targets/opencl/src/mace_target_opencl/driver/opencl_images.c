/* opencl_images.c - the images of a part: constants, and those that tensors share one after another. Each has
 * four elements in a pixel; see opencl_blob.h for where they lie.
 */
#include <stdlib.h>
#include <string.h>

#include "opencl_part.h"

static size_t width_of(const opencl_image *image) { return (size_t)image->columns * image->quads; }

static size_t bytes_of(const opencl_image *image) { return width_of(image) * image->rows * image->unit * 4; }

size_t mace_opencl_count_weights(const mace_loaded *part) {
  const opencl_blob *const blob = &part->blob;
  size_t bytes = part->payload->weight_bytes;
  for (uint32_t i = 0; i < blob->header->images; i++)
    if (blob->images[i].is_constant && blob->images[i].offset < bytes) bytes = (size_t)blob->images[i].offset;
  return bytes;
}

/* The image of a slot: as large as the largest tensor that lies in it. */
static cl_mem make_image(const mace_loaded *part, uint32_t slot, int32_t *code) {
  const opencl_blob *const blob = &part->blob;
  const opencl_image *const first = &blob->images[slot];
  const cl_image_format format = {CL_RGBA, first->unit == 2 ? CL_HALF_FLOAT : CL_FLOAT};
  cl_image_desc shape = {.type = CL_MEM_OBJECT_IMAGE2D};
  uint64_t flags = CL_MEM_READ_WRITE;
  void *data = NULL;
  for (uint32_t i = slot; i < blob->header->images; i++) {
    const opencl_image *const image = &blob->images[i];
    if (image->slot != slot) continue;
    if (width_of(image) > shape.width) shape.width = width_of(image);
    if (image->rows > shape.height) shape.height = image->rows;
  }
  if (first->is_constant) {
    flags = CL_MEM_READ_ONLY | CL_MEM_COPY_HOST_PTR;
    data = (char *)(uintptr_t)part->payload->weights + first->offset;
  }
  return part->device->cl.clCreateImage(part->device->context, flags, &format, &shape, data, code);
}

mace_status mace_opencl_make_images(mace_loaded *part, mace_text text) {
  mace_device *const device = part->device;
  const opencl_blob *const blob = &part->blob;
  uint32_t has_images = 0;
  if (!blob->header->images) return MACE_OK;
  device->cl.clGetDeviceInfo(device->id, CL_DEVICE_IMAGE_SUPPORT, sizeof has_images, &has_images, NULL);
  if (!has_images)
    return mace_say(text, MACE_NO_DEVICE,
                    "%.80s has no images; build the library with cl_mem_type: buffer, or fall back",
                    device->name);
  const mace_status status = mace_opencl_make_pool(part, text);
  if (status) return status;
  for (uint32_t i = 0; i < blob->header->images; i++) {
    int32_t code = CL_SUCCESS;
    if (part->images[i] || blob->images[i].slot != i) continue;
    part->images[i] = make_image(part, i, &code);
    if (!part->images[i]) return mace_opencl_judge(MACE_FAILED, "clCreateImage", code, text);
  }
  return MACE_OK;
}

void mace_opencl_release_images(mace_loaded *part) {
  for (uint32_t i = 0; i < part->blob.header->images; i++) mace_opencl_release_image(part, i);
}

void mace_opencl_release_image(mace_loaded *part, uint32_t number) {
  const opencl_functions *const cl = &part->device->cl;
  if (part->images[number]) cl->clReleaseMemObject(part->images[number]);
  if (part->ranges[number]) cl->clReleaseMemObject(part->ranges[number]);
  part->images[number] = part->ranges[number] = NULL;
}

/* The image that a tensor lies in: its own, or its slot's. */
static const cl_mem *find_image(const mace_loaded *part, uint64_t number) {
  return &part->images[part->is_pooled ? number : part->blob.images[number].slot];
}

int32_t mace_opencl_set_image(const mace_loaded *part, uint32_t call, uint32_t position, uint64_t number) {
  const cl_mem *const image = find_image(part, number);
  return part->device->cl.clSetKernelArg(part->kernels[call], position, sizeof *image, image);
}

int32_t mace_opencl_read_image(const mace_loaded *part, uint64_t number, cl_queue queue, char *to) {
  const opencl_image *const image = &part->blob.images[number];
  const size_t origin[3] = {0, 0, 0}, region[3] = {width_of(image), image->rows, 1};
  const size_t pixel = 4 * (size_t)image->unit;
  char *const pixels = malloc(bytes_of(image));
  int32_t code;
  if (!pixels) return CL_OUT_OF_HOST_MEMORY;
  code = part->device->cl.clEnqueueReadImage(queue, *find_image(part, number), 1, origin, region, 0, 0, pixels, 0,
                                             NULL, NULL);
  for (size_t row = 0; !code && row < image->rows; row++)
    for (size_t i = 0; i < width_of(image); i++) {
      const size_t column = i % image->quads * image->columns + i / image->quads;
      memcpy(to, pixels + (row * width_of(image) + column) * pixel, pixel);
      to += pixel;
    }
  free(pixels);
  return code;
}
