// Kernels that use what real shaders use of the language, for tests/test_language.py.
#include <metal_stdlib>

#include "language.h"
using namespace metal;

constant bool doubled [[function_constant(0)]];
constant uint bias_count [[function_constant(1201)]];
constant bool has_bias = is_function_constant_defined(bias_count);
constant float kScale = 0.5f;
constant float kTable[4] = {1.0f, 2.0f, 4.0f, 8.0f};

// Every position a thread can ask for, 20 words a thread.
// Dispatch: groups (2, 3, 2), threads (4, 3, 5)
kernel void positions(
    device uint* out [[buffer(0)]],  // [2 * 3 * 2 * 4 * 3 * 5 * 20]
    uint3 grid [[thread_position_in_grid]],
    uint3 tid [[thread_position_in_threadgroup]],
    uint3 tg [[threadgroup_position_in_grid]],
    uint3 size [[threads_per_threadgroup]],
    uint3 groups [[threadgroups_per_grid]],
    uint3 total [[threads_per_grid]],
    uint index [[thread_index_in_threadgroup]],
    ushort lane [[thread_index_in_simdgroup]],
    uint simd [[simdgroup_index_in_threadgroup]],
    uint width [[threads_per_simdgroup]],
    uint simds [[simdgroups_per_threadgroup]]) {
  const uint at = ((tg.z * groups.y + tg.y) * groups.x + tg.x) * (size.x * size.y * size.z) + index;
  device uint* o = out + at * 20;
  const uint3 five[5] = {grid, tid, tg, size, groups};
  for (uint i = 0; i < 5; ++i) {
    o[3 * i] = five[i].x;
    o[3 * i + 1] = five[i].y;
    o[3 * i + 2] = five[i].z;
  }
  o[15] = total.x * 10000 + total.y * 100 + total.z;
  o[16] = lane;
  o[17] = simd;
  o[18] = width;
  o[19] = simds;
}

// out[i] = in[i] * scale + offset, with indices out of order, a struct and scalar positions.
// Dispatch: groups (ceil_div(params.count, 32)), threads (32)
// Requires: params.count <= 4096
kernel void struct_argument(
    constant Affine& params [[buffer(7)]],
    device float* out [[buffer(0)]],       // [params.count]
    const device float* in [[buffer(3)]],  // [params.count]
    uint i [[thread_position_in_grid]]) {
  if (i < uint(params.count)) out[i] = in[i] * params.scale + params.offset.y;
}

// Sum over a threadgroup through memory bound by the host.
// Dispatch: groups (groups), threads (64)
kernel void threadgroup_argument(
    device const float* in [[buffer(0)]],  // [groups, 64]
    device float* out [[buffer(1)]],       // [groups]
    constant uint& groups [[buffer(2)]],
    threadgroup float* partial [[threadgroup(0)]],  // [64]
    uint tg [[threadgroup_position_in_grid]],
    uint tid [[thread_position_in_threadgroup]]) {
  partial[tid] = in[tg * 64 + tid];
  for (uint half_size = 32; half_size > 0; half_size /= 2) {
    threadgroup_barrier(mem_flags::mem_threadgroup);
    if (tid < half_size) partial[tid] += partial[tid + half_size];
  }
  if (tid == 0) out[tg] = partial[0];
}

// Transpose of a [rows, columns] matrix through a tile; shows multi-dimensional threadgroup arrays.
// Dispatch: groups (ceil_div(columns, N), ceil_div(rows, N)), threads (N, N)
template <typename T, int N>
kernel void transpose_tile(
    device const T* in [[buffer(0)]],  // [rows, columns]
    device T* out [[buffer(1)]],       // [columns, rows]
    constant int& rows [[buffer(2)]],
    constant int& columns [[buffer(3)]],
    uint2 tg [[threadgroup_position_in_grid]],
    uint2 tid [[thread_position_in_threadgroup]]) {
  threadgroup T tile[N][N + 1], unused;
  const int2 from = int2(tg * uint(N) + tid);
  if (from.x < columns && from.y < rows) tile[tid.y][tid.x] = in[from.y * columns + from.x];
  threadgroup_barrier(mem_flags::mem_threadgroup);
  const int2 to = int2(tg.yx * uint(N) + tid);
  if (to.x < rows && to.y < columns) out[to.y * rows + to.x] = tile[tid.x][tid.y];
  if (false) unused = tile[0][0];
}

