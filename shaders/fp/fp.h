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
  enum : uint { kSpan = 16, kTotals = 1, kAhead = 0, kSmall = 0 };
  enum : uint { kBits = bits, kHasBias = 0, kSharesScale = group >= kUnit, kPairOffset = 0 };
  struct Span {
    uint words[kSpan * bits / 32];
    uint scale;
  };
  struct Octet {
    uint2 words;
    uint scale;
  };

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
inline void fetch_codes(
    thread const Fp<bits, group>& w,
    uint row,
    uint unit,
    uint index,
    thread typename Fp<bits, group>::Octet& to) {
  to.words = octet_words<bits>(w.packed + (ulong(row) * w.units + unit) * bits, index);
}

template <uint bits, uint group>
inline void fetch_scale(
    thread const Fp<bits, group>& w,
    uint row,
    uint unit,
    uint index,
    thread typename Fp<bits, group>::Octet& to) {
  to.scale = w.scales[(ulong(row) * w.units + unit) * (kUnit / group) + index * kOctet / group];
}

template <uint bits, uint group>
inline void decode_octet(
    thread const Fp<bits, group>&,
    thread const typename Fp<bits, group>::Octet& octet,
    uint index,
    thread float* codes) {
  const ulong packed = octet_bits<bits>(octet.words, index);
#pragma unroll
  for (uint i = 0; i < kOctet; ++i) codes[i] = decode<bits>(code_of<bits>(packed, i));
}

template <uint bits, uint group>
inline Fp<bits, group> from_row(thread const Fp<bits, group>& w, uint row) {
  return Fp<bits, group>{
      w.packed + ulong(row) * w.units * bits, w.scales + ulong(row) * w.units * (kUnit / group), w.units};
}

template <uint bits, uint group>
inline float2 scale_of(thread const Fp<bits, group>&, thread const typename Fp<bits, group>::Octet& octet) {
  return float2((group == 16 ? e4m3(octet.scale) : e8m0(octet.scale)) * code_unit<bits>(), 0);
}

template <uint bits, uint group>
inline bool ends_group(thread const Fp<bits, group>&, uint) {
  return true;
}

template <uint bits, uint group>
inline void fetch_span(
    thread const Fp<bits, group>& w,
    uint row,
    uint span,
    thread typename Fp<bits, group>::Span& to) {
  constexpr uint kWords = Fp<bits, group>::kSpan * bits / 32;
  load_words<kWords>(w.packed + (row * w.units * bits + span * kWords), to.words);
  to.scale = w.scales[row * w.units * (kUnit / group) + span * Fp<bits, group>::kSpan / group];
}

template <uint bits, uint group>
inline uint column_of(thread const Fp<bits, group>&, uint span, uint i) {
  return span * Fp<bits, group>::kSpan + i;
}

template <uint bits, uint group>
inline float place_of(thread const Fp<bits, group>&, uint) {
  return 1.0f;
}

// E2M1 codes are the sign, the exponent and the first bit of the mantissa of a half: their value times 2^-14.
inline float2 e2m1_pair(uint word, uint i) {
  const uint sign = (i < 3 ? word << (12 - 4 * i) : word) & 0x80008000u;
  const uint magnitude = (i < 3 ? word << (9 - 4 * i) : word >> 3) & 0x0e000e00u;
  return float2(as_type<half2>(sign | magnitude));
}

// scale * dot(code, x).
template <uint bits, uint group>
inline float dot_span(
    thread const Fp<bits, group>&,
    thread const typename Fp<bits, group>::Span& span,
    thread const float* x,
    thread const float*) {
  constexpr uint kPerWord = 32 / bits;
  float dot = 0;
#pragma unroll
  for (uint word = 0; word < Fp<bits, group>::kSpan / kPerWord; ++word) {
    if (bits == 4) {
#pragma unroll
      for (uint i = 0; i < kPerWord / 2; ++i) {
        const float2 pair = e2m1_pair(span.words[word], i);
        dot = fma(pair.x, x[word * kPerWord + i], dot);
        dot = fma(pair.y, x[word * kPerWord + kPerWord / 2 + i], dot);
      }
    } else {
#pragma unroll
      for (uint i = 0; i < kPerWord; ++i)
        dot = fma(e4m3((span.words[word] >> (i * 8)) & 255), x[word * kPerWord + i], dot);
    }
  }
  const float scale = group == 16 ? e4m3(span.scale) : e8m0(span.scale);
  return scale * (bits == 4 ? dot * 16384.0f : dot);
}

// What the sums of matrices number `matrix` of two stacks are multiplied with.
inline float2 factors_at(
    device const float* gate_global_scale,
    device const float* up_global_scale,
    uint matrix,
    ulong global_stride) {
  if (!has_global_scale) return 1.0f;
  const ulong place = matrix * global_stride;
  return float2(gate_global_scale[place], up_global_scale[place]) / kGlobalUnit;
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
