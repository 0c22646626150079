// Tiles of 64 tokens and 128 or 256 rows of weights for the matrix units of Hopper.
//
// Two warpgroups decode weights and multiply, in one or two tiles of 64 rows each: while some products are computed, the
// weights of the next are decoded and the sums of the last scaled. Two more bring what they need to shared memory: terms
// of x, copies of 4-bit codes, and scales, eight groups of a row at a time. They wait for each other at barriers of a stage.
#pragma once

constexpr uint kMultipliers = 256, kBringers = 256;                 // threads
constexpr uint kMultiplierRegisters = 184, kBringerRegisters = 72;  // of a thread
constexpr uint kTileRows = 128;                                     // of the two warpgroups together
constexpr uint kMostRows = 2 * kTileRows;
constexpr uint kPanelGroups = 8;  // groups whose scales are brought together
constexpr uint kPanels = 3;       // one that is used, the one before, the next
constexpr uint kCodeStages = 3;

// Stages of a product, and where they are in shared memory.
template <bool copied>
struct WideShape {
  static constexpr uint kUnits = copied ? 4 : 2, kParts = kUnits / 2;
  static constexpr uint kTermBytes = kParts * kTileTokens * 128;
  static constexpr uint kCodePitch = kUnits * 16 + 32;  // of a row, so that neighbours begin in other banks
  static constexpr uint kCodeBytes = copied ? kMostRows * kCodePitch : 0;
  static constexpr uint kSumBytes = kUnits * kTileTokens * 4;
  static constexpr uint kPanelPitch = (kMostRows + 4) * 8;  // of a group, for the same reason

  // Two stages of terms, copies of codes, two stages of sums of x, panels of factors, barriers.
  static constexpr uint kCodes = 2 * kTerms * kTermBytes;
  static constexpr uint kSums = kCodes + kCodeStages * kCodeBytes;
  static constexpr uint kFactors = kSums + 2 * kSumBytes;
  static constexpr uint kBarriers = kFactors + kPanels * kPanelGroups * kPanelPitch;
  static constexpr uint kBytes = kBarriers + (4 + kCodeStages) * 8;
};

struct WideForm {
  static constexpr uint kSpan = 1, kThreads = kMultipliers + kBringers;
  static constexpr uint kBytes = WideShape<true>::kBytes + 1024;
};
#undef PT_FORM
#define PT_FORM(...) WideForm

// Whether codes are words of eight 4-bit ones, which are copied to shared memory. Where units have several scales, lanes
// load both.
template <typename W>
constexpr bool is_copied() {
  if constexpr (requires { W::kBits; })
    return W::kBits == 4 && W::kSharesScale;
  else
    return false;
}

// Whether codes that are copied begin at a multiple of 16 bytes.
template <uint count, typename W>
inline bool can_copy(const W* w) {
  if constexpr (is_copied<W>())
    return (reinterpret_cast<ulong>(w[0].packed) | reinterpret_cast<ulong>(w[count - 1].packed)) % 16 == 0;
  else
    return true;
}

// Whether octets leave registers for two tiles.
template <typename W>
constexpr bool kHasTwoTiles = sizeof(typename W::Octet) <= 16;

// Lane t of four has octets 2 t and 2 t + 1 of each 64 values, or of groups of one unit octet t of both units.
template <uint count, uint tiles, uint group, typename W>
struct WideProduct {
  static constexpr bool kCopied = is_copied<W>();
  using Shape = WideShape<kCopied>;
  static constexpr uint kTiles = tiles, kRows = kTiles * 2;  // of a lane
  static constexpr uint kStageUnits = Shape::kUnits;
  static constexpr uint kGroups = kStageUnits / group;  // of a stage
  static constexpr uint kSteps = group * 2;             // of 16 values
  static constexpr bool kRounded = kRoundsWeights<W>;
  // The products of a group are scaled, not the weights.
  static constexpr bool kScaled = W::kSharesScale && !kRounded;
  static constexpr bool kBiased = kScaled && W::kHasBias;  // by the sums of x
  static constexpr uint kWeightTerms = kScaled || kIsOperand<W> ? 1 : kTerms;
  static constexpr uint kPanelStages = kPanelGroups / kGroups;
  static constexpr uint kWarpRows = kTiles * 16;

