// Tiles of AMX: products of bfloats, added in f32. An instruction multiplies 16 rows of one factor with 16 of
// the other, kTermStep columns each.
#pragma once

#include <immintrin.h>

#include "cpu/kernels/bfloat_terms.h"

namespace pyturbo::cpu::PYTURBO_LEVEL {

constexpr uint32_t kSide = 16;                       // rows and columns of a tile of sums
constexpr uint32_t kTileSums = kSide * kSide;        // floats
constexpr uint32_t kTileValues = kSide * kTermStep;  // bfloats of a tile of a factor
constexpr uint32_t kTilePitch = 64;                  // bytes of a row of any tile

// Keeps the tiles of this thread configured, all with 16 rows of 64 bytes. While they are, a switch to
// another thread saves them, so this lives no longer than some items of a launch.
class AmxTiles {
 public:
  AmxTiles() {
    struct alignas(64) {
      uint8_t palette = 1, start_row = 0, reserved[14] = {};
      uint16_t row_bytes[16] = {};
      uint8_t rows[16] = {};
    } shape;
    for (uint32_t tile = 0; tile < 8; ++tile) {
      shape.row_bytes[tile] = kTilePitch;
      shape.rows[tile] = kSide;
    }
    asm volatile("" : : "r"(&shape) : "memory");
    _tile_loadconfig(&shape);
  }
  ~AmxTiles() { _tile_release(); }
  AmxTiles(const AmxTiles&) = delete;
  AmxTiles& operator=(const AmxTiles&) = delete;
};

// sums[j, i] (+)= w[i] x[j], for two tiles i of rows of w and one or two tiles j of rows of x, over `steps`
// steps of columns. Of three terms of each factor, the six products that reach the 24 bits of a float are
// added, the small ones first. between() is called where other units than those for tiles have time.
//   w: [steps, kTerms, 2, kTileValues], rows of the tile in order
//   x: `first` and `second` are each [steps, x_terms, kTileValues], transposed pairs
//   sums: [2 (j), 2 (i), kTileSums], [row of w, row of x] each
template <uint32_t x_terms, bool two, typename Between>
[[gnu::noinline]] static void multiply_terms(const uint16_t* w, const uint16_t* first, const uint16_t* second,
                                             uint32_t steps, bool fresh, float* sums, Between& between) {
  static_assert(x_terms == 1 || x_terms == 3);
  // The compiler does not know what memory the instructions read.
  asm volatile("" : : : "memory");
  if (fresh) {
    _tile_zero(0);
    _tile_zero(1);
    _tile_zero(2);
    _tile_zero(3);
  } else {
    _tile_loadd(0, sums, kTilePitch);
    _tile_loadd(1, sums + kTileSums, kTilePitch);
    if constexpr (two) {
      _tile_loadd(2, sums + 2 * kTileSums, kTilePitch);
      _tile_loadd(3, sums + 3 * kTileSums, kTilePitch);
    }
  }
  // Multiplies with the next term of w, or of x.
  const auto next_w = [&](uint32_t term) __attribute__((always_inline)) {
    const uint16_t* from = w + term * 2 * kTileValues;
    _tile_loadd(4, from, kTilePitch);
    _tile_dpbf16ps(0, 4, 6);
    if constexpr (two) _tile_dpbf16ps(2, 4, 7);
    _tile_loadd(5, from + kTileValues, kTilePitch);
    _tile_dpbf16ps(1, 5, 6);
    if constexpr (two) _tile_dpbf16ps(3, 5, 7);
    between();
  };
  const auto next_x = [&](uint32_t term) __attribute__((always_inline)) {
    _tile_loadd(6, first + term * kTileValues, kTilePitch);
    _tile_dpbf16ps(0, 4, 6);
    _tile_dpbf16ps(1, 5, 6);
    if constexpr (two) {
      _tile_loadd(7, second + term * kTileValues, kTilePitch);
      _tile_dpbf16ps(2, 4, 7);
      _tile_dpbf16ps(3, 5, 7);
    }
    between();
  };
  for (uint32_t step = 0; step < steps; ++step) {
    _tile_loadd(6, first, kTilePitch);
    if constexpr (two) _tile_loadd(7, second, kTilePitch);
    next_w(2);
    next_w(1);
    if constexpr (x_terms == 1) {
      next_w(0);
    } else {
      next_x(1);
      next_w(0);
      next_x(2);
      next_x(0);
    }
    w += kTerms * 2 * kTileValues;
    first += x_terms * kTileValues;
    second += x_terms * kTileValues;
  }
  _tile_stored(0, sums, kTilePitch);
  _tile_stored(1, sums + kTileSums, kTilePitch);
  if constexpr (two) {
    _tile_stored(2, sums + 2 * kTileSums, kTilePitch);
    _tile_stored(3, sums + 3 * kTileSums, kTilePitch);
  }
  asm volatile("" : : : "memory");
}

}  // namespace pyturbo::cpu::PYTURBO_LEVEL
