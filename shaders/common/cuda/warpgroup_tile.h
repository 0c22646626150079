// Tiles of 128 rows of weights for the matrix units of Hopper.
//
// Weights are the left operand: a lane decodes what it holds of two rows into registers. x is the right one, in shared
// memory as terms of bf16: one stage is multiplied while the next is filled, and what that needs is loaded before.
#pragma once

#include "octets.h"
#include "shared_rows.h"
#include "warpgroup_units.h"

constexpr uint kTermBytes = kTileTokens * 128;   // of a term of x in a stage
constexpr uint kSumBytes = 2 * kTileTokens * 4;  // of the sums of x in the groups of a stage

// Whether codes are words of eight 4-bit integers: they leave enough registers for two threadgroups on a
// multiprocessor.
template <typename W>
constexpr bool is_for_warpgroups() {
  if constexpr (requires { W::kBits; })
    return W::kBits == 4 && W::kPairOffset > 0;
  else
    return false;
}

struct TileForm {
  static constexpr uint kSpan = 1, kThreads = kTileThreads;
  static constexpr uint kBytes =
      2 * (kTerms * kTermBytes + kSumBytes) + 1024;  // from a multiple of 1024 bytes on
};
#define PT_FORM(...) TileForm

// Dynamic shared memory from a multiple of 1024 bytes on.
inline uint columns_address() { return (shared_address(dynamic_memory()) + 1023) / 1024 * 1024; }

// Codes 2 step and 2 step + 4 of a word, then the next two, which are made mantissas of bf16 from 128 on.
inline StepTerms step_of_word(uint word, uint step) {
  StepTerms terms;
#pragma unroll
  for (uint i = 0; i < 2; ++i) {
    uint pair;
    asm("lop3.b32 %0, %1, %2, %3, 0xea;"  // (a & b) | c
        : "=r"(pair)
        : "r"(word >> (step * 2 + i) * 4), "r"(0x000f000fu), "r"(0x43004300u));
    terms.high[i] = Units::add(pair, 0xc300c300u);
  }
  return terms;
}

// Whether weights are rounded to bf16, where others have the products of their codes scaled. Scales that are bf16
// themselves take one instruction for a pair of weights.
template <typename W>
constexpr bool kRoundsWeights = false;
template <>
constexpr bool kRoundsWeights<Affine<4, bfloat>> = kTerms == 1;

// The scale and the bias of a group as one word.
template <typename Octet>
inline uint scale_and_bias(const Octet& octet) {
  return as_type<ushort>(octet.scale) | uint(as_type<ushort>(octet.bias)) << 16;
}

// The scale and the bias of a group, each as a pair.
struct PairFactors {
  uint scale, bias;

  static PairFactors of(uint scale_and_bias) {
    return {::__byte_perm(scale_and_bias, 0, 0x1010), ::__byte_perm(scale_and_bias, 0, 0x3232)};
  }
  StepTerms weights_of(StepTerms codes) const {
#pragma unroll
    for (uint i = 0; i < 2; ++i) codes.high[i] = Units::fma(codes.high[i], scale, bias);
    return codes;
  }
};

// What the sums of a group are multiplied with, for the two rows of a lane.
struct GroupFactors {
  float scale[2], bias[2];
  uint totals;  // where the sums of x of each token are
};

// Asks for the products of the weights of a group: scaled ones are new sums, others are added to the result.
template <bool scaled, uint term_bytes, uint terms, uint steps, uint count>
inline void ask_group(float (&sums)[count], const uint4 (&a)[terms][steps], SharedColumns columns) {
  begin_products();
#pragma unroll
  for (uint k = 0; k < steps; ++k) {
    const SharedColumns high = columns.step(k), low = high.further((kTerms - 1) * term_bytes);
    if (scaled && k == 0)
      ask_products<false>(sums, a[0][k], low);
    else
      ask_products<true>(sums, a[0][k], low);
    if (terms > 1) ask_products<true>(sums, a[terms - 1][k], high);
    if (kTerms > 1) ask_products<true>(sums, a[0][k], high);
  }
  products_asked();
}

