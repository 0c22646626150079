// multiply_tile for NVIDIA's matrix units.
//
// x is rounded to the sum of two bf16 values, 17 bits. Codes are exact in bf16: the products of a group are summed
// in f32, then multiplied by its scale. Where a unit has several scales, weights are such sums as well, and
// three of the four products are added up; so are f32 and f16, while bf16 are operands as they are. With fast precision
// x, and weights of such units, are one bf16, 8 bits, and biases are multiplied by sums of what x is rounded to; on
// Hopper 4-bit weights with scales of bf16 are one bf16, too. A lane decodes its weights straight into operands.
//
// Steps of 16 ins take values i and i + 4 of an octet as a pair: in words of 4-bit codes they are 16 bits apart.
#include "matrix_units.h"
#include "octets.h"
#include "shared_rows.h"

#define PT_RESIDENT 2

using Units = MatrixUnits<bfloat>;

// Terms of x, and of weights that are not exact.
#if defined(PT_FAST)
constexpr uint kTerms = 1;
#else
constexpr uint kTerms = 2;
#endif

// The arguments of multiply_tile.
template <typename W>
struct TileCall {
  const W* w;
  const float* x;
  uint rows, in, units, first, out;
  float2 factors;
  float* y;
  uint tid;
};

// Parts of a stage, which have 16 tokens of a unit each: few tokens of several units, or many of one.
constexpr uint kParts = kTileTokens / 16;

// The weights of a lane in one step of 16 ins: values 2 step and 2 step + 4 of an octet, then the next two.
struct StepTerms {
  uint high[2];
  uint low[2];  // where weights are not exact
};

template <typename W>
inline StepTerms weights_of(
    const W& w,
    const typename W::Octet& octet,
    const typename W::Octet& scale,
    uint index,
    uint step) {
  StepTerms terms;
  if constexpr (kIsOperand<W>) {
#pragma unroll
    for (uint i = 0; i < 2; ++i) terms.high[i] = code_pair(w, octet, index, step * 2 + i);
  } else if constexpr (W::kSharesScale && W::kPairOffset > 0) {
    const float offset = W::kPairOffset;
    const uint minus = Units::pair(-offset, -offset);
#pragma unroll
    for (uint i = 0; i < 2; ++i) terms.high[i] = Units::add(code_pair(w, octet, index, step * 2 + i), minus);
  } else {
    float values[kOctet];
    decode_octet(w, octet, index, values);
    if constexpr (!W::kSharesScale) {
      const float2 factor = scale_of(w, scale);
#pragma unroll
      for (uint i = 0; i < kOctet; ++i)
        values[i] = W::kHasBias ? fma(values[i], factor.x, factor.y) : values[i] * factor.x;
    }
#pragma unroll
    for (uint i = 0; i < 2; ++i) {
      const PairTerms pair = terms_of<bfloat>(values[step * 2 + i], values[step * 2 + i + 4]);
      terms.high[i] = pair.high;
      terms.low[i] = pair.low;
    }
  }
  return terms;
}

// A store without a branch, around which lanes would diverge.
inline void store_if(bool condition, uint address, float value) {
  asm volatile("{ .reg .pred p; setp.ne.u32 p, %2, 0; @p st.shared.f32 [%0], %1; }" ::"r"(address),
               "f"(value), "r"(uint(condition))
               : "memory");
}

// The products of a threadgroup with `blocks` blocks of 16 tokens. A warp has `outs` outs of all of them.
template <uint count, uint blocks, uint outs, typename W>
struct TileProduct {
  static constexpr uint kColumns = outs / 8;  // blocks of 8 outs
  static constexpr uint kStageUnits = kParts / blocks;
  static constexpr uint kPlane = kParts * 64;       // operands of a term of x in a stage
  static constexpr bool kScaled = W::kSharesScale;  // the products of a group are scaled, not the weights
  static constexpr bool kBiased = kScaled && W::kHasBias;       // by the sums of x
  static constexpr bool kRounded = !kScaled && !kIsOperand<W>;  // weights are sums of terms
  static constexpr uint kTurns = kScaled ? 1 : kColumns;        // scales that a lane loads for a unit
  static_assert(2 * kTerms * 4 * kPlane + 2 * kTileTokens <= kTileFloats, "x and its sums are staged twice");

  using Octet = typename W::Octet;

  W matrix;  // for what is the same in all rows
  uint units, lane, g, t;
  uint4* planes;           // two buffers of the terms, the high ones first
  float* totals;           // two buffers of the sums of x in units
  const float* source[2];  // what the thread stages of x: of two tokens, 8 apart
  uint staged_unit, staged_place, staged_sum;
  W row[kColumns];       // the matrix from the lane's rows on
  W scaled_row[kTurns];  // from the rows on whose scales it loads: where a unit has one, of one of its rows
  float2 next_x[2][2];
  Octet next_w[kStageUnits][kColumns], next_scale[kStageUnits][kTurns];
  Octet now_w[kStageUnits][kColumns], now_scale[kStageUnits][kTurns];
  float result[blocks][kColumns][4], group[blocks][kColumns][4], total[blocks][2];

