// New rows of a key or value cache.
#include <metal_stdlib>
using namespace metal;

constexpr constant uint kThreads = 256;

// cache[(position + t) % capacity] = rows[t]: a ring once the capacity is reached.
// Layout: a row holds all heads of one position, width = kv_heads * dim values.
// Dispatch: groups (ceil_div(width, kThreads), tokens), threads (kThreads)
// Requires: width > 0; 0 < tokens; tokens <= capacity; position + tokens <= 4294967296
// Work: bytes (tokens * width * 8)
// Numerics: rounded once to the cache's type; values out of the range of f16 become inf.
template <typename T>
kernel void kv_append(
    device const float* rows [[buffer(0)]],  // [tokens, width]
    device T* cache [[buffer(1)]],           // [capacity, width]
    constant uint& tokens [[buffer(2)]],
    constant uint& capacity [[buffer(3)]],
    constant uint& width [[buffer(4)]],
    constant uint& position [[buffer(5)]],
    uint2 tg [[threadgroup_position_in_grid]],
    uint tid [[thread_index_in_threadgroup]]) {
  const uint i = tg.x * kThreads + tid;
  if (i >= width) return;
  const uint row = (position + tg.y) % capacity;
  cache[ulong(row) * width + i] = T(rows[ulong(tg.y) * width + i]);
}

template [[host_name("kv_append_f32")]] kernel decltype(kv_append<float>) kv_append<float>;
template [[host_name("kv_append_f16")]] kernel decltype(kv_append<half>) kv_append<half>;
template [[host_name("kv_append_bf16")]] kernel decltype(kv_append<bfloat>) kv_append<bfloat>;
