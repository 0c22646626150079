// Tiles of GGUF blocks as floats, where vectors have 16 bytes.
#pragma once

#include "cpu/kernels/gguf_units.h"
#include "cpu/kernels/tile.h"

namespace pyturbo::cpu::PYTURBO_LEVEL {

// Whether signed_codes() may be negative.
template <typename T>
constexpr bool kNegative = kHasSigned<T> || T::kBits == 8 || requires { T::kTable; };

// Lane l of to[i] is lane i of the vector of row l.
PYTURBO_INLINE void turn(F32 a, F32 b, F32 c, F32 d, F32* to) {
  U8 rows[kLanes] = {(U8)a, (U8)b, (U8)c, (U8)d};
  transpose(rows);
#pragma GCC unroll 4
  for (uint32_t i = 0; i < kLanes; ++i) to[i] = (F32)rows[i];
}

// The scales and minima of the groups of a block, with a row in each lane. Where codes have a center, it is
// not in the minima.
template <typename T>
struct LaneGroups {
  static constexpr uint32_t kGroups = T::kBlock / T::kGroup;
  static constexpr bool kHasMinima = SpanScales<T>::kHasMinima && kCenter<T> == 0;
  F32 scales[kGroups], minima[kGroups];

  explicit LaneGroups(const uint8_t* const* rows) {
    if constexpr (kLarge<T>) {
      using Scales = SpanScales<T>;
      const Scales own[kLanes] = {Scales::read(rows[0]), Scales::read(rows[1]), Scales::read(rows[2]),
                                  Scales::read(rows[3])};
#pragma GCC unroll 4
      for (uint32_t u = 0; u < Scales::kUnits; ++u) {
        turn(own[0].scales[u], own[1].scales[u], own[2].scales[u], own[3].scales[u], scales + u * kLanes);
        if constexpr (kHasMinima)
          turn(own[0].minima[u], own[1].minima[u], own[2].minima[u], own[3].minima[u], minima + u * kLanes);
      }
    } else {
      U32 words;
#pragma GCC unroll 4
      for (uint32_t l = 0; l < kLanes; ++l) words[l] = load_vector<uint32_t>(rows[l]);
      scales[0] = scales_of_words<T>(words);
      if constexpr (kHasMinima) minima[0] = from_half(upper_halves(words));
    }
  }
};

// Columns [begin, begin + kChunk) of the tile from row `first`; rows past the matrix repeat the last one.
template <typename T>
static void load_unit_floats(const Matrix& w, uint32_t first, uint32_t begin, TileChunk& chunk) {
  const uint32_t blocks = least(kChunk, w.in - begin) / T::kBlock;
  for (uint32_t v = 0; v < kTileVectors; ++v) {
    const uint8_t* at[kLanes];
    for (uint32_t l = 0; l < kLanes; ++l)
      at[l] = w.row(least(first + v * kLanes + l, w.out - 1)) + begin / T::kBlock * T::kBlockBytes;
    for (uint32_t b = 0; b < blocks; ++b) {
      const LaneGroups<T> groups(at);
#pragma GCC unroll 16
      for (uint32_t k = 0; k < T::kBlock / kBytes; ++k) {
        U8 codes[kLanes];
#pragma GCC unroll 4
        for (uint32_t l = 0; l < kLanes; ++l) codes[l] = signed_codes<T>(at[l], k);
        interleave(codes);
        const uint32_t g = k * kBytes / T::kGroup;
        auto* values = chunk.values + b * T::kBlock + k * kBytes;
#pragma GCC unroll 4
        for (uint32_t i = 0; i < kLanes; ++i) {
          F32 numbers[kLanes];  // of a column each
          if constexpr (kNegative<T>)
            small_to_floats(codes[i] ^ 0x80, 128, numbers);
          else
            small_to_floats(codes[i], kCenter<T>, numbers);
#pragma GCC unroll 4
          for (uint32_t j = 0; j < kLanes; ++j)
            values[i * kLanes + j][v] = LaneGroups<T>::kHasMinima
                                            ? fused(numbers[j], groups.scales[g], groups.minima[g])
                                            : numbers[j] * groups.scales[g];
        }
      }
#pragma GCC unroll 4
      for (uint32_t l = 0; l < kLanes; ++l) at[l] += T::kBlockBytes;
    }
  }
}

}  // namespace pyturbo::cpu::PYTURBO_LEVEL