// Adds the sums of a group, which are complete.
template <bool biased, uint count>
inline void add_group(
    float (&result)[count],
    const float (&sums)[count],
    const GroupFactors& factors,
    uint t) {
#pragma unroll
  for (uint i = 0; i < count / 4; ++i) {
    float2 total = 0;
    if (biased) total = shared_float2(factors.totals + i * 32 + t * 8);
#pragma unroll
    for (uint e = 0; e < 4; ++e) {
      float& to = result[i * 4 + e];
      to = fma(sums[i * 4 + e], factors.scale[e / 2], to);
      if (biased) to = fma(e % 2 ? total.y : total.x, factors.bias[e / 2], to);
    }
  }
}

// The products of a threadgroup with `tokens` tokens, 16, 32 or 64. A warp has 16 rows of weights, of two matrices 8
// each. Products are summed over `group` units, 1 or 2, then scaled.
template <uint tokens, uint group, typename W>
struct WarpgroupProduct {
  static constexpr uint kStageUnits = 2 * kTileTokens / tokens;
  static constexpr uint kGroups = kStageUnits / group;  // of a stage
  static constexpr uint kSteps = group * 2;             // of 16 values
  static constexpr bool kRounded = kRoundsWeights<W>;
  // The products of a group are scaled, not the weights.
  static constexpr bool kScaled = W::kSharesScale && !kRounded;
  static constexpr bool kBiased = kScaled && W::kHasBias;  // by the sums of x
  static constexpr uint kWeightTerms = kScaled || kIsOperand<W> ? 1 : kTerms;
  // Of 64 values a lane has octets 2 t and 2 t + 1, which it reads at once, in the places of octet t of both units.
  static constexpr bool kNeighbours = group == 2 && kReadsTwoOctets<W>;
  static_assert(
      !(kNeighbours || kRounded) || (W::kPairOffset == 128 && W::kSharesScale),
      "as step_of_word makes them");
  // Scales that a lane loads: its share of those that four lanes exchange, or, where a unit has several, all of its rows'.
  static constexpr uint kScales = W::kSharesScale ? (kGroups + 1) / 2 : 2 * kStageUnits;

  using Octet = typename W::Octet;

  W matrix;  // for what is the same in all rows
  uint units, lane, t;
  uint memory;             // where it begins
  const float* source[2];  // the two octets of x that the thread stages
  uint staged_octet[2], staged_place[2], staged_sum[2];
  W row[2];         // the matrix from the lane's rows on
  W scaled_row[2];  // from the rows on whose scales it loads first and last
  float4 next_x[2][2];
  Octet next_w[kStageUnits][2], next_scale[kScales];
  Octet now_w[kStageUnits][2], now_scale[kScales];
  uint4 a[kRounded ? 2 : 1][kWeightTerms][kSteps];  // of two groups, if their sums are one
  float result[tokens / 2], sums[tokens / 2];

  uint stage_terms(uint stage) const { return memory + stage % 2 * (kTerms * kTermBytes); }
  uint stage_sums(uint stage) const { return memory + 2 * kTerms * kTermBytes + stage % 2 * kSumBytes; }

  void prepare(const float* x, uint rows, uint in, uint tid) {
#pragma unroll
    for (uint i = 0; i < 2; ++i) {
      const uint item = i * kTileThreads + tid, octet = item % 8;
      const uint token = item / 8 % tokens, part = item / 8 / tokens;  // of 64 values
      staged_octet[i] = part * 8 + octet;
      source[i] = x + ulong(min(token, rows - 1)) * in + staged_octet[i] * kOctet;
      const uint unit = kNeighbours ? octet % 2 : octet / 4, place = kNeighbours ? octet / 2 : octet % 4;
      staged_place[i] = (part * tokens + token) * 128 + ((unit * 4) ^ token % 8) * 16 + place * 4;
      staged_sum[i] = (staged_octet[i] / (4 * group) * tokens + token) * 4;
    }
  }

  void fetch(uint stage) {
    const uint first = stage * kStageUnits;
#pragma unroll
    for (uint i = 0; i < 2; ++i) {
      const bool exists = first + staged_octet[i] / kOctets < units;
      const float4* from = reinterpret_cast<const float4*>(source[i] + first * kUnit);
      next_x[i][0] = exists ? from[0] : float4(0);
      next_x[i][1] = exists ? from[1] : float4(0);
    }
#pragma unroll
    for (uint r = 0; r < 2; ++r) {
      if constexpr (kNeighbours) {
        W here = row[r];
        here.packed += ulong(first * 4 + t * 2);
#pragma unroll
        for (uint s = 0; s < kStageUnits; s += 2) {
          Octet both[2] = {};
          if (first + s < units) fetch_octets(here, s, 0, both);
          next_w[s][r] = both[0];
          next_w[s + 1][r] = both[1];
        }
      } else {
#pragma unroll
        for (uint s = 0; s < kStageUnits; ++s)
          fetch_codes(row[r], 0, min(first + s, units - 1), t, next_w[s][r]);
      }
    }
#pragma unroll
    for (uint i = 0; i < kScales; ++i) {  // those that lanes exchange are numbered row by row
      const uint s = W::kSharesScale ? (i * 4 + t) % kGroups * group : i % kStageUnits;
      fetch_scale(scaled_row[i * 2 / kScales], 0, min(first + s, units - 1), t, next_scale[i]);
    }
  }

