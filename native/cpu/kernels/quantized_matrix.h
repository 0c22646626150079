// A quantised matrix: in the MLX layout (shaders/affine/affine.h, shaders/fp/fp.h), or rows of GGUF blocks.
#pragma once

#include "cpu/kernels/gguf_reader.h"
#include "cpu/kernels/unpack.h"

namespace pyturbo::cpu::PYTURBO_LEVEL {

// How codes and scales are stored.
struct Format {
  uint32_t bits;                   // of a code
  DType type;                      // of scales and biases; u8 for small floats
  uint32_t group;                  // values of a group of small floats; 0: codes are integers
  const Reader* reader = nullptr;  // of blocks, which hold codes, scales and biases
};

struct Matrix {
  const Reader* reader;   // null: packed, scales and biases are arrays
  const uint8_t* packed;  // [out, row_bytes]
  const void* scales;     // [out, groups]
  const void* biases;     // like scales; small floats have none
  DType type;             // of scales and biases; those of small floats follow from the group size
  float factor;           // of the scales of small floats
  uint32_t out;
  uint32_t in;
  uint32_t group_shift;  // log2 of the values of a group
  uint32_t groups;       // of a row
  uint64_t row_bytes;

  Matrix(const void* packed, const void* scales, const void* biases, Format format, float factor,
         uint32_t out, uint32_t in, uint32_t group_size)
      : reader(format.reader),
        packed(static_cast<const uint8_t*>(packed)),
        scales(scales),
        biases(biases),
        type(format.type),
        factor(factor),
        out(out),
        in(in),
        group_shift(uint32_t(__builtin_ctz(group_size))),
        groups(in / group_size),
        row_bytes(reader ? uint64_t(in) / reader->block * reader->block_bytes
                         : uint64_t(in) / 32 * format.bits * 4) {}

