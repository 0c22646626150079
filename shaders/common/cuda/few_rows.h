// multiply_few for NVIDIA's matrix units: each weight is read once for eight tokens.
//
// The left operand has 16 rows of weights, the right one eight tokens. x is the sum of three bf16 values, 24 bits. Codes are
// exact in bf16: the products of a group are summed in f32, then multiplied by its scale; bf16 are operands as they are.
// Where a unit has several scales, and where weights are f16, weights and x are sums of two values, 17 bits, and three of the
// four products are added up. A lane makes operands in registers, those of x for up to 32 rows.
//
// The warps of a threadgroup share the ins of its rows; with two matrices, every second warp has the second one.
#include "few_operands.h"
#include "shared_rows.h"

#define PT_RESIDENT 2

constexpr uint kFewWarps = 8;
constexpr uint kRound =
    4;  // steps whose weights and x are asked for, and whose scales the four lanes of a row have
constexpr uint kRoundFours = kRound * kFewTokens * 2 * kUnit / 4;  // of x, for a warp

// As the front end reads it: a threadgroup has 16 rows.
struct FewForm {
  static constexpr uint kSpan = 16 / kRowsPerGroup, kThreads = kFewWarps * 32;
  static constexpr uint kBytes = kFewWarps * kRoundFours * sizeof(float4);
};
#define PT_FORM(...) FewForm

// Of so many threadgroups, the first half or less has 32 rows each, and the others none. Found on an H200, which has 132
// multiprocessors.
constexpr uint kManyGroups = 192;

// The products of a warp with its share of the ins, in steps of `units` units that have one scale. Lane (g, t) has row g of
// each block of eight rows, x of token g, and the results of tokens 2 t and 2 t + 1.
template <uint blocks, uint units, typename W>
struct FewProduct {
  static constexpr bool kScaled = W::kSharesScale;  // the products of a group are scaled, not the weights
  static constexpr bool kBiased = kScaled && W::kHasBias;   // by the sums of x
  static constexpr bool kExact = kScaled || kIsOperand<W>;  // operands are what is multiplied
  static constexpr uint kFours = units * kUnit / 4;         // of a token in a step
  static constexpr uint kStage = kFours * kFewTokens;

  using Octet = typename W::Octet;

  W matrix;           // from the first row on
  W row[blocks];      // from the lane's rows on
  uint unit[blocks];  // their first units in the matrix
  const float* x;     // what the lane copies of the first tokens
  uint tokens, in, lane, g, t;
  uint offsets;    // of code_pair_of
  float4* stages;  // of x, for this warp
  uint copied;     // where the lane copies to
  float result[blocks][2];

  // Where four values of a token are in a stage: lanes that read together use different banks.
  static uint place_of(uint token, uint four) {
    return token * kFours + (units == 2 ? four ^ four >> 3 ^ (token & 1) << 1 : four ^ (token & 1));
  }

  void ask_x(uint step, uint stage) const {
    const float* from = x + step * units * kUnit;
#pragma unroll
    for (uint first = 0; first < kFewTokens; first += 32 / kFours) {
      if (first + lane / kFours < tokens)
        copy_16_bytes(copied + (stage * kStage + first * kFours) * 16, from + first * in, 16);
    }
  }

  void fetch_codes_of(uint step, Octet (&to)[blocks][units]) const {
#pragma unroll
    for (uint j = 0; j < blocks; ++j)
      fetch_octets(row[j], step * units + t * units / 4, t * units % 4, to[j]);
  }

  // The scales of step `step` + t.
  void fetch_scales(uint step, uint end, Octet (&to)[blocks]) const {
#pragma unroll
    for (uint j = 0; j < blocks; ++j)
      fetch_scale(matrix, 0, unit[j] + min(step + t, end - 1) * units, 0, to[j]);
  }

