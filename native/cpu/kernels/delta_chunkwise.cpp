// The delta net in chunks: shaders/delta/delta_net_chunkwise.metal specifies it, and the products it
// consists of.
#include "arguments/delta/delta_net_chunkwise.h"
#include "cpu/kernels/bodies.h"
#include "cpu/kernels/delta_head.h"
#include "cpu/kernels/row.h"
#include "cpu/kernels/scratch.h"
#include "cpu/kernels/tile.h"

namespace pyturbo::cpu::PYTURBO_LEVEL {
namespace {

constexpr uint32_t kTokens = 32;                     // of a chunk
constexpr uint32_t kKeyTiles = kTokens / kTileRows;  // of the keys of a chunk, transposed
constexpr uint32_t kSolved = 8;                      // tokens that are solved one by one between two products
constexpr double kStateTime = 0.05;                  // nanoseconds of one value of the state and token

// Data of one chunk of tokens that all rows of a head's state use.
struct ChunkKeys {
  TileChunk keys[kKeyTiles];           // [k_dim, kTileRows tokens]
  float steps[kTokens][kTokens];       // -beta[l] G(l, i) (k[l] . k[i]) for i < l
  float weights[kTokens][kTokens];     // G(l, i) (q[l] . k[i]) for i <= l
  float kept[kTokens];                 // G(l)
  float ends[kTokens];                 // G(last, i)
  float products[kTokens][kTileRows];  // of tokens with those of one tile
};

// The results of kTileRows rows of the state for the tokens of a chunk.
struct ChunkRows {
  TileChunk updates;  // [kTokens, kTileRows]: S0 k, then the rows of U
  float out[kTokens][kTileRows];
};

// tile [columns, kTileRows] = the first `rows` rows of `from`, transposed; the other lanes are zero.
void turn_rows(const float* from, uint64_t stride, uint32_t rows, uint32_t columns, TileChunk& tile) {
  for (uint32_t first = 0; first < kTileRows; first += kLanes)
    for (uint32_t i = 0; i < columns; i += kLanes) {
      U8 lines[kLanes];
      for (uint32_t r = 0; r < kLanes; ++r)
        lines[r] = first + r < rows ? (U8)load_floats(from + (first + r) * stride + i) : U8{};
      transpose(lines);
      for (uint32_t r = 0; r < kLanes; ++r) tile.values[i + r][first / kLanes] = (F32)lines[r];
    }
}

// Stores the rows of a tile back, transposed.
void turn_back(const TileChunk& tile, uint32_t rows, uint32_t columns, float* to, uint64_t stride) {
  for (uint32_t first = 0; first < rows; first += kLanes)
    for (uint32_t i = 0; i < columns; i += kLanes) {
      U8 lines[kLanes];
      for (uint32_t r = 0; r < kLanes; ++r) lines[r] = (U8)tile.values[i + r][first / kLanes];
      transpose(lines);
      for (uint32_t r = 0; r < least(kLanes, rows - first); ++r)
        store_floats(to + (first + r) * stride + i, (F32)lines[r]);
    }
}

// The tokens [first, first + count) of a head.
void prepare(const DeltaHead& h, uint64_t first, uint32_t count, ChunkKeys& c) {
  const float *q = h.q + first * h.qk_stride, *k = h.k + first * h.qk_stride;
  for (uint32_t tile = 0; tile < kKeyTiles && tile * kTileRows < count; ++tile) {
    const uint32_t before = tile * kTileRows;
    turn_rows(k + before * h.qk_stride, h.qk_stride, count - before, h.k_dim, c.keys[tile]);
    // Tokens before the tile do not see it.
    for (uint32_t side = 0; side < 2; ++side) {
      const float* left = (side ? q : k) + before * h.qk_stride;
      clear_row(c.products[0], kTokens * kTileRows);
      multiply_rows_of(c.keys[tile], h.k_dim, left, h.qk_stride, count - before, c.products[0]);
      float(*to)[kTokens] = side ? c.weights : c.steps;
      for (uint32_t l = before; l < count; ++l) copy_row(to[l] + before, c.products[l - before], kTileRows);
    }
  }
  clear_row(c.ends, kTokens);
  float start = 1;
  for (uint32_t l = 0; l < count; ++l) {
    const float decay = h.g[(first + l) * h.gate_stride], rate = h.beta[(first + l) * h.gate_stride];
    c.kept[l] = start *= decay;
    for (uint32_t i = 0; i < l; i += kLanes) store_floats(c.ends + i, load_floats(c.ends + i) * decay);
    c.ends[l] = 1;
    for (uint32_t i = 0; i <= l; i += kLanes) {
      const F32 decays = load_floats(c.ends + i);
      store_floats(c.steps[l] + i, load_floats(c.steps[l] + i) * decays * -rate);
      store_floats(c.weights[l] + i, load_floats(c.weights[l] + i) * decays);
    }
  }
}

// sum + the rows [first, end) of u times their weights.
PYTURBO_INLINE void add_rows(const TileChunk& u, const float* weights, uint32_t first, uint32_t end,
                             float* sum) {
  F32 acc[kTileVectors];
  for (uint32_t v = 0; v < kTileVectors; ++v) acc[v] = load_floats(sum + v * kLanes);
  for (uint32_t i = first; i < end; ++i)
    for (uint32_t v = 0; v < kTileVectors; ++v) acc[v] = fused(u.values[i][v], splat(weights[i]), acc[v]);
  for (uint32_t v = 0; v < kTileVectors; ++v) store_floats(sum + v * kLanes, acc[v]);
}

// `rows` rows of the state from row `row` on, which `state` holds transposed, take the tokens [first, first +
// count).
void advance(const DeltaHead& h, const ChunkKeys& c, uint64_t first, uint32_t count, uint32_t row,
             uint32_t rows, ChunkRows& w, TileChunk& state) {
  float* u = reinterpret_cast<float*>(&w.updates);
  clear_row(u, count * kTileRows);
  clear_row(w.out[0], count * kTileRows);
  multiply_rows_of(state, h.k_dim, h.k + first * h.qk_stride, h.qk_stride, count, u);
  multiply_rows_of(state, h.k_dim, h.q + first * h.qk_stride, h.qk_stride, count, w.out[0]);
  for (uint32_t l = 0; l < count; ++l) {
    const float rate = h.beta[(first + l) * h.gate_stride];
    const float* v = h.v + (first + l) * h.v_stride + row;
    for_vectors(rows, [&](uint32_t i, uint32_t some) {
      float *own = u + l * kTileRows + i, *out = w.out[l] + i;
      store_floats(own, (load_some(v + i, some) - load_floats(own) * c.kept[l]) * rate);
      store_floats(out, load_floats(out) * c.kept[l]);
    });
  }
  for (uint32_t solved = 0; solved < count; solved += kSolved) {
    const uint32_t end = least(solved + kSolved, count);
    multiply_rows_of(w.updates, solved, c.steps[solved], kTokens, end - solved, u + solved * kTileRows);
    multiply_rows_of(w.updates, solved, c.weights[solved], kTokens, end - solved, w.out[solved]);
    for (uint32_t l = solved; l < end; ++l) {
      add_rows(w.updates, c.steps[l], solved, l, u + l * kTileRows);
      add_rows(w.updates, c.weights[l], solved, l + 1, w.out[l]);
      copy_row(h.y + (first + l) * h.y_stride + row, w.out[l], rows);
    }
  }
  for (uint32_t l = 0; l < count; ++l)
    for (uint32_t v = 0; v < kTileVectors; ++v) w.updates.values[l][v] *= c.ends[l];
  for (uint32_t i = 0; i < h.k_dim; ++i)
    for (uint32_t v = 0; v < kTileVectors; ++v) state.values[i][v] *= c.kept[count - 1];
  for (uint32_t tile = 0; tile < kKeyTiles && tile * kTileRows < count; ++tile) {
    const uint32_t before = tile * kTileRows;
    const TileChunk& added = reinterpret_cast<const TileChunk&>(w.updates.values[before]);
    multiply_rows_of(added, least(kTileRows, count - before), reinterpret_cast<const float*>(&c.keys[tile]),
                     kTileRows, h.k_dim, reinterpret_cast<float*>(&state));
  }
}

// Blocks [begin, end) of kTileRows rows of the state of a head, all tokens.
void update_blocks(const DeltaHead& h, uint32_t begin, uint32_t end) {
  const size_t count = end - begin;
  char* memory =
      static_cast<char*>(item_scratch(sizeof(ChunkKeys) + sizeof(ChunkRows) + count * sizeof(TileChunk)));
  ChunkKeys& keys = *reinterpret_cast<ChunkKeys*>(memory);
  ChunkRows& rows = *reinterpret_cast<ChunkRows*>(memory + sizeof(ChunkKeys));
  TileChunk* states = reinterpret_cast<TileChunk*>(memory + sizeof(ChunkKeys) + sizeof(ChunkRows));
  const auto place = [&](uint32_t block) { return h.state + uint64_t(block) * kTileRows * h.k_dim; };
  const auto size = [&](uint32_t block) { return least(kTileRows, h.v_dim - block * kTileRows); };
  for (uint32_t b = begin; b < end; ++b) turn_rows(place(b), h.k_dim, size(b), h.k_dim, states[b - begin]);
  for (uint64_t first = 0; first < h.tokens; first += kTokens) {
    const uint32_t tokens = least(kTokens, uint32_t(h.tokens - first));
    prepare(h, first, tokens, keys);
    for (uint32_t b = begin; b < end; ++b)
      advance(h, keys, first, tokens, b * kTileRows, size(b), rows, states[b - begin]);
  }
  for (uint32_t b = begin; b < end; ++b) turn_back(states[b - begin], size(b), h.k_dim, place(b), h.k_dim);
}

void delta_net_chunkwise(Batch& batch, const arguments::delta_net_chunkwise& a) {
  const uint32_t k_dim = a.tiles * a.kColumns;
  const uint64_t blocks = (a.v_dim + kTileRows - 1) / kTileRows;
  const double each = double(a.tokens) * kTileRows * k_dim * kStateTime;
  // Blocks of one head that come together share the products of its tokens.
  batch.add(blocks * a.v_heads, each, [=](uint64_t begin, uint64_t end) {
    while (begin < end) {
      const uint64_t head = begin / blocks, stop = least(end, (head + 1) * blocks);
      update_blocks(delta_head(a, k_dim, head), uint32_t(begin - head * blocks),
                    uint32_t(stop - head * blocks));
      begin = stop;
    }
  });
}

}  // namespace

PYTURBO_BODIES(delta_chunkwise, PYTURBO_BODY(delta_net_chunkwise))

}  // namespace pyturbo::cpu::PYTURBO_LEVEL
