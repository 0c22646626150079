// The operands of NVIDIA's matrix units: 16-bit floats, or sums of two of them. A warp multiplies 16 rows by 8 columns by
// 16 values at a time. Lane (g, t) = (lane / 4, lane % 4) holds values 2 t, 2 t + 1, 2 t + 8 and 2 t + 9 of row or column
// g, and the results of rows g and g + 8 for columns 2 t and 2 t + 1.
//
// The order of values is free if both operands agree: lane t takes values 8 t to 8 t + 7 of each 32, four of them in each
// of two steps. So it reads eight neighbours at once, straight into registers.
#pragma once

// Operands of bfloat.
template <typename T>
struct MatrixUnits {
  // Two floats, rounded, the first in the lower half.
  static uint pair(float first, float second) {
    uint bits;
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(bits) : "f"(second), "f"(first));
    return bits;
  }
  static uint fma(uint a, uint b, uint c) {
    uint sum;
    asm("fma.rn.bf16x2 %0, %1, %2, %3;" : "=r"(sum) : "r"(a), "r"(b), "r"(c));
    return sum;
  }
  static uint add(uint a, uint b) { return fma(a, 0x3f803f80u, b); }
  static float2 floats(uint bits) { return {as_type<float>(bits << 16), as_type<float>(bits & 0xffff0000u)}; }
  static bool is_finite(uint bits) {
    return (bits & 0x7f80u) != 0x7f80u && (bits & 0x7f800000u) != 0x7f800000u;
  }
  static void multiply(float (&c)[4], uint4 a, uint b0, uint b1) {
    asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, "
        "{%0,%1,%2,%3};"
        : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
        : "r"(a.x), "r"(a.y), "r"(a.z), "r"(a.w), "r"(b0), "r"(b1));
  }
  // The factor for queries of which this is the largest magnitude.
  static float range_factor(float) { return 1.0f; }
  static constexpr float kLogWeight = 0.0f, kWeight = 1.0f;  // the factor of weights, and its logarithm
};

// Half has a small range: queries are multiplied by powers of two, and weights, which are at most 1.
template <>
struct MatrixUnits<half> {
  static uint pair(float first, float second) {
    uint bits;
    asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(bits) : "f"(second), "f"(first));
    return bits;
  }
  static float2 floats(uint bits) {
    return {float(half::from_bits(ushort(bits))), float(half::from_bits(ushort(bits >> 16)))};
  }
  static bool is_finite(uint bits) {
    return (bits & 0x7c00u) != 0x7c00u && (bits & 0x7c000000u) != 0x7c000000u;
  }
  static void multiply(float (&c)[4], uint4 a, uint b0, uint b1) {
    asm("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, "
        "{%0,%1,%2,%3};"
        : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
        : "r"(a.x), "r"(a.y), "r"(a.z), "r"(a.w), "r"(b0), "r"(b1));
  }
  static float range_factor(float largest) {
    const uint exponent = as_type<uint>(largest) >> 23;
    return exponent == 0 || exponent == 255 ? 1.0f : as_type<float>(max(254u - exponent, 1u) << 23);
  }
  static constexpr float kLogWeight = 12.0f, kWeight = 4096.0f;
};

// Two floats as the sums of two of the small ones.
struct PairTerms {
  uint high;
  uint low;
};

// The sum of products with high and with low terms. Those with an infinity are in the first; the others may be NaN.
inline float sum_of_terms(float high, float low) { return isinf(high) ? high : high + low; }

template <typename T>
inline PairTerms terms_of(float first, float second) {
  const uint high = MatrixUnits<T>::pair(first, second);
  const float2 rounded = MatrixUnits<T>::floats(high);
  return {high, MatrixUnits<T>::pair(first - rounded.x, second - rounded.y)};
}

// Eight columns of a row of the cache.
struct RowPart {
  uint pairs[4];

  template <typename T>
  void load(const T* row, bool exists) {
    const uint4 bits = exists ? *reinterpret_cast<const uint4*>(row) : uint4{0, 0, 0, 0};
    pairs[0] = bits.x, pairs[1] = bits.y, pairs[2] = bits.z, pairs[3] = bits.w;
  }
};

// Exchanges the rows and columns of an 8 x 8 matrix of 16-bit values, of which lane (g, t) has row g, columns 2 t.
inline uint transposed(uint pair) {
  uint result;
  asm("movmatrix.sync.aligned.m8n8.trans.b16 %0, %1;" : "=r"(result) : "r"(pair));
  return result;
}

// Keeps an address in registers, which the compiler would compute again wherever it is used.
inline void hold(const auto*& address) {
  asm volatile("" : "+l"(address));
  __builtin_assume(::__isGlobal(address));
}
inline void hold(uint& value) { asm volatile("" : "+r"(value)); }

// The same for what the rows of a matrix are read from.
template <typename W>
inline void hold_codes(W& w) {
  if constexpr (requires { w.packed; })
    hold(w.packed);
  else
    hold(w.data);
}
