#include "../common/joined.h"
#include "gguf.h"

// y = x W^T + bias for each of up to four matrices a, b, c and d of one type, as gguf_matvec.
// Layout: as gguf_matvec.
// Dispatch: groups (ceil_div(a_out, kRowsPerGroup) + ceil_div(b_out, kRowsPerGroup) +
//   ceil_div(c_out, kRowsPerGroup) + ceil_div(d_out, kRowsPerGroup)), threads (kRowThreads)
// Requires: in > 0; in % block == 0; a_out > 0; has_b || b_out == 0; has_c || c_out == 0; has_d || d_out == 0;
//   has_b || !has_c; has_c || !has_d
// Numerics: as gguf_matvec and add_bias.
template <uint type, uint block, uint block_bytes>
kernel void gguf_project(
    device const float* x [[buffer(0)]],         // [in] aligned 16
    device const uchar* a_blocks [[buffer(1)]],  // [a_out, in / block * block_bytes] aligned 16
    device float* a_y [[buffer(2)]],             // [a_out]
    device const uchar* b_blocks
    [[buffer(3), function_constant(has_b)]],  // [b_out, in / block * block_bytes] aligned 16
    device float* b_y [[buffer(4), function_constant(has_b)]],  // [b_out]
    device const uchar* c_blocks
    [[buffer(5), function_constant(has_c)]],  // [c_out, in / block * block_bytes] aligned 16
    device float* c_y [[buffer(6), function_constant(has_c)]],  // [c_out]
    device const uchar* d_blocks
    [[buffer(7), function_constant(has_d)]],  // [d_out, in / block * block_bytes] aligned 16
    device float* d_y [[buffer(8), function_constant(has_d)]],             // [d_out]
    device const float* bias [[buffer(9), function_constant(adds_bias)]],  // [a_out + b_out + c_out + d_out]
    constant uint& in [[buffer(10)]],
    constant uint& a_out [[buffer(11)]],
    constant uint& b_out [[buffer(12)]],
    constant uint& c_out [[buffer(13)]],
    constant uint& d_out [[buffer(14)]],
    uint tg [[threadgroup_position_in_grid]],
    uint tid [[thread_index_in_threadgroup]]) {
  threadgroup float partial[kRowPartials];
  using W = Blocks<type, block, block_bytes>;
  const uint units = in / kUnit;
  Joined<W> own = {{a_blocks, units}, a_y, a_out, tg, 0};
  if (is_past(own) && has_b) own = following(own, W{b_blocks, units}, b_y, b_out);
  if (is_past(own) && has_c) own = following(own, W{c_blocks, units}, c_y, c_out);
  if (is_past(own) && has_d) own = following(own, W{d_blocks, units}, d_y, d_out);

  const uint first = own.group * kRowsPerGroup;
  float sums[1];
  multiply_rows<1>(&own.w, x, spans_of(own.w), first, own.out, tid, kRowTeams, partial, sums);
  const uint row = first + tid;
  if (tid < kRowsPerGroup && row < own.out) own.y[row] = with_bias(own, row, sums[0], bias);
}

// The types of most files.
INSTANTIATE_GGUF_AS(gguf_project, 8, 32, 34, q8_0)
INSTANTIATE_GGUF_AS(gguf_project, 12, 256, 144, q4_k)
INSTANTIATE_GGUF_AS(gguf_project, 13, 256, 176, q5_k)
INSTANTIATE_GGUF_AS(gguf_project, 14, 256, 210, q6_k)
