// Products with many tokens by tiles of AMX, in place of quantized_tiles.cpp. Weights and activations are
// split into three terms of bfloats, which is as precise as f32; with fast precision weights are rounded to
// two terms, which hold 17 bits, and activations to one. Products with fewer tokens have the tiles of the
// other levels. Some columns of a tile of rows are converted at a time, then multiplied with every token. The
// arithmetic of one result does not depend on the other rows and tokens.
#include "cpu/kernels/amx_activations.h"
#include "cpu/kernels/quantized_tiles.h"

namespace pyturbo::cpu::PYTURBO_LEVEL {
namespace {

// Tokens from which on splitting a weight pays, by precision. Measured on an Emerald Rapids Xeon.
constexpr uint32_t kLeastTokens[kPrecisions] = {64, 32};
constexpr uint32_t kMostTiles = 4;  // of an item: their sums stay in the second-level cache
constexpr uint32_t kItemsPerThread = 2;
constexpr uint32_t kAgainTokens = 32;          // that are computed again together
constexpr double kProductTime = 0.007;         // nanoseconds of one product of a weight and an activation
constexpr double kSplitTime = 0.3;             // nanoseconds to split a value
constexpr double kWorthSplittingShared = 1e4;  // nanoseconds: less is split by the thread that launches

using MultiplyTerms = void (*)(const uint16_t* w, const uint16_t* x, uint32_t steps, bool fresh, float* sums);
using SplitBlock = void (*)(const float* x, uint32_t in, const TokenBlock& block, uint16_t* to,
                            RowKind* kinds);
using ConvertRows = void (*)(const ChunkRow* chunk, uint32_t rows, uint32_t begin, uint32_t values,
                             uint32_t shift, uint16_t* to);

// The loops of a number of terms of weights and of activations.
struct TermLoops {
  uint32_t part;   // columns of a tile whose terms stay in the first-level cache
  uint32_t terms;  // of activations
  SplitBlock split;
  MultiplyTerms multiply;
};
template <uint32_t w_terms>
constexpr uint32_t kPart = w_terms == 2 ? 256 : 128;
template <uint32_t w_terms, uint32_t terms>
constexpr TermLoops kTermLoops = {kPart<w_terms>, terms, split_block<terms>, multiply_terms<w_terms, terms>};
constexpr const TermLoops *kFast = &kTermLoops<2, 1>, *kExact = &kTermLoops<kTerms, kTerms>;

// The loops of a format, by precision.
struct Loops {
  const TermLoops* terms[kPrecisions];
  LoadRow load;
  ConvertRows convert[kPrecisions];
  MultiplyTile again;  // in f32
};

template <typename Q>
constexpr Loops kLoops = {{kFast, kExact},
                          load_array_row<Q>,
                          {convert_rows<Q, 2>, convert_rows<Q, kTerms>},
                          multiply_tile<load_chunk<Q>>};
// Products with E4M3 codes are as precise in both.
template <>
constexpr Loops kLoops<E4m3Codes> = {{kExact, kExact},
                                     load_array_row<E4m3Codes>,
                                     {convert_rows<E4m3Codes, kTerms>, convert_rows<E4m3Codes, kTerms>},
                                     multiply_tile<load_chunk<E4m3Codes>>};
template <typename T>
constexpr Loops kBlockLoops = {{kFast, kExact},
                               load_block_row,
                               {convert_rows<BlockCodes<T>, 2>, convert_rows<BlockCodes<T>, kTerms>},
                               multiply_tile<load_panel<BlockCodes<T>>>};

const Loops& loops_of(const Format& format) {
  if (format.reader)
    return *GgufTypes::call(format.reader->type, [](auto type) { return &kBlockLoops<decltype(type)>; });
  return *by_codes(format, [](auto codes) { return &kLoops<decltype(codes)>; });
}

// The activations of a launch, as its products need them: the rows of each start with a block.
struct Rows {
  BlockedRows blocked;
  const uint32_t* starts;  // [products]: first block of each
  bool all;                // no product has fewer tokens than it takes

