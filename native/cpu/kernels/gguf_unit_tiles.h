// Tiles of GGUF blocks times several rows of integer activations, where vectors have 16 bytes. A tile is
// kTileRows rows, one in each lane; it is unpacked and transposed once per chunk of columns, then multiplied
// with every token. What gguf_unit_rows.h adds up in lane l of a vector is a sum of its own here, in the same
// order: a result has the same bits.
#pragma once

#include "cpu/kernels/gguf_unit_floats.h"
#include "cpu/kernels/integer_sums.h"
#include "cpu/kernels/quantized_again.h"
#include "cpu/kernels/quantized_tile.h"

namespace pyturbo::cpu::PYTURBO_LEVEL {

constexpr uint32_t kUnitChunk = 2048;  // columns at a time: they stay in the first-level cache
constexpr uint32_t kUnitChunkGroups = kUnitChunk / 16;  // at most

// A chunk of a tile, row per lane.
struct UnitChunk {
  U8 codes[kTileVectors][kUnitChunk / 4];  // [vector, 32-bit word of a row]
  F32 scales[kTileVectors][kUnitChunkGroups];
  F32 minima[kTileVectors][kUnitChunkGroups];
};

// Spans from `from` on of kTileRows rows, which are `step` bytes apart; past the first `rows` the last one is
// repeated.
template <typename T>
static void load_units(const uint8_t* from, uint64_t step, uint32_t rows, uint32_t spans, UnitChunk& chunk) {
  constexpr uint32_t kGroups = kSpan<T> / T::kGroup;
  using Scales = SpanScales<T>;
  for (uint32_t v = 0; v < kTileVectors; ++v) {
    const uint8_t* at[kLanes];
#pragma GCC unroll 4
    for (uint32_t l = 0; l < kLanes; ++l) at[l] = from + least(v * kLanes + l, rows - 1) * step;
    for (uint32_t s = 0; s < spans; ++s) {
      const Scales own[kLanes] = {Scales::read(at[0]), Scales::read(at[1]), Scales::read(at[2]),
                                  Scales::read(at[3])};
#pragma GCC unroll 4
      for (uint32_t u = 0; u < kGroups / kLanes; ++u) {
        const uint32_t g = s * kGroups + u * kLanes;
        turn(own[0].scales[u], own[1].scales[u], own[2].scales[u], own[3].scales[u], chunk.scales[v] + g);
        if constexpr (Scales::kHasMinima)
          turn(own[0].minima[u], own[1].minima[u], own[2].minima[u], own[3].minima[u], chunk.minima[v] + g);
      }
      U8* target = chunk.codes[v] + s * kSpan<T> / 4;
#pragma GCC unroll 16
      for (uint32_t k = 0; k < kSpan<T> / kBytes; ++k) {
        U8 codes[kLanes];
#pragma GCC unroll 4
        for (uint32_t l = 0; l < kLanes; ++l) codes[l] = signed_codes<T>(at[l], k);
        transpose(codes);
        order_words(codes);
#pragma GCC unroll 4
        for (uint32_t l = 0; l < kLanes; ++l) target[k * kLanes + l] = codes[l];
      }
#pragma GCC unroll 4
      for (uint32_t l = 0; l < kLanes; ++l) at[l] += kSpanBytes<T>;
    }
  }
}

// The dot products of a group of a tile with a few tokens.
template <uint32_t group, uint32_t planes, uint32_t tokens>
PYTURBO_INLINE void dot_group(const UnitChunk& chunk, uint32_t g, const int8_t* x, uint64_t row_bytes,
                              F32 (*dots)[kTileVectors]) {
  constexpr uint32_t kVectors = group / kBytes;
#pragma GCC unroll 3
  for (uint32_t p = 0; p < planes; ++p) {
    IntegerSums<8, 1, tokens> total;
#pragma GCC unroll 2
    for (uint32_t k = 0; k < kVectors; ++k)
      total.template add<kLanes>(chunk.codes[0] + (g * kVectors + k) * kLanes, kUnitChunk / 4,
                                 x + ((g * kVectors + k) * planes + p) * kBytes, row_bytes, 0);
#pragma GCC unroll 8
    for (uint32_t t = 0; t < tokens; ++t)
#pragma GCC unroll 2
      for (uint32_t v = 0; v < kTileVectors; ++v)
        dots[t][v] = p == 0 ? total.of(0, v, t) : fused(dots[t][v], splat(256), total.of(0, v, t));
  }
}

// Units of a chunk, and which of the four sums of each result they are added to.
struct ChunkUnits {
  uint32_t count;
  uint32_t first_sum, last_sum;
};

// sums[t, i, row of the tile] += the groups in place i of the chunk's units, times token t.
template <uint32_t group, bool has_minima, uint32_t planes, uint32_t tokens>
[[gnu::noinline]] static void multiply_units(const UnitChunk& chunk, ChunkUnits units, const Activations& x,
                                             float* sums) {
  for (uint32_t i = units.first_sum; i < units.last_sum; ++i) {
    const auto each = [](auto fn) __attribute__((always_inline)) {
#pragma GCC unroll 8
      for (uint32_t t = 0; t < tokens; ++t)
#pragma GCC unroll 2
        for (uint32_t v = 0; v < kTileVectors; ++v) fn(t, v);
    };
    const auto at = [&](uint32_t t, uint32_t v) __attribute__((always_inline)) {
      return sums + (t * kLanes + i) * kTileRows + v * kLanes;
    };
    F32 acc[tokens][kTileVectors];
    each([&](uint32_t t, uint32_t v) __attribute__((always_inline)) { acc[t][v] = load_floats(at(t, v)); });
    for (uint32_t g = i; g < units.count * kLanes; g += kLanes) {
      F32 dots[tokens][kTileVectors];
      dot_group<group, planes, tokens>(chunk, g, x.planes, x.row_bytes, dots);
      each([&](uint32_t t, uint32_t v) __attribute__((always_inline)) {
        acc[t][v] = fused(dots[t][v], chunk.scales[v][g] * splat(x.scales[t * x.stride + g]), acc[t][v]);
      });
      if constexpr (has_minima)
        each([&](uint32_t t, uint32_t v) __attribute__((always_inline)) {
          acc[t][v] = fused(chunk.minima[v][g], splat(x.sums[t * x.stride + g]), acc[t][v]);
        });
    }
    each([&](uint32_t t, uint32_t v) __attribute__((always_inline)) { store_floats(at(t, v), acc[t][v]); });
  }
}

// The same for any number of tokens.
template <typename T, uint32_t planes>
static void multiply_all_units(const UnitChunk& chunk, ChunkUnits units, const Activations& x,
                               uint32_t tokens, float* sums) {
  constexpr bool kHasMinima = SpanScales<T>::kHasMinima;
  constexpr uint32_t kSums = kLanes * kTileRows;  // of a token
  uint32_t t = 0;
  for (; t + 4 <= tokens; t += 4)
    multiply_units<T::kGroup, kHasMinima, planes, 4>(chunk, units, x.from(t), sums + uint64_t(t) * kSums);
  for (; t + 2 <= tokens; t += 2)
    multiply_units<T::kGroup, kHasMinima, planes, 2>(chunk, units, x.from(t), sums + uint64_t(t) * kSums);
  for (; t < tokens; ++t)
    multiply_units<T::kGroup, kHasMinima, planes, 1>(chunk, units, x.from(t), sums + uint64_t(t) * kSums);
}

// As MultiplyTile says.
template <typename T, uint32_t planes>
static void multiply_unit_tile(const Matrix& w, uint32_t first, const Activations& x, uint64_t row,
                               uint32_t tokens, float* sums) {
  constexpr uint32_t kTokens = 128;                             // whose sums stay in the first-level cache
  constexpr uint32_t kUnits = kSpan<T> / (kLanes * T::kGroup);  // of a span
  const uint32_t rows = least(kTileRows, w.out - first);
  const uint32_t whole = w.in / kSpan<T> * kSpan<T>;
  for (uint32_t t = 0; t < tokens; t += kTokens) {
    const uint32_t count = least(kTokens, tokens - t);
    const Activations own = x.from(row + t);
    UnitChunk chunk;
    float parts[kTokens][kLanes][kTileRows];
    std::memset(parts, 0, sizeof parts[0] * count);
    const auto multiply = [&](uint32_t column, ChunkUnits units) {
      multiply_all_units<T, planes>(chunk, units, own.from_column(column, w.group_shift, planes), count,
                                    parts[0][0]);
    };
    for (uint32_t begin = 0; begin < whole; begin += kUnitChunk) {
      const uint32_t spans = least(kUnitChunk, whole - begin) / kSpan<T>;
      load_units<T>(w.row(first) + begin / T::kBlock * T::kBlockBytes, w.row_bytes, rows, spans, chunk);
      multiply(begin, {spans * kUnits, 0, kLanes});
    }
    if constexpr (!kLarge<T>)
      if (const LastSpan last(w); last.groups > 0) {
        uint8_t copies[kTileRows][kSpanBytes<T>];
        const uint8_t* from = w.row(first) + last.first * T::kBlockBytes;
        uint64_t step = w.row_bytes;
        if (last.is_row) {
          std::memset(copies, 0, sizeof copies);
          for (uint32_t r = 0; r < rows; ++r) std::memcpy(copies[r], from + r * step, w.row_bytes);
          from = copies[0];
          step = sizeof copies[0];
        }
        load_units<T>(from, step, rows, 1, chunk);
        multiply(last.first * T::kBlock, {1, last.skipped, last.skipped + last.groups});
      }
    for (uint32_t i = 0; i < count; ++i) {
      float* y = sums + uint64_t(t + i) * kTileRows;
      I32 found = {};
      for (uint32_t r = 0; r < kTileRows; r += kLanes) {
        const auto part = [&](uint32_t l) { return load_floats(parts[i][l] + r); };
        const F32 result = (part(0) + part(2)) + (part(1) + part(3));
        store_floats(y + r, result);
        found |= doubtful(result);
      }
      if (any(found))
        compute_again(w, first, rows, {read_block, T::kBlock}, {own.from(i), planes, kNatural}, y);
    }
  }
}

}  // namespace pyturbo::cpu::PYTURBO_LEVEL
