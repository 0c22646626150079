#include "simt/fiber.h"

#include <sys/mman.h>
#include <unistd.h>

#include <atomic>
#include <string>

#include "pyturbo/error.h"

#if PYTURBO_ASAN
#include <sanitizer/asan_interface.h>
#endif

namespace pyturbo::simt {
namespace {

// A guard page splits a mapping in two, and Linux allows 65530 mappings per process: stacks beyond this
// number have no guard page.
constexpr uint32_t kGuardedStacks = 16384;
std::atomic<uint32_t> guarded_stacks{0};

// Stack tops are staggered by a few cache lines, so that equal frames of many fibers fall into different sets
// of the L1 cache.
constexpr size_t kLine = 64, kStaggerLines = 5, kStaggerSpan = 64;

#if PYTURBO_ASAN
thread_local Context* starting = nullptr;
#endif

// The frame that pyturbo_fiber_switch pops when it first enters a stack.
void* initial_frame(const Fiber& fiber, FiberEntry entry, void* argument) {
  void** sp = reinterpret_cast<void**>(fiber.top);
#if defined(__x86_64__)
  *--sp = nullptr;
  *--sp = nullptr;
  *--sp = reinterpret_cast<void*>(&pyturbo_fiber_start);
  *--sp = nullptr;                         // rbp
  *--sp = nullptr;                         // rbx
  *--sp = argument;                        // r12
  *--sp = reinterpret_cast<void*>(entry);  // r13
  *--sp = nullptr;                         // r14
  *--sp = nullptr;                         // r15
#elif defined(__aarch64__)
  sp -= 20;
  for (int i = 0; i < 20; ++i) sp[i] = nullptr;
  sp[0] = argument;                                        // x19
  sp[1] = reinterpret_cast<void*>(entry);                  // x20
  sp[11] = reinterpret_cast<void*>(&pyturbo_fiber_start);  // x30
#else
#error "fibers: expected x86-64 or aarch64"
#endif
  return sp;
}

}  // namespace

#if PYTURBO_ASAN
void fiber_switch(Context& from, Context& to) {
  __sanitizer_start_switch_fiber(&from.fake_stack, to.bottom, to.size);
  pyturbo_fiber_switch(&from.sp, to.sp);
  __sanitizer_finish_switch_fiber(from.fake_stack, nullptr, nullptr);
}
#endif

void fiber_start(Context& from, Fiber& fiber, FiberEntry entry, void* argument) {
#if PYTURBO_ASAN
  __asan_unpoison_memory_region(fiber.bottom, size_t(fiber.top - fiber.bottom));
  starting = &from;
  __sanitizer_start_switch_fiber(&from.fake_stack, fiber.bottom, size_t(fiber.top - fiber.bottom));
  pyturbo_fiber_switch(&from.sp, initial_frame(fiber, entry, argument));
  __sanitizer_finish_switch_fiber(from.fake_stack, nullptr, nullptr);
#else
  pyturbo_fiber_switch(&from.sp, initial_frame(fiber, entry, argument));
#endif
}

void fiber_entered() {
#if PYTURBO_ASAN
  __sanitizer_finish_switch_fiber(nullptr, &starting->bottom, &starting->size);
#endif
}

void fiber_exit(Context& to) {
#if PYTURBO_ASAN
  __sanitizer_start_switch_fiber(nullptr, to.bottom, to.size);
#endif
  void* resumed = to.sp;
  pyturbo_fiber_switch(&to.sp, resumed);  // the saved state is never used: `to` is no longer suspended
  __builtin_unreachable();
}

FiberStacks::FiberStacks(uint32_t capacity) : page_(size_t(sysconf(_SC_PAGESIZE))), fibers_(capacity) {
  idle_.reserve(capacity);
  reserved_ = capacity * (kStackBytes + page_);
  void* range = mmap(nullptr, reserved_, PROT_NONE, MAP_PRIVATE | MAP_ANON | MAP_NORESERVE, -1, 0);
  if (range == MAP_FAILED) {
    throw Error(ErrorKind::memory, "fibers: expected " + std::to_string(reserved_) +
                                       " bytes of address space for stacks, got none");
  }
  base_ = static_cast<std::byte*>(range);
#ifdef MADV_NOHUGEPAGE
  madvise(base_, reserved_, MADV_NOHUGEPAGE);
#endif
}

FiberStacks::~FiberStacks() {
  guarded_stacks.fetch_sub(guarded_, std::memory_order_relaxed);
  munmap(base_, reserved_);
}

void FiberStacks::abandon_all() {
  idle_.clear();
  for (uint32_t i = created_; i > 0; --i) idle_.push_back(&fibers_[i - 1]);
}

Fiber* FiberStacks::create() {
  if (created_ == fibers_.size()) return nullptr;
  std::byte* slot = base_ + created_ * (kStackBytes + page_);
  const bool guard = guarded_stacks.fetch_add(1, std::memory_order_relaxed) < kGuardedStacks;
  if (!guard) guarded_stacks.fetch_sub(1, std::memory_order_relaxed);
  std::byte* first = guard ? slot + page_ : slot;
  if (mprotect(first, size_t(slot + page_ + kStackBytes - first), PROT_READ | PROT_WRITE) != 0) {
    if (guard) guarded_stacks.fetch_sub(1, std::memory_order_relaxed);
    return nullptr;
  }
  guarded_ += guard;
  Fiber& fiber = fibers_[created_];
  fiber.bottom = slot + page_;
  fiber.top = fiber.bottom + kStackBytes - created_ * kStaggerLines % kStaggerSpan * kLine;
  ++created_;
  return &fiber;
}

}  // namespace pyturbo::simt
