/* Tries the driver on a whole part, on damaged ones, and on a vendor's driver that fails or is not there.
 * Usage: driver_test CODE WEIGHTS: files with the bytes of a part of one input and one result, 32 bytes each.
 * Prints what goes wrong, and returns 1. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "driver.h"

#define PORT_BYTES 32
#define SCRATCH_BYTES (64 + 48)

typedef int (*compute)(const void *, int, const uint64_t *, const size_t *, int);
struct ethosu_stub {
  int reserves, releases, invokes, fault, polls;
  const char *wrong;
  compute function;
};
extern const mace_driver mace_ethosu_driver;
#ifndef WITHOUT_VENDOR
extern struct ethosu_stub ethosu_stub;
#endif

static int failures;
static char said[160];

#define CHECK(condition)                                                  \
  do                                                                      \
    if (!(condition)) {                                                   \
      printf("line %d: %s (text: %s)\n", __LINE__, #condition, said);     \
      failures++;                                                         \
    }                                                                     \
  while (0)

typedef struct part {
  unsigned char *code, *weights;
  size_t code_bytes, weight_bytes;
} part;

static unsigned char *read_all(const char *name, size_t *bytes) {
  FILE *file = fopen(name, "rb");
  unsigned char *data;
  if (!file || fseek(file, 0, SEEK_END)) exit(2);
  *bytes = (size_t)ftell(file);
  rewind(file);
  /* aligned_alloc wants a multiple of the alignment; the sanitizer watches the end of a plain copy elsewhere. */
  data = aligned_alloc(64, (*bytes + 63) / 64 * 64);
  if (!data || fread(data, 1, *bytes, file) != *bytes) exit(2);
  fclose(file);
  return data;
}

static mace_payload payload_of(const part *p, const mace_need *needs) {
  mace_payload payload;
  memset(&payload, 0, sizeof payload);
  payload.struct_bytes = sizeof payload;
  payload.inputs = payload.outputs = 1;
  payload.code = p->code, payload.code_bytes = p->code_bytes;
  payload.weights = p->weights, payload.weight_bytes = p->weight_bytes;
  payload.built_by = "Vela 5.2", payload.built_for = "ethos-u65-256";
  payload.ports = needs;
  payload.scratch.bytes = SCRATCH_BYTES;
  return payload;
}

#ifndef WITHOUT_VENDOR
/* The network of these tests: each byte of the input, which lies at 0 of the arena, plus 1. */
static int add_one(const void *stream, int bytes, const uint64_t *bases, const size_t *sizes, int count) {
  unsigned char *arena = (unsigned char *)(uintptr_t)bases[1];
  int i;
  (void)stream, (void)bytes;
  if (count != 3 || sizes[1] != 64 || sizes[2] != 48) return -1;
  memset((void *)(uintptr_t)bases[2], 0x5A, sizes[2]);
  for (i = 0; i < PORT_BYTES; i++) arena[32 + i] = (unsigned char)(arena[i] + 1);
  return 0;
}

/* Touch the first and the last byte of all memory that a run may use. */
static int touch(const void *stream, int bytes, const uint64_t *bases, const size_t *sizes, int count) {
  volatile unsigned char sum = 0;
  int i;
  (void)stream, (void)bytes;
  for (i = 0; i < count; i++)
    if (bases[i] && sizes[i]) sum += ((const unsigned char *)(uintptr_t)bases[i])[sizes[i] - 1];
  return 0;
}

static mace_status run(mace_loaded *loaded, unsigned char *in, unsigned char *out, unsigned char *scratch) {
  mace_memory memories[3];
  mace_binding ports[3];
  unsigned char *at[3] = {in, out, scratch};
  int i;
  memset(memories, 0, sizeof memories);
  for (i = 0; i < 3; i++) {
    memories[i].buffer.host = at[i];
    ports[i].memory = memories + i, ports[i].offset = 0;
  }
  return mace_ethosu_driver.run(loaded, ports, 0, (mace_text){said, sizeof said});
}

