/* hexagon_dsp.h - the DSP's side of the remote calls; private to a DSP library. */
#ifndef MACE_HEXAGON_DSP_H
#define MACE_HEXAGON_DSP_H

#include "hexagon_fastrpc.h"
#include "hexagon_interface.h"
#include "mace.h"

/* A region of the model: what a part names it by, and what computes it. */
typedef struct hexagon_region {
  const char *digest;
  const mace_model *model;
} hexagon_region;

typedef struct hexagon_module {
  int32_t region_count;
  const hexagon_region *regions;
} hexagon_module;

/* Execute one remote call; what it answers goes back to the caller. Arguments are hostile. */
int mace_hexagon_dispatch(const hexagon_module *module, remote_handle64 handle, uint32_t scalars,
                          remote_arg *arguments);

/* Vote for the voltage corner of the DSP, for its freedom to change clocks by load (dcvs), and for the time
 * that it may take to wake; corner HEXAGON_RELEASE drops the votes of this context. Returns an error of
 * hexagon_interface.h, or that of the vendor's function. */
int mace_hexagon_vote(void *context, uint32_t corner, uint32_t dcvs, uint32_t latency_us);

#endif