#define instantiate_transpose(name, type, size) \
  template                                      \
      [[host_name("transpose_" name             \
                  "_" #size)]] [[kernel]] decltype(transpose_tile<type, size>) transpose_tile<type, size>;
instantiate_transpose("f32", float, 8);
instantiate_transpose("f16", half, 4);
template [[host_name("transpose_u32_2")]] [[kernel]] void transpose_tile<uint, 2>(
    device const uint* in [[buffer(0)]],
    device uint* out [[buffer(1)]],
    constant int& rows [[buffer(2)]],
    constant int& columns [[buffer(3)]],
    uint2 tg [[threadgroup_position_in_grid]],
    uint2 tid [[thread_position_in_threadgroup]]);
typedef decltype(transpose_tile<int, 3>) transpose_int;
template [[host_name("transpose_i32_3")]] kernel transpose_int transpose_tile<int, 3>;

// Function constants choose code, an argument and a derived constant.
// Dispatch: groups (1), threads (count)
kernel void specialised(
    device const float* in [[buffer(0)]],  // [count]
    device float* out [[buffer(1)]],       // [count]
    constant uint& count [[buffer(2)]],
    device const float* extra [[buffer(3), function_constant(doubled)]],  // [count]
    uint i [[thread_position_in_grid]]) {
  float value = in[i] * kScale + kTable[i % 4];
  if (doubled) value = 2.0f * value + extra[i];
  if (has_bias) value += float(bias_count);
  out[i] = value;
}

// Histogram in threadgroup atomics, then added to device atomics; also the largest value and a float sum.
// Dispatch: groups (groups), threads (64)
kernel void atomics(
    device const uint* in [[buffer(0)]],          // [groups, 64]
    device atomic_uint* histogram [[buffer(1)]],  // [8]
    device atomic_int* largest [[buffer(2)]],     // [1]
    device atomic<float>* sum [[buffer(3)]],      // [1]
    constant uint& groups [[buffer(4)]],
    uint i [[thread_position_in_grid]],
    uint tid [[thread_position_in_threadgroup]]) {
  threadgroup atomic_uint local[8];
  if (tid < 8) atomic_store_explicit(&local[tid], 0u, memory_order_relaxed);
  threadgroup_barrier(mem_flags::mem_threadgroup);
  const uint value = in[i];
  atomic_fetch_add_explicit(&local[value % 8], 1u, memory_order_relaxed);
  atomic_fetch_max_explicit(largest, int(value), memory_order_relaxed);
  atomic_fetch_add_explicit(sum, float(value), memory_order_relaxed);
  threadgroup_barrier(mem_flags::mem_threadgroup);
  if (tid < 8)
    atomic_fetch_add_explicit(
        &histogram[tid], atomic_load_explicit(&local[tid], memory_order_relaxed), memory_order_relaxed);
}

// Simdgroup functions over one simdgroup, 16 floats a lane; the last ones under divergence.
// Dispatch: groups (1), threads (32)
kernel void simd_functions(
    device const float* in [[buffer(0)]],  // [32]
    device float* out [[buffer(1)]],       // [32, 16]
    uint lane [[thread_index_in_simdgroup]]) {
  const float x = in[lane];
  device float* o = out + lane * 16;
  o[0] = simd_sum(x);
  o[1] = simd_max(x);
  o[2] = simd_min(x);
  o[3] = simd_broadcast(x, 5);
  o[4] = simd_shuffle(x, ushort(31 - lane));
  o[5] = simd_shuffle_xor(x, 4);
  o[6] = simd_shuffle_down(x, 3);
  o[7] = float(uint(uint64_t(simd_vote::vote_t(simd_ballot(x > 0.0f))) & 0xffffu));
  o[8] = float(simd_any(x > 1e6f)) + 2.0f * float(simd_all(x < 1e6f));
  o[9] = simd_prefix_exclusive_sum(x);
  const float2 pair = simd_sum(float2(x, 1.0f));
  o[10] = pair.x;
  o[11] = pair.y;
  o[15] = simd_shuffle_up(x, 2);
  o[12] = o[13] = 0.0f;
  if (lane < 20) {
    o[12] = simd_sum(1.0f);
  } else {
    o[13] = simd_sum(1.0f);
  }
  float count = 0.0f;
  for (uint i = 0; i < lane; ++i) count += simd_sum(1.0f);
  o[14] = count;
}

// d = a b + c for 8x8 tiles, b given transposed, element types mixed as MSL allows.
// Dispatch: groups (1), threads (32)
template <typename T>
kernel void matrix_multiply(
    device const T* a [[buffer(0)]],      // [8, 8]
    device const T* b [[buffer(1)]],      // [8, 8]
    device const float* c [[buffer(2)]],  // [8, 12]
    device float* d [[buffer(3)]],        // [8, 12]
    uint lane [[thread_index_in_simdgroup]]) {
  simdgroup_matrix<T, 8, 8> left, right;
  simdgroup_float8x8 sum, product;
  simdgroup_load(left, a, 8);
  simdgroup_load(right, b, 8, ulong2(0, 0), true);
  simdgroup_load(sum, c, 12, ulong2(2, 0));
  simdgroup_multiply_accumulate(product, left, right, sum);
  simdgroup_store(product, d, 12, ulong2(2, 0));
}
template
    [[host_name("matrix_multiply_f32")]] [[kernel]] decltype(matrix_multiply<float>) matrix_multiply<float>;
template
    [[host_name("matrix_multiply_f16")]] [[kernel]] decltype(matrix_multiply<half>) matrix_multiply<half>;
template [[host_name(
    "matrix_multiply_bf16")]] [[kernel]] decltype(matrix_multiply<bfloat>) matrix_multiply<bfloat>;

// Element types, vectors, swizzles and bit casts in one expression each.
// Dispatch: groups (1), threads (1)
kernel void element_types(
    device const half4* h [[buffer(0)]],          // [1]
    device const bfloat* b [[buffer(1)]],         // [2]
    device const packed_float3* p [[buffer(2)]],  // [1]
    device float* out [[buffer(3)]],              // [8]
    uint tid [[thread_position_in_grid]]) {
  float4 v = float4(h[0].wzyx);
  v.xy += float2(b[0], b[1]);
  const float3 q = p[0];
  out[0] = v.x;
  out[1] = v.y;
  out[2] = dot(v.zw, q.xy);
  out[3] = as_type<float>(as_type<uint>(q.z) ^ 0x80000000u);
  out[4] = float(half(0.1h) * 3.0h) + float(0.5bf);
  out[5] = precise::exp(1.0);
  out[6] = fast::rsqrt(4.0f);
  out[7] = select(1.0f, 2.0f, any(v.xyz > 1e5f));
}

// out[i] = i, in threadgroups of a bounded size.
[[max_total_threads_per_threadgroup(64)]] kernel void bounded_threads(
    device uint* out [[buffer(0)]],
    uint i [[thread_position_in_grid]]) {
  out[i] = i;
}

// The components of values that are vectors, one after the other.
// Dispatch: groups (1), threads (1)
kernel void vector_values(
    device float* out [[buffer(0)]],  // [12]
    constant int3& a [[buffer(1)]],
    constant uint4& b [[buffer(2)]],
    constant half2& c [[buffer(3)]],
    constant uchar& d [[buffer(4)]],
    uint i [[thread_position_in_grid]]) {
  const float all[10] = {float(a.x), float(a.y), float(a.z), float(b.x), float(b.y),
                         float(b.z), float(b.w), float(c.x), float(c.y), float(d)};
  for (uint k = 0; k < 10; ++k) out[i + k] = all[k];
}