  void keep(uint stage) {
#pragma unroll
    for (uint i = 0; i < 2; ++i) {
      const float4 low = next_x[i][0], high = next_x[i][1];
      const float first[4] = {low.x, low.y, low.z, low.w}, second[4] = {high.x, high.y, high.z, high.w};
      float sum = 0;
#pragma unroll
      for (uint m = 0; m < 4; ++m) {
        const PairTerms pair = terms_of<bfloat>(first[m], second[m]);
        const uint to = stage_terms(stage) + (staged_place[i] ^ m * 16);
        store_shared(to, pair.high);
        if (kTerms > 1) store_shared(to + kTermBytes, pair.low);
        const float2 read = kTerms > 1 ? float2(first[m], second[m]) : Units::floats(pair.high);
        sum += read.x + read.y;
      }
      if (kBiased) {
#pragma unroll
        for (uint distance = 1; distance < 4 * group; distance *= 2)
          sum += ::__shfl_xor_sync(0xffffffffu, sum, distance);
        store_if(lane % (4 * group) == 0, stage_sums(stage) + staged_sum[i], sum);
      }
    }
#pragma unroll
    for (uint s = 0; s < kStageUnits; ++s) {
#pragma unroll
      for (uint r = 0; r < 2; ++r) now_w[s][r] = next_w[s][r];
    }
#pragma unroll
    for (uint i = 0; i < kScales; ++i) now_scale[i] = next_scale[i];
    publish_columns();
  }

  // Decodes the weights of group b of the stage.
  void decode(uint b, uint4 (&a)[kWeightTerms][kSteps]) const {
    PairFactors factors[2];
    if constexpr (kRounded) {
#pragma unroll
      for (uint r = 0; r < 2; ++r) {
        const uint number = r * kGroups + b;
        factors[r] =
            PairFactors::of(::__shfl_sync(0xffffffffu, scale_and_bias(now_scale[number / 4]), number % 4, 4));
      }
    }
#pragma unroll
    for (uint k = 0; k < kSteps; ++k) {
      const uint unit = b * group + k / 2;
      StepTerms terms[2];
#pragma unroll
      for (uint r = 0; r < 2; ++r) {
        if constexpr (kRounded)
          terms[r] = factors[r].weights_of(step_of_word(now_w[unit][r].words.x, k % 2));
        else if constexpr (kNeighbours)
          terms[r] = step_of_word(now_w[unit][r].words.x, k % 2);
        else
          terms[r] =
              weights_of(matrix, now_w[unit][r], now_scale[kScaled ? 0 : r * kStageUnits + unit], t, k % 2);
      }
      a[0][k] = uint4{terms[0].high[0], terms[1].high[0], terms[0].high[1], terms[1].high[1]};
      if constexpr (kWeightTerms > 1)
        a[1][k] = uint4{terms[0].low[0], terms[1].low[0], terms[0].low[1], terms[1].low[1]};
    }
  }

  // Those of a group that does not exist are zero.
  GroupFactors factors_of(uint stage, uint b) const {
    GroupFactors factors = {};
    const bool exists = stage * kStageUnits + b * group < units;
#pragma unroll
    for (uint r = 0; r < 2; ++r) {
      const uint number = r * kGroups + b;
      const float2 own = exists ? scale_of(matrix, now_scale[number / 4]) : float2(0);
      factors.scale[r] = ::__shfl_sync(0xffffffffu, own.x, number % 4, 4);
      if (kBiased) factors.bias[r] = ::__shfl_sync(0xffffffffu, own.y, number % 4, 4);
    }
    factors.totals = stage_sums(stage) + b * tokens * 4;
    return factors;
  }

