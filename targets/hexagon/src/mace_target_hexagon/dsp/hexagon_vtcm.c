/* hexagon_vtcm.c - takes memory of the vector units from whichever manager the system of the DSP has.
 *
 * The vendor documents two. "HAP VTCM manager" (HAP_vtcm_mgr.h, v65 and later) gives memory of the first
 * partition alone. "Compute resource manager" (HAP_compute_res.h) is what its pages recommend from v68 on,
 * because it knows all partitions and all processes that wait. No header of the vendor's was at hand: names and
 * arguments are those of the pages "Compute resource manager API", and of programs that open sources show. The
 * attributes are opaque there, and smaller than the room that they have here.
 */
#include "hexagon_vtcm.h"

#include <stddef.h>

typedef struct attributes {
  uint64_t room[64];
} attributes;

/* Weak, as all functions of the system: without them tensors lie in ordinary memory. */
#define SYSTEM(result) extern result __attribute__((weak))
SYSTEM(int) compute_resource_attr_init(attributes *attr);
SYSTEM(int) compute_resource_attr_set_serialize(attributes *attr, unsigned char is_alone);
SYSTEM(int) compute_resource_attr_set_vtcm_param(attributes *attr, unsigned int bytes, unsigned char single);
SYSTEM(unsigned int) compute_resource_acquire(attributes *attr, unsigned int timeout_us);
SYSTEM(void *) compute_resource_attr_get_vtcm_ptr(attributes *attr);
SYSTEM(int) compute_resource_release(unsigned int context);
SYSTEM(void *) HAP_request_VTCM(unsigned int bytes, unsigned int single_page);
SYSTEM(int) HAP_release_VTCM(void *memory);
#undef SYSTEM

static int has_manager(void) {
  return compute_resource_attr_init && compute_resource_attr_set_serialize &&
         compute_resource_attr_set_vtcm_param && compute_resource_acquire &&
         compute_resource_attr_get_vtcm_ptr && compute_resource_release;
}

/* Any pages do without scatter and gather, and a session does not wait for what others have. */
enum { ANY_PAGES = 0, NO_TIMEOUT = 0 };

static hexagon_vtcm acquire(uint32_t bytes) {
  attributes attr;
  hexagon_vtcm taken = {NULL, 0};
  if (compute_resource_attr_init(&attr)) return taken;
  /* Not alone on the DSP: that would let other processes wait for as long as a session is open. */
  if (compute_resource_attr_set_serialize(&attr, 0)) return taken;
  if (compute_resource_attr_set_vtcm_param(&attr, bytes, ANY_PAGES)) return taken;
  taken.context = compute_resource_acquire(&attr, NO_TIMEOUT);
  if (!taken.context) return taken;
  taken.memory = compute_resource_attr_get_vtcm_ptr(&attr);
  if (!taken.memory) compute_resource_release(taken.context);
  return taken;
}

hexagon_vtcm mace_hexagon_take_vtcm(uint32_t bytes) {
  hexagon_vtcm taken = {NULL, 0};
  /* What the newer manager refuses, the older one does not have either: it is the same memory. */
  if (has_manager()) return acquire(bytes);
  if (HAP_request_VTCM && HAP_release_VTCM) taken.memory = HAP_request_VTCM(bytes, ANY_PAGES);
  return taken;
}

void mace_hexagon_release_vtcm(const hexagon_vtcm *vtcm) {
  if (!vtcm->memory) return;
  if (vtcm->context)
    compute_resource_release(vtcm->context);
  else
    HAP_release_VTCM(vtcm->memory);
}