/* Submit a run and wait for it: ask twice, then block. */
static void try_submit(mace_loaded *loaded, unsigned char *in, unsigned char *scratch) {
  unsigned char out[PORT_BYTES] = {0}, *at[3] = {in, out, scratch};
  const mace_text text = {said, sizeof said};
  mace_memory memories[3];
  mace_binding ports[3];
  int i;
  memset(memories, 0, sizeof memories);
  for (i = 0; i < 3; i++) memories[i].buffer.host = at[i], ports[i].memory = memories + i, ports[i].offset = 0;
  ethosu_stub.polls = 2;
  CHECK(mace_ethosu_driver.submit(loaded, ports, 0, text) == MACE_OK);
#ifndef WITHOUT_ASYNC
  CHECK(ethosu_stub.reserves == ethosu_stub.releases + 1);
  CHECK(mace_ethosu_driver.wait(loaded, 0, text) == MACE_BUSY);
  CHECK(mace_ethosu_driver.wait(loaded, 5, text) == MACE_BUSY);
  CHECK(out[0] != (unsigned char)(in[0] + 1));
#endif
  CHECK(mace_ethosu_driver.wait(loaded, MACE_FOREVER, text) == MACE_OK);
  for (i = 0; i < PORT_BYTES; i++) CHECK(out[i] == (unsigned char)(in[i] + 1));
  CHECK(ethosu_stub.reserves == ethosu_stub.releases);
  ethosu_stub.polls = 0;

  memset(out, 0xEE, sizeof out);
  ethosu_stub.fault = 1;
  CHECK(mace_ethosu_driver.submit(loaded, ports, 0, text) == MACE_FAILED);
  ethosu_stub.fault = 2;
  CHECK(mace_ethosu_driver.submit(loaded, ports, 0, text) == MACE_NO_DEVICE);
#ifndef WITHOUT_ASYNC
  for (i = 3; i < 5; i++) {
    ethosu_stub.fault = 0;
    CHECK(mace_ethosu_driver.submit(loaded, ports, 0, text) == MACE_OK);
    ethosu_stub.fault = i;
    said[0] = 0;
    CHECK(mace_ethosu_driver.wait(loaded, MACE_FOREVER, text) == MACE_FAILED);
    CHECK(strstr(said, "ethos-u65-256"));
    ethosu_stub.fault = 0;
  }
#endif
  CHECK(out[0] == 0xEE && out[PORT_BYTES - 1] == 0xEE);
  ethosu_stub.fault = 0;
  CHECK(ethosu_stub.reserves == ethosu_stub.releases);
}

static void try_damaged(mace_device *device, const part *whole, const mace_need *needs, unsigned char *memory) {
  static const uint32_t values[] = {0, 1, 2, 3, 8, 16, 31, 33, 0x7FFFFFFF, 0xFFFFFFFF};
  unsigned char in[PORT_BYTES] = {0}, out[PORT_BYTES], *scratch = aligned_alloc(64, 128);
  size_t word, i, cut;
  ethosu_stub.function = touch;
  for (word = 0; word < whole->code_bytes / 4; word++)
    for (i = 0; i < sizeof values / sizeof *values; i++) {
      part damaged = *whole;
      mace_loaded *loaded = NULL;
      mace_payload payload;
      mace_status status;
      int j;
      damaged.code = aligned_alloc(64, (whole->code_bytes + 63) / 64 * 64);
      memcpy(damaged.code, whole->code, whole->code_bytes);
      for (j = 0; j < 4; j++) damaged.code[4 * word + j] = (unsigned char)(values[i] >> 8 * j);
      payload = payload_of(&damaged, needs);
      said[0] = 0;
      status = mace_ethosu_driver.load(device, &payload, memory, &loaded, (mace_text){said, sizeof said});
      CHECK(status == MACE_OK || status == MACE_STALE);
      if (status == MACE_OK) {
        run(loaded, in, out, scratch);
        mace_ethosu_driver.unload(loaded);
      } else
        CHECK(said[0]);
      free(damaged.code);
    }
  for (cut = 0; cut < whole->code_bytes; cut++) {
    /* Exactly so many bytes, so that the sanitizer sees a read behind them. */
    part damaged = *whole;
    mace_loaded *loaded = NULL;
    mace_payload payload;
    damaged.code = malloc(cut ? cut : 1);
    memcpy(damaged.code, whole->code, cut);
    damaged.code_bytes = cut;
    payload = payload_of(&damaged, needs);
    CHECK(mace_ethosu_driver.load(device, &payload, memory, &loaded, (mace_text){NULL, 0}) == MACE_STALE);
    free(damaged.code);
  }
  free(scratch);
}