  using Octet = typename W::Octet;

  const W* w;
  const float* x;
  uint rows, in, units, first, out, tid, lane, t;
  uint memory;  // where it begins

  uint stages() const { return (units + kStageUnits - 1) / kStageUnits; }
  uint stage_terms(uint stage) const { return memory + stage % 2 * (kTerms * Shape::kTermBytes); }
  uint stage_sums(uint stage) const { return memory + Shape::kSums + stage % 2 * Shape::kSumBytes; }
  uint stage_codes(uint slot) const { return memory + Shape::kCodes + slot * Shape::kCodeBytes; }
  uint panel(uint number) const {
    return memory + Shape::kFactors + number % kPanels * (kPanelGroups * Shape::kPanelPitch);
  }
  uint filled(uint stage) const { return memory + Shape::kBarriers + stage % 2 * 8; }
  uint used(uint stage) const { return memory + Shape::kBarriers + 16 + stage % 2 * 8; }
  uint copied(uint slot) const { return memory + Shape::kBarriers + 32 + slot * 8; }

  // Of all threads, before their work differs.
  void begin() const {
    if (tid == 0) {
#pragma unroll
      for (uint i = 0; i < 2; ++i) {
        init_barrier(filled(i), kBringers);
        init_barrier(used(i), kMultipliers / 32);
      }
#pragma unroll
      for (uint i = 0; i < kCodeStages; ++i) init_barrier(copied(i), kBringers);
    }
    publish_columns();
    ::__syncthreads();
  }

  // Row `place` of the threadgroup. A warp has kWarpRows, of two matrices 8 of each by turns.
  const W& matrix_at(uint place) const { return w[count > 1 && place / 8 % 2 ? count - 1 : 0]; }
  uint row_at(uint place) const { return first + (count == 1 ? place : place / 16 * 8 + place % 8); }

  // Unit and octet of what a lane has of 64 values as its first and its second octet.
  uint unit_of(uint part, uint second) const { return part * 2 + (group == 2 ? t / 2 : second); }
  uint octet_of(uint second) const { return group == 2 ? t % 2 * 2 + second : t; }

  // What the other two warpgroups do ----------------------------------------------------------------

  static constexpr uint kItems = Shape::kParts * 2;  // octets of x of a thread in a stage

  struct Inputs {
    float4 values[kItems][2];
  };

  uint own_token() const { return tid / 8 % 32; }

  // Loads octet i of a stage: of token own_token() or that plus 32.
  void load(uint stage, uint i, Inputs& inputs) const {
    const uint token = min(i % 2 * 32 + own_token(), rows - 1),
               column = stage * kStageUnits * kUnit + tid % 8 * kOctet;
    const float4* from = reinterpret_cast<const float4*>(x + ulong(token) * in + column + i / 2 * 64);
    if ((stage + 1) * kStageUnits <= units || column + i / 2 * 64 < units * kUnit) {
      inputs.values[i][0] = from[0];
      inputs.values[i][1] = from[1];
    } else {
      inputs.values[i][0] = inputs.values[i][1] = float4(0);
    }
  }

