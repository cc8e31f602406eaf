/* mdla_network.h - the bytes of a network; network.py of mace-target-mdla writes them.
 *
 * A header; operands; operations; words, which begin with the operands that are inputs and outputs; data. All
 * numbers are little-endian, as all processors that MDLA sits beside are.
 */
#ifndef MACE_MDLA_NETWORK_H
#define MACE_MDLA_NETWORK_H

#include "driver.h"

enum { MDLA_VERSION = 1, MDLA_MAX_RANK = 8 };

/* How it is loaded: operations that the adapter compiles, what the adapter once compiled, or a file of
 * ncc-tflite. */
enum { MDLA_OPERATIONS, MDLA_COMPILED, MDLA_DLA };

enum { MDLA_RELAX_FLOAT = 1 };

typedef struct mdla_header {
  char magic[8]; /* "MACEMDLA" */
  uint32_t version;
  uint32_t checksum; /* CRC-32 (of zlib) of all that follows */
  uint64_t bytes;
  uint32_t kind, flags;
  uint32_t operands, operations, words, inputs, outputs, reserved;
  uint64_t start, data_bytes; /* of the data */
  uint64_t tflite_bytes;      /* of the TFLite file that the data begin with */
} mdla_header;

typedef struct mdla_operand {
  int32_t type;
  uint32_t rank, shape; /* shape, scales: numbers of words */
  float scale;
  int32_t zero_point;
  uint32_t axis, scales, scale_count;
  uint64_t offset, bytes; /* of a constant in the data; bytes 0: none */
} mdla_operand;

typedef struct mdla_operation {
  int32_t code;
  uint32_t input_count, inputs, output_count, outputs; /* lists of words */
  uint32_t name;                                       /* where its name lies in the data */
} mdla_operation;

/* A network whose bytes have been checked. */
typedef struct mdla_network {
  const mdla_header *header;
  const mdla_operand *operands;
  const mdla_operation *operations;
  const uint32_t *words;
  const char *data;
} mdla_network;

/* Check all that a network says of itself, so that nothing outside of it is ever read. Returns NULL, or what
 * is wrong. */
const char *mace_mdla_read(const void *bytes, size_t count, mdla_network *network);

#endif
