// Chunks of tiles of GGUF blocks. Where these have a scale for 32 values, 16 bytes of each row become four
// words with a row in each lane before they are unpacked; others are unpacked first.
#pragma once

#include "cpu/kernels/gguf_folds.h"
#include "cpu/kernels/quantized_integer_tile.h"

namespace pyturbo::cpu::PYTURBO_LEVEL {

// words[i] = word i of the 16 bytes at `from` in its row, and at the same place in those after it, which are
// `step` bytes apart.
PYTURBO_INLINE void load_row_words(const uint8_t* from, uint64_t step, U8* words) {
#pragma GCC unroll 4
  for (uint32_t i = 0; i < 4; ++i) words[i] = load_pieces(from + i * step, 4 * step, kPieces);
  transpose_pieces(words);
}

// Bit 4 of each byte of word i of a group: bits 4 * i to 4 * i + 3 of each lane.
PYTURBO_INLINE U8 fifth_bits_of_word(U32 bits, uint32_t i) {
  return (U8)((((bits >> (4 * i)) & 15) * 0x00204081 & 0x01010101) << 4);
}

// The codes of the first `groups` groups of kLanes rows: word i of group g is codes[g * T::kGroup / 4 + i].
template <typename T>
PYTURBO_INLINE void load_codes(const uint8_t* from, uint64_t step, uint32_t groups, U8* codes) {
  constexpr uint32_t kGroupWords = T::kGroup / 4;
  const auto low = [](U8 word) { return word & 15; };
  const auto high = [](U8 word) { return (U8)((U16)word >> 4) & 15; };
  if constexpr (kShared<T>) {
    for (uint32_t g = 0; g < groups; g += 2) {
      constexpr uint32_t kBlockGroups = T::kBlock / T::kGroup;
      const uint8_t* block = from + g / kBlockGroups * T::kBlockBytes;
      const uint32_t pair = g % kBlockGroups / 2;
#pragma GCC unroll 2
      for (uint32_t k = 0; k < 2; ++k) {
        U8 words[4], fifths[4] = {};
        load_row_words(block + T::kRuns + 32 * pair + 16 * k, step, words);
        if constexpr (requires { T::kFifths; }) load_row_words(block + T::kFifths + 16 * k, step, fifths);
#pragma GCC unroll 4
        for (uint32_t i = 0; i < 4; ++i) {
          const U8 two = (U8)((U16)fifths[i] >> (2 * pair));
          codes[g * kGroupWords + 4 * k + i] = low(words[i]) | (U8)((U16)(two & 1) << 4);
          codes[(g + 1) * kGroupWords + 4 * k + i] = high(words[i]) | (U8)((U16)(two & 2) << 3);
        }
      }
    }
  } else if constexpr (T::kGroup == 16) {
    for (uint32_t b = 0; b < groups * T::kGroup / T::kBlock; ++b, from += T::kBlockBytes)
      for (uint32_t k = 0; k < kStepVectors<T>; ++k, codes += kLanes) {
#pragma GCC unroll 16
        for (uint32_t l = 0; l < kLanes; ++l) codes[l] = step_codes<T>(from + l * step, k);
        transpose(codes);
      }
  } else {
    for (uint32_t g = 0; g < groups; ++g, codes += kGroupWords) {
      const uint8_t* block = from + g * T::kGroup / T::kBlock * T::kBlockBytes;
      if constexpr (requires { T::kNibbles; }) {
        U8 words[4], fifths[4] = {};  // all of a row in the first word
        load_row_words(block + T::kNibbles + g * T::kGroup % T::kBlock / 2, step, words);
        if constexpr (requires { T::kFifth; }) load_row_words(block + T::kFifth, step, fifths);
#pragma GCC unroll 4
        for (uint32_t i = 0; i < 4; ++i) {
          codes[i] = low(words[i]) | fifth_bits_of_word((U32)fifths[0], i);
          codes[4 + i] = high(words[i]) | fifth_bits_of_word((U32)fifths[0], 4 + i);
          if constexpr (requires { T::kTable; }) {
            codes[i] = lookup(T::kTable, codes[i]);
            codes[4 + i] = lookup(T::kTable, codes[4 + i]);
          }
        }
      } else {
        load_row_words(block + T::kCodes, step, codes);
        load_row_words(block + T::kCodes + 16, step, codes + 4);
#pragma GCC unroll 8
        for (uint32_t i = 0; i < kGroupWords; ++i) codes[i] ^= 128;
      }
    }
  }
}

// Their scales and biases.
template <typename T>
PYTURBO_INLINE void load_scales(const uint8_t* from, uint64_t step, uint32_t groups, F32* scales,
                                F32* biases) {
  if constexpr (kLarge<T>) {
    constexpr uint32_t kGroups = T::kScales, kVectors = (kGroups + T::kMinima) / kLanes;
    for (uint32_t g = 0; g < groups; g += kGroups, from += T::kBlockBytes) {
      U8 entries[kVectors][kLanes];
      for (uint32_t l = 0; l < kLanes; ++l) {
        F32 own[kVectors];
        T::entries(from + l * step, own);
        for (uint32_t v = 0; v < kVectors; ++v) entries[v][l] = (U8)own[v];
      }
      for (uint32_t v = 0; v < kVectors; ++v) transpose(entries[v]);
      for (uint32_t i = 0; i < kGroups; ++i) {
        const uint32_t minimum = i + (T::kMinima > 0 ? kGroups : 0);
        scales[g + i] = (F32)entries[i / kLanes][i % kLanes];
        biases[g + i] = (F32)entries[minimum / kLanes][minimum % kLanes] * -kMinimumFactor<T>;
      }
    }
  } else {
    for (uint32_t g = 0; g < groups; ++g, from += T::kBlockBytes) {
      U8 words[4];
      load_row_words(from, step, words);
      const ScaleAndBias own = scale_and_bias<T>((U32)words[0]);
      scales[g] = own.scale;
      biases[g] = own.bias;
      if constexpr (constexpr int32_t kOffset = BlockCodes<T>::kOffset; kOffset != 0)
        biases[g] += own.scale * float(kOffset);
    }
  }
}

// As LoadChunk says.
template <typename T>
[[gnu::noinline]] static void load_block_chunk(const Matrix& w, uint32_t first, uint32_t begin,
                                               IntegerChunk& chunk) {
  const uint32_t values = least(kIntegerChunk, w.in - begin), bytes = values / T::kBlock * T::kBlockBytes;
  const uint8_t* from = w.row(first) + begin / T::kBlock * T::kBlockBytes;
  uint64_t step = w.row_bytes;
  uint8_t copies[kTileRows][kIntegerChunk / T::kBlock * T::kBlockBytes];
  if (w.out - first < kTileRows) {
    for (uint32_t r = 0; r < kTileRows; ++r)
      std::memcpy(copies[r], from + least(r, w.out - first - 1) * step, bytes);
    from = copies[0];
    step = sizeof copies[0];
  }
  for (uint32_t v = 0; v < kTileVectors; ++v, from += kLanes * step) {
    load_codes<T>(from, step, values / T::kGroup, chunk.codes[v]);
    load_scales<T>(from, step, values / T::kGroup, chunk.scales[v], chunk.biases[v]);
  }
}

}  // namespace pyturbo::cpu::PYTURBO_LEVEL
