// The kernels of this folder, by the shader function they stand for.
#pragma once

#include "cpu/kernels/kernel.h"

// The instance of a function template for a type of stored floats.
#define PYTURBO_BY_TYPE(type, function, ...) \
  switch (type) {                            \
    case DType::f16:                         \
      return function<Half>(__VA_ARGS__);    \
    case DType::bf16:                        \
      return function<BFloat>(__VA_ARGS__);  \
    default:                                 \
      return function<float>(__VA_ARGS__);   \
  }

namespace pyturbo::cpu::PYTURBO_ISA {

void quantized_matvec(const FastLaunch& launch);
void quantized_matmul(const FastLaunch& launch);
void quantized_swiglu(const FastLaunch& launch);
void quantized_swiglu_matmul(const FastLaunch& launch);
void quantized_experts_matvec(const FastLaunch& launch);
void quantized_experts_swiglu(const FastLaunch& launch);
void quantized_grouped_matmul(const FastLaunch& launch);
void quantized_embed(const FastLaunch& launch);

void read_words(const FastLaunch& launch);

void matmul(const FastLaunch& launch);
void experts_matvec(const FastLaunch& launch);

void rms_norm(const FastLaunch& launch);
void head_rms_norm(const FastLaunch& launch);
void gated_rms_norm(const FastLaunch& launch);
void qk_norm(const FastLaunch& launch);

void add(const FastLaunch& launch);
void add_bias(const FastLaunch& launch);
void swiglu(const FastLaunch& launch);
void swiglu_clamped(const FastLaunch& launch);
void sigmoid_gate(const FastLaunch& launch);
void split_q_gate(const FastLaunch& launch);
void rope(const FastLaunch& launch);

void attention(const FastLaunch& launch);
void attention_partials(const FastLaunch& launch);
void attention_merge(const FastLaunch& launch);
void kv_append(const FastLaunch& launch);

void mla_append(const FastLaunch& launch);
void mla_attention(const FastLaunch& launch);
void mla_dense_project(const FastLaunch& launch);
void mla_dense_project_transposed(const FastLaunch& launch);
void mla_partials(const FastLaunch& launch);
void mla_project(const FastLaunch& launch);
void mla_project_transposed(const FastLaunch& launch);
void mla_split(const FastLaunch& launch);
void mla_turbo_attention(const FastLaunch& launch);
void mla_turbo_partials(const FastLaunch& launch);

void conv1d(const FastLaunch& launch);
void decay_beta(const FastLaunch& launch);
void delta_net(const FastLaunch& launch);
void delta_net_chunkwise(const FastLaunch& launch);

void add_expert_bias(const FastLaunch& launch);
void gather_rows(const FastLaunch& launch);
void moe_buckets(const FastLaunch& launch);
void moe_combine(const FastLaunch& launch);
void route(const FastLaunch& launch);
void route_grouped(const FastLaunch& launch);
void bucket_accumulate(const FastLaunch& launch);

void hadamard(const FastLaunch& launch);
void turbo_encode(const FastLaunch& launch);
void turbo_decode(const FastLaunch& launch);
void turbo_attention(const FastLaunch& launch);
void turbo_merge(const FastLaunch& launch);
void turbo_partials(const FastLaunch& launch);
void turbo_prefill(const FastLaunch& launch);
void turbo_scores(const FastLaunch& launch);
void turbo_values(const FastLaunch& launch);

}  // namespace pyturbo::cpu::PYTURBO_ISA
