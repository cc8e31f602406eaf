/* Prints the boxes of l2fetch for rows of memory: reads "WIDTH HEIGHT STRIDE" lines, and writes
 * "WIDTH HEIGHT STRIDE REST" of each box, REST being the bits that a box leaves 0. Fetches each box, too.
 */
#include <inttypes.h>
#include <stdint.h>
#include <stdio.h>

#define MACE_UNUSED __attribute__((unused))
#include "l2fetch.h"

int main(void) {
  static const char memory[4096];
  int64_t width, height, stride;
  while (scanf("%" SCNd64 " %" SCNd64 " %" SCNd64, &width, &height, &stride) == 3) {
    const uint64_t box = l2_box(width, height, stride);
    l2_fetch(memory, box);
    printf("%u %u %u %u\n", (unsigned)(box >> 16 & 0xffff), (unsigned)(box & 0xffff),
           (unsigned)(box >> 32 & 0xffff), (unsigned)(box >> 48));
  }
  return 0;
}
