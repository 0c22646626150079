// The MLX "affine" format: value = q * scale + bias, with one scale and bias per group of 32, 64 or 128.
// The unit of work is 32 consecutive values of a row: `bits` words for every width, always inside one group.
#pragma once

#include <metal_stdlib>
using namespace metal;

constexpr constant uint kUnit = 32;   // values of a unit
constexpr constant uint kOctet = 8;   // values of a quarter of a unit: `bits` bytes
constexpr constant uint kOctets = 4;  // octets of a unit

// A quantised matrix of `units` units in a row. Every row starts on a unit and on a group.
template <uint bits, typename S>
struct Affine {
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

// The bits of eight consecutive values of a unit, the first in the lowest; they lie in at most two words.
// Words is a pointer to the unit, in device or thread memory.
template <uint bits, typename Words>
inline ulong octet(Words words, uint index) {
  const uint byte = index * bits;
  const uint word = byte / 4;
  const uint next = min(word + 1, bits - 1);
  return ((ulong(words[next]) << 32) | words[word]) >> (byte % 4 * 8);
}

// Value i of an octet.
template <uint bits>
inline float unpack(ulong packed, uint i) {
  return float(uint(packed >> (i * bits)) & ((1u << bits) - 1));
}

template <uint bits, typename S>
inline device const uint* unit_words(thread const Affine<bits, S>& w, uint row, uint unit) {
  return w.packed + (ulong(row) * w.units + unit) * bits;
}

// Scale and bias of a unit.
template <uint bits, typename S>
inline float2 unit_scale(thread const Affine<bits, S>& w, uint row, uint unit) {
  const ulong group = ulong(row) * (w.units >> w.group_shift) + (unit >> w.group_shift);
  return float2(float(w.scales[group]), float(w.biases[group]));
}

// The eight values of an octet of a unit.
template <uint bits, typename S>
inline void dequantize_octet(
    thread const Affine<bits, S>& w,
    uint row,
    uint unit,
    uint index,
    thread float* values) {
  const ulong packed = octet<bits>(unit_words(w, row, unit), index);
  const float2 scale = unit_scale(w, row, unit);
  for (uint i = 0; i < kOctet; ++i) values[i] = fma(unpack<bits>(packed, i), scale.x, scale.y);
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
