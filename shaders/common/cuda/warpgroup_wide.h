// Tiles of 64 tokens and 128 or 256 rows of weights for the matrix units of Hopper.
//
// Two warpgroups decode weights and multiply, in one or two tiles of 64 rows each: while some products are computed, the
// weights of the next are decoded and the sums of the last scaled. Two more bring what they need to shared memory, up to
// three stages of it: terms of x, copies of 4-bit codes, and scales, eight groups of a row at a time. They wait for each
// other at barriers of a stage.
#pragma once

constexpr uint kMultipliers = 256, kBringers = 256;  // threads
constexpr uint kTileRows = 128;                      // of the two warpgroups together
constexpr uint kMostRows = 2 * kTileRows;
constexpr uint kPanelGroups = 8;  // groups whose scales are brought together
constexpr uint kPanels = 3;       // one that is used, the one before, the next
constexpr uint kStages = 3;       // in shared memory

// Stages of a product, and where they are in shared memory.
template <bool copied>
struct WideShape {
  static constexpr uint kUnits = copied ? 4 : 2, kParts = kUnits / 2;
  static constexpr uint kTermBytes = kParts * kTileTokens * 128;
  static constexpr uint kCodePitch = kUnits * 16 + 32;  // of a row, so that neighbours begin in other banks
  static constexpr uint kCodeBytes = copied ? kMostRows * kCodePitch : 0;
  static constexpr uint kSumBytes = kUnits * kTileTokens * 4;
  static constexpr uint kPanelPitch = (kMostRows + 2) * 8;  // of a group, for the same reason

  // Terms of x, copies of codes and sums of x of each stage, panels of factors, barriers.
  static constexpr uint kCodes = kStages * kTerms * kTermBytes;
  static constexpr uint kSums = kCodes + kStages * kCodeBytes;
  static constexpr uint kFactors = kSums + kStages * kSumBytes;
  static constexpr uint kBarriers = kFactors + kPanels * kPanelGroups * kPanelPitch;
  static constexpr uint kBytes = kBarriers + kStages * 3 * 8;
};

// Which part of shared memory a stage has, and the parity of its turn there.
struct Turn {
  uint slot = 0, parity = 0;

  void end() {
    if (++slot == kStages) {
      slot = 0;
      parity ^= 1;
    }
  }
};

// Whether codes are words of eight 4-bit ones, which are copied to shared memory. Where units have several scales, lanes
// load both.
template <typename W>
constexpr bool is_copied() {
  if constexpr (requires { W::kBits; })
    return W::kBits == 4 && W::kSharesScale;
  else
    return false;
}

// What a form does not take of shared memory is first-level cache.
template <typename W>
struct WideForm {
  static constexpr uint kSpan = 1, kThreads = kMultipliers + kBringers;
  static constexpr uint kBytes = WideShape<is_copied<W>()>::kBytes + 1024;
  static_assert(kBytes <= kMostSharedBytes);
};

// The form of a kernel by its template arguments: of weights that are not quantised, of affine formats, of small floats, and
// of GGUF's blocks.
template <typename T>
constexpr WideForm<Dense<T>> wide_form() {
  return {};
}
template <uint bits, typename S>
constexpr WideForm<Affine<bits, S>> wide_form() {
  return {};
}
template <uint bits, uint group>
constexpr WideForm<Fp<bits, group>> wide_form() {
  return {};
}
template <uint type, uint block, uint block_bytes>
constexpr WideForm<Blocks<type, block, block_bytes>> wide_form() {
  return {};
}
#undef PT_FORM
#define PT_FORM(...) decltype(wide_form<__VA_ARGS__>())

