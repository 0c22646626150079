// Codes where they lie are the bits of floats whose steps are 2^-149: subnormal ones, or with bit 23 those that follow. NVIDIA's
// GPUs multiply them as fast as any, so a code takes a mask and no conversion. Those above bit 23 are shifted down by a byte.
using namespace metal;

inline float2 small_pair(uint word) { return float2(as_type<half2>(word)); }
constexpr float kPairUnit = 0x1p24f;

template <uint bits>
inline float code_at(uint word, uint at) {
  const uint mask = (1u << bits) - 1;
  return as_type<float>(at < 24 ? word & mask << at : word >> 8 & mask << (at - 8));
}

// The powers are between activations that become infinite, from 2^32 on, and products that lose bits; 2^96 * 2^53 = 2^149.
inline float code_place(uint at) { return 0x1p96f / float(1u << (at < 24 ? at : at - 8)); }
constexpr float kCodeUnit = 0x1p53f;

// If the sum of up to 16 activations is 2^-59, one is 2^-63 or more, and what is lost of all products 2^-97 or less.
constexpr bool kSmallProducts = true;
inline bool has_all_bits(float total) { return abs(total) >= 0x1p-59f; }
inline float2 power_near(float size) {
  const uint exponent = clamp(as_type<uint>(size) >> 23, 1u, 253u);
  return float2(as_type<float>(exponent << 23), as_type<float>((254 - exponent) << 23));
}