  BlockedRows of(uint64_t product) const {
    const uint64_t start = starts[product];
    return {blocked.values + start * blocked.pitch, blocked.kinds + start * kSide, blocked.pitch};
  }
};

// Splits the rows of x [rows, in] of products with enough tokens. Launches of a batch share the result if
// their products have the same rows.
Rows split(Batch& batch, const TermLoops& loops, const Products& products, const float* x, uint64_t rows,
           uint32_t in, uint32_t least_tokens) {
  uint64_t most = 0;  // blocks; offsets of experts that overlap would make more than x has
  for (uint64_t i = 0; i < products.count; ++i) most += uint64_t(products.at(i).tokens) / kSide + 1;
  auto* starts = static_cast<uint32_t*>(batch.memory(sizeof(uint32_t) * products.count));
  auto* list = static_cast<TokenBlock*>(batch.memory(sizeof(TokenBlock) * most));
  uint32_t blocks = 0;
  bool all = true;
  for (uint64_t i = 0; i < products.count; ++i) {
    const Product p = products.at(i);
    starts[i] = blocks;
    all = all && (p.tokens == 0 || p.tokens >= least_tokens);
    for (uint32_t t = 0; t < p.tokens && p.tokens >= least_tokens; t += kSide)
      list[blocks++] = {uint32_t(p.x) + t, least(kSide, p.tokens - t)};
  }
  // The list, then the kinds of rows, then their terms.
  const uint64_t pitch = uint64_t(in) / kTermStep * loops.terms * kTileValues;
  const uint64_t list_bytes = (sizeof(TokenBlock) * blocks + 63) / 64 * 64;
  const uint64_t kind_bytes = (uint64_t(blocks) * kSide + 63) / 64 * 64;
  const Batch::Made what = {.from = x, .rows = rows, .columns = in, .group = blocks, .planes = loops.terms};
  void* made = batch.find(what);
  if (made && std::memcmp(made, list, sizeof(TokenBlock) * blocks) != 0) made = nullptr;
  auto* memory = static_cast<uint8_t*>(
      made ? made : batch.memory(list_bytes + kind_bytes + sizeof(uint16_t) * pitch * blocks));
  auto* kinds = reinterpret_cast<RowKind*>(memory + list_bytes);
  auto* values = reinterpret_cast<uint16_t*>(memory + list_bytes + kind_bytes);
  const Rows result = {{values, kinds, pitch}, starts, all};
  if (made) return result;
  batch.note(what, memory);
  std::memcpy(memory, list, sizeof(TokenBlock) * blocks);
  const auto split_one = [&](uint64_t b) {
    loops.split(x, in, list[b], values + b * pitch, kinds + b * kSide);
  };
  if (double(rows) * in * kSplitTime > kWorthSplittingShared)
    batch.pool().parallel_for(blocks, split_one);
  else
    for (uint64_t b = 0; b < blocks; ++b) split_one(b);
  return result;
}

struct TileScratch {
  ChunkRow rows[kTileRows];
  alignas(64) uint16_t terms[2 * kPart<2> * kTileRows];  // of the weights of a part
  static_assert(kTerms * kPart<kTerms> <= 2 * kPart<2>);
};

// One product of an item: some tiles of rows of w, from row `first` on, times all tokens of x.
struct TileProduct {
  const Loops& loops;
  uint32_t precision;
  const TermLoops& terms;  // those of the precision
  const Matrix& w;
  const BlockedRows& x;
  uint32_t first, tiles, tokens;

  uint32_t blocks() const { return (tokens + kSide - 1) / kSide; }
  uint64_t tile_sums() const { return uint64_t(blocks()) * 2 * kTileSums; }

  // sums: [tiles, blocks, 2 halves of a tile, row, token]
  void multiply(TileScratch& scratch, float* sums, RowRanges* ranges) const {
    for (uint32_t begin = 0; begin < w.in; begin += kChunk)
      for (uint32_t tile = 0; tile < tiles; ++tile)
        multiply_chunk_of(tile, begin, scratch, sums + tile * tile_sums(), ranges[tile]);
  }

