// The operands of few_rows.h. Pairs of an operand are values i and i + 4 of an octet: in words of 4-bit codes they are 16 bits
// apart.
#pragma once

#include "matrix_units.h"
#include "octets.h"

using FewUnits = MatrixUnits<bfloat>;

// Pairs i = 0 to 3 of an octet of weights.
struct OctetTerms {
  uint high[4];
  uint low[4];  // where weights are not exact
};

// Pairs of an octet of x as the sums of three bf16 values.
struct TokenTerms {
  uint terms[3][4];

  TokenTerms(float4 first, float4 second) {
    const float a[4] = {first.x, first.y, first.z, first.w}, b[4] = {second.x, second.y, second.z, second.w};
#pragma unroll
    for (uint i = 0; i < 4; ++i) {
      const PairTerms pair = terms_of<bfloat>(a[i], b[i]);
      const float2 high = FewUnits::floats(pair.high), low = FewUnits::floats(pair.low);
      terms[0][i] = pair.high;
      terms[1][i] = pair.low;
      terms[2][i] = FewUnits::pair(a[i] - high.x - low.x, b[i] - high.y - low.y);
    }
  }
};

// 128 as two bf16 values. The compiler does not know the result: an instruction that masks codes and adds 128 to them has room for
// one of both constants, and the other would be loaded again and again.
inline uint pair_offsets(uint tokens) { return 0x43004300u + (tokens >> 24); }

template <typename W>
inline uint code_pair_of(const W& w, const auto& octet, uint index, uint i, uint) {
  return code_pair(w, octet, index, i);
}
template <typename S>
inline uint code_pair_of(const Affine<4, S>&, const auto& octet, uint, uint i, uint offsets) {
  uint pair;
  asm("lop3.b32 %0, %1, 0x000f000f, %2, 0xea;" : "=r"(pair) : "r"(octet.words.x >> (i * 4)), "r"(offsets));
  return pair;
}

template <typename W>
inline OctetTerms octet_terms(const W& w, const typename W::Octet& octet, uint index, uint offsets) {
  OctetTerms terms;
  if constexpr (kIsOperand<W>) {
#pragma unroll
    for (uint i = 0; i < 4; ++i) terms.high[i] = code_pair(w, octet, index, i);
  } else if constexpr (W::kSharesScale && W::kPairOffset > 0) {
    const float offset = W::kPairOffset;
    const uint minus = FewUnits::pair(-offset, -offset);
#pragma unroll
    for (uint i = 0; i < 4; ++i)
      terms.high[i] = FewUnits::add(code_pair_of(w, octet, index, i, offsets), minus);
  } else {
    float values[kOctet];
    if constexpr (W::kSharesScale)
      decode_octet(w, octet, index, values);
    else
      expand_octet(w, octet, index, values);
#pragma unroll
    for (uint i = 0; i < 4; ++i) {
      const PairTerms pair = terms_of<bfloat>(values[i], values[i + 4]);
      terms.high[i] = pair.high;
      terms.low[i] = pair.low;
    }
  }
  return terms;
}
