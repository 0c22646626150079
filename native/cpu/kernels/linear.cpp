// Products with weights that are not quantised: shaders/linear specifies each kernel.
#include "arguments/linear/dense_experts_matvec.h"
#include "arguments/linear/dense_grouped_matmul.h"
#include "arguments/linear/dense_matmul.h"
#include "arguments/linear/dense_matvec.h"
#include "cpu/kernels/bodies.h"
#include "cpu/kernels/scratch.h"
#include "cpu/kernels/slots.h"
#include "cpu/kernels/tile.h"

namespace pyturbo::cpu::PYTURBO_LEVEL {
namespace {

constexpr uint32_t kPartials = 16 / kLanes;  // vectors of partial sums, so that every level has at least 16
constexpr uint32_t kStep = kPartials * kLanes;
constexpr uint32_t kTokenBlock = 4;
constexpr uint32_t kRowBlock = 8;
constexpr uint32_t kFewestOfTile = 8;  // tokens: fewer take longer than a tile takes to be loaded
constexpr double kByteTime = 0.1;      // nanoseconds to read a byte of weights
// Nanoseconds of a product in a tile, on one core of a Cascade Lake Xeon.
constexpr double kProductTime = 0.025;

// y[t * out] = row . x[t] for a few tokens. The additions of one token do not depend on how many there are.
template <typename W, uint32_t tokens>
PYTURBO_INLINE void dot_row(const W* row, const float* x, uint32_t in, float* y, uint64_t out) {
  F32 acc[tokens][kPartials] = {};
  uint32_t i = 0;
  for (; i + kStep <= in; i += kStep) {
#pragma GCC unroll 4
    for (uint32_t part = 0; part < kPartials; ++part) {
      const F32 w = load_floats(row + i + part * kLanes);
#pragma GCC unroll 4
      for (uint32_t t = 0; t < tokens; ++t)
        acc[t][part] = fused(w, load_floats(x + uint64_t(t) * in + i + part * kLanes), acc[t][part]);
    }
  }
  for (; i < in; i += kLanes) {
    const uint32_t count = least(kLanes, in - i);
    const F32 w = count == kLanes ? load_floats(row + i) : load_floats(row + i, count, count);
#pragma GCC unroll 4
    for (uint32_t t = 0; t < tokens; ++t) {
      const float* from = x + uint64_t(t) * in + i;
      acc[t][0] = fused(w, count == kLanes ? load_floats(from) : load_floats(from, count, count), acc[t][0]);
    }
  }
#pragma GCC unroll 4
  for (uint32_t t = 0; t < tokens; ++t) {
    F32 total = acc[t][0];
#pragma GCC unroll 4
    for (uint32_t part = 1; part < kPartials; ++part) total += acc[t][part];
    y[t * out] = sum(total);
  }
}

// y[t, r] for the rows from `first` on.
template <typename W>
void dot_rows(const W* weight, const float* x, uint32_t tokens, uint32_t in, float* y, uint32_t out,
              uint32_t first, uint32_t rows) {
  for (uint32_t t = 0; t < tokens; t += kTokenBlock) {
    const float* from = x + uint64_t(t) * in;
    for (uint32_t r = first; r < first + rows; ++r) {
      const W* row = weight + uint64_t(r) * in;
      float* to = y + uint64_t(t) * out + r;
      switch (tokens - t) {
        case 1:
          dot_row<W, 1>(row, from, in, to, out);
          break;
        case 2:
          dot_row<W, 2>(row, from, in, to, out);
          break;
        case 3:
          dot_row<W, 3>(row, from, in, to, out);
          break;
        default:
          dot_row<W, kTokenBlock>(row, from, in, to, out);
      }
    }
  }
}

// Columns [begin, begin + kChunk) of the rows of a tile, one in each lane; those past the matrix repeat the
// last.
template <typename W>
void load_chunk(const W* weight, uint32_t in, uint32_t out, uint32_t first, uint32_t begin,
                TileChunk& chunk) {
  const uint32_t columns = least(kChunk, in - begin);
  for (uint32_t v = 0; v < kTileVectors; ++v) {
    const W* from[kLanes];
    for (uint32_t l = 0; l < kLanes; ++l)
      from[l] = weight + uint64_t(least(first + v * kLanes + l, out - 1)) * in + begin;
    for (uint32_t i = 0; i < columns; i += kLanes) {
      const uint32_t count = least(kLanes, columns - i);
      U8 rows[kLanes];
      for (uint32_t l = 0; l < kLanes; ++l)
        rows[l] = (U8)(count == kLanes ? load_floats(from[l] + i) : load_floats(from[l] + i, count, count));
      transpose(rows);
      for (uint32_t l = 0; l < count; ++l) chunk.values[i + l][v] = (F32)rows[l];
    }
  }
}

// y[t, r] for the rows of a tile from `first` on that exist.
template <typename W>
void multiply_tile(const W* weight, const float* x, uint32_t tokens, uint32_t in, float* y, uint32_t out,
                   uint32_t first) {
  const uint64_t bytes = sizeof(float) * kTileRows * tokens;
  float* sums = static_cast<float*>(item_scratch(bytes));
  std::memset(sums, 0, bytes);
  TileChunk chunk;
  for (uint32_t begin = 0; begin < in; begin += kChunk) {
    load_chunk(weight, in, out, first, begin, chunk);
    multiply_rows_of(chunk, least(kChunk, in - begin), x + begin, in, tokens, sums);
  }
  for (uint32_t t = 0; t < tokens; ++t)
    std::memcpy(y + uint64_t(t) * out + first, sums + t * kTileRows,
                sizeof(float) * least(kTileRows, out - first));
}

template <typename A>
void dense_matvec(Batch& batch, const A& a) {
  const uint64_t blocks = (a.out + kRowBlock - 1) / kRowBlock;
  const double bytes = double(a.in) * sizeof(*a.weight) * kRowBlock * a.tokens;
  batch.add(blocks, bytes * kByteTime, [=](uint64_t begin, uint64_t end) {
    for (uint64_t block = begin; block < end; ++block) {
      const uint32_t first = uint32_t(block) * kRowBlock;
      dot_rows(a.weight, a.x, a.tokens, a.in, a.y, a.out, first, least(kRowBlock, a.out - first));
    }
  });
}

template <typename W>
void dense_matmul(Batch& batch, const arguments::dense_matmul<W>& a) {
  if (a.tokens < kFewestOfTile) return dense_matvec(batch, a);
  const uint64_t tiles = (a.out + kTileRows - 1) / kTileRows;
  const double products = double(a.in) * a.tokens * kTileRows;
  batch.add(tiles, products * kProductTime, [=](uint64_t begin, uint64_t end) {
    for (uint64_t tile = begin; tile < end; ++tile)
      multiply_tile(a.weight, a.x, a.tokens, a.in, a.y, a.out, uint32_t(tile) * kTileRows);
  });
}

template <typename W>
void dense_experts_matvec(Batch& batch, const arguments::dense_experts_matvec<W>& a) {
  const uint64_t blocks = (a.out + kRowBlock - 1) / kRowBlock;
  const double bytes = double(a.in) * sizeof(W) * kRowBlock;
  const Slots slots(a);
  batch.add(uint64_t(a.tokens) * a.k * blocks, bytes * kByteTime, [=](uint64_t begin, uint64_t end) {
    for (uint64_t item = begin; item < end; ++item) {
      const uint64_t choice = item / blocks;
      const uint32_t first = uint32_t(item % blocks) * kRowBlock;
      const uint32_t rows = least(kRowBlock, a.out - first);
      const int32_t number = slots.at(uint32_t(a.ids[choice]));  // a negative id is a large one
      if (number < 0) continue;
      float* y = a.y + choice * a.out;
      if (!slots.has(number)) {
        for (uint32_t r = first; r < first + rows; ++r) y[r] = __builtin_nanf("");
        continue;
      }
      const float* x = a.x + (choice / a.k * a.x_rows + choice % a.k % a.x_rows) * a.in;
      dot_rows(a.weight + uint32_t(number) * a.weight_stride, x, 1, a.in, y, a.out, first, rows);
    }
  });
}

template <typename W>
void dense_grouped_matmul(Batch& batch, const arguments::dense_grouped_matmul<W>& a) {
  const uint64_t blocks = (a.out + kTileRows - 1) / kTileRows;
  const double products = double(a.in) * kTileRows * a.rows / a.experts;
  const Slots slots(a);
  batch.add(a.experts * blocks, products * kProductTime, [=](uint64_t begin, uint64_t end) {
    for (uint64_t item = begin; item < end; ++item) {
      const uint32_t expert = uint32_t(item / blocks);
      const uint32_t from = least(uint32_t(a.offsets[expert]), a.rows);
      const uint32_t to = least(uint32_t(a.offsets[expert + 1]), a.rows);
      const int32_t number = slots.at(expert);
      if (number < 0 || from >= to) continue;
      const uint32_t first = uint32_t(item % blocks) * kTileRows;
      const uint32_t rows = least(kTileRows, a.out - first), tokens = to - from;
      float* y = a.y + uint64_t(from) * a.out;
      if (!slots.has(number)) {
        for (uint32_t t = 0; t < tokens; ++t)
          for (uint32_t r = first; r < first + rows; ++r) y[uint64_t(t) * a.out + r] = __builtin_nanf("");
        continue;
      }
      const W* weight = a.weight + uint32_t(number) * a.weight_stride;
      const float* x = a.x + uint64_t(from) * a.in;
      if (tokens < kFewestOfTile)
        dot_rows(weight, x, tokens, a.in, y, a.out, first, rows);
      else
        multiply_tile(weight, x, tokens, a.in, y, a.out, first);
    }
  });
}

}  // namespace

PYTURBO_BODIES(linear, PYTURBO_BODY(dense_matvec), PYTURBO_BODY(dense_matmul),
               PYTURBO_BODY(dense_experts_matvec), PYTURBO_BODY(dense_grouped_matmul))

}  // namespace pyturbo::cpu::PYTURBO_LEVEL
