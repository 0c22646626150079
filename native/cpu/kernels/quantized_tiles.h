// Which instance of the inner loops of tiles serves a format.
#pragma once

#if defined(__ARM_NEON)
#include "cpu/kernels/quantized_integer_tile.h"
#else
#include "cpu/kernels/gguf_chunk.h"
#endif
#include "cpu/kernels/tile_loops.h"

namespace pyturbo::cpu::PYTURBO_LEVEL {

template <typename Q>
constexpr TileLoops kTileLoops[kPrecisions] = {{multiply_integer_tile<Q, 1>, nullptr},
                                               {multiply_integer_tile<Q, 3>, multiply_tile<load_chunk<Q>>}};
template <>
constexpr TileLoops kTileLoops<E4m3Codes>[kPrecisions] = {{nullptr, multiply_tile<load_chunk<E4m3Codes>>},
                                                          {nullptr, multiply_tile<load_chunk<E4m3Codes>>}};

// Groups of 16 values have too many sums to scale by default: floats are faster.
#if defined(__ARM_NEON)
constexpr uint32_t kSmallGroup = 0;
#else
constexpr uint32_t kSmallGroup = 16;

template <typename T>
constexpr MultiplyTile kThreePlanes =
    T::kGroup > kSmallGroup ? multiply_integer_tile<BlockCodes<T>, 3, load_block_chunk<T>> : nullptr;

template <typename T>
constexpr TileLoops kGgufTileLoops[kPrecisions] = {
    {multiply_integer_tile<BlockCodes<T>, 1, load_block_chunk<T>>, nullptr},
    {kThreePlanes<T>, multiply_tile<load_panel<BlockCodes<T>>>}};

static inline const TileLoops* gguf_tiles(const Reader& reader) {
  return GgufTypes::call(reader.type, [](auto type) { return &kGgufTileLoops<decltype(type)>[0]; });
}
#endif

static inline TileLoops tile_loops_of(const Batch& batch, const Format& format) {
  const TileLoops* loops = format.reader
                               ? gguf_tiles(*format.reader)
                               : by_codes(format, [](auto codes) { return &kTileLoops<decltype(codes)>[0]; });
  const TileLoops own = loops[precision_of(batch)];
  const bool small = format.group > 0 && format.group <= kSmallGroup;
  return small && own.floats ? TileLoops{nullptr, own.floats} : own;
}

#if defined(__ARM_NEON)
// x [tokens, in] in memory of the batch, packed.
static inline const float* packed(Batch& batch, const float* x, uint32_t in, uint64_t tokens) {
  const Batch::Made what = {
      .from = x, .rows = tokens, .columns = in, .group = 1, .piece = kPackedTokens, .planes = 0};
  if (void* made = batch.find(what)) return static_cast<const float*>(made);
  auto* memory = static_cast<float*>(batch.memory(sizeof(float) * in_lanes(tokens) * in));
  batch.note(what, memory);
  batch.pool().parallel_for((tokens + kPackedTokens - 1) / kPackedTokens, [&](uint64_t block) {
    const uint64_t first = block * kPackedTokens;
    pack_tokens(x + first * in, in, tokens - first, memory + first * in);
  });
  return memory;
}
#endif

// Activations as the loops read them: x [rows, in].
static inline Activations tile_activations(Batch& batch, const TileLoops& loops, const Products& products,
                                           const float* x, uint64_t rows) {
  const Product sample = products.at(0);
  if (loops.integers && (products.count > 1 || loops.use_integers(sample.tokens)))
    return tile_integers(batch, products.format, x, rows, sample.w.in, 1u << sample.w.group_shift);
  Activations floats = {x, nullptr, nullptr, nullptr, 0, 0, false};
#if defined(__ARM_NEON)
  if (products.count == 1 && sample.tokens == rows) floats.packed = packed(batch, x, sample.w.in, rows);
#endif
  return floats;
}

}  // namespace pyturbo::cpu::PYTURBO_LEVEL
