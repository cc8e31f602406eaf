/* mdla_part.h - a device, and a part of a model on it; private to the driver. */
#ifndef MACE_MDLA_PART_H
#define MACE_MDLA_PART_H

#include "mdla_library.h"
#include "mdla_network.h"

enum { MDLA_COMPILE_BYTES = 256, MDLA_NAME_BYTES = 96 };

/* What the application set with mace_config.options and mace_config.power. */
typedef struct mdla_settings {
  int32_t preference, priority;
  int32_t boost;                    /* 0 to 100; -1: the device's choice */
  char compile[MDLA_COMPILE_BYTES]; /* options of the vendor's compiler; empty: none */
} mdla_settings;

struct mace_device {
  mdla_library library;
  mdla_settings settings;
  int32_t power;              /* the boost that mace_config.power asks for; -1: none */
  const NeuronDevice *mdla;   /* NULL: the adapter chooses */
  char name[MDLA_NAME_BYTES]; /* for describe */
};

struct mace_loaded {
  mace_device *device;
  const mace_payload *payload;
  mdla_network network;
  NeuronModel *model; /* these by the adapter; NULL: not made */
  NeuronCompilation *compilation;
  NeuronExecution *execution;
  void *runtime;   /* this by the runtime; NULL: not made */
  IOBuffer *io;    /* by port, for the runtime */
  bool *supported; /* by operation, for the adapter */
};

/* When a function failed: the same code of the vendor asks for other reactions. */
typedef enum mdla_moment { MDLA_OPENING, MDLA_RESTORING, MDLA_RUNNING } mdla_moment;

/* Say which function of the adapter failed; returns the reaction that its answer asks for. */
mace_status mace_mdla_judge(const mace_loaded *part, mdla_moment moment, const char *function, int code,
                            mace_text text);

/* State the network to the adapter and let it compile; restore what it compiled; make the object that runs.
 * What was made stays in the part after a failure, for mace_mdla_forget. */
mace_status mace_mdla_compile(mace_loaded *part, mace_text text);
mace_status mace_mdla_restore(mace_loaded *part, const void *compiled, size_t bytes, mace_text text);
mace_status mace_mdla_prepare(mace_loaded *part, mace_text text);
mace_status mace_mdla_compute(mace_loaded *part, const mace_binding *ports, mace_text text);

/* The same of files of ncc-tflite, which the runtime executes. */
mace_status mace_mdla_load_file(mace_loaded *part, mace_text text);
mace_status mace_mdla_run_file(mace_loaded *part, const mace_binding *ports, mace_text text);

/* Give back all that the vendor's libraries made for a part. */
void mace_mdla_forget(mace_loaded *part);

/* Where the tensor of a port begins, for the CPU. */
static inline char *mace_mdla_address(const mace_binding *port) {
  const mace_buffer *buffer = &port->memory->buffer;
  return (char *)buffer->host + buffer->offset + port->offset;
}

#endif
