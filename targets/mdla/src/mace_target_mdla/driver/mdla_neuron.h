/* mdla_neuron.h - the functions of MediaTek's Neuron adapter and Neuron runtime that the driver calls, as
 * pointers. All are looked up at run time; no symbol of the vendor is linked.
 *
 * Written from the documented signatures: NeuronAdapter.h, RuntimeAPI.h, RuntimeV2.h and Types.h of the
 * Neuron SDK, as published with software that uses them. Names and numbers are the vendor's.
 */
#ifndef MACE_MDLA_NEURON_H
#define MACE_MDLA_NEURON_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* What most functions answer. */
enum {
  NEURON_NO_ERROR = 0,
  NEURON_OUT_OF_MEMORY = 1,
  NEURON_INCOMPLETE = 2,
  NEURON_UNEXPECTED_NULL = 3,
  NEURON_BAD_DATA = 4,
  NEURON_OP_FAILED = 5,
  NEURON_UNMAPPABLE = 6,
  NEURON_BAD_STATE = 7,
  NEURON_BAD_VERSION = 8,
  NEURON_OUTPUT_INSUFFICIENT_SIZE = 9,
  NEURON_UNAVAILABLE_DEVICE = 10,
  NEURON_MISSED_DEADLINE_TRANSIENT = 11,
  NEURON_MISSED_DEADLINE_PERSISTENT = 12,
  NEURON_RESOURCE_EXHAUSTED_TRANSIENT = 13,
  NEURON_RESOURCE_EXHAUSTED_PERSISTENT = 14,
  NEURON_DEAD_OBJECT = 15
};

enum {
  NEURON_PREFER_LOW_POWER = 0,
  NEURON_PREFER_FAST_SINGLE_ANSWER = 1,
  NEURON_PREFER_SUSTAINED_SPEED = 2,
  NEURON_PREFER_TURBO_BOOST = 3
};

enum { NEURON_PRIORITY_LOW = 90, NEURON_PRIORITY_MEDIUM = 100, NEURON_PRIORITY_HIGH = 110 };

typedef struct NeuronModel NeuronModel;
typedef struct NeuronCompilation NeuronCompilation;
typedef struct NeuronExecution NeuronExecution;
typedef struct NeuronDevice NeuronDevice;
typedef struct NeuronMemory NeuronMemory;

typedef struct NeuronOperandType {
  int32_t type;
  uint32_t dimensionCount; /* 0 for scalars */
  const uint32_t *dimensions;
  float scale; /* of quantized tensors; 0 for all others */
  int32_t zeroPoint;
} NeuronOperandType;

typedef struct NeuronSymmPerChannelQuantParams {
  uint32_t channelDim;
  uint32_t scaleCount;
  const float *scales;
} NeuronSymmPerChannelQuantParams;

typedef struct NeuronRuntimeVersion {
  uint8_t major, minor, patch;
  uint8_t spare[5]; /* an early adapter writes a word here */
} NeuronRuntimeVersion;

/* The adapter's functions: NAME(function, type, arguments). Every adapter since 4.3.0 has these. */
#define MDLA_ADAPTER_FUNCTIONS(NAME)                                                       \
  NAME(Neuron_getVersion, int, (NeuronRuntimeVersion *))                                   \
  NAME(NeuronModel_create, int, (NeuronModel **))                                          \
  NAME(NeuronModel_free, void, (NeuronModel *))                                            \
  NAME(NeuronModel_addOperand, int, (NeuronModel *, const NeuronOperandType *))            \
  NAME(NeuronModel_setOperandValue, int, (NeuronModel *, int32_t, const void *, size_t))   \
  NAME(NeuronModel_setOperandSymmPerChannelQuantParams, int,                               \
       (NeuronModel *, int32_t, const NeuronSymmPerChannelQuantParams *))                  \
  NAME(NeuronModel_addOperation, int,                                                      \
       (NeuronModel *, int, uint32_t, const uint32_t *, uint32_t, const uint32_t *))       \
  NAME(NeuronModel_identifyInputsAndOutputs, int,                                          \
       (NeuronModel *, uint32_t, const uint32_t *, uint32_t, const uint32_t *))            \
  NAME(NeuronModel_relaxComputationFloat32toFloat16, int, (NeuronModel *, bool))           \
  NAME(NeuronModel_finish, int, (NeuronModel *))                                           \
  NAME(NeuronModel_getSupportedOperations, int, (NeuronModel *, bool *, uint32_t))         \
  NAME(NeuronModel_restoreFromCompiledNetwork, int,                                        \
       (NeuronModel **, NeuronCompilation **, const void *, size_t))                       \
  NAME(NeuronCompilation_create, int, (NeuronModel *, NeuronCompilation **))               \
  NAME(NeuronCompilation_free, void, (NeuronCompilation *))                                \
  NAME(NeuronCompilation_setPreference, int, (NeuronCompilation *, int32_t))               \
  NAME(NeuronCompilation_setPriority, int, (NeuronCompilation *, int))                     \
  NAME(NeuronCompilation_finish, int, (NeuronCompilation *))                               \
  NAME(NeuronCompilation_getCompiledNetworkSize, int, (NeuronCompilation *, size_t *))     \
  NAME(NeuronCompilation_storeCompiledNetwork, int, (NeuronCompilation *, void *, size_t)) \
  NAME(NeuronExecution_create, int, (NeuronCompilation *, NeuronExecution **))             \
  NAME(NeuronExecution_free, void, (NeuronExecution *))                                    \
  NAME(NeuronExecution_setInput, int,                                                      \
       (NeuronExecution *, int32_t, const NeuronOperandType *, const void *, size_t))      \
  NAME(NeuronExecution_setOutput, int,                                                     \
       (NeuronExecution *, int32_t, const NeuronOperandType *, void *, size_t))            \
  NAME(NeuronExecution_compute, int, (NeuronExecution *))