  // Adds the step that is number `stage` of its round.
  void add(const Octet (&codes)[blocks][units], const float2 (&scales)[blocks], uint stage) {
    const float4* values = stages + stage * kStage;
    float sums[blocks / 2][4] = {}, small_sums[blocks / 2][4] = {};
    float total = 0;
#pragma unroll
    for (uint i = 0; i < units; ++i) {
      const float4 p = values[place_of(g, (t * units + i) * 2)];
      const float4 q = values[place_of(g, (t * units + i) * 2 + 1)];
      if (kBiased) total += ((p.x + p.y) + (p.z + p.w)) + ((q.x + q.y) + (q.z + q.w));
      const TokenTerms b(p, q);
#pragma unroll
      for (uint m = 0; m < blocks / 2; ++m) {
        const OctetTerms upper = octet_terms(matrix, codes[2 * m][i], t * units % 4 + i, offsets);
        const OctetTerms lower = octet_terms(matrix, codes[2 * m + 1][i], t * units % 4 + i, offsets);
#pragma unroll
        for (uint k = 0; k < 4; k += 2) {
          const uint4 a = {upper.high[k], lower.high[k], upper.high[k + 1], lower.high[k + 1]};
          const auto multiply = [&](float(&c)[4], uint4 weights, uint term) {
            FewUnits::multiply(c, weights, b.terms[term][k], b.terms[term][k + 1]);
          };
          if (kExact)
            multiply(small_sums[m], a, 2);
          else
            multiply(small_sums[m], {upper.low[k], lower.low[k], upper.low[k + 1], lower.low[k + 1]}, 0);
          multiply(small_sums[m], a, 1);
          multiply(sums[m], a, 0);
        }
      }
    }
    float totals[2] = {};
    if (kBiased) {
      total += ::__shfl_xor_sync(0xffffffffu, total, 1);
      total += ::__shfl_xor_sync(0xffffffffu, total, 2);
#pragma unroll
      for (uint e = 0; e < 2; ++e) totals[e] = ::__shfl_sync(0xffffffffu, total, (t * 2 + e) * 4);
    }
#pragma unroll
    for (uint j = 0; j < blocks; ++j) {
      const float scale = kScaled ? ::__shfl_sync(0xffffffffu, scales[j].x, stage, 4) : 1.0f;
      const float bias = kBiased ? ::__shfl_sync(0xffffffffu, scales[j].y, stage, 4) : 0.0f;
#pragma unroll
      for (uint e = 0; e < 2; ++e) {
        const float sum = sums[j / 2][j % 2 * 2 + e] + small_sums[j / 2][j % 2 * 2 + e];
        float& to = result[j][e];
        to = kScaled ? fma(sum, scale, to) : to + sum;
        if (kBiased) to = fma(totals[e], bias, to);
      }
    }
  }

  void run(uint begin, uint end) {
    if (begin >= end) return;
    for (uint i = lane; i < kRound * kStage; i += 32) {
      if (i / kFours % kFewTokens >= tokens) stages[i] = float4(0);
    }
    Octet codes[kRound][blocks][units], next_scales[blocks];
    if (kScaled) fetch_scales(begin, end, next_scales);
#pragma unroll
    for (uint i = 0; i < kRound; ++i) {
      if (begin + i < end) fetch_codes_of(begin + i, codes[i]);
    }
#pragma unroll
    for (uint i = 0; i < kRound - 1; ++i) {
      if (begin + i < end) ask_x(begin + i, i);
      copies_asked();
    }
    for (uint round = begin; round < end; round += kRound) {
      float2 scales[blocks];
      if (kScaled) {
#pragma unroll
        for (uint j = 0; j < blocks; ++j) scales[j] = scale_of(matrix, next_scales[j]);
        if (round + kRound < end) fetch_scales(round + kRound, end, next_scales);
      }
#pragma unroll
      for (uint i = 0; i < kRound; ++i) {
        const uint step = round + i;
        if (step >= end) break;
        wait_for_copies_but<kRound - 2>();
        ::__syncwarp();  // and all lanes have read the stage before, which the next copies overwrite
        if (step + kRound - 1 < end) ask_x(step + kRound - 1, (i + kRound - 1) % kRound);
        copies_asked();
        add(codes[i], scales, i);
        if (step + kRound < end) fetch_codes_of(step + kRound, codes[i]);
      }
    }
  }
};

