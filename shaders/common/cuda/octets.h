// Octets of weights that a lane loads at once.
#pragma once

template <uint bits, typename S>
struct Affine;
template <typename T>
struct Dense;
template <uint bits, uint group>
struct Fp;
template <uint type, uint block, uint block_bytes>
struct Blocks;

// Whether weights are bf16 themselves: they are operands as they are.
template <typename W>
constexpr bool kIsOperand = false;
template <>
constexpr bool kIsOperand<Dense<bfloat>> = true;

// Whether octets and the terms of their weights take many registers: a lane then has fewer octets.
template <typename W>
constexpr bool kNeedsRegisters = false;
template <>
constexpr bool kNeedsRegisters<Dense<half>> = true;
template <>
constexpr bool kNeedsRegisters<Dense<float>> = true;

// Whether a lane reads two octets at once, where two units have one scale.
template <typename W>
constexpr bool kReadsTwoOctets = false;
template <typename S>
constexpr bool kReadsTwoOctets<Affine<4, S>> = true;

// Neighbouring octets of a unit, with their scales where a unit has several.
template <typename W, uint octets>
inline void fetch_octets(const W& w, uint unit, uint index, typename W::Octet (&to)[octets]) {
#pragma unroll
  for (uint i = 0; i < octets; ++i) {
    fetch_codes(w, 0, unit, index + i, to[i]);
    if constexpr (!W::kSharesScale) fetch_scale(w, 0, unit, index + i, to[i]);
  }
}
template <typename S, typename Octet>
inline void fetch_octets(const Affine<4, S>& w, uint unit, uint index, Octet (&to)[2]) {
  const uint2 words = *reinterpret_cast<const uint2*>(w.packed + unit * 4 + index);
  to[0].words = words.x;
  to[1].words = words.y;
}
