/* hexagon_fastrpc.h - what the driver uses of FastRPC, the remote procedure calls of Qualcomm's DSPs.
 *
 * Numbers, layouts and names as in inc/remote.h, inc/rpcmem.h and inc/AEEStdErr.h of the FastRPC library
 * (github.com/qualcomm/fastrpc, commit bd8980c), of which libcdsprpc.so is built. Both ends of a call have
 * this header: on the DSP a pointer has 32 bits.
 */
#ifndef MACE_HEXAGON_FASTRPC_H
#define MACE_HEXAGON_FASTRPC_H

#include <stddef.h>
#include <stdint.h>

typedef uint64_t remote_handle64;

/* One argument of a call: inputs first, then outputs, then handles that go in and that come out. */
typedef union remote_arg {
  struct {
    void *pv;
    size_t nLen;
  } buf;
  remote_handle64 h64;
} remote_arg;

/* The word that goes with a call: method, and how many arguments there are of each kind. Five bits hold the
 * method; from 31 on it stands in the first word of the first input. */
#define HEXAGON_SCALARS(method, in, out, handles_in, handles_out)                                      \
  ((((uint32_t)(method) < 31 ? (uint32_t)(method) : 31) << 24) | (((uint32_t)(in) & 0xff) << 16) |      \
   (((uint32_t)(out) & 0xff) << 8) | (((uint32_t)(handles_in) & 0x0f) << 4) |                          \
   ((uint32_t)(handles_out) & 0x0f))
#define HEXAGON_METHOD(scalars) ((scalars) >> 24 & 0x1f)
#define HEXAGON_INPUTS(scalars) ((scalars) >> 16 & 0xff)
#define HEXAGON_OUTPUTS(scalars) ((scalars) >> 8 & 0xff)
#define HEXAGON_HANDLES_IN(scalars) ((scalars) >> 4 & 0x0f)
#define HEXAGON_HANDLES_OUT(scalars) ((scalars) & 0x0f)

enum { HEXAGON_FAR_METHOD = 31, HEXAGON_MAX_BUFFERS = 254 };
enum { HEXAGON_CDSP = 3 };                                /* CDSP_DOMAIN_ID */
enum { HEXAGON_HEAP_SYSTEM = 25, HEXAGON_HEAP_FLAGS = 1 }; /* RPCMEM_HEAP_ID_SYSTEM, RPCMEM_DEFAULT_FLAGS */
enum { HEXAGON_MAP_STATIC = 0 };                          /* FASTRPC_MAP_STATIC */

/* Requests to remote_session_control and remote_handle64_control, with their data. */
enum { HEXAGON_THREAD_PARAMS = 1, HEXAGON_UNSIGNED_MODULE = 2, HEXAGON_PROCESS_KILL = 6 };
enum { HEXAGON_CONTROL_LATENCY = 1 };
enum { HEXAGON_NO_QOS = 0, HEXAGON_PM_QOS = 1 };

/* Of the threads that execute remote calls; -1: the default. */
typedef struct hexagon_thread_params {
  int32_t domain, priority, stack_bytes;
} hexagon_thread_params;

typedef struct hexagon_unsigned_module {
  int32_t domain, enable;
} hexagon_unsigned_module;

typedef struct hexagon_process_kill {
  int32_t domain;
} hexagon_process_kill;

typedef struct hexagon_latency {
  uint32_t enable, latency_us;
} hexagon_latency;

/* Errors of FastRPC, AEE_ in the vendor's words. What the DSP adds begins at HEXAGON_DSP_ERRORS. */
enum {
  HEXAGON_EFAILED = 1,
  HEXAGON_ENOMEMORY = 2,
  HEXAGON_EUNABLETOLOAD = 6,
  HEXAGON_EBADSTATE = 0x0d,
  HEXAGON_EBADPARM = 0x0e,
  HEXAGON_EUNSUPPORTED = 0x14,
  HEXAGON_ENOSUCH = 39,
  HEXAGON_EINVALIDSIGNATURE = 0x38,
  HEXAGON_ENOSUCHFILE = 0x45,
  HEXAGON_ECONNRESET = 104,
  HEXAGON_ENOROOTOFTRUST = 0x69,
  HEXAGON_ECONNREFUSED = 0x72,
  HEXAGON_EUNSIGNEDMOD = 0x81,
};
#define HEXAGON_DSP_ERRORS 0x80000400u

#endif