  // Makes terms of an octet of x.
  void convert(uint stage, uint i, const Inputs& inputs) const {
    const uint octet = tid % 8, token = i % 2 * 32 + own_token();
    const uint chunk = group == 2 ? octet % 2 * 4 : octet / 4 * 4, at = group == 2 ? octet / 2 : octet % 4;
    const uint place = own_token() * 128 + (chunk ^ own_token() % 8) * 16 + at * 4;
    const float4 low = inputs.values[i][0], high = inputs.values[i][1];
    const float begin[4] = {low.x, low.y, low.z, low.w}, end[4] = {high.x, high.y, high.z, high.w};
    float sum = 0;
#pragma unroll
    for (uint m = 0; m < 4; ++m) {
      const PairTerms pair = terms_of<bfloat>(begin[m], end[m]);
      const uint to = stage_terms(stage) + (place ^ m * 16) + (i / 2 * kTileTokens + i % 2 * 32) * 128;
      store_shared(to, pair.high);
      if (kTerms > 1) store_shared(to + Shape::kTermBytes, pair.low);
      const float2 read = kTerms > 1 ? float2(begin[m], end[m]) : Units::floats(pair.high);
      sum += read.x + read.y;
    }
    if constexpr (kBiased) {
#pragma unroll
      for (uint distance = 1; distance < 4 * group; distance *= 2)
        sum += ::__shfl_xor_sync(0xffffffffu, sum, distance);
      const uint number = group == 2 ? i / 2 : i / 2 * 2 + octet / 4;
      store_if(octet % (4 * group) == 0, stage_sums(stage) + (number * kTileTokens + token) * 4, sum);
    }
  }

  // Asks for the codes of a stage.
  void copy_codes(uint stage, uint slot) const {
    if constexpr (kCopied) {
      constexpr uint kStep = kBringers / 4;  // rows
      const uint place = (tid - kMultipliers) / 4, unit = stage * kStageUnits + tid % 4;
      const uint row = row_at(place), to = stage_codes(slot) + place * Shape::kCodePitch + tid % 4 * 16;
      const uint* words = from_row(matrix_at(place), min(row, out - 1)).packed + min(unit, units - 1) * 4;
      const ulong stride = ulong(kStep / count) * w[0].units * 4;
#pragma unroll
      for (uint i = 0; i < kTiles * kTileRows / kStep; ++i) {
        const bool exists = unit < units && row + i * (kStep / count) < out;
        copy_16_bytes(
            to + i * kStep * Shape::kCodePitch, exists ? words + i * stride : words, exists ? 16 : 0);
      }
      arrive_with_copies(copied(slot));
    }
  }

  static constexpr uint kShare = kGroups;  // factors of a thread in a stage

  uint factor_place(uint share, uint i) const { return (share * kShare + i) * 32 + own_token(); }
  static constexpr bool has_factors(uint share, uint i) {
    return tiles == 2 || (share * kShare + i) * 32 < kTileRows;
  }
  uint factor_unit(uint number) const { return (number * kPanelGroups + tid % 8) * group; }

  // Asks for a share of the factors of a panel.
  void fetch_factors(uint number, uint share, Octet (&octets)[kShare]) const {
#pragma unroll
    for (uint i = 0; i < kShare; ++i) {
      if (!has_factors(share, i)) continue;
      const uint place = factor_place(share, i);
      fetch_scale(
          matrix_at(place), min(row_at(place), out - 1), min(factor_unit(number), units - 1), 0, octets[i]);
    }
  }

  // The factors of a group as multipliers read them.
  float2 factors_in(const Octet& octet) const {
    if constexpr (kRounded) {
      const PairFactors factors = PairFactors::of(scale_and_bias(octet));
      return {as_type<float>(factors.scale), as_type<float>(factors.bias)};
    } else {
      return scale_of(w[0], octet);
    }
  }

  // Those of groups that do not exist are zero.
  void keep_factors(uint number, uint share, const Octet (&octets)[kShare]) const {
    const bool exists = factor_unit(number) < units;
#pragma unroll
    for (uint i = 0; i < kShare; ++i) {
      if (has_factors(share, i))
        store_shared(
            panel(number) + tid % 8 * Shape::kPanelPitch + factor_place(share, i) * 8,
            exists ? factors_in(octets[i]) : float2(0));
    }
  }

