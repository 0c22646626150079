// Rows of 16-bit floats in shared memory as operands of the matrix units, and copies from device memory to them that go on
// while a thread works.
#pragma once

// What a threadgroup may have of shared memory; of newer GPUs it is not known.
#if defined(PT_PORTABLE)
constexpr uint kMostSharedBytes = 99 * 1024;
#elif __CUDA_ARCH__ == 900 || __CUDA_ARCH__ == 1000 || __CUDA_ARCH__ == 1030 || __CUDA_ARCH__ == 1100
constexpr uint kMostSharedBytes = 227 * 1024;
#elif __CUDA_ARCH__ == 800 || __CUDA_ARCH__ == 870
constexpr uint kMostSharedBytes = 163 * 1024;
#else
constexpr uint kMostSharedBytes = 99 * 1024;
#endif

inline void* dynamic_memory() { return ::pyturbo::invoke::shared_memory; }

inline uint shared_address(const void* place) { return uint(::__cvta_generic_to_shared(place)); }

// Copies 16 bytes, of which the last 16 - size become zero.
inline void copy_16_bytes(uint to, const void* from, uint size) {
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(to), "l"(from), "r"(size) : "memory");
}
inline void copy_16_bytes(void* to, const void* from, uint size) {
  copy_16_bytes(shared_address(to), from, size);
}

// Copies 4 bytes, or sets them to zero if size is 0.
inline void copy_4_bytes(void* to, const void* from, uint size = 4) {
  asm volatile("cp.async.ca.shared.global [%0], [%1], 4, %2;" ::"r"(shared_address(to)), "l"(from), "r"(size)
               : "memory");
}

// Ends a group of copies, which may be empty.
inline void copies_asked() { asm volatile("cp.async.commit_group;" ::: "memory"); }

// Waits for this thread's copies of all groups but the last `count`.
template <uint count>
inline void wait_for_copies_but() {
  asm volatile("cp.async.wait_group %0;" ::"n"(count) : "memory");
}
inline void wait_for_copies_but_one() { wait_for_copies_but<1>(); }

// Waits for all of this thread's copies.
inline void wait_for_copies() { asm volatile("cp.async.wait_all;" ::: "memory"); }

// Waits for the threads of one of several teams.
inline void team_barrier(uint team, uint threads) {
  asm volatile("bar.sync %0, %1;" ::"r"(team + 1), "r"(threads) : "memory");
}

inline float exp2_fast(float x) {
  float result;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(result) : "f"(x));
  return result;
}

// Rows of `columns` values, 64 or more, from a multiple of 128 bytes on. Parts of eight values change places within 64, so
// that the same part of eight rows is in different banks.
template <uint columns>
struct SharedRows {
  static constexpr uint kRowBytes = columns * 2;

  static uint place(uint row, uint part) { return row * columns + (part ^ row % 8) * 8; }

  // The address of parts further on, an even number.
  static uint further(uint address, uint parts) { return (address ^ parts % 8 * 16) + parts / 8 * 128; }

  // What a lane reads of 16 rows from row `first` on: of a left operand, values 0 to 15, or of two right operands that have
  // eight columns each, the values of a column in the 16 rows; then of two right operands of eight rows each.
  template <typename T>
  static uint of_16(const T* rows, uint first, uint lane) {
    return shared_address(rows + place(first + lane % 16, lane / 16));
  }
  template <typename T>
  static uint of_two_8(const T* rows, uint first, uint lane) {
    return shared_address(rows + place(first + lane / 16 * 8 + lane % 8, lane / 8 % 2));
  }
};

// Four matrices of 8 x 8, one register each: rows at the addresses of eight lanes each, or turned.
inline uint4 load_matrices(uint address) {
  uint4 m;
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];"
               : "=r"(m.x), "=r"(m.y), "=r"(m.z), "=r"(m.w)
               : "r"(address));
  return m;
}
inline uint4 load_turned(uint address) {
  uint4 m;
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0,%1,%2,%3}, [%4];"
               : "=r"(m.x), "=r"(m.y), "=r"(m.z), "=r"(m.w)
               : "r"(address));
  return m;
}
