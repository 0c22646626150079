// A launch of delta_net or delta_net_chunkwise, which take the same arguments.
#pragma once

#include "cpu/kernels/kernel.h"

namespace pyturbo::cpu::PYTURBO_ISA {

// The arrays of one value head. Token t has its vectors t strides behind these places.
struct DeltaHead {
  const float *q, *k, *v, *g, *beta;
  float *state, *y;
  uint64_t qk_stride, v_stride, gate_stride, y_stride;
  uint32_t tokens, k_dim, v_dim;
};

// The key dimension is the end of the name: delta_net_k128.
static inline uint32_t key_dim(const FastLaunch& launch) {
  uint32_t dim = 0, scale = 1;
  const char* end = launch.info.name;
  while (*end) ++end;
  for (; end[-1] != 'k'; --end, scale *= 10) dim += uint32_t(end[-1] - '0') * scale;
  return dim;
}

static inline DeltaHead delta_head(const FastLaunch& launch, uint32_t k_dim, uint64_t head) {
  const auto value = [&](uint32_t i) { return launch.value<uint32_t>(i); };
  const uint32_t k_heads = value(8), v_heads = value(9), v_dim = value(10);
  const uint64_t key_head = head / (v_heads / k_heads);
  return {launch.buffer<float>(0) + key_head * k_dim,
          launch.buffer<float>(1) + key_head * k_dim,
          launch.buffer<float>(2) + head * v_dim,
          launch.buffer<float>(3) + head,
          launch.buffer<float>(4) + head,
          launch.buffer<float>(5) + head * v_dim * k_dim,
          launch.buffer<float>(6) + head * v_dim,
          value(11),
          value(12),
          v_heads,
          uint64_t(v_heads) * v_dim,
          value(7),
          k_dim,
          v_dim};
}

}  // namespace pyturbo::cpu::PYTURBO_ISA
