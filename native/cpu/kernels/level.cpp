// The table of one level.
#include "cpu/kernels/families.h"

namespace pyturbo::cpu::PYTURBO_ISA {

#define PYTURBO_KERNEL(function) {#function, function}

extern const FastKernel kKernels[] = {
    PYTURBO_KERNEL(affine_matvec),
    PYTURBO_KERNEL(affine_matmul),
    PYTURBO_KERNEL(affine_swiglu),
    PYTURBO_KERNEL(affine_swiglu_matmul),
    PYTURBO_KERNEL(affine_experts_matvec),
    PYTURBO_KERNEL(affine_experts_swiglu),
    PYTURBO_KERNEL(affine_grouped_matmul),
    PYTURBO_KERNEL(affine_embed),
    PYTURBO_KERNEL(matmul),
    PYTURBO_KERNEL(read_words),
    PYTURBO_KERNEL(experts_matvec),
    PYTURBO_KERNEL(rms_norm),
    PYTURBO_KERNEL(head_rms_norm),
    PYTURBO_KERNEL(gated_rms_norm),
    PYTURBO_KERNEL(qk_norm),
    PYTURBO_KERNEL(add),
    PYTURBO_KERNEL(add_bias),
    PYTURBO_KERNEL(swiglu),
    PYTURBO_KERNEL(sigmoid_gate),
    PYTURBO_KERNEL(split_q_gate),
    PYTURBO_KERNEL(rope),
    PYTURBO_KERNEL(attention),
    PYTURBO_KERNEL(attention_partials),
    PYTURBO_KERNEL(attention_merge),
    PYTURBO_KERNEL(kv_append),
    PYTURBO_KERNEL(mla_append),
    PYTURBO_KERNEL(mla_attention),
    PYTURBO_KERNEL(mla_dense_project),
    PYTURBO_KERNEL(mla_dense_project_transposed),
    PYTURBO_KERNEL(mla_partials),
    PYTURBO_KERNEL(mla_project),
    PYTURBO_KERNEL(mla_project_transposed),
    PYTURBO_KERNEL(mla_split),
    PYTURBO_KERNEL(conv1d),
    PYTURBO_KERNEL(decay_beta),
    PYTURBO_KERNEL(delta_net),
    PYTURBO_KERNEL(gather_rows),
    PYTURBO_KERNEL(moe_buckets),
    PYTURBO_KERNEL(moe_combine),
    PYTURBO_KERNEL(route),
    PYTURBO_KERNEL(route_grouped),
    PYTURBO_KERNEL(bucket_accumulate),
    PYTURBO_KERNEL(hadamard),
    PYTURBO_KERNEL(turbo_encode),
    PYTURBO_KERNEL(turbo_decode),
    PYTURBO_KERNEL(turbo_attention),
    PYTURBO_KERNEL(turbo_merge),
    PYTURBO_KERNEL(turbo_partials),
    PYTURBO_KERNEL(turbo_prefill),
    PYTURBO_KERNEL(turbo_scores),
    PYTURBO_KERNEL(turbo_values),
};
extern const uint32_t kKernelCount = sizeof kKernels / sizeof *kKernels;

}  // namespace pyturbo::cpu::PYTURBO_ISA