  void run() {
    const uint stages = (units + kStageUnits - 1) / kStageUnits;
    const SharedColumns begin = SharedColumns::at(memory);
    fetch(0);
    keep(0);
    team_barrier(0, kTileThreads);
    for (uint stage = 0; stage < stages; ++stage) {
      if (stage + 1 < stages) fetch(stage + 1);
      const SharedColumns staged = begin.further(stage % 2 * (kTerms * kTermBytes));
#pragma unroll
      for (uint b = 0; b < kGroups; ++b) {
        uint4(&operands)[kWeightTerms][kSteps] = a[kRounded ? b % 2 : 0];
        decode(b, operands);
        const SharedColumns columns = staged.further(b * group / 2 * tokens * 128).step(b * group % 2 * 2);
        if constexpr (kScaled) {
          const GroupFactors factors = factors_of(stage, b);
          ask_group<true, kTermBytes>(sums, operands, columns);
          if (b + 1 == kGroups && stage + 1 < stages) keep(stage + 1);
          wait_for_products<0>();
          add_group<kBiased>(result, sums, factors, t);
        } else {
          ask_group<false, kTermBytes>(result, operands, columns);
          if (b + 1 == kGroups && stage + 1 < stages) keep(stage + 1);
          if (kRounded && b + 1 < kGroups)
            wait_for_products<1>();
          else
            wait_for_products<0>();
        }
      }
      team_barrier(0, kTileThreads);
    }
  }
};

// Stores what a lane has of 16 rows of weights from out `first` on, or of 8 of each of two matrices.
template <uint count, uint sums>
inline void store_rows(
    const float (&result)[sums],
    uint rows,
    uint first,
    uint out,
    float2 factors,
    float* y,
    uint lane) {
  const uint column = first + lane / 4;
#pragma unroll
  for (uint i = 0; i < sums / 2; ++i) {
    const uint token = i / 2 * 8 + lane % 4 * 2 + i % 2;
    if (token >= rows) continue;
    const float own = result[i / 2 * 4 + i % 2], other = result[i / 2 * 4 + 2 + i % 2];
    float* to = y + ulong(token) * out + column;
    if (column < out) to[0] = count == 1 ? own * factors.x : silu(own * factors.x) * (other * factors.y);
    if (count == 1 && column + 8 < out) to[8] = other * factors.x;
  }
}

template <uint count, uint tokens, uint group, typename W>
inline void multiply_warpgroups(const TileCall<W>& call) {
  auto [w, x, rows, in, units, first, out, factors, y, tid] = call;
  using Product = WarpgroupProduct<tokens, group, W>;
  const uint lane = tid % 32, g = lane / 4, t = lane % 4;
  const uint warp_first = first + tid / 32 * (16 / count);
  Product product = {w[0], units, lane, t};
  if (units > 0 && rows > 0) {
    product.memory = columns_address();
    product.prepare(x, rows, in, tid);
    const auto row_of = [&](uint r) {
      return from_row(w[count == 1 ? 0 : r], min(warp_first + (count == 1 ? r * 8 : 0) + g, out - 1));
    };
#pragma unroll
    for (uint r = 0; r < 2; ++r) {
      product.row[r] = row_of(r);
      hold_codes(product.row[r]);
      const uint number = r * (Product::kScales / 2) * 4 + t;
      product.scaled_row[r] = W::kSharesScale ? row_of(number / Product::kGroups % 2) : product.row[r];
    }
    product.run();
  }
  asm volatile("" : "+r"(out));  // places of results are computed here, not before the loop
  store_rows<count>(product.result, rows, warp_first, out, factors, y, lane);
}

// Calls `use` with the units of a group, as a template's argument: some formats have them at run time.
template <typename W>
inline void with_group(const W* w, auto use) {
  if constexpr (requires { w->group_shift; }) {
    if (w->group_shift == 0)
      use.template operator()<1>();
    else
      use.template operator()<2>();
  } else {
    use.template operator()<W::kSharesScale || kNeedsRegisters<W> ? 1 : 2>();
  }
}

template <uint count, typename W>
inline void multiply_by_warpgroups(const TileCall<W>& call) {
  const auto multiply = [&]<uint tokens>() {
    with_group(call.w, [&]<uint group>() { multiply_warpgroups<count, tokens, group>(call); });
  };
  if (kNeedsRegisters<W> || call.rows > 32)  // fewer tokens are multiplied with more units at a time
    multiply.template operator()<64>();
  else if (call.rows > 16)
    multiply.template operator()<32>();
  else
    multiply.template operator()<16>();
}
