// multiply_wide_tile for NVIDIA's matrix units: where a grid has more threadgroups than a GPU has multiprocessors,
// every second one computes the outs of the next, too, and that one nothing. Each operand that is read is then used for
// more products.
#undef PT_RESIDENT
#define PT_RESIDENT 1

// At least as many as the GPU has.
inline uint multiprocessors() {
  uint count;
  asm("mov.u32 %0, %%nsmid;" : "=r"(count));
  return count;
}

inline bool fills_gpu(uint rows) { return rows > 32 && ::gridDim.x * ::gridDim.y > multiprocessors(); }

#if defined(__CUDA_ARCH_FEAT_SM90_ALL)

#include "warpgroup_wide.h"

template <uint count, typename W>
inline void multiply_wide_tile(
    const W* w,
    const float* x,
    uint rows,
    uint in,
    uint units,
    uint first,
    uint out,
    float2 factors,
    float* y,
    uint tid,
    float*) {
  const TileCall<W> call = {w, x, rows, in, units, first, out, factors, y, tid};
  const bool copies = can_copy<count>(w), wide = kHasTwoTiles<W> && fills_gpu(rows);
  const auto with_own = [&](auto use) {
    if (copies && !wide) with_product<count, 1>(call, use);
    if constexpr (kHasTwoTiles<W>) {
      if (copies && wide && ::blockIdx.x % 2 == 0) with_product<count, 2>(call, use);
    }
  };
  with_own([](const auto& product) { product.begin(); });
  if (tid >= kMultipliers) {
    give_registers<256 - kMultiplierRegisters<W>>();
    with_own([](const auto& product) { product.bring(); });
  } else {
    take_registers<kMultiplierRegisters<W>>();
    if constexpr (is_copied<W>()) {
      if (!copies) multiply_by_warpgroups<count>(call);
    }
    with_own([&](const auto& product) { multiply_and_store(product, factors, y); });
  }
}

#else

template <uint count, typename W>
inline void multiply_wide_tile(
    const W* w,
    const float* x,
    uint rows,
    uint in,
    uint units,
    uint first,
    uint out,
    float2 factors,
    float* y,
    uint tid,
    float* memory) {
  if (!fills_gpu(rows))
    multiply_tile<count>(w, x, rows, in, units, first, out, factors, y, tid, memory);
  else if (::blockIdx.x % 2 == 0)
    multiply_blocks<count, 4, 2 * kSimdgroupOuts>(
        TileCall<W>{w, x, rows, in, units, first, out, factors, y, tid}, memory);
}

#endif
