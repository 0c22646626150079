// multiply_wide_tile for NVIDIA's matrix units: where a grid has more threadgroups than a GPU has multiprocessors, every
// second one computes the outs of the next, too, and that one nothing. A warp then has 32 outs of 64 tokens, so that each
// operand that it reads is used for four products.
#undef PT_RESIDENT
#define PT_RESIDENT 1
#undef PT_FORM

// At least as many as the GPU has.
inline uint multiprocessors() {
  uint count;
  asm("mov.u32 %0, %%nsmid;" : "=r"(count));
  return count;
}

template <uint count, typename W>
inline void multiply_wide_tile(
    const W* w,
    const float* x,
    uint rows,
    uint in,
    uint units,
    uint first,
    uint out,
    float factor,
    float* y,
    uint tid,
    float* memory) {
  if (rows <= 32 || ::gridDim.x * ::gridDim.y <= multiprocessors())
    multiply_by_blocks<count>(w, x, rows, in, units, first, out, factor, y, tid, memory);
  else if (::blockIdx.x % 2 == 0)
    multiply_blocks<count, 4, 2 * kSimdgroupOuts>(w, x, rows, in, units, first, out, factor, y, tid, memory);
}
