// attend_coded for NVIDIA's matrix units, as attention/cuda/cache_tiles.h: 64 rows, and one or two teams of four warps that
// take tiles of keys by turns.
//
// Codes are copied to shared memory while a team works on others. A team makes rows of centroids of those of its keys, then,
// in their place, of its values. Exact rows are sums of two halves, half as many in a tile. Where a result is not finite,
// the rows are computed again by attend_tiles.
#include "tile_loads.h"

template <uint max_dim, uint rows>
struct CodedForm {
  static constexpr uint kTeamThreads = 128, kTerm = 64 * max_dim;  // values of a term of the queries
  static constexpr uint kKeyWords = row_words(max_dim, kKeyBits);
  static constexpr uint kCodeWords = kKeyWords + row_words(max_dim, kValueBits);  // of a key and its value

  // Of a team: rows, codes, scales and means.
  static constexpr uint team_bytes(uint keys) { return keys * (max_dim * 2 + kCodeWords * 4 + 16); }
  // Queries, tables, teams, then the factors and the offsets of queries.
  static constexpr uint bytes(uint teams, uint keys) {
    return 2 * kTerm * 2 + kTableWords * 4 + teams * team_bytes(keys) + 2 * 64 * 4;
  }
  static constexpr bool kUsed = max_dim <= 256 && bytes(1, 32) <= kMostSharedBytes;
  static constexpr uint kTeams = bytes(2, 32) <= kMostSharedBytes ? 2 : 1;
  static constexpr uint kKeys = bytes(kTeams, 64) <= kMostSharedBytes ? 64 : 32;  // of a tile

  // As the front end reads them: contract threadgroups that are one, its threads, its shared memory.
  static constexpr uint kRows = kUsed ? 64 : rows, kSpan = kRows / rows;
  static constexpr uint kThreads = kUsed ? kTeams * kTeamThreads : shader::kThreads;
  static constexpr uint kBytes = kUsed ? bytes(kTeams, kKeys) : 0;
};
#define PT_RESIDENT 1
#define PT_FORM(max_dim, rows) CodedForm<max_dim, rows>

template <uint max_dim, uint rows>
constexpr uint coded_rows() {
  return CodedForm<max_dim, rows>::kRows;
}

// The memory of a threadgroup, and of one of its teams.
template <typename Form, uint max_dim>
struct CodedMemory {
  uchar* memory;
  uint team;

  half* queries() const { return reinterpret_cast<half*>(memory); }
  uint* key_table() const { return reinterpret_cast<uint*>(memory + 2 * Form::kTerm * 2); }
  uint* value_table() const { return key_table() + (kKeyBits == kValueBits ? 0 : KeyTable::kWords); }
  float* factors() const { return reinterpret_cast<float*>(own(Form::kTeams)); }  // [rows]
  float* offsets() const { return factors() + Form::kRows; }                      // [rows]

  half* rows() const { return reinterpret_cast<half*>(own(team)); }  // [keys, max_dim]
  uint* key_codes() const { return reinterpret_cast<uint*>(rows() + Form::kKeys * max_dim); }
  uint* value_codes() const { return key_codes() + Form::kKeys * Form::kKeyWords; }
  float2* scales() const { return reinterpret_cast<float2*>(key_codes() + Form::kKeys * Form::kCodeWords); }
  float2* means() const { return scales() + Form::kKeys; }

 private:
  uchar* own(uint index) const {
    return reinterpret_cast<uchar*>(key_table() + kTableWords) + index * Form::team_bytes(Form::kKeys);
  }
};

// The keys [first, end) that a threadgroup sees, of which those from `coded` on are exact.
struct CodedRange {
  uint first, coded, end;
};

// Adds compressed keys. The first are asked for before queries are staged, which `stage` does.
template <typename Form, uint max_dim, typename Stage>
inline void add_codes(
    CodedRows<Form, max_dim>& warp,
    const TurboSource& k,
    const TurboSource& v,
    CodedRange keys,
    CodedMemory<Form, max_dim> memory,
    uint tid,
    Stage stage) {
  using KeyCodes = TileCodes<Form, max_dim, KeyTable, kKeyBits>;
  using ValueCodes = TileCodes<Form, max_dim, ValueTable, kValueBits>;
  constexpr uint kStep = Form::kTeams * Form::kKeys;
  const KeyTable key_table = {memory.key_table(), warp.lane * 4};
  const ValueTable value_table = {memory.value_table(), warp.lane * 4};
  const bool wide_keys = KeyCodes::is_wide(k), wide_values = ValueCodes::is_wide(v);
  KeyFactors factors;
  const auto ask_keys = [&](uint from) {
    if (from < keys.coded) KeyCodes::ask(k, wide_keys, from, keys.coded, memory.key_codes(), tid);
    copies_asked();
  };
  const auto ask_values = [&](uint from) {
    if (from < keys.coded) ValueCodes::ask(v, wide_values, from, keys.coded, memory.value_codes(), tid);
    copies_asked();
  };
  const auto ask_factors = [&](uint from) {
    if (from < keys.coded && tid < Form::kKeys) factors.load(k, v, min(from + tid, keys.coded - 1));
  };
  uint first = keys.first + memory.team * Form::kKeys;
  ask_keys(first);
  ask_values(first);
  ask_factors(first);
  stage();
  const KeyPair *scales = reinterpret_cast<const KeyPair*>(memory.scales()),
                *means = reinterpret_cast<const KeyPair*>(memory.means());
  for (; first < keys.coded; first += kStep) {
    wait_for_copies_but_one();
    team_barrier(memory.team, Form::kTeamThreads);
    KeyCodes::unpack(memory.key_codes(), key_table, memory.rows(), tid);
    if (tid < Form::kKeys) factors.store(memory.scales()[tid], memory.means()[tid]);
    ask_factors(first + kStep);
    team_barrier(memory.team, Form::kTeamThreads);
    ask_keys(first + kStep);
    warp.score(memory.queries(), memory.rows());
    wait_for_copies_but_one();
    team_barrier(memory.team, Form::kTeamThreads);
    ValueCodes::unpack(memory.value_codes(), value_table, memory.rows(), tid);
    warp.template weigh<Form::kKeys>(
        scales, means, first, keys.coded, warp.all_visible(first, first + Form::kKeys, keys.coded));
    team_barrier(memory.team, Form::kTeamThreads);
    ask_values(first + kStep);
    warp.add(memory.rows());
  }
}

