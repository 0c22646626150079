// Bias of the linear layers of experts.
#include "../common/slots.h"

constant bool has_order [[function_constant(1)]];

constexpr constant uint kThreads = 256;

// y[r] = x[r] + bias[ids[r]], or bias[ids[order[r]]] for rows in the order of moe_buckets.
// Layout: rows of bias are bias_stride elements apart; expert e has row e, by slot slots[e]; y may be x.
// Dispatch: groups (ceil_div(dim, kThreads), rows), threads (kThreads)
// Requires: rows > 0; dim > 0; experts > 0; matrices > 0; matrices <= kNoMatrix;
//   by_slot || matrices == experts
// Work: bytes (rows * dim * 12)
// Numerics: one f32 addition a value. Rows of a negative slot stay as they are; an id, slot or place in
//   the order that is out of range gives NaN.
template <typename B>
kernel void add_expert_bias(
    device const float* x [[buffer(0)]],  // [rows, dim]
    device const B* bias [[buffer(1)]],   // [(matrices - 1) * bias_stride + dim]
    device const int* ids [[buffer(2)]],  // [rows]
    device const int* order [[buffer(3), function_constant(has_order)]],  // [rows]
    device const int* slots [[buffer(4), function_constant(by_slot)]],    // [experts]
    device float* y [[buffer(5)]],                                        // [rows, dim]
    constant uint& rows [[buffer(6)]],
    constant uint& experts [[buffer(7)]],
    constant uint& matrices [[buffer(8)]],
    constant uint& dim [[buffer(9)]],
    constant ulong& bias_stride [[buffer(10)]],
    uint2 tg [[threadgroup_position_in_grid]],
    uint tid [[thread_index_in_threadgroup]]) {
  const uint i = tg.x * kThreads + tid;
  if (i >= dim) return;

  const uint place = has_order ? uint(order[tg.y]) : tg.y;
  const uint id = place < rows ? uint(ids[place]) : experts;
  const int number = matrix_of(slots, id, experts);
  if (number < 0) return;
  const ulong at = ulong(tg.y) * dim + i;
  y[at] = uint(number) < matrices ? x[at] + float(bias[uint(number) * bias_stride + i]) : NAN;
}

template [[host_name("add_expert_bias_f32")]] kernel decltype(add_expert_bias<float>) add_expert_bias<float>;
template [[host_name("add_expert_bias_f16")]] kernel decltype(add_expert_bias<half>) add_expert_bias<half>;
template
    [[host_name("add_expert_bias_bf16")]] kernel decltype(add_expert_bias<bfloat>) add_expert_bias<bfloat>;
