/* The types of HVX's intrinsics, for this machine: registers of 128 bytes, predicates of a byte each. */
#pragma once
#include <stdint.h>
#include <string.h>

typedef int32_t HVX_Vector __attribute__((vector_size(128)));
typedef HVX_Vector HVX_VectorPred;
typedef struct HVX_VectorPair {
  HVX_Vector low, high;
} HVX_VectorPair;