// What a threadgroup multiplies: rows from `first` on, and the tokens of a pass.
template <typename W>
struct FewCall {
  const W* w;
  const float* x;
  uint tokens, pass, in, first, out;
  float2 factors;
  float* y;
  uint tid;
};

template <uint count, uint blocks, uint units, typename W>
inline void multiply_few_blocks(const FewCall<W>& call) {
  auto [w, x, tokens, pass, in, first, out, factors, y, tid] = call;
  using Product = FewProduct<blocks, units, W>;
  constexpr uint kFours = Product::kFours, kRowCount = blocks * 8, kStride = kFewTokens + 1;
  static_assert(kRowCount * kStride <= kRoundFours * 4, "shares of results are where x was");
  x += ulong(pass) * kFewTokens * in;
  y += ulong(pass) * kFewTokens * out;
  tokens = min(kFewTokens, tokens - pass * kFewTokens);
  const uint lane = tid % 32, g = lane / 4, t = lane % 4;
  const uint warp = ::__shfl_sync(0xffffffffu, tid / 32, 0);
  float4* memory = reinterpret_cast<float4*>(dynamic_memory());
  const W own = warp % count == 0 ? w[0] : w[count - 1];
  Product product = {from_row(own, first)};
#pragma unroll
  for (uint j = 0; j < blocks; ++j) {
    const uint row = min(j * 8 + g, out - 1 - first);
    product.unit[j] = row * own.units;
    product.row[j] = from_row(product.matrix, row);
    hold_codes(product.row[j]);
  }
  product.x = x + ulong(lane / kFours) * in + lane % kFours * 4;
  hold(product.x);
  product.tokens = tokens, product.in = in;
  product.lane = lane, product.g = g, product.t = t;
  product.offsets = pair_offsets(tokens);
  product.stages = memory + warp * kRoundFours;
  product.copied = shared_address(product.stages + Product::place_of(lane / kFours, lane % kFours));
  const uint steps = own.units / units, split = kFewWarps / count, share = (steps + split - 1) / split;
  const uint begin = min(warp / count * share, steps);
  product.run(begin, min(begin + share, steps));

  wait_for_copies();
  ::__syncwarp();
  float* shares = reinterpret_cast<float*>(product.stages);  // of this warp: [rows, tokens]
#pragma unroll
  for (uint j = 0; j < blocks; ++j) {
#pragma unroll
    for (uint e = 0; e < 2; ++e) shares[(j * 8 + g) * kStride + t * 2 + e] = product.result[j][e];
  }
  ::__syncthreads();
  const uint token = tid / kRowCount, row = tid % kRowCount;
  if (token >= tokens || first + row >= out) return;
  float sums[count] = {};
#pragma unroll
  for (uint i = 0; i < kFewWarps; ++i)
    sums[i % count] += reinterpret_cast<float*>(memory + i * kRoundFours)[row * kStride + token];
  y[ulong(token) * out + first + row] =
      count == 1 ? sums[0] * factors.x : silu(sums[0] * factors.x) * (sums[count - 1] * factors.y);
}

template <uint count, uint blocks, typename W>
inline void multiply_few_rows(const FewCall<W>& call) {
  if constexpr (kReadsTwoOctets<W>) {
    if (!ends_group(call.w[0], 0)) return multiply_few_blocks<count, blocks, 2>(call);
  }
  multiply_few_blocks<count, blocks, 1>(call);
}

template <uint count, typename W>
inline void multiply_few(
    const W* w,
    const float* x,
    uint tokens,
    uint in,
    uint2 tg,
    uint out,
    float2 factors,
    float* y,
    uint tid,
    float*) {
  const uint passes = ::gridDim.y;  // over the rows, with eight tokens each
  const uint group = tg.y * ::gridDim.x + tg.x;
  if (kNeedsRegisters<W> || ::gridDim.x * passes < kManyGroups)
    multiply_few_rows<count, 2>(FewCall<W>{w, x, tokens, tg.y, in, tg.x * 16, out, factors, y, tid});
  else if (group / passes * 32 < out)
    multiply_few_rows<count, 4>(
        FewCall<W>{w, x, tokens, group % passes, in, group / passes * 32, out, factors, y, tid});
}