  // Adds the products of a chunk of columns of one tile.
  void multiply_chunk_of(uint32_t tile, uint32_t begin, TileScratch& scratch, float* sums,
                         RowRanges& ranges) const {
    const uint32_t from = first + tile * kTileRows, rows = least(kTileRows, w.out - from);
    const uint32_t values = least(kChunk, w.in - begin);
    for (uint32_t r = 0; r < rows; ++r) {
      ChunkRow& row = scratch.rows[r];
      loops.load(w, from + r, begin, values, row);
      ranges.add(r, load_floats(row.scales), load_floats(row.biases), values >> w.group_shift);
    }
    for (uint32_t at = 0; at < values; at += terms.part) {
      const uint32_t columns = least(terms.part, values - at);
      loops.convert[precision](scratch.rows, rows, at, columns, w.group_shift, scratch.terms);
      const uint16_t* own = x.values + uint64_t(begin + at) * terms.terms * kSide;
      for (uint32_t b = 0; b < blocks(); ++b)
        terms.multiply(scratch.terms, own + b * x.pitch, columns / kTermStep, begin + at == 0,
                       sums + uint64_t(b) * 2 * kTileSums);
    }
  }

  // Turns the sums of a tile: [tokens, kTileRows] then, with blocks() * kSide tokens.
  void turn(float* sums) const {
    for (uint32_t b = 0; b < blocks(); ++b, sums += 2 * kTileSums) {
      U8 rows[2][kSide];
      for (uint32_t half = 0; half < 2; ++half) {
        for (uint32_t r = 0; r < kSide; ++r)
          rows[half][r] = load_vector<U8>(sums + half * kTileSums + r * kSide);
        transpose(rows[half]);
      }
      for (uint32_t t = 0; t < kSide; ++t)
        for (uint32_t half = 0; half < 2; ++half)
          store_vector(sums + t * kTileRows + half * kSide, rows[half][t]);
    }
  }

  // Whether the results of a token cannot stand, by their own range and by that of weights and activations.
  bool doubtful(const float* sums, RowKind kind, const I32* used) const {
    if (kind != RowKind::ordinary) return kind == RowKind::extreme;
    I32 found = {};
    for (uint32_t v = 0; v < kTileVectors; ++v) {
      const I32 bits = magnitude(load_floats(sums + v * kLanes));
      found |= ((bits < bits_of(kLeastSum)) | (bits >= 0x7f800000)) & used[v];
    }
    return any(found);
  }

