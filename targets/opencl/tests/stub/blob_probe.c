/* blob_probe: reads cases from its input, each 8 numbers of 4 bytes and two runs of bytes, and tells what the
 * driver makes of each: "blob FAULT", empty for none, or "inflate RESULT".
 *
 * numbers: 0 a blob, 1 a stream of DEFLATE; inputs; outputs; bytes of each port; bytes of the scratch; bytes of
 * the weights; size of the inflated text; bytes that follow. The copy is as long as it must be, so that the
 * sanitizers find what reads behind it.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "opencl_blob.h"

static void read_blob(const uint32_t *numbers, const void *bytes) {
  mace_need ports[8];
  mace_payload payload = {0};
  opencl_blob blob;
  const char *fault;
  memset(ports, 0, sizeof ports);
  for (int i = 0; i < 8; i++) ports[i].bytes = numbers[3];
  payload.inputs = (int32_t)numbers[1];
  payload.outputs = (int32_t)numbers[2];
  payload.code = bytes;
  payload.code_bytes = numbers[7];
  payload.weight_bytes = numbers[5];
  payload.ports = ports;
  payload.scratch.bytes = numbers[4];
  if (mace_opencl_count_calls(&payload) > numbers[7]) abort();
  fault = mace_opencl_read(&payload, &blob);
  printf("blob %s\n", fault ? fault : "");
  if (fault) return;
  for (uint32_t i = 0; i < blob.header->kernels; i++)
    if (strlen(blob.names + blob.name_offsets[i]) >= blob.header->name_bytes) abort();
  if (strlen(blob.options) >= blob.header->option_bytes) abort();
  char *const text = malloc(blob.header->source_bytes <= 1 << 20 ? blob.header->source_bytes + 1 : 1);
  if (blob.header->source_bytes <= 1 << 20)
    mace_opencl_inflate(blob.deflated, blob.header->deflated_bytes, text, blob.header->source_bytes);
  free(text);
}

int main(void) {
  uint32_t numbers[8];
  while (fread(numbers, sizeof numbers, 1, stdin) == 1) {
    unsigned char *const bytes = aligned_alloc(8, (numbers[7] + 7) / 8 * 8 + 8);
    unsigned char *const exact = malloc(numbers[7] ? numbers[7] : 1);
    if (numbers[7] && fread(exact, numbers[7], 1, stdin) != 1) return 2;
    memcpy(bytes, exact, numbers[7]);
    if (numbers[0] == 0) {
      /* Of a length that is a multiple of 8 the copy itself is exact. */
      read_blob(numbers, numbers[7] % 8 ? bytes : exact);
    } else {
      char *const text = malloc(numbers[6] ? numbers[6] : 1);
      const int result = mace_opencl_inflate(exact, numbers[7], text, numbers[6]);
      unsigned hash = 5381;
      for (uint32_t i = 0; result && i < numbers[6]; i++) hash = hash * 33 + (unsigned char)text[i];
      printf("inflate %d %u\n", result, hash);
      free(text);
    }
    free(exact);
    free(bytes);
  }
  return 0;
}
