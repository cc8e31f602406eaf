/* Stands in for Arm's core driver in tests: checks what ethosu_invoke_v3 is given as that driver does, and lets
 * a function of the test compute. It has the functions that the vendor's header declares, under their names. */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

struct ethosu_driver {
  int reserved;
};
struct ethosu_driver_version {
  uint8_t major, minor, patch;
};
typedef int (*compute)(const void *payload, int payload_bytes, const uint64_t *bases, const size_t *sizes, int count);

struct ethosu_stub {
  int reserves, releases, invokes;
  int fault; /* 1: invoke fails; 2: no NPU is registered; 3: a run in flight fails; 4: none is in flight */
  int polls; /* how often a run in flight goes on when it is asked without blocking */
  const char *wrong; /* what a call did that the vendor's driver does not allow */
  compute function;
};

struct ethosu_stub ethosu_stub;
static struct ethosu_driver npu;
static char fast_memory[1 << 20] __attribute__((aligned(64)));

static void complain(const char *what) {
  if (!ethosu_stub.wrong) ethosu_stub.wrong = what;
}

struct ethosu_driver *ethosu_reserve_driver(void) {
  ethosu_stub.reserves++;
  if (ethosu_stub.fault == 2) return NULL;
  if (npu.reserved) complain("reserved twice: the vendor's driver would wait forever");
  npu.reserved = 1;
  return &npu;
}

void ethosu_release_driver(struct ethosu_driver *driver) {
  ethosu_stub.releases++;
  if (!driver) return;
  if (driver != &npu || !driver->reserved) complain("released without being reserved");
  driver->reserved = 0;
}

void ethosu_get_driver_version(struct ethosu_driver_version *version) {
  version->major = 0, version->minor = 16, version->patch = 0;
}

int ethosu_invoke_v3(struct ethosu_driver *driver, const void *payload, const int payload_bytes, uint64_t *const bases,
                     const size_t *sizes, const int count, void *user) {
  const uint32_t *words = payload;
  int i;
  (void)user;
  ethosu_stub.invokes++;
  if (!driver) return -1;
  if (driver != &npu || !npu.reserved) complain("invoked without being reserved");
  if ((uintptr_t)payload % 16) complain("a payload that does not lie at a multiple of 16");
  if (payload_bytes < 8 || payload_bytes % 4 || memcmp(payload, "COP1", 4)) complain("no payload of the form COP1");
  if (count < 1 || count > 8) complain("more than 8 base addresses");
  for (i = 0; i < count; i++)
    if (bases[i] % 16) complain("a base address that is no multiple of 16");
  /* As the vendor's driver does with the memory that ethosu_init was given. */
  if (count > 2 && sizes[2] <= sizeof fast_memory) bases[2] = (uint64_t)(uintptr_t)fast_memory;
  if (ethosu_stub.fault == 1) return -1;
  (void)words;
  return ethosu_stub.function ? ethosu_stub.function(payload, payload_bytes, bases, sizes, count) : 0;
}

#ifndef WITHOUT_ASYNC
static struct {
  const void *payload;
  uint64_t *bases;
  const size_t *sizes;
  int bytes, count, is_running;
} job;

int ethosu_invoke_async(struct ethosu_driver *driver, const void *payload, const int payload_bytes, uint64_t *const bases,
                        const size_t *sizes, const int count, void *user) {
  (void)user;
  ethosu_stub.invokes++;
  if (job.is_running) complain("a second run while one is in flight");
  if (!driver || driver != &npu || !npu.reserved) complain("invoked without being reserved");
  if (ethosu_stub.fault == 1) return -1;
  job.payload = payload, job.bytes = payload_bytes, job.bases = bases, job.sizes = sizes, job.count = count;
  job.is_running = 1;
  return 0;
}

/* The addresses are read only now: they must still be there. */
int ethosu_wait(struct ethosu_driver *driver, bool block) {
  if (driver != &npu || !npu.reserved) complain("waited for a driver that is not reserved");
  if (!job.is_running || ethosu_stub.fault == 4) return job.is_running = 0, -2;
  if (!block && ethosu_stub.polls-- > 0) return 1;
  job.is_running = 0;
  if (ethosu_stub.fault == 3) return -1;
  if (job.count > 2 && job.sizes[2] <= sizeof fast_memory) job.bases[2] = (uint64_t)(uintptr_t)fast_memory;
  return ethosu_stub.function ? ethosu_stub.function(job.payload, job.bytes, job.bases, job.sizes, job.count) : 0;
}
#endif
