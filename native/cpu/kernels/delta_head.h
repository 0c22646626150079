// A launch of delta_net or delta_net_chunkwise, which take the same arguments.
#pragma once

#include "cpu/kernels/vector.h"

namespace pyturbo::cpu::PYTURBO_LEVEL {

// The arrays of one value head, at token 0. Token t is t strides further on.
struct DeltaHead {
  const float *q, *k, *v, *g, *beta;
  float *state, *y;
  uint64_t qk_stride, v_stride, gate_stride, y_stride;
  uint32_t tokens, k_dim, v_dim;
};

// A is arguments::delta_net or arguments::delta_net_chunkwise.
template <typename A>
PYTURBO_INLINE DeltaHead delta_head(const A& a, uint32_t k_dim, uint64_t head) {
  const uint64_t key_head = a.tiled ? head % a.k_heads : head / (a.v_heads / a.k_heads);
  return {a.q + key_head * k_dim,
          a.k + key_head * k_dim,
          a.v + head * a.v_dim,
          a.g + head,
          a.beta + head,
          a.state + head * a.v_dim * k_dim,
          a.y + head * a.v_dim,
          a.qk_stride,
          a.v_stride,
          a.v_heads,
          uint64_t(a.v_heads) * a.v_dim,
          a.tokens,
          k_dim,
          a.v_dim};
}

}  // namespace pyturbo::cpu::PYTURBO_LEVEL
