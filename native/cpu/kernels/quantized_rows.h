// Rows of a quantised matrix times few rows of activations: per block an exact integer dot product, scaled
// and added to kLanes partial sums. The arithmetic of one result depends neither on the other rows nor on how
// many tokens there are.
#pragma once

#include "cpu/kernels/quantized_again.h"
#include "cpu/kernels/row.h"

namespace pyturbo::cpu::PYTURBO_LEVEL {

constexpr uint32_t kGroupChunk = 64;       // groups that are prepared at a time
constexpr uint32_t kPrefetchBytes = 4096;  // how far ahead weights are asked for, at least

// Whole passes of `rows` rows, which share their prefetches.
PYTURBO_INLINE uint64_t prefetch_distance(const Matrix& w, uint32_t rows) {
  const uint64_t pass = rows * w.row_bytes;
  if (pass >= kPrefetchBytes) return pass;
  const auto bytes = uint32_t(pass);  // whose division takes a third of the time
  return (kPrefetchBytes + bytes - 1) / bytes * bytes;
}

// Lane -> group of a block, as an index into the groups that start there.
template <typename Q>
PYTURBO_INLINE I32 lane_groups(uint32_t group_shift) {
  I32 index;
  for (uint32_t l = 0; l < kLanes; ++l) index[l] = int32_t((l * Order<Q::kBits>::kLaneValues) >> group_shift);
  return index;
}

// Rows that are multiplied together. Vectors of 32 bytes have registers for one.
constexpr uint32_t kRowsInTurn = kBytes == 32 ? 1 : 4;

// A few tokens' integers from some place of their rows on.
struct TokenBytes {
  const int8_t* from;
  uint64_t token_bytes, plane_bytes;  // from one to the next

  S8 at(uint32_t token, uint32_t plane, uint32_t vector) const {
    return load_vector<S8>(from + token * token_bytes + plane * plane_bytes + vector * kBytes);
  }
};

// dots[t][i] = the dot products of token t with the codes of row i in each lane, as floats. The sums take
// turns, since each would wait for itself; with NEON the compiler sees to that. Sums of SmallIntegers stay in
// 32 bits where codes times vectors are at most 64.
template <typename Q, uint32_t planes, uint32_t vectors, uint32_t tokens, uint32_t rows>
PYTURBO_INLINE void dot_rows(const U8 (*codes)[vectors], const TokenBytes& x, F32 (*dots)[rows]) {
  // 8-bit weights need more than 32 bits for 24-bit activations: the high plane is added as a float.
  constexpr uint32_t kFirst = kDotBits<Q> == 8 && planes == 3 ? 1 : 0;
  const auto each = [](const auto& fn) __attribute__((always_inline)) {
#pragma GCC unroll 8
    for (uint32_t t = 0; t < tokens; ++t)
#pragma GCC unroll 4
      for (uint32_t i = 0; i < rows; ++i) fn(t, i);
  };
  I32 totals[tokens][rows] = {}, high[tokens][rows] = {};
  const auto add = [&](uint32_t plane, I32(*sums)[rows]) __attribute__((always_inline)) {
    each([&](uint32_t t, uint32_t i) __attribute__((always_inline)) {
      S8 own[vectors];
#pragma GCC unroll 4
      for (uint32_t v = 0; v < vectors; ++v) own[v] = x.at(t, plane, v);
      sums[t][i] = dot_all<kDotBits<Q>, vectors>(sums[t][i], codes[i], own);
    });
    if constexpr (kBytes > 16 && tokens * rows > 1)
      each([&](uint32_t t, uint32_t i) __attribute__((always_inline)) { sums[t][i] = in_turn(sums[t][i]); });
  };
  if constexpr (kFirst == 1) add(0, high);
#pragma GCC unroll 3
  for (uint32_t plane = kFirst; plane < planes; ++plane) {
    if (plane > kFirst)
      each([&](uint32_t t, uint32_t i) __attribute__((always_inline)) { totals[t][i] <<= 8; });
    add(plane, totals);
  }
  each([&](uint32_t t, uint32_t i) __attribute__((always_inline)) {
    dots[t][i] = planes == 1 ? small_to_float(totals[t][i]) : to_float(totals[t][i]);
    if constexpr (kFirst == 1) dots[t][i] = fused(to_float(high[t][i]), splat(65536), dots[t][i]);
  });
}

// A block of rows at work on a few tokens.
template <uint32_t tokens>
struct RowBlock {
  static constexpr uint32_t kStride = kGroupChunk + kLanes;
  uint64_t ahead;                                         // bytes from a weight to the one to prefetch
  uint32_t stride;                                        // from one row's scales to the next
  alignas(64) float scales[tokens][kRowBlock * kStride];  // of weight times of activation
  F32 sums[tokens][kRowBlock];

