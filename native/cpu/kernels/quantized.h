// Products with quantised matrices, as the kernels see them.
#pragma once

#include "cpu/batch.h"
#include "cpu/kernels/gguf_types.h"
#include "cpu/kernels/quantized_matrix.h"

namespace pyturbo::cpu::PYTURBO_LEVEL {

// Matrices of one format and shape at equal distances.
struct Stack {
  const uint8_t *packed, *scales, *biases;               // of the first; small floats have no biases
  const float* global_scale;                             // of the first, or null
  uint64_t packed_stride, scales_stride, biases_stride;  // bytes
  uint64_t global_stride;                                // floats
  Format format;
  uint32_t out, in, group_size, scale_bytes;

  Matrix at(uint64_t number = 0) const;
};

// The families of kernels: what the arguments of one describe. Bodies name theirs.
struct Affine {
  static constexpr bool kSmallFloats = false;
  static uint32_t group_size(const auto& a) { return a.group_size; }
};
struct SmallFloats {
  static constexpr bool kSmallFloats = true;
  static uint32_t group_size(const auto& a) { return a.group; }
};
struct Blocks {};

template <typename F>
constexpr bool kIsBlocks = false;
template <>
constexpr bool kIsBlocks<Blocks> = true;

// Whether there are codes and scales for every instance of the kernel with the arguments A.
template <typename F, typename A>
constexpr bool all_known() {
  if constexpr (kIsBlocks<F>) {
    for (const uint32_t type : A::pt_type)
      if (!GgufTypes::have(type)) return false;
  } else {
    for (const uint32_t bits : A::pt_bits)
      if (!AllCodes::have(bits, F::kSmallFloats)) return false;
    if constexpr (F::kSmallFloats)
      for (const uint32_t group : A::pt_group)
        if (group != 16 && group != 32) return false;  // E4M3 and E8M0 scales
  }
  return true;
}

// A matrix [out, in] of GGUF blocks at the given place, of the type of the arguments.
template <typename A>
PYTURBO_INLINE Stack blocks_at(const A& a, const uint8_t* blocks, uint32_t out, uint32_t in) {
  static_assert(all_known<Blocks, A>(), "a kernel has an instance of a type that no body knows");
  Stack stack = {};
  stack.packed = blocks;
  stack.format = {8, DType::f32, 0, gguf_reader(a.type)};
  stack.out = out;
  stack.in = in;
  stack.group_size = stack.format.reader->group;
  return stack;
}

// A matrix [out, in] at the given places, in the format of the arguments of a kernel of family F.
template <typename F, typename A, typename S>
PYTURBO_INLINE Stack stack_at(const A& a, const uint32_t* packed, const S* scales, const S* biases,
                              uint32_t out, uint32_t in) {
  static_assert(all_known<F, A>(), "a kernel has an instance whose codes or scales no body knows");
  Stack stack = {};
  stack.packed = reinterpret_cast<const uint8_t*>(packed);
  stack.scales = reinterpret_cast<const uint8_t*>(scales);
  stack.biases = reinterpret_cast<const uint8_t*>(biases);
  stack.format = {a.bits, dtype_of<S>, F::kSmallFloats ? F::group_size(a) : 0};
  stack.out = out;
  stack.in = in;
  stack.group_size = F::group_size(a);
  stack.scale_bytes = sizeof(S);
  return stack;
}

// The matrix [out, in] of a kernel that has one, without a global scale.
template <typename F, typename A>
PYTURBO_INLINE Stack stack_of(const A& a, uint32_t out, uint32_t in) {
  if constexpr (kIsBlocks<F>)
    return blocks_at(a, a.blocks, out, in);
  else if constexpr (F::kSmallFloats)
    return stack_at<F>(a, a.packed, a.scales, static_cast<const uint8_t*>(nullptr), out, in);
  else
    return stack_at<F>(a, a.packed, a.scales, a.biases, out, in);
}

// y[t] = w x[t], or with two matrices silu(w x[t]) * (up x[t]), for `tokens` rows of the launch's activations
// from row `x` on. y is [tokens, out]; without tokens nothing is written.
struct Product {
  Matrix w;
  Matrix up;
  bool gated;  // there is an `up`
  bool known;  // else y is NaN
  uint64_t x;
  uint32_t tokens;
  float* y;
};

// The products of one launch: all of one format and shape.
class Products {
 public:
  const Format format;
  const uint64_t count;
  const uint32_t out;

  // fn(i) is product i; a copy of fn stays in the batch's memory.
  template <typename Fn>
  Products(Batch& batch, const Format& format, uint64_t count, uint32_t out, const Fn& fn)
      : format(format), count(count), out(out), fn_(batch.memory(sizeof(Fn))) {
    static_assert(std::is_trivially_copyable_v<Fn>);
    std::memcpy(fn_, &fn, sizeof(Fn));
    call_ = [](const void* own, uint64_t i) { return (*static_cast<const Fn*>(own))(i); };
  }

  Product at(uint64_t i) const { return call_(fn_, i); }

 private:
  void* fn_;
  Product (*call_)(const void* fn, uint64_t i);
};

// Activations [rows, in], quantised for weights of a format, in memory of the batch: for run_rows, and for
// tiles of integers. They stay floats for codes that are multiplied with floats.
Activations row_activations(Batch& batch, const Format& format, const float* x, uint64_t rows, uint32_t in,
                            uint32_t group_size);
Activations tile_integers(Batch& batch, const Format& format, const float* x, uint64_t rows, uint32_t in,
                          uint32_t group_size);

// Runs products with few tokens each (rows), or with many (tiles). x of the latter is [rows, in].
void run_rows(Batch& batch, const Products& products, const Activations& x);
void run_tiles(Batch& batch, const Products& products, const float* x, uint64_t rows);

}  // namespace pyturbo::cpu::PYTURBO_LEVEL
