#include "pyturbo/device.h"

#include <algorithm>
#include <thread>

#include "checker/checker.h"
#include "core/kernels.h"
#include "cpu/features.h"
#include "cpu/kernels/levels.h"
#include "cpu/pool.h"
#include "pyturbo/error.h"
#include "simt/executor.h"

namespace pyturbo::cpu {
namespace {

// Owner: whoever opened it. Any thread; all but the pool, which has its own locks, is constant.
class CpuDevice final : public Device {
 public:
  CpuDevice(const DeviceKind& kind, const DeviceOptions& options, bool reference)
      : Device(kind),
        checked_(options.checked),
        precision_(options.precision),
        level_(reference || options.checked ? nullptr : choose_level()),
        bodies_(level_),
        pool_(options.threads ? options.threads : std::max(1u, std::thread::hardware_concurrency())) {}

  std::vector<std::pair<std::string, std::string>> properties() const override {
    const char* kernels = checked_ ? "checked" : level_ ? level_->name : "reference";
    const char* precision = level_ && precision_ == Precision::fast ? "fast" : "default";
    std::vector<std::pair<std::string, std::string>> known = {
        {"threads", std::to_string(pool_.threads())}, {"kernels", kernels}, {"precision", precision}};
    const std::string unused = level_ ? unused_features(level_->name) : "";
    if (!unused.empty()) known.emplace_back("unused", unused);
    return known;
  }

  std::shared_ptr<Storage> allocate(uint64_t bytes) override { return allocate_storage(bytes); }

 protected:
  bool checked() const override { return checked_; }

  void run(const ReadyLaunch* launches, size_t count, bool, std::vector<LaunchRun>* runs) override {
    Batch batch(pool_, precision_);
    double begin = runs ? steady_seconds() : 0;
    for (size_t i = 0; i < count; ++i) {
      require_process();
      if (launches[i].waits) batch.run();
      add(launches[i], batch);
      if (!runs) continue;
      batch.run();
      const double end = steady_seconds();
      runs->push_back({i, begin, end});
      begin = end;
    }
    batch.run();
  }

  void release() override { pool_.stop(); }

 private:
  // Adds the launch to the batch, or runs it at once.
  void add(const ReadyLaunch& launch, Batch& batch) {
    if (launch.dispatch.groups.count() == 0) return;
    if (checked_)
      checker::run_checked(*launch.kernel, *launch.arguments, launch.dispatch);
    else if (!bodies_.add(*launch.kernel, *launch.arguments, launch.dispatch, batch))
      simt::run_reference(*launch.kernel, *launch.arguments, launch.dispatch, pool_);
  }

  const bool checked_;
  const Precision precision_;
  const Level* const level_;  // null: every kernel runs as its shader
  const Bodies bodies_;
  ThreadPool pool_;
};

template <bool reference>
std::unique_ptr<Device> open(const DeviceKind& kind, const DeviceOptions& options) {
  if (options.checked && !kernel_registry().has(Variant::checked))
    throw Error(ErrorKind::argument,
                kind.name +
                    ": expected no checker: this build has no checked kernels. `pip install .` and, in a "
                    "checkout, `make build` include them (CMake option PYTURBO_CHECKED)");
  return std::make_unique<CpuDevice>(kind, options, reference);
}

// Measured on a CPU with AVX-512 (docs/experiments.md). Few blocks of attention: there are few cores, and
// each block costs a row of partial sums. A pass needs no round trip, so experts are computed as they arrive.
const RegisteredDevice cpu{{.name = "cpu",
                            .rank = Rank::cpu,
                            .traits = {.chunk = 256,
                                       .single = 3,
                                       .attention_blocks = 8,
                                       .attention_groups = 0,
                                       .product_groups = 0,
                                       .chunkwise_tokens = 8,
                                       .pass_experts = 1,
                                       .bucket_tokens = 2,
                                       .few_tokens = 0,
                                       .top_logits = 0,
                                       .fused = false,
                                       .host_memory = HostMemory::any},
                            .open = open</*reference=*/false>}};

// The reference kernels are slow. A chunk is short, because interrupts are handled between chunks.
const RegisteredDevice reference{{.name = "cpu:reference",
                                  .rank = Rank::reference,
                                  .traits = {.chunk = 32,
                                             .single = 16,
                                             .attention_blocks = 8,
                                             .attention_groups = 0,
                                             .product_groups = 0,
                                             .chunkwise_tokens = 32,
                                             .pass_experts = 1,
                                             .bucket_tokens = 2,
                                             .few_tokens = 0,
                                             .top_logits = 0,
                                             .fused = true,
                                             .host_memory = HostMemory::any},
                                  .open = open</*reference=*/true>}};

}  // namespace
}  // namespace pyturbo::cpu