static void try_all(const part *whole, const mace_need *needs) {
  unsigned char in[PORT_BYTES], out[PORT_BYTES], *scratch = aligned_alloc(64, 128);
  const mace_text text = {said, sizeof said};
  mace_device *device = NULL;
  mace_loaded *loaded = NULL;
  mace_payload payload = payload_of(whole, needs);
  void *of_device = malloc(mace_ethosu_driver.bytes(NULL)), *of_part = malloc(mace_ethosu_driver.bytes(&payload));
  int i;
  CHECK(mace_ethosu_driver.open(NULL, of_device, &device, text) == MACE_OK);
  CHECK(!strcmp(mace_ethosu_driver.describe(device), "Ethos-U, driver 0.16.0"));
  CHECK(mace_ethosu_driver.load(device, &payload, of_part, &loaded, text) == MACE_OK);
  for (i = 0; i < PORT_BYTES; i++) in[i] = (unsigned char)(7 * i);
  ethosu_stub.function = add_one;
  CHECK(run(loaded, in, out, scratch) == MACE_OK);
  for (i = 0; i < PORT_BYTES; i++) CHECK(out[i] == (unsigned char)(in[i] + 1));

  memset(out, 0xEE, sizeof out);
  ethosu_stub.fault = 1;
  CHECK(run(loaded, in, out, scratch) == MACE_FAILED);
  CHECK(strstr(said, "ethos-u65-256") && strstr(said, "; "));
  CHECK(out[0] == 0xEE && out[PORT_BYTES - 1] == 0xEE);
  ethosu_stub.fault = 2;
  CHECK(run(loaded, in, out, scratch) == MACE_NO_DEVICE);
  CHECK(strstr(said, "ethosu_init"));
  ethosu_stub.fault = 0;
  CHECK(run(loaded, in, out, scratch) == MACE_OK);
  try_submit(loaded, in, scratch);
  CHECK(run(loaded, in, out, scratch) == MACE_OK);
  mace_ethosu_driver.unload(loaded);

  payload.scratch.bytes = SCRATCH_BYTES - 1;
  CHECK(mace_ethosu_driver.load(device, &payload, of_part, &loaded, text) == MACE_STALE);
  payload.scratch.bytes = SCRATCH_BYTES;
  payload.weights = whole->weights + 4;
  CHECK(mace_ethosu_driver.load(device, &payload, of_part, &loaded, text) == MACE_REFUSED);
  payload.weights = whole->weights;
  payload.inputs = 2;
  CHECK(mace_ethosu_driver.load(device, &payload, of_part, &loaded, text) == MACE_STALE);
  try_damaged(device, whole, needs, of_part);
  mace_ethosu_driver.close(device);
  CHECK(ethosu_stub.reserves == ethosu_stub.releases);
  CHECK(!ethosu_stub.wrong || (printf("%s\n", ethosu_stub.wrong), 0));
  free(of_device), free(of_part), free(scratch);
}
#else
static void try_all(const part *whole, const mace_need *needs) {
  void *of_device = malloc(mace_ethosu_driver.bytes(NULL));
  mace_device *device = NULL;
  size_t bytes;
  (void)whole, (void)needs, (void)payload_of;
  CHECK(mace_ethosu_driver.open(NULL, of_device, &device, (mace_text){said, sizeof said}) == MACE_NO_DEVICE);
  CHECK(strstr(said, "ethosu_invoke_v3") && strstr(said, "; link"));
  for (bytes = 0; bytes < sizeof said; bytes++) {
    char *small = malloc(bytes ? bytes : 1);
    CHECK(mace_ethosu_driver.open(NULL, of_device, &device, (mace_text){bytes ? small : NULL, bytes}) == MACE_NO_DEVICE);
    if (bytes) CHECK(memchr(small, 0, bytes));
    free(small);
  }
  free(of_device);
}
#endif

int main(int count, char **words) {
  mace_need needs[2];
  part whole;
  if (count != 3) return 2;
  memset(needs, 0, sizeof needs);
  needs[0].bytes = needs[1].bytes = PORT_BYTES;
  whole.code = read_all(words[1], &whole.code_bytes);
  whole.weights = read_all(words[2], &whole.weight_bytes);
  try_all(&whole, needs);
  free(whole.code), free(whole.weights);
  return failures != 0;
}
