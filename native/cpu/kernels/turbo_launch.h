// What launches on compressed rows have in common.
#pragma once

#include "cpu/kernels/kernel.h"

namespace pyturbo::cpu::PYTURBO_ISA {

static inline uint32_t row_words(uint32_t dim, uint32_t bits) { return (dim * bits + 31) / 32; }

// The unsigned [[function_constant(index)]].
static inline uint32_t width_constant(const FastLaunch& launch, uint32_t index) {
  for (uint32_t i = 0; i < launch.info.constant_count; ++i)
    if (launch.info.constants[i].index == index)
      return *static_cast<const uint32_t*>(launch.arguments.constants[launch.info.constants[i].slot]);
  return 0;
}

}  // namespace pyturbo::cpu::PYTURBO_ISA