  const uint8_t* row(uint32_t r) const { return packed + r * row_bytes; }
};

// The bytes of the block that starts `offset` bytes into a row. The block's values past the row are
// undefined; they are multiplied by zeros.
template <typename Q>
PYTURBO_INLINE void unpack_block(const Matrix& w, uint32_t row, uint64_t offset, U8* codes) {
  const uint8_t* from = w.row(row) + offset;
  if (uint64_t(w.out - row) * w.row_bytes - offset >= Order<Q::kBits>::kBlockBytes)
    unpack<Q>(from, codes);
  else
    unpack_part<Q>(from, uint32_t(w.row_bytes - offset), codes);
}

// The block itself, where it has kBytes bytes.
PYTURBO_INLINE U8 packed_block(const Matrix& w, uint32_t row, uint64_t offset) {
  const uint8_t* from = w.row(row) + offset;
  if (uint64_t(w.out - row) * w.row_bytes - offset >= kBytes) return load_vector<U8>(from);
  uint8_t copy[kBytes] = {};
  std::memcpy(copy, from, w.row_bytes - offset);
  return load_vector<U8>(copy);
}

// Scales and biases of kLanes groups; those past the last one asked for are zeros.
struct GroupVector {
  F32 scales;
  F32 biases;
};

template <typename S>
constexpr bool kHasBiases = sizeof(S) > 1;

// `count` groups of a row and of the rows after it, from `group` on. With an offset o, codes stand for code +
// o: bias + o * scale is the bias then.
template <typename S>
PYTURBO_INLINE GroupVector load_groups_as(const Matrix& w, uint32_t row, uint32_t group, uint32_t count,
                                          float offset) {
  const uint64_t place = uint64_t(row) * w.groups + group;
  const auto load = [&](const void* from) {
    const S* groups = static_cast<const S*>(from) + place;
    return count >= kLanes ? load_floats(groups)
                           : load_floats(groups, count, uint64_t(w.out) * w.groups - place);
  };
  GroupVector v = {load(w.scales), F32{}};
  if constexpr (kHasBiases<S>)
    v.biases = load(w.biases);
  else
    v.scales *= w.factor;
  if (offset != 0) v.biases = fused(v.scales, splat(offset), v.biases);
  return v;
}

// fn(S{}), where S is the type that scales of w are stored in.
template <typename Fn>
PYTURBO_INLINE auto by_scale_type(const Matrix& w, const Fn& fn) {
  if (!w.biases) return w.group_shift == 4 ? fn(E4M3{}) : fn(E8M0{});
  if (w.type == DType::f32) return fn(float{});
  return w.type == DType::f16 ? fn(Half{}) : fn(BFloat{});
}

// The groups of a row from `group` on. One function for all kinds of codes: it is long.
[[gnu::noinline]] static inline GroupVector load_groups(const Matrix& w, uint32_t row, uint32_t group) {
  return by_scale_type(
      w, [&](auto type) { return load_groups_as<decltype(type)>(w, row, group, w.groups - group, 0); });
}

constexpr uint32_t kUnit = 32;  // values that are whole bytes in every format

// Consecutive values of a row, as many as a format has in a unit: number * scale + bias of the group.
struct Values {
  static constexpr uint32_t kMost = 256;
  static constexpr uint32_t kGroups = kMost / 16;
  float numbers[kMost];
  float scales[kGroups + kLanes], biases[kGroups + kLanes];
};

// The kUnit values of a row from column `begin` on; their scales and biases only, without `all`.
template <typename Q>
static void read_unit(const Matrix& w, uint32_t row, uint32_t begin, bool all, Values& values) {
  constexpr uint32_t kOctet = 8;  // values that are kBits bytes
  const uint8_t* from = w.row(row) + uint64_t(begin) / 8 * Q::kBits;
  const GroupVector groups = load_groups(w, row, begin >> w.group_shift);
  store_floats(values.scales, groups.scales);
  store_floats(values.biases, groups.biases);
  for (uint32_t octet = 0; octet < kUnit / kOctet && all; ++octet) {
    uint64_t word = 0;
    std::memcpy(&word, from + octet * Q::kBits, Q::kBits);
    for (uint32_t i = 0; i < kOctet; ++i)
      values.numbers[octet * kOctet + i] =
          number<Q>(uint32_t(word >> (i * Q::kBits)) & ((1u << Q::kBits) - 1));
  }
}

// The factor of codes of small floats beside their scale: E2M1 codes are doubled.
PYTURBO_INLINE float code_unit(const Format& format) { return format.bits == 4 ? 0.5f : 1.0f; }

// A list of kinds of codes.
template <typename... Q>
struct CodeKinds {
  static constexpr bool have(uint32_t bits, bool floats) {
    return ((Q::kBits == bits && Q::kFloats == floats) || ...);
  }
  // fn(Q{}) for the kind in the list; fn returns a pointer.
  template <typename Fn>
  static auto call(uint32_t bits, bool floats, const Fn& fn) {
    decltype(fn(Integers<8>{})) found = nullptr;
    ((Q::kBits == bits && Q::kFloats == floats ? void(found = fn(Q{})) : void()), ...);
    return found;
  }
};

// All kinds. stack_at requires that each instance of a kernel has one of them.
using AllCodes = CodeKinds<Integers<2>, Integers<3>, Integers<4>, Integers<5>, Integers<6>, Integers<8>,
                           E2m1Codes, E4m3Codes>;

// fn(Q{}), a pointer, for the codes of a format.
template <typename Fn>
PYTURBO_INLINE auto by_codes(const Format& format, const Fn& fn) {
  return AllCodes::call(format.bits, format.group > 0, fn);
}

// The values of a block of GGUF, in the same way.
static inline void read_block(const Matrix& w, uint32_t row, uint32_t begin, bool all, Values& values) {
  const Reader& reader = *w.reader;
  uint8_t codes[Values::kMost + kBytes];
  reader.read(w.row(row) + uint64_t(begin / reader.block) * reader.block_bytes, 1, all ? codes : nullptr,
              values.scales, values.biases);
  const int32_t zero = reader.zero < 0 ? 0 : reader.zero;
  for (uint32_t i = 0; i < reader.block && all; i += 16) {
    I32 words[16 / kLanes];
    widen_all(load_vector<U8x16>(codes + i), words);
    for (uint32_t v = 0; v < 16 / kLanes; ++v)
      store_floats(values.numbers + i + v * kLanes, to_float(words[v] - zero));
  }
  for (uint32_t g = 0; g < reader.block / reader.group && reader.zero >= 0; ++g)
    values.biases[g] = -0.0f;  // which changes no value, not even a negative zero
}

// How the values of a format are read, `count` at a time.
struct ReadValues {
  void (*read)(const Matrix& w, uint32_t row, uint32_t begin, bool all, Values& values);
  uint32_t count;

  // Converts `count` values of a row from column `begin` on to floats.
  void dequantize(const Matrix& w, uint32_t row, uint32_t begin, float* to) const {
    Values v;
    read(w, row, begin, /*all=*/true, v);
    for (uint32_t i = 0; i < count; i += kLanes) {
      const uint32_t g = i >> w.group_shift;
      store_floats(to + i, fused(load_floats(v.numbers + i), splat(v.scales[g]), splat(v.biases[g])));
    }
  }
};

template <typename Q>
constexpr ReadValues kReadValues = {read_unit<Q>, kUnit};

PYTURBO_INLINE ReadValues values_of(const Format& format) {
  if (format.reader) return {read_block, format.reader->block};
  return *by_codes(format, [](auto codes) { return &kReadValues<decltype(codes)>; });
}

}  // namespace pyturbo::cpu::PYTURBO_LEVEL
