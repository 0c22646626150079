// attend_cache for NVIDIA's matrix units, for a cache of half or bfloat.
//
// A threadgroup has 64 rows and one or two teams of four warps. A team takes tiles of keys by turns; each of its warps has
// 16 of the rows and keeps their scores, weights and sums in registers. The next keys are copied to shared memory while
// values are multiplied, and the other way round. In the end the teams join their sums.
//
// Operands are of the type of the cache; queries and the weights of keys are sums of two values of that type. Where a
// result is not finite, the rows are computed again by attend_tiles, which keeps NaN and inf where they are seen.
#include "../../common/cuda/matrix_units.h"
#include "../../common/cuda/shared_rows.h"

template <typename T, uint max_dim, uint rows>
struct CacheForm {
  static constexpr bool kUsed = !is_same_v<T, float> && max_dim <= 256;
  static constexpr uint kRows = kUsed ? 64 : rows;
  static constexpr uint kTeamThreads = 128, kTerm = kRows * max_dim;  // values of a term of the queries

  // Terms of the queries and their factors, then the keys and values of each team.
  static constexpr uint bytes(uint teams, uint keys) {
    return (2 * kTerm + teams * keys * max_dim * 2) * 2 + kRows * 4;
  }
  static constexpr uint kTeams = bytes(2, 32) <= kMostSharedBytes ? 2 : 1;
  static constexpr uint kKeys = bytes(kTeams, 64) <= kMostSharedBytes ? 64 : 32;  // of a tile

  // As the front end reads them: contract threadgroups that are one, its threads, its shared memory.
  static constexpr uint kSpan = kRows / rows;
  static constexpr uint kThreads = kUsed ? kTeams * kTeamThreads : shader::kThreads;
  static constexpr uint kBytes = kUsed ? bytes(kTeams, kKeys) : 0;
};
#define PT_RESIDENT 1
#define PT_FORM(T, max_dim, rows) CacheForm<T, max_dim, rows>

template <typename T, uint max_dim, uint rows>
constexpr uint attended_rows() {
  return CacheForm<T, max_dim, rows>::kRows;
}

constexpr float kLog2E = 1.44269504f;

// One warp: lane (g, t) has rows g and g + 8 of its 16.
template <typename Form, uint max_dim, typename T>
struct WarpRows {
  using Units = MatrixUnits<T>;
  using Rows = SharedRows<max_dim>;
  static constexpr uint kKeys = Form::kKeys;

  TileRows own;
  Mask mask;
  uint first_row, lane, g, t;
  float scale[2], cap;           // of scores; those with a cap are divided by it first
  float top[2];                  // the largest scores so far, times log2 e
  float total[2];                // sums of the lane's weights
  float weights[kKeys / 8][4];   // of keys 2 t and 2 t + 1 of each eight, times Units::kWeight
  float values[max_dim / 8][4];  // weighted sums, of columns 2 t and 2 t + 1 of each eight

  uint query(uint second) const { return own.query(first_row + second * 8 + g); }

  // weights = products of queries and keys.
  void score(const T* queries, const T* keys) {
#pragma unroll
    for (uint n = 0; n < kKeys / 8; ++n) {
#pragma unroll
      for (uint e = 0; e < 4; ++e) weights[n][e] = 0.0f;
    }
    const uint query = Rows::of_16(queries, first_row, lane), row = Rows::of_two_8(keys, 0, lane);
#pragma unroll
    for (uint step = 0; step < max_dim / 16; ++step) {
      const uint4 high = load_matrices(Rows::further(query, step * 2));
      const uint4 low = load_matrices(Rows::further(query, step * 2) + Form::kTerm * 2);
#pragma unroll
      for (uint n = 0; n < kKeys / 16; ++n) {
        const uint4 key = load_matrices(Rows::further(row, step * 2) + n * 16 * Rows::kRowBytes);
        Units::multiply(weights[n * 2], low, key.x, key.y);
        Units::multiply(weights[n * 2 + 1], low, key.z, key.w);
        Units::multiply(weights[n * 2], high, key.x, key.y);
        Units::multiply(weights[n * 2 + 1], high, key.z, key.w);
      }
    }
  }

