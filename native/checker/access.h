// The callback of instrumented kernel code in checked mode, called by tsan_hooks.cpp of every kernel library.
#pragma once

#include <cstddef>
#include <cstdint>

namespace pyturbo::checker {

inline constexpr uint32_t kRead = 1, kWrite = 2, kAtomic = 4;

// Checks an access of the running GPU thread before it happens. Does not return if the access is invalid.
__attribute__((visibility("default"))) void access(const volatile void* address, size_t size, uint32_t how);

}  // namespace pyturbo::checker
