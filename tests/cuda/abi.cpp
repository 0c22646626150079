// Compares the declarations of native/cuda/driver.h with NVIDIA's <cuda.h>. It is compiled, never run.
#include <cuda.h>

#include <cstddef>
#include <type_traits>

#include "cuda/driver.h"

namespace ours = pyturbo::cuda;

// NVIDIA's type for one of ours.
template <typename T>
struct Theirs {
  using type = T;
};
#define SAME_HANDLE(mine, their)     \
  template <>                        \
  struct Theirs<ours::mine> {        \
    using type = their;              \
  };                                 \
  template <>                        \
  struct Theirs<ours::mine*> {       \
    using type = their*;             \
  };                                 \
  template <>                        \
  struct Theirs<const ours::mine*> { \
    using type = const their*;       \
  };
SAME_HANDLE(ContextHandle, CUcontext)
SAME_HANDLE(StreamHandle, CUstream)
SAME_HANDLE(EventHandle, CUevent)
SAME_HANDLE(ModuleHandle, CUmodule)
SAME_HANDLE(FunctionHandle, CUfunction)
SAME_HANDLE(GraphHandle, CUgraph)
SAME_HANDLE(NodeHandle, CUgraphNode)
SAME_HANDLE(ExecHandle, CUgraphExec)
SAME_HANDLE(Attribute, CUdevice_attribute)
SAME_HANDLE(FunctionAttribute, CUfunction_attribute)
SAME_HANDLE(Result, CUresult)
SAME_HANDLE(KernelNode, CUDA_KERNEL_NODE_PARAMS_v2)
SAME_HANDLE(Edge, CUgraphEdgeData)
template <typename R, typename... A>
struct Theirs<R (*)(A...)> {
  using type = typename Theirs<R>::type (*)(typename Theirs<A>::type...);
};

// From CUDA 13 on the header names a newer one; the library has both.
#undef cuEventElapsedTime
extern "C" CUresult CUDAAPI cuEventElapsedTime(float*, CUevent, CUevent);