  // weights = those of the scores of the keys from `first` on. Sums of earlier keys become relative to the new top.
  void weigh(uint first, bool all_visible) {
    bool changed = false;
    float kept[2];
    if (cap > 0.0f) {
#pragma unroll
      for (uint i = 0; i < kKeys / 2; ++i) {
        float& score = weights[i / 4][i % 4];
        score = tanh(score * scale[i % 4 / 2]) * cap;
      }
    }
#pragma unroll
    for (uint second = 0; second < 2; ++second) {
      const float factor = cap > 0.0f ? kLog2E : scale[second];
      const uint begin = mask.begin(query(second)), end = mask.end(query(second));
      float higher = top[second];
#pragma unroll
      for (uint i = 0; i < kKeys / 4; ++i) {
        float& score = weights[i / 2][second * 2 + i % 2];
        score *= factor;
        const uint key = first + i / 2 * 8 + t * 2 + i % 2;
        if (!all_visible && !(begin <= key && key < end)) score = -INFINITY;
        higher = max(higher, score);
      }
      higher = max(higher, simd_shuffle_xor(higher, 1));
      higher = max(higher, simd_shuffle_xor(higher, 2));
      const float base = higher == -INFINITY ? 0.0f : higher;
      kept[second] = exp2_fast(top[second] - base);
      changed = changed || kept[second] != 1.0f;
      top[second] = higher;
      total[second] *= kept[second];
#pragma unroll
      for (uint i = 0; i < kKeys / 4; ++i) {
        float& weight = weights[i / 2][second * 2 + i % 2];
        weight = exp2_fast((weight - base) + Units::kLogWeight);
        total[second] += weight;
      }
    }
    if (!simd_any(changed)) return;
#pragma unroll
    for (uint n = 0; n < max_dim / 8; ++n) {
#pragma unroll
      for (uint e = 0; e < 4; ++e) values[n][e] *= kept[e / 2];
    }
  }

  // values += weights times the values of the keys.
  void add(const T* rows) {
    const uint row = Rows::of_16(rows, 0, lane);
#pragma unroll
    for (uint step = 0; step < kKeys / 16; ++step) {
      PairTerms pairs[4];
#pragma unroll
      for (uint i = 0; i < 4; ++i) {
        const float(&pair)[4] = weights[step * 2 + i / 2];
        pairs[i] = terms_of<T>(pair[i % 2 * 2], pair[i % 2 * 2 + 1]);
      }
      const uint4 high = {pairs[0].high, pairs[1].high, pairs[2].high, pairs[3].high};
      const uint4 low = {pairs[0].low, pairs[1].low, pairs[2].low, pairs[3].low};
#pragma unroll
      for (uint n = 0; n < max_dim / 16; ++n) {
        const uint4 value = load_turned(Rows::further(row, n * 2) + step * 16 * Rows::kRowBytes);
        Units::multiply(values[n * 2], low, value.x, value.y);
        Units::multiply(values[n * 2 + 1], low, value.z, value.w);
        Units::multiply(values[n * 2], high, value.x, value.y);
        Units::multiply(values[n * 2 + 1], high, value.z, value.w);
      }
    }
  }

  // Sums of the weights of all four lanes of a row, relative to 1.
  void finish() {
#pragma unroll
    for (uint second = 0; second < 2; ++second) {
      total[second] += simd_shuffle_xor(total[second], 1);
      total[second] += simd_shuffle_xor(total[second], 2);
    }
  }

  // What a lane leaves in memory for the same lane of another team.
  static constexpr uint kShared = 4 + max_dim / 2;
  void leave(float* memory, uint tid) const {
#pragma unroll
    for (uint i = 0; i < 4; ++i) memory[i * Form::kTeamThreads + tid] = i < 2 ? top[i] : total[i - 2];
#pragma unroll
    for (uint i = 0; i < max_dim / 2; ++i) memory[(4 + i) * Form::kTeamThreads + tid] = values[i / 4][i % 4];
  }
  void join(const float* memory, uint tid) {
    float own_part[2], other_part[2];
#pragma unroll
    for (uint second = 0; second < 2; ++second) {
      const float other = memory[second * Form::kTeamThreads + tid];
      const float higher = max(top[second], other);
      const float base = higher == -INFINITY ? 0.0f : higher;
      own_part[second] = exp2_fast(top[second] - base);
      other_part[second] = exp2_fast(other - base);
      top[second] = higher;
      total[second] = total[second] * own_part[second] +
                      memory[(2 + second) * Form::kTeamThreads + tid] * other_part[second];
    }
#pragma unroll
    for (uint i = 0; i < max_dim / 2; ++i) {
      float& value = values[i / 4][i % 4];
      value =
          value * own_part[i % 4 / 2] + memory[(4 + i) * Form::kTeamThreads + tid] * other_part[i % 4 / 2];
    }
  }

