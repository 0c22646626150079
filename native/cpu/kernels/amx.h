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

// sums[i] (+)= w[i] x, for two tiles i of rows of w and one of x, over `steps` steps of columns. Of three
// terms of each factor, the six products that reach the 24 bits of a float are added; with one term of x all
// are. Four tiles and no more: while the other thread of a core is busy, its tiles leave few for renaming,
// and each further tile in use makes every load wait longer for the products before it.
//   w: [steps, w_terms, 2, kTileValues], rows of the tile in order
//   x: [steps, x_terms, kTileValues], transposed pairs
//   sums: [2, kTileSums], [row of w, row of x] each
template <uint32_t w_terms, uint32_t x_terms>
static void multiply_terms(const uint16_t* w, const uint16_t* x, uint32_t steps, bool fresh, float* sums) {
  static_assert((w_terms == 2 && x_terms == 1) || (w_terms == 3 && x_terms == 3));
  // The compiler does not know what memory the instructions read.
  asm volatile("" : : : "memory");
  if (fresh) {
    _tile_zero(0);
    _tile_zero(1);
  } else {
    _tile_loadd(0, sums, kTilePitch);
    _tile_loadd(1, sums + kTileSums, kTilePitch);
  }
  const auto load_x = [&](uint32_t term) __attribute__((always_inline)) {
    _tile_loadd(3, x + term * kTileValues, kTilePitch);
  };
  // Adds the product of x with a term of the first tile of w, or the second.
  const auto first = [&](uint32_t term) __attribute__((always_inline)) {
    _tile_loadd(2, w + term * 2 * kTileValues, kTilePitch);
    _tile_dpbf16ps(0, 2, 3);
  };
  const auto second = [&](uint32_t term) __attribute__((always_inline)) {
    _tile_loadd(2, w + (term * 2 + 1) * kTileValues, kTilePitch);
    _tile_dpbf16ps(1, 2, 3);
  };
  for (uint32_t step = 0; step < steps; ++step) {
    if constexpr (x_terms == 3) {
      load_x(2);
      first(0);
      second(0);
      load_x(1);
      _tile_dpbf16ps(1, 2, 3);
      first(0);
      first(1);
      second(1);
      load_x(0);
      _tile_dpbf16ps(1, 2, 3);
      first(1);
      first(2);
      second(2);
    } else {
      load_x(0);
      first(1);
      second(1);
    }
    second(0);
    first(0);
    w += w_terms * 2 * kTileValues;
    x += x_terms * kTileValues;
  }
  _tile_stored(0, sums, kTilePitch);
  _tile_stored(1, sums + kTileSums, kTilePitch);
  asm volatile("" : : : "memory");
}

}  // namespace pyturbo::cpu::PYTURBO_LEVEL
