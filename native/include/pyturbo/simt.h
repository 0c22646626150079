// What a running GPU thread may ask of the executor. Used by our <metal_stdlib> and by generated code only.
#pragma once

#include <cstddef>
#include <cstdint>

#include "pyturbo/kernel.h"

namespace pyturbo::simt {

inline constexpr uint32_t kExchangeBytes = 32;  // largest value one lane can publish

// What the lanes of a simdgroup published at one operation. Valid for a lane until its next exchange.
struct Exchange {
  uint32_t active;                                           // bit per lane that takes part
  bool reduced;                                              // result holds the operation's common result
  alignas(32) std::byte result[kExchangeBytes];              // computed once, by the first lane that needs it
  alignas(32) std::byte values[kSimdWidth][kExchangeBytes];  // by lane; only active lanes are meaningful
};

// Publishes `size` bytes of this lane and waits for the other active lanes of its simdgroup at `site`.
// A site is a source line: lanes that wait at different sites are divergent and are served separately.
Exchange& exchange(const void* value, uint32_t size, uint32_t site);

inline constexpr uint32_t kMemNone = 0, kMemDevice = 1, kMemThreadgroup = 2;  // which memory a barrier orders

void threadgroup_barrier(uint32_t memory, uint32_t site);
void simdgroup_barrier(uint32_t memory, uint32_t site);

// Storage of the `slot`-th threadgroup variable of the running kernel: the same for all threads of the group.
void* threadgroup_variable(uint32_t slot, size_t size, size_t alignment, const char* name);

// Storage bound at [[threadgroup(index)]].
void* threadgroup_argument(uint32_t index);

// Value of the function constant in `slot` of this launch; null when undefined.
const void* function_constant(uint32_t slot);

uint32_t lane();  // of this thread in its simdgroup

// Where a statement is: the number of its file in KernelInfo::files, and its line. 0: nowhere.
inline constexpr uint32_t kLineBits = 20;
constexpr uint32_t statement(uint32_t file, uint32_t line) { return file << kLineBits | line; }

// The statement that this thread runs, for the checker.
void set_statement(uint32_t statement);
uint32_t current_statement();

// The statement that calls a function goes on when the function returns.
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
