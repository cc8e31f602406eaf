/* hexagon_library.h - the FastRPC library of the device, looked for at run time. */
#ifndef MACE_HEXAGON_LIBRARY_H
#define MACE_HEXAGON_LIBRARY_H

#include "driver.h"
#include "driver_library.h"
#include "hexagon_fastrpc.h"

/* The functions, each as NAME(function, type of its result, types of its arguments). */
#define HEXAGON_FUNCTIONS(NAME)                                                     \
  NAME(remote_handle64_open, int, (const char *, remote_handle64 *))                \
  NAME(remote_handle64_invoke, int, (remote_handle64, uint32_t, remote_arg *))      \
  NAME(remote_handle64_close, int, (remote_handle64))                               \
  NAME(rpcmem_alloc, void *, (int, uint32_t, int))                                  \
  NAME(rpcmem_free, void, (void *))                                                 \
  NAME(rpcmem_to_fd, int, (void *))

/* Those that libraries of older systems lack. */
#define HEXAGON_OPTIONAL_FUNCTIONS(NAME)                                            \
  NAME(remote_session_control, int, (uint32_t, void *, uint32_t))                   \
  NAME(remote_handle64_control, int, (remote_handle64, uint32_t, void *, uint32_t)) \
  NAME(fastrpc_mmap, int, (int, int, void *, int, size_t, int))                     \
  NAME(fastrpc_munmap, int, (int, int, void *, size_t))

typedef struct hexagon_library {
  void *library; /* NULL: not open */
  const char *name;
#define HEXAGON_MEMBER(function, type, arguments) type(*function) arguments;
  HEXAGON_FUNCTIONS(HEXAGON_MEMBER)
  HEXAGON_OPTIONAL_FUNCTIONS(HEXAGON_MEMBER)
#undef HEXAGON_MEMBER
} hexagon_library;

/* Open the first library that has all functions; the text names those that were tried, and what they lack. */
mace_status mace_hexagon_open_library(hexagon_library *library, mace_text text);

void mace_hexagon_close_library(hexagon_library *library);

#endif
