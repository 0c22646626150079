// The executor's interface for a running GPU thread. Used only by our <metal_stdlib> and by generated code.
#pragma once

#include <cstddef>
#include <cstdint>

#include "pyturbo/kernel.h"

namespace pyturbo::simt {

inline constexpr uint32_t kExchangeBytes = 32;  // largest value one lane can publish
inline constexpr uint32_t kResultBytes = 256;   // largest common result: a matrix of 8 x 8 floats

// The values that lanes of a simdgroup publish in one operation. Valid for a lane until its next exchange.
struct Exchange {
  uint32_t active;                                           // one bit per lane that takes part
  bool reduced;                                              // result holds the operation's common result
  alignas(32) std::byte result[kResultBytes];                // computed once, by the first lane that needs it
  alignas(32) std::byte values[kSimdWidth][kExchangeBytes];  // by lane; only active lanes are meaningful
};

// Publishes `size` bytes of this lane and waits for the other active lanes of its simdgroup at `site`.
// A site is a source line: lanes that wait at different sites are divergent and are served separately.
Exchange& exchange(const void* value, uint32_t size, uint32_t site);

inline constexpr uint32_t kMemNone = 0, kMemDevice = 1, kMemThreadgroup = 2;  // which memory a barrier orders

void threadgroup_barrier(uint32_t memory, uint32_t site);
void simdgroup_barrier(uint32_t memory, uint32_t site);

// Returns the memory of the `slot`-th threadgroup variable, the same for all threads of the group.
void* threadgroup_variable(uint32_t slot, size_t size, size_t alignment, const char* name);

// Returns the memory bound at [[threadgroup(index)]].
void* threadgroup_argument(uint32_t index);

// Returns the value of the function constant in `slot` of this launch; null when it is undefined.
const void* function_constant(uint32_t slot);

[[gnu::const]] uint32_t lane();  // of this thread in its simdgroup; it never changes

// The place of a statement: index of its file in KernelInfo::files, and line. 0: unknown.
inline constexpr uint32_t kLineBits = 20;
constexpr uint32_t statement(uint32_t file, uint32_t line) { return file << kLineBits | line; }

// The statement that this thread is running, for reports of the checker.
void set_statement(uint32_t statement);
uint32_t current_statement();

// Restores the caller's statement when a function returns.
class Frame {
 public:
  Frame() : caller_(current_statement()) {}
  ~Frame() { set_statement(caller_); }
  Frame(const Frame&) = delete;
  Frame& operator=(const Frame&) = delete;

 private:
  uint32_t caller_;
};

}  // namespace pyturbo::simt
