// Bias of a linear layer.
#include <metal_stdlib>
using namespace metal;

constexpr constant uint kThreads = 256;

// y = x + bias, row by row.
// Layout: rows contiguous; y may be x.
// Dispatch: groups (ceil_div(dim, kThreads), rows), threads (kThreads)
// Requires: rows > 0; dim > 0
// Numerics: one f32 addition a value.
template <typename B>
kernel void add_bias(
    device const float* x [[buffer(0)]],  // [rows, dim]
    device const B* bias [[buffer(1)]],   // [dim]
    device float* y [[buffer(2)]],        // [rows, dim]
    constant uint& rows [[buffer(3)]],
    constant uint& dim [[buffer(4)]],
    uint2 tg [[threadgroup_position_in_grid]],
    uint2 tid [[thread_position_in_threadgroup]]) {
  const uint i = tg.x * kThreads + tid.x;
  if (i < dim) y[ulong(tg.y) * dim + i] = x[ulong(tg.y) * dim + i] + float(bias[i]);
}

template [[host_name("add_bias_f32")]] kernel decltype(add_bias<float>) add_bias<float>;
template [[host_name("add_bias_f16")]] kernel decltype(add_bias<half>) add_bias<half>;
template [[host_name("add_bias_bf16")]] kernel decltype(add_bias<bfloat>) add_bias<bfloat>;
