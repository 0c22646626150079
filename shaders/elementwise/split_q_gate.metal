// Separates the two halves that gated attention projects together.
#include <metal_stdlib>
using namespace metal;

constexpr constant uint kThreads = 256;

// q = first half and gate = second half of each head of x.
// Layout: all row-major and contiguous; q and gate overlap neither x nor each other.
// Dispatch: groups (ceil_div(dim, kThreads), heads, tokens), threads (kThreads)
// Requires: tokens > 0; heads > 0; dim > 0
// Numerics: values are copied.
kernel void split_q_gate(
    device const float* x [[buffer(0)]],  // [tokens, heads, 2 * dim]
    device float* q [[buffer(1)]],        // [tokens, heads, dim]
    device float* gate [[buffer(2)]],     // [tokens, heads, dim]
    constant uint& tokens [[buffer(3)]],
    constant uint& heads [[buffer(4)]],
    constant uint& dim [[buffer(5)]],
    uint3 tg [[threadgroup_position_in_grid]],
    uint tid [[thread_index_in_threadgroup]]) {
  const uint i = tg.x * kThreads + tid;
  if (i >= dim) return;

  const ulong head = ulong(tg.z) * heads + tg.y;
  q[head * dim + i] = x[head * 2 * dim + i];
  gate[head * dim + i] = x[head * 2 * dim + dim + i];
}
