// Cooperative fibers: stacks, and the switch between them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#if defined(__SANITIZE_ADDRESS__)
#define PYTURBO_ASAN 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define PYTURBO_ASAN 1
#endif
#endif
#ifndef PYTURBO_ASAN
#define PYTURBO_ASAN 0
#endif

#if PYTURBO_ASAN
#include <sanitizer/common_interface_defs.h>
#endif

// Pushes the callee-saved registers, stores the stack pointer in *save, and continues at `load`.
extern "C" void pyturbo_fiber_switch(void** save, void* load);
// First code of a fresh fiber; calls the entry function with its argument.
extern "C" void pyturbo_fiber_start();

namespace pyturbo::simt {

// One stack of a FiberStacks: idle, or in use by one suspended or running context.
struct Fiber {
  std::byte* bottom = nullptr;
  std::byte* top = nullptr;
};

// A suspended point of execution. Not movable while suspended; no lock, one OS thread.
struct Context {
  void* sp = nullptr;
#if PYTURBO_ASAN
  void* fake_stack = nullptr;
  const void* bottom = nullptr;
  size_t size = 0;
#endif

  // Sets the stack that this context will be suspended on.
  void bind([[maybe_unused]] const Fiber& fiber) {
#if PYTURBO_ASAN
    bottom = fiber.bottom;
    size = size_t(fiber.top - fiber.bottom);
#endif
  }
};

using FiberEntry = void (*)(void* argument);

#if PYTURBO_ASAN
void fiber_switch(Context& from, Context& to);
#else
// Suspends the caller in `from` and resumes `to`.
inline void fiber_switch(Context& from, Context& to) { pyturbo_fiber_switch(&from.sp, to.sp); }
#endif

// Suspends the caller in `from` and calls entry(argument) on an idle stack. The entry function starts with
// fiber_entered() and never returns: it ends with fiber_exit().
void fiber_start(Context& from, Fiber& fiber, FiberEntry entry, void* argument);

// Tells the sanitizer that a new stack is running. The first statement of an entry function.
void fiber_entered();

// Resumes `to` and never returns: the caller's stack becomes idle.
[[noreturn]] void fiber_exit(Context& to);

// The stacks of one OS thread in one reserved address range. A stack becomes accessible when it is first
// taken and stays so. Owner: the Threadgroup of the OS thread; used by that thread only, no lock.
class FiberStacks {
 public:
  static constexpr size_t kStackBytes = PYTURBO_ASAN ? 256 * 1024 : 64 * 1024;

  explicit FiberStacks(uint32_t capacity);
  ~FiberStacks();
  FiberStacks(const FiberStacks&) = delete;
  FiberStacks& operator=(const FiberStacks&) = delete;

  // Returns an idle stack, or null when the system refuses memory.
  Fiber* take() {
    if (idle_.empty()) return create();
    Fiber* fiber = idle_.back();
    idle_.pop_back();
    return fiber;
  }
  void give(Fiber* fiber) { idle_.push_back(fiber); }

  // Makes every stack idle and drops the contexts suspended on them.
  void abandon_all();

  bool contains(const void* address) const {
    return size_t(static_cast<const std::byte*>(address) - base_) < reserved_;
  }
  uint32_t created() const { return created_; }

 private:
  Fiber* create();

  std::byte* base_ = nullptr;
  size_t reserved_ = 0;
  size_t page_ = 0;
  uint32_t created_ = 0;
  uint32_t guarded_ = 0;
  std::vector<Fiber> fibers_;
  std::vector<Fiber*> idle_;
};

}  // namespace pyturbo::simt
