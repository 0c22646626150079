// The matrix units of Hopper: the four warps of a warpgroup multiply 64 rows, which they hold in registers, by 16 to 64
// columns in shared memory, 16 values at a time, while they go on. A warp has 16 of the rows; its lanes hold operands
// and sums as in matrix_units.h, sums of one block of 8 columns after the other.
#pragma once

// Columns of 64 bf16 in shared memory, one after the other from a multiple of 1024 bytes on, whose parts of eight
// values change places as in SharedRows.
struct SharedColumns {
  ulong descriptor;

  static SharedColumns at(uint address) {
    return {ulong((address & 0x3ffffu) >> 4) | 1ul << 16 | 64ul << 32 | 1ul << 62};
  }
  // The same columns some steps of 16 values further on, or others so many bytes further on.
  SharedColumns step(uint steps) const { return {descriptor + steps * 2}; }
  SharedColumns further(uint bytes) const { return {descriptor + bytes / 16}; }
};

// Registers were written that the units will read.
inline void begin_products() { asm volatile("wgmma.fence.sync.aligned;" ::: "memory"); }

// Ends a group of products.
inline void products_asked() { asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory"); }

// Waits for all groups of products but the last `count`.
template <uint count>
inline void wait_for_products() {
  asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(count) : "memory");
}

// What threads wrote to shared memory before a barrier is for the units after it.
inline void publish_columns() { asm volatile("fence.proxy.async.shared::cta;" ::: "memory"); }

// Old sums that are not added to are not read: they are outputs alone. PT_ASK takes the operands a and b, and `added`.
#define PT_SUMS_8(access, c, i)                                                                             \
  access "f"(c[i]), access "f"(c[i + 1]), access "f"(c[i + 2]), access "f"(c[i + 3]), access "f"(c[i + 4]), \
      access "f"(c[i + 5]), access "f"(c[i + 6]), access "f"(c[i + 7])
#define PT_SUMS_16(access, c, i) PT_SUMS_8(access, c, i), PT_SUMS_8(access, c, i + 8)
#define PT_SUMS_32(access, c, i) PT_SUMS_16(access, c, i), PT_SUMS_16(access, c, i + 16)
#define PT_ASK(columns, sums, rows, matrix, keep, ...)                                                 \
  asm volatile("{ .reg .pred p; setp.ne.b32 p, " keep ", 0; wgmma.mma_async.sync.aligned.m64n" columns \
               "k16.f32.bf16.bf16 {" sums "}, {" rows "}, " matrix ", p, 1, 1, 0; }"                   \
               : __VA_ARGS__                                                                           \
               : "r"(a.x), "r"(a.y), "r"(a.z), "r"(a.w), "l"(b.descriptor), "n"(added))
#define PT_ASK_PRODUCTS(count, ...)                                      \
  template <bool added>                                                  \
  inline void ask_products(float(&c)[count], uint4 a, SharedColumns b) { \
    if constexpr (added)                                                 \
      PT_ASK(__VA_ARGS__, PT_SUMS_##count("+", c, 0));                   \
    else                                                                 \
      PT_ASK(__VA_ARGS__, PT_SUMS_##count("=", c, 0));                   \
  }

// Asks for c += a * b, or c = a * b.
PT_ASK_PRODUCTS(8, "16", "%0,%1,%2,%3,%4,%5,%6,%7", "%8,%9,%10,%11", "%12", "%13")
PT_ASK_PRODUCTS(
    16,
    "32",
    "%0,%1,%2,%3,%4,%5,%6,%7,%8,%9,%10,%11,%12,%13,%14,%15",
    "%16,%17,%18,%19",
    "%20",
    "%21")
PT_ASK_PRODUCTS(
    32,
    "64",
    "%0,%1,%2,%3,%4,%5,%6,%7,%8,%9,%10,%11,%12,%13,%14,%15,"
    "%16,%17,%18,%19,%20,%21,%22,%23,%24,%25,%26,%27,%28,%29,%30,%31",
    "%32,%33,%34,%35",
    "%36",
    "%37")
#undef PT_ASK_PRODUCTS
#undef PT_ASK
#undef PT_SUMS_32
#undef PT_SUMS_16
#undef PT_SUMS_8

// Shared memory by address.
inline float2 shared_float2(uint address) {
  float2 v;
  asm volatile("ld.shared.v2.f32 {%0,%1}, [%2];" : "=f"(v.x), "=f"(v.y) : "r"(address));
  return v;
}
inline uint2 shared_words(uint address) {
  uint2 v;
  asm volatile("ld.shared.v2.u32 {%0,%1}, [%2];" : "=r"(v.x), "=r"(v.y) : "r"(address));
  return v;
}
inline uint shared_word(uint address) {
  uint v;
  asm volatile("ld.shared.u32 %0, [%1];" : "=r"(v) : "r"(address));
  return v;
}
inline void store_shared(uint address, uint v) {
  asm volatile("st.shared.u32 [%0], %1;" ::"r"(address), "r"(v) : "memory");
}
inline void store_shared(uint address, float2 v) {
  asm volatile("st.shared.v2.f32 [%0], {%1,%2};" ::"r"(address), "f"(v.x), "f"(v.y) : "memory");
}

// Barriers in shared memory, which a number of arrivals completes, by turns of parity 0 and 1.
inline void init_barrier(uint barrier, uint arrivals) {
  asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(barrier), "r"(arrivals) : "memory");
}
inline void arrive(uint barrier) {
  asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(barrier) : "memory");
}
// Arrives when the copies that this thread has asked for are there.
inline void arrive_with_copies(uint barrier) {
  asm volatile("cp.async.mbarrier.arrive.noinc.shared::cta.b64 [%0];" ::"r"(barrier) : "memory");
}
inline void wait_for_turn(uint barrier, uint parity) {
  asm volatile(
      "{ .reg .pred p; again: mbarrier.try_wait.parity.shared::cta.b64 p, [%0], %1; @!p bra again; }" ::"r"(
          barrier),
      "r"(parity)
      : "memory");
}

// Changes how many registers the threads of a warpgroup have.
template <uint count>
inline void give_registers() {
  asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(count));
}
template <uint count>
inline void take_registers() {
  asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(count));
}
