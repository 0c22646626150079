#include "cuda/device.h"

#include <algorithm>
#include <filesystem>
#include <mutex>
#include <optional>

#include "cuda/context.h"
#include "cuda/driver.h"
#include "cuda/graph.h"
#include "cuda/memory.h"
#include "cuda/modules.h"
#include "cuda/nvrtc.h"
#include "cuda/parameters.h"
#include "cuda/staging.h"
#include "cuda/stream.h"
#include "cuda/timing.h"
#include "cuda/transfer.h"
#include "pyturbo/error.h"

namespace pyturbo::cuda {
namespace {

constexpr int kOldest = 75;       // compute capability
constexpr int kMatrixUnits = 80;  // the first one whose matrix units and copies the forms of shaders use
constexpr uint32_t kNever = 1u << 20;
constexpr uint32_t kProductGroups = 7;  // of products with one token, that a multiprocessor runs at once

constexpr int32_t kDlpackCuda = 2;

std::string mebibytes(uint64_t bytes) { return std::to_string(bytes >> 20) + " MiB"; }

std::string capability_text(int capability) {
  return std::to_string(capability / 10) + "." + std::to_string(capability % 10);
}

std::string too_old(int capability) {
  return "expected a GPU of compute capability " + capability_text(kOldest) + " or newer, got one of " +
         capability_text(capability);
}

std::string no_gpu(uint32_t ordinal) {
  return ordinal == 0 ? "the driver finds no GPU" : "the driver finds no GPU " + std::to_string(ordinal);
}

// Returns the label of some work, for messages about its failure.
std::string label_of(std::span<const ReadyLaunch> launches) {
  if (launches.size() == 1) return launches[0].kernel->name;
  return "program of " + std::to_string(launches.size()) + " launches";
}

// What a device has while it is open. Owner: the device, and calls that are under way when it is closed.
struct Opened {
  Opened(std::shared_ptr<Context> context, Precision precision)
      : context(std::move(context)),
        stream([&] {
          const Current current(*this->context);
          return std::make_shared<Stream>(this->context);
        }()),
        modules(std::make_shared<Modules>(stream, precision)),
        memory(std::make_shared<Memory>(stream)) {
    const Current current(*this->context);
    transfer = std::make_unique<Transfer>(*memory, *stream);
  }

  const std::shared_ptr<Context> context;
  const std::shared_ptr<Stream> stream;
  const std::shared_ptr<Modules> modules;
  const std::shared_ptr<Memory> memory;
  std::unique_ptr<Transfer> transfer;
};

std::shared_ptr<Context> open_context(const std::string& name, uint32_t ordinal) {
  const OpenedDriver& opened = opened_driver();
  if (!opened.driver) throw Error(ErrorKind::device, name + ": " + opened.missing);
  if (opened.process != fork_count())
    throw Error(ErrorKind::state,
                name +
                    ": CUDA cannot be used in a child of fork(): start the process with the "
                    "'spawn' method, or use the device cpu");
  const Driver& driver = *opened.driver;
  int count = 0;
  require(driver, driver.device_count(&count), name);
  if (ordinal >= uint32_t(count)) throw Error(ErrorKind::device, name + ": " + no_gpu(ordinal));
  DeviceId device = 0;
  require(driver, driver.device_get(&device, int(ordinal)), name);
  auto context = std::make_shared<Context>(driver, device, name);
  if (context->capability() < kOldest)
    throw Error(ErrorKind::device, name + ": " + too_old(context->capability()));
  return context;
}

// Owner: whoever opened it. Any thread; one lock, held while work is added to the stream, not while it is
// prepared or runs.
class CudaDevice final : public Device {
 public:
  CudaDevice(const DeviceKind& kind, const std::shared_ptr<Context>& context, Precision precision)
      : Device(kind),
        ordinal_(kind.ordinal),
        precision_(precision),
        opened_(std::make_shared<Opened>(context, precision)) {}

  ~CudaDevice() override { close(); }

