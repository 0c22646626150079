// Runs one threadgroup: its GPU threads are fibers of the calling OS thread.
#pragma once

#include <cstddef>
#include <cstdint>

#include "pyturbo/kernel.h"
#include "pyturbo/simt.h"
#include "simt/fiber.h"

namespace pyturbo::simt {

class Threadgroup;
struct Simdgroup;

inline constexpr uint32_t kMaxThreadgroupVariables = 64;
inline constexpr uint32_t kSimdgroups = kMaxThreads / kSimdWidth;

// Watches the threadgroups of a launch in checked mode. Called on the OS thread that runs the group.
class Observer {
 public:
  virtual void begin_group(Threadgroup& group) = 0;
  // Returns the memory of a threadgroup variable, in place of the group's own.
  virtual void* place(size_t size, const char* name) = 0;
  virtual void simdgroup_release(uint32_t simdgroup, const Simdgroup& lanes) = 0;  // lanes.ready go on
  virtual void threadgroup_release(uint32_t memory) = 0;  // kMem...: what the barrier orders
  // Called before the running GPU thread touches memory; `how` is a set of kRead, kWrite and kAtomic
  // (checker/access.h). Does not return when the access must not happen.
  virtual void access(const std::byte* address, size_t size, uint32_t how) = 0;

 protected:
  ~Observer() = default;
};

// The state that all threadgroups of one launch share. Owner: the caller of the launch, which outlives it.
struct Launch {
  const KernelInfo& info;
  const Arguments& arguments;
  Dispatch dispatch;
  Observer* observer = nullptr;  // checked mode only
};

// The lanes of one simdgroup, as masks. A lane in none of the waiting masks is running or has finished.
struct alignas(64) Simdgroup {
  uint32_t all;         // lanes that exist
  uint32_t live;        // not finished
  uint32_t unstarted;   // body not entered
  uint32_t ready;       // may be resumed
  uint32_t at_simd;     // wait at an exchange or a simdgroup barrier
  uint32_t at_barrier;  // wait at a threadgroup barrier
  uint32_t site;        // of the first lane in at_simd
  bool divergent;       // lanes in at_simd wait at different sites
  uint32_t turn;        // the exchange that takes new values; it holds those of the lanes in at_simd
  Context context[kSimdWidth];
  uint32_t sites[kSimdWidth];       // the site where the lane waits, or waited last
  uint32_t statements[kSimdWidth];  // checked mode: the statement that the lane runs
  uint8_t memory[kSimdWidth];       // checked mode: the memory that a waiting lane's barrier orders
  Exchange exchanges[2];            // one is read while the other is filled
};

// The executor of one OS thread. Owner: that thread (this_thread()); used by it alone, no lock.
class Threadgroup {
 public:
  static Threadgroup& this_thread();

  Threadgroup();
  ~Threadgroup();
  Threadgroup(const Threadgroup&) = delete;
  Threadgroup& operator=(const Threadgroup&) = delete;

  // Runs all threads of `group` to their end. Throws Error when a barrier cannot be passed or a check fails;
  // the other threads are then abandoned.
  void run(const Launch& launch, const Extent& group);

  // For the running GPU thread:
  Exchange& exchange(const void* value, uint32_t size, uint32_t site);
  void threadgroup_barrier(uint32_t memory, uint32_t site);
  void simdgroup_barrier(uint32_t memory, uint32_t site);
  void* threadgroup_variable(uint32_t slot, size_t size, size_t alignment, const char* name);
  void* threadgroup_argument(uint32_t index) const { return argument_[index]; }
  uint32_t lane() const { return lane_; }
  uint32_t thread() const { return simd_index() * kSimdWidth + lane_; }
  uint32_t last_site() const { return simd_->sites[lane_]; }       // 0: none yet (checked mode)
  uint32_t statement() const { return simd_->statements[lane_]; }  // 0: unknown (checked mode)
  void set_statement(uint32_t statement) { simd_->statements[lane_] = statement; }
  const Extent& group() const { return group_; }
  const Launch& launch() const { return *launch_; }

  // Stops the whole group and makes run() throw. The text follows "kernel K, threadgroup (x,y,z)" directly.
  [[noreturn]] void fail(const char* format, ...) __attribute__((format(printf, 2, 3)));

  // Returns whether the address is memory that is not checked: stacks and exchanges.
  bool owns(const void* address) const {
    return stacks_.contains(address) ||
           size_t(static_cast<const char*>(address) - reinterpret_cast<const char*>(this)) < sizeof(*this);
  }
  uint32_t stacks_created() const { return stacks_.created(); }

 private:
  enum class Next { resume, start, leave };

  static void work_entry(void* fiber);
  [[noreturn]] void work(Fiber* fiber);
  void prepare(const Launch& launch, const Extent& group);
  void place_arguments();
  void* place(size_t size, size_t alignment, const char* name);
  Position position(uint32_t index) const;
  void wait_simd(uint32_t memory, uint32_t site);
  void block();
  Next schedule();
  void release_simd(Simdgroup& s);
  void release_divergent(Simdgroup& s);
  void release_barrier();
  void barrier_unreached();
  void barrier_sites_differ(uint32_t site);
  void set_error(const char* format, ...) __attribute__((format(printf, 2, 3)));
  uint32_t simd_index() const { return uint32_t(simd_ - simdgroups_); }

  const Launch* launch_ = nullptr;
  Simdgroup* simd_ = nullptr;  // of the running thread
  uint32_t lane_ = 0;          // of the running thread
  uint32_t pending_ = 0;       // mask of simdgroups with lanes to run
  uint32_t live_ = 0;          // threads not finished
  uint32_t arrived_ = 0;       // threads at the threadgroup barrier
  uint32_t threads_ = 0;
  uint32_t barrier_site_ = 0;    // of the first thread that arrived
  uint32_t barrier_memory_ = 0;  // memory that the barriers of all arrived threads order
  Extent group_;
  Context main_;
  FiberStacks stacks_;

  uint64_t variables_placed_ = 0;  // bit per slot
  size_t memory_used_ = 0;
  void* variable_[kMaxThreadgroupVariables];
  void* argument_[kMaxArguments];
  char error_[1024];

  Simdgroup simdgroups_[kSimdgroups];
  alignas(256) std::byte memory_[kMaxThreadgroupBytes];
};

// The group this OS thread is running, or null; set by Threadgroup::run.
#if defined(__ELF__)
__attribute__((tls_model("initial-exec")))
#endif
extern constinit thread_local Threadgroup* current_threadgroup;

}  // namespace pyturbo::simt
