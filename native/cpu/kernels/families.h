// The kernels of this folder, by the shader function they stand for.
#pragma once

#include "cpu/kernels/kernel.h"

namespace pyturbo::cpu::PYTURBO_ISA {

void affine_matvec(const FastLaunch& launch);
void affine_matmul(const FastLaunch& launch);
void affine_swiglu(const FastLaunch& launch);
void affine_swiglu_matmul(const FastLaunch& launch);
void affine_experts_matvec(const FastLaunch& launch);
void affine_experts_swiglu(const FastLaunch& launch);
void affine_grouped_matmul(const FastLaunch& launch);
void affine_embed(const FastLaunch& launch);

void matmul(const FastLaunch& launch);
void experts_matvec(const FastLaunch& launch);

}  // namespace pyturbo::cpu::PYTURBO_ISA
