/* dsp_system.h - what a DSP's system offers to DSP libraries, as the emulated DSP has it. */
#ifndef MACE_DSP_SYSTEM_H
#define MACE_DSP_SYSTEM_H

#include "hexagon_qurt.h"

/* Append a line to the file that MACE_DSP_LOG names. */
__attribute__((format(printf, 1, 2))) void dsp_note(const char *format, ...);

int HAP_power_set(void *context, const void *request);
void *HAP_request_VTCM(unsigned int bytes, unsigned int single_page);
int HAP_release_VTCM(void *memory);

/* The names of all functions that stand in for those of QuRT and of the vendor's libraries. */
#define DSP_SYSTEM(NAME) \
  NAME(HAP_power_set) NAME(HAP_request_VTCM) NAME(HAP_release_VTCM) NAME(qurt_thread_create) \
  NAME(qurt_thread_exit) NAME(qurt_thread_join) NAME(qurt_thread_get_id) NAME(qurt_thread_get_priority) \
  NAME(qurt_futex_wait) NAME(qurt_futex_wake) NAME(qurt_hvx_lock) NAME(qurt_hvx_try_lock) \
  NAME(qurt_hvx_unlock) NAME(qurt_hvx_get_units)

#endif