// Adds exact keys.
template <typename Form, uint max_dim>
inline void add_exact(
    CodedRows<Form, max_dim>& warp,
    const TurboSource& k,
    const TurboSource& v,
    CodedRange keys,
    CodedMemory<Form, max_dim> memory,
    uint tid) {
  constexpr uint kCount = Form::kKeys / 2;
  const KeyPair *scales = reinterpret_cast<const KeyPair*>(memory.scales()),
                *means = reinterpret_cast<const KeyPair*>(memory.means());
  float* to = reinterpret_cast<float*>(memory.scales());
  const uint simd = tid / 32;
  for (uint first = keys.coded + memory.team * kCount; first < keys.end; first += Form::kTeams * kCount) {
    team_barrier(memory.team, Form::kTeamThreads);
    load_exact<Form, max_dim, kCount>(k, first, keys.end, memory.rows(), to, warp.lane, simd);
    if (bool(has_means) && tid < kCount) memory.means()[tid] = float2(0.0f);
    team_barrier(memory.team, Form::kTeamThreads);
    warp.template score<kCount, true>(memory.queries(), memory.rows());
    team_barrier(memory.team, Form::kTeamThreads);
    load_exact<Form, max_dim, kCount>(v, first, keys.end, memory.rows(), to + 1, warp.lane, simd);
    team_barrier(memory.team, Form::kTeamThreads);
    warp.template weigh<kCount>(
        scales, means, first, keys.end, warp.all_visible(first, first + kCount, keys.end));
    warp.template add<kCount, true>(memory.rows());
  }
}

template <uint max_dim, uint rows>
inline void attend_coded(
    const float* q,
    const TurboSource& k,
    const TurboSource& v,
    TileRows own,
    Mask mask,
    float scale,
    float softcap,
    const float* sinks,
    float* y,
    TileMemory tiles,
    uint tid,
    uint lane,
    uint simd) {
  using Form = CodedForm<max_dim, rows>;
  const uint dim = k.dim;
  if constexpr (Form::kUsed) {
    const uint team = tid / Form::kTeamThreads, team_tid = tid % Form::kTeamThreads;
    const CodedMemory<Form, max_dim> memory = {reinterpret_cast<uchar*>(dynamic_memory()), team};
    const uint begin = mask.begin(own.query(0)), end = mask.end(own.query(own.count - 1));
    const CodedRange keys = {begin, min(max(k.exact, begin), end), end};
    CodedRows<Form, max_dim> warp = {{own, mask, simd % 4 * 16, lane, lane / 4, lane % 4}};
    warp.cap = softcap;
    warp.start();
    add_codes(warp, k, v, keys, memory, team_tid, [&] {
      KeyTable::fill(memory.key_table(), tid, Form::kThreads);
      if (kKeyBits != kValueBits) ValueTable::fill(memory.value_table(), tid, Form::kThreads);
      stage_queries<Form, max_dim>(q, own, dim, memory.queries(), memory.factors(), lane, simd);
      if (bool(has_means)) stage_offsets<Form>(q, own, k.ones, dim, memory.offsets(), lane, simd);
      ::__syncthreads();
      const float factor = scale * (softcap > 0.0f ? 1.0f / softcap : kLog2E);
#pragma unroll
      for (uint second = 0; second < 2; ++second) {
        const uint row = warp.first_row + second * 8 + warp.g;
        warp.scale[second] = factor / memory.factors()[row];
        warp.offset[second] = bool(has_means) ? factor * memory.offsets()[row] : 0.0f;
      }
    });
    if (bool(has_own) || bool(has_recent)) add_exact(warp, k, v, keys, memory, team_tid);
    // For racecheck, which does not see that the barrier of all ends the work of a team, too.
    team_barrier(team, Form::kTeamThreads);
    warp.finish(k.ones, dim);
    ::__syncthreads();
    float* left = reinterpret_cast<float*>(memory.queries());
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
      attend_again<Form, float, max_dim, rows>(
          q, k, v, own, mask, scale, softcap, sinks, y, left, tid, lane, simd);
  } else {
    attend_tiles<float, max_dim, rows>(
        HeadQueries{q, dim}, k, v, own, mask, dim, dim, scale, softcap, sinks, y, tiles, tid, lane, simd);
  }
}