  // Computes doubtful results of a tile, turned sums, again in f32. `values`: the tokens as floats; `rounded`
  // has room for one of them.
  void correct(uint32_t tile, const float* values, const RowRanges& ranges, float* rounded,
               float* sums) const {
    const uint32_t own = first + tile * kTileRows, rows = least(kTileRows, w.out - own);
    I32 used[kTileVectors] = {};
    for (uint32_t r = 0; r < rows; ++r) used[r / kLanes][r % kLanes] = -int32_t(largest(ranges.used[r]) != 0);
    const bool all = !ranges.ordinary();
    const auto wrong = [&](uint32_t t) {
      return all || doubtful(sums + uint64_t(t) * kTileRows, x.kinds[t], used);
    };
    const uint32_t most = terms.terms == 1 ? 1 : kAgainTokens;
    for (uint32_t t = 0; t < tokens; ++t) {
      if (!wrong(t)) continue;
      const uint32_t begin = t;
      while (t + 1 < tokens && t + 1 - begin < most && wrong(t + 1)) ++t;
      const float* from = values + uint64_t(begin) * w.in;
      if (terms.terms == 1) round_row(from, w.in, rounded);
      loops.again(w, own, {terms.terms == 1 ? rounded : from, nullptr, nullptr, nullptr, 0, 0, false}, 0,
                  t + 1 - begin, sums + uint64_t(begin) * kTileRows);
    }
  }
};

// Some tiles of rows of a product. `values`: all activations of the launch as floats.
void tiles_of(const Loops& loops, uint32_t precision, const Product& p, const BlockedRows& x,
              const float* values, uint32_t first, uint32_t tiles) {
  RowRanges ranges[kMostTiles];
  const TermLoops& terms = *loops.terms[precision];
  const TileProduct sample = {loops, precision, terms, p.w, x, first, tiles, p.tokens};
  const uint64_t floats = sample.tile_sums() * tiles;
  const uint64_t rounded = (uint64_t(p.w.in) + kLanes - 1) / kLanes * kLanes;
  auto* memory = static_cast<float*>(
      item_scratch(sizeof(float) * (rounded + floats * (p.gated ? 2 : 1)) + sizeof(TileScratch)));
  float* sums = memory + rounded;
  auto* scratch = reinterpret_cast<TileScratch*>(sums + floats * (p.gated ? 2 : 1));
  for (uint32_t matrix = 0; matrix < (p.gated ? 2 : 1); ++matrix) {
    const Matrix& w = matrix == 0 ? p.w : p.up;
    const TileProduct product = {loops, precision, terms, w, x, first, tiles, p.tokens};
    float* own = sums + matrix * floats;
    for (uint32_t tile = 0; tile < tiles; ++tile) ranges[tile] = {};
    product.multiply(*scratch, own, ranges);
    for (uint32_t tile = 0; tile < tiles; ++tile) {
      product.turn(own + tile * product.tile_sums());
      product.correct(tile, values + p.x * p.w.in, ranges[tile], memory, own + tile * product.tile_sums());
    }
  }
  for (uint32_t t = 0; t < p.tokens; ++t)
    for (uint32_t tile = 0; tile < tiles; ++tile) {
      const uint32_t row = first + tile * kTileRows, rows = least(kTileRows, p.w.out - row);
      float* y = p.y + uint64_t(t) * p.w.out + row;
      const float* own = sums + tile * sample.tile_sums() + uint64_t(t) * kTileRows;
      if (p.gated)
        gate(y, own, own + floats, rows);
      else
        std::memcpy(y, own, sizeof(float) * rows);
    }
}

}  // namespace

void run_tiles(Batch& batch, const Products& products, const float* x, uint64_t rows) {
  const uint32_t precision = precision_of(batch), least_tokens = kLeastTokens[precision];
  const Loops& loops = loops_of(products.format);
  const TermLoops& terms = *loops.terms[precision];
  const TileLoops few = tile_loops_of(batch, products.format);
  const Product sample = products.at(0);
  const uint32_t tiles = (products.out + kTileRows - 1) / kTileRows;
  // More tiles in an item read the activations less often; fewer leave something for every thread.
  const uint64_t shared = products.count * tiles / (batch.pool().threads() * kItemsPerThread);
  const uint32_t each = uint32_t(shared < 1 ? 1 : least(shared, uint64_t(kMostTiles)));
  const uint32_t items = (tiles + each - 1) / each;
  const double values = double(rows) / double(products.count) * each * kTileRows * sample.w.in;
  const Rows own = split(batch, terms, products, x, rows, sample.w.in, least_tokens);
  const Activations plain = own.all ? Activations{x, nullptr, nullptr, nullptr, 0, 0, false}
                                    : tile_activations(batch, few, products, x, rows);
  batch.add(products.count * items, values * kProductTime * (sample.gated ? 2 : 1),
            [=, &loops](uint64_t begin, uint64_t end) {
              const AmxTiles configured;
              for (uint64_t item = begin; item < end; ++item) {
                const Product p = products.at(item / items);
                const uint32_t tile = uint32_t(item % items) * each, first = tile * kTileRows;
                const uint32_t last = least(first + each * kTileRows, products.out);
                if (!p.known)
                  fill_nan(p, first, last - first);
                else if (p.tokens >= least_tokens)
                  tiles_of(loops, precision, p, own.of(item / items), x, first, least(each, tiles - tile));
                else if (p.tokens > 0)
                  for (uint32_t row = first; row < last; row += kTileRows)
                    tile_of(few.at(p.tokens), p, plain, row);
              }
            });
}

}  // namespace pyturbo::cpu::PYTURBO_LEVEL
