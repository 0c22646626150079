// What instrumented kernel code reports in checked mode. Called by tsan_hooks.cpp of every kernel library.
#pragma once

#include <cstddef>
#include <cstdint>

namespace pyturbo::checker {

inline constexpr uint32_t kRead = 1, kWrite = 2, kAtomic = 4;

// Reports an access of the running GPU thread before it happens. Does not return when it must not happen.
__attribute__((visibility("default"))) void access(const volatile void* address, size_t size, uint32_t how);

}  // namespace pyturbo::checker