  void fetch(uint stage) {
    const uint staged = min(stage * kStageUnits + staged_unit, units - 1);
#pragma unroll
    for (uint i = 0; i < 4; ++i)
      next_x[i / 2][i % 2] = *reinterpret_cast<const float2*>(source[i / 2] + staged * kUnit + i % 2 * 4);
#pragma unroll
    for (uint s = 0; s < kStageUnits; ++s) {
      const uint unit = s == 0 ? stage * kStageUnits : min(stage * kStageUnits + s, units - 1);
#pragma unroll
      for (uint j = 0; j < kColumns; ++j) fetch_codes(row[j], 0, unit, t, next_w[s][j]);
      if (kScaled && !ends_group(matrix, unit)) continue;
#pragma unroll
      for (uint j = 0; j < kTurns; ++j) fetch_scale(scaled_row[j], 0, unit, t, next_scale[s][j]);
    }
  }

  void keep(uint stage) {
    PairTerms pairs[4];  // the first pair of both tokens, then the second
#pragma unroll
    for (uint i = 0; i < 2; ++i) {
      pairs[i] = terms_of<bfloat>(next_x[i][0].x, next_x[i][1].x);
      pairs[2 + i] = terms_of<bfloat>(next_x[i][0].y, next_x[i][1].y);
    }
    uint4* target = planes + stage % 2 * kTerms * kPlane + staged_place;
    target[0] = uint4{pairs[0].high, pairs[1].high, pairs[2].high, pairs[3].high};
    if (kTerms > 1) target[kPlane] = uint4{pairs[0].low, pairs[1].low, pairs[2].low, pairs[3].low};
    if (kBiased) {
#pragma unroll
      for (uint i = 0; i < 2; ++i) {
        const float2 first = kTerms > 1 ? next_x[i][0] : Units::floats(pairs[i].high);
        const float2 second = kTerms > 1 ? next_x[i][1] : Units::floats(pairs[2 + i].high);
        float sum = (first.x + first.y) + (second.x + second.y);
        sum += ::__shfl_xor_sync(0xffffffffu, sum, 1);
        sum += ::__shfl_xor_sync(0xffffffffu, sum, 2);
        sum += ::__shfl_xor_sync(0xffffffffu, sum, 16);
        store_if(
            lane < 16 && t == 0, shared_address(totals + stage % 2 * kTileTokens + staged_sum + i * 8), sum);
      }
    }
#pragma unroll
    for (uint s = 0; s < kStageUnits; ++s) {
#pragma unroll
      for (uint j = 0; j < kColumns; ++j) now_w[s][j] = next_w[s][j];
#pragma unroll
      for (uint j = 0; j < kTurns; ++j) now_scale[s][j] = next_scale[s][j];
    }
  }

  // Adds unit `s` of a stage.
  void add(uint stage, uint s) {
    const uint4* plane = planes + stage % 2 * kTerms * kPlane + s * blocks * 64 + lane;
#pragma unroll
    for (uint step = 0; step < 2; ++step) {
      StepTerms b[kColumns];
#pragma unroll
      for (uint j = 0; j < kColumns; ++j)
        b[j] = weights_of(matrix, now_w[s][j], now_scale[s][kScaled ? 0 : j], t, step);
#pragma unroll
      for (uint m = 0; m < blocks; ++m) {
        const uint4 high = plane[m * 64 + step * 32];
        if constexpr (kTerms > 1) {
          const uint4 low = plane[kPlane + m * 64 + step * 32];
#pragma unroll
          for (uint j = 0; j < kColumns; ++j) {
            float(&c)[4] = kScaled ? group[m][j] : result[m][j];
            if (kRounded) Units::multiply(c, high, b[j].low[0], b[j].low[1]);
            Units::multiply(c, low, b[j].high[0], b[j].high[1]);
          }
        }
#pragma unroll
        for (uint j = 0; j < kColumns; ++j)
          Units::multiply(kScaled ? group[m][j] : result[m][j], high, b[j].high[0], b[j].high[1]);
      }
    }
    if (kBiased) {
#pragma unroll
      for (uint m = 0; m < blocks; ++m) {
        const float* sums = totals + stage % 2 * kTileTokens + (s * blocks + m) * 16 + g;
        total[m][0] += sums[0];
        total[m][1] += sums[8];
      }
    }
  }

  // Multiplies the sums of a group by its scales, which ends with unit `s` of a stage.
  void end_group(uint s) {
    const float2 scale = scale_of(matrix, now_scale[s][0]);
#pragma unroll
    for (uint j = 0; j < kColumns; ++j) {
#pragma unroll
      for (uint e = 0; e < 2; ++e) {
        const uint from = (t * 2 + e) * 4 + j;
        const float factor = ::__shfl_sync(0xffffffffu, scale.x, from);
        const float bias = kBiased ? ::__shfl_sync(0xffffffffu, scale.y, from) : 0.0f;
#pragma unroll
        for (uint m = 0; m < blocks; ++m) {
#pragma unroll
          for (uint i = 0; i < 2; ++i) {
            float& sum = result[m][j][i * 2 + e];
            sum = fma(group[m][j][i * 2 + e], factor, sum);
            group[m][j][i * 2 + e] = 0;
            if (kBiased) sum = fma(total[m][i], bias, sum);
          }
        }
      }
    }
#pragma unroll
    for (uint m = 0; m < blocks; ++m) total[m][0] = total[m][1] = 0;
  }