  std::vector<std::pair<std::string, std::string>> properties() const override {
    if (closed()) return {};
    const std::lock_guard lock(mutex_);
    if (!opened_) return {};
    const Context& context = *opened_->context;
    int version = 0;
    context.driver().driver_version(&version);
    Compiler& compiler = opened_->modules->compiler();
    return {{"name", context.device_name()},
            {"compute capability", capability_text(context.capability())},
            {"memory", mebibytes(context.device_memory())},
            {"multiprocessors", std::to_string(context.attribute(Attribute::multiprocessor_count))},
            {"driver", "CUDA " + std::to_string(version / 1000) + "." + std::to_string(version % 1000 / 10)},
            {"NVRTC", compiler.version() + " for " + compiler.architecture()},
            {"kernels", compiler.path()},
            {"precision", precision_ == Precision::fast ? "fast" : "default"}};
  }

  std::optional<DeviceMemory> own_memory() override {
    const auto opened = this->opened();
    const Current current(*opened->context);
    size_t free = 0, total = 0;
    opened->stream->require("memory", opened->context->driver().memory_info(&free, &total));
    return DeviceMemory{total, free - std::min<uint64_t>(free, opened->memory->wanted_bytes())};
  }

  std::shared_ptr<Storage> allocate(uint64_t bytes) override {
    const auto opened = this->opened();
    const Current current(*opened->context);
    return opened->memory->allocate(bytes);
  }

  std::shared_ptr<Storage> allocate_shared(uint64_t bytes) override {
    const auto opened = this->opened();
    const Current current(*opened->context);
    return opened->memory->allocate_shared(bytes);
  }

  void read(void* to, const void* from, uint64_t bytes) override {
    const auto opened = this->opened();
    if (!opened->memory->on_gpu(from, bytes)) return Device::read(to, from, bytes);
    const Current current(*opened->context);
    opened->transfer->read(to, address(from), bytes);
  }

  void write(void* to, const void* from, uint64_t bytes) override {
    const auto opened = this->opened();
    if (!opened->memory->on_gpu(to, bytes)) return Device::write(to, from, bytes);
    const Current current(*opened->context);
    if (opened->memory->shared(from, bytes)) opened->stream->synchronize();  // kernels may still write it
    opened->transfer->write(address(to), from, bytes);
  }

  void copy(void* to, const void* from, uint64_t bytes) override {
    const auto opened = this->opened();
    const bool to_gpu = opened->memory->on_gpu(to, bytes), from_gpu = opened->memory->on_gpu(from, bytes);
    if (!to_gpu) return read(to, from, bytes);
    if (!from_gpu) return write(to, from, bytes);
    const Current current(*opened->context);
    opened->transfer->copy(address(to), address(from), bytes);
  }

  void clear(void* to, uint64_t bytes) override {
    const auto opened = this->opened();
    if (!opened->memory->on_gpu(to, bytes)) return Device::clear(to, bytes);
    const Current current(*opened->context);
    Stream& stream = *opened->stream;
    if (bytes > 0) stream.copied("clear", stream.driver().fill(address(to), 0, bytes, stream.handle()));
  }

  std::pair<int32_t, int32_t> dlpack_device() const override { return {kDlpackCuda, int32_t(ordinal_)}; }

  void prepare(std::span<const ReadyLaunch> launches) override {
    const auto opened = this->opened();
    const Current current(*opened->context);
    compile(*opened, launches);
    bring(*opened);
  }

  void prepare_replay(std::span<const ReadyLaunch> launches, Recorded& program) override {
    const auto opened = this->opened();
    const Current current(*opened->context);
    opened->stream->throw_failure();
    updated_graph(*opened, program, 0, launches);
  }

  bool prepares_ahead() const override { return true; }

  void synchronize() override {
    if (!opened_here()) return;
    const std::shared_ptr<Opened> opened = held();
    if (!opened) return;
    const Current current(*opened->context);
    opened->stream->synchronize();
  }

  uint64_t mark() override {
    const auto opened = this->opened();
    const Current current(*opened->context);
    return opened->stream->mark();
  }

  void wait(uint64_t mark) override {
    if (!opened_here()) return;
    const std::shared_ptr<Opened> opened = held();
    if (!opened) return;
    const Current current(*opened->context);
    opened->stream->wait(mark);
    opened->stream->throw_failure();
  }

 protected:
  void run(const ReadyLaunch* launches, size_t count, bool wait, std::vector<LaunchRun>* runs) override {
    const auto opened = this->opened();
    const Current current(*opened->context);
    opened->stream->throw_failure();
    run_each(*opened, {launches, count}, wait, runs);
  }

