/* read_network: `read_network FILE` reads a network, then with every word of its tables changed in several ways and the checksum made right
 * again. What is accepted is walked as the driver walks it, under the address sanitizer. Prints how many were accepted and refused. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "mdla_network.h"

static uint32_t crc(const unsigned char *at, size_t count) {
  uint32_t sum = ~0u;
  for (size_t i = 0; i < count; i++) {
    sum ^= at[i];
    for (int bit = 0; bit < 8; bit++) sum = sum >> 1 ^ (sum & 1 ? 0xedb88320u : 0);
  }
  return ~sum;
}

static unsigned walked;

static void touch(const void *at, size_t bytes) {
  for (size_t i = 0; i < bytes; i++) walked += ((const unsigned char *)at)[i];
}

static void walk(const mdla_network *n) {
  const mdla_header *h = n->header;
  if (h->kind != MDLA_OPERATIONS) {
    touch(n->data, h->data_bytes);
    return;
  }
  touch(n->words, 4ull * (h->inputs + h->outputs));
  for (uint32_t i = 0; i < h->operands; i++) {
    const mdla_operand *o = &n->operands[i];
    touch(n->words + o->shape, o->rank * 4ull);
    touch(n->words + o->scales, o->scale_count * 4ull);
    touch(n->data + o->offset, o->bytes);
  }
  for (uint32_t i = 0; i < h->operations; i++) {
    const mdla_operation *o = &n->operations[i];
    for (uint32_t j = 0; j < o->input_count; j++) touch(n->operands + n->words[o->inputs + j], sizeof(mdla_operand));
    for (uint32_t j = 0; j < o->output_count; j++) touch(n->operands + n->words[o->outputs + j], sizeof(mdla_operand));
    walked += (unsigned)strlen(n->data + o->name);
  }
}

static int try_network(const void *bytes, size_t count) {
  mdla_network network;
  const char *fault = mace_mdla_read(bytes, count, &network);
  if (!fault) walk(&network);
  return !fault;
}

int main(int argc, char **argv) {
  FILE *file = argc == 2 ? fopen(argv[1], "rb") : NULL;
  unsigned char *bytes;
  size_t count, start;
  int accepted = 0, refused = 0;
  if (!file) return 2;
  fseek(file, 0, SEEK_END);
  count = (size_t)ftell(file);
  rewind(file);
  bytes = malloc(count);
  if (fread(bytes, 1, count, file) != count) return 2;
  fclose(file);
  if (!try_network(bytes, count)) return 3;
  start = (size_t)((const mdla_header *)bytes)->start;
  for (size_t shorter = 0; shorter < count; shorter += shorter < 200 ? 1 : 97) {
    unsigned char *cut = malloc(shorter ? shorter : 1);
    memcpy(cut, bytes, shorter);
    if (try_network(cut, shorter)) return 4;
    free(cut);
  }
  for (size_t at = 16; at + 4 <= start; at += 4) {
    uint32_t word, sum;
    memcpy(&word, bytes + at, 4);
    const uint32_t changes[] = {0, 1, word + 1, word - 1, word * 2 + 1, 0x7fffffff, 0x80000000, 0xffffffff, (uint32_t)count};
    for (size_t i = 0; i < sizeof changes / sizeof *changes; i++) {
      memcpy(bytes + at, &changes[i], 4);
      sum = crc(bytes + 16, count - 16);
      memcpy(bytes + 12, &sum, 4);
      *(try_network(bytes, count) ? &accepted : &refused) += 1;
    }
    memcpy(bytes + at, &word, 4);
  }
  free(bytes);
  printf("%d %d %u\n", accepted, refused, walked);
  return 0;
}
