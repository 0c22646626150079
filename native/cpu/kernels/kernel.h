// Kernels made for a processor. Each stands for the shader kernel of the same name: same arguments, and
// results within the bounds that docs/architecture.md states.
#pragma once

#include <cstdint>

#include "cpu/batch.h"
#include "pyturbo/device.h"
#include "pyturbo/kernel.h"

namespace pyturbo::cpu {

// What the suffix of an instance's name says: affine_matvec_b4_bf16, fp_matvec_mxfp4, matmul_f16.
struct Format {
  uint32_t bits = 0;        // of a quantised weight
  DType type = DType::f32;  // of scales, or of a weight that is not quantised
  uint32_t group = 0;       // values of a group of small floats; else an argument says how many
};

// One launch, checked and complete (core/launch.h). A body adds its items to the batch, or does what
// little there is at once; what items use they keep by value, this struct too.
struct FastLaunch {
  const KernelInfo& info;
  Format format;
  const Arguments& arguments;
  Precision precision;
  Batch& batch;

  // The value, or the address, bound at [[buffer(index)]].
  template <typename T>
  T value(uint32_t index) const {
    return *static_cast<const T*>(arguments.buffers[index]);
  }
  template <typename T>
  T* buffer(uint32_t index) const {
    return static_cast<T*>(arguments.buffers[index]);
  }
  // The boolean [[function_constant(index)]].
  bool constant(uint32_t index) const {
    for (uint32_t i = 0; i < info.constant_count; ++i)
      if (info.constants[i].index == index)
        return *static_cast<const bool*>(arguments.constants[info.constants[i].slot]);
    return false;
  }
};

struct FastKernel {
  const char* function;  // KernelInfo::function
  void (*run)(const FastLaunch&);
};

}  // namespace pyturbo::cpu
