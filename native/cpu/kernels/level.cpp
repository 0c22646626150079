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
    PYTURBO_KERNEL(experts_matvec),
};
extern const uint32_t kKernelCount = sizeof kKernels / sizeof *kKernels;

}  // namespace pyturbo::cpu::PYTURBO_ISA
