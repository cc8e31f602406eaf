/* The driver of capsules: looks for the vendor's library, takes the first that is complete, and lets it execute.
 *
 * For tests, MACE_CAPSULE_FAULT=WHAT[:N] lets the N-th call of a function fail (1 if left out): open, load, run, lost. After a loss a
 * call of the vendor's library other than that which frees aborts.
 */
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "driver.h"

#define GENERATION "capsule 2"
#define VERSION 2
#define PORTS 64

static const char *const libraries[] = {"libcapsule_rt.so.2", "libcapsule_rt.so", "libcapsule.so"};

typedef struct capsule capsule;

typedef struct vendor {
  void *library;
  int (*version)(void);
  int (*load)(const void *, size_t, capsule **);
  int (*run)(capsule *, const void *const *, void *const *);
  void (*free)(capsule *);
  const char *(*text)(int);
} vendor;

struct mace_device {
  vendor vendor;
  char name[48];
  const char *fault;
  int countdown, lost;
};

struct mace_loaded {
  mace_device *device;
  capsule *capsule;
  int32_t inputs, outputs;
};

static mace_status say(mace_text text, mace_status status, const char *what, const char *remedy) {
  if (text.at && text.bytes) snprintf(text.at, text.bytes, "%s; %s", what, remedy);
  return status;
}

static int fails(mace_device *device, const char *what) {
  return !strcmp(device->fault, what) && --device->countdown == 0;
}

static void alive(const mace_device *device) {
  if (device->lost) {
    fputs("capsule: called after it was lost\n", stderr);
    abort();
  }
}

/* Take a library if it has all functions, in the version that capsules are built for. */
static int take(vendor *v, const char *name) {
  static const char *const symbols[] = {"capsule_version", "capsule_load", "capsule_run", "capsule_free", "capsule_text"};
  void *found[5];
  int i;
  if (!(v->library = dlopen(name, RTLD_NOW | RTLD_LOCAL))) return 0;
  for (i = 0; i < 5; i++)
    if (!(found[i] = dlsym(v->library, symbols[i]))) break;
  if (i == 5) {
    /* POSIX lets dlsym's pointers become functions; C does not, so bytes are copied. */
    memcpy(&v->version, &found[0], sizeof found[0]);
    memcpy(&v->load, &found[1], sizeof found[1]);
    memcpy(&v->run, &found[2], sizeof found[2]);
    memcpy(&v->free, &found[3], sizeof found[3]);
    memcpy(&v->text, &found[4], sizeof found[4]);
    if (v->version() == VERSION) return 1;
  }
  dlclose(v->library);
  v->library = NULL;
  return 0;
}

static size_t bytes(const mace_payload *payload) { return payload ? sizeof(mace_loaded) : sizeof(mace_device); }

static mace_status open_capsule(const mace_config *config, void *memory, mace_device **opened, mace_text text) {
  const char *fault = getenv("MACE_CAPSULE_FAULT"), *colon = fault ? strchr(fault, ':') : NULL;
  static const char *const faults[] = {"open", "load", "run", "lost"};
  mace_device *device = memory;
  size_t i;
  (void)config;
  memset(device, 0, sizeof *device);
  device->fault = "";
  for (i = 0; fault && i < sizeof faults / sizeof *faults; i++)
    if (!strncmp(fault, faults[i], strlen(faults[i]))) device->fault = faults[i];
  device->countdown = colon ? atoi(colon + 1) : 1;
  if (fails(device, "open")) return say(text, MACE_NO_DEVICE, "no capsule reader answers", "connect one");
  for (i = 0; i < sizeof libraries / sizeof *libraries && !device->vendor.library; i++)
    if (take(&device->vendor, libraries[i])) snprintf(device->name, sizeof device->name, "%s", libraries[i]);
  if (!device->vendor.library)
    return say(text, MACE_NO_DEVICE, "none of libcapsule_rt.so.2, libcapsule_rt.so, libcapsule.so is complete and of version 2",
               "install Capsule Runtime 2 where dlopen finds it");
  *opened = device;
  return MACE_OK;
}

static mace_status load(mace_device *device, const mace_payload *payload, void *memory, mace_loaded **loaded, mace_text text) {
  mace_loaded *part = memory;
  int status;
  alive(device);
  memset(part, 0, sizeof *part);
  if (strcmp(payload->built_for, GENERATION) || fails(device, "load"))
    return say(text, MACE_STALE, "the part was built for another generation than \"" GENERATION "\"", "build the library again");
  if (payload->inputs > PORTS || payload->outputs > PORTS) return say(text, MACE_REFUSED, "more than 64 tensors", "split the model");
  status = device->vendor.load(payload->code, payload->code_bytes, &part->capsule);
  if (status) return say(text, MACE_STALE, device->vendor.text(status), "build the library again");
  part->device = device;
  part->inputs = payload->inputs;
  part->outputs = payload->outputs;
  *loaded = part;
  return MACE_OK;
}

static void *address(const mace_binding *port) {
  return (char *)port->memory->buffer.host + port->memory->buffer.offset + port->offset;
}

static mace_status run(mace_loaded *part, const mace_binding *ports, uint32_t timeout_ms, mace_text text) {
  mace_device *device = part->device;
  const void *inputs[PORTS];
  void *outputs[PORTS];
  int32_t i;
  int status;
  (void)timeout_ms;
  alive(device);
  for (i = 0; i < part->inputs; i++) inputs[i] = address(ports + i);
  for (i = 0; i < part->outputs; i++) outputs[i] = address(ports + part->inputs + i);
  status = device->vendor.run(part->capsule, inputs, outputs);
  if (status) return say(text, MACE_FAILED, device->vendor.text(status), "build the library again");
  if (fails(device, "run")) {
    if (part->outputs) memset(outputs[0], 0xFF, 1);
    return say(text, MACE_FAILED, "the capsule burst", "run again");
  }
  if (fails(device, "lost")) {
    device->lost = 1;
    return say(text, MACE_LOST, "the capsule reader was pulled out", "open the session again");
  }
  return MACE_OK;
}

static void unload(mace_loaded *part) {
  part->device->vendor.free(part->capsule);
  part->capsule = NULL;
}

static void close_capsule(mace_device *device) {
  if (device->vendor.library) dlclose(device->vendor.library);
  device->vendor.library = NULL;
}

static const char *describe(mace_device *device) { return device->name; }

const mace_driver mace_capsule_driver = {
    .struct_bytes = sizeof(mace_driver),
    .major = MACE_DRIVER_MAJOR,
    .flags = MACE_ALLOCATES,
    .name = "capsule",
    .version = "0.1.0",
    .bytes = bytes,
    .open = open_capsule,
    .load = load,
    .run = run,
    .unload = unload,
    .close = close_capsule,
    .describe = describe,
};