  void run_recorded(Recorded& program, size_t first, std::span<const ReadyLaunch> launches, bool wait,
                    std::vector<LaunchRun>* runs) override {
    const auto opened = this->opened();
    const Current current(*opened->context);
    opened->stream->throw_failure();
    if (runs || !launch_graph(*opened, program, first, launches)) {
      run_each(*opened, launches, wait, runs);
      return;
    }
    if (wait) opened->stream->synchronize();
  }

  void attach(Storage& storage, uint64_t begin, uint64_t bytes) override {
    opened()->memory->want(storage, begin, bytes);
  }

  bool owns(const Storage& storage) const override {
    const std::shared_ptr<Opened> opened = held();
    return opened && opened->memory->owns(storage);
  }

  void release() override {
    std::shared_ptr<Opened> opened;
    {
      const std::lock_guard lock(mutex_);
      opened = std::move(opened_);
    }
    if (!opened) return;
    try {
      const Current current(*opened->context);
      opened->stream->wait();
    } catch (const Error&) {  // the context is broken: nothing runs in it
    }
  }

 private:
  static Address address(const void* pointer) { return reinterpret_cast<uintptr_t>(pointer); }

  std::shared_ptr<Opened> held() const {
    const std::lock_guard lock(mutex_);
    return opened_;
  }

  std::shared_ptr<Opened> opened() const {
    require_open();
    std::shared_ptr<Opened> opened = held();
    if (!opened) throw Error(ErrorKind::state, name() + ": the device is closed");
    return opened;
  }

  void compile(Opened& opened, std::span<const ReadyLaunch> launches) {
    opened.modules->prepare(
        launches, [&](uint64_t done, uint64_t total) { report(Preparation::kernels, done, total); });
  }

  void bring(Opened& opened) {
    opened.memory->bring([&](uint64_t done, uint64_t total) { report(Preparation::weights, done, total); });
  }

  // Runs launches one after the other, without a graph.
  void run_each(Opened& opened, std::span<const ReadyLaunch> launches, bool wait,
                std::vector<LaunchRun>* runs) {
    compile(opened, launches);
    if (Staging::needed(launches, *opened.memory)) bring(opened);
    const Staging staging(launches, *opened.memory, *opened.stream);
    if (runs) {
      const std::lock_guard lock(running_);
      LaunchTimer timer(*opened.stream, launches.size());
      for (const ReadyLaunch& launch : launches) {
        timer.mark();
        launch_one(opened, launch, staging);
        timer.mark();
      }
      opened.stream->synchronize();
      for (const LaunchRun& run : timer.times()) runs->push_back(run);
    } else {
      const std::lock_guard lock(running_);
      for (const ReadyLaunch& launch : launches) launch_one(opened, launch, staging);
    }
    if (!staging.empty())
      staging.copy_out();
    else if (wait)
      opened.stream->synchronize();
  }

  void launch_one(Opened& opened, const ReadyLaunch& launch, const Staging& staging) {
    if (launch.dispatch.groups.count() == 0) return;
    const Function function = opened.modules->get(*launch.kernel, launch.arguments->constants);
    const Dispatch geometry = function.form.of(launch.dispatch);
    require_geometry(launch, geometry, function.max_threads);
    const auto& [groups, threads] = geometry;
    Memory::Lookup lookup(*opened.memory);
    parameters_.take(launch, lookup, &staging);
    opened.stream->launched(
        label_of({&launch, 1}),
        opened.context->driver().launch(function.handle, groups.x, groups.y, groups.z, threads.x, threads.y,
                                        threads.z, parameters_.shared_bytes() + function.form.shared_bytes,
                                        opened.stream->handle(), parameters_.pointers(), nullptr));
  }

  // Returns the graph of these launches, which is made where there is none yet; null where they need copies
  // of memory of the host.
  Graph* updated_graph(Opened& opened, Recorded& program, size_t first,
                       std::span<const ReadyLaunch> launches) {
    if (!program.kept) {
      auto graphs = std::make_shared<ProgramGraphs>();
      graphs->dependencies = program.dependencies();
      program.kept = std::move(graphs);
    }
    auto& kept = *static_cast<ProgramGraphs*>(program.kept.get());
    std::unique_ptr<Graph>& graph = kept.graphs[{first, launches.size()}];
    if (!graph) {
      compile(opened, launches);
      if (Staging::needed(launches, *opened.memory)) bring(opened);
      graph = Graph::make(opened.stream, opened.modules, *opened.memory, first, launches, kept.dependencies);
    }
    const bool usable = graph && graph->update(launches, program.version, *opened.memory);
    return usable ? graph.get() : nullptr;
  }

