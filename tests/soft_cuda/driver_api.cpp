// The driver API, as native/cuda/driver.h declares it.
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <map>
#include <type_traits>

#include "core/kernels.h"
#include "cuda/driver.h"
#include "handles.h"
#include "heap.h"
#include "image.h"
#include "objects.h"

using namespace pyturbo::cuda;
namespace soft = soft_cuda;
using soft::Block;
using soft::Counters;
using soft::Fault;
using soft::Rule;
using soft::take_fault;
using soft::violate;

namespace {

constexpr Result kNotInitialized = Result(3);
constexpr Result kDeviceUnavailable = Result(46);
constexpr Result kInvalidDevice = Result(101);

int initialised_by = 0;  // the process

// Never destroyed: handles may live until the process ends.
template <typename T>
soft::Handles<T>& handles(const char* name) {
  static auto& instance = *new soft::Handles<T>(name);
  return instance;
}
auto& streams() { return handles<soft::Stream>("stream"); }
auto& events() { return handles<soft::Event>("event"); }
auto& modules() { return handles<soft::Module>("module"); }
auto& graphs() { return handles<soft::Graph>("graph"); }
auto& execs() { return handles<soft::Exec>("graph exec"); }

constexpr int kMostDevices = 8;

// The primary contexts.
struct Primary {
  std::mutex mutex;
  int retained[kMostDevices] = {};  // whose addresses are the handles of the contexts
  // Handles of functions and nodes live as long as what they belong to; those of nodes by graph.
  std::map<const void*, std::shared_ptr<soft::Kernel>> functions;
  std::map<const void*, std::pair<const soft::Graph*, uint32_t>> nodes;
};
Primary& primary() {
  static Primary& instance = *new Primary;
  return instance;
}
ContextHandle context_of(DeviceId device) {
  return reinterpret_cast<ContextHandle>(&primary().retained[device]);
}

thread_local std::vector<DeviceId> current;  // GPUs of the contexts on this thread

Result ready() {
  if (!initialised_by) return kNotInitialized;
  if (initialised_by != ::getpid()) {
    violate(Rule::forked, "expected no call in a child of fork(), got one");
    return kNotInitialized;
  }
  if (take_fault(Fault::device_lost)) soft::failure().set(kDeviceUnavailable);
  return soft::failure().get();
}

// What every call in a context needs.
Result in_context() {
  const Result result = ready();
  if (result != Result::success) return result;
  if (!current.empty()) return Result::success;
  violate(Rule::no_context, "expected a context on this thread, got none");
  return Result::invalid_context;
}

double seconds() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

// Memory of the GPU; null, after a violation, when these bytes are not in one allocation.
std::shared_ptr<Block> gpu_memory(Address address, size_t bytes, const char* call) {
  auto block = soft::heap().find(address);
  if (block && block->kind == Block::gpu && address + bytes <= block->begin + block->bytes) return block;
  violate(Rule::memory_range,
          std::string(call) + ": expected " + std::to_string(bytes) + " bytes of the GPU, got other memory");
  return nullptr;
}

// Memory of the host for a copy: its block where it is pinned. False, after a violation, for other memory.
bool host_memory(const void* memory, const char* call, std::shared_ptr<Block>& pinned) {
  pinned = soft::heap().find(reinterpret_cast<uint64_t>(memory));
  if (memory && !(pinned && pinned->kind == Block::gpu)) return true;
  violate(Rule::host_memory, std::string(call) + ": expected memory of the host, got that of the GPU");
  return false;
}

uint8_t* data(const Block& block, Address address) { return block.data + (address - block.begin); }

// Delays and failures that tests inject into work.
Result injected() {
  soft::slow_down(Fault::slow);
  return take_fault(Fault::launch) ? Result::illegal_address : Result::success;
}

std::shared_ptr<soft::Kernel> function(FunctionHandle handle) {
  const std::lock_guard lock(primary().mutex);
  const auto found = primary().functions.find(handle);
  if (found != primary().functions.end()) return found->second;
  violate(Rule::handle, "expected a function, got a handle of none");
  return nullptr;
}

// The index of a node in its graph; false, after a violation, when there is none.
bool node_of(NodeHandle handle, uint32_t& index) {
  const std::lock_guard lock(primary().mutex);
  const auto found = primary().nodes.find(handle);
  if (found == primary().nodes.end()) {
    violate(Rule::handle, "expected a node, got a handle of none");
    return false;
  }
  index = found->second.second;
  return true;
}

bool node_in(const soft::Graph& graph, NodeHandle handle, uint32_t& index) {
  if (node_of(handle, index) && index < graph.nodes.size() &&
      graph.nodes[index].get() == reinterpret_cast<const soft::Node*>(handle))
    return true;
  violate(Rule::handle, "expected nodes of the same graph, got others");
  return false;
}

// Adds an edge from the node with that index.
bool connect(soft::Node& node, uint32_t from) {
  if (std::find(node.after.begin(), node.after.end(), from) != node.after.end()) {
    violate(Rule::parameter, "expected each edge once, got one twice");
    return false;
  }
  node.after.push_back(from);
  return true;
}

std::vector<std::shared_ptr<Block>> blocks_of(const soft::Launch& launch) {
  pyturbo::Arguments arguments;
  std::vector<soft::Access> accesses;
  std::vector<std::shared_ptr<Block>> blocks;
  launch.resolve(arguments, accesses, blocks);
  return blocks;
}

}  // namespace