  void bring() const {
    const uint count_of_stages = stages();
    Inputs inputs;
    Octet octets[kShare];
    copy_codes(0, 0);
#pragma unroll
    for (uint i = 0; i < kItems; ++i) load(0, i, inputs);
    if constexpr (W::kSharesScale) {
      for (uint share = 0; share < kPanelStages; ++share) {
        fetch_factors(0, share, octets);
        keep_factors(0, share, octets);
      }
    }
    uint slot = 1;  // of the next stage
    for (uint stage = 0; stage < count_of_stages; ++stage) {
      if (stage >= 2) wait_for_turn(used(stage), (stage / 2 + 1) % 2);
      if (stage + 1 < count_of_stages) copy_codes(stage + 1, slot);
      slot = slot + 1 == kCodeStages ? 0 : slot + 1;
      if constexpr (W::kSharesScale) fetch_factors(stage / kPanelStages + 1, stage % kPanelStages, octets);
#pragma unroll
      for (uint i = 0; i < kItems; ++i) {
        convert(stage, i, inputs);
        load(min(stage + 1, count_of_stages - 1), i, inputs);
      }
      if constexpr (W::kSharesScale) keep_factors(stage / kPanelStages + 1, stage % kPanelStages, octets);
      publish_columns();
      arrive(filled(stage));
    }
  }

  // What the others do ------------------------------------------------------------------------------

  // The weights of a lane where they are not copied: codes, and scales if a unit has several.
  struct Weights {
    W row[kRows];
    Octet codes[kStageUnits][kRows], scale[W::kSharesScale ? 1 : kStageUnits][W::kSharesScale ? 1 : kRows];
  };

  // The place of the lane's first row.
  uint place() const { return tid / 32 * kWarpRows + lane / 4; }

  // Loads those of tile j in group b.
  void fetch(uint stage, uint b, uint j, Weights& weights) const {
    if constexpr (!kCopied) {
#pragma unroll
      for (uint s = b * group; s < (b + 1) * group; ++s) {
        const uint unit = min(stage * kStageUnits + unit_of(s / 2, s % 2), units - 1);
#pragma unroll
        for (uint r = j * 2; r < j * 2 + 2; ++r) {
          fetch_codes(weights.row[r], 0, unit, octet_of(s % 2), weights.codes[s][r]);
          if constexpr (!W::kSharesScale)
            fetch_scale(weights.row[r], 0, unit, octet_of(s % 2), weights.scale[s][r]);
        }
      }
    }
  }

  void decode(uint stage, uint slot, uint b, uint j, const Weights& weights, uint4 (&a)[kWeightTerms][kSteps])
      const {
    const uint part = b * group / 2;
    PairFactors factors[2];
    if constexpr (kRounded) {
#pragma unroll
      for (uint h = 0; h < 2; ++h) {
        const uint2 pairs = shared_words(factors_at(stage, b, j) + h * 64);
        factors[h] = {pairs.x, pairs.y};
      }
    }
    uint2 words[2];
    if constexpr (kCopied) {
      const uint own = stage_codes(slot) + (place() + j * 16) * Shape::kCodePitch;
#pragma unroll
      for (uint h = 0; h < 2; ++h) {
        const uint from = own + h * 8 * Shape::kCodePitch;
        words[h] =
            group == 2 ? shared_words(from + part * 32 + t * 8) : uint2(shared_word(from + b * 16 + t * 4));
      }
    }
#pragma unroll
    for (uint k = 0; k < kSteps; ++k) {
      const uint second = group == 2 ? k / 2 : b % 2, s = part * 2 + second;
      StepTerms terms[2];
#pragma unroll
      for (uint h = 0; h < 2; ++h) {
        const uint word = group == 2 && second > 0 ? words[h].y : words[h].x;
        if constexpr (kCopied && W::kPairOffset == 128) {
          terms[h] = step_of_word(word, k % 2);
          if constexpr (kRounded) terms[h] = factors[h].weights_of(terms[h]);
        } else {
          Octet octet;
          if constexpr (kCopied)
            octet.words = uint2(word);
          else
            octet = weights.codes[s][j * 2 + h];
          terms[h] = weights_of(
              w[0], octet, weights.scale[W::kSharesScale ? 0 : s][W::kSharesScale ? 0 : j * 2 + h],
              octet_of(second), k % 2);
        }
      }
      a[0][k] = uint4{terms[0].high[0], terms[1].high[0], terms[0].high[1], terms[1].high[1]};
      if constexpr (kWeightTerms > 1)
        a[1][k] = uint4{terms[0].low[0], terms[1].low[0], terms[0].low[1], terms[1].low[1]};
    }
  }

