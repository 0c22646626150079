// NEON: vectors of 16 bytes. With the dot product instructions where the level has them, else without;
// products of matrices of bytes are in integer_sums.h.
#pragma once

#include <arm_neon.h>

namespace pyturbo::cpu::PYTURBO_LEVEL {

constexpr uint32_t kBytes = 16;
constexpr uint32_t kLanes = 4;          // 32-bit values of a vector
constexpr uint32_t kTileTokens = 8;     // tokens whose sums in f32 stay in registers
constexpr uint32_t kIntegerTokens = 4;  // tokens whose integer sums do
constexpr uint32_t kPlanesAtOnce = 1;   // planes of bytes whose sums do, with those of four tokens
constexpr bool kSignedWeights = true;
constexpr bool kDotsInPairs = false;  // whether `dot` adds products of codes below 64 in pairs

typedef float F32 __attribute__((vector_size(16)));
typedef int32_t I32 __attribute__((vector_size(16)));
typedef uint32_t U32 __attribute__((vector_size(16)));
typedef uint16_t U16 __attribute__((vector_size(16)));
typedef uint8_t U8 __attribute__((vector_size(16)));
typedef int8_t S8 __attribute__((vector_size(16)));
typedef uint16_t U16Half __attribute__((vector_size(8)));  // kLanes 16-bit values
typedef int8_t S8Quarter __attribute__((vector_size(4)));  // kLanes 8-bit values

// Keeps v in a register, so that a value that is used twice is read once.
PYTURBO_INLINE U8 held(U8 v) {
  asm("" : "+w"(v));
  return v;
}

// Sums that go through this are added to in turns, so that none waits for itself.
PYTURBO_INLINE I32 in_turn(I32 v) {
  asm volatile("" : "+w"(v));
  return v;
}

PYTURBO_INLINE F32 splat(float value) { return (F32)vdupq_n_f32(value); }
PYTURBO_INLINE F32 fused(F32 a, F32 b, F32 c) {
  return (F32)vfmaq_f32((float32x4_t)c, (float32x4_t)a, (float32x4_t)b);
}
template <int lane>
PYTURBO_INLINE F32 fused_lane(F32 a, F32 b, F32 c) {  // a * lane of b + c
  return (F32)vfmaq_laneq_f32((float32x4_t)c, (float32x4_t)a, (float32x4_t)b, lane);
}
PYTURBO_INLINE F32 larger(F32 a, F32 b) { return (F32)vmaxq_f32((float32x4_t)a, (float32x4_t)b); }
PYTURBO_INLINE F32 from_half(U16Half v) { return (F32)vcvt_f32_f16((float16x4_t)v); }
PYTURBO_INLINE F32 from_bfloat(U16Half v) { return (F32)vshll_n_u16((uint16x4_t)v, 16); }
PYTURBO_INLINE U16Half to_half(F32 v) { return (U16Half)vcvt_f16_f32((float32x4_t)v); }
PYTURBO_INLINE I32 to_nearest(F32 v) { return (I32)vcvtnq_s32_f32((float32x4_t)v); }  // ties to even

PYTURBO_INLINE float sum(F32 v) { return vaddvq_f32((float32x4_t)v); }
PYTURBO_INLINE int32_t sum(I32 v) { return vaddvq_s32((int32x4_t)v); }
PYTURBO_INLINE int32_t largest(I32 v) { return vmaxvq_s32((int32x4_t)v); }

// table[index] of up to kLanes floats.
PYTURBO_INLINE F32 pick(const float* table, I32 index) {
  const I32 bytes = index * 0x04040404 + 0x03020100;
  return (F32)vqtbl1q_u8(vreinterpretq_u8_f32(vld1q_f32(table)), (uint8x16_t)bytes);
}

// kLanes signed bytes, each as 16 bits.
PYTURBO_INLINE U16Half widen(const void* from) {
  uint32_t four;
  std::memcpy(&four, from, sizeof four);
  return (U16Half)vget_low_s16(vmovl_s8(vcreate_s8(four)));
}

// The same as 32 bits.
PYTURBO_INLINE I32 widen_twice(const void* from) { return (I32)vmovl_s16((int16x4_t)widen(from)); }

// Twice as many signed bytes as 16 bits, and the halves of such a vector.
PYTURBO_INLINE U16 widen_two(const void* from) { return (U16)vmovl_s8(vld1_s8((const int8_t*)from)); }
PYTURBO_INLINE U16Half low_half(U16 v) { return (U16Half)vget_low_u16((uint16x8_t)v); }
PYTURBO_INLINE U16Half high_half(U16 v) { return (U16Half)vget_high_u16((uint16x8_t)v); }

// The low or the high nibbles of 16 bytes.
PYTURBO_INLINE U8 split_nibbles(const uint8_t* from, bool high) {
  const uint8x16_t bytes = vld1q_u8(from);
  return (U8)(high ? vshrq_n_u8(bytes, 4) : vandq_u8(bytes, vdupq_n_u8(15)));
}

// Bytes moved to the right, or to the left where `right` is negative, and the bits of `mask` of them.
PYTURBO_INLINE U8x16 move_bytes(U8x16 bytes, int32_t right, uint8_t mask) {
  if (right < 0) return bytes << -right & mask;
  return mask == 0xff >> right ? bytes >> right : bytes >> right & mask;
}

// Bytes of six bits: four of `low` and two of `high`, which are moved to the right for it. The high ones come
// from bits 0 or 2 for low ones that are in place, from bits 4 or 6 for those that are moved.
PYTURBO_INLINE U8x16 six_bits_of(U8x16 low, uint32_t low_right, U8x16 high, uint32_t high_right) {
  if (low_right == 0) {
    const U8x16 moved = high << (4 - high_right);
    return (U8x16)vbslq_u8(vdupq_n_u8(15), (uint8x16_t)low, (uint8x16_t)moved) & 0x3f;
  }
  const U8x16 moved = high >> (high_right - 4);
  const U8x16 both = (U8x16)vsriq_n_u8((uint8x16_t)moved, (uint8x16_t)low, 4);
  return high_right == 6 ? both : both & 0x3f;
}

// The same bits as the highest of bytes, above two zeros.
PYTURBO_INLINE U8x16 upper_six_bits_of(U8x16 low, uint32_t low_right, U8x16 high, uint32_t high_right) {
  if (low_right == 0) return (U8x16)vsliq_n_u8((uint8x16_t)(low << 2), (uint8x16_t)(high >> high_right), 6);
  return (U8x16)vsriq_n_u8((uint8x16_t)(high << (6 - high_right)), (uint8x16_t)low, 2) & 0xfc;
}

// kLanes words at distances of `stride` bytes, or the `count` there are and zeros.
template <int stride>
PYTURBO_INLINE U32 gather_words(const uint8_t* from, uint32_t count) {
  if (count >= kLanes) {
    uint32x4_t all = vld1q_dup_u32((const uint32_t*)from);
    all = vld1q_lane_u32((const uint32_t*)(from + stride), all, 1);
    all = vld1q_lane_u32((const uint32_t*)(from + 2 * stride), all, 2);
    return (U32)vld1q_lane_u32((const uint32_t*)(from + 3 * stride), all, 3);
  }
  uint32_t words[kLanes] = {};
  for (uint32_t i = 0; i < kLanes && i < count; ++i) std::memcpy(words + i, from + i * stride, sizeof *words);
  U32 all;
  std::memcpy(&all, words, sizeof all);
  return all;
}

// `value` where a bit is set, else 0: bit i for byte i.
PYTURBO_INLINE U8 where_set(uint16_t bits, uint8_t value) {
  const uint8x16_t bytes = vcombine_u8(vdup_n_u8(uint8_t(bits)), vdup_n_u8(uint8_t(bits >> 8)));
  const uint8x16_t bit = vreinterpretq_u8_u64(vdupq_n_u64(0x8040201008040201));
  return (U8)vandq_u8(vtstq_u8(bytes, bit), vdupq_n_u8(value));
}

// 16 bytes, each as 32 bits, in 16 / kLanes vectors.
PYTURBO_INLINE void widen_all(U8x16 v, I32* words) {
  const uint16x8_t low = vmovl_u8(vget_low_u8((uint8x16_t)v)), high = vmovl_u8(vget_high_u8((uint8x16_t)v));
  words[0] = (I32)vmovl_u16(vget_low_u16(low));
  words[1] = (I32)vmovl_u16(vget_high_u16(low));
  words[2] = (I32)vmovl_u16(vget_low_u16(high));
  words[3] = (I32)vmovl_u16(vget_high_u16(high));
}

// Values in memory that are used later are loaded later: registers are needed for others.
PYTURBO_INLINE void load_again() { asm volatile("" ::: "memory"); }

// Integers below 2^22, as floats: they are added to the bits of 1.5 * 2^23, and that is subtracted, which
// takes half as long as a conversion.
constexpr int32_t kFloatBits = 0x4b400000;
constexpr float kFloatOfBits = 0x1.8p23f;
alignas(16) constexpr int32_t kFloatBitsOfLanes[] = {kFloatBits, kFloatBits, kFloatBits, kFloatBits};
PYTURBO_INLINE I32 read_float_bits() {  // from memory: copies of a register would take the time of products
  I32 bits;
  asm volatile("ldr %q0, [%1]" : "=w"(bits) : "r"(kFloatBitsOfLanes));
  return bits;
}
PYTURBO_INLINE F32 less_float_bits(I32 v) { return (F32)v - kFloatOfBits; }
PYTURBO_INLINE F32 small_to_float(I32 v) { return less_float_bits(v + kFloatBits); }

// 16 bytes less `zero` as floats, in four vectors.
PYTURBO_INLINE void small_to_floats(U8x16 bytes, uint32_t zero, F32* to) {
  const uint8x16_t none = {};
  const uint16x8_t exponent = vdupq_n_u16(0x4b00);  // of 2^23
  const uint16x8_t low = (uint16x8_t)vzip1q_u8((uint8x16_t)bytes, none);
  const uint16x8_t high = (uint16x8_t)vzip2q_u8((uint8x16_t)bytes, none);
  const F32 base = splat(0x1p23f + float(zero));
  to[0] = (F32)vzip1q_u16(low, exponent) - base;
  to[1] = (F32)vzip2q_u16(low, exponent) - base;
  to[2] = (F32)vzip1q_u16(high, exponent) - base;
  to[3] = (F32)vzip2q_u16(high, exponent) - base;
}

// The sums of the lanes of four vectors.
PYTURBO_INLINE I32 add_pairs(I32 a, I32 b) { return (I32)vpaddq_s32((int32x4_t)a, (int32x4_t)b); }

// 16 bits of each word.
PYTURBO_INLINE U16Half lower_halves(U32 words) { return (U16Half)vmovn_u32((uint32x4_t)words); }
PYTURBO_INLINE U16Half upper_halves(U32 words) { return (U16Half)vshrn_n_u32((uint32x4_t)words, 16); }

// One half as a float.
PYTURBO_INLINE float half(const uint8_t* from) {
  __fp16 value;
  std::memcpy(&value, from, sizeof value);
  return value;
}

// Two halves as floats, in the first lanes, and v times such a lane.
PYTURBO_INLINE F32 two_halves(const uint8_t* from) {
  return (F32)vcvt_f32_f16(vreinterpret_f16_u32(vld1_dup_u32((const uint32_t*)from)));
}
template <int lane>
PYTURBO_INLINE F32 times_lane(F32 v, F32 factors) {
  return (F32)vmulq_laneq_f32((float32x4_t)v, (float32x4_t)factors, lane);
}

// table[index] of 16 bytes.
PYTURBO_INLINE U8 lookup(const uint8_t* table, U8 index) {
  return (U8)vqtbl1q_u8(vld1q_u8(table), (uint8x16_t)index);
}

// acc + the sums of four products, byte by byte: w in 0 .. 2^bits - 1, or in -128 .. 127 for 8 bits;
// x in -128 .. 127.
template <uint32_t bits>
PYTURBO_INLINE I32 dot(I32 acc, U8 w, S8 x) {
#if defined(__ARM_FEATURE_DOTPROD)
  return (I32)vdotq_s32((int32x4_t)acc, (int8x16_t)w, (int8x16_t)x);
#else
  // Pairs of lanes end up in the sum of four in another order than with vdotq, but in the same lane.
  const int16x8_t low = vmull_s8(vget_low_s8((int8x16_t)w), vget_low_s8((int8x16_t)x));
  const int16x8_t high = vmull_high_s8((int8x16_t)w, (int8x16_t)x);
  return acc + (I32)vpaddq_s32(vpaddlq_s16(low), vpaddlq_s16(high));
#endif
}

// The same with word i of x for all lanes.
template <uint32_t bits, int i>
PYTURBO_INLINE I32 dot_word(I32 acc, U8 w, S8 x) {
#if defined(__ARM_FEATURE_DOTPROD)
  return (I32)vdotq_laneq_s32((int32x4_t)acc, (int8x16_t)w, (int8x16_t)x, i);
#else
  return dot<bits>(acc, w, (S8)vdupq_laneq_s32((int32x4_t)x, i));
#endif
}

// The same for several vectors.
template <uint32_t bits, uint32_t count>
PYTURBO_INLINE I32 dot_all(I32 acc, const U8* w, const S8* x) {
#pragma GCC unroll 4
  for (uint32_t i = 0; i < count; ++i) acc = dot<bits>(acc, w[i], x[i]);
  return acc;
}

// rows[i][j] and rows[j][i] change places, as 32-bit words.
PYTURBO_INLINE void transpose(U8* rows) {
  const uint32x4_t a = (uint32x4_t)rows[0], b = (uint32x4_t)rows[1];
  const uint32x4_t c = (uint32x4_t)rows[2], d = (uint32x4_t)rows[3];
  const uint64x2_t ab_even = (uint64x2_t)vtrn1q_u32(a, b), ab_odd = (uint64x2_t)vtrn2q_u32(a, b);
  const uint64x2_t cd_even = (uint64x2_t)vtrn1q_u32(c, d), cd_odd = (uint64x2_t)vtrn2q_u32(c, d);
  rows[0] = (U8)vtrn1q_u64(ab_even, cd_even);
  rows[1] = (U8)vtrn1q_u64(ab_odd, cd_odd);
  rows[2] = (U8)vtrn2q_u64(ab_even, cd_even);
  rows[3] = (U8)vtrn2q_u64(ab_odd, cd_odd);
}

// Byte i of row j becomes byte j of four, number i of all: rows[i / 4] has those of bytes i to i + 3.
PYTURBO_INLINE void interleave(U8* rows) {
  const uint8x16_t a = (uint8x16_t)rows[0], b = (uint8x16_t)rows[1];
  const uint8x16_t c = (uint8x16_t)rows[2], d = (uint8x16_t)rows[3];
  const uint8x16_t ac_low = vzip1q_u8(a, c), ac_high = vzip2q_u8(a, c);
  const uint8x16_t bd_low = vzip1q_u8(b, d), bd_high = vzip2q_u8(b, d);
  rows[0] = (U8)vzip1q_u8(ac_low, bd_low);
  rows[1] = (U8)vzip2q_u8(ac_low, bd_low);
  rows[2] = (U8)vzip1q_u8(ac_high, bd_high);
  rows[3] = (U8)vzip2q_u8(ac_high, bd_high);
}

// Lane i is the sum of the lanes of v[i]: of its halves, then of the halves of that, and so on.
PYTURBO_INLINE F32 sums_of(const F32* v) {
  const auto halves = [](F32 first, F32 second) __attribute__((always_inline)) {
    const float64x2_t a = (float64x2_t)first, b = (float64x2_t)second;
    return vaddq_f32((float32x4_t)vzip1q_f64(a, b), (float32x4_t)vzip2q_f64(a, b));
  };
  return (F32)vpaddq_f32(halves(v[0], v[1]), halves(v[2], v[3]));
}

// 16 values of 3, 5 or 6 bits, one after another from bit 0 of `from`, which has 2 * bits bytes.
template <uint32_t bits>
PYTURBO_INLINE U8 spread(const uint8_t* from) {
  alignas(16) static constexpr struct Tables {
    uint8_t even[16], odd[16];
    int16_t even_shift[8], odd_shift[8];
    constexpr Tables() : even(), odd(), even_shift(), odd_shift() {
      for (int i = 0; i < 8; ++i) {
        for (int part = 0; part < 2; ++part) {
          const int bit = (2 * i + part) * int(bits);
          uint8_t* bytes = part ? odd : even;
          bytes[2 * i] = uint8_t(bit / 8);
          bytes[2 * i + 1] = uint8_t(bit / 8 + 1);  // past the end: zero, and of no matter
          (part ? odd_shift : even_shift)[i] = int16_t(part ? 8 - bit % 8 : -(bit % 8));
        }
      }
    }
  } tables;
  uint8_t bytes[16] = {};
  std::memcpy(bytes, from, 2 * bits);
  const uint8x16_t stream = vld1q_u8(bytes);
  const uint16x8_t even = vshlq_u16(vreinterpretq_u16_u8(vqtbl1q_u8(stream, vld1q_u8(tables.even))),
                                    vld1q_s16(tables.even_shift));
  const uint16x8_t odd =
      vshlq_u16(vreinterpretq_u16_u8(vqtbl1q_u8(stream, vld1q_u8(tables.odd))), vld1q_s16(tables.odd_shift));
  constexpr uint16_t kMask = (1 << bits) - 1;
  return (U8)vorrq_u16(vandq_u16(even, vdupq_n_u16(kMask)), vandq_u16(odd, vdupq_n_u16(kMask << 8)));
}

}  // namespace pyturbo::cpu::PYTURBO_LEVEL