  const float* scales_of(uint32_t token, uint32_t row) const { return scales[token] + row * stride; }
};

// Groups [first, last) of some rows: loads their scales, and adds their biases to the sums.
template <typename S, uint32_t tokens>
static void prepare_chunk(const Matrix& w, uint32_t row, uint32_t rows, const Activations& x, float offset,
                          uint32_t first, uint32_t last, RowBlock<tokens>& block) {
  block.stride = block.kStride;
  for (uint32_t r = 0; r < rows; ++r) {
    F32 sums[tokens];
#pragma GCC unroll 4
    for (uint32_t t = 0; t < tokens; ++t) sums[t] = block.sums[t][r];
    for (uint32_t g = first; g < last; g += kLanes) {
      const GroupVector v = load_groups_as<S>(w, row + r, g, w.groups - g, offset);
#pragma GCC unroll 4
      for (uint32_t t = 0; t < tokens; ++t) {
        const uint64_t place = t * x.stride + g;
        store_floats(block.scales[t] + r * block.kStride + (g - first),
                     v.scales * load_floats(x.scales + place));
        sums[t] = fused(v.biases, load_floats(x.sums + place), sums[t]);
      }
    }
#pragma GCC unroll 4
    for (uint32_t t = 0; t < tokens; ++t) block.sums[t][r] = sums[t];
  }
}

// All groups of some rows, where a row has few: the groups of all rows are consecutive, and vectors go
// over the ends of rows.
template <typename S, uint32_t tokens>
static void prepare_rows(const Matrix& w, uint32_t row, uint32_t rows, const Activations& x, float offset,
                         RowBlock<tokens>& block) {
  block.stride = w.groups;
  alignas(64) float biases[tokens][kRowBlock * kShortRow + kLanes];  // times the sum of activations
  const uint32_t count = rows * w.groups;
  for (uint32_t i = 0; i < count; i += kLanes) {
    const GroupVector v = load_groups_as<S>(w, row, i, count - i, offset);
#pragma GCC unroll 4
    for (uint32_t t = 0; t < tokens; ++t) {
      const uint64_t place = t * x.stride + i;
      store_floats(block.scales[t] + i, v.scales * load_floats(x.scales + place));
      store_floats(biases[t] + i, v.biases * load_floats(x.sums + place));
    }
  }
  const I32 rest = first_lanes((w.groups - 1) % kLanes + 1);
  for (uint32_t t = 0; t < tokens; ++t)
    for (uint32_t r = 0; r < rows; ++r) {
      const float* own = biases[t] + r * w.groups;
      F32 sums = {};
      uint32_t g = 0;
      for (; g + kLanes < w.groups; g += kLanes) sums += load_floats(own + g);
      block.sums[t][r] = sums + (F32)((I32)load_floats(own + g) & rest);
    }
}

// Prepares a block for codes that stand for code + offset.
template <uint32_t tokens>
static void prepare(const Matrix& w, uint32_t row, uint32_t rows, const Activations& x, float offset,
                    uint32_t first, uint32_t last, RowBlock<tokens>& block) {
  by_scale_type(w, [&](auto type) {
    using S = decltype(type);
    if (x.repeated)
      prepare_rows<S>(w, row, rows, x, offset, block);
    else
      prepare_chunk<S>(w, row, rows, x, offset, first, last, block);
  });
}

template <uint32_t tokens>
constexpr uint32_t kRowsAtOnce = tokens == 1   ? 4
                                 : tokens == 2 ? 2
                                               : 1;

// Adds the groups [first, last) of kRowsAtOnce rows from row `r` of a block on, which starts at row `row` of
// w. With `step` 0 instead of 1, all of them are row `r`.
template <uint32_t tokens>
using AddGroups = void (*)(const Matrix& w, uint32_t row, uint32_t r, uint32_t step, const Activations& x,
                           uint32_t first, uint32_t last, RowBlock<tokens>& at);

template <typename Q, uint32_t planes, uint32_t tokens>
static void add_groups(const Matrix& w, uint32_t row, uint32_t r, uint32_t step, const Activations& x,
                       uint32_t first, uint32_t last, RowBlock<tokens>& at) {
  using O = Order<Q::kBits>;
  constexpr uint32_t kRows = kRowsAtOnce<tokens>;
  const I32 groups = lane_groups<Q>(w.group_shift);
  F32 acc[tokens][kRows];
#pragma GCC unroll 4
  for (uint32_t t = 0; t < tokens; ++t)
#pragma GCC unroll 4
    for (uint32_t i = 0; i < kRows; ++i) acc[t][i] = at.sums[t][r + i * step];

  const uint64_t scale_step = step * at.stride;
  const auto group_of = [&](uint32_t block) { return (block * O::kBlock >> w.group_shift) - first; };
  const auto bytes_of = [&](uint32_t block) {
    return TokenBytes{x.planes + uint64_t(block) * planes * O::kBlock, x.row_bytes, O::kBlock};
  };
  const uint32_t values = last << w.group_shift;
  uint32_t block = (first << w.group_shift) / O::kBlock;
  const uint8_t* packed = w.row(row + r);
  const uint64_t row_step = step * w.row_bytes;
  for (; block < values / O::kBlock; ++block) {
    constexpr uint32_t kTogether = least(kRows, kRowsInTurn);
#pragma GCC unroll 4
    for (uint32_t begin = 0; begin < kRows; begin += kTogether) {
      U8 codes[kTogether][O::kClasses];
#pragma GCC unroll 4
      for (uint32_t i = 0; i < kTogether; ++i) {
        const uint8_t* from = packed + (begin + i) * row_step + uint64_t(block) * O::kBlockBytes;
        __builtin_prefetch(from + at.ahead);
        unpack<Q>(from, codes[i]);
      }
      F32 dots[tokens][kTogether];
      dot_rows<Q, planes, O::kClasses, tokens>(codes, bytes_of(block), dots);
#pragma GCC unroll 4
      for (uint32_t t = 0; t < tokens; ++t) {
        const float* scales = at.scales_of(t, r) + group_of(block);
#pragma GCC unroll 4
        for (uint32_t i = begin; i < begin + kTogether; ++i)
          acc[t][i] = fused(dots[t][i - begin], pick(scales + i * scale_step, groups), acc[t][i]);
      }
    }
  }
#pragma GCC unroll 4
  for (uint32_t t = 0; t < tokens; ++t)
#pragma GCC unroll 4
    for (uint32_t i = 0; i < kRows; ++i) at.sums[t][r + i * step] = acc[t][i];
  if (values % O::kBlock == 0) return;
  // Lanes past the row hold zeros, and take the scale of its last group: another row's may be infinite.
  const int32_t most = int32_t(last - 1 - first - group_of(block));
  const I32 index = groups < most ? groups : I32{} + most;
  for (uint32_t i = 0; i < (step == 0 ? 1 : kRows); ++i) {
    U8 codes[1][O::kClasses];
    unpack_block<Q>(w, row + r + i, uint64_t(block) * O::kBlockBytes, codes[0]);
    F32 dots[tokens][1];
    dot_rows<Q, planes, O::kClasses, tokens>(codes, bytes_of(block), dots);
    for (uint32_t t = 0; t < tokens; ++t) {
      F32& sums = at.sums[t][r + i];
      sums = fused(dots[t][0], pick(at.scales_of(t, r) + group_of(block) + i * scale_step, index), sums);
    }
  }
}

// The inner loops of a kind of codes; all around them is shared by the kinds.
struct RowLoops {
  AddGroups<1> one;
  AddGroups<2> two;  // or null, as the next two
  AddGroups<4> four;
  AddGroups<8> eight;
  float offset;     // a byte of codes plus this is the number
  uint32_t planes;  // of activations
  ByteOrder order;
  ReadValues values;
  bool whole_rows;  // with their scales, else codes and scales that are prepared
};

// y[r] = the sum of the lanes of sums[r], for the first `rows` of kRowBlock. Returns whether one is doubtful.
static inline bool store_sums(const F32* sums, uint32_t rows, float* y) {
  static_assert(kRowBlock % kLanes == 0);
  I32 found = {};
  for (uint32_t r = 0; r < rows; r += kLanes) {
    const F32 results = sums_of(sums + r);
    const uint32_t count = least(kLanes, rows - r);
    store_some(y + r, results, count);
    found |= doubtful(results) & first_lanes(count);
  }
  return any(found);
}

// Adds the groups [begin, end) of up to kRowBlock rows of w from `first` on.
template <uint32_t tokens>
static void add_rows(AddGroups<tokens> add, const Matrix& w, uint32_t first, uint32_t rows,
                     const Activations& x, uint32_t begin, uint32_t end, RowBlock<tokens>& block) {
  constexpr uint32_t kRows = kRowsAtOnce<tokens>;
  uint32_t r = 0;
  for (; r + kRows <= rows; r += kRows) add(w, first, r, /*step=*/1, x, begin, end, block);
  for (; r < rows; ++r) add(w, first, r, /*step=*/0, x, begin, end, block);
}

// y[t * y_stride + r] = row first + r of w times x[t], for up to kRowBlock rows and a few tokens.
template <uint32_t tokens>
static void multiply_few(AddGroups<tokens> add, const RowLoops& loops, const Matrix& w, uint32_t first,
                         uint32_t rows, const Activations& x, float* y, uint64_t y_stride) {
  RowBlock<tokens> block;
  for (uint32_t t = 0; t < tokens; ++t)
    for (uint32_t r = 0; r < kRowBlock; ++r) block.sums[t][r] = F32{};
  block.ahead = prefetch_distance(w, kRowsAtOnce<tokens>);
  if (loops.whole_rows) {
    add_rows(add, w, first, rows, x, 0, w.groups, block);
  } else if constexpr (tokens <= 4) {  // codes without blocks have no loops for more
    for (uint32_t begin = 0; begin < w.groups; begin += kGroupChunk) {
      const uint32_t end = least(begin + kGroupChunk, w.groups);
      prepare(w, first, rows, x, loops.offset, begin, end, block);
      add_rows(add, w, first, rows, x, begin, end, block);
    }
  }
  for (uint32_t t = 0; t < tokens; ++t)
    if (store_sums(block.sums[t], rows, y + t * y_stride))
      compute_again(w, first, rows, loops.values, {x.from(t), loops.planes, loops.order}, y + t * y_stride);
}

// The same for any number of tokens.
static void multiply_rows(const RowLoops& loops, const Matrix& w, uint32_t first, uint32_t rows,
                          const Activations& x, uint32_t tokens, float* y, uint64_t y_stride) {
  uint32_t t = 0;
  for (; loops.eight && t + 8 <= tokens; t += 8)
    multiply_few<8>(loops.eight, loops, w, first, rows, x.from(t), y + t * y_stride, y_stride);
  for (; loops.four && t + 4 <= tokens; t += 4)
    multiply_few<4>(loops.four, loops, w, first, rows, x.from(t), y + t * y_stride, y_stride);
  for (; loops.two && t + 2 <= tokens; t += 2)
    multiply_few<2>(loops.two, loops, w, first, rows, x.from(t), y + t * y_stride, y_stride);
  for (; t < tokens; ++t)
    multiply_few<1>(loops.one, loops, w, first, rows, x.from(t), y + t * y_stride, y_stride);
}

}  // namespace pyturbo::cpu::PYTURBO_LEVEL
