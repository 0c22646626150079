// Matrices that are not quantised: float, half or bfloat.
#pragma once

#include "../common/units.h"

// A matrix whose rows are units, from a multiple of 16 bytes on. Values are their own codes: there are no scales.
template <typename T>
struct Dense {
  enum : uint {
    kSpan = 16 / sizeof(T),
    kTotals = 1,
    kAhead = 1,
    kSmall = 0,
    kUnitWords = kUnit * sizeof(T) / 4
  };
  enum : uint { kHasBias = 0, kSharesScale = 0, kPairOffset = 0 };
  struct Span {
    uint words[4];
  };
  struct Octet {
    uint words[kOctet * sizeof(T) / 4];
  };

  device const T* data;  // [rows, units * kUnit]
  uint units;
};

// Value i of words that were loaded.
template <typename T>
inline float value_of(thread const uint* words, uint i);
template <>
inline float value_of<float>(thread const uint* words, uint i) {
  return as_type<float>(words[i]);
}
template <>
inline float value_of<half>(thread const uint* words, uint i) {
  const float2 pair = float2(as_type<half2>(words[i / 2]));
  return i % 2 ? pair.y : pair.x;
}
template <>
inline float value_of<bfloat>(thread const uint* words, uint i) {
  return as_type<float>(i % 2 ? words[i / 2] & 0xffff0000u : words[i / 2] << 16);
}

template <typename T>
inline void fetch_codes(
    thread const Dense<T>& w,
    uint row,
    uint unit,
    uint index,
    thread typename Dense<T>::Octet& to) {
  constexpr uint kWords = kOctet * sizeof(T) / 4;
  load_words<kWords>(
      (device const uint*)w.data + (ulong(row) * w.units + unit) * (kOctets * kWords) + index * kWords,
      to.words);
}

template <typename T>
inline void fetch_scale(thread const Dense<T>&, uint, uint, uint, thread typename Dense<T>::Octet&) {}

template <typename T>
inline void decode_octet(
    thread const Dense<T>&,
    thread const typename Dense<T>::Octet& octet,
    uint /*index*/,
    thread float* codes) {
#pragma unroll
  for (uint i = 0; i < kOctet; ++i) codes[i] = value_of<T>(octet.words, i);
}

// Values i and i + 4 of an octet as a pair.
inline uint code_pair(
    thread const Dense<bfloat>&,
    thread const Dense<bfloat>::Octet& octet,
    uint /*index*/,
    uint i) {
  const uint first = octet.words[i / 2], second = octet.words[i / 2 + 2];
  return i % 2 ? first >> 16 | (second & 0xffff0000u) : (first & 0xffff) | second << 16;
}

template <typename T>
inline Dense<T> from_row(thread const Dense<T>& w, uint row) {
  return Dense<T>{w.data + ulong(row) * w.units * kUnit, w.units};
}

template <typename T>
inline float2 scale_of(thread const Dense<T>&, thread const typename Dense<T>::Octet&) {
  return float2(1, 0);
}

template <typename T>
inline bool ends_group(thread const Dense<T>&, uint) {
  return true;
}

template <typename T>
inline void fetch_span(thread const Dense<T>& w, uint row, uint span, thread typename Dense<T>::Span& to) {
  constexpr uint kWords = 4;
  load_words<kWords>(
      (device const uint*)w.data + (row * w.units * Dense<T>::kUnitWords + span * kWords), to.words);
}

template <typename T>
inline uint column_of(thread const Dense<T>&, uint span, uint i) {
  return span * Dense<T>::kSpan + i;
}

template <typename T>
inline float place_of(thread const Dense<T>&, uint) {
  return 1.0f;
}

template <typename T>
inline float dot_span(
    thread const Dense<T>&,
    thread const typename Dense<T>::Span& span,
    thread const float* x,
    thread const float*) {
  float dot = 0;
#pragma unroll
  for (uint i = 0; i < Dense<T>::kSpan; ++i) dot = fma(value_of<T>(span.words, i), x[i], dot);
  return dot;
}

// One instance of a kernel per type.
#define INSTANTIATE_DENSE_AS(op, type, name) \
  template [[host_name(#op "_" #name)]] kernel decltype(op<type>) op<type>;
#define INSTANTIATE_DENSE(op)          \
  INSTANTIATE_DENSE_AS(op, float, f32) \
  INSTANTIATE_DENSE_AS(op, half, f16)  \
  INSTANTIATE_DENSE_AS(op, bfloat, bf16)
