#include "../common/row_teams.h"
#include "../common/slots.h"
#include "gguf.h"

// y[t, j] = W[ids[t, j]] x[t] for the k experts of each token; x has one row per token, or one per (t, j).
// Layout: matrix m is m * blocks_stride bytes after the first; expert e has matrix e, by slot slots[e].
// Dispatch: groups (ceil_div(out, kTeamRows), k, tokens), threads (kRowThreads)
// Requires: valid_teams; in > 0; in % block == 0; x_rows == 1 || x_rows == k; experts > 0; matrices > 0;
//   matrices <= kNoMatrix; by_slot || matrices == experts;
//   blocks_stride % (block_bytes % 4 > 0 ? 2 - block_bytes % 2 : block_bytes % 16 > 0 ? 4 : 16) == 0
// Work: products (tokens * k * in * out), bytes (min(tokens * k, matrices) * in / block * out * block_bytes)
// Numerics: as gguf_matvec. Rows of a negative slot stay as they are; an unknown id or slot gives NaN.
template <uint type, uint block, uint block_bytes>
kernel void gguf_experts_matvec(
    device const float* x [[buffer(0)]],  // [tokens, x_rows, in] aligned 16
    device const int* ids [[buffer(1)]],  // [tokens, k]
    device const uchar* blocks
    [[buffer(2)]],  // [(matrices - 1) * blocks_stride + out * in / block * block_bytes] aligned 16
    device const int* slots [[buffer(3), function_constant(by_slot)]],  // [experts]
    device float* y [[buffer(4)]],                                      // [tokens, k, out]
    constant uint& tokens [[buffer(5)]],
    constant uint& k [[buffer(6)]],
    constant uint& x_rows [[buffer(7)]],
    constant uint& in [[buffer(8)]],
    constant uint& out [[buffer(9)]],
    constant uint& experts [[buffer(10)]],
    constant uint& matrices [[buffer(11)]],
    constant ulong& blocks_stride [[buffer(12)]],
    uint3 tg [[threadgroup_position_in_grid]],
    uint tid [[thread_index_in_threadgroup]]) {
  threadgroup float partial[kTeamPartials];
  const ulong choice = ulong(tg.z) * k + tg.y;
  const int number = matrix_of(slots, uint(ids[choice]), experts);  // a negative id is a large one
  if (number < 0) return;
  const bool known = uint(number) < matrices;
  const uint matrix = known ? uint(number) : 0;
  const Blocks<type, block, block_bytes> w = {blocks + matrix * blocks_stride, in / kUnit};

  const ulong row = ulong(tg.z) * x_rows + tg.y % x_rows;
  const uint first = tg.x * kTeamRows;
  float sums[1];
  multiply_rows<1>(&w, x + row * in, known ? spans_of(w) : 0, first, out, tid, kTeams, partial, sums);
  if (tid < kTeamRows && first + tid < out) y[choice * out + first + tid] = known ? sums[0] : NAN;
}

INSTANTIATE_GGUF(gguf_experts_matvec)
