/* hexagon_interface.h - what both ends of our own remote calls know: methods, errors, and a part's header.
 *
 * The interface file that the build writes states the same methods for the vendor's compiler, qaic.
 */
#ifndef MACE_HEXAGON_INTERFACE_H
#define MACE_HEXAGON_INTERFACE_H

#include <stdint.h>

/* Methods of every DSP library of ours; the regions of its model follow. */
enum {
  HEXAGON_OPEN = 0,
  HEXAGON_CLOSE = 1,
  HEXAGON_LOAD = 2,
  HEXAGON_UNLOAD = 3,
  HEXAGON_POWER = 4,
  HEXAGON_FIRST_REGION = 5
};

/* Errors of these methods; the values are no errors of FastRPC. */
enum {
  HEXAGON_STALE = 0x4d480001, /* the library has no region with this digest */
  HEXAGON_NO_ROOM = 0x4d480002,
  HEXAGON_CANNOT_COMPUTE = 0x4d480003,
  HEXAGON_NO_VOTES = 0x4d480004, /* the DSP takes no votes for its clocks */
  HEXAGON_NOT_LOADED = 0x4d480005,
  HEXAGON_NO_VECTORS = 0x4d480006 /* the DSP gives the process no vector unit */
};

/* Numbers that go into HEXAGON_LOAD and come out of it, in the order of the interface file. */
typedef struct hexagon_load_inputs {
  uint32_t digest_bytes;
  uint32_t threads; /* 0: as many as there are vector units */
  uint32_t vtcm;    /* 1: the regions may take memory of the vector units */
} hexagon_load_inputs;

typedef struct hexagon_load_outputs {
  uint32_t method;
  uint32_t threads;      /* that compute */
  uint32_t vtcm_bytes;   /* that the regions have; 0: none */
  uint32_t vtcm_planned; /* bytes that their tensors want there */
  uint32_t vectors;      /* 0: the DSP gives no vector unit, and plain C computes */
} hexagon_load_outputs;

enum { HEXAGON_LOAD_WORDS = sizeof(hexagon_load_inputs) / sizeof(uint32_t) };

/* Corners of the DSP's voltage, as HAP_power.h numbers them; 0: no vote. */
enum {
  HEXAGON_RELEASE = 0,
  HEXAGON_SVS2 = 1,
  HEXAGON_SVS = 2,
  HEXAGON_SVSPLUS = 3,
  HEXAGON_NOMINAL = 4,
  HEXAGON_NOMPLUS = 5,
  HEXAGON_TURBO = 6
};

#define HEXAGON_MAGIC 0x3158484du /* "MHX1" */
enum { HEXAGON_DIGEST_BYTES = 64, HEXAGON_MAX_MODULE = 120 };

/* Beginning of a part. There follow the bytes of each port as uint32_t, and the name of the DSP library. */
typedef struct hexagon_header {
  uint32_t magic, inputs, outputs, module_bytes;
  char digest[HEXAGON_DIGEST_BYTES]; /* of the region, in hexadecimal */
} hexagon_header;

#endif
