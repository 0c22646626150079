// The MLX "affine" format: value = q * scale + bias, with one scale and bias per group of 32, 64 or 128.
// A unit is inside one group.
#pragma once

#include "../common/small_codes.h"
#include "../common/units.h"

// Whether codes are inside of bytes, so that code_at reads them.
template <uint bits>
constexpr bool in_bytes() {
  return bits == 2 || bits == 4 || bits == 8;
}

// A quantised matrix of `units` units in a row. Every row starts on a unit and on a group.
template <uint bits, typename S>
struct Affine {
  enum : uint {
    kSpan = bits % 2 > 0 ? 32 : 16,
    kTotals = 1,
    kAhead = 0,
    kSmall = kSmallProducts && in_bytes<bits>()
  };
  enum : uint { kBits = bits, kHasBias = 1, kSharesScale = 1, kPairOffset = bits < 8 ? 128 : 0 };
  struct Span {
    uint words[kSpan * bits / 32];
    S scale;
    S bias;
  };
  struct Octet {
    uint2 words;
    S scale;
    S bias;
  };

  device const uint* packed;  // [rows, units * bits]
  device const S* scales;     // [rows, units >> group_shift]
  device const S* biases;     // [rows, units >> group_shift]
  uint units;
  uint group_shift;  // log2 of the units of a group
};

template <uint bits, typename S>
inline Affine<bits, S> affine_matrix(
    device const uint* packed,
    device const S* scales,
    device const S* biases,
    uint in,
    uint group_size) {
  return Affine<bits, S>{packed, scales, biases, in / kUnit, ctz(group_size / kUnit)};
}

template <uint bits, typename S>
inline void fetch_codes(
    thread const Affine<bits, S>& w,
    uint row,
    uint unit,
    uint index,
    thread typename Affine<bits, S>::Octet& to) {
  to.words = octet_words<bits>(w.packed + (ulong(row) * w.units + unit) * bits, index);
}

template <uint bits, typename S>
inline void fetch_scale(
    thread const Affine<bits, S>& w,
    uint row,
    uint unit,
    uint /*index*/,
    thread typename Affine<bits, S>::Octet& to) {
  const ulong group = ulong(row) * (w.units >> w.group_shift) + (unit >> w.group_shift);
  to.scale = w.scales[group];
  to.bias = w.biases[group];
}

template <uint bits, typename S>
inline void decode_octet(
    thread const Affine<bits, S>&,
    thread const typename Affine<bits, S>::Octet& octet,
    uint index,
    thread float* codes) {
  const ulong packed = octet_bits<bits>(octet.words, index);
#pragma unroll
  for (uint i = 0; i < kOctet; ++i) codes[i] = small_float(code_of<bits>(packed, i));
}

// The bits of a small code are the mantissa of a bf16 from 128 on, whose steps are 1.
template <uint bits, typename S>
inline uint code_pair(
    thread const Affine<bits, S>&,
    thread const typename Affine<bits, S>::Octet& octet,
    uint index,
    uint i) {
  const ulong packed = octet_bits<bits>(octet.words, index);
  const uint pair =
      bits == 4 ? uint(packed) >> (i * 4) : code_of<bits>(packed, i) | code_of<bits>(packed, i + 4) << 16;
  return (pair & ((1u << bits) - 1) * 0x00010001u) | 0x43004300u;
}

template <uint bits, typename S>
inline Affine<bits, S> from_row(thread const Affine<bits, S>& w, uint row) {
  const ulong group = ulong(row) * (w.units >> w.group_shift);
  return Affine<bits, S>{
      w.packed + ulong(row) * w.units * bits, w.scales + group, w.biases + group, w.units, w.group_shift};
}

template <uint bits, typename S>
inline float2 scale_of(thread const Affine<bits, S>&, thread const typename Affine<bits, S>::Octet& octet) {
  return float2(float(octet.scale), float(octet.bias));
}

template <uint bits, typename S>
inline bool ends_group(thread const Affine<bits, S>& w, uint unit) {
  return unit >> w.group_shift != (unit + 1) >> w.group_shift;
}

template <uint bits, typename S>
inline void fetch_span(
    thread const Affine<bits, S>& w,
    uint row,
    uint span,
    thread typename Affine<bits, S>::Span& to) {
  constexpr uint kWords = Affine<bits, S>::kSpan * bits / 32;
  load_words<kWords>(w.packed + (row * w.units * bits + span * kWords), to.words);
  const uint unit = span * Affine<bits, S>::kSpan / kUnit;
  const uint group = row * (w.units >> w.group_shift) + (unit >> w.group_shift);
  to.scale = w.scales[group];
  to.bias = w.biases[group];
}

template <uint bits, typename S>
inline uint column_of(thread const Affine<bits, S>&, uint span, uint i) {
  return span * Affine<bits, S>::kSpan + i;
}

template <uint bits, typename S>
inline float place_of(thread const Affine<bits, S>&, uint i) {
  return in_bytes<bits>() ? code_place(i * bits % 32) : 1.0f;
}

// scale * dot(q, x) + bias * sum(x).
template <uint bits, typename S>
inline float dot_span(
    thread const Affine<bits, S>&,
    thread const typename Affine<bits, S>::Span& span,
    thread const float* x,
    thread const float* totals) {
  float dot = 0;
  if (in_bytes<bits>()) {
#pragma unroll
    for (uint i = 0; i < Affine<bits, S>::kSpan; ++i)
      dot = fma(code_at<bits>(span.words[i * bits / 32], i * bits % 32), x[i], dot);
    dot *= kCodeUnit;
  } else {
#pragma unroll
    for (uint index = 0; index < Affine<bits, S>::kSpan / kOctet; ++index) {
      const ulong packed = octet_bits<bits>(octet_words<bits>(span.words, index), index);
#pragma unroll
      for (uint i = 0; i < kOctet; ++i)
        dot = fma(float(code_of<bits>(packed, i)), x[index * kOctet + i], dot);
    }
  }
  return fma(float(span.scale), dot, float(span.bias) * totals[0]);
}

// One instance of a kernel per width and scale type: <op>_b<bits>_<f32|f16|bf16>.
#define INSTANTIATE_AFFINE_AS(op, bits, type, name) \
  template [[host_name(#op "_b" #bits "_" #name)]] kernel decltype(op<bits, type>) op<bits, type>;
#define INSTANTIATE_AFFINE_BITS(op, bits)     \
  INSTANTIATE_AFFINE_AS(op, bits, float, f32) \
  INSTANTIATE_AFFINE_AS(op, bits, half, f16)  \
  INSTANTIATE_AFFINE_AS(op, bits, bfloat, bf16)
#define INSTANTIATE_AFFINE(op)   \
  INSTANTIATE_AFFINE_BITS(op, 2) \
  INSTANTIATE_AFFINE_BITS(op, 3) \
  INSTANTIATE_AFFINE_BITS(op, 4) \
  INSTANTIATE_AFFINE_BITS(op, 5) \
  INSTANTIATE_AFFINE_BITS(op, 6) \
  INSTANTIATE_AFFINE_BITS(op, 8)