#define SOFT_CUDA_CHECK(name, symbol, parameters) extern "C" Result symbol parameters;
PYTURBO_CUDA_FUNCTIONS(SOFT_CUDA_CHECK)
PYTURBO_CUDA_NEWER_FUNCTIONS(SOFT_CUDA_CHECK)
#undef SOFT_CUDA_CHECK

// Process, device, context --------------------------------------------------------------------------

Result cuInit(unsigned flags) {
  if (flags != 0) return Result::invalid_value;
  initialised_by = ::getpid();
  return soft::options().devices > 0 ? Result::success : Result::no_device;
}

Result cuDriverGetVersion(int* version) {
  *version = soft::options().driver;
  return Result::success;
}

Result cuGetErrorName(Result result, const char** text) {
  static const std::map<Result, const char*> names = {
      {Result::success, "CUDA_SUCCESS"},
      {Result::invalid_value, "CUDA_ERROR_INVALID_VALUE"},
      {Result::out_of_memory, "CUDA_ERROR_OUT_OF_MEMORY"},
      {kNotInitialized, "CUDA_ERROR_NOT_INITIALIZED"},
      {kDeviceUnavailable, "CUDA_ERROR_DEVICE_UNAVAILABLE"},
      {Result::no_device, "CUDA_ERROR_NO_DEVICE"},
      {kInvalidDevice, "CUDA_ERROR_INVALID_DEVICE"},
      {Result::invalid_image, "CUDA_ERROR_INVALID_IMAGE"},
      {Result::invalid_context, "CUDA_ERROR_INVALID_CONTEXT"},
      {Result::no_binary_for_gpu, "CUDA_ERROR_NO_BINARY_FOR_GPU"},
      {Result::unsupported_ptx, "CUDA_ERROR_UNSUPPORTED_PTX_VERSION"},
      {Result::invalid_handle, "CUDA_ERROR_INVALID_HANDLE"},
      {Result::not_found, "CUDA_ERROR_NOT_FOUND"},
      {Result::not_ready, "CUDA_ERROR_NOT_READY"},
      {Result::illegal_address, "CUDA_ERROR_ILLEGAL_ADDRESS"},
      {Result::launch_out_of_resources, "CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES"},
      {Result::memory_already_registered, "CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED"},
      {Result::launch_failed, "CUDA_ERROR_LAUNCH_FAILED"},
      {Result::not_supported, "CUDA_ERROR_NOT_SUPPORTED"},
  };
  const auto found = names.find(result);
  *text = found == names.end() ? nullptr : found->second;
  return *text ? Result::success : Result::invalid_value;
}