#define SAME_FUNCTION(name, symbol, parameters) \
  static_assert(std::is_same_v<Theirs<decltype(ours::Driver::name)>::type, decltype(&symbol)>, #symbol);
PYTURBO_CUDA_FUNCTIONS(SAME_FUNCTION)
PYTURBO_CUDA_NEWER_FUNCTIONS(SAME_FUNCTION)

using Mine = ours::KernelNode;
using Node = CUDA_KERNEL_NODE_PARAMS_v2;
static_assert(sizeof(Mine) == sizeof(Node));
static_assert(offsetof(Mine, function) == offsetof(Node, func));
static_assert(offsetof(Mine, groups_x) == offsetof(Node, gridDimX));
static_assert(offsetof(Mine, threads_x) == offsetof(Node, blockDimX));
static_assert(offsetof(Mine, shared_bytes) == offsetof(Node, sharedMemBytes));
static_assert(offsetof(Mine, parameters) == offsetof(Node, kernelParams));
static_assert(offsetof(Mine, extra) == offsetof(Node, extra));
static_assert(offsetof(Mine, kernel) == offsetof(Node, kern));
static_assert(offsetof(Mine, context) == offsetof(Node, ctx));

static_assert(sizeof(ours::Edge) == sizeof(CUgraphEdgeData));
static_assert(offsetof(ours::Edge, from_port) == offsetof(CUgraphEdgeData, from_port));
static_assert(offsetof(ours::Edge, to_port) == offsetof(CUgraphEdgeData, to_port));
static_assert(offsetof(ours::Edge, type) == offsetof(CUgraphEdgeData, type));

#define SAME_VALUE(mine, their) static_assert(int(mine) == int(their), #their)
SAME_VALUE(ours::Result::invalid_value, CUDA_ERROR_INVALID_VALUE);
SAME_VALUE(ours::Result::out_of_memory, CUDA_ERROR_OUT_OF_MEMORY);
SAME_VALUE(ours::Result::deinitialized, CUDA_ERROR_DEINITIALIZED);
SAME_VALUE(ours::Result::no_device, CUDA_ERROR_NO_DEVICE);
SAME_VALUE(ours::Result::invalid_image, CUDA_ERROR_INVALID_IMAGE);
SAME_VALUE(ours::Result::invalid_context, CUDA_ERROR_INVALID_CONTEXT);
SAME_VALUE(ours::Result::no_binary_for_gpu, CUDA_ERROR_NO_BINARY_FOR_GPU);
SAME_VALUE(ours::Result::invalid_handle, CUDA_ERROR_INVALID_HANDLE);
SAME_VALUE(ours::Result::not_found, CUDA_ERROR_NOT_FOUND);
SAME_VALUE(ours::Result::not_ready, CUDA_ERROR_NOT_READY);
SAME_VALUE(ours::Result::illegal_address, CUDA_ERROR_ILLEGAL_ADDRESS);
SAME_VALUE(ours::Result::launch_out_of_resources, CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES);
SAME_VALUE(ours::Result::memory_already_registered, CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED);
SAME_VALUE(ours::Result::launch_failed, CUDA_ERROR_LAUNCH_FAILED);
SAME_VALUE(ours::Result::not_permitted, CUDA_ERROR_NOT_PERMITTED);
SAME_VALUE(ours::Result::not_supported, CUDA_ERROR_NOT_SUPPORTED);
SAME_VALUE(ours::Result::unknown, CUDA_ERROR_UNKNOWN);
SAME_VALUE(ours::Attribute::max_shared_memory_per_block, CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK);
SAME_VALUE(ours::Attribute::multiprocessor_count, CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT);
SAME_VALUE(ours::Attribute::compute_capability_major, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR);
SAME_VALUE(ours::Attribute::compute_capability_minor, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR);
SAME_VALUE(ours::Attribute::host_register_supported, CU_DEVICE_ATTRIBUTE_HOST_REGISTER_SUPPORTED);
SAME_VALUE(ours::Attribute::read_only_host_register_supported,
           CU_DEVICE_ATTRIBUTE_READ_ONLY_HOST_REGISTER_SUPPORTED);
SAME_VALUE(ours::FunctionAttribute::max_threads_per_block, CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK);
SAME_VALUE(ours::FunctionAttribute::shared_size_bytes, CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES);
SAME_VALUE(ours::FunctionAttribute::local_size_bytes, CU_FUNC_ATTRIBUTE_LOCAL_SIZE_BYTES);
SAME_VALUE(ours::FunctionAttribute::num_regs, CU_FUNC_ATTRIBUTE_NUM_REGS);
SAME_VALUE(ours::FunctionAttribute::max_dynamic_shared_size_bytes,
           CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES);
SAME_VALUE(ours::kStreamNonBlocking, CU_STREAM_NON_BLOCKING);
SAME_VALUE(ours::kEventDefault, CU_EVENT_DEFAULT);
SAME_VALUE(ours::kHostAllocPortable, CU_MEMHOSTALLOC_PORTABLE);
SAME_VALUE(ours::kHostAllocDeviceMap, CU_MEMHOSTALLOC_DEVICEMAP);
SAME_VALUE(ours::kHostRegisterPortable, CU_MEMHOSTREGISTER_PORTABLE);
SAME_VALUE(ours::kHostRegisterReadOnly, CU_MEMHOSTREGISTER_READ_ONLY);
SAME_VALUE(ours::kWhenEnded.from_port, CU_GRAPH_KERNEL_NODE_PORT_DEFAULT);
SAME_VALUE(ours::kWhenEnded.type, CU_GRAPH_DEPENDENCY_TYPE_DEFAULT);
SAME_VALUE(ours::kWhenEnding.from_port, CU_GRAPH_KERNEL_NODE_PORT_PROGRAMMATIC);
SAME_VALUE(ours::kWhenEnding.type, CU_GRAPH_DEPENDENCY_TYPE_PROGRAMMATIC);
