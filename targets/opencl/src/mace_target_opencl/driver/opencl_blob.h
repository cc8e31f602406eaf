/* opencl_blob.h - kernels and calls of a part, as `blob.py` writes them. */
#ifndef MACE_OPENCL_BLOB_H
#define MACE_OPENCL_BLOB_H

#include "driver.h"

enum {
  OPENCL_MAGIC = 0x4C434F4D,
  OPENCL_VERSION = 3,
  OPENCL_WEIGHTS = -1,
  OPENCL_IMAGE = -2,
  OPENCL_POOL = -3,
  OPENCL_OPERANDS = 64,
  OPENCL_MAX_SIDE = 8192, /* pixels: the minimum of the full profile of OpenCL 1.2 */
  OPENCL_PITCH = 64,      /* pixels: rows of images in the pool begin at multiples of it */
  OPENCL_ORIGIN = 1024    /* bytes: images in the pool begin at multiples of it */
};

/* Flags of a part. NEEDS_HALF: the kernels compute in half precision. CHECKED: each kernel tests where it reads
 * and writes, and has two more arguments: where to note what was wrong, and the number of the call. BRIEF: long
 * kernels are cut into slices. DOTS: kernels multiply bytes four at a time, which devices may have an instruction
 * for. */
enum {
  OPENCL_NEEDS_HALF = 1,
  OPENCL_CHECKED = 2,
  OPENCL_BRIEF = 4,
  OPENCL_DOTS = 8,
  OPENCL_FLAGS = OPENCL_NEEDS_HALF | OPENCL_CHECKED | OPENCL_BRIEF | OPENCL_DOTS
};

typedef struct opencl_header {
  uint32_t magic, version, flags;
  uint32_t bindings; /* ports of the part, then scratch if it has any */
  uint32_t kernels, calls, operands;
  uint32_t name_bytes, option_bytes; /* each text ends with a 0 */
  uint32_t source_bytes;             /* inflated, without an end */
  uint32_t deflated_bytes;
  uint32_t window; /* most calls that wait in the queue; 0: no limit */
  uint32_t images, padding;
  /* Memory of the driver's own for tensors that pass between calls, where some lie in images: with the images in
   * it, and without them. 0: there are no such images, and a port of the part is the memory. */
  uint64_t pool_bytes, apart_bytes;
} opencl_header;

typedef struct opencl_call {
  uint32_t kernel;
  uint32_t reads;           /* operands that are read; what is written follows them */
  uint32_t first, operands; /* of the table of operands */
  uint64_t global[3], local[3]; /* local 0: the device chooses */
} opencl_call;

typedef struct opencl_operand {
  int32_t binding; /* a port, OPENCL_WEIGHTS, OPENCL_IMAGE or OPENCL_POOL */
  uint32_t unit;   /* bytes of an element */
  uint64_t offset, bytes; /* offset of an image: its number */
  uint64_t apart;         /* offset in a pool without images */
} opencl_operand;

/* A tensor [rows][columns][quads * 4] in an image with `rows` rows of quads * columns pixels, whose column is
 * quad * columns + column. */
typedef struct opencl_image {
  uint32_t rows, columns, quads;
  uint32_t unit; /* bytes of an element: 2 or 4 */
  uint32_t slot; /* the first tensor of the image that it lies in, where images lie outside of the pool */
  uint32_t is_constant;
  uint32_t pitch, padding; /* pitch: pixels from row to row in the pool; 0 of a constant */
  uint64_t offset; /* in the pool; of a constant: among the weights, behind those of the buffer */
} opencl_image;

/* Where the tables of a part lie in its payload. */
typedef struct opencl_blob {
  const opencl_header *header;
  const opencl_call *calls;
  const opencl_operand *operands;
  const opencl_image *images;
  const uint32_t *name_offsets; /* by kernel */
  const uint32_t *labels;       /* by operand: its name and its tensor's, in names; NULL unless CHECKED */
  const char *names, *options;
  const unsigned char *deflated;
} opencl_blob;

/* Find the tables and check every number in them against the payload; NULL, or what is wrong. */
const char *mace_opencl_read(const mace_payload *payload, opencl_blob *blob);

/* Calls and images of a payload that nobody has checked yet: no more than its bytes can hold. */
uint32_t mace_opencl_count_calls(const mace_payload *payload);
uint32_t mace_opencl_count_images(const mace_payload *payload);

/* Write exactly `size` bytes that a raw stream of DEFLATE (RFC 1951) stands for; 0 if it stands for another
 * number of bytes, or is damaged. */
int mace_opencl_inflate(const unsigned char *deflated, size_t bytes, char *to, size_t size);

#endif