Result cuGetErrorString(Result result, const char** text) {
  static const std::map<Result, const char*> texts = {
      {Result::out_of_memory, "out of memory"},
      {Result::illegal_address, "an illegal memory access was encountered"},
      {kDeviceUnavailable, "CUDA-capable device(s) is/are busy or unavailable"},
  };
  const auto found = texts.find(result);
  if (found == texts.end()) return cuGetErrorName(result, text);
  *text = found->second;
  return Result::success;
}

Result cuDeviceGetCount(int* count) {
  *count = soft::options().devices;
  return ready();
}

Result cuDeviceGet(DeviceId* device, int ordinal) {
  if (ordinal < 0 || ordinal >= soft::options().devices) return kInvalidDevice;
  *device = ordinal;
  return ready();
}

Result cuDeviceGetName(char* name, int length, DeviceId) {
  std::strncpy(name, soft::options().name.c_str(), size_t(length));
  return ready();
}

Result cuDeviceTotalMem_v2(size_t* bytes, DeviceId) {
  *bytes = soft::options().memory;
  return ready();
}

Result cuDeviceGetAttribute(int* value, Attribute attribute, DeviceId) {
  switch (attribute) {
    case Attribute::max_shared_memory_per_block:
      *value = int(soft::options().max_shared_bytes);
      break;
    case Attribute::multiprocessor_count:
      *value = soft::options().multiprocessors;
      break;
    case Attribute::compute_capability_major:
      *value = soft::options().capability / 10;
      break;
    case Attribute::compute_capability_minor:
      *value = soft::options().capability % 10;
      break;
    case Attribute::host_register_supported:
      *value = 1;
      break;
    case Attribute::read_only_host_register_supported:
      *value = soft::options().read_only_register;
      break;
    default:
      return Result::invalid_value;
  }
  return ready();
}

Result cuDevicePrimaryCtxRetain(ContextHandle* context, DeviceId device) {
  const Result result = ready();
  if (result != Result::success) return result;
  const std::lock_guard lock(primary().mutex);
  if (primary().retained[device]++ == 0) soft::object_created("context");
  *context = context_of(device);
  return Result::success;
}

// The context ends with its last owner, and its failure with it.
Result cuDevicePrimaryCtxRelease_v2(DeviceId device) {
  if (initialised_by != ::getpid()) return ready();
  const std::lock_guard lock(primary().mutex);
  if (primary().retained[device] == 0) {
    violate(Rule::handle, "expected a retained context, got none");
    return Result::invalid_context;
  }
  if (--primary().retained[device] == 0) {
    soft::object_gone("context");
    soft::failure().clear();
  }
  return Result::success;
}

Result cuCtxPushCurrent_v2(ContextHandle context) {
  if (initialised_by != ::getpid()) return ready();
  const std::lock_guard lock(primary().mutex);
  const auto device = DeviceId(reinterpret_cast<int*>(context) - primary().retained);
  if (device < 0 || device >= kMostDevices || primary().retained[device] == 0) {
    violate(Rule::handle, "expected a retained context, got none");
    return Result::invalid_context;
  }
  current.push_back(device);
  return Result::success;
}

Result cuCtxPopCurrent_v2(ContextHandle* context) {
  if (current.empty()) {
    violate(Rule::no_context, "expected a context on this thread, got none");
    return Result::invalid_context;
  }
  *context = context_of(current.back());
  current.pop_back();
  return Result::success;
}

// Memory --------------------------------------------------------------------------------------------

Result cuMemGetInfo_v2(size_t* free, size_t* total) {
  *total = soft::options().memory;
  const Result result = in_context();
  if (!current.empty()) *free = *total - std::min<uint64_t>(*total, soft::heap().allocated(current.back()));
  return result;
}

