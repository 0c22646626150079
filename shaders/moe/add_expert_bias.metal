// Bias of the linear layers of experts.
#include <metal_stdlib>
using namespace metal;

constant bool has_order [[function_constant(0)]];

constexpr constant uint kThreads = 256;

// y[r] = x[r] + bias[ids[r]], or bias[ids[order[r]]] for rows in the order of moe_buckets.
// Layout: rows contiguous; y may be x.
// Dispatch: groups (ceil_div(dim, kThreads), rows), threads (kThreads)
// Requires: rows > 0; experts > 0; dim > 0
// Numerics: one f32 addition a value; an id or a place in the order that is out of range gives a row of NaN.
template <typename B>
kernel void add_expert_bias(
    device const float* x [[buffer(0)]],                                  // [rows, dim]
    device const B* bias [[buffer(1)]],                                   // [experts, dim]
    device const int* ids [[buffer(2)]],                                  // [rows]
    device const int* order [[buffer(3), function_constant(has_order)]],  // [rows]
    device float* y [[buffer(4)]],                                        // [rows, dim]
    constant uint& rows [[buffer(5)]],
    constant uint& experts [[buffer(6)]],
    constant uint& dim [[buffer(7)]],
    uint2 tg [[threadgroup_position_in_grid]],
    uint tid [[thread_index_in_threadgroup]]) {
  const uint i = tg.x * kThreads + tid;
  if (i >= dim) return;

  const uint place = has_order ? uint(order[tg.y]) : tg.y;
  const uint id = place < rows ? uint(ids[place]) : experts;
  const ulong at = ulong(tg.y) * dim + i;
  y[at] = id < experts ? x[at] + float(bias[ulong(id) * dim + i]) : NAN;
}

template [[host_name("add_expert_bias_f32")]] kernel decltype(add_expert_bias<float>) add_expert_bias<float>;
template [[host_name("add_expert_bias_f16")]] kernel decltype(add_expert_bias<half>) add_expert_bias<half>;
template
    [[host_name("add_expert_bias_bf16")]] kernel decltype(add_expert_bias<bfloat>) add_expert_bias<bfloat>;