  // values = results. Returns whether they are all finite, and no row has only scores of -inf.
  bool normalize(const float* sinks) {
    bool finite = true;
    float zeros = 0.0f;
#pragma unroll
    for (uint second = 0; second < 2; ++second) {
      const uint row = first_row + second * 8 + g;
      const bool exists = row < own.count;
      const float sink = sinks != nullptr && exists ? sinks[own.head(row)] : -INFINITY;
      const float sum = total[second] / Units::kWeight;
      finite = finite && (sum > 0.0f || !exists || mask.begin(query(second)) >= mask.end(query(second)));
      const float factor = normalizer(top[second] / kLog2E, sum, sink) / Units::kWeight;
#pragma unroll
      for (uint i = 0; i < max_dim / 4; ++i) {
        float& value = values[i / 2][second * 2 + i % 2];
        value *= factor;
        zeros = fma(value, 0.0f, zeros);
      }
    }
    return finite && zeros == 0.0f;
  }

  void store(float* y, uint dim) const {
#pragma unroll
    for (uint second = 0; second < 2; ++second) {
      const uint row = first_row + second * 8 + g;
      if (row >= own.count) continue;
      float* to = y + own.place(row) * dim + t * 2;
#pragma unroll
      for (uint n = 0; n < max_dim / 8; ++n) {
        if (n * 8 >= dim) continue;
        to[n * 8] = values[n][second * 2];
        to[n * 8 + 1] = values[n][second * 2 + 1];
      }
    }
  }
};

// The rows of q as high terms, then low ones; factors[row] is what a row was multiplied with.
template <typename Form, uint max_dim, typename T>
inline void stage_queries(
    const float* q,
    TileRows own,
    uint dim,
    T* queries,
    float* factors,
    uint lane,
    uint simd) {
  for (uint row = simd; row < Form::kRows; row += Form::kThreads / 32) {
    float x[8] = {}, largest = 0.0f;
    if (row < own.count && lane * 8 < dim) {
#pragma unroll
      for (uint i = 0; i < 8; ++i) {
        x[i] = q[own.place(row) * dim + lane * 8 + i];
        largest = max(largest, abs(x[i]));
      }
    }
    const float factor = MatrixUnits<T>::range_factor(simd_max(largest));
    if (lane == 0) factors[row] = factor;
    if (lane * 8 >= max_dim) continue;
    PairTerms pairs[4];
#pragma unroll
    for (uint i = 0; i < 4; ++i) pairs[i] = terms_of<T>(x[i * 2] * factor, x[i * 2 + 1] * factor);
    T* to = queries + SharedRows<max_dim>::place(row, lane);
    *reinterpret_cast<uint4*>(to) = uint4{pairs[0].high, pairs[1].high, pairs[2].high, pairs[3].high};
    *reinterpret_cast<uint4*>(to + Form::kTerm) =
        uint4{pairs[0].low, pairs[1].low, pairs[2].low, pairs[3].low};
  }
}

// Asks for the rows of the keys from `first` on; those from `end` on are the last one. Their columns from dim on are zero.
template <typename Form, uint max_dim, typename T>
inline void ask_for_rows(const CacheSource<T>& source, uint first, uint end, T* rows, uint tid) {
  constexpr uint kParts = max_dim / 8;  // of a row, 16 bytes each
  const uint part = tid % kParts, size = part * 8 < source.dim ? 16 : 0;
  const T* from = source.head + part * 8;
#pragma unroll
  for (uint key = tid / kParts; key < Form::kKeys; key += Form::kTeamThreads / kParts)
    copy_16_bytes(
        rows + SharedRows<max_dim>::place(key, part),
        from + ulong(source.ring.row(min(first + key, end - 1))) * uint(source.stride), size);
}