  // Returns false where the launches need copies of memory of the host.
  bool launch_graph(Opened& opened, Recorded& program, size_t first, std::span<const ReadyLaunch> launches) {
    Graph* const graph = updated_graph(opened, program, first, launches);
    if (!graph) return false;
    const std::lock_guard lock(running_);
    graph->launch(label_of(launches));
    return true;
  }

  const uint32_t ordinal_;
  const Precision precision_;
  mutable std::mutex mutex_;  // guards opened_
  std::shared_ptr<Opened> opened_;
  std::mutex running_;     // one thread adds launches at a time
  Parameters parameters_;  // of the launch that is added
};

std::unique_ptr<Device> open(const DeviceKind& kind, const DeviceOptions& options) {
  if (options.checked)
    throw Error(ErrorKind::argument, kind.name + ": expected no checker, which is part of cpu:reference");
  const std::shared_ptr<Context> context = open_context(kind.name, kind.ordinal);
  DeviceKind own = kind;
  const auto multiprocessors = uint32_t(context->attribute(Attribute::multiprocessor_count));
  own.traits.attention_groups = multiprocessors;
  own.traits.product_groups = kProductGroups * multiprocessors;
  Precision precision = options.precision;
  if (context->capability() < kMatrixUnits) {
    own.traits.chunkwise_tokens = kNever;
    own.traits.few_tokens = 0;
    precision = Precision::standard;  // without the units nothing is rounded
  }
  return std::make_unique<CudaDevice>(own, context, precision);
}

// Returns what this machine lacks to run the kernels, or an empty string. A child of fork() must not ask the
// driver of its parent: there the device stays in the list, and opening it says why it cannot be used.
std::string lacking(uint32_t ordinal) {
  const OpenedDriver& opened = opened_driver();
  if (!opened.driver) return opened.missing;
  if (opened.process != fork_count()) return ordinal == 0 ? "" : no_gpu(ordinal);
  int count = 0, major = 0, minor = 0;
  DeviceId device = 0;
  const Driver& driver = *opened.driver;
  if (driver.device_count(&count) != Result::success || ordinal >= uint32_t(std::max(0, count)) ||
      driver.device_get(&device, int(ordinal)) != Result::success)
    return no_gpu(ordinal);
  driver.device_attribute(&major, Attribute::compute_capability_major, device);
  driver.device_attribute(&minor, Attribute::compute_capability_minor, device);
  if (10 * major + minor < kOldest) return too_old(10 * major + minor);
  return opened_nvrtc().nvrtc ? "" : opened_nvrtc().missing;
}

// A machine without a driver most likely has no such GPU, and one with a driver may have only one.
std::string missing(uint32_t ordinal) {
  if (ordinal > 0) return "";
  std::error_code failed;
  const bool expected =
      opened_driver().driver || driver_is_named() || std::filesystem::exists("/proc/driver/nvidia", failed);
  return expected ? lacking(ordinal) : "";
}

}  // namespace

// Measured on an H200: in chunks of 2048 tokens each of many experts has enough rows for the matrix units
// (with 512 a prompt takes 1.6 times as long), each multiprocessor has a threadgroup of attention, or two
// with heads of 128 values (an opened device has as many as its GPU), and the chunkwise delta net is faster
// from 8 tokens on. Passes of host loops: reasoned, as for Metal.
DeviceKind kind(uint32_t ordinal) {
  return {.name = ordinal == 0 ? "cuda" : "cuda:" + std::to_string(ordinal),
          .rank = driver_is_named() ? Rank::emulator : Rank::gpu,
          .traits = {.chunk = 2048,
                     .single = 1,
                     .attention_blocks = 128,
                     .attention_groups = 132,
                     .product_groups = kProductGroups * 132,
                     .chunkwise_tokens = 8,
                     .pass_experts = 16,
                     .bucket_tokens = 64,
                     .few_tokens = 32,
                     .top_logits = 64,
                     .fused = true,
                     .host_memory = HostMemory::none},
          .open = open,
          .available = [ordinal] { return lacking(ordinal).empty(); },
          .missing = [ordinal] { return missing(ordinal); },
          .ordinal = ordinal};
}

}  // namespace pyturbo::cuda
