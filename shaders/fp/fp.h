// The MLX formats of small floats: value = code * scale, with one scale of a byte per group and no bias.
//   mxfp4: E2M1 codes in groups of 32, E8M0 scales    fp kernels <4, 32>
//   mxfp8: E4M3 codes in groups of 32, E8M0 scales    <8, 32>
//   nvfp4: E2M1 codes in groups of 16, E4M3 scales    <4, 16>
#pragma once

#include "../common/units.h"

constant bool has_global_scale [[function_constant(1)]];  // values are times global_scale / kGlobalUnit

constexpr constant float kGlobalUnit = 448 * 6;  // the largest E4M3 times the largest E2M1

// Twice the value of an E2M1 code: 0, 1, 2, 3, 4, 6, 8, 12 and their negatives, one in each nibble.
inline float twice_e2m1(uint code) {
  const float magnitude = float((0xc8643210u >> ((code & 7) * 4)) & 15);
  return code & 8 ? -magnitude : magnitude;
}

// E4M3 has no infinity; 0x7f and 0xff are NaN.
inline float e4m3(uint code) {
  const uint exponent = (code >> 3) & 15;
  const uint mantissa = exponent == 0 ? code & 7 : 8 + (code & 7);
  const float step = as_type<float>((max(exponent, 1u) + 117) << 23);  // 2^(exponent - 10)
  const float magnitude = (code & 0x7f) == 0x7f ? NAN : float(mantissa) * step;
  return code & 0x80 ? -magnitude : magnitude;
}

// E8M0 is a power of two from 2^-127 on; 255 is NaN.
inline float e8m0(uint code) {
  return code == 255 ? NAN : as_type<float>(code == 0 ? 0x00400000u : code << 23);
}

// A quantised matrix. Every row starts on a unit.
template <uint bits, uint group>
struct Fp {
  device const uint* packed;   // [rows, units * bits]
  device const uchar* scales;  // [rows, units * kUnit / group]
  uint units;
};

// Code times this is the value over the scale.
template <uint bits>
inline float code_unit() {
  return bits == 4 ? 0.5f : 1.0f;
}

template <uint bits>
inline float decode(uint code) {
  return bits == 4 ? twice_e2m1(code) : e4m3(code);
}

template <uint bits, uint group>
inline device const uint* unit_words(thread const Fp<bits, group>& w, uint row, uint unit) {
  return w.packed + (ulong(row) * w.units + unit) * bits;
}

// The scale of the codes of octet `index` of a unit.
template <uint bits, uint group>
inline float octet_scale(thread const Fp<bits, group>& w, uint row, uint unit, uint index) {
  const ulong first = (ulong(row) * w.units + unit) * (kUnit / group);
  const uint code = w.scales[first + index * kOctet / group];
  return (group == 16 ? e4m3(code) : e8m0(code)) * code_unit<bits>();
}

// The eight values of an octet of a unit.
template <uint bits, uint group>
inline void dequantize_octet(
    thread const Fp<bits, group>& w,
    uint row,
    uint unit,
    uint index,
    thread float* values) {
  const ulong packed = octet<bits>(unit_words(w, row, unit), index);
  const float scale = octet_scale(w, row, unit, index);
  for (uint i = 0; i < kOctet; ++i) values[i] = decode<bits>(code_of<bits>(packed, i)) * scale;
}

// One unit of a row times x [32]: scale * dot(code, x) for each of its groups.
template <uint bits, uint group>
inline float dot_unit(
    thread const Fp<bits, group>& w,
    uint row,
    uint unit,
    thread const float* x,
    float /*total*/) {
  uint words[bits];
  load_words<bits>(unit_words(w, row, unit), words);
  float sum = 0;
#pragma unroll
  for (uint first = 0; first < kOctets; first += group / kOctet) {
    float dot = 0;
#pragma unroll
    for (uint index = first; index < first + group / kOctet; ++index) {
      const ulong packed = octet<bits>((thread const uint*)words, index);
#pragma unroll
      for (uint i = 0; i < kOctet; ++i)
        dot = fma(decode<bits>(code_of<bits>(packed, i)), x[index * kOctet + i], dot);
    }
    sum = fma(octet_scale(w, row, unit, first), dot, sum);
  }
  return sum;
}

// Matrix `number` of a stack.
template <uint bits, uint group>
inline Fp<bits, group> matrix_at(
    device const uint* packed,
    device const uchar* scales,
    uint number,
    ulong packed_stride,
    ulong scales_stride,
    uint in) {
  return Fp<bits, group>{packed + number * packed_stride, scales + number * scales_stride, in / kUnit};
}

// One instance of a kernel per format.
#define INSTANTIATE_FP_AS(op, bits, group, name) \
  template [[host_name(#op "_" #name)]] kernel decltype(op<bits, group>) op<bits, group>;
#define INSTANTIATE_FP(op)            \
  INSTANTIATE_FP_AS(op, 4, 32, mxfp4) \
  INSTANTIATE_FP_AS(op, 8, 32, mxfp8) \
  INSTANTIATE_FP_AS(op, 4, 16, nvfp4)
