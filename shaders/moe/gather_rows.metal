// Copies rows: of an embedding, of tokens into the buckets of their experts, of results back to their tokens.
#include <metal_stdlib>
using namespace metal;

constexpr constant uint kThreads = 256;
constexpr constant uint kEach = 4;  // values of a thread

// y[r] = x[index[r] / repeat]: with repeat = k a position token * k + choice finds the row of its token.
// Layout: rows contiguous; y overlaps neither input.
// Dispatch: groups (ceil_div(dim, kEach * kThreads), rows), threads (kThreads)
// Requires: rows > 0; x_rows > 0; dim > 0; repeat > 0
// Work: bytes (rows * dim * 8)
// Numerics: values are copied; an index outside [0, x_rows * repeat) gives a row of NaN.
template <typename X>
kernel void gather_rows(
    device const X* x [[buffer(0)]],        // [x_rows, dim]
    device const int* index [[buffer(1)]],  // [rows]
    device float* y [[buffer(2)]],          // [rows, dim]
    constant uint& rows [[buffer(3)]],
    constant uint& x_rows [[buffer(4)]],
    constant uint& dim [[buffer(5)]],
    constant uint& repeat [[buffer(6)]],
    uint2 tg [[threadgroup_position_in_grid]],
    uint tid [[thread_index_in_threadgroup]]) {
  const int position = index[tg.y];
  const uint row = uint(position) / repeat;
  const bool known = position >= 0 && row < x_rows;
  x += known ? ulong(row) * dim : 0;
  y += ulong(tg.y) * dim;
  const uint first = tg.x * kEach * kThreads + tid;
#pragma unroll
  for (uint i = first; i < first + kEach * kThreads; i += kThreads)
    if (i < dim) y[i] = known ? float(x[i]) : NAN;
}

template [[host_name("gather_rows_f32")]] kernel decltype(gather_rows<float>) gather_rows<float>;
template [[host_name("gather_rows_f16")]] kernel decltype(gather_rows<half>) gather_rows<half>;
template [[host_name("gather_rows_bf16")]] kernel decltype(gather_rows<bfloat>) gather_rows<bfloat>;