Result cuMemAlloc_v2(Address* address, size_t bytes) {
  const Result result = in_context();
  if (result != Result::success) return result;
  if (bytes == 0) return Result::invalid_value;
  if (take_fault(Fault::allocation)) return Result::out_of_memory;
  const auto block = soft::heap().allocate(bytes, soft::options().memory, current.back());
  if (!block) return Result::out_of_memory;
  soft::count(&Counters::allocations);
  *address = block->begin;
  return Result::success;
}

// Waits, as the driver does, for work that uses the memory.
static Result free_memory(uint64_t begin, Block::Kind kind) {
  if (const Result result = in_context(); result == Result::invalid_context) return result;
  if (const auto block = soft::heap().find(begin); block && block->kind == kind && block->uses > 0) {
    violate(Rule::freed_in_use, "expected memory that no work uses, got memory in use");
    while (block->uses > 0) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  if (!soft::heap().remove(begin, kind)) {
    violate(Rule::memory_range, "expected memory to free, got none");
    return Result::invalid_value;
  }
  return soft::failure().get();
}

Result cuMemFree_v2(Address address) { return free_memory(address, Block::gpu); }

Result cuMemHostAlloc(void** memory, size_t bytes, unsigned flags) {
  const Result result = in_context();
  if (result != Result::success) return result;
  if (bytes == 0 || !(flags & kHostAllocDeviceMap)) return Result::invalid_value;
  if (take_fault(Fault::allocation)) return Result::out_of_memory;
  *memory = soft::heap().allocate_host(bytes)->data;
  return Result::success;
}

Result cuMemFreeHost(void* memory) { return free_memory(reinterpret_cast<uint64_t>(memory), Block::host); }

Result cuMemHostRegister_v2(void* memory, size_t bytes, unsigned flags) {
  const Result result = in_context();
  if (result != Result::success) return result;
  const bool read_only = flags & kHostRegisterReadOnly;
  if (read_only && !soft::options().read_only_register) return Result::not_supported;
  if (!soft::heap().add_host(memory, bytes, read_only)) return Result::memory_already_registered;
  soft::count(&Counters::registered);
  return Result::success;
}

Result cuMemHostUnregister(void* memory) {
  return free_memory(reinterpret_cast<uint64_t>(memory), Block::registered);
}

// Pageable memory is read at once; pinned memory when the copy runs.
Result cuMemcpyHtoDAsync_v2(Address to, const void* from, size_t bytes, StreamHandle handle) {
  const Result result = in_context();
  if (result != Result::success) return result;
  const auto stream = streams().get(handle);
  const auto block = gpu_memory(to, bytes, "cuMemcpyHtoDAsync");
  std::shared_ptr<Block> pinned;
  if (!stream || !block || !host_memory(from, "cuMemcpyHtoDAsync", pinned)) return Result::invalid_value;
  soft::count(&Counters::copies_in);
  soft::slow_down(Fault::slow_copy);
  uint8_t* const target = data(*block, to);
  if (pinned) {
    stream->add({[=] { return std::memcpy(target, from, bytes), Result::success; }, {block, pinned}});
  } else {
    const auto* begin = static_cast<const uint8_t*>(from);
    stream->add({[target, kept = std::vector<uint8_t>(begin, begin + bytes)] {
                   return std::memcpy(target, kept.data(), kept.size()), Result::success;
                 },
                 {block}});
  }
  return Result::success;
}

Result cuMemcpyDtoHAsync_v2(void* to, Address from, size_t bytes, StreamHandle handle) {
  const Result result = in_context();
  if (result != Result::success) return result;
  const auto stream = streams().get(handle);
  const auto block = gpu_memory(from, bytes, "cuMemcpyDtoHAsync");
  std::shared_ptr<Block> pinned;
  if (!stream || !block || !host_memory(to, "cuMemcpyDtoHAsync", pinned)) return Result::invalid_value;
  soft::count(&Counters::copies_out);
  stream->add({[=] { return std::memcpy(to, data(*block, from), bytes), Result::success; }, {block}});
  return Result::success;
}

Result cuMemcpyDtoDAsync_v2(Address to, Address from, size_t bytes, StreamHandle handle) {
  const Result result = in_context();
  if (result != Result::success) return result;
  const auto stream = streams().get(handle);
  const auto target = gpu_memory(to, bytes, "cuMemcpyDtoDAsync");
  const auto source = gpu_memory(from, bytes, "cuMemcpyDtoDAsync");
  if (!stream || !target || !source) return Result::invalid_value;
  if (to < from + bytes && from < to + bytes)
    violate(Rule::overlap, "cuMemcpyDtoDAsync: expected memory apart, got " + std::to_string(bytes) +
                               " bytes " + std::to_string(int64_t(to - from)) + " further");
  stream->add({[=] { return std::memmove(data(*target, to), data(*source, from), bytes), Result::success; },
               {target, source}});
  return Result::success;
}

Result cuMemsetD8Async(Address to, unsigned char value, size_t bytes, StreamHandle handle) {
  const Result result = in_context();
  if (result != Result::success) return result;
  const auto stream = streams().get(handle);
  const auto block = gpu_memory(to, bytes, "cuMemsetD8Async");
  if (!stream || !block) return Result::invalid_value;
  stream->add({[=] { return soft::fill(data(*block, to), value, bytes), Result::success; }, {block}});
  return Result::success;
}

// Streams and events --------------------------------------------------------------------------------

Result cuStreamCreate(StreamHandle* stream, unsigned flags) {
  const Result result = in_context();
  if (result != Result::success) return result;
  if (flags > kStreamNonBlocking) return Result::invalid_value;
  *stream = static_cast<StreamHandle>(streams().add(std::make_shared<soft::Stream>(current.back())));
  return Result::success;
}

Result cuStreamDestroy_v2(StreamHandle stream) {
  return streams().remove(stream) ? Result::success : Result::invalid_handle;
}

Result cuStreamSynchronize(StreamHandle handle) {
  const Result result = in_context();
  if (result != Result::success) return result;
  const auto stream = streams().get(handle);
  if (!stream) return Result::invalid_handle;
  soft::count(&Counters::waits);
  stream->wait();
  return soft::failure().get();
}

Result cuEventCreate(EventHandle* event, unsigned) {
  const Result result = in_context();
  if (result != Result::success) return result;
  *event = static_cast<EventHandle>(events().add(std::make_shared<soft::Event>()));
  return Result::success;
}

Result cuEventDestroy_v2(EventHandle event) {
  return events().remove(event) ? Result::success : Result::invalid_handle;
}

Result cuEventRecord(EventHandle handle, StreamHandle stream_handle) {
  const Result result = in_context();
  if (result != Result::success) return result;
  const auto event = events().get(handle);
  const auto stream = streams().get(stream_handle);
  if (!event || !stream) return Result::invalid_handle;
  {
    const std::lock_guard lock(event->mutex);
    event->recorded = true;
    event->done = false;
  }
  stream->add({[event] {
                 const std::lock_guard lock(event->mutex);
                 event->done = true;
                 event->seconds = seconds();
                 event->changed.notify_all();
                 return Result::success;
               },
               {}});
  return Result::success;
}

Result cuEventSynchronize(EventHandle handle) {
  const Result result = in_context();
  if (result != Result::success) return result;
  const auto event = events().get(handle);
  if (!event) return Result::invalid_handle;
  soft::count(&Counters::waits);
  std::unique_lock lock(event->mutex);
  while (event->recorded && !event->done && soft::failure().get() == Result::success)
    event->changed.wait_for(lock, std::chrono::milliseconds(1));
  return soft::failure().get();
}

Result cuEventElapsedTime(float* milliseconds, EventHandle begin_handle, EventHandle end_handle) {
  const Result result = in_context();
  if (result != Result::success) return result;
  const auto begin = events().get(begin_handle), end = events().get(end_handle);
  if (!begin || !end) return Result::invalid_handle;
  if (begin == end) {
    *milliseconds = 0;
    return Result::success;
  }
  const std::scoped_lock lock(begin->mutex, end->mutex);
  if (!begin->recorded || !end->recorded) return Result::invalid_handle;
  if (!begin->done || !end->done) return Result::not_ready;
  *milliseconds = float((end->seconds - begin->seconds) * 1e3);
  return Result::success;
}

// Modules and launches ------------------------------------------------------------------------------

Result cuModuleLoadData(ModuleHandle* module, const void* image) {
  const Result result = in_context();
  if (result != Result::success) return result;
  if (take_fault(Fault::load)) return Result::invalid_image;
  if (take_fault(Fault::load_memory)) return Result::out_of_memory;
  soft::Image parsed;
  if (!soft::parse_image(static_cast<const char*>(image), parsed)) return Result::invalid_image;
  if (parsed.major > soft::options().driver / 1000) return Result::unsupported_ptx;
  const std::string arch = "sm_" + std::to_string(soft::options().capability);
  if (parsed.architecture != arch && parsed.architecture != arch + "a" &&
      !parsed.architecture.starts_with("compute_"))
    return Result::no_binary_for_gpu;
  auto loaded = std::make_shared<soft::Module>();
  loaded->name = parsed.kernel;
  loaded->kernel = soft::kernel_of(parsed);
  if (!loaded->kernel) return Result::invalid_image;
  soft::count(&Counters::loaded);
  *module = static_cast<ModuleHandle>(modules().add(loaded));
  return Result::success;
}

Result cuModuleUnload(ModuleHandle handle) {
  const auto module = modules().remove(handle);
  if (!module) return Result::invalid_handle;
  if (module->form) soft::heap().remove(module->form->begin, module->form->kind);
  const std::lock_guard lock(primary().mutex);
  primary().functions.erase(module->kernel.get());
  return Result::success;
}

Result cuModuleGetFunction(FunctionHandle* function, ModuleHandle handle, const char* name) {
  const Result result = in_context();
  if (result != Result::success) return result;
  const auto module = modules().get(handle);
  if (!module) return Result::invalid_handle;
  if (module->name != name) return Result::not_found;
  const std::lock_guard lock(primary().mutex);
  primary().functions[module->kernel.get()] = module->kernel;
  *function = reinterpret_cast<FunctionHandle>(module->kernel.get());
  return Result::success;
}

Result cuModuleGetGlobal_v2(Address* address, size_t* bytes, ModuleHandle handle, const char* name) {
  const Result result = in_context();
  if (result != Result::success) return result;
  const auto module = modules().get(handle);
  if (!module) return Result::invalid_handle;
  const uint32_t form[] = {soft::options().form_span, soft::options().form_threads,
                           soft::options().form_bytes, soft::options().form_parts};  // as pyturbo::cuda::Form
  if (module->name + "_form" != name || form[2] == 0) return Result::not_found;
  module->form = soft::heap().allocate(sizeof form, soft::options().memory, current.back());
  if (!module->form) return Result::out_of_memory;
  std::memcpy(module->form->data, form, sizeof form);
  *address = module->form->begin;
  *bytes = soft::options().form_size;
  return Result::success;
}

Result cuFuncSetAttribute(FunctionHandle handle, FunctionAttribute attribute, int value) {
  const Result result = in_context();
  if (result != Result::success) return result;
  const auto kernel = function(handle);
  if (!kernel) return Result::invalid_handle;
  if (attribute != FunctionAttribute::max_dynamic_shared_size_bytes || value < 0)
    return Result::invalid_value;
  kernel->allowed_bytes = uint32_t(value);
  return Result::success;
}

Result cuFuncGetAttribute(int* value, FunctionAttribute attribute, FunctionHandle handle) {
  const Result result = in_context();
  if (result != Result::success) return result;
  const auto kernel = function(handle);
  if (!kernel) return Result::invalid_handle;
  switch (attribute) {
    case FunctionAttribute::max_threads_per_block:
      *value = int(std::min(kernel->info->max_threads, soft::options().max_threads));
      return Result::success;
    case FunctionAttribute::shared_size_bytes:
      *value = int(kernel->info->threadgroup_bytes);
      return Result::success;
    case FunctionAttribute::max_dynamic_shared_size_bytes:
      *value = int(kernel->allowed_bytes);
      return Result::success;
    case FunctionAttribute::local_size_bytes:
    case FunctionAttribute::num_regs:
      *value = 0;
      return Result::success;
  }
  return Result::invalid_value;
}

Result cuLaunchKernel(FunctionHandle handle, unsigned groups_x, unsigned groups_y, unsigned groups_z,
                      unsigned threads_x, unsigned threads_y, unsigned threads_z, unsigned shared_bytes,
                      StreamHandle stream_handle, void** parameters, void** extra) {
  Result result = in_context();
  if (result != Result::success) return result;
  if (take_fault(Fault::refused)) return Result::launch_out_of_resources;
  const auto stream = streams().get(stream_handle);
  const auto kernel = function(handle);
  if (!stream || !kernel) return Result::invalid_handle;
  soft::Launch launch;
  result = launch.take(kernel, {handle, groups_x, groups_y, groups_z, threads_x, threads_y, threads_z,
                                shared_bytes, parameters, extra, nullptr, nullptr});
  if (result != Result::success) return result;
  soft::count(&Counters::launches);
  soft::count(&Counters::groups, uint64_t(groups_x) * groups_y * groups_z);
  auto blocks = blocks_of(launch);
  stream->add({[launch = std::move(launch)] {
                 const Result result = injected();
                 if (result != Result::success) return result;
                 return soft::run_launch(launch) ? Result::success : Result::illegal_address;
               },
               std::move(blocks)});
  return Result::success;
}

// Graphs --------------------------------------------------------------------------------------------

Result cuGraphCreate(GraphHandle* graph, unsigned flags) {
  const Result result = in_context();
  if (result != Result::success) return result;
  if (flags != 0) return Result::invalid_value;
  *graph = static_cast<GraphHandle>(graphs().add(std::make_shared<soft::Graph>()));
  return Result::success;
}

Result cuGraphDestroy(GraphHandle handle) {
  const auto graph = graphs().remove(handle);
  if (!graph) return Result::invalid_handle;
  const std::lock_guard lock(primary().mutex);
  for (const auto& node : graph->nodes) primary().nodes.erase(node.get());
  return Result::success;
}

Result cuGraphAddKernelNode_v2(NodeHandle* node, GraphHandle handle, const NodeHandle* after, size_t count,
                               const KernelNode* description) {
  Result result = in_context();
  if (result != Result::success) return result;
  const auto graph = graphs().get(handle);
  const auto kernel = function(description->function);
  if (!graph || !kernel) return Result::invalid_handle;
  auto added = std::make_shared<soft::Node>();
  for (size_t i = 0; i < count; ++i) {
    uint32_t index;
    if (!node_in(*graph, after[i], index) || !connect(*added, index)) return Result::invalid_value;
  }
  result = added->launch.take(kernel, *description);
  if (result != Result::success) return result;
  const std::lock_guard lock(primary().mutex);
  primary().nodes[added.get()] = {graph.get(), uint32_t(graph->nodes.size())};
  *node = reinterpret_cast<NodeHandle>(added.get());
  graph->nodes.push_back(std::move(added));
  return Result::success;
}

Result cuGraphAddDependencies_v2(GraphHandle handle, const NodeHandle* from, const NodeHandle* to,
                                 const Edge* edges, size_t count) {
  const Result result = in_context();
  if (result != Result::success) return result;
  const auto graph = graphs().get(handle);
  if (!graph) return Result::invalid_handle;
  const auto same = [](const Edge& a, const Edge& b) { return std::memcmp(&a, &b, sizeof a) == 0; };
  for (size_t i = 0; i < count; ++i) {
    const bool early = same(edges[i], kWhenEnding);
    if (!early && !same(edges[i], kWhenEnded)) {
      violate(Rule::parameter, "expected an edge between kernels, got one of another kind");
      return Result::invalid_value;
    }
    if (early && soft::options().capability < 90) {
      violate(Rule::parameter, "expected kernels that wait, got compute capability " +
                                   std::to_string(soft::options().capability));
      return Result::not_supported;
    }
    uint32_t begin, end;
    if (!node_in(*graph, from[i], begin) || !node_in(*graph, to[i], end)) return Result::invalid_value;
    if (begin >= end || !connect(*graph->nodes[end], begin)) return Result::invalid_value;
    if (early) soft::count(&Counters::early_edges);
  }
  return Result::success;
}

Result cuGraphInstantiateWithFlags(ExecHandle* exec, GraphHandle handle, unsigned long long flags) {
  const Result result = in_context();
  if (result != Result::success) return result;
  if (flags != 0) return Result::invalid_value;
  if (take_fault(Fault::instantiate)) return Result::out_of_memory;
  soft::slow_down(Fault::slow_instantiate);
  const auto graph = graphs().get(handle);
  if (!graph) return Result::invalid_handle;
  auto made = std::make_shared<soft::Exec>();
  for (const auto& node : graph->nodes) made->nodes.push_back(std::make_shared<soft::Node>(*node));
  soft::count(&Counters::graphs);
  *exec = static_cast<ExecHandle>(execs().add(made));
  return Result::success;
}

Result cuGraphExecDestroy(ExecHandle exec) {
  return execs().remove(exec) ? Result::success : Result::invalid_handle;
}

Result cuGraphExecKernelNodeSetParams_v2(ExecHandle exec_handle, NodeHandle node,
                                         const KernelNode* description) {
  Result result = in_context();
  if (result != Result::success) return result;
  const auto exec = execs().get(exec_handle);
  const auto kernel = function(description->function);
  uint32_t index;
  if (!exec || !kernel || !node_of(node, index) || index >= exec->nodes.size()) return Result::invalid_handle;
  if (kernel != exec->nodes[index]->launch.kernel) {
    violate(Rule::parameter, "expected the function of the node, got another");
    return Result::invalid_value;
  }
  auto changed = std::make_shared<soft::Node>(*exec->nodes[index]);
  result = changed->launch.take(kernel, *description);
  if (result != Result::success) return result;
  soft::count(&Counters::node_updates);
  exec->nodes[index] = std::move(changed);
  return Result::success;
}

Result cuGraphNodeSetEnabled(ExecHandle exec_handle, NodeHandle node, unsigned enabled) {
  const Result result = in_context();
  if (result != Result::success) return result;
  const auto exec = execs().get(exec_handle);
  uint32_t index;
  if (!exec || !node_of(node, index) || index >= exec->nodes.size()) return Result::invalid_handle;
  auto changed = std::make_shared<soft::Node>(*exec->nodes[index]);
  changed->enabled = enabled != 0;
  soft::count(&Counters::node_updates);
  exec->nodes[index] = std::move(changed);
  return Result::success;
}

Result cuGraphLaunch(ExecHandle exec_handle, StreamHandle stream_handle) {
  const Result result = in_context();
  if (result != Result::success) return result;
  if (take_fault(Fault::refused)) return Result::launch_out_of_resources;
  const auto exec = execs().get(exec_handle);
  const auto stream = streams().get(stream_handle);
  if (!exec || !stream) return Result::invalid_handle;
  soft::count(&Counters::graph_launches);
  std::vector<std::shared_ptr<Block>> blocks;
  for (const auto& node : exec->nodes)
    if (node->enabled)
      for (auto& block : blocks_of(node->launch)) blocks.push_back(std::move(block));
  stream->add({[nodes = exec->nodes] {
                 const Result result = injected();
                 if (result != Result::success) return result;
                 return soft::run_graph(nodes) ? Result::success : Result::illegal_address;
               },
               std::move(blocks)});
  return Result::success;
}
