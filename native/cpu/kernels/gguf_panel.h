// Some columns of a few rows of GGUF blocks, as the loops over quantised matrices read them: bytes, with
// scales and biases in f32.
#pragma once

#include "cpu/kernels/quantized_matrix.h"

namespace pyturbo::cpu::PYTURBO_LEVEL {

// A matrix of bytes.
template <uint32_t rows, uint32_t columns>
struct Panel {
  static constexpr uint32_t kGroups = columns / 16;  // of a row, at most
  alignas(64) uint8_t codes[rows * columns + kBytes];
  alignas(64) float scales[rows * kGroups + kLanes];
  alignas(64) float biases[rows * kGroups + kLanes];

  // Reads `count` rows of w, from row `first` and column `begin` on, to the end of the panel or of the rows.
  Matrix load(const Matrix& w, uint32_t first, uint32_t count, uint32_t begin) {
    const uint32_t width = least(columns, w.in - begin);
    const Reader& reader = *w.reader;
    const uint64_t offset = uint64_t(begin / reader.block) * reader.block_bytes;
    const uint32_t blocks = width / reader.block, groups = width / reader.group;
    if (width == w.in)  // the rows are one sequence of blocks
      reader.read(w.row(first), count * blocks, codes, scales, biases);
    else
      for (uint32_t r = 0; r < count; ++r)
        reader.read(w.row(first + r) + offset, blocks, codes + r * width, scales + r * groups,
                    biases + r * groups);
    return {codes, scales, biases, {8, DType::f32, 0}, 1.0f, count, width, reader.group};
  }
};

}  // namespace pyturbo::cpu::PYTURBO_LEVEL
