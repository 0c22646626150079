#include "../common/activations.h"
#include "../common/rows.h"
#include "../common/slots.h"
#include "gguf.h"

// y[t, j] = silu(G[e] x[t]) * (U[e] x[t]), e = ids[t, j], for the k experts of each token.
// Layout: as gguf_experts_matvec; gate and up have equal stride and slots.
// Dispatch: groups (ceil_div(out, kRowsPerGroup), k, tokens), threads (kRowThreads)
// Requires: in > 0; in % block == 0; x_rows == 1 || x_rows == k; experts > 0; matrices > 0; matrices <= kNoMatrix;
//   by_slot || matrices == experts;
//   blocks_stride % (block_bytes % 4 > 0 ? 2 - block_bytes % 2 : block_bytes % 16 > 0 ? 4 : 16) == 0
// Work: products (2 * tokens * k * in * out),
//   bytes (2 * min(tokens * k, matrices) * in / block * out * block_bytes)
// Numerics: as gguf_swiglu. Rows of a negative slot stay as they are; an unknown id or slot gives NaN.
template <uint type, uint block, uint block_bytes>
kernel void gguf_experts_swiglu(
    device const float* x [[buffer(0)]],  // [tokens, x_rows, in] aligned 16
    device const int* ids [[buffer(1)]],  // [tokens, k]
    device const uchar* gate
    [[buffer(2)]],  // [(matrices - 1) * blocks_stride + out * in / block * block_bytes] aligned 16
    device const uchar* up
    [[buffer(3)]],  // [(matrices - 1) * blocks_stride + out * in / block * block_bytes] aligned 16
    device const int* slots [[buffer(4), function_constant(by_slot)]],  // [experts]
    device float* y [[buffer(5)]],                                      // [tokens, k, out]
    constant uint& tokens [[buffer(6)]],
    constant uint& k [[buffer(7)]],
    constant uint& x_rows [[buffer(8)]],
    constant uint& in [[buffer(9)]],
    constant uint& out [[buffer(10)]],
    constant uint& experts [[buffer(11)]],
    constant uint& matrices [[buffer(12)]],
    constant ulong& blocks_stride [[buffer(13)]],
    uint3 tg [[threadgroup_position_in_grid]],
    uint tid [[thread_index_in_threadgroup]]) {
  threadgroup float partial[2 * kRowPartials];
  const ulong choice = ulong(tg.z) * k + tg.y;
  const int number = matrix_of(slots, uint(ids[choice]), experts);  // a negative id is a large one
  if (number < 0) return;
  const bool known = uint(number) < matrices;
  const uint matrix = known ? uint(number) : 0;
  const ulong start = matrix * blocks_stride;
  const Blocks<type, block, block_bytes> w[2] = {{gate + start, in / kUnit}, {up + start, in / kUnit}};

  const ulong row = ulong(tg.z) * x_rows + tg.y % x_rows;
  const uint first = tg.x * kRowsPerGroup;
  float sums[2];
  multiply_rows<2>(w, x + row * in, known ? spans_of(w[0]) : 0, first, out, tid, kRowTeams, partial, sums);
  if (tid < kRowsPerGroup && first + tid < out)
    y[choice * out + first + tid] = known ? silu(sums[0]) * sums[1] : NAN;
}

INSTANTIATE_GGUF(gguf_experts_swiglu)
