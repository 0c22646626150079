// What a launch takes, whichever device runs it: the Work line of its kernel's contract.
#pragma once

#include <cstdint>

#include "pyturbo/arguments.h"
#include "pyturbo/kernel.h"

namespace pyturbo {

struct Work {
  double products;  // multiply-adds
  double bytes;     // touched in memory
};

// The Work line of all instances of a kernel, as the front end generates it (shaders/frontend/work.py).
struct KernelWork {
  const char* function;
  Work (*of)(const KernelInfo&, const Arguments&);
};

// Returns the work of a complete launch, of a kernel without such a line the bytes of its arguments.
Work work_of(const KernelInfo& kernel, const Arguments& launch);

// What these functions use.
namespace work {

inline int64_t min(int64_t a, int64_t b) { return a < b ? a : b; }
inline int64_t max(int64_t a, int64_t b) { return a < b ? b : a; }
inline int64_t ceil_div(int64_t a, int64_t b) { return (a + b - 1) / b; }

// The bytes of a value of the type.
inline int64_t bytes_of(DType type) {
  switch (type) {
    case DType::i64:
    case DType::u64:
      return 8;
    case DType::f32:
    case DType::i32:
    case DType::u32:
      return 4;
    case DType::f16:
    case DType::bf16:
    case DType::i16:
    case DType::u16:
      return 2;
    default:
      return 1;
  }
}

// The bytes of all buffers of a launch.
inline double argument_bytes(const KernelInfo& kernel, const Arguments& launch) {
  double bytes = 0;
  for (uint32_t i = 0; i < kernel.argument_count; ++i) {
    const ArgumentInfo& argument = kernel.arguments[i];
    if (argument.kind == ArgumentKind::buffer && launch.buffers[argument.index])
      bytes += double(launch.bytes[argument.index]);
  }
  return bytes;
}

}  // namespace work
}  // namespace pyturbo
