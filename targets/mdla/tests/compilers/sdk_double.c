/* Stands in for libneuron_adapter.so of the vendor's SDK, for LiteRT's own compiler plugin: it takes every
 * operation, and its compiled network is a stamp with the number of operations that it was given. It compiles
 * nothing. */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#define STAMP "MACE-TEST-DOUBLE"

static int model, compilation, operations;

int Neuron_getVersion(uint8_t *version) {
  version[0] = 8, version[1] = 2, version[2] = 31;
  return 0;
}
int Neuron_getL1MemorySizeKb(uint32_t *size) { return *size = 256, 0; }
int NeuronModel_create(void **created) { return *created = &model, operations = 0, 0; }
int NeuronModel_addOperation(void *m) { return (void)m, operations++, 0; }
int NeuronModel_getExtensionOperandType(void *m, const char *n, int32_t *t) { return (void)m, (void)n, *t = 1, 0; }
int NeuronModel_getExtensionOperationType(void *m, const char *n, int32_t *t) { return (void)m, (void)n, *t = 1, 0; }
int NeuronModel_getSupportedOperations(void *m, bool *all, uint32_t count) {
  (void)m;
  memset(all, 1, count);
  return 0;
}
int NeuronCompilation_create(void *m, void **created) { return (void)m, *created = &compilation, 0; }
int NeuronCompilation_createWithOptions(void *m, void **created, const char *options) {
  (void)m, (void)options;
  return *created = &compilation, 0;
}
int NeuronCompilation_getSupportedOperations(void *c, uint32_t count, bool *all) {
  (void)c;
  memset(all, 1, count);
  return 0;
}
int NeuronCompilation_getCompiledNetworkSize(void *c, size_t *size) { return (void)c, *size = 64, 0; }
int NeuronCompilation_storeCompiledNetwork(void *c, void *bytes, size_t size) {
  (void)c;
  memset(bytes, 0, size);
  snprintf(bytes, size, "%s %d operations", STAMP, operations);
  return 0;
}

#define SILENT(name) \
  int name(void) { return 0; }
SILENT(NeuronModel_addOperand)
SILENT(NeuronModel_finish)
SILENT(NeuronModel_identifyInputsAndOutputs)
SILENT(NeuronModel_relaxComputationFloat32toFloat16)
SILENT(NeuronModel_restoreFromCompiledNetwork)
SILENT(NeuronModel_setName)
SILENT(NeuronModel_setOperandPerChannelQuantParams)
SILENT(NeuronModel_setOperandSymmPerChannelQuantParams)
SILENT(NeuronModel_setOperandValue)
SILENT(NeuronCompilation_finish)
SILENT(NeuronCompilation_getInputPaddedDimensions)
SILENT(NeuronCompilation_getInputPaddedSize)
SILENT(NeuronCompilation_getOutputPaddedDimensions)
SILENT(NeuronCompilation_getOutputPaddedSize)
SILENT(NeuronCompilation_setL1MemorySizeKb)
SILENT(NeuronCompilation_setOptimizationHint)
SILENT(NeuronCompilation_setOptimizationString)
SILENT(NeuronCompilation_setPreference)
SILENT(NeuronCompilation_setPriority)
SILENT(NeuronExecution_compute)
SILENT(NeuronExecution_create)
SILENT(NeuronExecution_setBoostHint)
SILENT(NeuronExecution_setConfig)
SILENT(NeuronExecution_setInputFromMemory)
SILENT(NeuronExecution_setOutputFromMemory)
SILENT(NeuronMemory_createFromAHardwareBuffer)
SILENT(NeuronMemory_createFromFd)
void NeuronModel_free(void *m) { (void)m; }
void NeuronCompilation_free(void *c) { (void)c; }
void NeuronExecution_free(void *e) { (void)e; }
void NeuronMemory_free(void *m) { (void)m; }
