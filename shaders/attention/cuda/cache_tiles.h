// attend_cache for NVIDIA's matrix units, for a cache of half or bfloat.
//
// A threadgroup has 64 rows and one or two teams of four warps. A team takes tiles of keys by turns; each of its warps has
// 16 of the rows and keeps their scores, weights and sums in registers. The next keys are copied to shared memory while
// values are multiplied, and the other way round. In the end the teams join their sums.
//
// Operands are of the type of the cache. Where a result is not finite, the rows are computed again by attend_tiles, which
// keeps NaN and inf where they are seen.
#include "warp_rows.h"

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
      attend_again<Form, T, max_dim, rows>(
          q, k, v, own, mask, scale, softcap, sinks, y, reinterpret_cast<float*>(queries), tid, lane, simd);
  } else {
    attend_tiles<T, max_dim, rows>(
        HeadQueries{q, dim}, k, v, own, mask, dim, dim, scale, softcap, sinks, y, memory, tid, lane, simd);
  }
}
