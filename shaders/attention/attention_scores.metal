// First of the three steps of plain attention: scores, softmax, values.
#include <metal_stdlib>
using namespace metal;

constexpr constant uint kThreads = 64;

// scores[t, a, j] = scale * q[t, a] . k[j, a / (heads / kv_heads)], without masks.
// Layout: row-major and contiguous.
// Dispatch: groups (ceil_div(context, kThreads), heads, tokens), threads (kThreads)
// Requires: tokens > 0; context > 0; dim > 0; kv_heads > 0; heads > 0; heads % kv_heads == 0
// Work: products (tokens * heads * context * dim)
// Numerics: f32 fma, dim ascending; NaN and inf reach only scores of their query or key.
template <typename T>
kernel void attention_scores(
    device const float* q [[buffer(0)]],  // [tokens, heads, dim]
    device const T* k [[buffer(1)]],      // [context, kv_heads, dim]
    device float* scores [[buffer(2)]],   // [tokens, heads, context]
    constant uint& tokens [[buffer(3)]],
    constant uint& context [[buffer(4)]],
    constant uint& heads [[buffer(5)]],
    constant uint& kv_heads [[buffer(6)]],
    constant uint& dim [[buffer(7)]],
    constant float& scale [[buffer(8)]],
    uint3 tg [[threadgroup_position_in_grid]],
    uint tid [[thread_index_in_threadgroup]]) {
  const uint j = tg.x * kThreads + tid;
  if (j >= context) return;
  const ulong row = ulong(tg.z) * heads + tg.y;
  device const float* query = q + row * dim;
  device const T* key = k + (ulong(j) * kv_heads + tg.y / (heads / kv_heads)) * dim;
  float sum = 0.0f;
  for (uint i = 0; i < dim; ++i) sum = fma(query[i], float(key[i]), sum);
  scores[row * context + j] = scale * sum;
}

template
    [[host_name("attention_scores_f32")]] kernel decltype(attention_scores<float>) attention_scores<float>;
template [[host_name("attention_scores_f16")]] kernel decltype(attention_scores<half>) attention_scores<half>;
template
    [[host_name("attention_scores_bf16")]] kernel decltype(attention_scores<bfloat>) attention_scores<bfloat>;