// Registers of a thread that multiplies; one that brings has the rest of 256. Where codes are copied, two terms take more.
template <typename W>
constexpr uint kMultiplierRegisters = is_copied<W>() ? 160 + kTerms * 16 : 184;

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
  static_assert(kStages <= kPanelStages + 2, "three panels are enough");
  static constexpr uint kWarpRows = kTiles * 16;

  using Octet = typename W::Octet;

  const W* w;
  const float* x;
  uint rows, in, units, first, out, tid, lane, t;
  uint memory;  // where it begins

  uint stages() const { return (units + kStageUnits - 1) / kStageUnits; }
  uint terms_in(uint slot) const { return memory + slot * (kTerms * Shape::kTermBytes); }
  uint sums_in(uint slot) const { return memory + Shape::kSums + slot * Shape::kSumBytes; }
  uint codes_in(uint slot) const { return memory + Shape::kCodes + slot * Shape::kCodeBytes; }
  uint panel(uint number) const {
    return memory + Shape::kFactors + number % kPanels * (kPanelGroups * Shape::kPanelPitch);
  }
  uint filled(uint slot) const { return memory + Shape::kBarriers + slot * 24; }
  uint used(uint slot) const { return filled(slot) + 8; }
  uint copied(uint slot) const { return filled(slot) + 16; }

  // Of all threads, before their work differs.
  void begin() const {
    if (tid == 0) {
#pragma unroll
      for (uint slot = 0; slot < kStages; ++slot) {
        init_barrier(filled(slot), kBringers);
        init_barrier(used(slot), kMultipliers / 32);
        init_barrier(copied(slot), kBringers);
      }
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

  // Loads the octets of x of a stage: of token own_token(), and of that plus 32. The thread's first octets are at `source`.
  void load(const float* const (&source)[2], uint stage, Inputs& inputs) const {
    const uint begin = stage * kStageUnits * kUnit;
    const auto load_where = [&](auto exists) {
#pragma unroll
      for (uint i = 0; i < kItems; ++i) {
        const uint column = begin + i / 2 * 64;
        const float4* from = reinterpret_cast<const float4*>(source[i % 2] + column);
        inputs.values[i][0] = exists(column) ? from[0] : float4(0);
        inputs.values[i][1] = exists(column) ? from[1] : float4(0);
      }
    };
    if ((stage + 1) * kStageUnits <= units)
      load_where([](uint) { return true; });
    else
      load_where([&](uint column) { return column + tid % 8 * kOctet < units * kUnit; });
  }

  // Makes terms of an octet of x.
  void convert(uint slot, uint i, const Inputs& inputs) const {
    const uint octet = tid % 8, token = i % 2 * 32 + own_token();
    const uint chunk = group == 2 ? octet % 2 * 4 : octet / 4 * 4, at = group == 2 ? octet / 2 : octet % 4;
    const uint place = own_token() * 128 + (chunk ^ own_token() % 8) * 16 + at * 4;
    const float4 low = inputs.values[i][0], high = inputs.values[i][1];
    const float begin[4] = {low.x, low.y, low.z, low.w}, end[4] = {high.x, high.y, high.z, high.w};
    float sum = 0;
#pragma unroll
    for (uint m = 0; m < 4; ++m) {
      const PairTerms pair = terms_of<bfloat>(begin[m], end[m]);
      const uint to = terms_in(slot) + (place ^ m * 16) + (i / 2 * kTileTokens + i % 2 * 32) * 128;
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
      store_if(octet % (4 * group) == 0, sums_in(slot) + (number * kTileTokens + token) * 4, sum);
    }
  }

  // Where the codes begin that a thread copies: those of its first row, and how many words further on the others. For units
  // and rows that do not exist it copies others: factors of those units are zero, results of those rows are not stored.
  struct Codes {
    static constexpr uint kStep = kBringers / 4;  // rows
    static constexpr uint kCount = kTiles * kTileRows / kStep;
    const uint* words;
    uint further[kCount];
  };

  uint codes_place() const { return (tid - kMultipliers) / 4; }

  Codes own_codes() const {
    Codes codes = {};
    if constexpr (kCopied) {
      const uint row = row_at(codes_place());
      codes.words = from_row(matrix_at(codes_place()), min(row, out - 1)).packed;
#pragma unroll
      for (uint i = 0; i < Codes::kCount; ++i) {
        const uint distance = i * (Codes::kStep / count);
        codes.further[i] = row + distance < out ? distance * w[0].units * 4 : 0;
      }
    }
    return codes;
  }

  // Asks for the codes of a stage.
  void copy_codes(const Codes& codes, uint stage, uint slot) const {
    if constexpr (kCopied) {
      const uint* words = codes.words + min(stage * kStageUnits + tid % 4, units - 1) * 4;
      const uint to = codes_in(slot) + codes_place() * Shape::kCodePitch + tid % 4 * 16;
#pragma unroll
      for (uint i = 0; i < Codes::kCount; ++i)
        copy_16_bytes(to + i * Codes::kStep * Shape::kCodePitch, words + codes.further[i], 16);
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
    const float* source[2];
#pragma unroll
    for (uint i = 0; i < 2; ++i)
      source[i] = x + ulong(min(i * 32 + own_token(), rows - 1)) * in + tid % 8 * kOctet;
    const Codes codes = own_codes();
    Inputs inputs;
    Octet octets[kShare];
    load(source, 0, inputs);
    if constexpr (W::kSharesScale) {
      Octet all[kPanelStages][kShare];
#pragma unroll
      for (uint share = 0; share < kPanelStages; ++share) fetch_factors(0, share, all[share]);
#pragma unroll
      for (uint share = 0; share < kPanelStages; ++share) keep_factors(0, share, all[share]);
    }
    Turn turn;
    for (uint stage = 0; stage < count_of_stages; ++stage, turn.end()) {
      wait_for_turn(used(turn.slot), turn.parity ^ 1);
      copy_codes(codes, stage, turn.slot);
      if constexpr (W::kSharesScale) {
        if (stage > 0) keep_factors((stage - 1) / kPanelStages + 1, (stage - 1) % kPanelStages, octets);
      }
#pragma unroll
      for (uint i = 0; i < kItems; ++i) convert(turn.slot, i, inputs);
      publish_columns();  // waits for loads, too: those of the next stage come after it
      arrive(filled(turn.slot));
      if (stage + 1 == count_of_stages) break;
      if constexpr (W::kSharesScale) fetch_factors(stage / kPanelStages + 1, stage % kPanelStages, octets);
      load(source, stage + 1, inputs);
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

  // What a lane has in shared memory of tile j of a group: codes, and factors if weights are rounded.
  struct Shared {
    uint2 codes[2], factors[2];
  };

  Shared shared_of(uint stage, uint slot, uint b, uint j) const {
    Shared shared = {};
#pragma unroll
    for (uint h = 0; h < 2; ++h) {
      if constexpr (kCopied) {
        const uint own = codes_in(slot) + (place() + j * 16 + h * 8) * Shape::kCodePitch;
        shared.codes[h] =
            group == 2 ? shared_words(own + b * 32 + t * 8) : uint2(shared_word(own + b * 16 + t * 4));
      }
      if constexpr (kRounded) shared.factors[h] = shared_words(factors_at(stage, b, j) + h * 64);
    }
    return shared;
  }

  void decode(const Shared& shared, uint b, uint j, const Weights& weights, uint4 (&a)[kWeightTerms][kSteps])
      const {
    const uint part = b * group / 2;
#pragma unroll
    for (uint k = 0; k < kSteps; ++k) {
      const uint second = group == 2 ? k / 2 : b % 2, s = part * 2 + second;
      StepTerms terms[2];
#pragma unroll
      for (uint h = 0; h < 2; ++h) {
        const uint word = group == 2 && second > 0 ? shared.codes[h].y : shared.codes[h].x;
        if constexpr (kCopied && W::kPairOffset == 128) {
          terms[h] = step_of_word(word, k % 2);
          if constexpr (kRounded)
            terms[h] = PairFactors{shared.factors[h].x, shared.factors[h].y}.weights_of(terms[h]);
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

  GroupFactors factors_of(uint stage, uint slot, uint b, uint j) const {
    GroupFactors factors = {};
    const uint own = factors_at(stage, b, j);
#pragma unroll
    for (uint h = 0; h < 2; ++h) {
      const float2 factor = shared_float2(own + h * 64);
      factors.scale[h] = factor.x;
      factors.bias[h] = factor.y;
    }
    factors.totals = sums_in(slot) + b * kTileTokens * 4;
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
    Turn turn;
    for (uint stage = 0; stage < count_of_stages; ++stage, turn.end()) {
      const uint slot = turn.slot;
      wait_for_turn(filled(slot), turn.parity);
      if constexpr (kCopied) wait_for_turn(copied(slot), turn.parity);
      GroupFactors last = {};
#pragma unroll
      for (uint b = 0; b < kGroups; ++b) {
        const SharedColumns columns =
            SharedColumns::at(terms_in(slot) + b * group / 2 * kTileTokens * 128).step(b * group % 2 * 2);
#pragma unroll
        for (uint j = 0; j < kTiles; ++j) {
          const uint number = b * kTiles + j, now = number % 2;
          decode(shared_of(stage, slot, b, j), b, j, weights, a[now]);
          fetch(min(stage + 1, count_of_stages - 1), b, j, weights);
          if constexpr (kScaled) {
            const GroupFactors factors = factors_of(stage, slot, b, j);
            ask_group<true, Shape::kTermBytes>(sums[now], a[now], columns);
            if (number > 0) {
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
      if (lane == 0) arrive(used(slot));
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