  void run() {
    const uint stages = (units + kStageUnits - 1) / kStageUnits;
    fetch(0);
    keep(0);
    ::__syncthreads();
    for (uint stage = 0; stage < stages; ++stage) {
      if (stage + 1 < stages) fetch(stage + 1);
#pragma unroll
      for (uint s = 0; s < kStageUnits; ++s) {
        const uint unit = stage * kStageUnits + s;
        if (s > 0 && unit >= units) break;
        add(stage, s);
        if (kScaled && ends_group(matrix, unit)) end_group(s);
      }
      if (stage + 1 < stages) keep(stage + 1);
      ::__syncthreads();
    }
  }
};

template <uint count, uint blocks, uint outs = kSimdgroupOuts, typename W>
inline void multiply_blocks(const TileCall<W>& call, float* memory) {
  auto [w, x, rows, in, units, first, out, factors, y, tid] = call;
  using Product = TileProduct<count, blocks, outs, W>;
  constexpr uint kColumns = Product::kColumns, kOwn = kColumns / count;  // of two matrices, 8 outs of each
  const uint lane = tid % 32, g = lane / 4, t = lane % 4;
  const uint warp_first = first + tid / 32 * kOwn * 8;
  Product product = {w[0], units, lane, g, t};
  if (units > 0 && rows > 0) {
    product.planes = reinterpret_cast<uint4*>(memory);
    product.totals = memory + 2 * kTerms * 4 * Product::kPlane;
    // A thread stages what one lane needs of one step: two pairs of two tokens.
    const uint step = lane / 16, target = tid / 32 % 2 * 16 + lane % 16;
    product.staged_unit = tid / 64 / blocks;
    product.staged_place = (tid / 64 * 2 + step) * 32 + target;
    product.staged_sum = tid / 64 * 16 + target / 4;
    const uint token = tid / 64 % blocks * 16 + target / 4;
#pragma unroll
    for (uint i = 0; i < 2; ++i) {
      product.source[i] = x + ulong(min(token + i * 8, rows - 1)) * in + target % 4 * kOctet + step * 2;
    }
    const auto row_of = [&](uint j) { return min(warp_first + j % kOwn * 8 + g, out - 1); };
#pragma unroll
    for (uint j = 0; j < kColumns; ++j) {
      product.row[j] = from_row(w[j / kOwn], row_of(j));
      hold_codes(product.row[j]);
      if (!Product::kScaled) product.scaled_row[j % Product::kTurns] = product.row[j];
    }
    if (Product::kScaled)
      product.scaled_row[0] = from_row(t % kColumns < kOwn ? w[0] : w[count - 1], row_of(t % kColumns));
    product.run();
  }
  asm volatile("" : "+r"(out));  // places of results are computed here, not before the loop
#pragma unroll
  for (uint m = 0; m < blocks; ++m) {
#pragma unroll
    for (uint e = 0; e < 4; ++e) {
      const uint token = m * 16 + e / 2 * 8 + g;
      if (token >= rows) continue;
#pragma unroll
      for (uint j = 0; j < kOwn; ++j) {
        const uint column = warp_first + j * 8 + t * 2 + e % 2;
        const float(&sums)[kColumns][4] = product.result[m];
        if (column < out)
          y[ulong(token) * out + column] =
              count == 1 ? sums[j][e] * factors.x
                         : silu(sums[j][e] * factors.x) * (sums[kColumns - kOwn + j][e] * factors.y);
      }
    }
  }
}

// Takes as many blocks as have tokens.
template <uint count, typename W>
inline void multiply_by_blocks(const TileCall<W>& call, float* memory) {
  if (call.rows > 32)
    multiply_blocks<count, 4>(call, memory);
  else if (call.rows > 16)
    multiply_blocks<count, 2>(call, memory);
  else
    multiply_blocks<count, 1>(call, memory);
}

#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
#include "warpgroup_tile.h"
#else
template <typename W>
constexpr bool is_for_warpgroups() {
  return false;
}
#endif

template <uint count, typename W>
inline void multiply_tile(
    const W* w,
    const float* x,
    uint rows,
    uint in,
    uint units,
    uint first,
    uint out,
    float2 factors,
    float* y,
    uint tid,
    float* memory) {
  const TileCall<W> call = {w, x, rows, in, units, first, out, factors, y, tid};
  if constexpr (is_for_warpgroups<W>())
    multiply_by_warpgroups<count>(call);
  else
    multiply_by_blocks<count>(call, memory);
}
