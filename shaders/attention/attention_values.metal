// Last of the three steps of plain attention: scores, softmax, values.
#include <metal_stdlib>
using namespace metal;

constexpr constant uint kThreads = 64;

// y[t, a] = sum_j p[t, a, j] * v[j, a / (heads / kv_heads)].
// Layout: row-major and contiguous.
// Dispatch: groups (ceil_div(dim, kThreads), heads, tokens), threads (kThreads)
// Requires: tokens > 0; context > 0; dim > 0; kv_heads > 0; heads > 0; heads % kv_heads == 0
// Work: products (tokens * heads * context * dim)
// Numerics: f32 fma, keys ascending; a NaN or inf of v shows at its own coordinate even where p is 0.
template <typename T>
kernel void attention_values(
    device const float* p [[buffer(0)]],  // [tokens, heads, context]
    device const T* v [[buffer(1)]],      // [context, kv_heads, dim]
    device float* y [[buffer(2)]],        // [tokens, heads, dim]
    constant uint& tokens [[buffer(3)]],
    constant uint& context [[buffer(4)]],
    constant uint& heads [[buffer(5)]],
    constant uint& kv_heads [[buffer(6)]],
    constant uint& dim [[buffer(7)]],
    uint3 tg [[threadgroup_position_in_grid]],
    uint tid [[thread_index_in_threadgroup]]) {
  const uint i = tg.x * kThreads + tid;
  if (i >= dim) return;
  const ulong row = ulong(tg.z) * heads + tg.y;
  device const float* weights = p + row * context;
  device const T* value = v + ulong(tg.y / (heads / kv_heads)) * dim + i;
  const ulong stride = ulong(kv_heads) * dim;
  float sum = 0.0f;
  for (uint j = 0; j < context; ++j) sum = fma(weights[j], float(value[j * stride]), sum);
  y[row * dim + i] = sum;
}

template
    [[host_name("attention_values_f32")]] kernel decltype(attention_values<float>) attention_values<float>;
template [[host_name("attention_values_f16")]] kernel decltype(attention_values<half>) attention_values<half>;
template
    [[host_name("attention_values_bf16")]] kernel decltype(attention_values<bfloat>) attention_values<bfloat>;
