// Products with quantised matrices, as the kernels see them.
#pragma once

#include "cpu/kernels/kernel.h"
#include "cpu/kernels/quantized_matrix.h"

namespace pyturbo::cpu::PYTURBO_ISA {

// y[t] = w x[t], or with two matrices silu(w x[t]) * (up x[t]), for `tokens` rows of the launch's activations
// from row `x` on. y is [tokens, out].
struct Product {
  Matrix w;
  Matrix up;
  bool gated;  // there is an `up`
  bool known;  // else y is NaN
  uint64_t x;
  uint32_t tokens;
  float* y;
};

// The products of one launch: all of one shape.
struct Products {
  uint64_t count;
  uint32_t out;
  Product (*at)(const FastLaunch& launch, uint64_t i);
};

// Activations of a launch, quantised for weights of the launch's format, in memory of its batch.
Activations row_activations(const FastLaunch& launch, const float* x, uint64_t rows, uint32_t in,
                            uint32_t group_size);

// The same for tiles, which meet floats by default and integers with fast precision.
Activations tile_activations(const FastLaunch& launch, const float* x, uint64_t rows, uint32_t in,
                             uint32_t group_size);

// Runs products with few tokens each (rows), or with many (tiles). `rows` is the number of rows of x.
void run_rows(const FastLaunch& launch, const Products& products, const Activations& x);
void run_tiles(const FastLaunch& launch, const Products& products, const Activations& x, uint64_t rows);

}  // namespace pyturbo::cpu::PYTURBO_ISA
