// Some columns of a few rows of GGUF blocks, as a matrix of bytes with scales and biases in f32: what the
// loops over quantised matrices read.
#pragma once

#include "cpu/kernels/quantized_matrix.h"

namespace pyturbo::cpu::PYTURBO_LEVEL {

template <uint32_t rows, uint32_t columns>
struct Panel {
  static constexpr uint32_t kColumns = columns;
  static constexpr uint32_t kGroups = columns / 16;  // of a row, at most
  alignas(64) uint8_t codes[rows * columns + kBytes];
  alignas(64) float scales[rows * kGroups + kLanes];
  alignas(64) float biases[rows * kGroups + kLanes];

  // Reads `count` rows of w, from row `first` and column `begin` on, to the end of the panel or of the rows;
  // without `all`, codes stay where they are.
  Matrix load(const Matrix& w, uint32_t first, uint32_t count, uint32_t begin, bool all = true) {
    const Reader& reader = *w.reader;
    const uint32_t width = least(columns, w.in - begin);
    const uint64_t offset = uint64_t(begin / reader.block) * reader.block_bytes;
    const uint32_t groups = width / reader.group;
    if (width == w.in)  // the rows are one sequence of blocks
      reader.read(w.row(first), count * (width / reader.block), all ? codes : nullptr, scales, biases);
    for (uint32_t r = 0; r < count && width < w.in; ++r)
      reader.read(w.row(first + r) + offset, width / reader.block, all ? codes + r * width : nullptr,
                  scales + r * groups, biases + r * groups);
    Matrix part = {codes, scales, biases, {8, DType::f32, 0}, 1.0f, count, width, reader.group};
    if (!all) {
      part.packed = w.row(first) + offset;
      part.row_bytes = w.row_bytes;
    }
    return part;
  }
};

}  // namespace pyturbo::cpu::PYTURBO_LEVEL
