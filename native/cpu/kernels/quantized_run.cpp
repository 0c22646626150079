// Products with few tokens: how they are cut into items, and which instance of the inner loops serves a
// format.
#include "cpu/kernels/e4m3_rows.h"
#if defined(__ARM_NEON)
#include "cpu/kernels/gguf_unit_rows.h"
#include "cpu/kernels/quantized_unit_rows.h"
#else
#include "cpu/kernels/gguf_rows.h"
#endif
#include "cpu/kernels/quantized_product.h"
#include "cpu/kernels/tile_loops.h"

namespace pyturbo::cpu::PYTURBO_LEVEL {
namespace {

constexpr uint32_t kTokenBlock = 8;             // tokens of one pass over them
constexpr double kByteTime = 0.1;               // nanoseconds to read a byte of weights
constexpr double kQuantizeTime = 0.3;           // nanoseconds to quantise a value
constexpr double kWorthQuantizingShared = 1e4;  // nanoseconds: less is quantised by the thread that launches

using QuantizeRow = void (*)(const float*, uint32_t, uint32_t, int8_t*, float*, float*);

// Rows of a matrix times `tokens` rows of activations from row `x` on. E4M3 codes, which have no loops, are
// multiplied with f32 activations in both precisions.
void multiply(const RowLoops& loops, const Matrix& w, uint32_t first, uint32_t rows, const Activations& from,
              uint64_t x, uint32_t tokens, float* y, uint64_t y_stride) {
  if (loops.one)
    multiply_rows(loops, w, first, rows, from.from(x), tokens, y, y_stride);
  else
    multiply_e4m3_rows(w, first, rows, from.values + x * w.in, tokens, y, y_stride);
}

void rows_of(const RowLoops& loops, const Product& p, const Activations& x, uint32_t first, uint32_t rows) {
  for (uint32_t t = 0; t < p.tokens; t += kTokenBlock) {
    const uint32_t tokens = least(kTokenBlock, p.tokens - t);
    float* y = p.y + uint64_t(t) * p.w.out + first;
    if (!p.gated) {
      multiply(loops, p.w, first, rows, x, p.x + t, tokens, y, p.w.out);
      continue;
    }
    float sums[2][kTokenBlock * kRowBlock];
    multiply(loops, p.w, first, rows, x, p.x + t, tokens, sums[0], kRowBlock);
    multiply(loops, p.up, first, rows, x, p.x + t, tokens, sums[1], kRowBlock);
    for (uint32_t i = 0; i < tokens; ++i)
      gate(y + uint64_t(i) * p.w.out, sums[0] + i * kRowBlock, sums[1] + i * kRowBlock, rows);
  }
}

// How activations become integers of an order, for each precision.
struct Quantizer {
  ByteOrder order;
  QuantizeRow rows[kPrecisions];
};
template <ByteOrder order>
constexpr Quantizer kQuantizer = {order, {quantize_row<order, 1>, quantize_row<order, 3>}};

// The functions of a format, for each precision; none where activations stay floats.
struct Instance {
  Quantizer for_rows, for_tiles;
  RowLoops rows[kPrecisions];
};

#if defined(__ARM_NEON)
// By default products of several tokens take as long as those of one: only their weights are shared.
template <typename Q, uint32_t planes, uint32_t tokens>
constexpr AddGroups<tokens> kAddGroups =
    tokens == 1 || (tokens == 4 && planes == 1) ? add_array_rows<Q, planes, tokens> : nullptr;
#else
template <typename Q, uint32_t planes, uint32_t tokens>
constexpr AddGroups<tokens> kAddGroups = add_groups<Q, planes, tokens>;
#endif
template <typename Q, uint32_t planes>
constexpr RowLoops kArrayLoops = {.one = kAddGroups<Q, planes, 1>,
                                  .two = kAddGroups<Q, planes, 2>,
                                  .four = kAddGroups<Q, planes, 4>,
                                  .eight = nullptr,
                                  .offset = float(Q::kOffset),
                                  .planes = planes,
                                  .order = Order<Q::kBits>::kByteOrder,
                                  .values = kReadValues<Q>,
                                  .whole_rows = kLanes == 4};

template <typename Q>
constexpr Quantizer kQuantizerOf = kQuantizer<Order<Q::kBits>::kByteOrder>;
template <typename Q>
constexpr Instance kInstance = {kQuantizerOf<Q>, kQuantizerOf<Q>, {kArrayLoops<Q, 1>, kArrayLoops<Q, 3>}};
template <>
constexpr Instance kInstance<E4m3Codes> = {};

#if defined(__ARM_NEON)
// Several tokens have shared_tile.
template <typename T, uint32_t planes>
struct GgufLoops {
  static constexpr RowLoops value = {
      add_units<T, planes>, nullptr, nullptr, nullptr, 0.0f, planes, kNatural, {read_block, T::kBlock}, true};
};
#else
// Eight tokens at a time. The planes of default precision leave the first-level cache, vectors of 32 bytes
// have too few registers, and where integers are fast eight tokens are a tile.
template <typename T, uint32_t planes>
constexpr AddGroups<8> kEight = nullptr;
template <typename T>
  requires(kLanes == 16 && !(kFastIntegers && T::kGroup == 32))
constexpr AddGroups<8> kEight<T, 1> = add_blocks<T, 1, 8>;

template <typename T, uint32_t planes>
struct GgufLoops {
  static constexpr RowLoops value = {add_blocks<T, planes, 1>,
                                     add_blocks<T, planes, 2>,
                                     add_blocks<T, planes, 4>,
                                     kEight<T, planes>,
                                     0.0f,
                                     planes,
                                     kFoldOrder<T>,
                                     {read_block, T::kBlock},
                                     true};
};
#endif
template <typename T>
constexpr Instance kGgufInstance = {kQuantizer<GgufLoops<T, 1>::value.order>,
                                    kQuantizer<kNatural>,
                                    {GgufLoops<T, 1>::value, GgufLoops<T, 3>::value}};

const Instance& instance_of(const Format& format) {
  if (format.reader)
    return *GgufTypes::call(format.reader->type, [](auto type) { return &kGgufInstance<decltype(type)>; });
  return *by_codes(format, [](auto codes) { return &kInstance<decltype(codes)>; });
}

// Tiles that give several tokens the bits of single ones; null where a format has none.
MultiplyTile shared_tile([[maybe_unused]] const Batch& batch, [[maybe_unused]] const Format& format) {
#if defined(__ARM_NEON)
  if (format.reader) return gguf_tiles(*format.reader)[precision_of(batch)].integers;
#endif
  return nullptr;
}

// Repeats the scales or sums of a row `copies` times, then fills up to `stride` with zeros.
void pad_groups(float* groups, uint32_t count, uint32_t copies, uint64_t stride) {
  for (uint32_t copy = 1; copy < copies; ++copy) copy_row(groups + copy * count, groups, count);
  clear_row(groups + copies * count, uint32_t(stride - copies * count));
}

// x [rows, in] as integers, whose groups have `copies` copies of their scales.
Activations quantized(Batch& batch, const Quantizer& quantizer, const float* x, uint64_t rows, uint32_t in,
                      uint32_t group_size, uint32_t copies) {
  const QuantizeRow quantize_row = quantizer.rows[precision_of(batch)];
  if (!quantize_row) return {x, nullptr, nullptr, nullptr, 0, 0, false};
  const uint32_t planes = precision_of(batch) == 0 ? 1 : 3;
  const uint32_t groups = in / group_size;
  const uint64_t block = quantizer.order.block();
  const uint64_t row_bytes = (in + block - 1) / block * block * planes;
  const uint64_t stride = (copies * groups + kLanes - 1) / kLanes * kLanes + kLanes;
  const Batch::Made what = {.from = x,
                            .rows = rows,
                            .columns = in,
                            .group = group_size,
                            .piece = quantizer.order.piece,
                            .classes = quantizer.order.classes,
                            .planes = planes,
                            .copies = copies};
  void* made = batch.find(what);
  void* memory = made ? made : batch.memory(rows * (row_bytes + 2 * stride * sizeof(float)));
  auto* bytes = static_cast<int8_t*>(memory);
  auto* scales = reinterpret_cast<float*>(bytes + rows * row_bytes);
  float* sums = scales + rows * stride;
  const Activations result = {x, bytes, scales, sums, row_bytes, stride, copies > 1};
  if (made) return result;
  batch.note(what, memory);
  const auto quantize_one = [&](uint64_t row) {
    std::memset(bytes + (row + 1) * row_bytes - block * planes, 0, block * planes);
    quantize_row(x + row * in, in, group_size, bytes + row * row_bytes, scales + row * stride,
                 sums + row * stride);
    pad_groups(scales + row * stride, groups, copies, stride);
    pad_groups(sums + row * stride, groups, copies, stride);
  };
  if (double(rows) * in * kQuantizeTime > kWorthQuantizingShared)
    batch.pool().parallel_for(rows, quantize_one);
  else
    for (uint64_t row = 0; row < rows; ++row) quantize_one(row);
  return result;
}

}  // namespace

Activations tile_integers(Batch& batch, const Format& format, const float* x, uint64_t rows, uint32_t in,
                          uint32_t group_size) {
  return quantized(batch, instance_of(format).for_tiles, x, rows, in, group_size, 1);
}

Activations row_activations(Batch& batch, const Format& format, const float* x, uint64_t rows, uint32_t in,
                            uint32_t group_size) {
  const Instance& instance = instance_of(format);
  const bool repeated = !instance.rows[precision_of(batch)].whole_rows && in / group_size <= kShortRow;
  return quantized(batch, instance.for_rows, x, rows, in, group_size, repeated ? kRowBlock : 1);
}

void run_rows(Batch& batch, const Products& products, const Activations& x) {
  const RowLoops& loops = instance_of(products.format).rows[precision_of(batch)];
  const MultiplyTile shared = shared_tile(batch, products.format);
  const uint32_t blocks = (products.out + kRowBlock - 1) / kRowBlock;
  const Product sample = products.at(0);
  const uint32_t tokens = sample.tokens > 0 ? sample.tokens : 1;  // others may have some
  const double bytes = double(sample.w.row_bytes) * kRowBlock * tokens * (sample.gated ? 2 : 1);
  batch.add(products.count * blocks, bytes * kByteTime, [=, &loops](uint64_t begin, uint64_t end) {
    while (begin < end) {
      const Product p = products.at(begin / blocks);
      const uint64_t last = least(end, (begin / blocks + 1) * blocks);
      for (; begin < last && p.tokens > 0; ++begin) {
        const uint32_t first = uint32_t(begin % blocks) * kRowBlock;
        const uint32_t rows = least(kRowBlock, products.out - first);
        if (!p.known)
          fill_nan(p, first, rows);
        else if (shared && p.tokens > 1)
          for (uint32_t r = 0; r < rows; r += kTileRows) tile_of(shared, p, x, first + r);
        else
          rows_of(loops, p, x, first, rows);
      }
      begin = last;
    }
  });
}

}  // namespace pyturbo::cpu::PYTURBO_LEVEL
