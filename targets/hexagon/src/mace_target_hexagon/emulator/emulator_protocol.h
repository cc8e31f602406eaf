/* emulator_protocol.h - what the stand-in of the FastRPC library and the emulated DSP say to each other over
 * a socket: a request with its inputs, then a reply with the outputs of a call that went well. Little-endian.
 */
#ifndef MACE_EMULATOR_PROTOCOL_H
#define MACE_EMULATOR_PROTOCOL_H

#include <stdint.h>

enum { EMULATOR_OPEN = 1, EMULATOR_INVOKE = 2, EMULATOR_CLOSE = 3 };
enum { EMULATOR_MAX_BUFFERS = 2 * 255 };

/* For OPEN there follow two inputs: the path of the library with a 0, and the URI with a 0. For INVOKE and
 * CLOSE `scalars` tell how many arguments there are; the bytes of each follow as uint32_t, then the
 * inputs. */
typedef struct emulator_request {
  uint32_t operation, scalars;
  uint64_t module, handle; /* module: what OPEN answered */
} emulator_request;

typedef struct emulator_reply {
  int32_t code;
  uint32_t reserved;
  uint64_t module, handle;
} emulator_reply;

#endif
