/* mdla_network.c - checks networks before the driver uses them. A network comes from a file that anybody may
 * have changed, and its numbers become addresses. */
#include "mdla_network.h"

#include <string.h>

#if defined(__BYTE_ORDER__) && __BYTE_ORDER__ != __ORDER_LITTLE_ENDIAN__
#error "networks of MDLA are read in place, on little-endian processors"
#endif

_Static_assert(sizeof(mdla_header) == 80, "network.py packs headers of 80 bytes");
_Static_assert(sizeof(mdla_operand) == 48, "network.py packs operands of 48 bytes");
_Static_assert(sizeof(mdla_operation) == 24, "network.py packs operations of 24 bytes");

/* CRC-32 with the polynomial of zlib, by half bytes: the table is 64 bytes, and weights are megabytes. */
static uint32_t sum(const unsigned char *at, size_t count) {
  static const uint32_t table[16] = {0x00000000, 0x1db71064, 0x3b6e20c8, 0x26d930ac, 0x76dc4190, 0x6b6b51f4,
                                     0x4db26158, 0x5005713c, 0xedb88320, 0xf00f9344, 0xd6d6a3e8, 0xcb61b38c,
                                     0x9b64c2b0, 0x86d3d2d4, 0xa00ae278, 0xbdbdf21c};
  uint32_t crc = 0xffffffff;
  for (size_t i = 0; i < count; i++) {
    crc ^= at[i];
    crc = crc >> 4 ^ table[crc & 15];
    crc = crc >> 4 ^ table[crc & 15];
  }
  return ~crc;
}

/* Whether `count` elements from number `first` on lie among `all`. */
static int fits(uint64_t first, uint64_t count, uint64_t all) { return count <= all && first <= all - count; }

static int is_list(const mdla_network *network, uint32_t first, uint32_t count) {
  const mdla_header *header = network->header;
  if (!fits(first, count, header->words)) return 0;
  for (uint32_t i = 0; i < count; i++)
    if (network->words[first + i] >= header->operands) return 0;
  return 1;
}

static int is_operand(const mdla_network *network, const mdla_operand *operand) {
  const mdla_header *header = network->header;
  return operand->rank <= MDLA_MAX_RANK && fits(operand->shape, operand->rank, header->words) &&
         fits(operand->scales, operand->scale_count, header->words) &&
         fits(operand->offset, operand->bytes, header->data_bytes);
}

static int is_operation(const mdla_network *network, const mdla_operation *operation) {
  return is_list(network, operation->inputs, operation->input_count) &&
         is_list(network, operation->outputs, operation->output_count) &&
         operation->name < network->header->data_bytes;
}

static const char *check_tables(const mdla_network *network) {
  const mdla_header *header = network->header;
  const uint64_t ports = (uint64_t)header->inputs + header->outputs;
  if (header->kind != MDLA_OPERATIONS) return header->data_bytes ? NULL : "it holds nothing";
  if (ports > header->words || !is_list(network, 0, (uint32_t)ports)) return "a port is no operand";
  for (uint32_t i = 0; i < header->operands; i++)
    if (!is_operand(network, &network->operands[i])) return "an operand lies outside of it";
  for (uint32_t i = 0; i < header->operations; i++)
    if (!is_operation(network, &network->operations[i])) return "an operation lies outside of it";
  /* Names end where the data end at the latest. */
  if (header->operations && network->data[header->data_bytes - 1]) return "a name has no end";
  return NULL;
}

const char *mace_mdla_read(const void *bytes, size_t count, mdla_network *network) {
  const mdla_header *header = bytes;
  const size_t checked = offsetof(mdla_header, bytes);
  uint64_t tables;
  if ((uintptr_t)bytes % sizeof(uint64_t)) return "its memory is not aligned to 8 bytes";
  if (count < sizeof *header || memcmp(header->magic, "MACEMDLA", sizeof header->magic))
    return "it is no network of mace-target-mdla";
  if (header->version != MDLA_VERSION) return "another version of mace-target-mdla wrote it";
  if (header->bytes != count) return "it is cut short";
  if (header->checksum != sum((const unsigned char *)bytes + checked, count - checked))
    return "its checksum is wrong";
  if (header->kind > MDLA_DLA) return "its kind is unknown";
  tables = sizeof *header + (uint64_t)header->operands * sizeof(mdla_operand) +
           (uint64_t)header->operations * sizeof(mdla_operation) + (uint64_t)header->words * sizeof(uint32_t);
  if (tables > header->start || !fits(header->start, header->data_bytes, count))
    return "a table lies outside of it";
  network->header = header;
  network->operands = (const mdla_operand *)(header + 1);
  network->operations = (const mdla_operation *)(network->operands + header->operands);
  network->words = (const uint32_t *)(network->operations + header->operations);
  network->data = (const char *)bytes + header->start;
  return check_tables(network);
}