// attend_tiles for all rows, with its memory at `place`. Apart, so that it takes no registers from what is usual. Only one
// team is left by then: barriers wait for those threads that have not ended.
template <uint max_dim, uint rows, typename T>
__noinline__ void attend_again(
    const float* q,
    const CacheSource<T>& k,
    const CacheSource<T>& v,
    TileRows own,
    Mask mask,
    float scale,
    float softcap,
    const float* sinks,
    float* y,
    float* place,
    uint tid,
    uint lane,
    uint simd) {
  TileMemory memory = {place};
  memory.tile = memory.queries + rows * (max_dim + kPad);
  memory.weights = memory.tile + kKeys * kChunkStride;
  memory.factors = memory.weights + rows * kWeightStride;
  memory.scratch = memory.factors + rows * kBlock;
  memory.finite = reinterpret_cast<bool*>(memory.scratch + kSimdgroups * kBlock * kBlock);
  constexpr uint values = rows * (max_dim + kPad + kWeightStride + kBlock) + kKeys * kChunkStride;
  static_assert(
      (values + kSimdgroups * kBlock * kBlock) * 4 + kSimdgroups <= CacheForm<T, max_dim, rows>::kBytes,
      "the memory of the form has room for it");
  const uint end = own.first + own.count;
  for (; own.first < end; own.first += rows) {
    own.count = min(rows, end - own.first);
    load_queries<rows>(q, k.dim, own, memory.queries, max_dim + kPad, 0, tid);
    attend_tiles<max_dim, rows>(
        k, v, own, mask, k.dim, k.dim, scale, softcap, sinks, y, memory, tid, lane, simd);
    ::__syncthreads();
  }
}

template <uint max_dim, uint rows, typename T>
inline void attend_cache(
    const float* q,
    const CacheSource<T>& k,
    const CacheSource<T>& v,
    TileRows own,
    Mask mask,
    float scale,
    float softcap,
    const float* sinks,
    float* y,
    TileMemory memory,
    uint tid,
    uint lane,
    uint simd) {
  using Form = CacheForm<T, max_dim, rows>;
  const uint dim = k.dim;
  if constexpr (Form::kUsed) {
    T* queries = reinterpret_cast<T*>(dynamic_memory());
    float* factors = reinterpret_cast<float*>(queries + 2 * Form::kTerm);
    const uint team = tid / Form::kTeamThreads, team_tid = tid % Form::kTeamThreads;
    T* keys = reinterpret_cast<T*>(factors + Form::kRows) + team * 2 * Form::kKeys * max_dim;
    T* values = keys + Form::kKeys * max_dim;
    const uint first_query = own.query(0), last_query = own.query(own.count - 1);
    const uint end = mask.end(last_query);
    uint first = mask.begin(first_query) + team * Form::kKeys;
    const auto ask = [&](const CacheSource<T>& source, uint from, T* to) {
      if (from < end) ask_for_rows<Form, max_dim>(source, from, end, to, team_tid);
      copies_asked();
    };
    ask(k, first, keys);
    ask(v, first, values);

    stage_queries<Form, max_dim>(q, own, dim, queries, factors, lane, simd);
    ::__syncthreads();
    WarpRows<Form, max_dim, T> warp = {own, mask, simd % 4 * 16, lane, lane / 4, lane % 4};
    warp.cap = softcap;
#pragma unroll
    for (uint second = 0; second < 2; ++second) {
      const float factor = factors[warp.first_row + second * 8 + warp.g];
      warp.scale[second] = scale / factor * (softcap > 0.0f ? 1.0f / softcap : kLog2E);
      warp.top[second] = -INFINITY;
    }
    for (; first < end; first += Form::kTeams * Form::kKeys) {
      const uint next = first + Form::kTeams * Form::kKeys;
      wait_for_copies_but_one();
      team_barrier(team, Form::kTeamThreads);
      warp.score(queries, keys);
      team_barrier(team, Form::kTeamThreads);
      ask(k, next, keys);
      warp.weigh(first, first + Form::kKeys <= mask.end(first_query) && first >= mask.begin(last_query));
      wait_for_copies_but_one();
      team_barrier(team, Form::kTeamThreads);
      warp.add(values);
      team_barrier(team, Form::kTeamThreads);
      ask(v, next, values);
    }
    warp.finish();
    ::__syncthreads();
    float* left = reinterpret_cast<float*>(queries);
    if (team > 0) warp.leave(left, team_tid);
    ::__syncthreads();
    bool finite = true;
    if (team == 0) {
      if (Form::kTeams > 1) warp.join(left, team_tid);
      finite = warp.normalize(sinks);
    }
    finite = ::__syncthreads_and(finite);
    if (finite && team == 0) warp.store(y, dim);
    if (!finite && team == 0)
      attend_again<max_dim, rows>(
          q, k, v, own, mask, scale, softcap, sinks, y, reinterpret_cast<float*>(queries), tid, lane, simd);
  } else {
    load_queries<rows>(q, dim, own, memory.queries, max_dim + kPad, 0, tid);
    attend_tiles<max_dim, rows>(k, v, own, mask, dim, dim, scale, softcap, sinks, y, memory, tid, lane, simd);
  }
}