  uint factors_at(uint stage, uint b, uint j) const {
    const uint number = stage * kGroups + b;
    return panel(number / kPanelGroups) + number % kPanelGroups * Shape::kPanelPitch + (place() + j * 16) * 8;
  }

  GroupFactors factors_of(uint stage, uint b, uint j) const {
    GroupFactors factors = {};
    const uint own = factors_at(stage, b, j);
#pragma unroll
    for (uint h = 0; h < 2; ++h) {
      const float2 factor = shared_float2(own + h * 64);
      factors.scale[h] = factor.x;
      factors.bias[h] = factor.y;
    }
    factors.totals = stage_sums(stage) + b * kTileTokens * 4;
    return factors;
  }

  void multiply(float (&result)[kTiles][kTileTokens / 2]) const {
    const uint count_of_stages = stages();
    Weights weights;
    uint4 a[2][kWeightTerms][kSteps];  // of the products that are computed and of those before them
    float sums[2][kTileTokens / 2];
    if constexpr (!kCopied) {
#pragma unroll
      for (uint r = 0; r < kRows; ++r)
        weights.row[r] = from_row(matrix_at(place() + r * 8), min(row_at(place() + r * 8), out - 1));
#pragma unroll
      for (uint b = 0; b < kGroups; ++b) {
#pragma unroll
        for (uint j = 0; j < kTiles; ++j) fetch(0, b, j, weights);
      }
    }
    uint slot = 0, parity = 0;
    for (uint stage = 0; stage < count_of_stages; ++stage) {
      wait_for_turn(filled(stage), stage / 2 & 1);
      if constexpr (kCopied) wait_for_turn(copied(slot), parity);
      GroupFactors last = {};
#pragma unroll
      for (uint b = 0; b < kGroups; ++b) {
        const SharedColumns columns =
            SharedColumns::at(stage_terms(stage) + b * group / 2 * kTileTokens * 128).step(b * group % 2 * 2);
#pragma unroll
        for (uint j = 0; j < kTiles; ++j) {
          const uint now = (b * kTiles + j) % 2;
          decode(stage, slot, b, j, weights, a[now]);
          fetch(min(stage + 1, count_of_stages - 1), b, j, weights);
          if constexpr (kScaled) {
            const GroupFactors factors = factors_of(stage, b, j);
            ask_group<true, Shape::kTermBytes>(sums[now], a[now], columns);
            if (b + j > 0) {
              wait_for_products<1>();
              add_group<kBiased>(result[(j + kTiles - 1) % kTiles], sums[1 - now], last, t);
            }
            last = factors;
          } else {
            ask_group<false, Shape::kTermBytes>(result[j], a[now], columns);
            wait_for_products<1>();
          }
        }
      }
      wait_for_products<0>();
      if constexpr (kScaled)
        add_group<kBiased>(result[kTiles - 1], sums[(kGroups * kTiles - 1) % 2], last, t);
      ::__syncwarp();
      if (lane == 0) arrive(used(stage));
      if (++slot == kCodeStages) {
        slot = 0;
        parity ^= 1;
      }
    }
  }
};

template <uint count, uint tiles, uint group, typename W>
inline void multiply_and_store(const WideProduct<count, tiles, group, W>& product, float2 factors, float* y) {
  using Product = WideProduct<count, tiles, group, W>;
  float result[Product::kTiles][kTileTokens / 2] = {};
  product.multiply(result);
#pragma unroll
  for (uint j = 0; j < Product::kTiles; ++j)
    store_rows<count>(
        result[j], product.rows, product.first + (product.tid / 32 * Product::kTiles + j) * (16 / count),
        product.out, factors, y, product.lane);
}

// Calls `use` with the product for the size of groups.
template <uint count, uint tiles, typename W>
inline void with_product(const TileCall<W>& call, auto use) {
  with_group(call.w, [&]<uint group>() {
    use(WideProduct<count, tiles, group, W>{
        call.w, call.x, call.rows, call.in, call.units, call.first, call.out, call.tid, call.tid % 32,
        call.tid % 4, columns_address()});
  });
}
