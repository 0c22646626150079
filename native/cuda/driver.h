// The part of the CUDA driver API that the device uses. Types, values and symbols follow NVIDIA's documented
// ABI (CUDA 12.0 and newer), so nothing of CUDA is needed to build. Any thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

namespace pyturbo::cuda {

// Handles, as the driver defines them: pointers to structs that nobody else knows.
using DeviceId = int;  // CUdevice
using ContextHandle = struct CUctx_st*;
using StreamHandle = struct CUstream_st*;
using EventHandle = struct CUevent_st*;
using ModuleHandle = struct CUmod_st*;
using FunctionHandle = struct CUfunc_st*;
using KernelHandle = struct CUkern_st*;
using GraphHandle = struct CUgraph_st*;
using NodeHandle = struct CUgraphNode_st*;
using ExecHandle = struct CUgraphExec_st*;
using Address = unsigned long long;  // CUdeviceptr

// CUresult: the values that are told apart.
enum class Result : int {
  success = 0,
  invalid_value = 1,
  out_of_memory = 2,
  deinitialized = 4,
  no_device = 100,
  invalid_image = 200,
  invalid_context = 201,
  no_binary_for_gpu = 209,
  invalid_ptx = 218,
  unsupported_ptx = 222,
  invalid_handle = 400,
  not_found = 500,
  not_ready = 600,
  illegal_address = 700,
  launch_out_of_resources = 701,
  memory_already_registered = 712,
  launch_failed = 719,
  not_permitted = 800,
  not_supported = 801,
  unknown = 999,
};

// CUdevice_attribute.
enum class Attribute : int {
  max_shared_memory_per_block = 8,
  multiprocessor_count = 16,
  compute_capability_major = 75,
  compute_capability_minor = 76,
  host_register_supported = 99,
  read_only_host_register_supported = 113,
};

// CUfunction_attribute.
enum class FunctionAttribute : int {
  max_threads_per_block = 0,
  shared_size_bytes = 1,
  local_size_bytes = 3,
  num_regs = 4,
  max_dynamic_shared_size_bytes = 8,
};

inline constexpr unsigned kStreamNonBlocking = 1;
inline constexpr unsigned kEventDefault = 0;
inline constexpr unsigned kEventDisableTiming = 2;
inline constexpr unsigned kHostAllocPortable = 1;
inline constexpr unsigned kHostAllocDeviceMap = 2;
inline constexpr unsigned kHostRegisterPortable = 1;
inline constexpr unsigned kHostRegisterReadOnly = 8;

// CUDA_KERNEL_NODE_PARAMS_v2.
struct KernelNode {
  FunctionHandle function;
  unsigned groups_x, groups_y, groups_z;
  unsigned threads_x, threads_y, threads_z;
  unsigned shared_bytes;
  void** parameters;
  void** extra;
  KernelHandle kernel;
  ContextHandle context;
};
static_assert(sizeof(KernelNode) == 72 && offsetof(KernelNode, parameters) == 40);

// CUgraphEdgeData: of an edge from one launch to another.
struct Edge {
  uint8_t from_port, to_port, type, reserved[5];
};
// The second starts when the first has ended, or when all its threadgroups are at their end, and waits.
inline constexpr Edge kWhenEnded = {}, kWhenEnding = {1, 0, 1, {}};

// Name in the table, symbol of libcuda, parameters.
#define PYTURBO_CUDA_FUNCTIONS(X)                                                                            \
  X(init, cuInit, (unsigned flags))                                                                          \
  X(driver_version, cuDriverGetVersion, (int* version))                                                      \
  X(error_name, cuGetErrorName, (Result result, const char** text))                                          \
  X(error_string, cuGetErrorString, (Result result, const char** text))                                      \
  X(device_count, cuDeviceGetCount, (int* count))                                                            \
  X(device_get, cuDeviceGet, (DeviceId * device, int ordinal))                                               \
  X(device_name, cuDeviceGetName, (char* name, int length, DeviceId device))                                 \
  X(device_memory, cuDeviceTotalMem_v2, (size_t* bytes, DeviceId device))                                    \
  X(device_attribute, cuDeviceGetAttribute, (int* value, Attribute attribute, DeviceId device))              \
  X(context_retain, cuDevicePrimaryCtxRetain, (ContextHandle * context, DeviceId device))                    \
  X(context_release, cuDevicePrimaryCtxRelease_v2, (DeviceId device))                                        \
  X(context_push, cuCtxPushCurrent_v2, (ContextHandle context))                                              \
  X(context_pop, cuCtxPopCurrent_v2, (ContextHandle * context))                                              \
  X(memory_info, cuMemGetInfo_v2, (size_t* free, size_t* total))                                             \
  X(memory_allocate, cuMemAlloc_v2, (Address * address, size_t bytes))                                       \
  X(memory_free, cuMemFree_v2, (Address address))                                                            \
  X(host_allocate, cuMemHostAlloc, (void** memory, size_t bytes, unsigned flags))                            \
  X(host_free, cuMemFreeHost, (void* memory))                                                                \
  X(host_register, cuMemHostRegister_v2, (void* memory, size_t bytes, unsigned flags))                       \
  X(host_unregister, cuMemHostUnregister, (void* memory))                                                    \
  X(copy_in, cuMemcpyHtoDAsync_v2, (Address to, const void* from, size_t bytes, StreamHandle stream))        \
  X(copy_out, cuMemcpyDtoHAsync_v2, (void* to, Address from, size_t bytes, StreamHandle stream))             \
  X(copy_within, cuMemcpyDtoDAsync_v2, (Address to, Address from, size_t bytes, StreamHandle stream))        \
  X(fill, cuMemsetD8Async, (Address to, unsigned char value, size_t bytes, StreamHandle stream))             \
  X(stream_create, cuStreamCreate, (StreamHandle * stream, unsigned flags))                                  \
  X(stream_destroy, cuStreamDestroy_v2, (StreamHandle stream))                                               \
  X(stream_wait, cuStreamSynchronize, (StreamHandle stream))                                                 \
  X(event_create, cuEventCreate, (EventHandle * event, unsigned flags))                                      \
  X(event_destroy, cuEventDestroy_v2, (EventHandle event))                                                   \
  X(event_record, cuEventRecord, (EventHandle event, StreamHandle stream))                                   \
  X(event_wait, cuEventSynchronize, (EventHandle event))                                                     \
  X(event_elapsed, cuEventElapsedTime, (float* milliseconds, EventHandle begin, EventHandle end))            \
  X(module_load, cuModuleLoadData, (ModuleHandle * module, const void* image))                               \
  X(module_unload, cuModuleUnload, (ModuleHandle module))                                                    \
  X(module_function, cuModuleGetFunction,                                                                    \
    (FunctionHandle * function, ModuleHandle module, const char* name))                                      \
  X(module_global, cuModuleGetGlobal_v2,                                                                     \
    (Address * address, size_t* bytes, ModuleHandle module, const char* name))                               \
  X(function_attribute, cuFuncGetAttribute, (int* value, FunctionAttribute attribute, FunctionHandle f))     \
  X(set_function_attribute, cuFuncSetAttribute, (FunctionHandle f, FunctionAttribute attribute, int value))  \
  X(launch, cuLaunchKernel,                                                                                  \
    (FunctionHandle function, unsigned groups_x, unsigned groups_y, unsigned groups_z, unsigned threads_x,   \
     unsigned threads_y, unsigned threads_z, unsigned shared_bytes, StreamHandle stream, void** parameters,  \
     void** extra))                                                                                          \
  X(graph_create, cuGraphCreate, (GraphHandle * graph, unsigned flags))                                      \
  X(graph_destroy, cuGraphDestroy, (GraphHandle graph))                                                      \
  X(graph_add, cuGraphAddKernelNode_v2,                                                                      \
    (NodeHandle * node, GraphHandle graph, const NodeHandle* after, size_t count, const KernelNode* kernel)) \
  X(graph_instantiate, cuGraphInstantiateWithFlags,                                                          \
    (ExecHandle * exec, GraphHandle graph, unsigned long long flags))                                        \
  X(exec_destroy, cuGraphExecDestroy, (ExecHandle exec))                                                     \
  X(exec_set, cuGraphExecKernelNodeSetParams_v2,                                                             \
    (ExecHandle exec, NodeHandle node, const KernelNode* kernel))                                            \
  X(exec_enable, cuGraphNodeSetEnabled, (ExecHandle exec, NodeHandle node, unsigned enabled))                \
  X(exec_launch, cuGraphLaunch, (ExecHandle exec, StreamHandle stream))

// Those that drivers older than CUDA 12.3 have not.
#define PYTURBO_CUDA_NEWER_FUNCTIONS(X)       \
  X(graph_connect, cuGraphAddDependencies_v2, \
    (GraphHandle graph, const NodeHandle* from, const NodeHandle* to, const Edge* edges, size_t count))

// The functions of the driver. Newer ones may be null.
struct Driver {
#define PYTURBO_CUDA_MEMBER(name, symbol, parameters) Result(*name) parameters;
  PYTURBO_CUDA_FUNCTIONS(PYTURBO_CUDA_MEMBER)
  PYTURBO_CUDA_NEWER_FUNCTIONS(PYTURBO_CUDA_MEMBER)
#undef PYTURBO_CUDA_MEMBER
};

// Whether PYTURBO_CUDA_DRIVER names a driver. It takes the place of the machine's, and need not be for a GPU.
bool driver_is_named();

// What came of opening the driver, which is done once: the one that is named, else libcuda.so.1.
struct OpenedDriver {
  const Driver* driver;  // null: there is none
  std::string missing;   // says why
  uint32_t process;      // fork_count() when it was opened: a child of fork() cannot use it
};
const OpenedDriver& opened_driver();

// Returns a result as "CUDA_ERROR_OUT_OF_MEMORY: out of memory".
std::string text(const Driver& driver, Result result);

// Throws Error{device} unless it is success, or Error{memory} if there was too little. `what` begins the
// message.
void require(const Driver& driver, Result result, const std::string& what);

}  // namespace pyturbo::cuda