/* Functions that some adapters lack; the driver does without. */
#define MDLA_OPTIONAL_FUNCTIONS(NAME)                                                                  \
  NAME(Neuron_getDeviceCount, int, (uint32_t *))                                                       \
  NAME(Neuron_getDevice, int, (uint32_t, NeuronDevice **))                                             \
  NAME(NeuronDevice_getName, int, (const NeuronDevice *, const char **))                               \
  NAME(NeuronCompilation_createForDevices, int,                                                        \
       (NeuronModel *, const NeuronDevice *const *, uint32_t, NeuronCompilation **))                   \
  NAME(NeuronCompilation_createWithOptions, int, (NeuronModel *, NeuronCompilation **, const char *))  \
  NAME(NeuronCompilation_setOptimizationString, int, (NeuronCompilation *, const char *))              \
  NAME(NeuronExecution_setBoostHint, int, (NeuronExecution *, uint8_t))                                \
  NAME(NeuronExecution_setInputFromMemory, int,                                                        \
       (NeuronExecution *, uint32_t, const NeuronOperandType *, const NeuronMemory *, size_t, size_t)) \
  NAME(NeuronExecution_setOutputFromMemory, int,                                                       \
       (NeuronExecution *, uint32_t, const NeuronOperandType *, const NeuronMemory *, size_t, size_t)) \
  NAME(NeuronMemory_createFromFd, int, (size_t, int, int, size_t, NeuronMemory **))                    \
  NAME(NeuronMemory_createFromAHardwareBuffer, int, (const void *, NeuronMemory **))                   \
  NAME(NeuronMemory_free, void, (NeuronMemory *))

/* Of the runtime, which executes files of ncc-tflite. One buffer of an inference: */
typedef struct IOBuffer {
  void *buffer;
  size_t length;
  int fd; /* -1: ordinary memory */
  int offset;
  uint64_t reserved2, reserved3;
} IOBuffer;

typedef struct SyncInferenceRequest {
  IOBuffer *inputs, *outputs;
} SyncInferenceRequest;

typedef struct BufferAttribute {
  int ionFd; /* -1: ordinary memory */
} BufferAttribute;

/* How a runtime of version 1 is made. Members behind deviceKind differ between SDKs: one has a number of CPU
 * threads that another lacks. All of them are 0 here ("the scheduler decides", "convert inputs and outputs"),
 * so that every layout reads the same, and more bytes are given than any has. */
typedef struct EnvOptions {
  uint32_t deviceKind;
  uint32_t zeros[15];
} EnvOptions;

enum { ENV_OPTIONS_HARDWARE = 1 << 2 };

#define MDLA_RUNTIME_V2_FUNCTIONS(NAME)                                                        \
  NAME(NeuronRuntimeV2_createFromBuffer, int, (const void *, size_t, size_t, void **, size_t)) \
  NAME(NeuronRuntimeV2_release, void, (void *))                                                \
  NAME(NeuronRuntimeV2_getInputNumber, int, (void *, size_t *))                                \
  NAME(NeuronRuntimeV2_getOutputNumber, int, (void *, size_t *))                               \
  NAME(NeuronRuntimeV2_getInputSize, int, (void *, uint64_t, size_t *))                        \
  NAME(NeuronRuntimeV2_getOutputSize, int, (void *, uint64_t, size_t *))                       \
  NAME(NeuronRuntimeV2_run, int, (void *, SyncInferenceRequest))

#define MDLA_RUNTIME_V1_FUNCTIONS(NAME)                                                        \
  NAME(NeuronRuntime_create, int, (const EnvOptions *, void **))                               \
  NAME(NeuronRuntime_release, void, (void *))                                                  \
  NAME(NeuronRuntime_loadNetworkFromBuffer, int, (void *, const void *, size_t))               \
  NAME(NeuronRuntime_getInputNumber, int, (void *, size_t *))                                  \
  NAME(NeuronRuntime_getOutputNumber, int, (void *, size_t *))                                 \
  NAME(NeuronRuntime_getInputSize, int, (void *, uint64_t, size_t *))                          \
  NAME(NeuronRuntime_getOutputSize, int, (void *, uint64_t, size_t *))                         \
  NAME(NeuronRuntime_setInput, int, (void *, uint64_t, const void *, size_t, BufferAttribute)) \
  NAME(NeuronRuntime_setOutput, int, (void *, uint64_t, void *, size_t, BufferAttribute))      \
  NAME(NeuronRuntime_inference, int, (void *))

#define MDLA_POINTER(function, type, arguments) type(*function) arguments;

typedef struct mdla_adapter {
  MDLA_ADAPTER_FUNCTIONS(MDLA_POINTER)
  MDLA_OPTIONAL_FUNCTIONS(MDLA_POINTER)
} mdla_adapter;

typedef struct mdla_runtime {
  MDLA_RUNTIME_V2_FUNCTIONS(MDLA_POINTER)
  MDLA_RUNTIME_V1_FUNCTIONS(MDLA_POINTER)
} mdla_runtime;

#endif
