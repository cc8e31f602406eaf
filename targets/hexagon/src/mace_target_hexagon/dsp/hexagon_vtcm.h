/* hexagon_vtcm.h - memory of the vector units, from the system of the DSP; private to a DSP library. */
#ifndef MACE_HEXAGON_VTCM_H
#define MACE_HEXAGON_VTCM_H

#include <stdint.h>

typedef struct hexagon_vtcm {
  void *memory;     /* NULL: none */
  uint32_t context; /* of the system's manager of resources; 0: from the older one, of this memory alone */
} hexagon_vtcm;

/* Take so many bytes; `memory` is NULL where they are not free, or the system gives none. */
hexagon_vtcm mace_hexagon_take_vtcm(uint32_t bytes);

/* Give it back, if there is any. */
void mace_hexagon_release_vtcm(const hexagon_vtcm *vtcm);

#endif
