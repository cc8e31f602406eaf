/* dsp_system.h - what a DSP's system offers to DSP libraries, as the emulated DSP has it. */
#ifndef MACE_DSP_SYSTEM_H
#define MACE_DSP_SYSTEM_H

#include "hexagon_qurt.h"

int HAP_power_set(void *context, const void *request);
void *HAP_request_VTCM(unsigned int bytes, unsigned int single_page);
int HAP_release_VTCM(void *memory);
int compute_resource_attr_init(void *attr);
int compute_resource_attr_set_serialize(void *attr, unsigned char is_alone);
int compute_resource_attr_set_vtcm_param(void *attr, unsigned int bytes, unsigned char single_page);
unsigned int compute_resource_acquire(void *attr, unsigned int timeout_us);
void *compute_resource_attr_get_vtcm_ptr(void *attr);
int compute_resource_release(unsigned int context);

/* The names of all functions that stand in for those of QuRT and of the vendor's libraries. */
#define DSP_SYSTEM(NAME) \
  NAME(HAP_power_set) NAME(HAP_request_VTCM) NAME(HAP_release_VTCM) NAME(qurt_thread_create) \
  NAME(qurt_thread_exit) NAME(qurt_thread_join) NAME(qurt_thread_get_id) NAME(qurt_thread_get_priority) \
  NAME(qurt_futex_wait) NAME(qurt_futex_wake) NAME(qurt_hvx_lock) NAME(qurt_hvx_try_lock) \
  NAME(qurt_hvx_unlock) NAME(qurt_hvx_get_units)

/* Those of the manager of resources, which systems before v68 lack. */
#define DSP_MANAGER(NAME) \
  NAME(compute_resource_attr_init) NAME(compute_resource_attr_set_serialize) \
  NAME(compute_resource_attr_set_vtcm_param) NAME(compute_resource_acquire) \
  NAME(compute_resource_attr_get_vtcm_ptr) NAME(compute_resource_release)

#endif
